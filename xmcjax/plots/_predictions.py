"""Pictures of how good predictions are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from xmcjax import _sparse
from xmcjax._arguments import whole_number
from xmcjax.metrics import by_frequency
from xmcjax.metrics import reject_curve as errors_of_kept
from xmcjax.plots._axes import given_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def precision_by_frequency(
    Y_true,
    predictions,
    k: int = 5,
    *,
    frequencies,
    edges: Sequence[float] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """What labels of each frequency add to P@k, and the share of their positives that are found.

    Args:
        Y_true, predictions, k, frequencies: as in :func:`xmcjax.metrics.by_frequency`.
        edges: between bins of frequency, ascending; None for 2, 3, 6, 11, 21, 51, 101, … as far as there are
            labels.
        ax: axes of matplotlib; None for new ones.

    Raises:
        TypeError, ValueError: as :func:`xmcjax.metrics.by_frequency`.
        ImportError: matplotlib is missing.

    Example:
        >>> precision_by_frequency([[1, 0], [0, 1]], [[0], [1]], 1, frequencies=[9, 1]).get_xlabel()
        'rows of the label in the training data'
    """
    if edges is None:
        most = float(np.max(_sparse.numbers(frequencies, "frequencies"), initial=0))
        scale = [2, 3, 6, *(1 + 10**power * step for power in range(1, 12) for step in (1, 2, 5))]
        edges = [edge for edge in scale if edge <= most] or [2]
    found = by_frequency(Y_true, predictions, k, frequencies=frequencies, edges=edges)
    ax = given_or_new(ax)
    place, width = np.arange(len(found.labels)), 0.4
    ax.bar(place - width / 2, found.precision, width, label=f"part of P@{k}")
    ax.bar(place + width / 2, found.recall, width, label=f"recall@{k} of these labels")
    edges = [float(edge) for edge in edges]
    inner = [f"{a:g} to <{b:g}" for a, b in itertools.pairwise(edges)]
    names = [f"<{edges[0]:g}", *inner, f"{edges[-1]:g} and more"]
    titles = [
        f"{name}\n{count:,} label{'' if count == 1 else 's'}"
        for name, count in zip(names, found.labels, strict=True)
    ]
    ax.set_xticks(place, titles, fontsize="x-small", rotation=45, ha="right")
    ax.set(xlabel="rows of the label in the training data", ylabel=f"fraction, {len(place)} bins of labels")
    ax.legend()
    return ax


def reject_curve(y_true, y_pred, confidence, *, ax: Axes | None = None) -> Axes:
    """Errors on the kept rows, divided by the number of all rows, against the share of rejected rows.

    Args:
        y_true, y_pred, confidence: as in :func:`xmcjax.metrics.reject_curve`.
        ax: axes of matplotlib; None for new ones.

    Raises:
        ValueError: as :func:`xmcjax.metrics.reject_curve`.
        ImportError: matplotlib is missing.

    References:
        Seeger, "Cross-validation optimization for structured Hessian kernel methods", 2006, figures 3 and 4.

    Example:
        >>> reject_curve([0, 1, 1], [0, 1, 0], confidence=[0.9, 0.8, 0.4]).get_xlabel()
        'share of the rows that are rejected'
    """
    errors = errors_of_kept(y_true, y_pred, confidence)
    ax = given_or_new(ax)
    ax.plot(1 - np.arange(1, len(errors) + 1) / len(errors), errors)
    ax.set(xlabel="share of the rows that are rejected", ylabel="errors on the others, over all rows")
    ax.set(xlim=(0, 1), ylim=(0, None))
    return ax


def reliability(y_true, probability, bins: int = 10, *, ax: Axes | None = None) -> Axes:
    """A reliability diagram: the share of true outcomes in each bin against its mean probability.

    Args:
        y_true: 0 and 1, or booleans, of any shape.
        probability: from 0 to 1, of the shape of `y_true`, such as that of the predicted class of each row.
        bins: how many bins of equal width.
        ax: axes of matplotlib; None for new ones. Its legend has the expected calibration error, the mean
            distance of share and probability.

    Raises:
        ValueError: shapes that differ, empty arrays, probabilities outside [0, 1], or bins below 1.
        ImportError: matplotlib is missing.

    Example:
        >>> reliability([0, 1, 1, 1], [0.1, 0.6, 0.8, 0.9]).get_ylabel()
        'share that is true'
    """
    bins = whole_number("bins", bins, 1)
    truth, p = _sparse.numbers(y_true, "y_true").ravel(), _sparse.numbers(probability, "probability").ravel()
    if np.shape(y_true) != np.shape(probability) or not p.size:
        shapes = f"{np.shape(y_true)} and {np.shape(probability)}"
        raise ValueError(f"expected y_true and probability of one shape, found {shapes}")
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError("probability: expected numbers from 0 to 1, found others")
    if not np.isin(truth, (0, 1)).all():
        raise ValueError("y_true: expected 0 and 1, found others")
    place = np.minimum((p * bins).astype(int), bins - 1)
    count = np.bincount(place, minlength=bins)
    used = count > 0
    mean, share = (np.bincount(place, values, bins)[used] / count[used] for values in (p, truth))
    error = float(np.abs(mean - share) @ count[used]) / p.size
    ax = given_or_new(ax)
    ax.plot([0, 1], [0, 1], color="grey", linewidth=1)
    ax.plot(mean, share, "o-", label=f"expected calibration error {error:.3f}")
    ax.set(xlabel="probability, mean of a bin", ylabel="share that is true", xlim=(0, 1), ylim=(0, 1))
    ax.legend()
    return ax
