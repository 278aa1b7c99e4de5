"""Prediction on a device: the ways in which scores are made there, what is sent, and what stays there."""

import gc
import itertools
import json
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from tests.models.test_predict import all_scores, problem, sorted_topk
from tests.support import cuda_builds
from tests.support.internals import (
    block_scores,
    device_memory,
    device_prediction,
    device_rows,
    device_weights,
    platforms,
)
from tests.support.models import META, write
from xmcjax import linops, native
from xmcjax.models import ArrayModel, LinearModel, ModelFormatError, ShardWriter, predict_topk, scores_above

# As a GPU is asked: 2,000 rows of 40 of 50,000 features, and 50 weights for each of 1,000,000 labels.
KIT = device_prediction.Work(
    n_rows=2000,
    n_features=50_000,
    n_labels=1_000_000,
    entries=80_000,
    turns=40,
    pairs=2.75e8,
    blocks=8,
    passes=1,
    itemsize=4,
)


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """Prediction goes the way that it goes where JAX has another device than the CPU."""
    monkeypatch.setattr("xmcjax.models._predict._on_a_device", lambda: True)


WAYS = ["pairs", "pairs in CUDA", "dense"]


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """How the scores of sparse rows are made; the kernels in CUDA are compiled for the CPU."""
    monkeypatch.setattr(device_prediction, "by_pairs", lambda work: request.param != "dense")
    if request.param == "pairs in CUDA":
        cuda_builds.found_by_kernel(monkeypatch)
        monkeypatch.setattr(native, "cuda_available", lambda: True)
    return request.param


@pytest.fixture
def sent(monkeypatch):
    """The labels of each block that is sent, (first, one past the last)."""
    seen = []

    stored = device_weights._stored

    def sending(model, coef, first, last):
        seen.append((first, last))
        return stored(model, coef, first, last)

    monkeypatch.setattr(device_weights, "_stored", sending)
    return seen


def wide(n_labels=5000, n=23, d=60, seed=0):
    """Labels in several pieces of 1,024, with rows, labels and features that have nothing."""
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, d), density=0.2, rng=rng, format="lil", dtype=np.float32)
    W = sp.random_array((n_labels, d), density=0.05, rng=rng, format="lil", dtype=np.float32)
    X[[0, 7]] = 0
    W[[0, 1, 1024, n_labels - 1]] = 0
    W[:, 5] = 0
    X, W = X.tocsr(), W.tocsr()
    # small whole numbers: sums are exact, and many scores equal
    X.data, W.data = (np.float32(rng.integers(1, 3, len(a))) for a in (X.data, W.data))
    return X, W, rng.integers(-1, 2, n_labels).astype(np.float32)


def check(found, expected):
    for array, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(array, wanted)


BLOCKS = [(None, None), (None, 5), (2048, 10), (1024, 23), (777, None)]


@pytest.mark.parametrize(
    ("k", "blocks"),
    [(k, blocks) for k in (1, 7) for blocks in BLOCKS] + [(1500, (None, None)), (1500, (777, None))],
)
def test_wide_blocks_rank_as_a_full_sort(way, k, blocks):
    X, W, bias = wide()
    expected = sorted_topk(all_scores(X, W, bias), k)
    check(predict_topk(ArrayModel(W, bias), X, k, *blocks), expected)


@pytest.mark.parametrize("n_labels", [1, 2, 17])
def test_few_labels(way, n_labels):
    X, W, bias = wide(n_labels=2000)
    W, bias = W[2 : 2 + n_labels], bias[2 : 2 + n_labels]
    check(predict_topk(ArrayModel(W, bias), X, 5), sorted_topk(all_scores(X, W, bias), 5))


def test_nothing_stored(way):
    """No weight, no entry of a row, or no row with one."""
    X, W, bias = wide()
    for rows, weights in ((X, W * 0), (X * 0, W), (X[:1], W), (X[1:2], W)):
        rows.eliminate_zeros()
        weights.eliminate_zeros()
        expected = sorted_topk(all_scores(rows, weights, bias), 3)
        check(predict_topk(ArrayModel(weights, bias), rows, 3, 2048), expected)


def test_a_row_of_many_entries(way):
    """Its pairs are added in several windows, beside rows that have ended."""
    rng = np.random.default_rng(1)
    W = sp.csr_array(np.float32(rng.integers(0, 2, (300, 60)) * rng.integers(1, 4, (300, 60))))
    X = sp.csr_array(np.float32(np.vstack([np.ones(60), *np.eye(60)[:40]])))
    bias = np.zeros(300, np.float32)
    check(predict_topk(ArrayModel(W, bias), X, 4), sorted_topk(all_scores(X, W, bias), 4))


