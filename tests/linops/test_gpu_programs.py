"""Every entry point compiles for GPUs that are only described, and what the machine's program holds.

Run with ``JAX_DISABLE_MOST_OPTIMIZATIONS=0``, the programs are those of users, and their bytes are counted.
"""

from __future__ import annotations

import dataclasses
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from experiments.bench.gpu_kit._training import direction_bytes
from tests.support import cuda_builds, gpu_targets
from tests.support.gpu_products import PRODUCTS
from tests.support.gpu_programs import CUDA, DENSE, B, D, N, checked, features
from tests.support.internals import block_scores, device_blocks, device_memory, device_weights, devices
from tests.support.solvers import CASES
from xmcjax import kernels, linops, losses, projections
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.solvers import SOLVERS, admm, multinomial, newton_cg

OPTIMISED = os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS") == "0"
pytestmark = pytest.mark.usefixtures("a_gpu")


@pytest.fixture(params=["h200", "t4"])
def gpu(request):
    return request.param


# Methods of multinomial regression whose steps JAX compiles.
COMPILED = [method for method in multinomial.METHODS if method not in ("dual", "block_newton")]


@pytest.mark.parametrize("kind", [DENSE, "jnp"])
@pytest.mark.parametrize("name", ["matmat", "rmatmat", "gram_matmat"])
def test_products(name, kind, gpu):
    work = PRODUCTS[name]
    F, C, V = features(kind), jnp.ones((N, B), jnp.float32), jnp.ones((D, B), jnp.float32)
    text = checked(jax.jit(work), gpu, F, C, V)
    if kind == DENSE:
        assert gpu_targets.atomics(text) == 0
        # X once for each product, and each array of [n, B] and [d, B] that is read or written
        once = 4 * {"matmat": N * D, "rmatmat": N * D, "gram_matmat": 2 * N * D}[name] + 4 * B * (N + D)
        once += 4 * B * 2 * N * (name == "gram_matmat")
        if OPTIMISED:  # and what XLA adds up of a product in parts
            assert gpu_targets.moved(text) <= 4 * once
    else:  # the sums of plain JAX have no order: the page of the GPU says so
        assert gpu_targets.atomics(text) > 0


@pytest.mark.parametrize("name", ["matmat", "rmatmat", "gram_matmat"])
def test_products_by_kernels_in_cuda(name, gpu):
    """One call, of arrays in the order of rows, without copies of X, C and V; no sum without an order."""
    F, C, V = features(CUDA), jnp.ones((N, B), jnp.float32), jnp.ones((D, B), jnp.float32)
    assert isinstance(F, linops.Grouped)
    text = checked(jax.jit(PRODUCTS[name]), gpu, F, C, V)
    assert gpu_targets.custom_calls(text) == [f"xmcjax_cuda_{name}"]
    call = next(line for line in text.splitlines() if f'custom_call_target="xmcjax_cuda_{name}"' in line)
    shapes = {"matmat": (V,), "rmatmat": (C,), "gram_matmat": (C, V)}[name]
    constraints = call.split("operand_layout_constraints={")[1].split("}, custom_call")[0]
    for a in (F.rows.value if name != "rmatmat" else F.columns.value, *shapes):
        assert f"f32[{a.shape[0]},{a.shape[1]}]{{1,0}}" in constraints
    result = call.split(" custom-call(")[0]
    assert f"f32[{N if name == 'matmat' else D},{B}]{{1,0}}" in result
    assert gpu_targets.atomics(text) == 0 and " copy(" not in text and " pad(" not in text


@pytest.mark.parametrize("kind", [DENSE, "jnp", CUDA])
def test_a_step_of_one_vs_all(kind, gpu):
    y = np.where(np.random.default_rng(1).random((N, B)) < 0.1, 1, -1)
    problem = newton_cg.lane_problem(features(kind), y, MARGIN_LOSSES["squared_hinge"], tolerance=1e-3)
    hp = newton_cg.HParams(l2=np.float32(1.0))
    text = checked(newton_cg.advance, gpu, problem, hp, newton_cg.init(problem))
    if kind != "jnp":
        assert gpu_targets.atomics(text) == 0
    if kind == CUDA:
        # X δ, the search, the gradient and Xᵀ D 1, CG, and for a preconditioner the diagonal
        calls = gpu_targets.custom_calls(text)
        once = ("matmat", "plane_sums", "cg_product", "cg_residual", "cg_direction")
        assert [calls.count(f"xmcjax_cuda_{name}") for name in once] == [1] * 5
        assert calls.count("xmcjax_cuda_rmatmat") == 3


