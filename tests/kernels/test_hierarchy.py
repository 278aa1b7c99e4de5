"""Trees of classes, and the products with Φ and Φᵀ, against Φ written out."""

import jax
import numpy as np
import pytest

from tests.support.internals import Hierarchy
from xmcjax.kernels import Loadings, tree

EDGES = [(0, 3), (0, 9), (3, 1), (3, 2), (9, 4), (4, 5), (5, 6), (5, 7), (0, 8), (9, 10), (10, 11)]


def random_edges(n, seed):
    rng = np.random.default_rng(seed)
    number = rng.permutation(n - 1) + 1
    parents = [int(rng.integers(max(0, k - 12), k)) for k in range(1, n)]
    return [(0 if p == 0 else number[p - 1], number[k]) for k, p in enumerate(parents)]


def test_order_and_relations():
    tree = Hierarchy.from_edges(EDGES)
    assert (tree.n_nodes, tree.n_classes) == (11, 6)
    assert list(tree.nodes[tree.leaves]) == [1, 2, 6, 7, 8, 11]
    edges = {(0 if p < 0 else tree.nodes[p], child) for p, child in zip(tree.parent, tree.nodes, strict=True)}
    assert edges == set(EDGES)
    depth = dict(zip(tree.nodes, tree.depth, strict=True))
    assert (depth[8], depth[4], depth[5], depth[7]) == (1, 2, 3, 4)
    top = dict(zip(tree.nodes, tree.nodes[tree.above(1)], strict=True))
    assert (top[8], top[3], top[1], top[7], top[11]) == (8, 3, 3, 9, 9)
    below_4 = tree.members()[list(tree.nodes).index(4)]
    assert list(tree.nodes[tree.leaves][below_4]) == [6, 7]
    assert list(tree.places([7, 1, 11], leaves_only=True)) == [3, 0, 5]
    assert list(tree.nodes[tree.places([9, 1], leaves_only=False)]) == [9, 1]


def test_edges_are_a_tree():
    s, made = np.eye(6)[:, :, None], tree(Hierarchy.from_edges(EDGES))
    np.testing.assert_array_equal(tree(EDGES).transpose(s), made.transpose(s))
    with pytest.raises(ValueError, match=r"^hierarchy: expected one parent per node, node 1 has two$"):
        tree([(0, 1), (0, 2), (2, 1)])


def test_merged_chains_are_the_same_model():
    tree = Hierarchy.from_edges(EDGES)
    merged, place = tree.merged()
    assert merged.n_nodes == 9  # 4 went to 5, and 10 to 11
    assert (merged.nodes[merged.leaves] == tree.nodes[tree.leaves]).all()
    v = np.arange(1.0, 12)
    together = np.bincount(place, v, minlength=9)
    whole, small = tree.members().T, merged.members().T
    np.testing.assert_array_equal((whole * v) @ whole.T, (small * together) @ small.T)
    chain = Hierarchy.from_edges([(0, 1), (1, 2), (2, 3), (2, 4), (4, 5)])
    assert sorted(chain.merged()[0].nodes) == [2, 3, 5]


@pytest.mark.parametrize(
    "edges",
    [EDGES, [(0, 2), (0, 1)], pytest.param(random_edges(40, 1), marks=pytest.mark.slow)],
    ids=["mixed", "star", "random"],
)
@pytest.mark.parametrize(("lanes", "native"), [(2, True), (1, True), (2, False)])
def test_products_are_those_of_the_matrix(edges, lanes, native, monkeypatch):
    if not native:
        monkeypatch.setattr("xmcjax.native.available", lambda: False)
    hierarchy = Hierarchy.from_edges(edges)
    Phi = hierarchy.members().T.astype(float)
    rng = np.random.default_rng(0)
    rows = 21 + (1 << 17) // ((hierarchy.n_nodes + hierarchy.n_classes) * lanes)  # several pieces of work
    x = rng.standard_normal((rows, hierarchy.n_nodes, lanes))
    s, v = rng.standard_normal((rows, hierarchy.n_classes, lanes)), rng.random(hierarchy.n_nodes)

    @jax.jit
    def products(mixing, x, s, v):
        up, pull_up = jax.vjp(mixing.apply, x)
        down, pull_down = jax.vjp(mixing.transpose, s)
        both, pull_both = jax.vjp(mixing.mixed, v, s)
        return up, down, pull_up(s)[0], pull_down(x)[0], both, *pull_both(up)

    for mixing in (tree(hierarchy), Loadings(Phi)):
        up, down, transposed_up, transposed_down, both, of_v, of_s = products(mixing, x, s, v)
        mixed = (Phi * v) @ Phi.T
        np.testing.assert_allclose(both, np.einsum("ce,neb->ncb", mixed, s), atol=1e-12)
        np.testing.assert_allclose(of_s, np.einsum("ce,neb->ncb", mixed, up), atol=1e-12)
        below = np.einsum("cp,ncb->npb", Phi, s) * np.einsum("cp,ncb->npb", Phi, np.asarray(up))
        np.testing.assert_allclose(of_v, below.sum(axis=(0, 2)), rtol=1e-10)
        np.testing.assert_allclose(up, np.einsum("cp,npb->ncb", Phi, x), atol=1e-13)
        np.testing.assert_allclose(down, np.einsum("cp,ncb->npb", Phi, s), atol=1e-13)
        np.testing.assert_allclose(transposed_up, down, atol=1e-13)
        np.testing.assert_allclose(transposed_down, up, atol=1e-13)


def test_naics(data_folder):
    edges = np.loadtxt(data_folder / "naics2017" / "cat_hier.txt", dtype=int)
    hierarchy = Hierarchy.from_edges(edges)
    assert (hierarchy.n_nodes, hierarchy.n_classes) == (2192, 1055)
    assert list(hierarchy.nodes[hierarchy.leaves]) == list(range(1, 1056))
    assert hierarchy.merged()[0].n_nodes == 2192 - 697
