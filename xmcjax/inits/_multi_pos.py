"""Starts that place every positive of a rare label, and not only their mean."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from xmcjax._arguments import number, whole_number
from xmcjax.inits._base import Init, Labels, Starts
from xmcjax.inits._mean_separating import MeanSeparating


@dataclasses.dataclass(frozen=True)
class MultiPos(Init):
    """w0 = V α with ⟨w0, x_i⟩ ≈ s for each positive and ⟨w0, n̄⟩ ≈ t (dismecpp's multi-pos).

    The columns of V are n̄ and the positives; α solves (VᵀV + λI) α = (t, s, …, s). Labels with
    more than `max_positives` positives start as with :class:`MeanSeparating`.

    Attributes:
        msi_s: s.
        msi_t: t; None takes that of the loss.
        max_positives: the largest number of positives that are placed one by one.
        ridge: λ, for positives that nearly coincide.

    Example:
        >>> from xmcjax import OneVsAllClassifier
        >>> classifier = OneVsAllClassifier(init=MultiPos(ridge=0.1))
        >>> classifier.fit([[0.0], [0.2], [1.0]], [0, 0, 1]).predict([[0.9]])
        array([1])
    """

    msi_s: float = 1.0
    msi_t: float | None = None
    max_positives: int = 5
    ridge: float = 0.01

    name: ClassVar[str] = "multi_pos"

    def __post_init__(self):
        MeanSeparating(self.msi_s, self.msi_t)  # which checks them
        if not 0 < number("ridge", self.ridge) < np.inf:
            raise ValueError(f"expected ridge > 0, got {self.ridge}")
        whole_number("max_positives", self.max_positives, 0)

    def prepare(self, data):
        means = MeanSeparating(self.msi_s, self.msi_t).prepare(data)
        t = data.loss.negative_mean_target if self.msi_t is None else self.msi_t
        one = 1.0 if data.bias else 0.0
        X = sp.csr_array(data.X)
        xx = data.mean @ data.mean + one

        def starts(labels: Labels) -> Starts:
            result = means(labels)
            scale, bias = result.scale.copy(), result.bias.copy()
            rows = []
            for k, positives in enumerate(labels.positives):
                count = len(positives)
                if not 0 < count <= min(self.max_positives, X.shape[0] - 1):
                    rows.append(result.sparse[[k]])
                    continue
                P = X[positives].astype(np.float64)
                gram = (P @ P.T).toarray() + one
                xp = P @ data.mean + one
                # n̄ = (n x̄ − Σ s p) / (n − |P|), and its products
                s = np.ones(count) if data.weight is None else data.weight[positives]
                rest = data.n - labels.counts[k]
                np_ = (data.n * xp - gram @ s) / rest
                nn = (data.n**2 * xx - 2 * data.n * xp @ s + s @ gram @ s) / rest**2
                system = np.block([[np.array([[nn]]), np_[None]], [np_[:, None], gram]])
                try:
                    alpha = np.linalg.solve(
                        system + self.ridge * np.eye(count + 1), [float(t)] + [float(self.msi_s)] * count
                    )
                except np.linalg.LinAlgError:  # rounding loses the ridge beside huge inner products
                    rows.append(result.sparse[[k]])
                    continue
                # α₀ n̄ + Σ α_i p_i, written with x̄
                weights = alpha[1:] - alpha[0] / rest * s
                scale[k] = alpha[0] * data.n / rest
                bias[k] = (scale[k] + weights.sum()) * one
                rows.append(sp.csr_array(weights[None] @ P))
            return Starts(data.mean, scale, sp.csr_array(sp.vstack(rows)), bias)

        return starts
