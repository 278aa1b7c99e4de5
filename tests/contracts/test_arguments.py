"""What functions refuse: in one sentence that says what was expected and what was found."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.internals import Hierarchy
from tests.support.kernel_models import TREE, data, model
from tests.support.losses import CASES
from tests.support.problems import lanes_problem, svm_problem
from xmcjax import kernels, linops, losses, projections
from xmcjax.kernels import RBF, Linear, Matern, Scaled
from xmcjax.penalties import L1, ElasticNet, HuberPenalty
from xmcjax.solvers import kernel_multinomial, multiclass_dual, newton_cg, topk_sdca

RAGGED = "expected rows of one length, found a ragged list"
FUNCTIONS = {
    **{name: case.f for name, case in CASES.items()},
    **{f"{name}_conjugate": case.conjugate for name, case in CASES.items() if case.conjugate},
}
# those need a parameter, or have a k for more classes
PLAIN = {name: f for name, f in FUNCTIONS.items() if "bound" not in name and "most" not in name}
WITH_K = [f for name, f in vars(losses).items() if name.startswith(("topk", "smooth_topk", "truncated"))]
BOUNDS = [losses.lc_bound, losses.lc_bound_conjugate, losses.dm_bound, losses.dm_bound_conjugate]
Z, Y = np.zeros((4, 5), np.float32), np.array([0, 1, 2, 4])


def total(f, labels, scores):
    return jnp.sum(f(scores, labels))


SPARSE = sp.csr_array(Z)
NO_ARRAYS = {"a dense array of real numbers, found a sparse matrix": SPARSE, "found NoneType": None}


def of_no_arrays():
    for words, wrong in NO_ARRAYS.items():
        for f in PLAIN.values():
            yield partial(f, wrong, Y), TypeError, f"(scores|duals): expected .*{words}"
        yield partial(losses.topk_hinge, wrong, Y, 2), TypeError, f"scores: expected .*{words}"
        for of in (losses.multilabel_hinge, losses.multilabel_cross_entropy):
            yield partial(of, wrong, Z), TypeError, f"scores: expected .*{words}"
            yield partial(of, Z, wrong), TypeError, f"targets: expected .*{words}"
        for f in (projections.simplex, partial(projections.topk_cone, k=2)):
            yield partial(f, wrong), TypeError, f"x: expected .*{words}"


def of_losses():
    for f in PLAIN.values():
        for scores in (Z.astype(int), Z.astype(bool), Z.astype(complex)):
            yield partial(f, scores, Y), TypeError, f"scores of a floating point dtype, got {scores.dtype}"
        yield partial(jax.jit(f), Z.astype(int), Y), TypeError, "floating point"
        for labels in (Y.astype(float), Y > 1):
            yield partial(f, Z, labels), TypeError, f"expected integer labels, got {labels.dtype}"
        for labels in (Y[:3], Y[:, None], 0):
            yield partial(f, Z, labels), ValueError, r"labels of shape \(4,\) for scores of \(4, 5\), got \("
        yield partial(jax.eval_shape, f, Z, Y[:2]), ValueError, "expected labels of shape"
        for labels, found in (([0, 1, 5, 2], 5), ([0, -1, 7, 2], -1), (jnp.asarray([0, 1, 2, 2**40]), 2**40)):
            yield partial(f, Z, labels), ValueError, f"labels from 0 to 4 for 5 classes, got {found}"
        wrong = np.array([0, 1, 2, 9])
        yield partial(jax.jit(partial(f, labels=wrong)), Z), ValueError, "from 0 to 4"
        yield partial(jax.grad(partial(total, f, wrong)), Z), ValueError, "from 0 to 4"
        for scores in (np.float32(1), Z[:, :0]):
            yield partial(f, scores, Y), ValueError, r"shape \[..., m\] with at least one class, got \("
        mask = np.ones(5, np.float32)
        yield partial(f, Z, Y, where=mask), TypeError, "expected a boolean mask where, got float32"
        for shape in (4, (3, 4, 5), (2, 5)):
            mask = np.ones(shape, bool)
            yield partial(f, Z, Y, where=mask), ValueError, r"mask where that broadcasts to \(4, 5\), got \("


def of_numbers_of_losses():
    for f in WITH_K:
        for k in (0, -1, 5, 6):
            yield partial(f, Z, Y, k), ValueError, f"expected k from 1 to m-1 = 4 for 5 classes, got {k}"
        for k in (2.0, True):
            yield partial(f, Z, Y, k), TypeError, f"k to be an int known when tracing, got {type(k).__name__}"
        yield partial(jax.jit(f), Z, Y, 2), TypeError, "k to be an int known when tracing, got .*Tracer"
        if "hinge" in f.__name__:
            variant = "expected the variant 'alpha' or 'beta', got 'gamma'"
            yield partial(f, Z, Y, 2, variant="gamma"), ValueError, variant
    for f in (losses.smooth_topk_hinge, losses.smooth_topk_hinge_conjugate):
        for gamma in (0, -1.0, np.nan, np.inf):
            yield partial(f, Z, Y, 2, gamma), ValueError, f"expected a finite gamma > 0, got {gamma}"
        yield partial(f, Z, Y, 2, jnp.ones(2)), ValueError, r"gamma as one number, got the shape \(2,\)"
        for gamma in (1e-40, 1e300):
            yield partial(f, Z, Y, 2, gamma), ValueError, r"1.18e-38 to 3.4e\+38, the range of float32"
        for gamma in (1j, True, None, "1"):
            yield partial(f, Z, Y, 2, gamma), TypeError, "expected a real gamma"
    for f in (losses.ordered_hinge, losses.ordered_hinge_conjugate):
        for beta in ([0.5, 1.0], [-1.0], [np.nan], [np.inf, 1.0]):
            yield partial(f, Z, Y, beta), ValueError, "a finite beta that falls and is not negative, got"
        for beta in (1.0, [], np.ones(5), np.ones((2, 2))):
            yield (
                partial(f, Z, Y, beta),
                ValueError,
                r"beta of shape \[q\] with q from 1 to m-1 = 4 for 5 classes",
            )
        yield partial(f, Z, Y, [True]), TypeError, "beta of real numbers, got bool"
        yield partial(f, Z, Y, [1e300]), ValueError, "beta from 1.18e-38"
    young = losses.fenchel_young
    yield partial(young, Z, Z, "simplex"), TypeError, "a projection that can be called, got str"
    yield partial(young, Z, Z[:3], projections.simplex), ValueError, "targets of the shape of the scores"
    yield partial(young, Z, Z > 0, projections.simplex), TypeError, "targets of real numbers, got bool"
    yield partial(young, Z, Z, projections.simplex, 0), ValueError, "expected a finite gamma > 0, got 0"
    for f in BOUNDS:
        name = "log_a" if f.__name__.startswith("lc") else "a"
        yield partial(f, Z, Y, np.zeros(4, int)), TypeError, f"{name} of a floating point dtype, got int64"
        yield partial(f, Z, Y, np.float32(0)), ValueError, rf"{name} of the labels' shape \(4,\), got \(\)"
    targets = np.where(Z == 0, 1, -1)
    ova = losses.one_vs_all, losses.one_vs_all_conjugate
    several = [f for name, f in vars(losses).items() if name.startswith("multilabel")]
    for f in (*several, *(partial(f, loss=losses.hinge) for f in ova)):
        shape = r"targets of the shape of the \w+, \(4, 5\), got \(4,\)"
        yield partial(f, Z, targets[:, 0]), ValueError, shape
        yield partial(f, Z, targets * 0), ValueError, "expected targets of 1 and -1, got 0"
        yield partial(f, Z, targets > 0), TypeError, "targets of real numbers, got bool"
        yield partial(f, targets, targets), TypeError, "of a floating point dtype, got int64"
    for f in ova:
        yield partial(f, Z, targets, "hinge"), TypeError, "a MarginLoss such as .*, got 'hinge'"
    for delta in (0, -1.0, np.nan):
        yield partial(losses.HuberHinge, delta=delta), ValueError, f"delta > 0, got {delta}"
    for delta in (np.inf, 1e-300):
        yield partial(losses.HuberHinge, delta=delta), ValueError, f"from 1e-30 to 1e30, got {delta}"


def of_penalties():
    for make, wrong in ((ElasticNet, 0.0), (ElasticNet, 1.1), (HuberPenalty, 0.0)):
        yield partial(make, wrong), ValueError, "expected .* got"
    for wrong in (2.0, np.nan):
        yield partial(ElasticNet, wrong), ValueError, "expected .* got"


def of_projections():
    X, simplex, cone = np.ones((2, 4)), projections.simplex, projections.topk_cone
    knapsack, topk = projections.knapsack, projections.topk_simplex
    yield partial(simplex, np.ones((2, 4), np.int32)), TypeError, "floating"
    yield partial(cone, X > 0, 2), TypeError, "floating"
    yield partial(simplex, 1.0), ValueError, "last axis"
    yield partial(simplex, np.ones((2, 0))), ValueError, "last axis"
    yield partial(simplex, X, -1), ValueError, "radius of at least 0, got -1"
    yield partial(simplex, X, np.nan), ValueError, "radius"
    yield partial(simplex, X, np.inf), ValueError, "finite radius"
    yield partial(simplex, Z, 1e300), ValueError, "radius within the range of float32, 3.4e.38, got 1e.300"
    yield partial(simplex, X, np.ones(4)), ValueError, r"broadcasts to \(2,\)"
    yield partial(simplex, X, 1j), TypeError, "real radius"
    yield partial(jax.jit(lambda x: simplex(x, -1.0)), X), ValueError, "got -1"
    said = "^expected an upper bound of at least 0, got"
    yield partial(projections.capped_simplex, X, 1.0, -0.5), ValueError, said
    yield partial(cone, X, 2, -1.0), ValueError, "rho of at least 0"
    yield partial(cone, X, 0), ValueError, "1 <= k <= 4, .* got 0"
    yield partial(topk, X, 5), ValueError, "1 <= k <= 4, .* got 5"
    yield partial(topk, X, 2.0), TypeError, "integer k"
    yield partial(topk, X, True), TypeError, "integer k"
    yield partial(jax.jit(lambda k: cone(X, k)), 2), TypeError, "integer k"
    yield partial(topk, X, 2, variant="gamma"), ValueError, "alpha, beta, got 'gamma'"
    yield partial(knapsack, X, 5.0, 0.0, 1.0), ValueError, "radius between .* got 5"
    yield partial(knapsack, X, 5.0, 0.0 * X, 1.0), ValueError, "radius between 0 and 4, got 5"
    yield partial(knapsack, X, 5.0, 0.0, 1.0, -X), ValueError, "radius between -4 and 0, got 5"
    yield partial(knapsack, X, 1.0, 2.0 * X, 1.0), ValueError, "lower <= upper, got 2 and 1"
    yield partial(knapsack, X, 1.0, 0.0, 1.0, X * np.inf), ValueError, "a finite weights, got inf"
    yield (
        partial(knapsack, X, 1.0, 0.0, 1.0, np.ones(3)),
        ValueError,
        r"or, with as many axes as x, to \(2, 4\)",
    )
    yield partial(knapsack, X, 1.0, 0.0, 1.0, np.ones((3, 4))), ValueError, r"got shape \(3, 4\)"
    tree = projections.over_tree(simplex)
    yield partial(projections.over_tree, "simplex"), TypeError, "a projection that can be called, got str"
    yield partial(tree, {}), ValueError, "a pytree of at least one entry, got none"
    yield partial(tree, {"a": np.arange(3)}), TypeError, "leaves of a floating dtype, got int64"
    yield partial(tree, [X], [X, X]), ValueError, "arguments of the structure of the pytree"
    yield partial(knapsack, X, -1.0, 0.0, 1.0), ValueError, "radius between .* got -1"
    yield partial(knapsack, X, np.array([1.0, 9]), 0.0, 1.0), ValueError, "got 9"
    yield partial(knapsack, X, 5.0, 2.0, 1.0), ValueError, "lower <= upper, got 2 and 1"


def of_kernels():
    X = np.random.default_rng(0).standard_normal((23, 4)) + 3
    points, W = kernels.points(X), np.array([0.3, 1.7])
    above = "expected a number above 0, got"
    yield partial(kernels.gram, RBF(0.0), points), ValueError, f"w: {above} 0.0"
    yield partial(kernels.gram, RBF(np.array([1.0, -2.0])), points), ValueError, f"w: {above} -2.0"
    yield (
        lambda: kernels.gram(Linear() + Scaled(np.nan, RBF(1.0)), points),
        ValueError,
        f"second.v: {above} nan",
    )
    yield partial(kernels.gram, Matern(W) + RBF(np.ones(3)), points), ValueError, "arrays of one length"
    yield partial(Matern, 1.0, 2), ValueError, r"nu: expected 0\.5, 1\.5 or 2\.5, got 2"
    other = r"expected points \[m, 4\], got shape \[23, 3\]"
    yield partial(kernels.points, X[:, 1:], like=points), ValueError, other
    M = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / 16)
    for wrong, message in [
        (M - 0.5 * np.eye(23), "expected a positive semidefinite kernel matrix, found the eigenvalue -0."),
        (M + np.triu(M), "expected a symmetric kernel matrix"),
        (M[:5], r"expected a kernel matrix \[n, n\] of the training points, got shape \[5, 23\]"),
        (np.where(M == 1, np.nan, M), "found nan in row 0, column 0"),
    ]:
        yield partial(kernels.precomputed, wrong), ValueError, message
    given, columns = kernels.precomputed(M), "with the 23 training points, got 5 columns"
    yield partial(kernels.precomputed_test, M[:, :5], given), ValueError, columns
    for kernel in (RBF(1.0), Linear()):
        for memory in (0, 1e9):
            gram, S = kernels.gram(kernel, points, memory=memory), jnp.ones((23, 1, 2), jnp.float32)
            for product in (gram.matmat, partial(gram.cross, gram.points)):
                yield partial(product, S), TypeError, "expected columns of float64, the precision of"
    yield partial(kernels.low_rank, RBF(1.0), points, 0), ValueError, "rank: expected at least 1, got 0"
    yield partial(kernels.low_rank, RBF(1.0), points, 24), ValueError, "rank: expected from 1 to 23"
    method = "method: expected one of cholesky, nystrom"
    yield partial(kernels.low_rank, RBF(1.0), points, 3, method="svd"), ValueError, method
    even = "rank: expected an even number above 0, got 3"
    yield partial(kernels.fourier, RBF(1.0), points, 3), ValueError, even
    yield partial(kernels.fourier, Linear(), points, 4), TypeError, "expected an RBF or Matern kernel"
    yield partial(kernels.fourier, RBF(1.0), given, 4), TypeError, "points by their features"
    rank_8 = kernels.low_rank(RBF(W), points, 8)
    yield partial(rank_8.at, RBF(1.0)), ValueError, "expected 2 kernels as before, got 1"

    def moved(norms2):
        own = dataclasses.replace(rank_8, points=dataclasses.replace(points, norms2=norms2))
        return jnp.sum(own.matmat(jnp.ones((23, 2, 1))))

    yield partial(jax.grad(moved), points.norms2), TypeError, "derivatives in hyperparameters only"


def of_hierarchies():
    tree = Hierarchy.from_edges([(0, 3), (0, 9), (3, 1), (3, 2), (9, 4), (4, 5)])
    for edges, error, message in [
        ([(0, 1), (2, 3), (3, 2)], ValueError, "found none to node 2: it hangs on a cycle"),
        ([(0, 1), (5, 6)], ValueError, "found none to node 6"),
        ([(0, 1), (1, 2), (0, 2)], ValueError, "expected one parent per node, node 2 has two"),
        ([(0, 1), (1, 0)], ValueError, "expected 0 as the root, found it as a child"),
        ([(0, 1), (0, -2)], ValueError, "expected node numbers from 0, got -2"),
        ([(0, 1.5)], TypeError, "expected node numbers"),
        ([], ValueError, "expected pairs"),
        ([(0, 1, 2)], ValueError, "expected pairs"),
    ]:
        yield partial(Hierarchy.from_edges, edges), error, message
    for node, found in ((99, "99, not a node of the tree"), (4, "4, an inner node"), (0, "0, the root")):
        leaves = f"y: expected leaves of the hierarchy, found {found}"
        yield partial(tree.places, [1, node], leaves_only=True), ValueError, leaves


def of_class_kernels():
    X, _, _ = data()
    gram, two = (kernels.gram(RBF(w), kernels.points(X)) for w in (1.0, np.ones(2)))
    for arguments, options, message in [
        ((gram, -1.0, 1.0, 6), {}, "v: expected a number above 0, got -1.0"),
        ((gram, np.arange(6), 1.0, 6), {}, "v: expected a number above 0, got 0.0"),
        ((gram, 1.0, -1.0, 6), {}, "sigma2: expected a number from 0, got -1.0"),
        ((gram, np.ones(5), 1.0, 6), {}, r"expected v as a number or \[6\]"),
        ((gram, 1.0, 1.0, 7), dict(hierarchy=TREE), "expected a hierarchy of 7 leaves, got 6"),
        ((gram, 1.0, 1.0, 6), dict(share=np.arange(6)), "share: expected 6 whole numbers from 0 to 0"),
        ((gram, 1.0, 1.0, 6), dict(loadings=np.ones((2, 2))), r"expected loadings \[6, functions\]"),
        ((two, 1.0, 1.0, 6), {}, "one for each of 6 functions, got 2: give share"),
    ]:
        yield partial(kernels.class_kernels, *arguments, **options), ValueError, message


def of_kernel_regression():
    X, y, weight = data()
    kernel, problem = model("flat"), kernel_multinomial.kernel_problem
    shape = r"expected targets \[40\], \[40, 6\] or \[40, 6, 1\], got \[39, 6, 1\]"
    yield partial(problem, kernel, y[1:]), ValueError, shape
    shape = r"expected weights \[40\] or \[40, lanes\], got \[39, 3\]"
    yield partial(problem, kernel, y, weight[1:]), ValueError, shape
    yield partial(problem, model("tree"), y, exact=True), ValueError, "exact solution is for flat models"
    # label sequences, and sets of classes
    lengths, A = np.array([30, 4, 6]), np.zeros((6, 6))
    for arguments, message in [
        ((y + 1, lengths, A), "y: expected classes from 0 to 5, found 6"),
        ((y, lengths[1:], A), "lengths: expected whole numbers from 1 that sum to 40"),
        ((y, lengths, A[1:]), r"transitions: expected \[6, 6\], got \[5, 6\]"),
        ((y, lengths, A, np.ones(2)), r"expected weights of sequences \[3\]"),
    ]:
        yield partial(kernel_multinomial.chain_problem, kernel, *arguments), ValueError, message
    chains, hp = kernel_multinomial.chain_problem(kernel, y, lengths, A), kernel_multinomial.HParams()
    variance = "variance: expected a number above 0, got 0"
    yield partial(kernel_multinomial.fit_chains, chains, hp, 0), ValueError, variance
    sets = np.repeat(np.arange(40)[:, None] != 5, 6, axis=1)
    for allowed, error, message in [
        (np.ones((2, 2)), TypeError, "allowed: expected a boolean matrix, got float64"),
        (sets[:, 0], ValueError, r"allowed: expected a matrix \[rows, classes\], got shape \[40\]"),
        (sets, ValueError, "allowed: expected at least one class per row, found none in row 5"),
    ]:
        yield partial(kernel_multinomial.partial_labels, allowed), error, message
    sets = kernel_multinomial.partial_labels(np.ones((2, 6), bool))
    shape = r"expected targets \[40\], \[40, 6\] or \[40, 6, 1\], got \[2, 6, 1\]"
    yield partial(problem, kernel, None, likelihood=sets), ValueError, shape
    # hyperparameters and folds
    family = kernel_multinomial.KernelModel(kernels.points(X), 6, np.arange(6))
    for arguments, message in [
        ((np.ones(3), RBF(1.0), 1.0), r"v: expected a number or \[6\], got shape \(3,\)"),
        ((1.0, RBF(np.ones(3)), 1.0), r"numbers or \[6\], got \[3\]"),
        ((1.0, Scaled(-1.0, Linear()), 1.0), "v: expected a number above 0, got -1.0"),
    ]:
        yield partial(family.hyperparameters, *arguments), ValueError, message
    most = "folds: expected from 2 to 40, the number of points, got 41"
    yield partial(kernel_multinomial.random_folds, 40, 41, 0), ValueError, most
    folds = np.arange(40) % 3
    for wrong, message in [
        (folds[1:], "expected a fold 0, 1, … .or −1. for each of 40 points"),
        (np.where(folds == 1, 2, folds), "found none in 1"),
        ((y > 0).astype(int), "two classes or more in every training part, that of fold 1 has 1"),
    ]:
        yield partial(kernel_multinomial.check_folds, wrong, y), ValueError, message


def of_linear_operators():
    yield partial(linops.make, np.ones((2, 2)), backend="bcoo"), ValueError, "backend: expected one of"
    yield partial(linops.make, np.ones(3)), ValueError, "matrix"
    X, _ = lanes_problem(57, 31)
    for backend in ("jnp", "gpu", *(["native"] if linops.native_ready() else [])):
        F, V, C = linops.make(X, backend=backend), jnp.ones((31, 2)), jnp.ones((57, 2))
        wrong = r"expected [VCD] as float\d\d \[(31|57), (lanes|2)\]"
        yield partial(F.matmat, V[1:]), ValueError, wrong
        yield partial(F.matmat, V[:, 0]), ValueError, wrong
        yield partial(F.rmatmat, C[1:]), ValueError, wrong
        yield partial(F.gram_matmat, C, V[1:]), ValueError, wrong
        yield partial(F.gram_matmat, C[1:], V), ValueError, wrong
        for column in (-1, 3):
            beyond = sp.csr_matrix((np.ones(2), np.array([0, 1]), np.array([0, 1, 2])), shape=(2, 3))
            beyond.indices[1] = column
            yield partial(linops.make, beyond, backend=backend), ValueError, "indices"


def of_lanes():
    (X, y), make = lanes_problem(), newton_cg.lane_problem
    op, squared_hinge = linops.make(X), losses.squared_hinge
    yield partial(make, op, y, losses.hinge), TypeError, "hinge has not"
    yield partial(make, op, y[1:], squared_hinge), ValueError, r"expected targets \[80, lanes\]"
    yield partial(make, op, y, squared_hinge, weight=np.ones((3, 1))), ValueError, "weight"
    for wrong, found in (("l1", "'l1'"), (L1, "<class 'xmcjax.penalties.*L1'>")):
        message = f"^penalty: expected an object of Penalty, got {found}$"
        yield partial(make, op, y, squared_hinge, penalty=wrong), TypeError, message
    for wrong in (0, 2, np.nan):
        other = y.astype(np.float32)
        other[7, 1] = wrong
        found = rf"targets of −1 and 1, found {np.float32(wrong)} for row 7 of lane 1"
        yield partial(make, op, other, squared_hinge), ValueError, found
    for shape in ((1, 1, 5), (6,), (1, 5)):
        sizes = rf"^b0: expected a number or \[5\], got an array of shape \[{', '.join(map(str, shape))}\]$"
        problem = make(op, y, squared_hinge)
        yield partial(newton_cg.init, problem, b0=np.zeros(shape)), ValueError, sizes


def of_multiclass_svms():
    eye, y = np.eye(3, 2), [0, 1, 2]
    for change, error, message in [
        (dict(formulation="wwx"), ValueError, "formulation: expected one of ww, llw, cs, .*, got 'wwx'$"),
        (dict(C=0.0), ValueError, "^C: expected a finite number above 0, got 0.0$"),
        (dict(C=np.nan), ValueError, "^C: expected a finite number above 0, got nan$"),
        (
            dict(C=1e-60, X=eye.astype("f4")),
            ValueError,
            r"^C: expected .* 1\.18e-38 to 3\.4e\+38, .* got 1e-60$",
        ),
        (dict(X=1j * eye), TypeError, "^X: .* of real numbers, found values of type complex128$"),
        (dict(X=eye + np.nan), ValueError, "^expected finite features, found NaN in row 0, column 0 of X$"),
        (dict(X=np.ones(3)), ValueError, r"^expected a matrix \[n, d\], got 1 dimensions$"),
        (dict(y=[0, 1]), ValueError, r"^expected 3 classes, one per row of X, got an array of shape \(2,\)$"),
        (dict(y=[0.0, 1.0, 2.0]), ValueError, "^expected classes as whole numbers, got float64$"),
        (dict(y=[0, -1, -2]), ValueError, "^expected classes 0 … m−1, found -1 in row 1$"),
        (dict(y=[0, 0, 0]), ValueError, "^expected at least two classes, found class 0 alone$"),
        (dict(y=[0, 3, 1]), ValueError, "^expected classes 0 … 3, found no row of class 2$"),
        (dict(y=[2**62, 3, 1]), ValueError, f"^expected classes 0 … {2**62}, found no row of class 0$"),
        (dict(tol=np.inf), ValueError, "^tol: expected a finite number above 0, got inf$"),
        (dict(max_epochs=0), ValueError, "^max_epochs: expected at least 1, got 0$"),
        (dict(threads=0), ValueError, "^threads: expected at least 1, got 0$"),
        (
            dict(C=[1.0, 2.0]),
            ValueError,
            r"^C: expected a number or one for each of 3 rows, got shape",
        ),
        (
            dict(C=[1.0, 0.0, 2.0]),
            ValueError,
            "^C: expected finite numbers above 0, found 0.0 for row 1;",
        ),
        (dict(C=[1.0, 1.0, np.inf]), ValueError, "^C: expected finite numbers above 0, found inf for row 2;"),
        (dict(C=[1.0, 1e-320, 2.0]), ValueError, r"^C: expected numbers from 2\.23e-308 to .*, got 1e-320$"),
        (dict(C=["a", "b", "c"]), TypeError, "^C: expected an array of real numbers, found"),
        (dict(classes=2), ValueError, "^expected classes 0 … 1, found 2$"),
        (dict(classes=1), ValueError, "^classes: expected at least 2, got 1$"),
        (dict(classes=3.0), TypeError, "^classes: expected a whole number of at least 2, got 3.0$"),
    ]:
        yield partial(multiclass_dual.run, **dict(X=eye, y=y) | change), error, message
    for form in (np.asarray, sp.csr_matrix):
        X = form(np.array([[1.0, 0], [1e30, 1], [0, 1]], np.float32))
        large = "^expected rows whose squared norm is a finite float32, which that of row 1 is not$"
        yield partial(multiclass_dual.multiclass_problem, X, y), ValueError, large


def of_topk_svms():
    X, y = svm_problem(n=40, d=7, m=5)
    range_of_k = "k from 1 to 4, the number of classes less one, got"
    for change, error, message in [
        (dict(k=0), ValueError, f"{range_of_k} 0"),
        (dict(k=5), ValueError, f"{range_of_k} 5"),
        (dict(k=1.5), TypeError, "k as whole numbers, got float64"),
        (dict(variant="gamma"), ValueError, "variant: expected one of alpha, beta, entropy, got 'gamma'"),
        (dict(C=0.0), ValueError, "C above 0"),
        (dict(C=np.inf), ValueError, "C above 0"),
        (dict(C=[1.0, 2.0], k=[1, 2, 3]), ValueError, "same lanes, got 2 and 3"),
        (dict(C=[[1.0]]), ValueError, r"a number or \[lanes\]"),
        (dict(C=[]), ValueError, "same lanes, got 0 and 1"),
        (dict(C=1e-320), ValueError, r"bounds of 0 or from 2.23e-308 .* range of float64, got 1e-320"),
        (dict(weight=np.ones(7)), ValueError, r"^weight: expected \[40\], one for each row, got \[7\]$"),
        (
            dict(weight=-np.ones(40)),
            ValueError,
            "^weight: expected finite numbers of at least 0",
        ),
        (dict(weight=["a"] * 40), TypeError, "^weight: expected an array of real numbers"),
        (dict(mask=np.ones(7, bool)), ValueError, r"mask \[40\] or \[lanes, 40\], got \[7\]"),
        (dict(mask=np.arange(40)), TypeError, "boolean mask, got int64"),
        (
            dict(mask=np.ones((2, 40), bool), C=np.ones(3)),
            ValueError,
            "C and mask for the same lanes, got 3 and 2",
        ),
        (
            dict(gamma=-1.0),
            ValueError,
            r"gamma: expected finite numbers of at least 0, one or \[lanes\], got",
        ),
        (
            dict(gamma=np.nan),
            ValueError,
            r"gamma: expected finite numbers of at least 0, one or \[lanes\], got",
        ),
        (
            dict(variant="entropy", gamma=0.5),
            ValueError,
            "gamma: expected 0 for topk_entropy, which is smooth",
        ),
        (dict(gamma="soft"), TypeError, "^gamma: expected an array of real numbers"),
        (
            dict(C=np.ones(3), gamma=np.ones(2)),
            ValueError,
            "gamma: expected one number or one for each of 3 lanes, got 2",
        ),
        (dict(gamma=1e-320), ValueError, "expected gamma of 0 or from 2.23e-308 to 1.8e.308, the range of"),
        (dict(classes=5.7), TypeError, "number of classes as a whole number, got 5.7"),
        (dict(classes=3), ValueError, r"classes from 0 to 2, found \d for row \d"),
        (dict(y=[[1, 2], [3]]), ValueError, f"^y: {RAGGED}"),
        (dict(k=[[1, 2], [3]]), ValueError, f"^k: {RAGGED}"),
        (dict(mask=[[True], [True, False]]), ValueError, f"^mask: {RAGGED}"),
        (dict(y=np.zeros(40)), TypeError, "classes as whole numbers, got float64"),
        (dict(y=np.zeros(40, int)), ValueError, "at least two classes, got 1"),
        (dict(y=np.zeros(39, int)), ValueError, r"class for each of 40 rows, got \[39\]"),
        (dict(y=np.full(40, -1), classes=4), ValueError, "found -1 for row 0"),
        (dict(X=np.full((40, 2), 1e200)), ValueError, "norm is a finite float64, which that of row 0 is not"),
        (dict(backend="gpu"), ValueError, "backend of auto, native, jnp, got 'gpu'"),
    ]:
        given = dict(X=X, y=y) | change
        op, labels = linops.make(given.pop("X")), given.pop("y")
        yield partial(topk_sdca.problem, op, labels, **given), error, message
    for tol, error in ((None, TypeError), (np.nan, ValueError), (-1.0, ValueError)):
        yield partial(topk_sdca.solve, X, y, tol=tol), error, f"^tol: expected a number.*, got {tol}$"
    yield partial(topk_sdca.solve, X, y, gamma=None), TypeError, "^gamma: expected a number"
    for G, error, message in (
        (jnp.asarray(X), ValueError, r"square matrix of inner products, got \[40, 7\]"),
        (jnp.ones(40), ValueError, r"square matrix of inner products, got \[40\]"),
        (jnp.eye(40, dtype=int), TypeError, "inner products of float32 or float64, got int64"),
    ):
        yield partial(topk_sdca.problem, topk_sdca.Gram(G), y), error, message
    whole = "as a whole number of at least 1, got"
    for options in (dict(block=0), dict(block=2.5), dict(sweeps=0), dict(threads=None)):
        ((name, value),) = options.items()
        yield partial(topk_sdca.HParams, **options), ValueError, f"{name} {whole} {value}"
    yield (
        lambda: topk_sdca.HParams(max_epochs=2**31),
        ValueError,
        "max_epochs of at most 2147483647, got 2147483648",
    )


PARTS = {name.removeprefix("of_"): rows for name, rows in list(globals().items()) if name.startswith("of_")}


@pytest.mark.parametrize("part", PARTS)
def test_what_is_wrong_is_one_sentence(part):
    count = 0
    for call, error, message in PARTS[part]():
        with pytest.raises(error, match=message) as refused:
            call()
            pytest.fail(f"expected {message!r}, and nothing was refused")
        assert "\n" not in str(refused.value)
        count += 1
    assert count > 4