def of_products(dense: bool) -> int:
    """Bytes that Xᵀ(D ∘ (X V)) moves at most: dense, with what XLA adds up of products in parts."""
    arrays = 2 * B * (N + D) + 2 * B * N  # V and the result, D, the scores written and read
    return 4 * (4 * (2 * N * D + arrays) if dense else 16 * N * D // 20 * 2 + arrays)


def solve(op, curvature, gradient, l2, preconditioner):
    """Newton directions; the numbers of the method are traced, as in training."""
    lanes, zero = jnp.ones(curvature.shape[1], bool), jnp.zeros(curvature.shape[1], jnp.float32)
    hp = newton_cg.HParams(preconditioner=preconditioner)
    numbers = l2, jnp.float32(0.5), lanes, lanes, zero
    return newton_cg.newton_direction(op, curvature, gradient, zero, *numbers, hp)


def test_a_step_of_cg():
    """Beside the products with dense features, it reads and writes at most 20 arrays of [d, B]."""
    arrays = jnp.ones((N, B), jnp.float32), jnp.ones((D, B), jnp.float32), jnp.float32(1), jnp.float32(0)
    text = checked(jax.jit(solve), "h200", features(DENSE), *arrays)
    assert gpu_targets.atomics(text) == 0
    if OPTIMISED:
        moved = gpu_targets.moved(text, loops=True)
        assert 8 * 4 * D * B < moved <= of_products(True) + 20 * 4 * D * B


@pytest.mark.parametrize("size", [(N, D, B), (490_449, 135_909, 512)], ids=["small", "amazon_670k"])
def test_a_step_of_cg_by_kernels_in_cuda(size, gpu):
    """Three calls, between which nothing of the size of a vector is read or written, not even a copy."""
    n, d, lanes = size
    op = gpu_targets.enlarged(features(CUDA), (N, D), (n, d), 75 * n)
    arrays = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((n, lanes), (d, lanes), (), ()))
    text = checked(jax.jit(solve), gpu, op, *arrays)
    assert gpu_targets.atomics(text) == 0
    if not OPTIMISED:
        return
    vector = 4 * d * lanes
    others = gpu_targets.kernels(text, loops=True)
    calls = {name: others.pop(f"xmcjax_cuda_cg_{name}") for name in ("product", "residual", "direction")}
    assert sum(others.values()) < 0.01 * vector + 200 * lanes
    # r, p and the product are read and r is written; x, p and r are read and x and p are written. Beside that
    # M⁻¹, which is not read without a preconditioner, and the parts of sums
    assert 5 <= calls["residual"] / vector <= 5.07
    assert 6 <= calls["direction"] / vector <= 6.07
    # X and Xᵀ, p and the product; D and the scores, of which active rows are read; bits, words and the list
    of_rows = 4 * n * lanes * (2 + 2 / 32) + 4 * n + 2 * 4 * n * lanes / 32
    assert calls["product"] <= device_memory.held(op) + 2 * vector + 1.05 * of_rows


@pytest.mark.skipif(not OPTIMISED, reason="counts bytes of the programs of users")
@pytest.mark.parametrize(
    ("n", "d", "lanes", "step", "beside"), [(N, D, B, 1.04, 2.3), (4096, 2048, 512, 1.02, 2.4)]
)
def test_what_the_kit_counts_of_cg(n, d, lanes, step, beside):
    """A step as XLA counts it, where the list of active rows and the groups of X add some hundredths.

    Before and after the steps the program moves more than each array once.
    """
    op = features(CUDA, n, d)
    arrays = (
        jnp.ones((n, lanes), jnp.float32),
        jnp.ones((d, lanes), jnp.float32),
        jnp.float32(1),
        jnp.float32(0),
    )
    text = checked(jax.jit(solve), "h200", op, *arrays)
    assert isinstance(op, linops.Grouped)
    X, rows = op.to_scipy(), np.ones((n, lanes), bool)
    one, two = (direction_bytes(X, rows, np.full(lanes, steps), steps)[0] for steps in (1, 2))
    whole, of_steps = gpu_targets.moved(text), gpu_targets.moved(text, loops=True)
    # M⁻¹ is an operand of two calls and is not read
    assert (of_steps - 2 * 4 * d * lanes) / (two - one) == pytest.approx(step, abs=0.005)
    assert (whole - of_steps) / (2 * one - two) == pytest.approx(beside, abs=0.1)


