"""Valid calls of what trains linear models: operators, solvers, lanes, estimators."""
# ruff: noqa: B008 – the defaults of a function are a valid call of it

from __future__ import annotations

import dataclasses
import functools
import inspect

import jax
import numpy as np
import scipy.sparse as sp
from jax.sharding import Mesh

from tests.support.calls import CLASSES, FEATURES, LABEL_MATRIX, LABELS, SIGNS, D, K, M, N, Table, X
from tests.support.calls_kernels import PRODUCT
from xmcjax import estimators, lanes, linops, losses
from xmcjax.inits import INITS, label_tree
from xmcjax.kernels import KERNELS
from xmcjax.penalties import PENALTIES
from xmcjax.solvers import admm, instance_dual, multiclass_dual, multinomial, newton_cg, topk_sdca
from xmcjax.solvers.kernel_multinomial import LIKELIHOODS

METHODS = ("decision_function", "predict", "predict_proba", "predict_log_proba", "predict_topk", "score")


def add(table: Table) -> None:
    """All of them."""
    for name, features in (("linops.make", FEATURES), ("linops.make(dense)", X)):

        @table.of(name, free=PRODUCT)
        def product(X=features, backend="auto", threads=1):
            op = linops.make(X, backend=backend, threads=threads)
            return op.matmat(np.ones((D, 2), op.dtype))

    table.add("linops.check_features", linops.check_features, dict(X=X), free=PRODUCT[:1])
    table.add("inits.label_tree", label_tree, dict(Y=sp.csc_array(LABELS), weight=np.ones(N)))
    _lanes(table)
    _newton(table)
    _duals(table)
    _multinomial(table)
    _estimators(table)


def _trained(options: lanes.OneVsAll, X=FEATURES, Y=LABEL_MATRIX, **more):
    """Indices, weights and bias of each label."""
    found = {}
    summary = lanes.train_one_vs_all(X, Y, options, lambda r: found.update({r.label: r[1:4]}), **more)
    return [found[label] for label in sorted(found)], int(summary.steps > 0)


def _lanes(table: Table) -> None:
    @table.of("lanes.LabelWeights")
    def weights(positive=np.ones(M), negative=np.ones(M)):
        return dataclasses.astuple(lanes.LabelWeights(positive, negative))

    @table.of("lanes.balanced_weights")
    def balanced(Y=LABEL_MATRIX, sample_weight=np.ones(N)):
        return dataclasses.astuple(lanes.balanced_weights(Y, sample_weight))

    table.add("lanes.check_sample_weight", lanes.check_sample_weight, dict(weight=np.ones(N), n=N))
    for name in lanes.WEIGHTINGS:

        @table.of(f"lanes.Weighting.weights({name!r})", free=("Y = one row more",))
        def weighted(name=name, a=0.55, b=1.5, Y=LABEL_MATRIX):
            return dataclasses.astuple(lanes.Weighting(name, a, b).weights(Y))

    @table.of("lanes.Weighting.of_preset")
    def of_preset(name="propensity", preset="default"):
        return dataclasses.astuple(lanes.Weighting.of_preset(name, preset))

    for name, kind in INITS.items():
        if name == "pretrained":
            continue

        def trained(X, Y, sample_weight, labels, **options):
            given = lanes.OneVsAll(clip=0.0, **options)
            return _trained(given, X, Y, sample_weight=sample_weight, labels=labels)

        of_data = dict(X=FEATURES, Y=sp.csr_matrix(LABELS), sample_weight=np.ones(N), labels=np.arange(M))
        options = dict(init=kind(), C=1.0, tol=0.01, fit_intercept=True, max_iter=50, n_jobs=1)
        table.add(f"lanes.train_one_vs_all({name!r})", trained, of_data | options, cost=3)

        def started(kind=kind, **options):
            return _trained(lanes.OneVsAll(init=kind(**options)))

        if options := dataclasses.asdict(kind()):
            table.add(f"inits.{kind.__name__}", started, options, cost=3)

    @table.of("lanes.calibrate_one_vs_all", cost=5)
    def calibrated(X=FEATURES, Y=LABEL_MATRIX, cv=2, sample_weight=np.ones(N)):
        options = lanes.OneVsAll(n_jobs=1)
        found = lanes.calibrate_one_vs_all(X, Y, options, cv=cv, sample_weight=sample_weight)
        assert found is not None
        return found.slope

    plain = lanes.OneVsAll(clip=0.0, n_jobs=1, block_size=4)
    options = {field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)}
    table.add("lanes.OneVsAll", lambda **options: _trained(lanes.OneVsAll(**options)), options, cost=3)


