"""Small models of kernel multinomial regression: all of one size, so as to compile once."""

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax import kernels
from xmcjax._hierarchy import Hierarchy
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


def dense_newton(K, y, weight):
    """α with ‖α + s (π − y)‖ = 0, by full Newton steps on all N C unknowns."""
    Y, alpha = np.eye(C)[y], np.zeros(N * C)

    def parts(alpha):
        u = (K @ alpha).reshape(N, C)
        top = u.max(1, keepdims=True)
        e = np.exp(u - top)
        value = weight @ (np.log(e.sum(1)) + top[:, 0] - (Y * u).sum(1)) + alpha @ K @ alpha / 2
        return e / e.sum(1, keepdims=True), value

    for _ in range(50):
        pi, value = parts(alpha)
        r = alpha + (weight[:, None] * (pi - Y)).ravel()
        if np.abs(r).max() < 1e-13:
            break
        W = np.zeros((N, C, N, C))
        for i in range(N):
            W[i, :, i] = weight[i] * (np.diag(pi[i]) - np.outer(pi[i], pi[i]))
        step = np.linalg.solve(np.eye(N * C) + W.reshape(N * C, N * C) @ K, -r)
        t = 1.0
        while parts(alpha + t * step)[1] > value + 1e-12 * abs(value):
            t /= 2
        alpha = alpha + t * step
    return alpha.reshape(N, C)
