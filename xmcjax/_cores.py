"""How many threads a process may use."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Iterator

# Fewest multiplications of a product that takes all cores: it takes milliseconds.
_MANY = 1 << 28

_LIMITED = threading.Lock()


def usable_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads_of_product(multiplications: int) -> int:
    """As many as there are cores where a product takes milliseconds, else 1."""
    return usable_cores() if multiplications >= _MANY else 1


@contextlib.contextmanager
def blas_threads(count: int) -> Iterator[None]:
    """A context in which NumPy's products take so many threads at most, and no more than they took before.

    Threads of BLAS wait for each other at full speed: where others use the cores, a product of some
    milliseconds takes a hundred with two. The limit is that of the process, so that of two contexts in two
    threads the first one counts: it sets the limit and takes it back.
    """
    if not _LIMITED.acquire(blocking=False):
        yield
        return
    try:
        before = [library.num_threads for library in _blas().lib_controllers if library.num_threads]
        with _blas().limit(limits=min([count, *before])):
            yield
    finally:
        _LIMITED.release()


@functools.cache
def _blas():
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