def _newton(table: Table) -> None:
    def solved(problem, *start):
        return newton_cg.run(problem, newton_cg.HParams(), newton_cg.init(problem, *start)).w

    @table.of("solvers.newton_cg.lane_problem", cost=20, free=PRODUCT)
    def lanes_solved(X=FEATURES, y=SIGNS, weight=1.0, tolerance=1e-3):
        more = dict(weight=weight, tolerance=tolerance)
        return solved(newton_cg.lane_problem(linops.make(X), y, losses.squared_hinge, **more))

    @table.of("solvers.newton_cg.init", host=False, cost=30)
    def lanes_from(shift=np.zeros((N, M)), w0=np.zeros((D, M)), b0=np.zeros(M)):
        more = dict(shift=shift, tolerance=1e-3)
        problem = newton_cg.lane_problem(linops.make(FEATURES), SIGNS, losses.squared_hinge, **more)
        return solved(problem, w0, b0)


def _duals(table: Table) -> None:
    @table.of("solvers.multiclass_dual.multiclass_problem", cost=3)
    def problem(X=X, y=CLASSES, formulation="ww", C=1.0, classes=M, backend="auto", threads=1):
        more = dict(formulation=formulation, C=C, classes=classes, backend=backend, threads=threads)
        return multiclass_dual.multiclass_problem(X, y, **more).norms2

    arguments = dict(X=FEATURES, y=CLASSES, C=1.0, seed=0)
    for name in multiclass_dual.FORMULATIONS:
        table.add(
            f"solvers.multiclass_dual.run({name!r})",
            lambda **arguments: multiclass_dual.run(**arguments).primal,
            arguments | dict(formulation=name, tol=0.01, max_epochs=200),
            cost=2,
        )

    table.add(
        "solvers.multiclass_dual.run_multilabel",
        lambda **arguments: multiclass_dual.run_multilabel(**arguments).primal,
        # a tolerance at which float32 and float64 end with the same objective
        dict(X=FEATURES, Y=LABEL_MATRIX, C=np.ones(N), tol=1e-6, max_epochs=200, seed=0, backend="auto")
        | dict(threads=1, start=np.zeros((N, M))),
        cost=2,
    )

    def over_mesh(**arguments):
        mesh = Mesh(np.array(jax.devices()[:1]), ("rows",))
        return multiclass_dual.run_over_mesh(mesh=mesh, **arguments).primal

    arguments |= dict(tol=0.1, max_epochs=20, shrinking=True, threads=1)
    table.add("solvers.multiclass_dual.run_over_mesh", over_mesh, arguments, cost=40)

    for name in topk_sdca.VARIANTS:
        table.add(
            f"solvers.topk_sdca.solve({name!r})",
            lambda **arguments: topk_sdca.solve(**arguments).primal,
            dict(X=FEATURES, y=CLASSES, k=K, C=1.0, variant=name, tol=0.01, max_epochs=200, seed=0)
            | dict(gamma=0.0 if name == "entropy" else 0.5),
            cost=30,
        )

    @table.of("solvers.topk_sdca.problem", cost=3)
    def topk(
        X=X,
        y=CLASSES,
        k=K,
        C=1.0,
        variant="alpha",
        gamma=0.5,
        weight=np.ones(N),
        mask=np.ones(N, bool),
        classes=M,
    ):
        more = dict(k=k, C=C, variant=variant, gamma=gamma, weight=weight, mask=mask, classes=classes)
        return topk_sdca.problem(linops.make(X), y, **more).bound

    @table.of("solvers.topk_sdca.run", cost=30)
    def lanes_run(tolerance=1e-2, max_epochs=50, slots=4, checks=64, lane=0, tol=1e-2):
        problem = topk_sdca.problem(linops.make(FEATURES), CLASSES, k=K)
        state = topk_sdca.init(problem, jax.random.key(0), slots=slots, checks=checks)
        state = topk_sdca.run(problem, topk_sdca.HParams(tolerance, max_epochs), state)
        return topk_sdca.weights(problem, state), topk_sdca.proof(problem, state, lane, tol)[0]

    @table.of("solvers.instance_dual.problem", cost=3, free=("bound = one row more",))
    def of_set(y=CLASSES, set_name="topk_alpha", bound=np.ones((1, N)), k=K, gamma=0.5):
        more = dict(set_name=set_name, bound=bound, k=k, gamma=gamma)
        return instance_dual.problem(linops.make(FEATURES), y, **more).bound

    @table.of("solvers.admm.problem", cost=3)
    def splitting(
        X=FEATURES,
        y=CLASSES,
        formulation="topk_alpha",
        C=1.0,
        k=K,
        weight=np.ones(N),
        mask=np.ones(N, bool),
        members=np.ones(M, bool),
        classes=M,
    ):
        more = dict(formulation=formulation, C=C, k=k, weight=weight, mask=mask, members=members)
        return admm.problem(linops.make(X), y, classes=classes, **more).bound

    @table.of("solvers.admm.solve", cost=30)
    def splitting_solve(X=FEATURES, y=CLASSES, formulation="topk_beta", C=1.0, k=K, classes=M, tol=0.01):
        more = dict(formulation=formulation, C=C, k=k, classes=classes, tol=tol, max_epochs=50)
        return admm.solve(X, y, **more).primal

    @table.of("solvers.admm.run", cost=30)
    def splitting_run(tolerance=1e-2, max_steps=50, alpha=np.zeros((N, M)), lane=0, tol=1e-2):
        problem = admm.problem(linops.make(FEATURES), CLASSES)
        state = admm.run(problem, admm.HParams(tolerance, max_steps), admm.init(problem, alpha))
        return admm.weights(problem, state), admm.proof(problem, state, lane, tol)[0]