def test_entries_that_share_a_place_are_added(way):
    X = sp.csr_array((np.float32([1, 2, 4]), [1, 1, 0], [0, 3]), shape=(1, 3))
    W = sp.csr_array(np.float32([[1, 0, 0], [0, 10, 0]]))
    assert predict_topk(ArrayModel(W), X, 2)[1].tolist() == [[30, 4]]
    # and those of a label: 3 and 7 for feature 1
    W = sp.csr_array((np.float32([1, 3, 7]), [0, 1, 1], [0, 1, 3]), shape=(2, 40))
    X = sp.csr_array((X.data, X.indices, X.indptr), shape=(1, 40))
    assert predict_topk(ArrayModel(W), X, 2)[1].tolist() == [[30, 4]]


def test_many_pairs_are_added_in_windows(monkeypatch):
    monkeypatch.setattr(device_prediction, "by_pairs", lambda work: True)
    monkeypatch.setattr(device_prediction, "_LEAST_WINDOW", 16)
    monkeypatch.setattr(device_prediction, "_MOST_WINDOW", 16)
    X, W, bias = wide()
    check(predict_topk(ArrayModel(W, bias), X, 5), sorted_topk(all_scores(X, W, bias), 5))


def test_scores_above_a_threshold(way):
    X, W, bias = wide()
    scores = all_scores(X, W, bias)
    for blocks in ((None, None), (1024, 7)):
        found = scores_above(ArrayModel(W, bias), X, 2.0, *blocks)
        np.testing.assert_array_equal(found.toarray(), np.where(scores > 2, scores, 0))


def test_random_numbers(way):
    """Against scipy in float64, of either dtype."""
    rng = np.random.default_rng(0)
    X = sp.random_array((50, 400), density=0.1, rng=rng, format="csr")
    W = sp.random_array((3000, 400), density=0.05, rng=rng, format="csr")
    expected = sorted_topk(all_scores(X, W, np.zeros(3000)), 6)
    for dtype, rtol in ((np.float64, 1e-13), (np.float32, 1e-5)):
        labels, scores = predict_topk(ArrayModel(W.astype(dtype)), X.astype(dtype), 6)
        np.testing.assert_allclose(scores, expected[1], rtol=rtol)
        if dtype == np.float64:
            np.testing.assert_array_equal(labels, expected[0])


def test_the_blocks_do_not_change_the_bits(monkeypatch):
    """Pairs are added in the order of a row's entries."""
    monkeypatch.setattr(device_prediction, "by_pairs", lambda work: True)
    rng = np.random.default_rng(0)
    X = sp.random_array((50, 400), density=0.1, rng=rng, format="csr", dtype=np.float32)
    W = sp.random_array((3000, 400), density=0.05, rng=rng, format="csr", dtype=np.float32)
    model = ArrayModel(W)
    once, again = predict_topk(model, X, 6), predict_topk(model, X, 6, 1024, 7)
    check(once, again)


def test_one_compilation_whatever_the_number_of_blocks(compilations, way):
    X, coef, intercept = problem(4, n=41, n_labels=31)
    model = ArrayModel(coef, intercept)
    # 7 blocks of labels, 5 of rows, both with a rest, of shapes that no other test has
    for call, name in (
        (lambda: predict_topk(model, X, 3, 5, 9), "merge_topk"),
        (lambda: scores_above(model, X, 0.0, 5, 9), "block_scores"),
    ):
        assert sum(f"jit({name})" in program for program in compilations(call)) == 1
        assert compilations(call) == []


def uneven(counts, d=2000, n=23):
    """Labels of so many weights each, in blocks of 1,024 labels."""
    rng = np.random.default_rng(0)
    features = np.concatenate([np.sort(rng.permutation(d)[:c]) for c in np.repeat(counts, 1024)])
    indptr = np.concatenate([[0], np.cumsum(np.repeat(counts, 1024))])
    values = np.float32(rng.integers(1, 3, len(features)))
    X = sp.random_array((n, d), density=0.05, rng=rng, format="csr", dtype=np.float32)
    X.data = np.float32(rng.integers(1, 3, X.nnz))
    return X, sp.csr_array((values, features, indptr), shape=(len(indptr) - 1, d))


