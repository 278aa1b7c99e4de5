"""What goes into a lane and what comes out of it."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np


@dataclasses.dataclass(frozen=True)
class Job:
    """One binary problem for a lane.

    Attributes:
        label: its number.
        positives: rows with target +1; the others have −1.
        tolerance: bound on ‖∇f‖.
        base, scale, indices, values, bias: the start, as in :class:`xmcjax.inits.Starts`.
        positive_weight, negative_weight: of the rows with target +1 and −1, besides their own.
        positive_total: Σ c over the positive rows; nan where nobody asks what the weights gain.
        negative_total: Σ c over the others, likewise.

    Example:
        >>> at_zero = dict(base=None, scale=1.0, indices=np.zeros(0, int), values=np.zeros(0), bias=0.0)
        >>> job = Job(label=3, positives=np.array([0, 5]), tolerance=1e-3, **at_zero)
        >>> job.label, job.positive_weight
        (3, 1.0)
    """

    label: int
    positives: np.ndarray
    tolerance: float
    base: np.ndarray | None
    scale: float
    indices: np.ndarray
    values: np.ndarray
    bias: float
    positive_weight: float = 1.0
    negative_weight: float = 1.0
    positive_total: float = math.nan
    negative_total: float = math.nan

    def from_zero(self) -> Job:
        """The same problem, which starts from zero."""
        no = dict(indices=np.zeros(0, np.int64), values=np.zeros(0))
        return dataclasses.replace(self, base=None, scale=0.0, bias=0.0, **no)

    @property
    def heaviest(self) -> float:
        """The larger weight of the rows with target +1 and −1."""
        return max(self.positive_weight, self.negative_weight)


class Weights(NamedTuple):
    """The weights of a lane that are kept."""

    indices: np.ndarray  #: features, ascending
    values: np.ndarray
    expected_rise: float = 0.0  #: of f when the others are left out, relative to f


# the fields of newton_cg.State that are handed out, with one number per lane
NUMBERS = ("status", "steps", "cg_steps", "active", "multiplier", "value", "gradient_norm", "bias")
