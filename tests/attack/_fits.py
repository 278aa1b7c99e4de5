"""Valid calls of what trains: problems, solvers, kernels, estimators."""

from __future__ import annotations

import dataclasses
import functools
import inspect

import numpy as np
import scipy.sparse as sp

from tests.attack._calls import CLASSES, LABELS, Call, D, K, M, N, X


def calls() -> dict[str, Call]:
    """By name."""
    return _solvers() | _kernels() | _estimators()


def _solvers() -> dict[str, Call]:
    from xmcjax import lanes, linops, losses
    from xmcjax.inits import INITS, label_tree
    from xmcjax.solvers import multiclass_dual, multinomial, newton_cg, topk_sdca

    features, targets = sp.csr_matrix(X), np.where(LABELS > 0, 1, -1).astype(np.int8)

    def product(X, backend, threads):
        op = linops.make(X, backend=backend, threads=threads)
        return op.matmat(np.ones((D, 2), op.dtype))

    def topk(X, y, **arguments):
        return topk_sdca.problem(linops.make(X), y, **arguments).bound

    def weighted(name, a, b, Y):
        return dataclasses.astuple(lanes.Weighting(name, a, b).weights(Y))

    def lanes_solved(X, y, weight, tolerance):
        problem = newton_cg.lane_problem(
            linops.make(X), y, losses.squared_hinge, weight=weight, tolerance=tolerance
        )
        return newton_cg.run(problem, newton_cg.HParams(), newton_cg.init(problem)).w

    def trained(X, Y, sample_weight, labels, **options):
        results = {}
        summary = lanes.train_one_vs_all(
            X,
            Y,
            lanes.OneVsAll(clip=0.0, **options),
            lambda result: results.update({result.label: (result.indices, result.values, result.bias)}),
            sample_weight=sample_weight,
            labels=labels,
        )
        return [results[label] for label in sorted(results)], int(summary.steps > 0)

    def regression(X, y, lam, weight, method):
        problem = multinomial.multinomial_problem(linops.make(X), y, lam, weight=weight)
        return multinomial.run(problem, method).W

    found = {
        "xmcjax.linops.make": Call(product, dict(X=features, backend="auto", threads=1), free=_PRODUCT),
        "xmcjax.linops.make(dense)": Call(product, dict(X=X, backend="auto", threads=1), free=_PRODUCT),
        "xmcjax.linops.check_features": Call(linops.check_features, dict(X=X), free=_PRODUCT[:1]),
        "xmcjax.solvers.newton_cg.lane_problem": Call(
            lanes_solved, dict(X=features, y=targets, weight=1.0, tolerance=1e-3), cost=20, free=_PRODUCT
        ),
        "xmcjax.lanes.LabelWeights": Call(
            lambda positive, negative: dataclasses.astuple(lanes.LabelWeights(positive, negative)),
            dict(positive=np.ones(M), negative=np.ones(M)),
        ),
        "xmcjax.inits.label_tree": Call(label_tree, dict(Y=sp.csc_array(LABELS), weight=np.ones(N))),
        "xmcjax.solvers.multiclass_dual.multiclass_problem": Call(
            lambda **arguments: multiclass_dual.multiclass_problem(**arguments).norms2,
            dict(X=X, y=CLASSES, formulation="ww", C=1.0, backend="auto", threads=1),
            cost=3,
        ),
        "xmcjax.solvers.topk_sdca.problem": Call(
            topk, dict(X=X, y=CLASSES, k=K, C=1.0, variant="alpha", mask=np.ones(N, bool), classes=M), cost=3
        ),
        "xmcjax.lanes.check_sample_weight": Call(lanes.check_sample_weight, dict(weight=np.ones(N), n=N)),
    }
    for name in multinomial.METHODS:
        found[f"xmcjax.solvers.multinomial.run({name!r})"] = Call(
            regression, dict(X=features, y=CLASSES, lam=1.0, weight=1.0, method=name), cost=30
        )
    for name in multiclass_dual.FORMULATIONS:
        arguments = dict(X=features, y=CLASSES, formulation=name, C=1.0, tol=0.01, max_epochs=200, seed=0)

        def solved(**arguments):
            return multiclass_dual.run(**arguments).primal

        found[f"xmcjax.solvers.multiclass_dual.run({name!r})"] = Call(solved, arguments, cost=2)
    for name in topk_sdca.VARIANTS:
        arguments = dict(X=features, y=CLASSES, k=K, C=1.0, variant=name, tol=0.01, max_epochs=200, seed=0)
        found[f"xmcjax.solvers.topk_sdca.solve({name!r})"] = Call(
            lambda **arguments: topk_sdca.solve(**arguments).primal, arguments, cost=30
        )
    for name, init in INITS.items():
        if name == "pretrained":
            continue
        weights = np.ones(N)
        found[f"xmcjax.lanes.train_one_vs_all({name!r})"] = Call(
            trained,
            dict(
                X=features,
                Y=sp.csr_matrix(LABELS),
                sample_weight=weights,
                labels=np.arange(M),
                init=init(),
                C=1.0,
                tol=0.01,
                fit_intercept=True,
                max_iter=50,
                n_jobs=1,
            ),
            cost=3,
        )
    for name in lanes.WEIGHTINGS:
        found[f"xmcjax.lanes.Weighting({name!r})"] = Call(
            weighted, dict(name=name, a=0.55, b=1.5, Y=sp.csr_array(LABELS)), free=("Y = one row more",)
        )
    return found


