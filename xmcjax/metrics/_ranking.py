"""Ranking metrics at k: precision, nDCG, their propensity-scored forms, top-k accuracy, MRR.

All metrics accept:

===========  ==========================================================================
Y_true       0/1 matrix [n, L], sparse or dense, or class numbers [n] (integers from 0)
predictions  dense scores [n, L] (floating point); sparse scores [n, L], of which only the
             stored entries count; or label numbers [n, K] (integers, best first, K ≥ k,
             −1 where there is no prediction)
===========  ==========================================================================

Equal scores rank by the lower label number. A score of −inf is no prediction. Rows without a true
label stay in the mean and count as 0, as in the Extreme Classification Repository's tables, pyxclib
and napkinXC. Values are fractions of 1, not per cent.

References:
    K. Bhatia et al., The extreme classification repository: multi-label datasets and code, 2016.
    H. Jain, Y. Prabhu, M. Varma, Extreme multi-label loss functions for recommendation, tagging,
    ranking & other missing label applications, KDD 2016.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax._arguments import whole_number
from xmcjax.metrics._labels import (
    Truth,
    as_predictions,
    as_truth,
    best_places,
    first_ranks,
    hits,
    is_label_numbers,
    top_k,
)


def _discounts(k: int) -> np.ndarray:
    """1 / log2(r + 1) for the ranks r = 1 … k."""
    return 1.0 / np.log2(np.arange(2, k + 2))


def _ideal_dcg(counts: np.ndarray, k: int) -> np.ndarray:
    """The DCG@k of a perfect ranking of each row, [n]; 1 for rows without labels (their DCG is 0)."""
    # IDCG@k(i) = Σ_{r=1}^{min(k, |Y_i|)} 1 / log2(r + 1)
    ideal = np.concatenate([[1.0], np.cumsum(_discounts(k))])
    return ideal[np.minimum(counts, k)]


def precision_at_k(Y_true, predictions, k: int) -> float:
    """Precision at k: the fraction of the k best-scored labels that are true.

    .. math:: P@k = \\frac1n \\sum_i \\frac1k \\sum_{l \\in \\mathrm{top}_k(i)} y_{il}

    A row with fewer than k predictions is divided by k all the same.

    Args:
        Y_true: true labels, 0/1 matrix [n, L] or class numbers [n].
        predictions: scores [n, L], dense or sparse, or label numbers [n, K], best first.
        k: the number of labels that count, at least 1.

    Returns:
        A fraction between 0 and 1.

    Raises:
        TypeError, ValueError: shapes that do not fit, label numbers out of range or twice in a
            row, nan scores, a Y_true with values other than 0 and 1.

    Example:
        >>> import numpy as np
        >>> precision_at_k(np.array([[1, 0, 1], [0, 1, 0]]), np.array([[0.9, 0.1, 0.5], [0.8, 0.2, 0.1]]), 2)
        0.75
    """
    k = whole_number("k", k, 1)
    truth = as_truth(Y_true)
    return float(hits(truth, top_k(predictions, truth, k)).sum() / (k * truth.n_rows))


def ndcg_at_k(Y_true, predictions, k: int) -> float:
    """Normalised discounted cumulative gain at k.

    .. math::
        nDCG@k = \\frac1n \\sum_i \\frac{\\sum_{r=1}^{k} y_{i,l_r} / \\log_2(r+1)}
                 {\\sum_{r=1}^{\\min(k, |Y_i|)} 1 / \\log_2(r+1)}

    with l_r the label of rank r. Arguments, ties and errors as in `precision_at_k`.

    Returns:
        A fraction between 0 and 1.

    Example:
        >>> round(ndcg_at_k([[1, 0, 1], [0, 1, 0]], [[0, 1], [0, 1]], k=2), 3)
        0.622
    """
    k = whole_number("k", k, 1)
    truth = as_truth(Y_true)
    dcg = hits(truth, top_k(predictions, truth, k)) @ _discounts(k)
    return float(np.mean(dcg / _ideal_dcg(truth.counts, k)))


def _check_inverse_propensities(inverse_propensities, truth: Truth) -> np.ndarray:
    q = _sparse.numbers(inverse_propensities, "inverse_propensities")
    if q.ndim != 1:
        raise ValueError(f"inverse_propensities: expected one number per label, found shape {q.shape}")
    if truth.n_labels is not None and len(q) != truth.n_labels:
        raise ValueError(f"inverse_propensities: expected {truth.n_labels} numbers, found {len(q)}")
    if truth.n_labels is None and truth.labels.max() >= len(q):
        raise ValueError(
            f"inverse_propensities: expected more than {truth.labels.max()} numbers, found {len(q)}"
        )
    if not (np.isfinite(q).all() and (q > 0).all()):
        raise ValueError("inverse_propensities: expected positive finite numbers")
    return q


def _gains(truth: Truth, top: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The inverse propensities of the true labels among the predictions [n, k], else 0."""
    if top.max(initial=-1) >= len(q):
        raise ValueError(f"predictions: expected label numbers below {len(q)}, found {top.max()}")
    return np.where(hits(truth, top), q[top], 0.0)


def _best_gains(truth: Truth, k: int, q: np.ndarray) -> np.ndarray:
    """The k largest inverse propensities of the true labels of each row [n, k], padded with 0."""
    values = q[truth.labels]
    best = best_places(values, truth.indptr, k)
    gains = np.zeros(best.shape)
    gains[best >= 0] = values[best[best >= 0]]
    return gains


