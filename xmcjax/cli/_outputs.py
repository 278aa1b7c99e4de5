"""Standard output and error of a command whose caller has closed them."""

from __future__ import annotations

import io
import os
import sys


class Nowhere(io.TextIOBase):
    """A stream that takes the place of a closed one."""

    def __init__(self, number: int):
        super().__init__()
        self._number = number

    def write(self, text: str) -> int:
        return len(text)

    def fileno(self) -> int:
        return self._number


def keep_numbers_of_outputs() -> None:
    """Where the caller closed standard output or error, keeps its number from going to a file opened later.

    Otherwise that file would receive what JAX and the C++ kernels print.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                if nowhere != number:
                    os.dup2(nowhere, number)
                    os.close(nowhere)
            setattr(sys, name, Nowhere(number))
