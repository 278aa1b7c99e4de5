"""The top-k multi-class SVM with scikit-learn's conventions."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from xmcjax._arguments import name_of, renamed, whole_number
from xmcjax._options import SHARED, THREADS, Real
from xmcjax._range import check_range
from xmcjax._used_columns import UsedColumns, used_columns
from xmcjax.estimators._calibration import check as check_calibration
from xmcjax.estimators._calibration import of_classes, splits_of_classes
from xmcjax.estimators._counted import Counted, counted_classes
from xmcjax.estimators._inputs import checked_data
from xmcjax.estimators._label_warnings import warn_of_empty
from xmcjax.estimators._linear import LinearClassifier, with_ones
from xmcjax.estimators._options import DUAL_SOLVERS
from xmcjax.estimators._probabilities import Probabilities
from xmcjax.estimators._refit import unchanged_on_error
from xmcjax.estimators._targets import class_numbers
from xmcjax.estimators._watch import Watch, keep_dual, last_dual
from xmcjax.estimators._weights import check_products, row_weights

KERNELS = ("linear", "precomputed")
TOL, SMOOTHING = Real(above=0), Real(least=0)
# _FACTORISED: most instances whose inner products are factorised before training, which takes less than a
# second. _ROUNDING: largest size of negative eigenvalues by rounding, as a part of the largest eigenvalue.
_FACTORISED, _ROUNDING = 2048, 1e-4


class TopKSVC(Probabilities, LinearClassifier):
    """Multi-class SVM that minimises a loss of the k best wrong classes, solved exactly.

    With scores z_i = W x_i, margins h_j = 1 + z_ij − z_iy over the classes j ≠ y_i, and weights r_i of the
    rows, sample weight times class weight,

    .. math:: \\min_W ½‖W‖² + C Σ_i r_i φ(h_i)

    where φ is max{0, mean of the k largest h} ("alpha", Lapin et al. 2015, eq. 3) or the mean over the k
    largest of max{0, h} ("beta", eq. 5). k = 1 is the SVM of Crammer and Singer. With a smoothing γ > 0 the
    loss is max {⟨h, x⟩ − γ/2 ‖x‖² : x ∈ Δ} in place of φ(h) = max {⟨h, x⟩ : x ∈ Δ} (Lapin et al. 2016).
    "entropy" is their top-k entropy, log(1 + e^E) with E = max {⟨h − 1, p⟩ + H(p) : 0 ≤ p ≤ 1/k, 1ᵀp = 1}:
    k = 1 is multinomial logistic regression without a bias.

    Args:
        k: classes that count, from 1 (default) to the number of classes less one.
        variant: "alpha" (default), "beta" or "entropy".
        C: weight of the losses against the regularisation (above 0); 1.0 by default.
        solver: "auto" (default), dual ascent first, on the CPU; or "admm", steps for all rows at once on the
            default device, whose matrix products are for a GPU and dense features or inner products. It takes
            the variants alpha and beta without a smoothing.
        smoothing: γ of the smoothed loss, which is quadratic where the loss has its kinks (at least 0); 0.0
            by default. 0 is the loss itself. The smoothed one is below it, by γ/2 at most. "entropy" has
            none.
        class_weight: weights of the losses by class (one of balanced), or a dict from classes to weights, 1
            for those that it lacks; None (default) for ones. balanced is n / (K n_k) for n_k of n rows and K
            classes.
        kernel: "linear" (default), or "precomputed": X is then the matrix of inner products of the
            rows with the training rows, at ``fit`` symmetric.
        tol: relative duality gap (P − D)/P at which training ends, 1e-3 by default: the objective is then
            above its minimum by no more than that part of it. The gap is worked out in float64 for the
            weights that are stored; where rounding to float32 keeps it above `tol`, a warning says so.
        max_iter: most epochs, each of which visits every row; 1000 by default. Of the steps for all rows
            at once, which dense features may need, ten count as one, and of the entropy's L-BFGS each
            evaluation does.
        fit_intercept: whether there is a bias b; False by default. It is the weight of a feature of value 1,
            regularised like the others.
        calibration: how scores become probabilities (one of temperature). temperature is softmax(a z) with
            one slope a for all classes, fitted on scores of rows that were held out: training is repeated
            without each of `cv` folds. None (default) for none.
        cv: folds of the calibration (at least 2); 5 by default. Or a splitter of scikit-learn, or pairs of
            the rows to train on and those to hold out.
        n_jobs: host threads (from 1, or -1 for one per core, -2 for all cores but one). They predict; None
            (default) is one thread.
        warm_start: whether a fit goes on from the weights of the last one; False by default. It starts
            from its dual variables, brought into the dual set of the new C, where there are as many rows and
            the same classes.
        verbose: from 1, or True, a bar shows how far a fit is, where stderr is a terminal; 0 by default.
            A line says in the end what came out, and why by which method.
        random_state: seed of the order in which rows are visited.

    Attributes:
        classes_: ascending.
        coef_: [m, d] in the dtype of X; for two classes [1, d], the second's less the first's.
            With a precomputed kernel d is the number of training rows, whose coefficients these are.
        intercept_: [m], or [1] for two classes; −inf for a class without a row of weight above 0, which is no
            part of the problem and is never predicted.
        calibration_: a :class:`xmcjax.models.Calibration` of the m score columns, or None.
        n_iter_: epochs made, and what counts as such.
        dual_gap_: relative duality gap of the weights.
        objective_: P.
        status_: how it ended, of :class:`xmcjax.solvers.Status`.
        reason_: why by which methods, in a sentence.
        n_features_in_: d. feature_names_in_: names of the features, where X has names.

    X of float64 is solved in float64, without a change to JAX's settings.

    References:
        Lapin, Hein and Schiele, "Top-k multiclass SVM", 2015.
        Lapin, Hein and Schiele, "Loss Functions for Top-k Error: Analysis and Insights", 2016.

    Example:
        >>> X = [[0.0, 1.0], [0.1, 0.9], [1.0, 0.0], [0.9, 0.2], [1.0, 1.0], [0.9, 1.1]]
        >>> y = ["left", "left", "right", "right", "both", "both"]
        >>> classifier = TopKSVC(k=2, C=10.0).fit(X, y)
        >>> labels, scores = classifier.predict_topk([[1.0, 0.1]], 2)
        >>> labels.tolist()
        [['right', 'both']]
    """

    _system = "top-k"
    _fitted = ("n_iter_", "dual_gap_", "objective_", "status_")

    @renamed(threads=THREADS)
    def __init__(
        self,
        k=1,
        variant="alpha",
        C=1.0,
        *,
        solver="auto",
        smoothing=0.0,
        class_weight=None,
        kernel="linear",
        tol=1e-3,
        max_iter=1000,
        fit_intercept=False,
        calibration=None,
        cv: Any = 5,
        n_jobs=None,
        warm_start=False,
        verbose=0,
        random_state=None,
    ):
        self.k = k
        self.variant = variant
        self.C = C
        self.solver = solver
        self.smoothing = smoothing
        self.class_weight = class_weight
        self.kernel = kernel
        self.tol = tol
        self.max_iter = max_iter
        self.fit_intercept = fit_intercept
        self.calibration = calibration
        self.cv = cv
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        return tags

    @unchanged_on_error
    def fit(self, X, y, sample_weight=None):
        """Trains on features X [n, d], sparse or dense, or inner products [n, n], and classes y [n].

        Args:
            X: finite features.
            y: classes, numbers or strings.
            sample_weight: s ≥ 0, [n]; 2 is the same as the row twice, 0 as without it.

        Returns:
            The estimator itself.

        Raises:
            ValueError: a value of X that is not finite (with its row and column), inner products that
                are not symmetric or not positive semidefinite (of 2,048 instances at most), y of another
                length or kind, fewer than two classes, an option out of range, numbers that overflowed.
            TypeError: an option of another kind.

        Warns:
            ConvergenceWarning: the gap is not down to ``tol`` after ``max_iter`` epochs.
            UserWarning: classes without a row of weight above 0.
        """
        from xmcjax.lanes import check_sample_weight, precision
        from xmcjax.linops import check_features

        k, tol, max_iter = (
            whole_number("k", self.k, 1),
            TOL.check("tol", self.tol),
            whole_number("max_iter", self.max_iter, 1),
        )
        C = SHARED["C"].check(self.C)
        gamma = SMOOTHING.check("smoothing", self.smoothing)
        if gamma and self.variant == "entropy":
            raise ValueError(
                f"smoothing: expected 0 with the variant entropy, which is smooth, got {gamma:g}"
            )
        name_of("solver", self.solver, DUAL_SOLVERS)
        if self.solver == "admm" and (gamma or self.variant == "entropy"):
            what = f"smoothing={gamma:g}" if gamma else "the variant entropy"
            raise ValueError(f"solver: expected auto with {what}, got admm")
        SHARED["n_jobs"].check(self.n_jobs)
        name_of("kernel", self.kernel, KERNELS)
        check_calibration(self)
        SHARED["fit_intercept"].check(self.fit_intercept)
        X, y = checked_data(self, X, y)
        check_features(X)
        check_range("C: expected a number", C, X.dtype)
        if gamma:
            check_range("smoothing: expected 0 or a number", gamma, X.dtype)
            check_range("smoothing: expected smoothing / C", gamma / C, X.dtype)
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, X.shape[0])
        classes, numbers = class_numbers(y, sample_weight)
        weight = row_weights(self.class_weight, classes, numbers, sample_weight)
        if weight is not None:
            check_products(C, weight, X.dtype)
        counted = counted_classes(len(classes), numbers, weight)
        most = counted.shape[1] - 1
        if k > most:
            of = "" if len(classes) == counted.shape[1] else " that have a row of weight above 0,"
            raise ValueError(f"k: expected at most {most}, the number of classes{of} less one, got {k}")
        splits = splits_of_classes(self, X, classes, numbers, sample_weight, k + 1)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        with precision(X.dtype):
            more = classes, counted, tol, max_iter, seed
            weights, columns = self._solve(X, numbers, k, C, gamma, weight, *more)
        self.classes_, self._form = classes, "classes"
        if len(classes) == 2:
            weights = weights[1:] - weights[:1]
        bias = self.fit_intercept and self.kernel == "linear"
        coef = np.ascontiguousarray(weights[:, :-1] if bias else weights)
        self.coef_ = counted.every(columns.every(coef))
        # with a kernel the bias is a part of it, 1 in every product: Σ_i a_i
        intercept = (
            weights[:, -1].copy()
            if bias
            else weights.sum(axis=1)
            if self.fit_intercept
            else np.zeros(len(weights), X.dtype)
        )
        self.intercept_ = counted.every(intercept, -np.inf)
        self.calibration_ = of_classes(self, X, classes, numbers, sample_weight, splits)
        warn_of_empty(counted.empty, counted.classes)
        return self

    def _solve(self, X: Any, y, k, C, gamma, weight, classes, counted: Counted, tol, max_iter, seed):
        """(Weights of the classes that count, [m, d'], the bias last; the columns of X that they are for).

        With a kernel the weights are coefficients of all rows.
        """
        import jax

        from xmcjax._platform import said_of_host
        from xmcjax.solvers import Status, admm, topk_sdca

        watch, size = Watch(self, "epoch"), counted.shape[1]
        start = watch.start(counted.start(last_dual(self, classes, len(y))), counted.shape)
        y, weight = counted.numbers(y), counted.weights(weight)
        if self.kernel == "precomputed":
            products = self._inner_products(X)
            products = counted.of_rows(counted.of_rows(products).T).T
            columns, X = UsedColumns(X.shape[1]), topk_sdca.Gram(jax.numpy.asarray(products))
        else:
            X = counted.of_rows(X)
            columns = used_columns(X)
            X = with_ones(columns.of(X)) if self.fit_intercept else columns.of(X)
        more = dict(tol=tol, max_epochs=max_iter, start=start, observe=watch.observer(watch.dual))
        with watch:
            if self.solver == "admm":
                name_of("variant", self.variant, topk_sdca.VARIANTS)
                costs = C if weight is None else C * weight
                loss: dict[str, Any] = dict(formulation=f"topk_{self.variant}", k=k, C=costs)
                found = admm.solve(X, y, classes=size, **loss, **more)
            else:
                loss = dict(variant=self.variant, gamma=gamma, seed=seed)
                found = topk_sdca.solve(X, y, k, C, weight=weight, classes=size, **loss, **more)
        if found.status == Status.NONFINITE:
            raise ValueError("expected features and C whose products are finite, but they overflowed")
        self.n_iter_, self.objective_, self.dual_gap_ = found.epochs, found.primal, found.gap
        self.status_, self.reason_ = Status(found.status), found.reason
        if self.solver == "auto":
            self.reason_ = said_of_host(found.reason)
        keep_dual(self, counted.dual(found.alpha))
        watch.end(self.reason_, epochs=found.epochs, objective=found.primal, relative_gap=found.gap)
        if found.gap > tol:
            other = "scale the features"
            if self.kernel == "precomputed":
                other = "give inner products of smaller numbers, or in float64"
            remedy = f"raise max_iter or tol, lower C, or {other}"
            if self.status_ == Status.STALLED:
                remedy = self.status_.remedy(found.W.dtype)
            warnings.warn(
                f"the relative duality gap is {self.dual_gap_:.3g} after {self.n_iter_} epochs, above "
                f"tol = {tol:g}: {remedy}",
                ConvergenceWarning,
                stacklevel=4,  # the caller of a decorated method
            )
        W = counted.every_row(found.W) if self.kernel == "precomputed" else found.W
        return np.ascontiguousarray(W.T), columns

    def _inner_products(self, X):
        K = X.toarray() if sp.issparse(X) else X
        if K.shape[0] != K.shape[1]:
            raise ValueError(f"X: expected a square matrix of inner products, got shape {K.shape}")
        off = np.abs(K - K.T).max()
        if off > 1e-4 * np.abs(K).max():
            raise ValueError(
                f"X: expected a symmetric matrix of inner products, found entries {off:.3g} apart"
            )
        if K.diagonal().min() < -1e-4 * np.abs(K).max():
            raise ValueError(
                "X: expected inner products, of a row with itself at least 0, "
                f"found {K.diagonal().min():.3g} on the diagonal"
            )
        _check_semidefinite(K)
        return K + K.dtype.type(1) if self.fit_intercept else K


def _check_semidefinite(K: np.ndarray) -> None:
    """Raises ValueError for products that no features have; of many instances, only some are checked."""
    some = np.linspace(0, len(K) - 1, min(len(K), _FACTORISED)).astype(int)
    part = K[np.ix_(some, some)].astype(np.float64)
    part = (part + part.T) / 2
    rounding = max(_ROUNDING, len(part) * float(np.finfo(K.dtype).eps)) * np.abs(part).sum(axis=1).max()
    if not 0 < rounding < np.inf:
        return  # all are 0; or some are not finite, and training names them
    with contextlib.suppress(np.linalg.LinAlgError):
        np.linalg.cholesky(part + rounding * np.eye(len(part)))
        return
    least = np.linalg.eigvalsh(part)[0]
    raise ValueError(f"X: expected positive semidefinite inner products, found the eigenvalue {least:.3g}")
