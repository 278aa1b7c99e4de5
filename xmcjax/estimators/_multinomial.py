"""Multinomial logistic regression with scikit-learn's conventions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from xmcjax import _sparse
from xmcjax._arguments import job_count, name_of, renamed, whole_number
from xmcjax._options import SHARED, Real
from xmcjax._range import check_range
from xmcjax._sizes import rows_and_entries, with_rows
from xmcjax._used_columns import UsedColumns, used_columns
from xmcjax.estimators._checkpoint import Checkpoint
from xmcjax.estimators._counted import Counted, counted_classes
from xmcjax.estimators._inputs import checked_data
from xmcjax.estimators._label_rows import BestLabelScore, are_labels, one_label_a_row
from xmcjax.estimators._label_warnings import warn_of_empty
from xmcjax.estimators._linear import LinearClassifier
from xmcjax.estimators._probabilities import Probabilities
from xmcjax.estimators._refit import unchanged_on_error
from xmcjax.estimators._targets import class_numbers, targets
from xmcjax.estimators._watch import Watch
from xmcjax.estimators._weights import check_products, row_weights

# What takes less of the memory of a device.
_SMALLER = 'solver="block_newton" (on the CPU), fewer classes, '
# Most values of features and scores of a problem that takes less time than its compilation.
_SMALL = 1 << 16


class MultinomialLogisticRegression(BestLabelScore, Probabilities, LinearClassifier):
    """Regularised multinomial logistic regression, exact, for up to many thousands of classes.

    With scores z_i = W x_i + b, sample weights s_i and class weights v,

    .. math:: \\min_{W, b} ‖W‖² / 2C + Σ_i s_i v_{y_i} (\\log Σ_k e^{z_{ik}} − z_{i,y_i}).

    Of a label matrix, in which row i has the labels Y_i, the losses are multi-label cross-entropies,

    .. math:: (1 / |Y_i|) Σ_{j ∈ Y_i} (\\log Σ_k e^{z_{ik}} − z_{ij}),

    v_j beside each term; rows without labels have none.

    scikit-learn's ``LogisticRegression`` with the same C minimises the same where there are more than two
    classes and `fit_intercept` is alike; for two it has one weight vector, and its C is twice this one. The
    source and :mod:`xmcjax.solvers.multinomial` have λ = 1/C.

    Args:
        solver: "auto" (default), the fastest by measurement; "block_newton", joint Newton-CG on the host
            with a preconditioner of a block per class; "newton", joint Newton-CG that JAX compiles; "dual",
            dual coordinate ascent (sparse X); "lbfgs", joint L-BFGS; of the paper "lc" and "lc_extrapolated",
            the log-concavity bound, "admm", and "dm", double majorization, whose minimum is another.
        C: weight of the losses against the regularisation (above 0); 1.0 by default.
        fit_intercept: whether there is a bias b; True by default. It is not regularised. The paper has none.
        class_weight: v, weights of the losses by class (one of balanced), or a dict from classes to weights,
            1 for those that it lacks; None (default) for ones. balanced is v_k = n / (K n_k).
        tol: relative suboptimality, 1e-4 by default. A run has converged where it is certain that objective_
            less the minimum is at most tol · objective_ (of "dm": of its bound); of all solvers but
            "block_newton" also ‖∇G‖ ≤ tol · ‖∇G(0)‖, or further steps bring nothing. 0 asks for the
            gradient alone.
        max_iter: most outer iterations, 1000 by default.
        n_jobs: host threads (from 1, or -1 for one per core, -2 for all cores but one). They predict, and
            train on sparse X on a CPU, beside those of JAX; None (default) is one thread. Sums do not depend
            on it.
        warm_start: whether a fit goes on from the weights of the last one; False by default. Classes that it
            had not start from zero.
        verbose: from 1, or True, a bar shows how far a fit is, where stderr is a terminal; 0 by default.
            A line says in the end what came out, and why by which method.
        random_state: taken for the sake of the interface: results do not depend on it.

    Attributes:
        classes_: ascending; of a label matrix the numbers of its columns.
        coef_: [m, d] in the dtype of X; m is the number of classes, and 1 for two: w_1 − w_0.
        intercept_: [m]; −inf for a class or label without a row of weight above 0, which is no part of the
            problem and is never predicted.
        objective_: the minimum that was found.
        n_iter_: outer iterations made.
        status_: how the run ended, of :class:`xmcjax.solvers.Status`.
        reason_: why by which solver, in a sentence.
        history_: a :class:`xmcjax.solvers.multinomial.Record` of each iteration: objective, norm of the
            gradient, seconds. The last is that of the weights that were found.
        n_features_in_: d. feature_names_in_: names of the features, where X has names.

    X of float64 is solved in float64, without a change to JAX's settings.

    References:
        Gopal and Yang, "Distributed training of large-scale logistic models", 2013. Lapin, Hein and Schiele,
        "Analysis and optimization of loss functions for multiclass, top-k, and multilabel classification",
        2018 (label matrices: LR^ML).

    Example:
        >>> X = [[0.0, 1.0], [0.1, 0.9], [1.0, 0.0], [0.9, 0.2], [0.0, 0.0]]
        >>> model = MultinomialLogisticRegression(C=10.0).fit(X, ["up", "up", "right", "right", "none"])
        >>> model.predict([[1, 0.1]])
        array(['right'], dtype='<U5')
        >>> model.predict_proba([[1, 0.1]]).round(1)
        array([[0.1, 0.9, 0. ]])
    """

    _system = "multinomial"
    _fitted = ("n_iter_", "objective_", "status_")

    @renamed(method="solver", lam="C, which is 1/lam")
    def __init__(
        self,
        solver="auto",
        *,
        C=1.0,
        fit_intercept=True,
        class_weight=None,
        tol=1e-4,
        max_iter=1000,
        n_jobs=None,
        warm_start=False,
        verbose=0,
        random_state=None,
    ):
        self.solver = solver
        self.C = C
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    @unchanged_on_error
    def fit(self, X, y, sample_weight=None):
        """Trains on features X [n, d], sparse or dense, and classes y [n] of any kind, or a label matrix.

        Args:
            X: finite features.
            y: classes, numbers or strings; or a label matrix [n, L], scipy.sparse with entries ≥ 0, where
                each stored non-zero is a label, or dense of 0 and 1. Predictions are single labels then too.
                A row is kept once for each of its labels.
            sample_weight: s ≥ 0, [n]; 2 is the same as the row twice, 0 as without it.

        Returns:
            The estimator itself.

        Raises:
            ValueError: values of X that are not finite, y of another length or kind, fewer than two
                classes or labels with rows, an option out of range, or numbers that overflowed; with
                `warm_start` another number of features.
            TypeError: an option of another kind.

        Warns:
            ConvergenceWarning: the run ended before the objective was certain to be within tol of the
                minimum, and the remedy.
            UserWarning: classes or labels without a row of weight above 0.
        """
        from xmcjax import _device_memory, linops
        from xmcjax._platform import said_of_device
        from xmcjax.lanes import check_sample_weight, precision
        from xmcjax.solvers.multinomial import CHOICES, HParams, auto, multinomial_problem, run

        name_of("solver", self.solver, CHOICES)
        check_random_state(self.random_state)
        intercept = SHARED["fit_intercept"].check(self.fit_intercept)
        C, threads = SHARED["C"].check(self.C), job_count(self.n_jobs)
        watch, warm = Watch(self, "iteration"), SHARED["warm_start"].check(self.warm_start)
        hp = HParams(Real(least=0).check("tol", self.tol), whole_number("max_iter", self.max_iter, 1))
        X, y = checked_data(self, X, y, multi_output=True)
        linops.check_features(X)
        check_range("C: expected a number", C, X.dtype)
        check_range("C: expected 1/C", 1 / C, X.dtype)
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, X.shape[0])
        if are_labels(y):
            problems = targets(y)
            X, numbers, sample_weight = one_label_a_row(X, problems.Y, sample_weight)
            classes = problems.classes
        else:
            classes, numbers = class_numbers(y, sample_weight)
        begin = self._start(X.shape[1], classes) if warm and hasattr(self, "coef_") else None
        self.classes_ = classes
        weight = row_weights(self.class_weight, self.classes_, numbers, sample_weight)
        if weight is not None:
            check_products(C, weight, X.dtype)
        counted = counted_classes(len(classes), numbers, weight)
        X, numbers, weight = counted.of_rows(X), counted.numbers(numbers), counted.weights(weight)
        weight = np.ones(len(numbers)) if weight is None else weight
        W0, b0 = (None, None) if begin is None else (part[..., counted.places] for part in begin)
        columns = used_columns(X)
        X = columns.of(X)
        if W0 is not None and columns.numbers is not None:
            W0 = np.ascontiguousarray(W0[columns.numbers])
        width, count = X.shape[1], counted.shape[1]
        small = X.shape[0] * (width + count) <= _SMALL
        size = (X.nnz if sp.issparse(X) else X.shape[0] * width) * count
        held = (X.shape[0] + width) * count * X.dtype.itemsize
        with auto.placed(self.solver, sp.issparse(X), size, held):
            if small and not auto.on_the_host(self.solver):
                X, numbers, weight = _of_common_size(X, numbers, weight)
            # on a GPU products in one order of the sums, where there are kernels for it
            backend = linops.products_backend(X)
            with precision(X.dtype), _device_memory.explained("a fit", _SMALLER):
                problem = multinomial_problem(
                    linops.make(X, backend=backend, threads=threads),
                    numbers,
                    1 / C,
                    classes=count,
                    weight=weight,
                    intercept=intercept,
                )
                if W0 is not None and b0 is not None:
                    W0 = np.pad(W0, [(0, problem.op.shape[1] - width), (0, 0)]).astype(problem.op.dtype)
                    b0 = b0.astype(problem.op.dtype) if intercept else None

                made = -1

                def observe(_, record):
                    nonlocal made
                    watch.show(record.steps, objective=record.value, gradient_norm=record.gradient_norm)
                    # a record without a step is the end, which no limit of time shall throw away
                    if isinstance(watch.checkpoint, Checkpoint) and record.steps > made:
                        watch.checkpoint.check_time()
                    made = record.steps

                kept: dict[str, Any] = {}
                if isinstance(watch.checkpoint, Checkpoint):
                    kept = dict(checkpoint=watch.checkpoint.states, checkpoint_seconds=watch.checkpoint.every)
                with watch:
                    more: dict[str, Any] = dict(W0=W0, b0=b0, observe=watch.observer(observe))
                    solution = run(problem, self.solver, hp, **more, **kept)
                W, bias = _on_the_host(solution.W)[:, :width], np.asarray(solution.bias)
            solution = solution._replace(reason=said_of_device(solution.reason))
        self._store(solution, W, bias, counted, columns)
        watch.end(solution.reason, iterations=self.n_iter_, objective=self.objective_)
        warn_of_empty(counted.empty, counted.classes)
        return self

    def _start(self, width: int, classes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights [d, K] and intercepts [K] of the last fit, 0 for classes that it had not."""
        coef = _sparse.matrix(self.coef_, "coef_")
        bias = np.where(np.isneginf(self.intercept_), 0, self.intercept_)  # −inf of those without rows
        coef = coef.toarray() if sp.issparse(coef) else coef
        if coef.shape[1] != width:
            raise ValueError(f"X: expected {coef.shape[1]} features, as in the last fit, found {width}")
        if self._binary:  # the difference of two
            coef, bias = np.vstack([-coef, coef]) / 2, np.concatenate([-bias, bias]) / 2
        W, b = np.zeros((width, len(classes))), np.zeros(len(classes))
        places = {kind: i for i, kind in enumerate(self.classes_.tolist())}
        for k, kind in enumerate(classes.tolist()):
            if kind in places:
                W[:, k], b[k] = coef[places[kind]], bias[places[kind]]
        return W, b

    @property
    def _link(self):
        return "softmax"

    def _store(self, solution, W, bias, counted: Counted, columns: UsedColumns):
        from xmcjax.solvers import REMEDY, Status

        if solution.status == Status.NONFINITE:
            raise ValueError(f"the objective overflowed: {REMEDY[solution.status]}")
        self._form = "classes"
        self.__dict__.pop("calibration_", None)  # of a loaded model; these scores need none
        value = solution.value
        if len(self.classes_) == 2:
            # λ/2 ‖W‖² is less without the mean of both weight vectors, which is not kept
            value -= float(np.sum((W[0] + W[1]) ** 2, dtype=np.float64)) / (4 * self.C)
            W, bias = W[1:] - W[:1], bias[1:] - bias[:1]
        self.coef_ = counted.every(columns.every(np.array(W, order="C")))
        self.intercept_ = counted.every(bias.copy(), -np.inf)
        self.objective_, self.status_, self.reason_ = value, solution.status, solution.reason
        self.n_iter_, self.history_ = max(solution.history[-1].steps, 1), solution.history
        if solution.status != Status.CONVERGED:
            warnings.warn(
                f"not converged ({solution.status.name}, ‖∇G‖ = {solution.gradient_norm:.3g}"
                f"{'' if np.isnan(solution.gap) else f', relative gap {solution.gap:.3g}'}): "
                f"{solution.status.remedy(self.coef_.dtype)}",
                ConvergenceWarning,
                stacklevel=4,  # the caller of a decorated method
            )


