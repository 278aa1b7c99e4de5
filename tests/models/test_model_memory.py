"""What reading a model takes beside its weights, and the parts in which shards are read."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from safetensors.numpy import load_file, save_file

from tests.support.models import LABELS, META, N_FEATURES, write
from xmcjax import MultinomialLogisticRegression, OneVsAllClassifier
from xmcjax.models import LinearModel, ModelFormatError
from xmcjax.models._shard import decode, decode_parts

LONG = 500, 16_000  # of one shard: 32 MB of dense float32


def peak_of(function):
    """What a call gives, and the bytes that it takes at most."""
    tracemalloc.start()
    try:
        result = function()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


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
    whole, parts = decode(path, *sizes), list(decode_parts(path, *sizes, most))
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
    ],
)
def test_damage_is_found_in_each_part(tmp_path, most, name, value, words):
    path = write(tmp_path / "m", shard_size=LABELS) / "shard-000000.safetensors"
    arrays = load_file(path)
    arrays[name][-1] = value
    save_file(arrays, path)
    sizes = LABELS, len(arrays["values"]), N_FEATURES, np.dtype(np.float32)
    with pytest.raises(ModelFormatError, match=words):
        list(decode_parts(path, *sizes, most))


def test_models_without_weights_and_dense_ones_that_lack_classes(tmp_path):
    empty = LinearModel.load(write(tmp_path / "m", labels=[6, 13, 20], shard_size=1), partial=True)
    assert empty.coef().shape == (LABELS, N_FEATURES) and empty.coef().nnz == 0
    assert not empty.dense(np.arange(LABELS)).any()
    model = LinearModel.load(write(tmp_path / "n"))
    labels = np.array([0, 3, 4, 7, 22])
    np.testing.assert_array_equal(model.dense(labels), model.coef().toarray()[labels])
    assert model.dense(labels).dtype == META["dtype"]