@pytest.mark.parametrize(
    ("way", "n", "counts"),
    [
        ("pairs", 13, range(1, 61, 4)),
        *((way, 14, (300, *[2] * 15)) for way in WAYS),
        ("pairs", 15, (*[2] * 15, 300)),
    ],
    indirect=["way"],
)
def test_labels_of_unequal_weights(compilations, way, n, counts):
    """One program for all blocks, and what is kept is a few times what is stored."""
    X, W = uneven(counts, n=n)  # of shapes that no other test has
    expected = sorted_topk(all_scores(X, W, np.zeros(len(W.indptr) - 1)), 3)
    model = ArrayModel(W)
    gc.collect()
    before = sum(a.nbytes for a in jax.live_arrays())
    programs = compilations(lambda: check(predict_topk(model, X, 3, 1024), expected))
    assert sum("jit(merge_topk)" in program for program in programs) == 1
    assert compilations(lambda: predict_topk(model, X, 3, 1024)) == []
    gc.collect()
    # both orders of 8 bytes for each weight, less than three times that; features, labels and biases beside
    beside = 4 * 2 * len(counts) * (X.shape[1] + 3 * 1024)
    assert sum(a.nbytes for a in jax.live_arrays()) - before <= 3 * 16 * W.nnz + beside


def test_what_is_kept_is_counted_beforehand(monkeypatch, sent):
    """Both orders of all blocks, of the length of the longest one, with features, labels and biases."""
    monkeypatch.setattr(device_prediction, "by_pairs", lambda work: True)
    X, W = uneven((300, *[2] * 15))
    gc.collect()
    before = sum(a.nbytes for a in jax.live_arrays())
    model = ArrayModel(W)
    predict_topk(model, X, 3, 1024)
    gc.collect()
    kept = sum(a.nbytes for a in jax.live_arrays()) - before
    for free, times in ((2 * kept, 1), (2 * kept - 2, 2)):
        monkeypatch.setattr(device_memory, "free_memory", lambda device=None, free=free: free)
        model = ArrayModel(W)
        sent.clear()
        for _ in range(2):
            predict_topk(model, X, 3, 1024)
        assert len(sent) == times * len(set(sent))


def test_sparse_weights_are_sent_once(way, sent):
    X, W, bias = wide()
    expected = sorted_topk(all_scores(X, W, bias), 3)
    model = ArrayModel(W, bias)
    check(predict_topk(model, X, 3, 2048), expected)
    assert sent == [(0, 2048), (2048, 4096), (4096, 5000)]
    sent.clear()
    check(predict_topk(model, X[:4], 3, 2048), [a[:4] for a in expected])
    check(predict_topk(model, X, 3, 2048, 6), expected)
    assert sent == []
    predict_topk(model, X, 3, 4096)  # other blocks
    assert sent == [(0, 4096), (4096, 5000)]