def stored_block(labels: int, entries: int) -> block_scores.StoredBlock:
    """Sparse weights of a model, as they are sent."""
    value, feature = jnp.ones(entries, jnp.float32), jnp.ones(entries, jnp.int32)
    indptr, bias = jnp.ones(labels + 1, jnp.int32), jnp.ones(labels, jnp.float32)
    return block_scores.StoredBlock(value, feature, indptr, bias, D)


@pytest.mark.parametrize("sent", ["dense", "stored"])
@pytest.mark.parametrize("kind", [DENSE, CUDA])
def test_a_block_of_labels_of_a_prediction(kind, sent, gpu):
    """X, the weights, and the scores a few times: no sorting of all of them. What is sent as it is stored is
    made dense in a pass more, and looked through a few times.
    """
    n, labels, entries = 4096, device_weights.dense_labels(D, 1 << 16, 4), 1 << 15
    X = sp.csr_matrix(sp.random(n, D, 0.05, dtype=np.float32, random_state=np.random.default_rng(0)))
    if kind == CUDA:
        cuda_builds.register_for_gpus()
        (op,) = linops.scored_rows([X], n)
    else:
        op = linops.make(X.toarray())
    best = jnp.ones((n, 5), jnp.float32), jnp.ones((n, 5), jnp.int32)
    if sent == "dense":
        block = block_scores.DenseBlock(jnp.ones((D, labels), jnp.float32), jnp.ones(labels, jnp.float32))
    else:
        block = block_scores.DensePart(stored_block(4 * labels, 4 * entries), np.int32(0), labels, entries)
    text = checked(block_scores.merge_topk, gpu, op, block, np.int32(0), *best, k=5)
    assert gpu_targets.atomics(text) == 0
    calls = gpu_targets.custom_calls(text)
    assert calls == (["xmcjax_cuda_matmat"] if kind == CUDA else [])
    if OPTIMISED:
        assert "__gpu$TopK" in text
        most = 4 * (n * D + D * labels + 5 * n * labels)
        # zeros, and what is put into them, read and written by its operands; the search for its labels
        most += (sent == "stored") * 4 * (3 * D * labels + 40 * entries)
        assert gpu_targets.moved(text) <= most


@pytest.mark.parametrize("kind", ["jnp", CUDA])
def test_pairs_of_a_prediction(kind, gpu):
    """Scores are moved 4 times, whatever the features: zeros, the bias, and the best of them. In plain JAX a
    window of pairs costs what it is long.
    """
    n, labels, entries, window = 256, 16 * block_scores.PIECE, 1 << 16, 1 << 14
    value, number = jnp.ones(2 * entries, jnp.float32), jnp.ones(2 * entries, jnp.int32)
    if kind == CUDA:
        cuda_builds.register_for_gpus()
        rows = block_scores.SparseRows(value, number, jnp.ones(n + 1, jnp.int32))
    else:
        starts = jnp.ones(1024, jnp.int32)
        rows = block_scores.RowsInTurns(value, number, number, starts, jnp.int32(9), n, window)
    block = jax.eval_shape(block_scores.by_feature, stored_block(labels, entries))
    best = jnp.ones((n, 5), jnp.float32), jnp.ones((n, 5), jnp.int32)
    arguments = rows, block, np.int32(0), *best
    text = checked(block_scores.merge_topk, gpu, *arguments, k=5)
    assert gpu_targets.atomics(text) == 0
    assert gpu_targets.custom_calls(text) == (["xmcjax_cuda_pairs"] if kind == CUDA else [])
    if not OPTIMISED:
        return
    assert "__gpu$TopK" in text
    scores, of_loop = 4 * n * labels, gpu_targets.moved(text, loops=True)
    # beside the scores: the best of each piece, and what is sorted, of the entries and weights one read each
    beside = scores // 8 + 8 * 3 * entries
    assert gpu_targets.moved(text) - of_loop <= 4 * scores + beside
    # where pairs are added all scores are operand and result, and entries and weights operands
    assert of_loop <= (kind != CUDA) * (2 * scores + 4 * 10 * entries + 4 * 40 * window)
    # the scores twice: no third copy of them where pairs are added
    program = gpu_targets.compiled(block_scores.merge_topk, gpu, *arguments, k=5)
    assert program.memory_analysis().temp_size_in_bytes <= 2.2 * scores


