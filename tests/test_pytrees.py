"""Classes that may stand in one place of a problem have structures of their own."""

import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xmcjax
from xmcjax import kernels, linops
from xmcjax.kernels import RBF, Matern, Scaled
from xmcjax.solvers import instance_dual
from xmcjax.solvers.kernel_multinomial import Chains, OneVsRest, PartialLabels, Softmax

ARRAY = np.ones((3, 2, 1))
GROUPS = {
    "likelihoods": [Softmax(ARRAY), OneVsRest(ARRAY), Chains(ARRAY, 0, 0), PartialLabels(ARRAY, 0, 0)],
    "kernels": [RBF(1.0) + RBF(2.0), RBF(1.0) * RBF(2.0), Scaled(1.0, RBF(1.0)), RBF(1.0), Matern(1.0)],
    "features": [linops.make(ARRAY[:, :, 0]), instance_dual.Gram(ARRAY[:, :, 0])],
    "mixings": [kernels.Independent(), kernels.Loadings(ARRAY)],
}
SOURCES = Path(xmcjax.__file__).parent.rglob("*.py")


def test_nothing_is_registered_otherwise():
    users = {path.name for path in SOURCES if "register_dataclass" in path.read_text()}
    assert users == {"_pytrees.py"}


@pytest.mark.parametrize("group", GROUPS)
def test_structures_differ(group):
    for one, other in itertools.combinations(GROUPS[group], 2):
        assert jax.tree.structure(one) != jax.tree.structure(other)


def test_names_parts_and_other_leaves():
    kernel = Scaled(2.0, Matern(jnp.ones(2), nu=0.5))
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(kernel)[0]]
    assert names == [".v", ".kernel.w"]
    leaves, form = jax.tree.flatten(kernel)
    again = jax.tree.unflatten(form, leaves)
    assert again.kernel.nu == 0.5 and all(a is b for a, b in zip(jax.tree.leaves(again), leaves, strict=True))
    assert jax.tree.unflatten(form, [None, "text"]) == Scaled(None, Matern("text", nu=0.5))
    assert jax.tree.structure(Matern(1.0, nu=0.5)) != jax.tree.structure(Matern(1.0, nu=1.5))
