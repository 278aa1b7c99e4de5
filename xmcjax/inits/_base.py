"""What an initialisation may look at and what it gives to a lane."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from xmcjax._arguments import number
from xmcjax._used_columns import UsedColumns
from xmcjax.losses import MarginLoss


@dataclasses.dataclass(frozen=True)
class TrainingSet:
    """What an initialisation may look at before the first label.

    Attributes:
        X: features, CSR or dense [n, d].
        Y: labels, CSC [n, L] of ones.
        mean: x̄ = Σ s_i x_i / Σ s_i, float64 [d].
        loss: of the margin.
        bias: whether there is a bias weight (on a last feature of value 1).
        solve: (positive rows, loose) ↦ (w [d], b), the optimum of one binary problem; `loose`
            stops at ε₀ ‖∇f(0)‖, else at the tolerance of training.
        weight: s > 0 of the rows, float64 [n]; None for ones.
        columns: which features the columns of X are, where most features have no entry; None for all.

    Example:
        >>> from xmcjax.losses import squared_hinge
        >>> X, Y = np.eye(3), sp.csc_array(np.eye(3))
        >>> solve = lambda rows, loose: (np.zeros(3), 0.0)
        >>> TrainingSet(X, Y, X.mean(axis=0), squared_hinge, True, solve).n
        3
    """

    X: Any
    Y: sp.csc_array
    mean: np.ndarray
    loss: MarginLoss
    bias: bool
    solve: Callable[[np.ndarray, bool], tuple[np.ndarray, float]]
    weight: np.ndarray | None = None
    columns: UsedColumns | None = None

    @property
    def used(self) -> UsedColumns:
        """Which features the columns of X are."""
        return UsedColumns(self.X.shape[1]) if self.columns is None else self.columns

    @functools.cached_property
    def n(self) -> float:
        """Rows, counted with their weights: Σ s_i."""
        return self.X.shape[0] if self.weight is None else float(self.weight.sum())


@dataclasses.dataclass(frozen=True)
class Labels:
    """Labels about to be trained, with what is cheap to compute about them.

    Attributes:
        ids: label numbers, [k].
        positives: for each label the rows that have it.
        counts: Σ_{i∈P} s_i of each label, [k]; this is |P| where the rows have no weights.
        sums: Σ_{i∈P} s_i x_i, CSR float64 [k, d].

    Example:
        >>> positives = [np.array([0, 2])]
        >>> labels = Labels(np.array([7]), positives, np.array([2.0]), sp.csr_array([[3.0, 1.0]]))
        >>> labels.ids.tolist(), labels.sums.toarray().tolist()
        ([7], [[3.0, 1.0]])
    """

    ids: np.ndarray
    positives: list[np.ndarray]
    counts: np.ndarray
    sums: sp.csr_array


@dataclasses.dataclass(frozen=True)
class Starts:
    """Starting weights of k labels: w_j = scale_j · base + sparse_j, and the bias.

    In this form the cost of a start grows with the positives of the label, not with the features. The d
    features are all features, or those of ``TrainingSet.X``.

    Attributes:
        base: [d], shared by all labels; None where every scale is 0.
        scale: [k].
        sparse: CSR [k, d].
        bias: [k].

    Example:
        >>> starts = Starts.constant(2, 3)
        >>> starts.scale.tolist(), starts.sparse.shape
        ([0.0, 0.0], (2, 3))
    """

    base: np.ndarray | None
    scale: np.ndarray
    sparse: sp.csr_array
    bias: np.ndarray

    @classmethod
    def constant(cls, k: int, d: int, base=None, bias: float = 0.0) -> Starts:
        """The same start for k labels: `base`, or zero."""
        scale = np.full(k, 0.0 if base is None else 1.0)
        return cls(base, scale, sp.csr_array((k, d)), np.full(k, float(bias)))

    def over(self, columns: UsedColumns) -> Starts:
        """The starts on the columns that training works on; weights of other columns would end at 0."""
        if columns.numbers is None or self.sparse.shape[1] == columns.count:
            return self
        base = None if self.base is None else self.base[columns.numbers]
        return dataclasses.replace(self, base=base, sparse=columns.of(self.sparse))

    def dense(self) -> tuple[np.ndarray, np.ndarray]:
        """(W0 [d, k], b0 [k]) as arrays."""
        W = self.sparse.toarray().T
        if self.base is not None:
            W = W + self.base[:, None] * self.scale
        return W, self.bias


@dataclasses.dataclass(frozen=True)
class Init:
    """Base of the initialisations: a frozen dataclass of its options.

    Attributes:
        name: in the table ``INITS`` and on the command line.
        tree: labels start from the solution of their parent in :func:`label_tree`; what
            :meth:`prepare` makes is for the children of the root.

    Example:
        >>> from xmcjax.inits import INITS
        >>> all(issubclass(kind, Init) for kind in INITS.values())
        True
    """

    name: ClassVar[str]
    tree: ClassVar[bool] = False

    def check(self, n_features: int, n_labels: int, bias: bool) -> None:
        """Checks that these starts can be used, before anything is written or computed.

        Raises:
            ValueError: they cannot be used; the message says why.
        """

    def of_features(self, order: np.ndarray | None) -> Init:
        """These starts for features in a known order; most starts do not depend on it.

        Args:
            order: the raw feature of each feature, [d], as the transform ``frequency`` gives it; None where
                features have the order of the raw ones.
        """
        return self

    def for_workers(self) -> Init:
        """These starts for processes in other folders and on other machines, which must find the same files.

        Raises:
            OSError, ValueError: what they read is not there.
        """
        return self

    @property
    def replaceable(self) -> Init | None:
        """What training may use in place of these starts, also on other features, where that is faster.

        None, the default, where starts are to be as they are.
        """
        return None

    def prepare(self, data: TrainingSet) -> Callable[[Labels], Starts]:
        """Makes the function that gives the starts of labels; called once per training set."""
        raise NotImplementedError(f"{type(self).__name__} has no starts")


def check_finite(name: str, value) -> None:
    """Raises TypeError or ValueError where an option is no finite number."""
    if not math.isfinite(number(name, value)):
        raise ValueError(f"{name}: expected a finite number, got {value}")