def _on_the_host(W) -> np.ndarray:
    """Wᵀ, [K, d]; weights on a GPU are transposed there, which is faster than on the host."""
    import jax

    from xmcjax._platform import default_platform

    if isinstance(W, jax.Array) and default_platform() != "cpu":
        return np.asarray(W.T)
    return np.asarray(W).T


def _of_common_size(X, y, weight):
    """The same problem with n, d and the entries of a CSR X filled up to powers of two.

    Rows of weight 0 and features of value 0 change no minimum. Programs are compiled for each size: with few
    sizes, the folds of a cross-validation and most other small problems share them.

    Args:
        X: [n, d], CSR or an array.
        y: classes, [n].
        weight: [n].
    """
    n, d = X.shape
    columns = _power_of_two(d, 4)
    if sp.issparse(X):
        X = sp.csr_matrix((X.data, X.indices, X.indptr), (n, columns))
    else:
        X = np.pad(X, [(0, 0), (0, columns - d)])
    rows, entries = rows_and_entries(X, _power_of_two)
    rows = _power_of_two(rows)
    y, weight = (np.pad(a, (0, rows - n)) for a in (y, weight))
    return with_rows(X, rows, entries), y, weight


def _power_of_two(number: int, least: int = 128) -> int:
    return max(least, 1 << (number - 1).bit_length())
