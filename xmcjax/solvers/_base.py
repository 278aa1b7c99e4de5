"""How a solve ended, lane by lane."""

from __future__ import annotations

import enum

import numpy as np
from numpy.typing import DTypeLike


class Status(enum.IntEnum):
    """How one lane ended, or that it runs. The numbers are stored in models: never renumber.

    Example:
        >>> Status(1).name
        'CONVERGED'
    """

    FRESH = -1  #: has starting weights; its first step takes them
    RUNNING = 0
    CONVERGED = 1
    MAX_STEPS = 2
    LINE_SEARCH_FAILED = 3
    NONFINITE = 4
    NO_POSITIVES = 5  #: a label without positive instances: not trained
    STALLED = 6  #: further steps bring nothing in this precision

    def remedy(self, dtype: DTypeLike) -> str:
        """What to do about this status, in the words of ``REMEDY``, for training in a dtype; "" for nothing.

        Example:
            >>> Status.STALLED.remedy("float64")
            'rounding keeps the duality gap too large: scale the features, or raise tol'
        """
        return remedies(*_WORDS, dtype).get(self, "")


def remedies(more_steps: str, looser: str, dtype: DTypeLike = np.float32) -> dict[Status, str]:
    """What to do about each way to end that is no success.

    Args:
        more_steps: how to allow more steps or a looser tolerance, in words.
        looser: how to allow a looser tolerance.
        dtype: of the solve.
    """
    narrow = np.dtype(dtype) != np.float64
    finer = "use float64 in place of float32"
    return {
        Status.MAX_STEPS: f"{more_steps}, or scale the features",
        Status.LINE_SEARCH_FAILED: (
            "the objective no longer falls in this precision: scale the features, "
            + (f"{looser}, or {finer}" if narrow else f"or {looser}")
        ),
        Status.STALLED: (
            f"rounding keeps the duality gap too large: scale the features, {f'{finer}, ' if narrow else ''}"
            f"or {looser}"
        ),
        Status.NONFINITE: "look for huge feature values or a huge C",
    }


_WORDS = "raise max_iter or tol", "raise tol"
#: In the words of the estimators and the command line, of training in float32.
REMEDY = remedies(*_WORDS)
