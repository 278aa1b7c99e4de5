"""The memory that a call takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def peak_of(function: Callable[[], T]) -> tuple[T, int]:
    """What a call gives, and the bytes that Python and NumPy take for it at most."""
    tracemalloc.start()
    try:
        result = function()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