def _multinomial(table: Table) -> None:
    for name in multinomial.METHODS:

        @table.of(f"solvers.multinomial.run({name!r})", cost=30)
        def regression(X=FEATURES, y=CLASSES, lam=1.0, weight=1.0, method=name):
            problem = multinomial.multinomial_problem(linops.make(X), y, lam, weight=weight)
            return multinomial.run(problem, method).W

    def fitted(lam, tolerance, max_steps, W0, b0, **options):
        problem = multinomial.multinomial_problem(linops.make(FEATURES), CLASSES, lam, **options)
        return multinomial.run(problem, "newton", multinomial.HParams(tolerance, max_steps), W0=W0, b0=b0).W

    options = dict(lam=1.0, classes=M, weight=np.ones(N), intercept=True, tolerance=1e-3, max_steps=50)
    start = dict(W0=np.zeros((D, M)), b0=np.zeros(M))
    table.add("solvers.multinomial.multinomial_problem", fitted, options | start, cost=40)


def _estimators(table: Table) -> None:
    _chains(table)
    variants: dict[str, list[dict]] = {
        "OneVsAllClassifier": [
            *(dict(loss=name) for name in losses.MARGIN_LOSSES),
            *(dict(init=name) for name in INITS if name != "pretrained"),
            *(dict(penalty=name) for name in PENALTIES),
        ],
        "MulticlassSVC": [
            *(dict(formulation=name) for name in multiclass_dual.FORMULATIONS),
            dict(formulation="cs", solver="admm"),
        ],
        "MultinomialLogisticRegression": [dict(solver=name) for name in multinomial.CHOICES],
        "TopKSVC": [dict(variant=name, k=K) for name in topk_sdca.VARIANTS],
        "KernelLogisticClassifier": [
            *(dict(kernel=name) for name in KERNELS),
            *(dict(likelihood=name) for name in LIKELIHOODS),
        ],
    }
    for name, choices in variants.items():
        kind = getattr(estimators, name)

        def fitted(X, y, weight=None, kind=kind, **parameters):
            weights = {} if weight is None else dict(sample_weight=weight)
            estimator = kind(**parameters).fit(X, y, **weights)
            return estimator.decision_function(X), estimator.predict(X)

        for choice in choices:
            arguments = dict(X=FEATURES, y=CLASSES) | kind(**choice).get_params(deep=False)
            # the same order each time, and not long where numbers are huge
            arguments |= dict(random_state=0, max_iter=50)
            if "sample_weight" in inspect.signature(kind.fit).parameters:
                arguments["weight"] = np.ones(N)
            text = ", ".join(f"{key}={value!r}" for key, value in choice.items())
            # classes may be of any kind
            free = ("y = strings", "y = objects")
            table.add(f"estimators.{name}.fit({text})", fitted, arguments, cost=40, free=free)
        if name == "OneVsAllClassifier":

            def parts(X, y, more, classes, weight, kind=kind):
                estimator = kind(clip=0.0, tol=1e-5).partial_fit(X, y, classes)
                return estimator.partial_fit(X, more, sample_weight=weight).decision_function(X)

            given = dict(X=FEATURES, y=CLASSES % 2, more=CLASSES, classes=np.arange(2), weight=np.ones(N))
            # classes may be of any kind
            free = tuple(f"{which} = {kind}" for which in ("y", "more") for kind in ("strings", "objects"))
            free += ("classes = one row more",)
            table.add("estimators.OneVsAllClassifier.partial_fit", parts, given, cost=3, free=free)
        # with the loss that knows probabilities
        likelihood = {"OneVsAllClassifier": dict(loss="logistic")}.get(name, {})
        if name in ("MulticlassSVC", "TopKSVC"):
            likelihood = dict(calibration="temperature", cv=2)
        _predictions(table, kind, choices[0] | likelihood)