def test_weights_by_feature(gpu):
    """They are sorted, and nothing is added up."""
    text = checked(block_scores.by_feature, gpu, stored_block(2048, 1 << 14))
    assert gpu_targets.atomics(text) == 0 and gpu_targets.custom_calls(text) == []


@pytest.mark.parametrize("kind", ["jnp", CUDA])
def test_lanes_by_sizes_and_by_the_count_of_the_program(kind):
    """At Amazon-670K's size what a step takes by XLA's count is within half of the guess and all of it."""
    n, d, lanes = 490_449, 135_909, 256
    op = gpu_targets.enlarged(features(kind), (N, D), (n, d), 37_000_000)
    shared = device_blocks.Shared(op, MARGIN_LOSSES["squared_hinge"], np.ones(1), newton_cg.HParams())
    problem, hp, state = device_memory.described(device_blocks._fields(shared, lanes))
    program = gpu_targets.compiled(newton_cg.advance, "h200", dataclasses.replace(problem, op=op), hp, state)
    counted = device_memory.of_program(program)
    assert counted is not None
    needed = counted - device_memory.held(op)
    guessed = 4 * lanes * (devices.OF_ROWS * n + devices.OF_COLUMNS * d)
    assert guessed / 2 <= needed <= guessed


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        *((m, kind) for m in COMPILED for kind in (DENSE, CUDA)),
        ("newton", "jnp"),
    ],
)
def test_steps_of_multinomial_regression(method, kind):
    y = np.arange(N) % 7
    # what is made on the CPU is made without the kernels
    problem = multinomial.multinomial_problem(features("jnp" if kind == CUDA else kind), y, 1.0)
    hp = multinomial.HParams()
    state = multinomial.initial(problem, hp, None, None, method=method)
    if kind == CUDA:
        problem = dataclasses.replace(problem, op=features(CUDA))
    text = checked(multinomial.advance, "h200", problem, hp, state, method=method)
    calls = [name for name in gpu_targets.custom_calls(text) if name.startswith("xmcjax_cuda_")]
    assert bool(calls) == (kind == CUDA)
    if kind == CUDA:  # beside sums over the rows of each class, by which a few numbers are counted
        assert {"xmcjax_cuda_matmat", "xmcjax_cuda_rmatmat"} <= {*calls}


@pytest.mark.parametrize("formulation", admm.LOSSES)
def test_steps_for_all_rows_at_once(formulation):
    k, lanes, m = 3 if formulation.startswith("topk") else 1, 4, 7
    more = dict(formulation=formulation, k=k, C=np.ones(lanes))
    problem = admm.problem(features(DENSE), np.arange(N) % m, **more)
    state = admm.init(problem)
    text = checked(admm.advance, "h200", problem, admm.HParams(), state, 1)
    assert gpu_targets.atomics(text) == 0
    if OPTIMISED and formulation == "ovr":  # without a search for a threshold, which is a loop
        text = checked(jax.jit(admm.step), "h200", problem, admm.HParams(), state)
        # X twice, and what is read and written of the arrays of all rows and of all features
        assert gpu_targets.moved(text) <= 4 * (2 * N * D + 25 * (N + D) * lanes * m)


def test_kernel_multinomial_regression():
    case, solver = CASES["kernel_multinomial"], SOLVERS["kernel_multinomial"]
    problem = case.problem(np.float32, case.paths[0])
    checked(jax.jit(solver.run), "h200", problem, case.loose)


@pytest.mark.parametrize("kernel", [kernels.RBF(0.5), kernels.Linear()], ids=["rbf", "linear"])
def test_kernel_matrices_of_sparse_features(kernel, gpu):
    """X Xᵀ in tiles, or X (Xᵀ S), by the kernels in CUDA; no sum without an order."""
    points = kernels.points(sp.csr_matrix(np.eye(64, 40, dtype=np.float32)), backend="jnp")
    points = dataclasses.replace(points, op=features(CUDA, 64, 40))
    # what is made on the CPU is made without the kernels
    gram = kernels.Gram(jax.tree.map(lambda a: jnp.full(1, a, jnp.float32), kernel), points, None, 1, 16)
    text = checked(jax.jit(lambda gram, S: gram.matmat(S)), gpu, gram, jnp.ones((64, 1, 3), jnp.float32))
    assert sorted(gpu_targets.custom_calls(text)) == ["xmcjax_cuda_matmat", "xmcjax_cuda_rmatmat"]
    assert gpu_targets.atomics(text) == 0


