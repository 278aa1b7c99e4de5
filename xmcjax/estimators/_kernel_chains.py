"""A conditional random field over label sequences with kernels, with scikit-learn's conventions."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from xmcjax import _sparse
from xmcjax._arguments import kind_of, number, of_one_dtype, whole_number
from xmcjax._options import Real
from xmcjax.estimators._inputs import checked_data, checked_features
from xmcjax.estimators._kernel_parts import base_kernel, checked_memory, remedy
from xmcjax.estimators._kernel_scores import kernel_scores
from xmcjax.estimators._refit import unchanged_on_error
from xmcjax.estimators._targets import class_numbers


class KernelChainClassifier(BaseEstimator):
    """A conditional random field for label sequences, whose label scores are functions of a kernel.

    Functions u_c = f_c + b_c with kernels K_c = v_c k_c, and scores A of pairs of labels that follow each
    other, minimise over all sequences

    .. math:: −Σ \\log P(y_1 … y_T | x_1 … x_T) + ½ Σ_c ‖f_c‖²_{K_c} + ½ ‖b‖² / σ² + ½ ‖A‖² / τ²,

    .. math:: \\log P(y | x) = Σ_t u_{y_t}(x_t) + Σ_{t>1} A_{y_{t−1}, y_t} − \\log Z.

    The problem is convex in the functions and A together. log Z is that of the forward recursion; kernels
    and variances are taken as they are given.

    Args:
        kernel: "rbf" (default), e^{−w/(2d) ‖x − x'‖²} with d features; "matern", "linear"; or a
            :class:`xmcjax.kernels.Kernel`.
        v: variances, above 0; a number (10 by default), or one for each class in ascending order.
        w: inverse squared lengths, likewise; None (default) for d / Σ_j Var[x_j].
        sigma2: σ² ≥ 0, variance of the intercepts, 1 by default; 0 for none.
        transition_variance: τ² above 0, of the transition scores, 1 by default.
        tol: a fit of the functions ends when its coefficients equal targets less marginals within this,
            1e-5 by default, not below 100 roundings of the precision; the search for the transitions when
            no derivative, times τ where that is below 1, is above that part of the objective.
        max_iter: most iterations of the search for the transitions, and most Newton steps of each fit of
            the functions, 100 by default.
        max_cg: most CG steps of a Newton step, 200 by default.
        memory: bytes for kernel matrices, 2 GiB by default; beyond them products are made in tiles.

    Attributes:
        classes_: ascending, [C].
        dual_coef_: α, of the positions of all sequences, one after the other, [n, C].
        transitions_: A, from the label before to the one after, [C, C].
        v_, kernel_, sigma2_: of the fit.
        objective_: the minimum that was found.
        n_iter_: iterations of the search for the transitions.
        status_: how the last fit of the functions ended, of :class:`xmcjax.solvers.Status`.
        n_features_in_: d.

    X of float64 is solved in float64, without a change to JAX's settings, and X of float32 in float32 unless
    the rounding of K̃α, about 10⁻⁷ √n K̃_ii of n positions, is above 2·10⁻⁴, or that of values of the kernel
    above 5·10⁻⁵ of the largest. Sequences of different lengths are filled up to the longest one in the
    recursions.

    References:
        Seeger, "Cross-validation optimization for structured Hessian kernel methods", 2006, section 7.1;
        Lafferty, Zhu and Liu, "Kernel conditional random fields: representation and clique selection", 2004.

    Example:
        >>> X = [[[0.0], [0.1], [1.0]], [[0.9], [0.0]], [[1.0], [1.1], [0.1], [0.0]]]
        >>> y = [["low", "low", "high"], ["high", "low"], ["high", "high", "low", "low"]]
        >>> model = KernelChainClassifier(v=100.0).fit(X, y)
        >>> [labels.tolist() for labels in model.predict([[[0.05], [0.95], [1.0]]])]
        [['low', 'high', 'high']]
    """

    def __init__(
        self,
        kernel: Any = "rbf",
        *,
        v: ArrayLike = 10.0,
        w=None,
        sigma2=1.0,
        transition_variance=1.0,
        tol=1e-5,
        max_iter=100,
        max_cg=200,
        memory=2**31,
    ):
        self.kernel = kernel
        self.v = v
        self.w = w
        self.sigma2 = sigma2
        self.transition_variance = transition_variance
        self.tol = tol
        self.max_iter = max_iter
        self.max_cg = max_cg
        self.memory = memory

    @unchanged_on_error
    def fit(self, X, y):
        """Trains on sequences at the hyperparameters given.

        Args:
            X: sequences of finite features [t_i, d], all of them arrays or all of them sparse.
            y: of each sequence its labels [t_i], numbers or strings.

        Returns:
            The estimator itself.

        Raises:
            ValueError: no sequence or an empty one, rows of a dense matrix in place of sequences, labels of
                another number than positions, features that are not finite or of another width, fewer than
                two classes, an option out of range.
            TypeError: a sparse matrix in place of sequences, or an option of another kind.

        Warns:
            ConvergenceWarning: the search ended before `tol` was reached.
        """
        import jax

        from xmcjax.estimators._kernel_precision import points_in_precision, tolerance_in
        from xmcjax.kernels import class_kernels, gram
        from xmcjax.lanes import precision
        from xmcjax.linops import check_features
        from xmcjax.solvers import Status
        from xmcjax.solvers.kernel_multinomial import HParams, chain_problem, fit_chains

        if isinstance(self.kernel, str) and self.kernel == "precomputed":
            raise ValueError("kernel: expected rbf, matern, linear or a Kernel, got 'precomputed'")
        tol, max_iter = Real(above=0).check("tol", self.tol), whole_number("max_iter", self.max_iter, 1)
        variance = number("transition_variance", self.transition_variance)
        if not variance > 0:
            raise ValueError(f"transition_variance: expected a number above 0, got {variance:g}")
        X, lengths = _joined(X)
        X, y = checked_data(self, X, _joined_labels(y, lengths))
        check_features(X)
        self.classes_, numbers = class_numbers(y, None)
        points, scale, dtype = points_in_precision(X, None, self.kernel, self.w, v=self.v, sigma2=self.sigma2)
        C, max_cg = len(self.classes_), whole_number("max_cg", self.max_cg, 1)
        limits = HParams(tolerance=tolerance_in(dtype, tol), max_steps=max_iter, max_cg=max_cg)
        with precision(dtype):
            matrices = gram(
                base_kernel(self.kernel, self.w, scale),
                points,
                memory=checked_memory(self.memory),
            )
            kernel = class_kernels(matrices, self.v, self.sigma2, C)
            blank = chain_problem(kernel, numbers, lengths, np.zeros((C, C)))
            given = blank, limits, variance
            problem, state, search = fit_chains(*given, tolerance=limits.tolerance, max_iter=max_iter)
            kernel = dataclasses.replace(kernel, gram=kernel.gram.for_prediction())
            self._kernels = jax.tree.map(np.asarray, kernel)
            likelihood: Any = problem.likelihood
            self.transitions_ = np.asarray(likelihood.transitions)
            self.dual_coef_ = np.asarray(state.alpha[..., 0])
        self.v_, self.sigma2_ = self._kernels.v, float(self._kernels.sigma2)
        self.kernel_ = self._kernels.gram.kernel
        self.objective_, self.n_iter_ = float(search.value), max(len(search.history) - 1, 1)
        self.status_ = Status(int(state.status[0]))
        if self.status_ != Status.CONVERGED or not search.converged:
            scores = "" if self.status_ == Status.CONVERGED else f"the scores, {self.status_.name}, and "
            warnings.warn(
                f"not converged ({scores}the transitions, {self.n_iter_} iterations): "
                + remedy(self.dual_coef_.dtype),
                ConvergenceWarning,
                stacklevel=3,  # the caller of a decorated method
            )
        return self

    def decision_function(self, X) -> list[np.ndarray]:
        """u of every position of each sequence, arrays [t_i, C], without the scores of transitions.

        Raises:
            ValueError, TypeError: sequences as :meth:`fit` refuses them, or of another width.
        """
        u, lengths = self._scores(X)
        return np.split(u, np.cumsum(lengths)[:-1])

    def predict(self, X) -> list[np.ndarray]:
        """The likeliest labels of each sequence as a whole, by the Viterbi algorithm, arrays [t_i].

        Args:
            X: sequences of features [t_i, d].

        Raises:
            ValueError, TypeError: sequences as :meth:`fit` refuses them, or of another width.
        """
        from xmcjax.solvers.kernel_multinomial import most_likely

        u, lengths = self._scores(X)
        labels = self.classes_[most_likely(u, lengths, self.transitions_)]
        return np.split(labels, np.cumsum(lengths)[:-1])

    def predict_marginals(self, X) -> list[np.ndarray]:
        """Probabilities of the classes at each position, given the whole sequence, arrays [t_i, C].

        Args:
            X: sequences of features [t_i, d].

        Raises:
            ValueError, TypeError: sequences as :meth:`fit` refuses them, or of another width.
        """
        from xmcjax.lanes import precision
        from xmcjax.solvers.kernel_multinomial import marginals

        u, lengths = self._scores(X)
        with precision(u.dtype):
            probabilities = marginals(u, lengths, self.transitions_)
        return np.split(probabilities, np.cumsum(lengths)[:-1])

    def score(self, X, y) -> float:
        """The share of positions, of all sequences together, whose label is the one predicted.

        Args:
            X: sequences of features [t_i, d].
            y: of each sequence its labels [t_i].

        Raises:
            ValueError, TypeError: sequences as :meth:`fit` refuses them, or of another width; labels of
                another kind than those of the training, or nan.
        """
        from xmcjax.metrics import micro_f1

        predicted = self.predict(X)
        truth = _joined_labels(y, np.array([len(labels) for labels in predicted]))
        return micro_f1(truth, np.concatenate(predicted))  # the accuracy, with one label per position

    def _scores(self, X) -> tuple[np.ndarray, np.ndarray]:
        from xmcjax.linops import check_features

        check_is_fitted(self)
        X, lengths = _joined(X)
        X = checked_features(self, X)
        check_features(X)
        return kernel_scores(self._kernels, self.dual_coef_, X), lengths


def _joined(X) -> tuple[Any, np.ndarray]:
    """(The features of all positions, one sequence after the other; lengths of the sequences).

    Raises:
        TypeError: a matrix in place of sequences, or sparse ones beside others.
        ValueError: no sequence, an empty one, or one of another shape.
    """
    parts = _listed(X, "X", "features")
    sparse = [_sparse.is_sparse(part) for part in parts]
    if any(sparse) != all(sparse):
        raise TypeError("X: expected sequences that are all arrays or all sparse, found both")
    parts = [_sparse.csr(part) if sparse[0] else _sparse.array(part, "X") for part in parts]
    for i, part in enumerate(parts):
        if part.ndim != 2 or not part.shape[0] or part.shape[1] != parts[0].shape[1]:
            width = parts[0].shape[1] if parts[0].ndim == 2 else "features"
            raise ValueError(
                f"X: expected positions from 1 by {width} in each sequence, found {list(part.shape)} in "
                f"sequence {i}"
            )
    lengths = np.array([part.shape[0] for part in parts])
    return sp.vstack(parts, format="csr") if sparse[0] else np.concatenate(parts), lengths


def _joined_labels(y, lengths: np.ndarray) -> np.ndarray:
    """The labels of all positions, one sequence after the other.

    Raises:
        TypeError: no sequences, or labels of several kinds, such as texts beside numbers.
        ValueError: another number of sequences, or labels of another number than positions.
    """
    parts = [_sparse.array(part, "y") for part in _listed(y, "y", "labels")]
    if len(parts) != len(lengths):
        raise ValueError(f"y: expected labels of {len(lengths)} sequences, found those of {len(parts)}")
    for i, (part, length) in enumerate(zip(parts, lengths, strict=True)):
        if part.shape != (length,):
            raise ValueError(f"y: expected {length} labels of sequence {i}, found {list(part.shape)}")
        if kind_of(part) != kind_of(parts[0]):
            raise TypeError(f"y: expected labels of one kind, found {kind_of(parts[0])} and {kind_of(part)}")
    return np.concatenate(of_one_dtype(*parts))


def _listed(sequences, name: str, what: str) -> list:
    if not isinstance(sequences, Sequence | np.ndarray) or isinstance(sequences, str | bytes):
        raise TypeError(f"{name}: expected a list of sequences of {what}, got {type(sequences).__name__}")
    if not len(sequences):
        raise ValueError(f"{name}: expected one sequence of {what} or more, found none")
    return list(sequences)