def _predictions(table: Table, kind, choice: dict) -> None:
    """The methods of a fitted estimator; it is fitted when the first of them is called.

    It is fitted to other rows than it predicts: those it was fitted to have equal scores for the classes that
    are not theirs, and rounding says which of them is first.
    """
    rows = np.random.default_rng(1).normal(size=X.shape).astype(np.float32)

    @functools.cache
    def fitted():
        return kind(**choice).fit(rows, CLASSES)

    for method in METHODS:
        if hasattr(kind, method):

            def called(X, method=method, **more):
                return getattr(fitted(), method)(X, **more)

            arguments = dict(X=X) | {"predict_topk": dict(k=K), "score": dict(y=CLASSES)}.get(method, {})
            # classes may be of any kind
            free = ("X = one row more",) if method != "score" else ("y = strings", "y = objects")
            table.add(f"estimators.{kind.__name__}.{method}", called, arguments, cost=4, free=free)


def _chains(table: Table) -> None:
    """The conditional random field: its rows as three sequences of one length."""
    first = "estimators.KernelChainClassifier"

    def fitted(X, y, **parameters):
        model = estimators.KernelChainClassifier(**parameters).fit(np.split(X, 3), np.split(y, 3))
        return model.dual_coef_, model.transitions_

    given = estimators.KernelChainClassifier(tol=0.1, max_iter=2).get_params(deep=False)
    # classes may be of any kind; rows that are no three sequences are refused by NumPy
    free = ("y = strings", "y = objects", "X = one row more", "y = one row more")
    table.add(first, fitted, dict(X=X, y=CLASSES) | given, cost=60, free=free)
