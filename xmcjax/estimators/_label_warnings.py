"""Warnings of labels without rows, and, in one-vs-all fits, of unsolved labels and what clipping cost."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from sklearn.exceptions import ConvergenceWarning


def warn_of_empty(empty: int, count: int, stacklevel: int = 4) -> None:
    """Warns of labels or classes without rows; called by a decorated method, whose caller the warning names.

    Args:
        empty: how many there are; 0 for no warning.
        count: the number of all labels.
        stacklevel: where the caller of the method is.
    """
    if empty:
        warnings.warn(
            f"{empty} of {count} labels have no positive rows: they score lowest and are never predicted",
            UserWarning,
            stacklevel=stacklevel,
        )


def warn_of_labels(
    results: list[Any], raised: Any, name: Callable[[int], str], clip: float | None, max_iter: int
) -> None:
    """Warns of labels; called by a decorated method, whose caller the warnings name.

    Args:
        results: of the labels.
        raised: labels whose objectives dropped weights have raised, from the summary of the training.
        name: of a label, by its number.
        clip, max_iter: of the estimator; with a `max_iter` of 0 none was to converge.
    """
    from xmcjax.lanes import worse
    from xmcjax.solvers import REMEDY, Status

    empty = sum(result.status == Status.NO_POSITIVES for result in results)
    warn_of_empty(empty, len(results), stacklevel=5)
    if raised.labels:
        text = raised.describe(name(raised.worst), clip)
        warnings.warn(text, UserWarning, stacklevel=4)  # the caller of a decorated method
    failed = [r for r in results if r.status in REMEDY] if max_iter else []
    worst = functools.reduce(worse, failed, None)
    if worst is not None:
        statuses, dtype = {Status(r.status) for r in failed}, failed[0].values.dtype
        remedies = [status.remedy(dtype) for status in sorted(statuses)]
        warnings.warn(
            f"{len(failed)} of {len(results)} labels did not converge, the worst is "
            f"{name(worst.label)} ({worst.status.name}, "
            f"‖∇f‖ = {worst.gradient_norm:.3g}): {'; or '.join(remedies)}",
            ConvergenceWarning,
            stacklevel=4,  # the caller of a decorated method
        )