PROJECTIONS = {
    "simplex": projections.simplex,
    "capped_simplex": lambda x: projections.capped_simplex(x, 1.0, 0.3),
    "topk_simplex": lambda x: projections.topk_simplex(x, 3),
    "topk_cone": lambda x: projections.topk_cone(x, 3),
}


@pytest.mark.parametrize("name", PROJECTIONS)
def test_projections_and_their_derivatives(name):
    x = jnp.ones((1000, 100), jnp.float32)
    work = PROJECTIONS[name]
    text = checked(jax.jit(lambda x: jax.vjp(work, x)[1](x)), "h200", x)
    assert gpu_targets.atomics(text) == 0


def test_losses_with_gradients():
    scores, y = jnp.ones((1000, 100), jnp.float32), jnp.zeros(1000, jnp.int32)
    value = jax.jit(jax.value_and_grad(lambda s: losses.topk_hinge(s, y, k=3).sum()))
    text = checked(value, "h200", scores)
    if OPTIMISED:  # the scores, their gradient, and copies for the k largest
        assert gpu_targets.moved(text) <= 12 * scores.nbytes


@pytest.mark.parametrize("name", ["alpha", "beta", "entropy", "truncated"])
def test_losses_with_gradients_by_the_kernel(name, gpu, monkeypatch):
    """The k largest, what ties or is left, and the gradient with another look: no array beside the scores."""
    cuda_builds.found_by_kernel(monkeypatch, "cuda")
    scores, y = jnp.ones((8192, 1000), jnp.float32), jnp.zeros(8192, jnp.int32)
    loss = {
        "alpha": lambda s: losses.topk_hinge(s, y, k=3),
        "beta": lambda s: losses.topk_hinge(s, y, k=3, variant="beta"),
        "entropy": lambda s: losses.topk_entropy(s, y, k=3),
        "truncated": lambda s: losses.truncated_topk_entropy(s, y, k=3),
    }[name]
    text = checked(jax.jit(jax.value_and_grad(lambda s: loss(s).sum())), gpu, scores)
    assert gpu_targets.custom_calls(text) == ["xmcjax_cuda_topk"] and " sort(" not in text
    if OPTIMISED:
        # read three times and written once. The scores of the labels are gathered, and one number is added to
        # each row of the gradient in its place, whose operands and result count as whole arrays
        assert gpu_targets.moved(text) <= (4 + 3 + 0.5) * scores.nbytes


def test_a_prediction_by_the_kernels(gpu, monkeypatch):
    """Whole rows of scores are looked through once, in parts; nothing is sorted."""
    cuda_builds.found_by_kernel(monkeypatch, "cuda")
    n, labels, entries = 260, 16 * block_scores.PIECE, 1 << 16
    value, number = jnp.ones(2 * entries, jnp.float32), jnp.ones(2 * entries, jnp.int32)
    rows = block_scores.SparseRows(value, number, jnp.ones(n + 1, jnp.int32))
    block = jax.eval_shape(block_scores.by_feature, stored_block(labels, entries))
    best = jnp.ones((n, 5), jnp.float32), jnp.ones((n, 5), jnp.int32)
    text = checked(block_scores.merge_topk, gpu, rows, block, np.int32(0), *best, k=5)
    assert sorted(gpu_targets.custom_calls(text)) == ["xmcjax_cuda_pairs", *["xmcjax_cuda_topk"] * 2]
    assert " sort(" not in text and "TopK" not in text
    if OPTIMISED:  # zeros, the bias, and the best of them
        assert gpu_targets.moved(text) <= 4.05 * 4 * n * labels + 8 * 3 * entries


def test_a_product_of_less_than_float32_is_seen():
    a = jnp.ones((256, 256), jnp.float32)
    text = gpu_targets.compiled(jax.jit(lambda a: a @ a), "h200", a).as_text()
    assert len(gpu_targets.imprecise(text)) == 1
    text = gpu_targets.compiled(jax.jit(lambda a: jnp.matmul(a, a, precision="highest")), "h200", a).as_text()
    assert gpu_targets.imprecise(text) == []


def test_the_count_of_bytes():
    a = jnp.ones((1024, 1024), jnp.float32)
    text = gpu_targets.compiled(jax.jit(lambda a: jnp.sin(a) * 2 + 1), "h200", a).as_text()
    assert gpu_targets.moved(text) == 2 * a.nbytes
