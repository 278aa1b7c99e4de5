"""How a solve ended, lane by lane."""

from __future__ import annotations

import enum


class Status(enum.IntEnum):
    """Of one lane. The numbers are stored in models: never renumber.

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


def remedies(more_steps: str, looser: str) -> dict[Status, str]:
    """What to do about each way to end that is no success.

    Args:
        more_steps: how to allow more steps or a looser tolerance, in words.
        looser: how to allow a looser tolerance.
    """
    return {
        Status.MAX_STEPS: f"{more_steps}, or scale the features",
        Status.LINE_SEARCH_FAILED: (
            f"the objective no longer falls in this precision: scale the features, {looser}, or use float64 "
            "in place of float32"
        ),
        Status.STALLED: (
            f"rounding keeps the duality gap too large: scale the features, use float64 in place of float32, "
            f"or {looser}"
        ),
        Status.NONFINITE: "look for huge feature values or a huge C",
    }


#: In the words of the estimators and the command line.
REMEDY = remedies("raise max_iter or tol", "raise tol")
