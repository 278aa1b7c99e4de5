"""Programs for a described GPU of what `test_gpu_programs.py` leaves out: losses, kernels, penalties."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import gpu_targets
from tests.support.gpu_programs import CUDA, DENSE, B, D, N, checked, features
from tests.support.internals import device_blocks
from xmcjax import kernels, losses, projections
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.penalties import PENALTIES
from xmcjax.solvers import kernel_multinomial, newton_cg

pytestmark = pytest.mark.usefixtures("a_gpu")


def ones(*shape, dtype=jnp.float32):
    return jnp.ones(shape, dtype)


# A row of classes or of labels, and what each loss takes beside scores [rows, classes].
OF_CLASSES = {
    "crammer_singer": {},
    "weston_watkins": {},
    "lee_lin_wahba": {},
    "softmax_cross_entropy": {},
    "sparsemax": {},
    "topk_hinge": {"k": 3},
    "smooth_topk_hinge": {"k": 3},
    "topk_entropy": {"k": 3},
    "truncated_topk_entropy": {"k": 3},
    "ordered_hinge": {"beta": np.float32([0.5, 0.3])},
}
OF_LABELS = {"multilabel_hinge": {}, "multilabel_cross_entropy": {}, "one_vs_all": {"loss": losses.logistic}}


@pytest.mark.parametrize("name", [*OF_CLASSES, *OF_LABELS])
def test_losses_with_their_gradients(name):
    loss = functools.partial(getattr(losses, name), **(OF_CLASSES | OF_LABELS)[name])
    y = ones(300, 20, dtype=jnp.int32) if name in OF_LABELS else jnp.zeros(300, jnp.int32)
    work = jax.jit(lambda s: jax.value_and_grad(lambda s: loss(s, y).sum())(s))
    checked(work, "h200", ones(300, 20))


BOUNDS = {
    "knapsack": lambda x: projections.knapsack(x, 1.0, -0.1, 0.4, jnp.abs(x) + 1),
    "topk_cone": lambda x: projections.topk_cone(x, 2),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_projections_onto_weighted_sets(name):
    text = checked(jax.jit(lambda x: jax.vjp(BOUNDS[name], x)[1](x)), "h200", ones(300, 20))
    assert gpu_targets.atomics(text) == 0


@pytest.mark.parametrize("penalty", [name for name in PENALTIES if name != "l2"])
@pytest.mark.parametrize("kind", [DENSE, CUDA])
def test_steps_of_one_vs_all_with_other_penalties(kind, penalty):
    y = np.where(np.random.default_rng(1).random((N, B)) < 0.1, 1, -1)
    options = dict(tolerance=1e-3, penalty=PENALTIES[penalty]())
    problem = newton_cg.lane_problem(features(kind), y, MARGIN_LOSSES["logistic"], **options)
    hp = newton_cg.HParams(l2=np.float32(1.0))
    text = checked(newton_cg.advance, "h200", problem, hp, newton_cg.init(problem))
    assert gpu_targets.atomics(text) == 0


def test_weights_that_leave_a_device():
    """The weights of lanes that have ended, and the largest of them."""
    rule = device_blocks._Rule(np.float32(0.01), np.float32(0.0025))
    checked(device_blocks._columns, "h200", ones(D, B), ones(B), ones(B), jnp.arange(8))
    of_lanes = ones(8, D), ones(8), jnp.arange(8)
    text = checked(device_blocks._largest, "h200", of_lanes, rule, np.ones(8, np.float32), ones(D), room=512)
    assert gpu_targets.atomics(text) == 0


def points(n=64, d=40):
    rng = np.random.default_rng(0)
    return kernels.points(rng.normal(size=(n, d)).astype(np.float32))


FORMS = {
    "linear": lambda: kernels.gram(kernels.Linear(), points(90, 10)),
    "tiles": lambda: kernels.gram(kernels.RBF(0.5), points(), memory=0),
    "matern": lambda: kernels.gram(kernels.Matern(0.5), points()),
    "low rank": lambda: kernels.low_rank(kernels.RBF(0.5), points(), 8),
    "fourier": lambda: kernels.fourier(kernels.RBF(0.5), points(), 8),
}


@pytest.mark.parametrize("form", FORMS)
def test_products_with_kernel_matrices(form):
    """Of the training points, and of others with them."""
    gram = FORMS[form]()
    S = ones(gram.n, 1, 5)
    others = points(9, gram.points.op.shape[1])
    text = checked(jax.jit(lambda gram, S: gram.matmat(S)), "h200", gram, S)
    assert gpu_targets.atomics(text) == 0
    checked(jax.jit(lambda gram, others, S: gram.cross(others, S)), "h200", gram, others, S)


TREE = np.array([[0, 1], [0, 2], [1, 3], [1, 4], [2, 5], [2, 6]])


@pytest.mark.parametrize("hierarchy", [None, TREE], ids=["flat", "tree"])
def test_the_criterion_of_a_search(hierarchy):
    """A fit, and Ψ with its gradient."""
    y, folds = np.arange(64) % 4, np.arange(64) % 3
    family = kernels.class_kernels(kernels.gram(kernels.RBF(0.5), points()), 1.0, 0.1, 4, hierarchy=hierarchy)
    train = kernel_multinomial.fold_weights(folds, 3, "float32")
    problem = kernel_multinomial.kernel_problem(family, y, train)
    hp = kernel_multinomial.HParams()

    def psi(problem, train):
        found = kernel_multinomial.cv_criterion(problem, 1 - train, hp)
        return found.value, found.gradient

    text = checked(jax.jit(psi), "h200", problem, train)
    assert "while" in text