def test_stored_models_are_sent_once(way, sent, tmp_path):
    X = sp.random_array((31, 50), density=0.2, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    model = LinearModel.load(write(tmp_path / "m"))
    expected = predict_topk(ArrayModel(model.coef(), model.intercept(), model.status), X, 6)
    sent.clear()
    for _ in range(2):
        check(predict_topk(model, X, 6, 16), expected)
    assert sent == [(0, 16), (16, 23)]


def test_stored_models_of_unequal_weights(compilations, way, tmp_path):
    """Shards do not end where blocks end."""
    X, W = uneven(range(1, 41, 4), d=300, n=17)
    with ShardWriter(
        tmp_path / "m", META | {"n_features": 300, "n_labels": 10_240}, shard_size=1500
    ) as writer:
        for label, (low, high) in enumerate(itertools.pairwise(W.indptr)):
            writer.add(label, W.indices[low:high], W.data[low:high], 0.0)
    model = LinearModel.load(tmp_path / "m")
    np.testing.assert_array_equal(model.weight_starts(), W.indptr)
    expected = sorted_topk(all_scores(X, W, np.zeros(10_240)), 3)
    programs = compilations(lambda: check(predict_topk(model, X, 3, 1024), expected))
    assert sum("jit(merge_topk)" in program for program in programs) == 1


def test_threads_share_what_is_kept(way, sent):
    X, W, bias = wide()
    expected = sorted_topk(all_scores(X, W, bias), 3)
    model = ArrayModel(W, bias)
    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(lambda _: predict_topk(model, X, 3, 2048), range(4)):
            check(found, expected)
    assert len(sent) == 3


def test_blocks_are_sent_while_those_before_are_used(monkeypatch, sent, way):
    """In the first call too: no more than the next one was asked for."""
    merge, seen = device_prediction.merge_topk, []

    def merging(*args, **options):
        seen.append(len(sent))
        return merge(*args, **options)

    monkeypatch.setattr(device_prediction, "merge_topk", merging)
    X, W, bias = wide()
    predict_topk(ArrayModel(W, bias), X, 3, 1024)
    assert sorted(set(seen)) == [1, 2, 3, 4, 5]


def test_a_damaged_block_is_an_error_in_each_call(way, tmp_path):
    """What was sent before it does not pass for the whole model."""
    model = LinearModel.load(write(tmp_path / "m"))
    X = sp.csr_array(np.ones((3, 50), np.float32))
    shard = sorted((tmp_path / "m").glob("*.safetensors"))[-1]
    data = shard.read_bytes()
    whole = predict_topk(LinearModel.load(tmp_path / "m"), X, 6, 8)
    begin = 8 + int.from_bytes(data[:8], "little")
    start = begin + json.loads(data[8:begin])["intercept"]["data_offsets"][0]
    shard.write_bytes(data[:start] + np.float32(np.nan).tobytes() + data[start + 4 :])
    for _ in range(2):
        with pytest.raises(ModelFormatError, match="expected SHA-256"):
            predict_topk(model, X, 6, 8)
    shard.write_bytes(data)
    check(predict_topk(model, X, 6, 8), whole)


def test_what_is_kept_goes_with_the_model(way):
    X, W, bias = wide(n_labels=2000)
    gc.collect()
    before = sum(a.nbytes for a in jax.live_arrays())
    model = ArrayModel(W, bias)
    predict_topk(model, X, 3)
    gc.collect()
    kept = sum(a.nbytes for a in jax.live_arrays()) - before
    # both orders, filled up; features, labels and biases beside them
    assert 8 * W.nnz <= kept <= 16 * device_rows.filled_length(W.nnz) + 4 * (61 + 3 * 2048 + 1)
    del model
    gc.collect()
    assert sum(a.nbytes for a in jax.live_arrays()) <= before


def test_weights_that_do_not_fit_are_sent_in_each_call(way, sent, monkeypatch):
    X, W, bias = wide()
    expected = sorted_topk(all_scores(X, W, bias), 3)
    # less than both orders of the weights twice
    monkeypatch.setattr(device_memory, "free_memory", lambda device=None: 2 * 16 * W.nnz - 1)
    model = ArrayModel(W, bias)
    for _ in range(2):
        check(predict_topk(model, X, 3, 2048), expected)
        assert len(sent) == 3
        sent.clear()


def test_weights_of_other_blocks_are_gone_before_memory_is_asked_for(monkeypatch):
    X, W, bias = wide()
    model, held, fits = ArrayModel(W, bias), [], device_weights._fits
    gc.collect()
    before = sum(a.nbytes for a in jax.live_arrays())

    def asked(*args):
        gc.collect()
        held.append(sum(a.nbytes for a in jax.live_arrays()) - before)
        return fits(*args)

    monkeypatch.setattr(device_weights, "_fits", asked)
    for label_block in (2048, 4096):
        predict_topk(model, X, 3, label_block)
    assert len(held) == 2 and max(held) < 8 * W.nnz


def test_weights_that_may_change_are_sent_in_each_call():
    X, W, bias = problem()
    dense = W.toarray()
    model = ArrayModel(dense, bias)
    predict_topk(model, X, 3)
    dense[:] = dense[::-1].copy()
    check(predict_topk(model, X, 3), sorted_topk(all_scores(X, sp.csr_array(dense), bias), 3))


def test_weights_are_sent_in_the_form_of_fewer_bytes(sent):
    """As they are stored, where weights with features are fewer bytes than an array."""
    X, _, _ = problem(d=12)
    for stored, count in ((5, 3), (6, 0)):
        W = np.zeros((30, 12), np.float32)
        W[:, :stored] = 1
        predict_topk(ArrayModel(sp.csr_array(W)), X, 3, 10)
        assert len(sent) == count
        sent.clear()


def test_pairs_are_added_where_that_moves_fewer_bytes():
    assert device_prediction.by_pairs(KIT) and KIT.bytes_by_pairs < KIT.bytes_dense / 5
    # many entries in a row, whose features most labels have
    eurlex = KIT._replace(
        n_rows=4000,
        n_features=5000,
        n_labels=4000,
        entries=10**6,
        turns=2000,
        pairs=1e9,
        blocks=1,
    )
    assert not device_prediction.by_pairs(eurlex)
    # the kernels in CUDA need no turns
    few = KIT._replace(n_labels=10_000, pairs=2.75e6, blocks=1)
    assert not device_prediction.by_pairs(few) and device_prediction.by_pairs(few._replace(turns=0))


def test_the_way_is_chosen_by_the_weights_of_the_first_block(monkeypatch):
    seen = []
    monkeypatch.setattr(device_prediction, "by_pairs", lambda work: bool(seen.append(work)))
    X, W, bias = wide()
    predict_topk(ArrayModel(W, bias), X, 3)
    predict_topk(ArrayModel(W, bias), X.toarray(), 3)  # dense rows have one way
    (work,) = seen
    assert (work.n_rows, work.n_labels, work.entries) == (23, 5000, X.nnz)
    assert work.pairs == (X != 0).sum(0) @ (W != 0).sum(0) and work.turns == np.diff(X.indptr).max()


def test_blocks_of_dense_weights_are_wide_where_memory_allows(monkeypatch):
    """From 1,024 scores on XLA has a kernel for the k best; with little memory there are fewer labels."""

    def labels(n_features=40):
        return device_weights.dense_labels(n_features, 1 << 16, 4)

    assert labels() == 256
    monkeypatch.setattr(platforms, "default_backend", lambda: "gpu")
    assert labels() == 1024
    for free, count in ((1 << 40, 1024), (1 << 30, 512), (1 << 20, 256)):
        monkeypatch.setattr(device_memory, "free_memory", lambda device=None, free=free: free)
        assert labels() == count
    monkeypatch.setattr(device_memory, "free_memory", lambda device=None: None)
    assert labels(1_000_000) == 256


def test_blocks_of_sparse_weights_are_even(monkeypatch):
    monkeypatch.setattr(platforms, "default_backend", lambda: "gpu")
    assert device_weights.sparse_labels(1_000_000, 50_000_000, 4) == 125_952
    assert device_weights.sparse_labels(29, 100, 4) == 32
    # 1 GiB holds both orders of two blocks
    assert device_weights.sparse_labels(10**6, 10**9, 4) * 1000 * 8 * 4 <= 1 << 30
    assert device_weights.sparse_labels(10**6, 10**11, 4) == block_scores.PIECE


def test_too_many_weights_for_a_block(monkeypatch):
    """Places go up to twice the length of its arrays, 1,024 here."""
    X, W, bias = problem()
    monkeypatch.setattr(device_weights, "_MOST_WEIGHTS", 1025)  # and blocks have half as many
    check(predict_topk(ArrayModel(W, bias), X, 3, 29), sorted_topk(all_scores(X, W, bias), 3))
    monkeypatch.setattr(device_weights, "_MOST_WEIGHTS", 1024)
    with pytest.raises(ValueError, match=r"^label_block: expected less than 1024 weights in a block, found"):
        predict_topk(ArrayModel(W, bias), X, 3, 29)


def test_pairs_are_added_for_no_more_rows_than_others(monkeypatch):
    """65,536, where the weights are few."""
    seen = []
    monkeypatch.setattr(device_prediction, "by_pairs", lambda work: True)
    monkeypatch.setattr(device_prediction, "_DEFAULT_ROW_BLOCK", 16)
    of_pairs = device_rows.of_pairs
    monkeypatch.setattr(
        device_rows, "of_pairs", lambda X, rows, *a: seen.append(rows) or of_pairs(X, rows, *a)
    )
    X, W, bias = problem()
    predict_topk(ArrayModel(W, bias), X, 3)
    assert seen == [[(0, 16), (16, 32), (32, 37)]]


@pytest.mark.parametrize("way", ["pairs", "pairs in CUDA"], indirect=True)
def test_too_many_entries_for_a_block_of_rows(monkeypatch, way):
    monkeypatch.setattr(device_rows, "_MOST_ENTRIES", 1024 + 10)
    X, W, bias = problem()
    sentence = rf"^row_block: expected rows of less than 1034 entries together, found {X.nnz} in 37 rows$"
    with pytest.raises(ValueError, match=sentence):
        predict_topk(ArrayModel(W, bias), X, 3)
    check(predict_topk(ArrayModel(W, bias), X, 3, None, 9), sorted_topk(all_scores(X, W, bias), 3))


def test_rows_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr(device_prediction, "by_pairs", lambda work: True)
    monkeypatch.setattr(device_memory, "free_memory", lambda device=None: 100)
    X, W, bias = problem()
    with pytest.raises(linops.DeviceMemoryError, match=r"^expected X to fit into the memory of .*: 37 rows"):
        predict_topk(ArrayModel(W, bias), X, 2)
