"""Probabilities of scores, for the systems whose loss is a likelihood."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from xmcjax._systems import FIRST_SYSTEM

#: SOFTMAX: p_l = e^{z_l} / Σ e^z. SIGMOID: each label by itself, p_l = σ(z_l). ONE_OF: σ(z_l) / Σ σ(z), for
#: classes of which each row has one, trained one by one.
SOFTMAX, SIGMOID, ONE_OF = "softmax", "sigmoid", "one_of"
LINKS = (SOFTMAX, SIGMOID, ONE_OF)
#: The member of the meta data of models with a calibration: their links are of slope z + offset.
CALIBRATED = "calibration"


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


def log_sigmoid(z: np.ndarray) -> np.ndarray:
    """log σ(z) = −log(1 + e^{−z}) = min(z, 0) − log(1 + e^{−|z|}), without overflow, in the dtype of z."""
    # several times as fast as logaddexp, which is no loop over vectors
    tail = np.abs(z)
    for function in (np.negative, np.exp, np.log1p):
        function(tail, out=tail)
    return np.subtract(np.minimum(z, 0), tail, out=tail)


def log_probabilities(link: str, scores: np.ndarray, all_scores: np.ndarray | None = None) -> np.ndarray:
    """log p of scores.

    Classes with scores beyond the range of their type share the probability; a score of inf − inf has none.

    Args:
        link: of `LINKS`.
        scores: of some labels, [n, k]; −inf for labels that are never predicted.
        all_scores: of all labels of the same rows, [n, L], where they are not the same.
    """
    if link == SIGMOID:
        return log_sigmoid(scores)
    z = scores if all_scores is None else all_scores
    if not (z < np.inf).all():
        most = np.finfo(z.dtype).max
        scores, z = (np.nan_to_num(a, nan=-np.inf, posinf=most, neginf=-np.inf) for a in (scores, z))
    if link == ONE_OF:
        scores, z = log_sigmoid(scores), log_sigmoid(z)
    most = z.max(axis=1, keepdims=True, initial=-np.inf)
    most = np.where(np.isneginf(most), 0, most)
    # a row without a label that can be predicted; scores at both ends of the range
    with np.errstate(divide="ignore", over="ignore"):
        # the largest score is taken away first: beside it a logarithm would be rounded away
        return scores - most - np.log(np.exp(z - most).sum(axis=1, keepdims=True))
