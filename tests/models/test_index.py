"""Weights by feature beside the shards: what they predict, and what is said of damaged ones."""

import json
import shutil

import numpy as np
import pytest
import scipy.sparse as sp
from safetensors.numpy import load_file

from tests.support.internals import model_index
from tests.support.models import LABELS, META, N_FEATURES, SIZE, expected_weights, write
from tests.support.problems import needs_native
from tests.support.processes import python
from xmcjax.models import (
    ArrayModel,
    IncompleteModelError,
    LinearModel,
    ModelError,
    ModelFormatError,
    Predictor,
    ShardWriter,
    predict_topk,
    write_index,
)
from xmcjax.native import PerformanceWarning


@pytest.fixture
def small_blocks(monkeypatch):
    """A block for some labels of each feature, so that there are several."""
    monkeypatch.setattr(model_index, "_BLOCK", 8)


@pytest.fixture
def directory(tmp_path, small_blocks):
    write(tmp_path / "model")
    write_index(tmp_path / "model")
    return tmp_path / "model"


def rows(n=40, density=0.3, seed=0):
    rng = np.random.default_rng(seed)
    return sp.random_array((n, N_FEATURES), density=density, rng=rng, format="csr", dtype=np.float32)


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_predicts_as_the_weights(tmp_path, small_blocks, monkeypatch, dtype, native):
    meta = META | {"dtype": np.dtype(dtype).name}
    directory = write(tmp_path / "model", dtype=dtype, meta=meta)
    write_index(directory)
    if not native:
        monkeypatch.setenv("XMCJAX_NATIVE", "0")  # nobody is warned of it
        monkeypatch.setattr("xmcjax.native.load_library", lambda: None)
    monkeypatch.setattr(LinearModel, "weights", None)  # the shards are not read
    predictor = Predictor(directory)
    coef, bias, status = expected_weights(dtype)
    for X in (rows(1), rows(40).astype(dtype), rows(3).toarray()):
        expected = predict_topk(ArrayModel(coef, bias, status), X.astype(dtype), 6)
        labels, scores = predictor.predict_topk(X, 6)
        np.testing.assert_array_equal(labels, expected[0])
        np.testing.assert_allclose(scores, expected[1], rtol=1e-5, atol=1e-6)
        all_of_them = predictor.decision_function(X)
        assert scores.dtype == all_of_them.dtype == dtype
        np.testing.assert_allclose(
            predictor.decision_function(X, [22, 0, 6]), all_of_them[:, [22, 0, 6]], rtol=1e-5, atol=1e-6
        )


def test_the_bytes_do_not_depend_on_the_memory(directory):
    content = (directory / model_index.INDEX).read_bytes()
    for memory in (1, 40 * 30, 1 << 30):
        assert write_index(directory, memory=memory).read_bytes() == content


def test_it_is_a_safetensors_file(directory):
    arrays = load_file(directory / model_index.INDEX)
    coef, bias, status = expected_weights()
    assert list(arrays) != [] and arrays["hashes"].shape == (-(-np.count_nonzero(coef) // 8), 32)
    columns = sp.csc_array((arrays["values"], arrays["labels"], arrays["indptr"]), shape=coef.shape)
    np.testing.assert_array_equal(columns.toarray(), coef)
    np.testing.assert_array_equal(arrays["bias"], np.where(status == 5, -np.inf, bias))


def test_every_flipped_bit_is_found(directory):
    path = directory / model_index.INDEX
    content = path.read_bytes()
    X, coef = rows(1, density=1.0), expected_weights()
    expected = Predictor(ArrayModel(*coef)).predict_topk(X, 5)
    digest = content.index(json_of(path)["manifest_sha256"].encode())
    for place in np.random.default_rng(0).choice(len(content), 150, replace=False):
        flip(path, place)
        if digest <= place < digest + 64:  # the index counts as that of another state
            with pytest.warns(PerformanceWarning, match="of another state"):
                found = Predictor(directory).predict_topk(X, 5)
            np.testing.assert_array_equal(found[0], expected[0])
        else:
            with pytest.raises(ModelFormatError, match=model_index.INDEX):
                Predictor(directory).predict_topk(X, 5)
        path.write_bytes(content)


def json_of(path):
    """The metadata of an index."""
    content = path.read_bytes()
    return json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]


@pytest.mark.parametrize("length", [0, 7, 8, 60, 500, -1])
def test_every_truncation_is_found(directory, length):
    path = directory / model_index.INDEX
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ModelFormatError, match=model_index.INDEX):
        Predictor(directory)


