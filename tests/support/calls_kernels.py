"""Valid calls of kernels and of kernel multinomial regression."""
# ruff: noqa: B008 – the defaults of a function are a valid call of it

from __future__ import annotations

import inspect

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from tests.support.calls import CLASSES, LABELS, SCORES, K, M, N, Table, X
from xmcjax import kernels
from xmcjax.solvers import kernel_multinomial as km

# A product alone computes with what there is.
PRODUCT = ("X = one row more", "X = a NaN", "X = an infinity")
LENGTHS, TRANSITIONS = np.full(3, N // 3), np.zeros((M, M))


def add(table: Table) -> None:
    """All of them."""
    given, products = kernels.points(X), X @ X.T
    base = kernels.gram(kernels.RBF(1.0), given)
    family = kernels.class_kernels(base, 1.0, 1.0, M)
    _functions(table, given)

    @table.of("kernels.points", cost=3, free=PRODUCT)
    def made(X=X, dtype="float32", backend="auto"):
        return kernels.points(X, dtype, backend=backend).norms2

    @table.of("kernels.points of sparse rows", cost=3, free=PRODUCT)
    def made_sparse(X=sp.csr_array(X)):
        return kernels.points(X).norms2

    @table.of("kernels.precomputed")
    def precomputed(M=products):
        return kernels.precomputed(M).matrix

    @table.of("kernels.precomputed_test", free=("M = one row more",))
    def tested(M=products, diagonal=np.ones(N, np.float32)):
        return kernels.precomputed_test(M, kernels.precomputed(products), diagonal).matrix

    loadings = np.resize(np.eye(K, dtype=np.float32), (M, K))

    @table.of("kernels.class_kernels", cost=3, free=("loadings = huge numbers",))
    def classes(v=np.ones(K), sigma2=1.0, n_classes=M, share=np.zeros(K, int), loadings=loadings):
        made = kernels.class_kernels(base, v, sigma2, n_classes, share=share, loadings=loadings)
        return made.matmat(jnp.ones((N, M), jnp.float32))

    edges = np.array([(0, label + 1) for label in range(M)])

    @table.of("kernels.tree")
    def tree(hierarchy=edges):
        return kernels.tree(hierarchy).transpose(jnp.ones((N, M, 1), jnp.float32))

    @table.of("kernels.class_kernels on a tree", cost=3)
    def nodes(v=np.ones(M), sigma2=1.0, n_classes=M, hierarchy=edges):
        made = kernels.class_kernels(base, v, sigma2, n_classes, hierarchy=hierarchy)
        return made.matmat(jnp.ones((N, M, 1), jnp.float32))

    @table.of("kernels.low_rank", cost=10)
    def low_rank(w=1.0, rank=4, method="cholesky", seed=0):
        return kernels.low_rank(kernels.RBF(w), given, rank, method=method, seed=seed).count

    @table.of("kernels.fourier", cost=5)
    def fourier(w=1.0, rank=4, seed=0):
        return kernels.fourier(kernels.RBF(w), given, rank, seed=seed).count

    @table.of("kernels.stack")
    def stacked(w=1.0, v=2.0):
        return kernels.stack(kernels.Scaled(v, kernels.RBF(w)), np.float32)[1]

    _solver(table, given, family)


def _functions(table: Table, given) -> None:
    for name, kind in kernels.KERNELS.items():
        if name != "linear":

            @table.of(f"kernels.gram({name!r})", dict(kind=kind), cost=5)
            def stored(kind, w=1.0, memory=10**6):
                gram = kernels.gram(kind(w), given, memory=memory)  # which a forked process is refused
                return gram.matmat(jnp.ones((N, 1, K), jnp.float32))

    options = dict(w=1.0, nu=1.5, v=2.0, first=kernels.RBF(1.0), second=kernels.Linear())
    composed = {
        "RBF": lambda w: kernels.RBF(w),
        "Matern": lambda w, nu: kernels.Matern(w, nu),
        "Scaled": lambda v, first: kernels.Scaled(v, first),
        "Sum": lambda first, second: kernels.Sum(first, second),
        "Product": lambda first, second: kernels.Product(first, second),
    }
    for name, make in composed.items():

        def product(make=make, **arguments):
            return kernels.gram(make(**arguments), given).matmat(jnp.ones((N, 1, 1), jnp.float32))

        arguments = {key: options[key] for key in inspect.signature(make).parameters}
        table.add(f"kernels.{name}", product, arguments, cost=5)


def _solver(table: Table, given, family) -> None:
    first, hp = "solvers.kernel_multinomial.", km.HParams(1e-3, 20)

    @table.of(first + "kernel_problem", cost=2)
    def problem(y=CLASSES, weight=np.ones(N), likelihood="softmax"):
        return km.kernel_problem(family, y, weight, likelihood=likelihood).weight

    @table.of(first + "chain_problem", cost=2)
    def chained(y=CLASSES, lengths=LENGTHS, transitions=TRANSITIONS, weight=np.ones(3)):
        return km.chain_problem(family, y, lengths, transitions, weight).weight

    @table.of(first + "check_folds")
    def folded(folds=np.arange(N) // 6):
        return km.check_folds(folds, CLASSES)

    table.add(first + "random_folds", km.random_folds, dict(n=N, q=3, seed=0))
    arguments = dict(u=SCORES, lengths=LENGTHS, transitions=TRANSITIONS)
    table.add(first + "most_likely", km.most_likely, arguments)
    table.add(first + "marginals", km.marginals, arguments, cost=3)
    arguments = dict(folds=np.arange(N) % 2, q=2, dtype="float32")
    table.add(first + "fold_weights", km.fold_weights, arguments, free=("dtype", "folds = one row more"))

    @table.of(first + "partial_labels", cost=30)
    def partial(allowed=LABELS > 0):
        problem = km.kernel_problem(family, None, likelihood=km.partial_labels(allowed))
        return km.run(problem, hp, km.init(problem)).value

    @table.of(first + "run_to_excess", cost=30)
    def near(excess=0.1):
        problem = km.kernel_problem(family, CLASSES)
        return km.run_to_excess(problem, hp, km.init(problem), excess).value

    @table.of(first + "fit_chains", cost=60)
    def chains(variance=1.0, tolerance=0.1, max_iter=2):
        problem = km.chain_problem(family, CLASSES, LENGTHS, TRANSITIONS)
        return km.fit_chains(problem, hp, variance, tolerance=tolerance, max_iter=max_iter).state.alpha

    folds = np.arange(N) // 6

    @table.of(first + "CvObjective", cost=60)
    def tuned(
        v=np.ones(M), sigma2=1.0, folds=folds, weight=np.ones(N), free=("v",), tolerance=0.1, max_iter=1
    ):
        model = km.KernelModel(given, M, np.arange(M))
        at = model.hyperparameters(v, kernels.RBF(1.0), sigma2)
        likelihood = km.kernel_problem(family, CLASSES).likelihood
        objective = km.CvObjective(model, likelihood, folds, at, free=free, hp=hp, weight=weight)
        return km.tune(objective, tolerance=tolerance, max_iter=max_iter)[0].v
