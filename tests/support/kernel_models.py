"""Small models of kernel multinomial regression: all of one size, so as to compile once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from tests.support.internals import Hierarchy
from xmcjax import kernels
from xmcjax.kernels import RBF, Linear, Matern, Scaled
from xmcjax.solvers import kernel_multinomial

N, D, C, LANES = 40, 5, 6, 3
# leaves 1 … 6 on three levels; 13 and 5 are a chain
EDGES = [(0, 11), (0, 12), (0, 13), (11, 1), (11, 2), (12, 14), (14, 3), (14, 4), (13, 5), (0, 6)]
TREE = Hierarchy.from_edges(EDGES)
TIGHT = kernel_multinomial.HParams(tolerance=1e-12)
FOLDS = np.arange(N) % LANES


def data(dtype=np.float64):
    """Points, classes, and weights of lanes: two folds and one of uneven weights."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((N, D)), rng.integers(0, C, N)
    X[:, 0] += y / 2
    weight = np.stack([FOLDS != 0, FOLDS != 1, rng.random(N) + 0.1], axis=1)
    return X.astype(dtype), y, weight.astype(dtype)


def model(name, dtype=np.float64, scale=1.0):
    """K̃ of data()."""
    X, _, _ = data(dtype)
    points = kernels.points(X)
    nodes = scale * np.linspace(1, 9, TREE.n_nodes)
    if name == "flat":  # a kernel for each class
        gram = kernels.gram(RBF(np.linspace(0.3, 3, C)), points)
        return kernels.class_kernels(gram, scale * np.arange(3.0, 3 + C), 0.7, C)
    if name == "tree":  # one for all nodes
        return kernels.class_kernels(kernels.gram(RBF(1.0), points), nodes, 0.7, C, hierarchy=TREE)
    if name == "shared":  # three for ten nodes
        gram = kernels.gram(RBF(np.array([0.1, 1.0, 4.0])), points)
        share = np.arange(TREE.n_nodes) % 3
        return kernels.class_kernels(gram, nodes, 0.7, C, hierarchy=TREE, share=share)
    if name == "tiles":  # a tree without stored matrices
        gram = kernels.gram(Scaled(0.7, Linear()) + Matern(0.5), points, memory=0)
        return kernels.class_kernels(gram, nodes, 0.7, C, hierarchy=TREE)
    if name == "linear":  # a tree by way of the features
        return kernels.class_kernels(kernels.gram(Linear(), points), nodes / 9, 0.7, C, hierarchy=TREE)
    if name == "low rank":  # in a tree
        base = kernels.low_rank(RBF(1.0), points, 10)
        return kernels.class_kernels(base, nodes, 0.7, C, hierarchy=TREE)
    # two factors for six classes
    gram = kernels.gram(RBF(np.array([0.5, 1.5])), points)
    B = np.random.default_rng(1).standard_normal((C, 2))
    return kernels.class_kernels(gram, np.array([2.0, 3.0]), 0.7, C, loadings=B)


def dense(kernel):
    """K̃ as a matrix over (i, c)."""
    unit = jnp.eye(N * C, dtype=kernel.dtype).reshape(N, C, N * C)
    return np.asarray(jax.jit(lambda kernel, S: kernel.matmat(S))(kernel, unit)).reshape(N * C, N * C)


@functools.cache
def sets() -> np.ndarray:
    """Of a third of the rows the node above the class is known, of one no more than the root."""
    _, y, _ = data()
    places = np.array(TREE.leaves)[y]
    up = np.arange(N) % 3 == 0
    places[up] = np.where(TREE.parent[places[up]] >= 0, TREE.parent[places[up]], places[up])
    allowed = TREE.members()[places]
    allowed[7] = True
    return allowed