def rewritten(directory, change):
    """The index after ``change(arrays)``, with hashes that are right."""
    path = directory / model_index.INDEX
    model, arrays = LinearModel.load(directory), dict(load_file(path))
    manifest = json_of(path)["manifest_sha256"]
    change(arrays)
    layout = model_index._Layout(model, len(arrays["values"]))
    blocks = [slice(i, i + 8) for i in range(0, len(arrays["values"]), 8)]
    digests = b"".join(model_index._digest(arrays["values"][b], arrays["labels"][b]) for b in blocks)
    parts = {name: array.tobytes() for name, array in arrays.items()} | {"hashes": digests}
    head = b"".join(parts[name] for name in ("indptr", "bias", "hashes"))
    content = layout.header(manifest, model_index.hashlib.sha256(head).hexdigest())
    path.write_bytes(content + b"".join(parts[name] for name in layout.tensors))


def set_entry(name, place, value):
    def change(arrays):
        arrays[name] = arrays[name].copy()
        arrays[name][place] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_entry("labels", 9, LABELS), "ascending labels below 23"),
        (set_entry("labels", 9, -1), "ascending labels below 23"),
        (set_entry("labels", slice(None), 3), "ascending labels below 23"),
        (set_entry("values", 20, np.nan), "finite weights"),
        (set_entry("values", 0, np.inf), "finite weights"),
        (set_entry("indptr", 3, 1 << 40), "an indptr that rises"),
        (set_entry("indptr", 3, -1), "an indptr that rises"),
        (set_entry("indptr", 0, 1), "an indptr that rises"),
        (set_entry("indptr", -1, 0), "an indptr that rises"),
        (set_entry("bias", 2, np.nan), "finite biases"),
        (set_entry("bias", 2, np.inf), "finite biases"),
        (
            lambda arrays: arrays.update(values=arrays["values"][:-1], labels=arrays["labels"][:-1]),
            "weights as",
        ),
    ],
)
def test_an_index_that_lies_with_right_hashes_is_refused(directory, change, words):
    rewritten(directory, lambda arrays: None)
    Predictor(directory).predict_topk(rows(density=1.0), 2)
    rewritten(directory, change)
    with pytest.raises(ModelFormatError, match=words):
        Predictor(directory).predict_topk(rows(density=1.0), 2)


def test_labels_that_do_not_rise_are_found_in_every_block(directory):
    """Labels of a feature that spans blocks are compared across their border."""
    indptr = load_file(directory / model_index.INDEX)["indptr"]
    inside = np.setdiff1d(np.arange(1, indptr[-1]), indptr)
    for place in inside:
        rewritten(directory, set_entry("labels", place, 0))
        with pytest.raises(ModelFormatError, match="ascending labels"):
            Predictor(directory).predict_topk(rows(density=1.0), 2)
        write_index(directory)


def test_only_what_a_row_needs_is_looked_at(directory):
    path = directory / model_index.INDEX
    layout = model_index._Layout(LinearModel.load(directory), LinearModel.load(directory).n_weights)
    flip(path, layout.tensors["labels"].begin + 1)  # of the first block
    indptr = load_file(path)["indptr"]
    feature = int(np.searchsorted(indptr, 8))
    X = sp.csr_array(([1.0], ([0], [feature])), shape=(1, N_FEATURES), dtype=np.float32)
    coef = expected_weights()
    predictor = Predictor(directory)
    expected = predict_topk(ArrayModel(*coef), X, 3)
    np.testing.assert_array_equal(predictor.predict_topk(X, 3)[0], expected[0])
    # many rows of these features too, for which blocks of labels are made
    many = sp.vstack([X] * 100).tocsr()
    np.testing.assert_array_equal(predictor.predict_topk(many, 3)[0], np.tile(expected[0], (100, 1)))
    for _ in range(2):
        with pytest.raises(ModelFormatError, match="the SHA-256 of block 0, found another one"):
            predictor.predict_topk(rows(density=1.0), 3)


def test_an_index_of_another_state_is_not_used(tmp_path, small_blocks):
    directory = tmp_path / "model"
    write(directory)
    write_index(directory)
    other = write(tmp_path / "other", meta=META | {"C": 2.0})
    (other / model_index.INDEX).write_bytes((directory / model_index.INDEX).read_bytes())
    with pytest.warns(PerformanceWarning, match="of another state .*: xmcjax index makes it anew"):
        predictor = Predictor(other)
    assert predictor.predict_topk(rows(), 2)[0].shape == (40, 2)
    write_index(other)
    Predictor(other)


def test_a_model_that_is_not_complete_or_is_being_written_has_none(tmp_path):
    part = write(tmp_path / "part", range(5))
    with pytest.raises(IncompleteModelError):
        write_index(part)
    write(tmp_path / "open")
    again = dict(meta=META, shard_size=SIZE, resume=True)
    with ShardWriter(tmp_path / "open", **again), pytest.raises(ModelError, match="no other writer"):
        write_index(tmp_path / "open")
    with pytest.raises(FileNotFoundError):
        write_index(tmp_path / "nothing")
    write_index(tmp_path / "open")
    # a model that has one can be resumed, and a left-over of a killed writer goes
    left = tmp_path / "open" / f".{model_index.INDEX}.{'0' * 16}.tmp"
    left.write_bytes(b"")
    with ShardWriter(tmp_path / "open", **again):
        pass
    assert not left.exists() and (tmp_path / "open" / model_index.INDEX).exists()


