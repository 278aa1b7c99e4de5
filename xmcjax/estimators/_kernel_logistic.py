"""Kernel multinomial regression, flat and hierarchical, with scikit-learn's conventions."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from xmcjax import _sparse
from xmcjax._arguments import flag, number, whole_number
from xmcjax._options import SHARED, Real
from xmcjax._sample_weight import weight_numbers
from xmcjax.estimators._counted import LOWEST
from xmcjax.estimators._inputs import checked_features, checked_truth
from xmcjax.estimators._kernel_parts import (
    CvGradient,
    Training,
    approximated,
    by_group,
    computing,
    folds_of,
    groups,
    kernel_of,
    learnt_of,
    least_expected_loss,
    matrix_bytes,
    ordered,
    target_of,
    warn_of_unconverged,
)
from xmcjax.estimators._kernel_scores import kernel_scores, log_probabilities_of, probabilities_of
from xmcjax.estimators._kernel_sizes import for_prediction
from xmcjax.estimators._kernel_training import base_of, training, warn_of_end
from xmcjax.estimators._refit import unchanged_on_error
from xmcjax.estimators._storable import Storable
from xmcjax.estimators._stored import applied
from xmcjax.estimators._watch import Watch


class KernelLogisticClassifier(Storable, ClassifierMixin, BaseEstimator):
    """Penalised multinomial regression with any kernel, for classes that are flat or leaves of a tree.

    Functions u_c = f_c + b_c with kernels K_c = v_c k_c minimise

    .. math:: Σ_i s_i r_{y_i} (\\log Σ_c e^{u_c(x_i)} − u_{y_i}(x_i)) + ½ Σ_c ‖f_c‖²_{K_c} + ½ ‖b‖² / σ².

    Here s are sample weights, and r class weights. With a hierarchy u_c is the sum of the functions of the
    nodes on the path to c, each penalised by its own kernel. :meth:`fit` takes v, w and σ² as they are;
    :meth:`tune` learns them by the gradient of the cross-validated log likelihood.

    Args:
        kernel: "rbf" (default), e^{−w/(2d) ‖x − x'‖²} with d features; "matern", "linear"; "precomputed":
            X holds kernel values with the training rows; or a :class:`xmcjax.kernels.Kernel`.
        hierarchy: None (default), or (parent, child) pairs of node numbers with 0 as the root: classes
            are then node numbers, those of leaves.
        v: variances, above 0; a number (10 by default), or one for each class, or node without the
            root, by ascending number.
        w: inverse squared lengths, likewise; None (default) for d / Σ_j Var[x_j], variances with the weights
            of rows and without those of classes.
        sigma2: σ² ≥ 0, variance of the intercepts, 1 by default; 0 for none.
        loadings: None (default), or a matrix B, [C, p], that mixes p functions with kernels v_p k_p into
            those of the classes; without a hierarchy. v and w are then numbers or [p].
        inner_labels: whether labels may also be inner nodes of the hierarchy, or 0, where no more is
            known of a row; False by default. The loss of such a row is −log of the probability of all
            classes below its node, which is not convex: a fit ends at a stationary point.
        likelihood: "softmax" (default), or "one_vs_rest", a binary problem for each class.
        class_weight: r, weights of the losses by class (one of balanced), or a dict from the labels of rows,
            or of the hierarchy, to weights, 1 for those that it lacks; None (default) for ones. balanced is
            n / (K n_k) for n_k of n rows and K labels.
        tol: fitting ends when the coefficients equal targets less probabilities, times the weights of
            their rows, within this part of the geometric mean of the weights, 1e-5 by default, and the
            objective is above its minimum by ten times that part of it at most; not below 100 roundings of
            the precision.
        max_iter: most Newton steps, 100 by default.
        max_cg: most CG steps of a Newton step, 200 by default. With 30 classes and more a fit begins with
            nonlinear CG, of which max_iter · max_cg steps are the most.
        warm_start: whether a fit goes on from the weights of the last one; False by default. Weights are here
            the coefficients of rows: it does where the last fit had as many rows and the same classes.
        verbose: from 1, or True, a bar shows how far a fit is, where stderr is a terminal; 0 by default.
            A line says in the end what came out, and why by which method.
        rank: None (default) for exact kernel matrices, or the rank of their approximations.
        approximation: "cholesky" (default), incomplete Cholesky with the diagonal put right; "nystrom", or
            "fourier", random Fourier features ("rbf" and "matern" only).
        memory: bytes for kernel matrices, 2 GiB by default; beyond them products are made in tiles. Up to
            4,096 rows are filled up to few numbers of rows first. Matrices of float64 are twice as large, and
            take half as much again while they are fitted. On a GPU they get at most a third of what is free.
        random_state: seed of the folds, and of the draws of "nystrom" and "fourier".

    Attributes:
        classes_: ascending; with a hierarchy all of its leaves. Without one, a class that has no row of
            weight above 0 is no part of the problem, and is never predicted.
        dual_coef_: α, [n, C].
        v_, kernel_, sigma2_, loadings_: hyperparameters of the fit; v_ is [C], [nodes] or [p].
        objective_: the minimum that was found.
        n_iter_: Newton steps made, 1 for none. n_cg_: CG steps of all of them, and of nonlinear CG.
        status_: how fitting ended, of :class:`xmcjax.solvers.Status`. reason_: why by which method.
        search_: of :meth:`tune`, the way to the hyperparameters. criterion_: Ψ at its end.
        n_features_in_: d. feature_names_in_: names of the features, where X has names.

    X of float64 is solved in float64, without a change to JAX's settings, and X of float32 in float32. Where
    the rounding of K̃α, about 10⁻⁷ √n max_i s_i K̃_ii, is above 20 `tol`, of one from 10⁻⁵ to 10⁻³, or that of
    values of the kernel above 5·10⁻⁵ of the largest, :meth:`fit` takes float64 for X in float32, in which
    it would not converge, or elsewhere: `reason_` says so. :meth:`tune` stays in the precision of X, and
    warns of unconverged fits.

    References:
        Seeger, "Cross-validation optimization for structured Hessian kernel methods", 2006.

    Example:
        >>> X = [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.1, 0.1], [0.9, 0.1]]
        >>> y = ["same", "same", "other", "other", "same", "other"]
        >>> model = KernelLogisticClassifier(v=100.0, w=8.0).fit(X, y)
        >>> model.predict([[0.9, 0.9], [0.1, 0.9]])
        array(['same', 'other'], dtype='<U5')
    """

    _system = "kernel"

    def __init__(
        self,
        kernel: Any = "rbf",
        hierarchy=None,
        *,
        v: ArrayLike = 10.0,
        w=None,
        sigma2=1.0,
        loadings=None,
        inner_labels=False,
        likelihood="softmax",
        class_weight=None,
        tol=1e-5,
        max_iter=100,
        max_cg=200,
        warm_start=False,
        verbose=0,
        rank=None,
        approximation="cholesky",
        memory=2**31,
        random_state=None,
    ):
        self.kernel = kernel
        self.hierarchy = hierarchy
        self.v = v
        self.w = w
        self.sigma2 = sigma2
        self.loadings = loadings
        self.inner_labels = inner_labels
        self.likelihood = likelihood
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.max_cg = max_cg
        self.warm_start = warm_start
        self.verbose = verbose
        self.rank = rank
        self.approximation = approximation
        self.memory = memory
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.pairwise = isinstance(self.kernel, str) and self.kernel == "precomputed"
        return tags

    @unchanged_on_error
    def fit(self, X, y, sample_weight=None):
        """Trains on features X [n, d], sparse or dense, and classes y [n], at the hyperparameters given.

        Args:
            X: finite features, or kernel values [n, n].
            y: classes, numbers or strings; with a hierarchy numbers of leaves.
            sample_weight: s ≥ 0, [n]; 2 is the same as the row twice, 0 as without it.

        Returns:
            The estimator itself.

        Raises:
            ValueError: values of X that are not finite, a precomputed kernel that is not positive
                semidefinite, y of another length or kind, fewer than two classes, a hierarchy that is no
                tree, an option out of range, numbers that overflowed.
            TypeError: an option of another kind.

        Warns:
            ConvergenceWarning: fitting ended before `tol` was reached, and the remedy.
            UserWarning: classes without a row of weight above 0.
        """
        from xmcjax.estimators._kernel_precision import LEAST_TOLERANCE
        from xmcjax.solvers import Status

        data, dtype = training(self, X, y, sample_weight, widen=True)
        residual = self._fit_in(dtype, data)
        loose = dtype == np.float32 and self.tol > LEAST_TOLERANCE
        if self.status_ != Status.CONVERGED and loose:
            # float32 was allowed for such a tolerance, but may not reach it after all
            wider, dtype = training(self, X, y, sample_weight, widen=True, tol=0.0)
            if wider.widened:
                data, residual = wider, self._fit_in(dtype, wider)
        warn_of_end(self, data, residual)
        return self

    @unchanged_on_error(progress="verbose")
    def tune(
        self,
        X,
        y,
        folds: int | np.ndarray = 5,
        *,
        share=None,
        free=("v", "w"),
        tol=1e-3,
        max_iter=100,
        verbose=False,
        sample_weight=None,
    ):
        """Learns hyperparameters by the gradient of the criterion from where they are, then fits.

        Args:
            X: as for :meth:`fit`.
            y: as for :meth:`fit`.
            folds: how many, drawn at random; or the fold of each row, whole numbers from 0.
            share: which functions have their variance and w in common: "class", each its own; "all";
                with a hierarchy "level" or "subtree" (below each child of the root). None (default) is
                "class", with a hierarchy "level".
            free: what is learnt: any of "v", "w" (all hyperparameters of the kernel), "sigma2",
                "loadings".
            tol: the search ends when no derivative in the logarithm of a hyperparameter is above
                tol Ψ, or when it gains next to nothing.
            max_iter: most iterations of the search.
            verbose: whether to show a bar, where stderr is a terminal.
            sample_weight: s ≥ 0, [n], of the losses of training parts and of those that are judged: 2 is the
                same as the row twice in one fold, 0 as without it.

        Returns:
            The estimator itself, fitted; its arguments are not changed.

        Raises:
            ValueError: as :meth:`fit`; more folds than rows, or one whose training part has one class.

        Warns:
            ConvergenceWarning: fits of the search, or the last one, ended before ``self.tol`` was reached.
        """
        from xmcjax.solvers.kernel_multinomial import tune

        learnt = learnt_of(free, self.sigma2, mixed=self.loadings is not None)
        tol, max_iter = Real(least=0).check("tol", tol), whole_number("max_iter", max_iter, 1)
        data, dtype = training(self, X, y, sample_weight, widen=False)
        folds = folds_of(folds, data, self.random_state)
        group = groups(share, data.tree, self._functions(data))
        with computing(dtype):
            base = by_group(base_of(self, data), group)
            model, h = self._family(data, group, by_group(ordered(self.v, data.tree), group), base)
            objective = self._cross_validated(data, model, folds, h, learnt)
            h, self.search_ = tune(objective, tolerance=tol, max_iter=max_iter, progress=verbose)
            self.criterion_ = self.search_.value
            warn_of_unconverged(objective, dtype)
            residual = self._fit(data, model, h)
        warn_of_end(self, data, residual)
        return self

    @unchanged_on_error
    def cv_criterion(self, X, y, folds=5, *, sample_weight=None):
        """The cross-validated negative log likelihood Ψ at the hyperparameters given, and its gradient.

        Args:
            X: as for :meth:`fit`.
            y: as for :meth:`fit`.
            folds: as for :meth:`tune`.
            sample_weight: as for :meth:`tune`.

        Returns:
            ``(Ψ, (derivatives in log v, log w, log sigma2))``, each of the shape of its parameter.

        Raises:
            ValueError: as :meth:`tune`.

        Warns:
            ConvergenceWarning: fits ended before ``self.tol`` was reached.
        """
        import jax

        from xmcjax.kernels import Kernel

        data, dtype = training(self, X, y, sample_weight, widen=False)
        folds = folds_of(folds, data, self.random_state)
        with computing(dtype):
            base = base_of(self, data)
            v = ordered(self.v, data.tree)
            model, h = self._family(data, np.arange(self._functions(data)), v, base)
            free = ("v", "kernel", "sigma2") if h.sigma2 > 0 else ("v", "kernel")
            objective = self._cross_validated(data, model, folds, h, free)
            value, slope = objective(objective.pack(h))
            slopes = objective.split(slope)
        warn_of_unconverged(objective, dtype)

        def like(slope, parameter):  # a number stands for all functions, in ascending order of the nodes
            if np.ndim(parameter) == 0:
                return float(np.sum(slope))
            return slope if data.tree is None else slope[np.argsort(data.tree.nodes)]

        kernel = jax.tree.map(like, slopes.kernel, base)
        if not isinstance(self.kernel, Kernel):
            kernel = next(iter(jax.tree.leaves(kernel)), np.zeros(0))
        return value, CvGradient(like(slopes.v, self.v), kernel, float(slopes.sigma2))

    def _write(self, path, *, held=False, **more):
        from xmcjax.estimators import _stored_kernel

        _stored_kernel.save(self, path, more, held=held)

    @classmethod
    def _read(cls, path):
        from xmcjax.estimators import _stored_kernel

        return _stored_kernel.load(cls, path)

    def decision_function(self, X):
        """u, [m, C], −1e30 for a class that is never predicted; u_1 − u_0, [m], for two classes.

        Raises:
            ValueError: X of another width or not finite.
        """
        u = self._scores(X)
        return u[:, 1] - u[:, 0] if len(self.classes_) == 2 else u

    def predict_proba(self, X):
        """Probabilities of the classes, [m, C]; rows sum to 1."""
        return probabilities_of(self._scores(X), self._likelihood)

    def predict_log_proba(self, X):
        """Logarithms of the probabilities of :meth:`predict_proba`, −inf for a class never predicted."""
        return log_probabilities_of(self._scores(X), self._likelihood)

    def predict(self, X, loss: str | ArrayLike = "zero_one"):
        """The class of the least expected loss, [m].

        Args:
            X: as for :meth:`fit`, with kernel values [m, n].
            loss: "zero_one" (default), the likeliest class, by its u where probabilities are rounded to the
                same number; with a hierarchy "taxonomy", half the path between true and predicted leaf, or
                "parent", whether they have different parents; or losses of (true, predicted) pairs of
                classes, [C, C].

        Raises:
            TypeError: a loss that is neither a name nor a matrix of numbers.
            ValueError: a loss that is unknown or of another shape; X of another width or not finite.
        """
        check_is_fitted(self)
        u = self._scores(X)
        p = probabilities_of(u.copy(), self._likelihood)
        return self.classes_[least_expected_loss(u, p, loss, self._tree)]

    def predict_topk(self, X, k, *, probabilities=False):
        """The k best classes of each row by their u, best first, and these, both [m, k].

        Args:
            X: as for :meth:`predict`.
            k: classes of each row.
            probabilities: whether their probabilities come with them in the place of u.

        Raises:
            TypeError: k is not a whole number, or `probabilities` neither True nor False.
            ValueError: k out of range; X of another width or not finite.
        """
        k, probabilities = whole_number("k", k, 1), flag("probabilities", probabilities)
        u = self._scores(X)
        most = u.shape[1] - len(getattr(self, "_without", []))
        if k > most:
            raise ValueError(f"k: expected at most {most}, the number of classes with rows, got {k}")
        best = np.argsort(-u, axis=1, kind="stable")[:, :k]
        values = probabilities_of(u, self._likelihood) if probabilities else u
        return self.classes_[best], np.take_along_axis(values, best, axis=1)

    def score(self, X, y, sample_weight=None):
        """The share of rows whose class is the one predicted.

        Args:
            X: as for :meth:`predict`.
            y: classes [n].
            sample_weight: weights of the rows, [n]; None for equal ones.

        Raises:
            TypeError: a sparse matrix or a masked array as y; weights that are no real numbers.
            ValueError: X as for :meth:`predict`; y of another length or kind.
        """
        weight = None if sample_weight is None else weight_numbers(sample_weight)
        return super().score(X, checked_truth(y, None), weight)

    def _functions(self, data: Training) -> int:
        if self.loadings is not None:
            C, shape = len(data.classes), _sparse.numbers(self.loadings, "loadings").shape
            if len(shape) != 2 or shape[0] != C or shape[1] == 0:
                expected = f"loadings: expected loadings [{C}, functions] of at least one function"
                raise ValueError(f"{expected}, got shape {list(shape)}")
            return shape[1]
        return len(data.classes) if data.tree is None else data.tree.n_nodes

    def _family(self, data: Training, group: np.ndarray, v, base):
        """(KernelModel, its hyperparameters)."""
        from xmcjax.solvers.kernel_multinomial import KernelModel

        sigma2 = number("sigma2", self.sigma2)
        memory = matrix_bytes(self.memory)
        model = KernelModel(data.points, len(data.classes), group, data.tree, memory=memory)
        B = None if self.loadings is None else np.asarray(self.loadings, np.float64)
        h = model.hyperparameters(v, base, sigma2, B)
        if self.rank is not None:
            # the active points and the draws are those of the start of a search
            fixed = approximated(h.kernel, data.points, self.rank, self.approximation, self.random_state)
            model = dataclasses.replace(model, base=fixed.at)
        return model, h

    def _cross_validated(self, data: Training, model, folds, h, free):
        """Ψ over these folds, of the hyperparameters that are free."""
        from xmcjax.solvers.kernel_multinomial import CvObjective

        target, hp = target_of(data, self.likelihood), self._limits(data)
        return CvObjective(model, target, folds, h, free=free, hp=hp, weight=data.weight)

    def _limits(self, data: Training):
        from xmcjax.estimators._kernel_precision import tolerance_in
        from xmcjax.solvers.kernel_multinomial import HParams

        tol = Real(above=0).check("tol", self.tol)
        return HParams(
            tolerance=tolerance_in(data.points.dtype, tol),
            max_steps=whole_number("max_iter", self.max_iter, 1),
            max_cg=whole_number("max_cg", self.max_cg, 1),
        )

    def _fit_in(self, dtype, data: Training) -> float:
        with computing(dtype):
            v = ordered(self.v, data.tree)
            model, h = self._family(data, np.arange(self._functions(data)), v, base_of(self, data))
            return self._fit(data, model, h)

    def _fit(self, data: Training, model, h) -> float:
        """Fits, and gives the largest residual that is left."""
        import jax

        from xmcjax._platform import said_of_device
        from xmcjax.solvers import REMEDY, Status, kernel_multinomial

        kernel, target = model.kernels(h), target_of(data, self.likelihood)
        problem = kernel_multinomial.kernel_problem(kernel, None, data.weight, likelihood=target)
        start = getattr(self, "dual_coef_", None) if SHARED["warm_start"].check(self.warm_start) else None
        if start is not None:
            same = len(start) == data.given.n and np.array_equal(self.classes_, data.classes)
            start = start if same else None
        watch = Watch(self, "step")
        kept = watch.start()
        if kept is not None:  # a state of this command, with the same data and options
            start = kept
        start = None if start is None else data.filled(start)[..., None]
        limits, begun = self._limits(data), kernel_multinomial.init(problem, start)
        with watch:
            observe = watch.observer(watch.kernel(data.given.n))
            state = kernel_multinomial.run_to_excess(problem, limits, begun, observe=observe)
        status, value, residual, steps, cg_steps = (
            np.asarray(of_lanes)[0].item()
            for of_lanes in (state.status, state.value, state.residual, state.steps, state.cg_steps)
        )
        self.status_ = Status(status)
        if self.status_ == Status.NONFINITE:
            raise ValueError(f"the objective overflowed: {REMEDY[self.status_]}")
        # host arrays keep their precision when stored
        self._kernels = jax.tree.map(np.asarray, for_prediction(kernel, data.given))
        self._tree, self.classes_, self._without = data.tree, data.classes, data.without
        self.dual_coef_ = np.asarray(state.alpha)[: data.given.n, :, 0]
        by_number = np.arange(len(kernel.v)) if data.tree is None else np.argsort(data.tree.nodes)
        self.v_, self.sigma2_ = np.asarray(kernel.v)[by_number], float(h.sigma2)
        self.loadings_ = None if h.loadings is None else np.asarray(h.loadings)
        self.kernel_ = kernel_of(self._kernels, data.tree)
        self._likelihood = self.likelihood
        self.objective_, self.n_iter_, self.n_cg_ = value, max(steps, 1), cg_steps
        widened = "; in float64, because K̃ has too few digits in float32" if data.widened else ""
        self.reason_ = said_of_device(problem.reason) + widened
        watch.end(self.reason_, Newton_steps=self.n_iter_, objective=self.objective_)
        return residual

    def _scores(self, X) -> np.ndarray:
        from xmcjax.linops import check_features

        check_is_fitted(self)
        X = checked_features(self, X)
        check_features(X)
        X = applied(getattr(self, "transforms_", None), X)
        u = kernel_scores(self._kernels, self.dual_coef_, X)
        u[:, getattr(self, "_without", [])] = LOWEST
        return u