def _kernels() -> dict[str, Call]:
    import jax.numpy as jnp

    from xmcjax import kernels
    from xmcjax.solvers import kernel_multinomial

    given = kernels.points(X)
    products = X @ X.T
    base = kernels.gram(kernels.RBF(1.0), given)
    family = kernels.class_kernels(base, 1.0, 1.0, M)
    once = np.ones((N, 1, 2), np.float32)

    def made(X, dtype, backend):
        return kernels.points(X, dtype, backend=backend).norms2

    def stored(w, memory, kind):
        return kernels.gram(kind(w), given, memory=memory).matmat(jnp.asarray(once))

    def classes(v, sigma2, n_classes, share, loadings):
        made = kernels.class_kernels(base, v, sigma2, n_classes, share=share, loadings=loadings)
        return made.matmat(jnp.ones((N, M), jnp.float32))

    def low_rank(w, rank, method, seed):
        return kernels.low_rank(kernels.RBF(w), given, rank, method=method, seed=seed).count

    def fourier(w, rank, seed):
        return kernels.fourier(kernels.RBF(w), given, rank, seed=seed).count

    def problem(y, weight, likelihood):
        return kernel_multinomial.kernel_problem(family, y, weight, likelihood=likelihood).weight

    def chains(y, lengths, transitions, weight):
        return kernel_multinomial.chain_problem(family, y, lengths, transitions, weight).weight

    def tested(M, diagonal):
        return kernels.precomputed_test(M, kernels.precomputed(products), diagonal).matrix

    first = "xmcjax.kernels."
    solver = "xmcjax.solvers.kernel_multinomial."
    found = {
        first + "points": Call(made, dict(X=X, dtype="float32", backend="auto"), cost=3, free=_PRODUCT),
        first + "precomputed": Call(lambda M: kernels.precomputed(M).matrix, dict(M=products)),
        first + "precomputed_test": Call(
            tested, dict(M=products, diagonal=np.ones(N, np.float32)), free=("M = one row more",)
        ),
        first + "class_kernels": Call(
            classes,
            dict(
                v=np.ones(K),
                sigma2=1.0,
                n_classes=M,
                share=np.zeros(K, int),
                loadings=np.resize(np.eye(K, dtype=np.float32), (M, K)),
            ),
            cost=3,
            free=("loadings = huge numbers",),
        ),
        first + "low_rank": Call(low_rank, dict(w=1.0, rank=4, method="cholesky", seed=0), cost=10),
        first + "fourier": Call(fourier, dict(w=1.0, rank=4, seed=0), cost=5),
        first + "stack": Call(
            lambda w, v: kernels.stack(kernels.Scaled(v, kernels.RBF(w)), np.float32)[1], dict(w=1.0, v=2.0)
        ),
        solver + "kernel_problem": Call(
            problem, dict(y=CLASSES, weight=np.ones(N), likelihood="softmax"), cost=2
        ),
        solver + "chain_problem": Call(
            chains,
            dict(y=CLASSES, lengths=np.full(3, N // 3), transitions=np.zeros((M, M)), weight=np.ones(3)),
            cost=2,
        ),
        solver + "check_folds": Call(
            lambda folds: kernel_multinomial.check_folds(folds, CLASSES), dict(folds=np.arange(N) // 6)
        ),
        solver + "random_folds": Call(kernel_multinomial.random_folds, dict(n=N, q=3, seed=0)),
    }
    for name, kind in kernels.KERNELS.items():
        if name != "linear":
            found[f"{first}gram({name!r})"] = Call(
                lambda kind=kind, **arguments: stored(kind=kind, **arguments),
                dict(w=1.0, memory=10**6),
                cost=5,
            )
    return found


# A product alone computes with what there is.
_PRODUCT = ("X = one row more", "X = a NaN", "X = an infinity")


def _estimators() -> dict[str, Call]:
    from xmcjax import estimators
    from xmcjax.inits import INITS
    from xmcjax.kernels import KERNELS
    from xmcjax.losses import MARGIN_LOSSES
    from xmcjax.penalties import PENALTIES
    from xmcjax.solvers import multiclass_dual, multinomial, topk_sdca
    from xmcjax.solvers.kernel_multinomial import LIKELIHOODS

    variants: dict[str, list[dict]] = {
        "OneVsAllClassifier": [
            *(dict(loss=name) for name, loss in MARGIN_LOSSES.items() if loss.smooth),
            *(dict(init=name) for name in INITS if name != "pretrained"),
            *(dict(penalty=name) for name in PENALTIES),
        ],
        "MulticlassSVC": [dict(formulation=name) for name in multiclass_dual.FORMULATIONS],
        "MultinomialLogisticRegression": [dict(solver=name) for name in multinomial.CHOICES],
        "TopKSVC": [dict(variant=name, k=K) for name in topk_sdca.VARIANTS],
        "KernelLogisticClassifier": [
            *(dict(kernel=name) for name in KERNELS),
            *(dict(likelihood=name) for name in LIKELIHOODS),
        ],
    }
    found = {}
    for name, choices in variants.items():
        kind = getattr(estimators, name)
        for choice in choices:

            def fitted(X, y, weight=None, kind=kind, **parameters):
                weights = {} if weight is None else dict(sample_weight=weight)
                estimator = kind(**parameters).fit(X, y, **weights)
                return estimator.decision_function(X), estimator.predict(X)

            arguments = dict(X=sp.csr_matrix(X), y=CLASSES) | kind(**choice).get_params(deep=False)
            # the same order each time, and not long where numbers are huge
            arguments |= dict(random_state=0, max_iter=50)
            if "sample_weight" in inspect.signature(kind.fit).parameters:
                arguments["weight"] = np.ones(N)
            text = ", ".join(f"{key}={value!r}" for key, value in choice.items())
            # classes may be of any kind
            free = ("y = strings", "y = objects")
            found[f"xmcjax.estimators.{name}({text})"] = Call(fitted, arguments, cost=40, free=free)
        found |= _predictions(name, kind, choices[0])
    return found


def _predictions(name: str, kind, choice: dict) -> dict[str, Call]:
    """The methods of a fitted estimator; it is fitted when the first of them is called."""

    @functools.cache
    def fitted():
        return kind(**choice).fit(X, CLASSES)

    found = {}
    for method in ("decision_function", "predict", "predict_proba", "predict_topk"):
        if not hasattr(kind, method):
            continue

        def called(X, method=method, **more):
            return getattr(fitted(), method)(X, **more)

        arguments = dict(X=X) | (dict(k=K) if method == "predict_topk" else {})
        found[f"xmcjax.estimators.{name}.{method}"] = Call(
            called, arguments, cost=4, free=("X = one row more",)
        )
    return found
