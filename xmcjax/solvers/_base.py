"""How a solve ended, lane by lane."""

from __future__ import annotations

import enum


class Status(enum.IntEnum):
    """Of one lane. The numbers are stored in models: never renumber."""

    FRESH = -1  #: has starting weights; its first step takes them
    RUNNING = 0
    CONVERGED = 1
    MAX_STEPS = 2
    LINE_SEARCH_FAILED = 3
    NONFINITE = 4
    NO_POSITIVES = 5  #: a label without positive instances: not trained
    STALLED = 6  #: further steps bring nothing in this precision


REMEDY = {
    Status.MAX_STEPS: "raise max_iter or tol, or scale the features",
    Status.LINE_SEARCH_FAILED: (
        "the objective no longer falls in this precision: scale the features, raise tol, or use float64"
    ),
    Status.STALLED: (
        "rounding keeps the duality gap too large: scale the features, use float64, or raise tol"
    ),
    Status.NONFINITE: "look for huge feature values or a huge C",
}
