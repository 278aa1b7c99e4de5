"""A barrier at which threads of one process or several wait for each other."""

from __future__ import annotations

import numpy as np

from xmcjax.native._calls import InPlace


class Gate:
    """A barrier for a fixed number of threads, of one process or several.

    Args:
        memory: int64 [16] on whole cache lines, shared by all threads; zeros at first.
        members: how many threads meet.
    """

    #: Seconds after which a wait that goes on is reported.
    PATIENCE = 0.2

    def __init__(self, memory: np.ndarray, members: int):
        self._held = np.zeros((), np.int64)
        #: The fields of every native call that meets here.
        self.fields = dict(gate=memory, state=np.zeros(2, np.int64), patience=round(1000 * self.PATIENCE))
        self._call = InPlace("meet", members=members, **self.fields, held=self._held)

    def meet(self) -> bool:
        """Arrives, or continues a wait. Returns whether all threads have arrived."""
        self._call()
        return bool(self._held)
