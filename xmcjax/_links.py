"""Probabilities of scores, for the systems whose loss is a likelihood."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from xmcjax._systems import FIRST_SYSTEM

#: SOFTMAX: p_l = e^{z_l} / Σ e^z. SIGMOID: each label by itself, p_l = σ(z_l). ONE_OF: σ(z_l) / Σ σ(z), for
#: classes of which each row has one, trained one by one.
SOFTMAX, SIGMOID, ONE_OF = "softmax", "sigmoid", "one_of"
LINKS = (SOFTMAX, SIGMOID, ONE_OF)
#: The member of the meta data of models with a calibration: their links take slope z + offset.
CALIBRATED = "calibration"

# Most scores that are turned into probabilities at once.
_PART = 1 << 15
# Most labels with which rows are reduced label by label.
_NARROW = 32


def link_of(meta: Mapping[str, Any]) -> str | None:
    """How the scores of a model become probabilities, by its meta data; None where its loss knows none."""
    system, link = meta.get("system", FIRST_SYSTEM), meta.get("link")
    if CALIBRATED in meta:
        return SOFTMAX if of_classes(meta) and meta.get("n_labels") != 2 else SIGMOID
    if "link" in meta:
        return link if link in LINKS else None
    loss = meta.get("loss")
    logistic = isinstance(loss, Mapping) and loss.get("name") == "logistic"
    return SIGMOID if system == FIRST_SYSTEM and logistic else None


def likelihood_of(meta: Mapping[str, Any]) -> str:
    """As :func:`link_of`, where probabilities are asked for.

    Raises:
        ValueError: the model knows none.
    """
    link = link_of(meta)
    if link is None:
        raise ValueError(
            "probabilities: expected a model whose loss is a likelihood (logistic, or multinomial) or "
            "that is calibrated, found another one"
        )
    return link


def of_classes(meta: Mapping[str, Any]) -> bool:
    """Whether a row has one label of a model, by its meta data."""
    return meta.get("target") == "classes" or meta.get("system", FIRST_SYSTEM) != FIRST_SYSTEM


def log_sigmoid(z: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """log σ(z) = −log(1 + e^{−z}) = min(z, 0) − log(1 + e^{−|z|}), without overflow, in the dtype of z.

    Args:
        out: where to, an array like z or z itself; None for a new one.
    """
    # several times as fast as logaddexp, which is no loop over vectors
    tail = np.abs(z)
    for function in (np.negative, np.exp, np.log1p):
        function(tail, out=tail)
    out = np.minimum(z, 0, out=out)
    return np.subtract(out, tail, out=out)


def probabilities(link: str, scores: np.ndarray, all_scores: np.ndarray | None = None) -> np.ndarray:
    """p of scores, in their place.

    Classes with scores beyond the range of their type share the probability; a score of inf − inf has none.
    In a row without a label that can be predicted all are 0.

    Args:
        link: of `LINKS`.
        scores: of some labels, [n, k], overwritten; −inf for labels that are never predicted.
        all_scores: of all labels of the same rows, [n, L], overwritten, where they are not the same.
    """
    for z, every in _parts(scores, all_scores):
        if link == SIGMOID:
            _sigmoid(z, np.zeros((len(z), 1), z.dtype))
            continue
        distinct = _in_range(z, every)
        top = _largest(every)
        if link == ONE_OF:
            # σ(z) e^{−top}: if all scores are low, none is lost, and no more than e^{−top} is taken from them
            top = np.minimum(top, 0)
        for a in distinct:
            if link == ONE_OF:
                _sigmoid(a, top)
                continue
            with np.errstate(over="ignore"):  # scores at both ends of the range
                a -= top
            np.exp(a, out=a)
        z /= _sums(every)
    return scores


def log_probabilities(link: str, scores: np.ndarray, all_scores: np.ndarray | None = None) -> np.ndarray:
    """log p of scores, in their place; arguments are those of :func:`probabilities`."""
    for z, every in _parts(scores, all_scores):
        if link == SIGMOID:
            log_sigmoid(z, out=z)
            continue
        distinct = _in_range(z, every)
        if link == ONE_OF:
            for a in distinct:
                log_sigmoid(a, out=a)
        top = _largest(every)
        for a in distinct:
            with np.errstate(over="ignore"):
                # the largest score is taken away first: beside it a logarithm would be rounded away
                a -= top
        z -= np.log(_sums(np.exp(every)))
    return scores


def _parts(scores: np.ndarray, all_scores: np.ndarray | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """A few rows of both at a time, so that what is made beside them stays in the cache."""
    every = scores if all_scores is None else all_scores
    step = max(1, _PART // max(1, every.shape[1]))
    for first in range(0, len(scores), step):
        z = scores[first : first + step]
        yield z, z if all_scores is None else all_scores[first : first + step]


def _in_range(z: np.ndarray, every: np.ndarray) -> list[np.ndarray]:
    """The two arrays, or one if they are the same, with ∞ as the largest number and NaN as −∞."""
    distinct = [z] if z is every else [z, every]
    if not (every < np.inf).all():
        most = float(np.finfo(z.dtype).max)
        for a in distinct:
            np.nan_to_num(a, copy=False, nan=-np.inf, posinf=most, neginf=-np.inf)
    return distinct


def _sigmoid(z: np.ndarray, top: np.ndarray) -> None:
    """σ(z) e^{−top} = e^{min(z, 0) − top} / (1 + e^{−|z|}) in the place of z; top <= 0 is [n, 1]."""
    below = np.abs(z)
    np.negative(below, out=below)
    np.exp(below, out=below)
    below += 1
    np.minimum(z, 0, out=z)
    z -= top
    np.exp(z, out=z)
    z /= below


def _largest(z: np.ndarray) -> np.ndarray:
    """The largest score of each row, [n, 1]; 0 where all are −∞."""
    top = _over_rows(np.maximum, z, -np.inf)
    return np.where(np.isneginf(top), 0, top)


def _sums(weights: np.ndarray) -> np.ndarray:
    """The sum of each row, [n, 1]; 1 where all are 0."""
    total = _over_rows(np.add, weights, 0)
    return np.where(total > 0, total, 1)


def _over_rows(function: np.ufunc, z: np.ndarray, initial: float) -> np.ndarray:
    if z.shape[1] > _NARROW:
        return function.reduce(z, axis=1, keepdims=True, initial=initial)
    # all rows at once: NumPy takes several times as long for one short row after the other
    return function.reduce(np.ascontiguousarray(z.T), axis=0, initial=initial)[:, None]
