"""Starts that separate the mean of the positives from the mean of the negatives."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from xmcjax._range import squared_norms
from xmcjax.inits._base import Init, Labels, Starts, TrainingSet, check_finite

# p̄ and x̄ count as parallel where sin² of the angle between them is below this.
PARALLEL = 1e-10


@dataclasses.dataclass(frozen=True)
class MeanSeparating(Init):
    """w0 = u p̄ + v x̄ with ⟨w0, p̄⟩ = s and ⟨w0, n̄⟩ = t (Schultheis and Babbar, 2022, eqs. 19 to 22).

    p̄, n̄ and x̄ are the means of the positives, of the negatives and of all rows, the bias
    feature included. Where p̄ is parallel to x̄, where x̄ = 0, and for a label without positives
    or without negatives, w0 = 0.

    Attributes:
        msi_s: s, the mean score of the positives.
        msi_t: t, the mean score of the negatives; None takes that of the loss, −2 for hinges
            and −3 for the logistic loss.

    Example:
        >>> from xmcjax import OneVsAllClassifier
        >>> classifier = OneVsAllClassifier(init=MeanSeparating(msi_t=-3.0))
        >>> classifier.fit([[0.0], [0.2], [1.0]], [0, 0, 1]).predict([[0.9]])
        array([1])
    """

    msi_s: float = 1.0
    msi_t: float | None = None

    name: ClassVar[str] = "mean_separating"

    def __post_init__(self):
        check_finite("msi_s", self.msi_s)
        if self.msi_t is not None:
            check_finite("msi_t", self.msi_t)

    @property
    def replaceable(self) -> MeanSeparating | None:
        return self if type(self) is MeanSeparating else None

    def prepare(self, data):
        one = 1.0 if data.bias else 0.0
        xx = float(data.mean @ data.mean) + one  # ⟨x̄, x̄⟩
        return lambda labels: self._starts(data, labels, xx, one)

    # features whose squares overflow leave a start of 0, or one that is not finite, and the solver takes 0
    @np.errstate(over="ignore", invalid="ignore")
    def _starts(self, data: TrainingSet, labels: Labels, xx: float, one: float) -> Starts:
        s = self.msi_s
        t = data.loss.negative_mean_target if self.msi_t is None else self.msi_t
        counts = labels.counts
        size = np.where(counts > 0, counts, 1)
        pi = counts / data.n
        px = labels.sums @ data.mean / size + one  # ⟨p̄, x̄⟩
        pp = squared_norms(labels.sums) / size**2 + one  # ⟨p̄, p̄⟩
        # From ⟨w0, p̄⟩ = s and ⟨w0, x̄⟩ = π s + (1−π) t:
        #   u = (s ⟨x̄,x̄⟩ − (t + (s−t)π) ⟨x̄,p̄⟩) / (⟨p̄,p̄⟩⟨x̄,x̄⟩ − ⟨p̄,x̄⟩²)
        #   v = ((t + (s−t)π) − u ⟨x̄,p̄⟩) / ⟨x̄,x̄⟩
        # The paper divides by ⟨x̄,p̄⟩ for v; this form holds for ⟨x̄,p̄⟩ = 0 as well.
        target = t + (s - t) * pi
        determinant = pp * xx - px**2
        usable = (counts > 0) & (counts < data.n) & (xx > 0) & (determinant > PARALLEL * pp * xx)
        determinant = np.where(usable, determinant, 1)
        u = np.where(usable, (s * xx - target * px) / determinant, 0)
        v = np.where(usable, (target - u * px) / (xx if xx > 0 else 1), 0)
        sums = labels.sums
        # scipy's multiply makes COO of it and back, and sorts the entries
        values = sums.data * np.repeat(u / size, np.diff(sums.indptr))
        sparse = sp.csr_array((values, sums.indices, sums.indptr), shape=sums.shape)
        return Starts(data.mean, v, sparse, (u + v) * one)
