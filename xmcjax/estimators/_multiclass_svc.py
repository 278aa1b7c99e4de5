"""All-in-one multi-class SVMs with scikit-learn's conventions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from xmcjax._arguments import job_count, name_of, number, renamed, whole_number
from xmcjax._options import SHARED, THREADS
from xmcjax._used_columns import UsedColumns, used_columns
from xmcjax.estimators._calibration import of_classes, splits_of_classes
from xmcjax.estimators._counted import Counted, counted_classes, counted_labels
from xmcjax.estimators._inputs import checked_data
from xmcjax.estimators._label_rows import BestLabelScore, are_labels
from xmcjax.estimators._label_warnings import warn_of_empty
from xmcjax.estimators._linear import LinearClassifier, with_ones
from xmcjax.estimators._options import DUAL_SOLVERS
from xmcjax.estimators._probabilities import Probabilities
from xmcjax.estimators._refit import unchanged_on_error
from xmcjax.estimators._targets import class_numbers, targets
from xmcjax.estimators._watch import Watch, keep_dual, last_dual
from xmcjax.estimators._weights import check_products, row_weights


class MulticlassSVC(BestLabelScore, Probabilities, LinearClassifier):
    """Linear SVM over all classes at once, solved exactly.

    With scores z_ic = w_c·x_i and weights r_i of the rows, sample weight times class weight, one of

    .. math::
        \\text{ww:}\\quad & \\min ½ Σ_c ‖w_c‖² + C Σ_i r_i Σ_{c≠y_i} \\max(0, 1 − (z_{i,y_i} − z_{ic})) \\\\
        \\text{cs:}\\quad & \\min ½ Σ_c ‖w_c‖² + C Σ_i r_i \\max(0, 1 + \\max_{c≠y_i} z_{ic} − z_{i,y_i}) \\\\
        \\text{llw:}\\quad & \\min ½ Σ_c ‖w_c‖² + C Σ_i r_i Σ_{c≠y_i} \\max(0, 1 + z_{ic})
        \\quad\\text{with}\\quad Σ_c w_c = 0 \\\\
        \\text{ovr:}\\quad & \\min ½ Σ_c ‖w_c‖² + C Σ_i r_i Σ_c \\max(0, 1 − y_{ic} z_{ic}),\\quad y_{ic} = ±1

    Of a label matrix, in which row i has the labels Y_i and lacks N_i, "cs" is the multi-label SVM

    .. math:: \\min ½ Σ_c ‖w_c‖² + C Σ_i r_i \\max(0, 1 + \\max_{c∈N_i} z_{ic} − \\min_{c∈Y_i} z_{ic}),

    which wants each label of a row above all others; rows without a label, or with all, have no loss.

    Args:
        formulation: "ww" (Weston and Watkins, default), "cs" (Crammer and Singer), "llw" (Lee, Lin and
            Wahba), "ovr" (a binary SVM for each class) or "ovr_squared" (the same with the squared hinge).
        solver: "auto" (default), dual ascent first, on the CPU; or "admm", steps for all rows at once on the
            default device, whose matrix products are for a GPU and dense features. It takes no label matrix.
        C: weight of the losses against the regularisation (above 0); 1.0 by default.
        class_weight: weights of the losses by class (one of balanced), or a dict from classes to weights, 1
            for those that it lacks; None (default) for ones. balanced is n / (K n_k) for n_k of n rows and K
            classes. A label matrix takes none.
        tol: relative duality gap (P − D)/P at which training ends, 1e-3 by default: the objective is then
            above its minimum by no more than that part of it. The gap is worked out in float64 for the
            weights that are stored; where rounding to float32 keeps it above `tol`, a warning says so.
        fit_intercept: whether there is a bias b; False by default, as in the paper: on features of norm 1 it
            makes training several times slower. It is regularised like the weight of a feature of value 1.
        max_iter: epochs and Newton steps at most, together; 1000 by default. Of the steps that dense features
            may need in the end ten count as one.
        calibration: how scores become probabilities (one of temperature). temperature is softmax(a z) with
            one slope a for all classes, fitted on scores of rows that were held out: training is repeated
            without each of `cv` folds. None (default) for none. A label matrix takes none.
        cv: folds of the calibration (at least 2); 5 by default. Or a splitter of scikit-learn, or pairs of
            the rows to train on and those to hold out.
        n_jobs: host threads (from 1, or -1 for one per core, -2 for all cores but one). They train and
            predict; None (default) is one thread.
        warm_start: whether a fit goes on from the weights of the last one; False by default. It starts
            from its dual variables, brought into the dual set of the new C, where there are as many rows and
            the same classes.
        verbose: from 1, or True, a bar shows how far a fit is, where stderr is a terminal; 0 by default.
            A line says in the end what came out, and why by which method.
        random_state: of the order in which instances are visited.

    Attributes:
        classes_: the classes, ascending; of a label matrix the numbers of its columns.
        coef_: [m, d] in the dtype of X; m is 1 for two classes, the difference of their weights, or for
            "ovr" and "ovr_squared" the weights of the second, and those of the first are the same with the
            sign changed.
        intercept_: [m]; zeros without `fit_intercept`, and −inf for a class or label without a row of weight
            above 0, which is no part of the problem and is never predicted.
        calibration_: a :class:`xmcjax.models.Calibration` of the m score columns, or None.
        n_iter_: epochs and Newton steps made.
        dual_gap_: the duality gap of the weights that are stored, relative to the primal objective.
        status_: how it ended, of :class:`xmcjax.solvers.Status`.
        reason_: why by which methods, in a sentence.
        n_features_in_: d. feature_names_in_: names of the features, where X has names.

    X of float64 is solved in float64, without a change to JAX's settings. The native ascent of "ww" and
    "cs" over classes has one weight for all rows: with weights that differ these take other methods, which
    have one thread, and up to twice as long.

    References:
        Alber, Zimmert, Dogan and Kloft, "Distributed optimization of multi-class SVMs", 2017. Lapin, Hein and
        Schiele, "Analysis and optimization of loss functions for multiclass, top-k, and multilabel
        classification", 2018 (label matrices: SVM^ML).

    Example:
        >>> X = [[0.0, 1.0], [0.1, 0.9], [1.0, 0.0], [0.9, 0.2], [-1.0, -0.9], [-0.8, -1.0]]
        >>> y = ["left", "left", "right", "right", "below", "below"]
        >>> MulticlassSVC(C=10.0).fit(X, y).predict([[1, 0.1], [-1, -1]])
        array(['right', 'below'], dtype='<U5')
    """

    _form = "classes"
    _system = "multiclass"
    _fitted = ("n_iter_", "dual_gap_", "status_")

    @renamed(threads=THREADS)
    def __init__(
        self,
        formulation="ww",
        *,
        solver="auto",
        C=1.0,
        class_weight=None,
        tol=1e-3,
        fit_intercept=False,
        max_iter=1000,
        calibration=None,
        cv: Any = 5,
        n_jobs=None,
        warm_start=False,
        verbose=0,
        random_state=None,
    ):
        self.formulation = formulation
        self.solver = solver
        self.C = C
        self.class_weight = class_weight
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter
        self.calibration = calibration
        self.cv = cv
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.verbose = verbose
        self.random_state = random_state

    @unchanged_on_error
    def fit(self, X, y, sample_weight=None):
        """Trains on features X [n, d], sparse or dense, and classes y [n] of any kind, or a label matrix.

        Args:
            X: finite features.
            y: classes, numbers or strings; or, with "cs", a label matrix [n, L], scipy.sparse with entries
                ≥ 0, where each stored non-zero is a label, or dense of 0 and 1. Predictions are single labels
                then too.
            sample_weight: s ≥ 0, [n]; 2 is the same as the row twice, 0 as without it.

        Returns:
            The estimator itself.

        Raises:
            ValueError: a value of X that is not finite (with its row and column); y of another length, or
                with fewer than two classes; a label matrix with weights of classes or a calibration, or
                without a row that has a label and lacks one; an option out of range.
            TypeError: an option of another kind; a sparse y with another formulation than "cs".

        Warns:
            ConvergenceWarning: the gap is above `tol` in the end, with the remedy.
            UserWarning: classes or labels without a row of weight above 0.
        """
        from xmcjax.lanes import check_sample_weight, precision
        from xmcjax.linops import check_features
        from xmcjax.solvers import admm, multiclass_dual

        name_of("solver", self.solver, DUAL_SOLVERS)
        C, tol = SHARED["C"].check(self.C), number("tol", self.tol)
        max_iter, threads = whole_number("max_iter", self.max_iter, 1), job_count(self.n_jobs)
        intercept = SHARED["fit_intercept"].check(self.fit_intercept)
        # what is not finite is found in training, which names the place
        X, y = checked_data(self, X, y, multi_output=self._takes_labels)
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, X.shape[0])
        limits: dict[str, Any] = dict(tol=tol, max_epochs=max_iter, threads=threads)
        if self._takes_labels and are_labels(y):
            return self._fit_labels(X, y, sample_weight, C, intercept, limits)
        classes, numbers = class_numbers(y, sample_weight)
        weight = row_weights(self.class_weight, classes, numbers, sample_weight)
        rows = X, classes, numbers, sample_weight
        splits = splits_of_classes(self, *rows)
        if weight is not None:
            check_features(X)  # before rows are left out, so that it names the right one
            check_products(C, weight, X.dtype)
        counted, watch, seed = (
            counted_classes(len(classes), numbers, weight),
            Watch(self, "epoch"),
            self._seed(),
        )
        start = watch.start(counted.start(last_dual(self, classes, len(numbers))), counted.shape)
        X, numbers, weight = counted.of_rows(X), counted.numbers(numbers), counted.weights(weight)
        columns = used_columns(X)
        if columns.numbers is not None:
            check_features(X)  # so that it names the right column
        features = columns.of(X)
        features = with_ones(features) if intercept else features
        costs = C if weight is None else C * weight
        size = counted.shape[1]
        given: dict[str, Any] = dict(formulation=self.formulation, C=costs, classes=size, start=start)
        given |= dict(observe=watch.observer(watch.dual))
        with precision(X.dtype), watch:
            if self.solver == "admm":
                name_of("formulation", self.formulation, multiclass_dual.FORMULATIONS)
                check_features(X)  # dual ascent makes the check by itself
                solution = admm.solve(features, numbers, tol=tol, max_epochs=max_iter, **given)
            else:
                solution = multiclass_dual.run(features, numbers, seed=seed, **given, **limits)
        self._store(solution, classes, counted, columns)
        self.calibration_ = of_classes(self, *rows, splits)
        keep_dual(self, counted.dual(solution.alpha))
        self._say(watch, solution)
        warn_of_empty(counted.empty, counted.classes)
        return self

    def _fit_labels(self, X, y, sample_weight, C: float, intercept: bool, limits: dict[str, Any]):
        """Trains on a label matrix, with limits of the solver."""
        from xmcjax.lanes import precision
        from xmcjax.linops import check_features
        from xmcjax.solvers import multiclass_dual

        for name in ("class_weight", "calibration"):
            if (found := getattr(self, name)) is not None:
                raise ValueError(f"{name}: expected None with a label matrix as y, got {found!r}")
        if self.solver != "auto":
            raise ValueError(f"solver: expected auto with a label matrix as y, got {self.solver!r}")
        problems = targets(y)
        classes, n = problems.classes, X.shape[0]
        check_features(X)  # before the feature of the bias is added
        if sample_weight is not None:
            check_products(C, sample_weight, X.dtype)
        counted, watch, seed = counted_labels(problems.Y, sample_weight), Watch(self, "epoch"), self._seed()
        start = watch.start(counted.start(last_dual(self, classes, n)), counted.shape)
        X, Y, weight = counted.of_rows(X), counted.of_rows(problems.Y), counted.weights(sample_weight)
        columns = used_columns(X)
        X = columns.of(X)
        with precision(X.dtype), watch:
            solution = multiclass_dual.run_multilabel(
                with_ones(X) if intercept else X,
                counted.columns(Y),
                C=C if weight is None else C * weight,
                seed=seed,
                start=start,
                observe=watch.observer(watch.dual),
                **limits,
            )
        self._store(solution, classes, counted, columns, stacklevel=5)
        self.calibration_ = None
        keep_dual(self, counted.dual(solution.alpha))
        self._say(watch, solution)
        warn_of_empty(counted.empty, counted.classes, stacklevel=5)
        return self

    @property
    def _takes_labels(self):
        return isinstance(self.formulation, str) and self.formulation == "cs"

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _say(self, watch: Watch, solution) -> None:
        found = dict(epochs=self.n_iter_, objective=solution.primal, relative_gap=solution.gap)
        watch.end(self.reason_, **found)

    def _store(self, solution, classes, counted: Counted, columns: UsedColumns, stacklevel: int = 4):
        from xmcjax._platform import said_of_host
        from xmcjax.solvers import REMEDY, Status

        W, d = solution.W, len(solution.W) - bool(self.fit_intercept)
        if solution.status == Status.NONFINITE:
            raise ValueError(f"the numbers overflowed: {REMEDY[Status.NONFINITE]}")
        if len(classes) == 2:
            W = W[:, 1:] if self.formulation.startswith("ovr") else W[:, 1:] - W[:, :1]
        self.classes_ = classes
        self.coef_ = counted.every(columns.every(np.ascontiguousarray(W[:d].T)))
        bias = W[d].copy() if self.fit_intercept else np.zeros(W.shape[1], W.dtype)
        self.intercept_ = counted.every(bias, -np.inf)
        self.n_iter_ = solution.epochs + solution.newton_steps
        self.dual_gap_ = solution.gap
        self.status_, self.reason_ = solution.status, solution.reason
        if self.solver == "auto":
            self.reason_ = said_of_host(solution.reason)
        if solution.status != Status.CONVERGED:
            remedy = solution.status.remedy(self.coef_.dtype)
            if solution.status == Status.MAX_STEPS:
                remedy = "raise max_iter or tol, lower C, or scale the features"
            warnings.warn(
                f"the relative duality gap is {solution.gap:.3g} after {self.n_iter_} epochs, above "
                f"tol={self.tol:g}: {remedy}",
                ConvergenceWarning,
                stacklevel=stacklevel,  # the caller of a decorated method
            )