def _ratio(achieved: np.floating, best: np.floating) -> float:
    # Without a single true label nothing can be attained: 0, like a row without labels.
    return float(achieved / best) if best > 0 else 0.0


def propensity_scored_precision_at_k(
    Y_true, predictions, k: int, *, inverse_propensities, normalize: bool = True
) -> float:
    """Precision at k with hits weighted by inverse propensities, which rewards rare labels.

    .. math:: PSP@k = \\frac1n \\sum_i \\frac1k \\sum_{l \\in \\mathrm{top}_k(i)} q_l y_{il}

    divided, unless ``normalize=False``, by the largest value that any ranking attains: the same
    sum with the k true labels of largest q in each row (a ratio of sums, not a mean of ratios).

    Args:
        Y_true: true labels, 0/1 matrix [n, L] or class numbers [n].
        predictions: scores [n, L], dense or sparse, or label numbers [n, K], best first.
        k: the number of labels that count, at least 1.
        inverse_propensities: q, [L], positive; see `xmcjax.metrics.inverse_propensities`.
        normalize: False returns the raw sum, which may exceed 1.

    Returns:
        A fraction between 0 and 1 (raw: any number from 0); 0 where no row has a label.

    Raises:
        TypeError, ValueError: as `precision_at_k`; q of another length or not positive.

    References:
        Jain, Prabhu, Varma, KDD 2016, section 4.

    Example:
        >>> Y, best = [[1, 0, 1], [0, 1, 0]], [[0, 1], [0, 1]]
        >>> round(propensity_scored_precision_at_k(Y, best, 1, inverse_propensities=[1.0, 2.0, 4.0]), 3)
        0.167
    """
    k = whole_number("k", k, 1)
    truth = as_truth(Y_true)
    q = _check_inverse_propensities(inverse_propensities, truth)
    achieved = _gains(truth, top_k(predictions, truth, k), q).sum()
    if not normalize:
        return float(achieved / (k * truth.n_rows))
    return _ratio(achieved, _best_gains(truth, k, q).sum())


def propensity_scored_ndcg_at_k(
    Y_true, predictions, k: int, *, inverse_propensities, normalize: bool = True
) -> float:
    """nDCG at k with gains weighted by inverse propensities.

    .. math::
        PSnDCG@k = \\frac1n \\sum_i \\frac{\\sum_{r=1}^{k} q_{l_r} y_{i,l_r} / \\log_2(r+1)}
                   {\\sum_{r=1}^{\\min(k, |Y_i|)} 1 / \\log_2(r+1)}

    divided, unless ``normalize=False``, by the same mean for the ranking of the true labels by
    falling q, which is the best attainable. Arguments and errors as in `propensity_scored_precision_at_k`.

    Returns:
        A fraction between 0 and 1 (raw: any number from 0); 0 where no row has a label.

    Example:
        >>> Y, best = [[1, 0, 1], [0, 1, 0]], [[0, 1], [0, 1]]
        >>> round(propensity_scored_ndcg_at_k(Y, best, 2, inverse_propensities=[1.0, 2.0, 4.0]), 3)
        0.387
    """
    k = whole_number("k", k, 1)
    truth = as_truth(Y_true)
    q = _check_inverse_propensities(inverse_propensities, truth)
    ideal = _ideal_dcg(truth.counts, k)
    achieved = np.mean(_gains(truth, top_k(predictions, truth, k), q) @ _discounts(k) / ideal)
    if not normalize:
        return float(achieved)
    return _ratio(achieved, np.mean(_best_gains(truth, k, q) @ _discounts(k) / ideal))


def topk_accuracy(y_true, predictions, k: int) -> float:
    """The fraction of rows with a true label among the k best: top-k accuracy of classes.

    With a class vector (or one label per row) this is the usual top-k accuracy; with several labels
    per row it is the hit rate at k. Arguments, ties and errors as in `precision_at_k`.

    Returns:
        A fraction between 0 and 1.

    Example:
        >>> topk_accuracy([2, 0], [[1, 2], [1, 2]], k=2)
        0.5
    """
    k = whole_number("k", k, 1)
    truth = as_truth(y_true)
    return float(hits(truth, top_k(predictions, truth, k)).any(axis=1).mean())


def mean_reciprocal_rank(Y_true, predictions, k: int | None = None) -> float:
    """The mean of 1 / (rank of the best-ranked true label); 0 for a row where none is ranked.

    Ranks count from 1. With a class vector this is what Seeger (2006) calls precision in
    experiments on hierarchical classification. Arguments and errors as in `precision_at_k`.

    Args:
        k: ranks beyond k count as 0; None (the default) uses every rank that is given.

    Returns:
        A fraction between 0 and 1.

    Example:
        >>> mean_reciprocal_rank([[1, 0, 0], [0, 1, 0]], [[0, 1, 2], [0, 1, 2]])
        0.75
    """
    truth = as_truth(Y_true)
    k = k if k is None else whole_number("k", k, 1)
    predictions = as_predictions(predictions)
    if not sp.issparse(predictions) and not is_label_numbers(predictions):
        rank = first_ranks(predictions, truth)
        ranked = (rank > 0) if k is None else (rank > 0) & (rank <= k)
        return float(np.mean(ranked / np.maximum(rank, 1)))
    found = hits(truth, top_k(predictions, truth, k))
    if found.shape[1] == 0:
        return 0.0
    first = found.argmax(axis=1)
    return float(np.mean(np.where(found.any(axis=1), 1.0 / (first + 1), 0.0)))
