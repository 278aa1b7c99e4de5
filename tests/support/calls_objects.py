"""Valid calls of public classes, and of functions whose arguments make a problem or a state."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from tests.support.calls import CLASSES, LABELS, SCORES, Call, D, K, M, N, X

FEATURES = sp.csr_matrix(X)
LENGTHS = np.full(3, N // 3)
# JAX takes the bytes of an array of NumPy in the other order for numbers; these methods take arrays of JAX.
_OF_JAX = ("m = other byte order", "w = other byte order")


def calls(folder: Path) -> dict[str, Call]:
    """By name.

    Args:
        folder: for files that functions write.
    """
    return _data(folder) | _models(folder) | _tables() | _lanes() | _duals() | _regressions() | _kernels()


def _data(folder: Path) -> dict[str, Call]:
    from xmcjax import data

    def transformed(names, weight, order, X):
        return data.Transforms.from_arrays(names, {"idf.weight": weight, "frequency.order": order}).apply(X)

    path = folder / "bounded"
    path.write_bytes(bytes(100))
    arrays = dict(weight=np.ones(D), order=np.arange(D))
    return {
        "xmcjax.data.Dataset": Call(
            lambda X, y: data.Dataset(X, y).fingerprint(), dict(X=FEATURES, y=sp.csr_matrix(LABELS))
        ),
        "xmcjax.data.Transforms": Call(
            transformed, dict(names=["idf", "frequency"], X=FEATURES) | arrays, free=("X = one row more",)
        ),
        "xmcjax.data.MemoryBound": Call(
            lambda path, max_memory: data.MemoryBound(path, max_memory).size,
            dict(path=path, max_memory=10**6),
        ),
    }


def _models(folder: Path) -> dict[str, Call]:
    from xmcjax import models

    meta = dict(n_features=D, n_labels=M, dtype="float32")
    with models.ShardWriter(folder / "read", meta) as writer:
        for label in range(M):
            writer.add(label, [0, 2], np.ones(2, np.float32))
    model = models.LinearModel.load(folder / "read")
    memory = models.ArrayModel(np.resize(SCORES, (M, D)))

    def asked(method, first, last):
        return getattr(model, method)(first, last)

    return {
        f"xmcjax.models.LinearModel.{method}": Call(functools.partial(asked, method), dict(first=0, last=M))
        for method in ("weights", "dense_block", "trained")
    } | {
        "xmcjax.models.ArrayModel": Call(memory.dense_block, dict(first=0, last=M)),
        "xmcjax.models.is_trained": Call(
            models.is_trained, dict(status=np.ones(M, np.int8)), free=("status",)
        ),
    }


def _tables() -> dict[str, Call]:
    """The objects that stand behind names, each with its own options."""
    import jax.numpy as jnp

    from xmcjax import kernels
    from xmcjax.losses import MARGIN_LOSSES
    from xmcjax.penalties import PENALTIES

    found = {}
    for loss in MARGIN_LOSSES.values():
        kind = type(loss)
        for method in ("value", "grad", "curv", "conjugate"):

            def asked(m, kind=kind, method=method, **options):
                return getattr(kind(**options), method)(m)

            place = -(SCORES**2) / 20 if method == "conjugate" else SCORES
            name = f"xmcjax.losses.{kind.__name__}.{method}"
            found[name] = Call(asked, dict(m=place) | dataclasses.asdict(loss), host=False, unasked=_OF_JAX)
    for kind in PENALTIES.values():
        found[f"xmcjax.penalties.{kind.__name__}"] = Call(
            lambda w, kind=kind, **options: kind(**options).value(w),
            dict(w=SCORES) | dataclasses.asdict(kind()),
            host=False,
            unasked=_OF_JAX,
        )
    points = kernels.points(X)

    def product(kernel):
        return kernels.gram(kernel, points).matmat(jnp.ones((N, 1, 1), jnp.float32))

    composed = {
        "RBF": lambda w: kernels.RBF(w),
        "Matern": lambda w, nu: kernels.Matern(w, nu),
        "Scaled": lambda v, first: kernels.Scaled(v, first),
        "Sum": lambda first, second: kernels.Sum(first, second),
        "Product": lambda first, second: kernels.Product(first, second),
    }
    options = dict(w=1.0, nu=1.5, v=2.0, first=kernels.RBF(1.0), second=kernels.Linear())
    for name, make in composed.items():
        taken = make.__code__.co_varnames
        found[f"xmcjax.kernels.{name}"] = Call(
            lambda make=make, **arguments: product(make(**arguments)),
            {key: value for key, value in options.items() if key in taken},
            cost=5,
        )
    return found


def _lanes() -> dict[str, Call]:
    from xmcjax import lanes
    from xmcjax.inits import INITS

    def trained(**options):
        found = {}
        options = lanes.OneVsAll(**options)
        lanes.train_one_vs_all(
            FEATURES, sp.csr_matrix(LABELS), options, lambda r: found.update({r.label: r[1:3]})
        )
        return [found[label] for label in sorted(found)]

    def started(kind, **options):
        return trained(init=kind(**options))

    plain = lanes.OneVsAll(clip=0.0, n_jobs=1, block_size=4)
    fields = [field.name for field in dataclasses.fields(plain)]
    found = {
        "xmcjax.lanes.OneVsAll": Call(trained, {name: getattr(plain, name) for name in fields}, cost=3),
        "xmcjax.lanes.Weighting.of_preset": Call(
            lambda name, preset: dataclasses.astuple(lanes.Weighting.of_preset(name, preset)),
            dict(name="propensity", preset="default"),
        ),
    }
    for kind in INITS.values():
        options = dataclasses.asdict(kind())
        if options and kind.name != "pretrained":
            found[f"xmcjax.inits.{kind.__name__}"] = Call(functools.partial(started, kind), options, cost=3)
    return found


def _duals() -> dict[str, Call]:
    import jax
    from jax.sharding import Mesh

    from xmcjax import linops
    from xmcjax.solvers import instance_dual, multiclass_dual, topk_sdca

    def lanes_run(tolerance, max_epochs, slots, checks, lane, tol):
        problem = topk_sdca.problem(linops.make(FEATURES), CLASSES, k=K)
        state = topk_sdca.init(problem, jax.random.key(0), slots=slots, checks=checks)
        state = topk_sdca.run(problem, topk_sdca.HParams(tolerance, max_epochs), state)
        return topk_sdca.weights(problem, state), topk_sdca.proof(problem, state, lane, tol)[0]

    def over_mesh(**arguments):
        mesh = Mesh(np.array(jax.devices()[:1]), ("rows",))
        return multiclass_dual.run_over_mesh(mesh=mesh, **arguments).primal

    def of_set(y, set_name, bound, k):
        return instance_dual.problem(linops.make(FEATURES), y, set_name=set_name, bound=bound, k=k).bound

    return {
        "xmcjax.solvers.topk_sdca.run": Call(
            lanes_run, dict(tolerance=1e-2, max_epochs=50, slots=4, checks=64, lane=0, tol=1e-2), cost=30
        ),
        "xmcjax.solvers.instance_dual.problem": Call(
            of_set,
            dict(y=CLASSES, set_name="topk_alpha", bound=np.ones((1, N)), k=K),
            cost=3,
            free=("bound = one row more",),
        ),
        "xmcjax.solvers.multiclass_dual.run_over_mesh": Call(
            over_mesh,
            dict(X=FEATURES, y=CLASSES, C=1.0, tol=0.1, max_epochs=20, seed=0, shrinking=True),
            cost=40,
        ),
    }


def _regressions() -> dict[str, Call]:
    from xmcjax import linops
    from xmcjax.losses import squared_hinge
    from xmcjax.solvers import multinomial, newton_cg

    def fitted(lam, classes, weight, intercept, tolerance, max_steps, W0, b0):
        problem = multinomial.multinomial_problem(
            linops.make(FEATURES), CLASSES, lam, classes=classes, weight=weight, intercept=intercept
        )
        hp = multinomial.HParams(tolerance, max_steps)
        return multinomial.run(problem, "newton", hp, W0=W0, b0=b0).W

    def lanes_from(shift, w0, b0):
        targets = np.where(LABELS > 0, 1, -1).astype(np.int8)
        problem = newton_cg.lane_problem(
            linops.make(FEATURES), targets, squared_hinge, shift=shift, tolerance=1e-3
        )
        return newton_cg.run(problem, newton_cg.HParams(), newton_cg.init(problem, w0, b0)).w

    return {
        "xmcjax.solvers.multinomial.multinomial_problem": Call(
            fitted,
            dict(
                lam=1.0,
                classes=M,
                weight=np.ones(N),
                intercept=True,
                tolerance=1e-3,
                max_steps=50,
                W0=np.zeros((D, M)),
                b0=np.zeros(M),
            ),
            cost=40,
        ),
        "xmcjax.solvers.newton_cg.init": Call(
            lanes_from, dict(shift=np.zeros((N, M)), w0=np.zeros((D, M)), b0=np.zeros(M)), host=False, cost=30
        ),
    }


def _kernels() -> dict[str, Call]:
    from xmcjax import kernels
    from xmcjax.solvers import kernel_multinomial as km

    given = kernels.points(X)
    family = kernels.class_kernels(kernels.gram(kernels.RBF(1.0), given), 1.0, 1.0, M)
    hp = km.HParams(1e-3, 20)
    transitions = np.zeros((M, M))

    def uncertain(allowed, weight, tolerance, max_iter):
        return km.fit_uncertain(
            family, allowed, hp, weight=weight, tolerance=tolerance, max_iter=max_iter
        ).values

    def chains(variance, tolerance, max_iter):
        problem = km.chain_problem(family, CLASSES, LENGTHS, transitions)
        return km.fit_chains(problem, hp, variance, tolerance=tolerance, max_iter=max_iter).state.alpha

    def tuned(v, sigma2, folds, weight, free, tolerance, max_iter):
        model = km.KernelModel(given, M, np.arange(M))
        at = model.hyperparameters(v, kernels.RBF(1.0), sigma2)
        likelihood = km.kernel_problem(family, CLASSES).likelihood
        objective = km.CvObjective(model, likelihood, folds, at, free=free, hp=hp, weight=weight)
        return km.tune(objective, tolerance=tolerance, max_iter=max_iter)[0].v

    first = "xmcjax.solvers.kernel_multinomial."
    return {
        first + "most_likely": Call(km.most_likely, dict(u=SCORES, lengths=LENGTHS, transitions=transitions)),
        first + "fold_weights": Call(
            km.fold_weights,
            dict(folds=np.arange(N) % 2, q=2, dtype="float32"),
            free=("dtype", "folds = one row more"),
        ),
        first + "fit_uncertain": Call(
            uncertain, dict(allowed=LABELS > 0, weight=np.ones(N), tolerance=0.1, max_iter=2), cost=30
        ),
        first + "fit_chains": Call(chains, dict(variance=1.0, tolerance=0.1, max_iter=2), cost=60),
        first + "CvObjective": Call(
            tuned,
            dict(
                v=np.ones(M),
                sigma2=1.0,
                folds=np.arange(N) // 6,
                weight=np.ones(N),
                free=("v",),
                tolerance=0.1,
                max_iter=1,
            ),
            cost=60,
        ),
    }