def test_a_model_without_weights(tmp_path):
    meta = META | {"n_labels": 2}
    with ShardWriter(tmp_path / "model", meta) as writer:
        for label in range(2):
            writer.add(label, [], np.empty(0, np.float32), 1.0 - label)
    write_index(tmp_path / "model")
    labels, scores = Predictor(tmp_path / "model").predict_topk(rows(2), 3)
    assert labels.tolist() == [[0, 1, -1]] * 2 and scores.tolist() == [[1, 0, -np.inf]] * 2


def test_a_fifo_in_its_place_is_refused(tmp_path):
    directory = write(tmp_path / "model")
    model_index.os.mkfifo(directory / model_index.INDEX)
    for use in (Predictor, write_index):
        with pytest.raises(ModelFormatError, match="a regular file"):
            use(directory)


@needs_native
def test_an_index_that_is_changed_while_it_is_mapped_writes_nowhere_else(directory):
    predictor = Predictor(directory)
    for X in (rows(1, density=1.0), rows(400, density=1.0)):
        predictor.predict_topk(X, 3)
        layout = model_index._Layout(LinearModel.load(directory), LinearModel.load(directory).n_weights)
        tensor = layout.tensors["labels"]
        for label in (-1, -(1 << 31), LABELS, 30_000, (1 << 31) - 1):
            with open(directory / model_index.INDEX, "r+b") as file:
                file.seek(tensor.begin)
                file.write(np.full(tensor.shape, label, np.int32).tobytes())
            labels, _ = predictor.predict_topk(X, 3)
            assert labels.max() < LABELS
            assert predictor.decision_function(X).shape == (X.shape[0], LABELS)


def test_scipy_gets_no_labels_of_a_changed_index(directory, monkeypatch):
    monkeypatch.setattr("xmcjax.native.load_library", lambda: None)
    predictor = Predictor(directory)
    predictor.predict_topk(rows(density=1.0), 3)
    tensor = model_index._Layout(LinearModel.load(directory), LinearModel.load(directory).n_weights).tensors[
        "labels"
    ]
    with open(directory / model_index.INDEX, "r+b") as file:
        file.seek(tensor.begin)
        file.write(np.full(tensor.shape, 1 << 30, np.int32).tobytes())
    with pytest.raises(ValueError, match="expected labels from 0 to 22, found others: the index was changed"):
        predictor.predict_topk(rows(density=1.0), 3)


@pytest.mark.parametrize(
    ("memory", "kind"), [(None, TypeError), ("1", TypeError), (0, ValueError), (1 << 70, ValueError)]
)
def test_a_memory_that_is_no_number_of_bytes_is_refused(directory, memory, kind):
    before = (directory / model_index.INDEX).read_bytes()
    with pytest.raises(kind, match=r"^memory: expected "):
        write_index(directory, memory=memory)
    assert (directory / model_index.INDEX).read_bytes() == before


def test_the_memory_of_an_index_is_bounded(tmp_path):
    meta = META | {"n_features": 4000, "n_labels": 1000}
    with ShardWriter(tmp_path / "model", meta, shard_size=20) as writer:
        for label in range(1000):
            writer.add(label, np.arange(4000), np.ones(4000, np.float32))
    model = LinearModel.load(tmp_path / "model")
    assert model.shard_runs(400_000) == [(first, first + 100) for first in range(0, 1000, 100)]
    program = f"""
import resource, numpy as np
from xmcjax.models import write_index
def size(): return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
write_index({str(tmp_path / "model")!r}, memory=1 << 20)
before = size()
import threading, time
most, ended = [0], threading.Event()
def look():
    while not ended.wait(0.005):
        most[0] = max(most[0], size())
thread = threading.Thread(target=look)
thread.start()
write_index({str(tmp_path / "model")!r}, memory=16 << 20)
ended.set()
thread.join()
print(most[0] - before)
"""
    done = python(program)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 40 << 20  # of 32 MB of weights and labels, and a shard


def test_a_model_that_was_opened_before_takes_no_later_index(tmp_path, small_blocks):
    directory = write(tmp_path / "model")
    model = LinearModel.load(directory)
    shutil.rmtree(directory)
    write(directory, meta=META | {"C": 5.0})
    write_index(directory)
    with pytest.warns(PerformanceWarning, match="of another state"):
        Predictor(model)
