"""Which of the labels that did not converge is named in a warning."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from xmcjax.solvers import REMEDY, Status

if TYPE_CHECKING:
    from xmcjax.lanes._results import LabelResult


class Unfinished(NamedTuple):
    """The label that ended farthest from its optimum.

    Example:
        >>> worst = Unfinished(12, Status.MAX_STEPS, 0.25)
        >>> print(f"label {worst.label}: {worst.status.remedy(np.float32)}")
        label 12: raise max_iter or tol, or scale the features
    """

    label: int
    status: Status
    gradient_norm: float


def worse(worst: Unfinished | None, result: LabelResult) -> Unfinished | None:
    """The worse of `worst` and a result, which does not count where it converged or was not trained.

    A label with numbers that are not finite is worst, then the one of the larger gradient norm, and
    between equals the one of the lower number, whatever the order in which labels end.

    Example:
        >>> from xmcjax.lanes import LabelResult
        >>> ended = LabelResult(0, np.zeros(0, int), np.zeros(0), 0.0, Status.CONVERGED, 5, 9, 1.0, 0.5)
        >>> slow = ended._replace(label=1, status=Status.MAX_STEPS, gradient_norm=0.1)
        >>> slower = slow._replace(label=2, gradient_norm=0.3)
        >>> worse(worse(worse(None, ended), slower), slow).label
        2
    """
    status = Status(result.status)
    if status not in REMEDY:
        return worst
    found = Unfinished(result.label, status, result.gradient_norm)

    def key(u: Unfinished):
        return u.status == Status.NONFINITE, float(np.nan_to_num(u.gradient_norm)), -u.label

    return found if worst is None or key(found) > key(worst) else worst
