"""Which labels that have ended are checked again in float64, and which are solved to the end there."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import scipy.sparse as sp

from xmcjax import linops
from xmcjax._own_parts import curvature_near_0
from xmcjax._platform import on_host
from xmcjax.lanes._certificate import GAP, Certified, Label, PenalisedLabel
from xmcjax.lanes._dual_end import DualEnd, Ending
from xmcjax.lanes._interior_end import InteriorEnd
from xmcjax.lanes._job import Job
from xmcjax.lanes._label_features import LabelFeatures
from xmcjax.lanes._label_math import of_bias, sum_of
from xmcjax.linops import LinOp
from xmcjax.losses import MarginLoss
from xmcjax.penalties import L2, Penalty
from xmcjax.solvers import Status, newton_cg

# Possible rounding error, relative to f, above which the end of a lane is checked.
_ROUNDING = 1e-4
# Largest mean of κ C s ‖x‖² with which a small Newton decrement is believed, where the penalty has the
# curvature 1: of the fits of tests/attack/scales_one_vs_all.py none was misled below 10,000.
_STIFF = 4e3
# Counterpart of _STIFF for the mean of κ C s ‖x‖² ‖w‖² / 2 R(w) with another penalty: of 145 fits none was
# misled by 0.1% below 3,000.
_STIFF_PENALISED = 1e3
# Mean of κ C s ‖x‖² up to which Newton steps are hardly ever short.
_EASY = 20.0
# Most entries of X with which a lane that max_steps has ended is retried, and with which a path is taken.
_RETRIED, _ON_A_PATH = 1_000_000, 10_000_000
# Gain of the weights over the bias alone, relative to f, from which on a lane is believed: ten times the
# Newton decrement at which a lane ends.
_GAINED = 10 * newton_cg.HParams().decrement
# A lane ends by exact directions once it has done as much work as this many exact steps.
_WORTH = 10


class _Certifier:
    """The problems of labels over the same features.

    Args:
        X: CSR or dense [n, d].
        loss: φ.
        weight: C s of the rows, [1] or [n].
        l2_bias: r; negative for no bias.
        penalty: R of the weights; the bias has r R.
        retries: whether lanes that ``max_steps`` has ended are checked, where products with X are cheap.
    """

    def __init__(
        self,
        X: Any,
        loss: MarginLoss,
        weight: np.ndarray,
        l2_bias: float,
        penalty: Penalty | None = None,
        retries: bool = False,
    ):
        self._X, self._loss, self._r = X, loss, float(l2_bias)
        self._penalty = L2() if penalty is None else penalty
        self._weight, self._mean = weight, mean_curvature(X, loss, weight)
        # the error of Xᵀ ℓ' is about ε Σ |ℓ'| ‖x‖ ≤ ε (2 κ f Σ c ‖x‖²)^½, that of the minimum half its square
        self._wrong = 16 * float(np.finfo(X.dtype).eps) ** 2 * self._mean if np.isfinite(self._mean) else 0.0
        entries = X.nnz if sp.issparse(X) else X.size
        self._doubted = {Status.LINE_SEARCH_FAILED} | (
            {Status.MAX_STEPS} if retries and entries <= _RETRIED else set()
        )
        self._takes_paths = entries <= _ON_A_PATH
        self._features = LabelFeatures(X)
        self._ends: list[Ending] = []
        if self._takes_paths and isinstance(self._penalty, L2):
            if InteriorEnd.serves(loss, self._features):
                self._ends.append(InteriorEnd(self._features, self._r))
            if DualEnd.serves(loss):
                self._ends.append(DualEnd(X, self._r))
        #: whether lanes that are under way may end here, see :meth:`Certifier.takes_over`
        self.goes_on = retries and self._takes_paths and self._features.exact
        #: the part of C with which a lane whose steps are short begins again; None where no lane does
        self.first_part: float | None = None
        exact = self._features.exact and isinstance(self._penalty, L2)  # whether directions here are exact
        if retries and not exact and _EASY < self._mean < np.inf:
            self.first_part = _EASY / self._mean
        self._op: LinOp | None = None
        self._making = threading.Lock()

    def certified(
        self,
        w: np.ndarray,
        bias: float,
        y: np.ndarray,
        c: np.ndarray,
        tolerance: float = np.inf,
        *,
        under_way: bool = False,
    ) -> Certified:
        """The weights, or better ones, with their gap.

        Args:
            w, bias: of the lane.
            y: targets, [n].
            c: C s c of the rows, [n].
            tolerance: on ‖∇f‖, which better weights have to keep as well.
            under_way: whether the lane was still moving: then steps go on until the solver would end it.
        """
        with _in_float64(), on_host():
            kind = Label if isinstance(self._penalty, L2) else PenalisedLabel
            part = self._part_of_path
            problem = self._features, self._loss, self._r, y, c, self._penalty
            label = kind(*problem, tolerance, under_way=under_way)
            return label.certified(w, bias, self._ends, self._operator if self._takes_paths else None, part)

    def doubts(self, status: int, value: float, gradient_norm: float, active: float) -> bool:
        """Whether the end of a lane is to be looked at.

        Args:
            status, value, gradient_norm: of the lane.
            active: rows with a slope or a curvature, times the larger weight of the label's rows.
        """
        raise NotImplementedError

    def doubted(self, jobs: Sequence[Job], numbers: dict[str, np.ndarray]) -> list[bool]:
        """Which ends of lanes are to be looked at.

        Args:
            jobs: of lanes that have ended.
            numbers: of these lanes, by their names in ``xmcjax.lanes._job.NUMBERS``.
        """
        asked = (numbers[name].tolist() for name in ("status", "value", "gradient_norm", "active"))
        return [
            self.doubts(status, value, norm, job.heaviest * active)
            for job, status, value, norm, active in zip(jobs, *asked, strict=True)
        ]

    @functools.cached_property
    def _part_of_path(self) -> float:
        """The part of C at which a path begins: the margins of its solution are hardly more than 1."""
        mean = self._mean
        if np.isinf(self._loss.most_curvature):  # at margins so small
            mean = curvature_near_0(self._loss) * _mean_square(self._X, self._weight)
        return 1 / mean if 1 < mean < np.inf else 1.0

    def _operator(self) -> LinOp:
        """X in float64, made where it is needed first."""
        with self._making:
            if self._op is None:
                self._op = linops.make(sp.csr_array(self._X), np.float64)
            return self._op


class Certifier(_Certifier):
    """The certifier for the penalty ½ ‖w‖²; arguments as of the base."""

    def doubts(self, status: int, value: float, gradient_norm: float, active: float) -> bool:
        """Whether the end of a lane is to be looked at; arguments as of the base."""
        if status != Status.CONVERGED:
            return status in self._doubted
        # The solver has settled that the Newton decrement is small. What may have misled it is rounding, and
        # rows that leave the loss in the step that it models.
        if self._wrong * active > _ROUNDING:
            return True
        # Where the loss of one row moves the minimum little, the model errs little as rows leave the loss.
        stiff = not self._mean <= _STIFF
        # ‖∇f‖²/2 bounds f − min f, unless the bias is not regularised
        return stiff and (self._r == 0 or gradient_norm * gradient_norm / 2 > GAP * value)

    def doubted(self, jobs: Sequence[Job], numbers: dict[str, np.ndarray]) -> list[bool]:
        """Which ends of lanes are to be looked at, also because their weights gain little."""
        positive, negative = np.array([(job.positive_total, job.negative_total) for job in jobs]).T
        with np.errstate(over="ignore", invalid="ignore"):  # the label's status reports an overflow
            alone = of_bias(self._loss, numbers["bias"], positive, negative, self._r)
            # true where features have a small unit, or tell little about the label
            little = alone - numbers["value"] < _GAINED * numbers["value"]
        little &= numbers["status"] == Status.CONVERGED
        return [a or b for a, b in zip(super().doubted(jobs, numbers), little.tolist(), strict=True)]

    def believes(self, w: np.ndarray, status: int, active: float) -> bool:
        """Whether the weights that were asked for settle a doubt: here they do not."""
        return False

    def takes_over(self, steps: int, cg_steps: int, active: int) -> bool:
        """Whether a lane that is under way is to end by exact directions; asked only where `goes_on`.

        It is where its work so far would have paid for exact steps, which then cost as much again at most.
        Work is counted in operations of the native step; an exact step makes some operations faster.

        Args:
            steps, cg_steps: that it has made.
            active: rows with a slope or a curvature.
        """
        n, d = self._X.shape
        made = steps * n * (2 * d + 1000) + 4 * cg_steps * active * d
        return made >= _WORTH * self._features.operations


class PenalisedCertifier(_Certifier):
    """The certifier for another penalty, which has a ``conjugate``; arguments as of the base."""

    def doubts(self, status: int, value: float, gradient_norm: float, active: float) -> bool:
        """Whether the weights at the end of a lane are asked for; arguments as of the base."""
        return status == Status.CONVERGED or status in self._doubted

    def believes(self, w: np.ndarray, status: int, active: float) -> bool:
        """Whether a lane that ended with these weights cannot have been misled."""
        if status != Status.CONVERGED:
            return False
        with _in_float64(), on_host():
            w = w.astype(np.float64)
            # 2 R(w) / ‖w‖² takes the place of the curvature 1 of ½ ‖w‖²
            slack = float(w @ w) / (2 * sum_of(self._penalty, w, 1.0)) if w.any() else 0.0
            return bool(self._mean * slack <= _STIFF_PENALISED and self._wrong * slack * active <= _ROUNDING)


def mean_curvature(X: Any, loss: MarginLoss, weight: np.ndarray) -> float:
    """The mean of κ C s ‖x‖²; times the number of active rows it roughly bounds the losses' curvature."""
    return loss.most_curvature * _mean_square(X, weight)


def _mean_square(X: Any, weight: np.ndarray) -> float:
    """The mean of C s ‖x‖²."""
    of_rows = np.broadcast_to(weight, X.shape[0])
    if not sp.issparse(X):
        squares = np.einsum("i,ij,ij->", of_rows, X, X, dtype=np.float64)
    elif len(weight) == 1:
        squares = weight[0] * np.einsum("i,i->", X.data, X.data, dtype=np.float64)
    else:
        of_entries = np.repeat(of_rows, np.diff(X.indptr))
        squares = np.einsum("i,i,i->", of_entries, X.data, X.data, dtype=np.float64)
    return float(squares) / X.shape[0]


@contextlib.contextmanager
def _in_float64():
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"), jax.enable_x64(True):
        yield
