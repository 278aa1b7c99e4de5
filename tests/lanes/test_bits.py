"""On CPU with CSR the bits of a label depend on its data and start, on nothing else."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import scipy.sparse as sp
import threadpoolctl

from tests.support.lanes import assert_same_bits, small, train
from tests.support.problems import needs_native
from xmcjax import inits
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.models import ShardWriter

pytestmark = needs_native


@pytest.fixture(scope="module")
def data():
    return small()


@pytest.fixture(scope="module")
def start(data, tmp_path_factory):
    """The init of a name; "pretrained" of a model trained loosely."""
    X, Y = data
    directory = tmp_path_factory.mktemp("pretrained") / "model"
    results, _ = train(X, Y, tol=0.5)
    with ShardWriter(directory, dict(n_features=X.shape[1], n_labels=Y.shape[1], dtype="float32")) as writer:
        for r in results.values():
            writer.add(r.label, r.indices, r.values, r.bias, r.status)
    return lambda name: inits.Pretrained(directory) if name == "pretrained" else inits.INITS[name]()


@pytest.fixture(scope="module")
def references(data, start):
    """Results of blocks of 32 on one thread."""
    return {name: train(*data, init=start(name))[0] for name in inits.INITS}


@pytest.mark.parametrize(("block_size", "threads"), [(1, 1), (5, 2), (16, 2), (40, 1), (64, 2)])
@pytest.mark.parametrize("init", inits.INITS)
def test_block_size_and_threads(data, start, references, init, block_size, threads):
    ours, summary = train(*data, init=start(init), block_size=block_size, n_jobs=threads)
    assert_same_bits(ours, references[init])
    assert sum(summary.statuses.values()) == data[1].shape[1]


@pytest.mark.parametrize("options", [{}, {"loss": MARGIN_LOSSES["hinge"]}, {"max_iter": 0}])
def test_a_block_has_no_more_lanes_than_there_are_labels(data, options):
    """So many lanes have no place in any memory."""
    results, _ = train(*data, block_size=2**31 - 1, n_jobs=2, **options)
    assert_same_bits(results, train(*data, **options)[0])


@pytest.mark.parametrize("features", [60, 5000])
def test_lanes_with_many_active_rows(features):
    """Their products are made for a tile, in one pass or in two by the number of features, or one by one."""
    rng = np.random.default_rng(0)
    X = sp.random_array((300, features), density=12 / features, rng=rng, dtype=np.float32, format="csr")
    Y = sp.csr_array(rng.random((300, 21)) < np.linspace(0.02, 0.6, 21))
    reference, _ = train(X, Y, block_size=1)
    for block_size in (5, 21, 40):
        ours, summary = train(X, Y, block_size=block_size)
        assert summary.active > 0.3 * summary.steps * 300
        assert_same_bits(ours, reference)


@pytest.mark.parametrize("init", inits.INITS)
def test_a_part_of_the_labels(data, start, references, init):
    """In any order; a tree solves the ancestors again, and hands out what was asked for."""
    chosen = np.array([23, 4, 9, 0, 17, 28])
    ours, _ = train(*data, init=start(init), labels=chosen)
    assert_same_bits(ours, {label: references[init][label] for label in chosen.tolist()})
    assert train(*data, init=start(init), labels=chosen[:0])[0] == {}


def test_form_and_order_of_the_data(data, references):
    X, Y = data
    entries = sp.coo_array(Y)
    shuffled = np.random.default_rng(0).permutation(entries.nnz)
    shuffled = np.concatenate([shuffled, shuffled[:40]])  # some twice
    rows, columns = entries.coords[0][shuffled], entries.coords[1][shuffled]
    again = sp.coo_array((np.full(len(shuffled), 3.0), (rows, columns)), shape=Y.shape)
    ours, _ = train(sp.csr_array(X), again)
    assert_same_bits(ours, references["mean_separating"])


@pytest.mark.parametrize("threads", [1, 2])
def test_float64_in_threads(threads):
    """JAX's context managers hold in one thread; the workers take over what training has set."""
    X, Y = small(dtype=np.float64)
    ours, _ = train(X, Y, n_jobs=threads, tol=1e-9)
    assert all(r.values.dtype == np.float64 for r in ours.values())
    assert all(r.gradient_norm < 1e-7 for r in ours.values() if r.newton_steps)
    with jax.enable_x64(False):
        assert_same_bits(train(X, Y, n_jobs=threads, tol=1e-9)[0], ours)
    narrow, _ = train(X.astype(np.float32), Y, n_jobs=threads)
    assert all(r.values.dtype == np.float32 for r in narrow.values())


def test_threads_of_blas(data):
    """Sums of more than 10,000 numbers are made in parts by OpenBLAS, as many as it has threads."""
    X, Y = data
    counts = set()

    def look(_):
        info = threadpoolctl.threadpool_info()
        counts.update(one["num_threads"] for one in info if one["user_api"] == "blas")

    with threadpoolctl.threadpool_limits(2, "blas"):
        train(X, Y, observe=look)
        look(None)
        assert counts == {1, 2}, "limited in training, and as before afterwards"
