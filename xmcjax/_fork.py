"""JAX computes in threads, which a forked process does not have: it would wait for them for ever.

What needs them says so at once in such a process. What needs none works there: ``MulticlassSVC`` and
one-vs-all training on the native kernels, and ``predict`` of linear classifiers.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import FunctionType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)

_owner: int | None = None  # the process whose threads JAX computes in, as far as it is known


def _note_owner() -> None:
    """Before a fork: whether JAX has begun to compute here, perhaps for somebody else than this package."""
    global _owner
    bridge = sys.modules.get("jax._src.xla_bridge")
    begun = getattr(bridge, "backends_are_initialized", None)
    if _owner is None and begun is not None and begun():
        _owner = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note_owner)


def check_threads_of_jax() -> None:
    """To be called before JAX computes.

    Raises:
        RuntimeError: this process was forked from one in which JAX had computed.
    """
    global _owner
    if _owner is None:
        _owner = os.getpid()
    elif _owner != os.getpid():
        raise RuntimeError(
            f"this process was forked from process {_owner} after JAX had started its threads there, and "
            'would wait for them for ever: start processes with "spawn" or "forkserver" '
            '(multiprocessing.get_context("spawn")), or fork before the first fit'
        )


def needs_threads_of_jax(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which begins with :func:`check_threads_of_jax`."""

    @functools.wraps(function)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        check_threads_of_jax()
        return function(*args, **options)

    return checked


def methods_need_threads_of_jax(cls: C, but: tuple[str, ...] = ()) -> C:
    """The class, whose public methods begin with :func:`check_threads_of_jax`.

    Args:
        cls: the methods that it defines itself count, not those that it inherits.
        but: names of methods that JAX computes nothing for.
    """
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType) and not name.startswith("_") and name not in but:
            setattr(cls, name, needs_threads_of_jax(method))
    return cls
