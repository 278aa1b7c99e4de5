"""What prediction files may hold, in any form."""

from __future__ import annotations

import numpy as np

from xmcjax import _sparse

#: The largest label.
MAX_LABEL = 2**31 - 1


def checked(labels, scores, before: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores as arrays [n, K] that `read_predictions` accepts.

    Args:
        labels, scores: of the next rows of a file.
        before: how many rows the file has already; errors number the next rows from there.

    Raises:
        ValueError, TypeError: as :func:`xmcjax.models.write_predictions`.
    """
    labels, scores = _sparse.array(labels, "labels"), _sparse.array(scores, "scores")
    if labels.ndim != 2 or labels.shape != scores.shape:
        raise ValueError(
            f"expected labels and scores of one shape [n, K], found {labels.shape}, {scores.shape}"
        )
    if labels.dtype.kind not in "iu" or scores.dtype.kind != "f":
        raise TypeError(
            f"expected integer labels and floating-point scores, found {labels.dtype}, {scores.dtype}"
        )
    wrong = (labels >= 0) & ~np.isfinite(scores)
    if wrong.any():
        row, place = np.argwhere(wrong)[0]
        raise ValueError(
            f"expected finite scores, found {scores[row, place]} for label {labels[row, place]} in row "
            f"{before + row}"
        )
    _check_readable(labels, scores, before)
    return labels, scores


def _check_readable(labels: np.ndarray, scores: np.ndarray, before: int) -> None:
    """Raises ValueError where `read_predictions` would refuse what is written."""
    kept = labels >= 0
    for row, place in np.argwhere(labels > MAX_LABEL)[:1]:
        raise ValueError(
            f"expected labels of at most {MAX_LABEL}, found {labels[row, place]} in row {before + row}"
        )
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large becomes infinite
        too_large = kept & ~np.isfinite(scores.astype(np.float32))
    for row, place in np.argwhere(too_large)[:1]:
        raise ValueError(
            f"expected scores that float32 can hold, found {scores[row, place]} for label "
            f"{labels[row, place]} in row {before + row}"
        )
    # the least score up to each place: as long as scores do not rise, the score at that place
    least = np.minimum.accumulate(np.where(kept, scores, np.inf), axis=1)
    for row, place in np.argwhere(kept[:, 1:] & (scores[:, 1:] > least[:, :-1]))[:1]:
        found = f"{scores[row, place + 1]} after {least[row, place]}"
        raise ValueError(f"expected scores best first, found {found} in row {before + row}")
    ranked = np.sort(np.where(kept, labels.astype(np.int64), -1), axis=1)
    for row, place in np.argwhere((ranked[:, 1:] >= 0) & (ranked[:, 1:] == ranked[:, :-1]))[:1]:
        raise ValueError(
            f"expected each label once per row, found label {ranked[row, place]} again in row {before + row}"
        )
