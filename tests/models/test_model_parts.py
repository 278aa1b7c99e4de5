"""The parts in which models are read and written, and the memory that this takes beside the weights."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from safetensors.numpy import load_file, save, save_file

from tests.support.internals import foreign_models, model_shards, model_writer
from tests.support.internals import sparse as checked_matrices
from tests.support.memory import peak_of
from tests.support.models import (
    LABELS,
    META,
    N_FEATURES,
    SIZE,
    contents,
    expected_weights,
    fill,
    label_result,
    write,
)
from xmcjax import MultinomialLogisticRegression, OneVsAllClassifier
from xmcjax.models import LinearModel, ModelFormatError, ShardWriter, merge_models

LONG = 500, 16_000  # of one shard: 32 MB of dense float32


def with_weights(kind, coef):
    """A classifier that has these."""
    classifier = kind().fit(np.eye(3, dtype=coef.dtype), [0, 1, 2])
    count, classifier.n_features_in_ = coef.shape
    classifier.coef_, classifier.intercept_ = coef, np.zeros(count, coef.dtype)
    classifier.classes_ = np.arange(count)
    if np.ndim(classifier.n_iter_):  # of each label
        classifier.n_iter_, classifier.status_ = np.zeros(count, int), np.ones(count, int)
    return classifier


def dense():
    return np.random.default_rng(0).uniform(1, 2, LONG).astype(np.float32)


def sparse():
    """40 MB of 2,500 labels."""
    coef = sp.random_array((2500, 100_000), density=0.02, rng=np.random.default_rng(0), dtype=np.float32)
    return coef.tocsr()


def test_loading_dense_weights_takes_them_and_a_part_of_a_shard(tmp_path):
    classifier = with_weights(MultinomialLogisticRegression, dense())
    classifier.save(tmp_path / "m")
    loaded, peak = peak_of(lambda: MultinomialLogisticRegression.load(tmp_path / "m"))
    np.testing.assert_array_equal(loaded.coef_, classifier.coef_)
    assert peak < 1.8 * loaded.coef_.nbytes  # with the whole shard beside them, sparse: 3


@pytest.mark.parametrize("make", [dense, sparse])
def test_saving_takes_a_part_of_a_shard_beside_the_weights(tmp_path, make):
    coef = make()
    classifier = with_weights(MultinomialLogisticRegression, coef)
    _, peak = peak_of(lambda: classifier.save(tmp_path / "m"))
    weights = LinearModel.load(tmp_path / "m").coef()
    assert (weights != (coef if sp.issparse(coef) else sp.csr_array(coef))).nnz == 0
    assert peak < 12e6  # with a shard beside it, before it is written: 64 MB


@pytest.mark.parametrize("how", ["load", "coef"])
def test_reading_sparse_weights_takes_them_and_a_part_of_a_shard(tmp_path, how):
    classifier = with_weights(OneVsAllClassifier, sparse())
    classifier.save(tmp_path / "m")
    model = LinearModel.load(tmp_path / "m")
    read = model.coef if how == "coef" else lambda: OneVsAllClassifier.load(tmp_path / "m").coef_
    coef, peak = peak_of(read)
    assert abs(coef - classifier.coef_).nnz == 0 and coef.indices.dtype == coef.indptr.dtype == np.int32
    assert peak < 1.6 * (coef.data.nbytes + coef.indices.nbytes)  # with all shards beside them: 2


@pytest.mark.parametrize("most", [1, 7, 10**6])
def test_a_shard_in_parts_is_the_shard(tmp_path, most):
    path = write(tmp_path / "m", shard_size=LABELS) / "shard-000000.safetensors"
    stored = load_file(path)
    sizes = LABELS, len(stored["values"]), N_FEATURES, np.dtype(np.float32)
    whole, parts = model_shards.decode(path, *sizes), list(model_shards.decode_parts(path, *sizes, most))
    assert (len(parts) == 1) == (most == 10**6)
    for name in whole._fields:
        np.testing.assert_array_equal(getattr(whole, name), stored[name])
    for first, part in parts:
        for ours, expected in zip(part, whole.part(first, first + len(part.status)), strict=True):
            np.testing.assert_array_equal(ours, expected)
    assert sum(len(part.status) for _, part in parts) == LABELS


@pytest.mark.parametrize("most", [1, 7, 10**6])
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("indices", 50, "indices from 0 to 49, found 50 in label 22"),
        ("values", np.nan, "finite values, found nan or infinity"),
        ("indptr", 0, "an indptr that does not fall, found 0 after [0-9]+ at label 22"),
    ],
)
def test_damage_is_found_in_each_part(tmp_path, most, name, value, words):
    path = write(tmp_path / "m", shard_size=LABELS) / "shard-000000.safetensors"
    arrays = load_file(path)
    arrays[name][-1] = value
    save_file(arrays, path)
    sizes = LABELS, len(arrays["values"]), N_FEATURES, np.dtype(np.float32)
    with pytest.raises(ModelFormatError, match=words):
        list(model_shards.decode_parts(path, *sizes, most))


def test_models_without_weights_and_dense_ones_that_lack_classes(tmp_path):
    empty = LinearModel.load(write(tmp_path / "m", labels=[6, 13, 20], shard_size=1), partial=True)
    assert empty.coef().shape == (LABELS, N_FEATURES) and empty.coef().nnz == 0
    assert not empty.dense(np.arange(LABELS)).any()
    model = LinearModel.load(write(tmp_path / "n"))
    labels = np.array([0, 3, 4, 7, 22])
    np.testing.assert_array_equal(model.dense(labels), model.coef().toarray()[labels])
    assert model.dense(labels).dtype == META["dtype"]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_shard_has_the_bytes_that_safetensors_writes(tmp_path, dtype):
    write(tmp_path / "m", dtype=dtype, meta=META | {"dtype": np.dtype(dtype).name})
    for path in (tmp_path / "m").glob("shard-*"):
        assert path.read_bytes() == save(load_file(path))


def rows(form, dtype):
    """Labels with positives, their weights, and their numbers."""
    labels = np.array([label for label in range(LABELS) if label % 7 != 6], np.int8)
    W: Any = expected_weights(dtype)[0][labels]
    if form == "sparse":  # which stores zeros
        indptr = np.arange(len(W) + 1) * N_FEATURES
        W = checked_matrices.csr(
            sp.csr_array((W.ravel(), np.tile(np.arange(N_FEATURES), len(W)), indptr), W.shape)
        )
    names = ("intercept", "status", "newton_steps", "cg_steps")
    numbers = zip(*(label_result(label)[3:] for label in labels.tolist()), strict=True)
    return labels, W, dict(zip(names, map(np.array, numbers), strict=True))


@pytest.mark.parametrize("part", [1, 7, 10**6])
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_a_matrix_are_stored_as_labels_one_by_one(tmp_path, monkeypatch, dtype, form, part):
    meta = META | {"dtype": np.dtype(dtype).name}
    expected = contents(write(tmp_path / "expected", dtype=dtype, meta=meta))
    labels, W, numbers = rows(form, dtype)
    monkeypatch.setattr(model_shards, "PART", part)
    with ShardWriter(tmp_path / "m", meta, shard_size=SIZE) as writer:
        fill(writer, range(SIZE, 2 * SIZE), dtype)
        writer.add_rows(labels, W, **numbers)
        assert writer.complete
    assert contents(tmp_path / "m") == expected


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("W", np.nan, "label 7: expected finite weights, found nan or infinity"),
        ("W", -np.inf, "label 7: expected finite weights, found nan or infinity"),
        ("intercept", np.inf, "label 7: expected finite weights, found nan or infinity"),
        ("intercept", 1e39, "label 7: expected finite weights"),  # in float32
        ("status", 7, "status: expected at most 6, got 7"),
        ("newton_steps", -1, "newton_steps: expected at least 0, got -1"),
        ("cg_steps", 2**31, "cg_steps: expected at most 2147483647, got 2147483648"),
    ],
)
def test_impossible_rows_are_refused(tmp_path, form, name, value, words):
    labels, W, numbers = rows(form, np.float32)
    place = np.flatnonzero(labels == 7)[0]
    if name == "W":
        (W if form == "dense" else W.data.reshape(W.shape))[place, 3] = value
    else:
        numbers[name][place] = value
    with ShardWriter(tmp_path / "m", META, shard_size=SIZE) as writer:
        with pytest.raises(ValueError, match=words):
            writer.add_rows(labels, W, **numbers)
        assert writer.missing().tolist() == list(range(SIZE, LABELS))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (dict(W=np.ones((3, N_FEATURES))), "W: expected values of type float32, found float64"),
        (dict(W=np.ones((3, N_FEATURES), int)), "W: expected values of type float32, found int64"),
        (dict(W=np.ones((3, 51), np.float32)), r"of 50 weights .* for 3 labels, found .* \[3, 51\]"),
        (dict(W=np.ones((2, N_FEATURES), np.float32)), r"for 3 labels, found weights of shape \[2, 50\]"),
        (dict(status=np.ones(2, int)), r"numbers for 3 labels, found .* numbers for \[3, 2, 3, 3\]"),
        (dict(status=np.array([1, np.nan, 1])), "status: expected whole numbers in one dimension"),
        (dict(cg_steps=np.array([1, 1.5, 2])), "cg_steps: expected whole numbers in one dimension"),
        (dict(newton_steps=np.ones((3, 1), int)), "newton_steps: expected whole numbers in one dimension"),
        (dict(labels=np.array([0.0, 1, 2])), "labels: expected whole numbers in one dimension"),
        (dict(labels=np.array([0, 1, 5])), "labels: expected ascending labels from 0 to 4, found others"),
        (dict(labels=np.array([-1, 1, 2])), "labels: expected ascending labels"),
        (dict(labels=np.array([0, 1, 1])), "labels: expected ascending labels"),
        (dict(labels=np.array([2, 1, 0])), "labels: expected ascending labels"),
    ],
)
def test_rows_that_do_not_fit_are_refused(tmp_path, change, words):
    given = dict(labels=np.arange(3), W=np.ones((3, N_FEATURES), np.float32), intercept=np.zeros(3))
    given |= {name: np.ones(3, int) for name in ("status", "newton_steps", "cg_steps")} | change
    with ShardWriter(tmp_path / "m", META | {"n_labels": SIZE}, shard_size=SIZE) as writer:
        before = contents(tmp_path / "m")
        for add in (writer.add_rows, lambda **arrays: writer.add_shard(0, **arrays)):
            with pytest.raises((ValueError, TypeError), match=words):
                add(**given)
        assert contents(tmp_path / "m") == before
        broken = sp.csr_array(np.ones((3, N_FEATURES), np.float32))
        broken.indices[-1] = 2**30
        with pytest.raises(ValueError, match="W: expected indices from 0 to 49"):
            writer.add_rows(**given | {"labels": np.arange(3), "W": broken})


def test_rows_may_be_any_sparse_matrix(tmp_path):
    labels, W, numbers = rows("dense", np.float32)
    with ShardWriter(tmp_path / "m", META, shard_size=SIZE) as writer:
        writer.add_rows(labels, sp.csr_array(W), **numbers)
    assert contents(tmp_path / "m") == contents(write(tmp_path / "expected"))


def test_rows_of_labels_that_were_added_and_of_a_closed_writer_are_refused(tmp_path, monkeypatch):
    labels, W, numbers = rows("dense", np.float32)
    shard = {name: array[:SIZE] for name, array in numbers.items()}
    with ShardWriter(tmp_path / "m", META, shard_size=SIZE) as writer:
        fill(writer, [2])  # its shard is not full
        with pytest.raises(
            ValueError, match="labels 0 to 4: expected labels not stored yet, found some given"
        ):
            writer.add_rows(labels, W, **numbers)
        with monkeypatch.context() as disk:
            disk.setattr(writer, "_write_shard", lambda *_: (_ for _ in ()).throw(OSError("full")))
            with pytest.raises(OSError, match="full"):
                fill(writer, [0, 1, 3, 4])
        for _ in range(2):  # full, then stored
            with pytest.raises(ValueError, match="labels 0 to 4: expected labels not stored yet"):
                writer.add_shard(0, labels[:SIZE], W[:SIZE], **shard)
            fill(writer, range(SIZE, 2 * SIZE) if SIZE in writer.missing() else [])
        assert writer.missing_shards()[0][0] == 2 * SIZE
    before = contents(tmp_path / "m")
    with pytest.raises(ValueError, match="expected an open writer, found it closed"):
        writer.add_rows(labels, W, **numbers)
    assert contents(tmp_path / "m") == before


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_weights_that_change_while_they_are_written_make_no_shard(tmp_path, monkeypatch, form):
    labels, W, numbers = rows(form, np.float32)
    header = model_shards.header

    def changed(text):
        (W if form == "dense" else W.data)[0] = 0
        return header(text)

    monkeypatch.setattr(model_shards, "header", changed)
    with ShardWriter(tmp_path / "m", META, shard_size=SIZE) as writer:
        with pytest.raises(ValueError, match="expected weights that stay as they are while they are written"):
            writer.add_rows(labels, W, **numbers)
        assert [path.name for path in (tmp_path / "m").iterdir()] == ["manifest.json"]


def test_an_import_with_a_label_that_is_never_predicted_takes_no_second_copy(tmp_path):
    coef = checked_matrices.canonical_csr(sparse())
    intercept = np.zeros(coef.shape[0], np.float32)
    intercept[[0, 1300]] = foreign_models.NEVER
    model = foreign_models.ForeignModel(coef, intercept, None, {})
    stored, peak = peak_of(lambda: foreign_models.store(model, tmp_path / "m"))
    assert np.flatnonzero(~stored.trained(0, coef.shape[0])).tolist() == [0, 1300]
    coef.data[coef.indptr[0] : coef.indptr[1]] = coef.data[coef.indptr[1300] : coef.indptr[1301]] = 0
    assert abs(stored.coef() - coef).max() == 0
    assert peak < 0.7 * (coef.data.nbytes + coef.indices.nbytes)  # with all weights but these: 1


def test_groups_of_rows_reach_the_end_of_their_type():
    indptr = np.array([0, 2**31 - 10, 2**31 - 5, 2**31 - 1], np.int32)
    assert list(model_shards.groups(indptr, model_shards.PART)) == [(0, 1), (1, 3)]


def test_no_label_of_a_matrix_is_handled_by_itself(tmp_path, monkeypatch):
    """One label after the other takes 30 to 100 µs of Python for each."""
    for part, bounds in enumerate([(0, 7), (7, 16), (16, 23)]):
        write(tmp_path / str(part), label_range=bounds)
    expected = contents(write(tmp_path / "whole"))

    def refused(*_, **more):
        raise AssertionError("a label by itself")

    monkeypatch.setattr(model_writer, "checked_weights", refused)
    merge_models([tmp_path / str(part) for part in range(3)], tmp_path / "merged")
    assert contents(tmp_path / "merged") == expected
    with_weights(MultinomialLogisticRegression, np.eye(4)).save(tmp_path / "saved")
