"""How many threads a process may use."""

from __future__ import annotations

import functools
import os
from contextlib import AbstractContextManager


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def blas_threads(count: int) -> AbstractContextManager:
    """A context in which NumPy's products take so many threads at most.

    Threads of BLAS wait for each other at full speed: where others use the cores, a product of some
    milliseconds takes a hundred with two.
    """
    return _blas().limit(limits=count, user_api="blas")


@functools.cache
def _blas():
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
