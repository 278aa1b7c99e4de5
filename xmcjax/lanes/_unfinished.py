"""Which of the labels that did not converge is named in a warning."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from xmcjax.solvers import REMEDY, Status

if TYPE_CHECKING:
    from xmcjax.lanes._results import LabelResult


class Unfinished(NamedTuple):
    """The label that ended farthest from its optimum."""

    label: int
    status: Status
    gradient_norm: float


def worse(worst: Unfinished | None, result: LabelResult) -> Unfinished | None:
    """The worse of `worst` and a result, which does not count where it converged or was not trained.

    What is not finite is worst, then the larger gradient norm; between equals the lower label,
    whatever the order in which labels end.
    """
    status = Status(result.status)
    if status not in REMEDY:
        return worst
    found = Unfinished(result.label, status, result.gradient_norm)

    def key(u: Unfinished):
        return u.status == Status.NONFINITE, float(np.nan_to_num(u.gradient_norm)), -u.label

    return found if worst is None or key(found) > key(worst) else worst
