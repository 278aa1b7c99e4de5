"""Writing, resuming and reading models."""

import errno
import json
import os
import sys
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.models import (
    META,
    N_FEATURES,
    SIZE,
    contents,
    expected_weights,
    fill,
    killed_at_once,
    label_result,
    write,
)
from xmcjax.data import fit_transforms
from xmcjax.models import (
    ArrayModel,
    IncompleteModelError,
    LinearModel,
    ModelError,
    ModelMismatchError,
    ShardWriter,
    is_trained,
    read_kernel_model,
    reserved,
    write_kernel_model,
)
from xmcjax.solvers import Status


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The bytes of a model that was written at once."""
    return contents(write(tmp_path_factory.mktemp("whole") / "m"))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_written_is_read(tmp_path, dtype):
    meta = META | {"dtype": np.dtype(dtype).name}
    with ShardWriter(tmp_path / "m", meta, shard_size=SIZE) as writer:
        assert not writer.complete
        fill(writer, dtype=dtype)
        assert writer.complete
        assert writer.missing().size == 0
    coef, intercept, status = expected_weights(dtype)
    model = LinearModel.load(tmp_path / "m")
    assert (model.n_labels, model.n_features, model.dtype, model.meta) == (23, N_FEATURES, dtype, meta)
    assert model.coef().dtype == model.intercept().dtype == dtype
    np.testing.assert_array_equal(model.coef().toarray(), coef)
    np.testing.assert_array_equal(model.intercept(), intercept)
    np.testing.assert_array_equal(model.status, status)
    np.testing.assert_array_equal(model.newton_steps, [label_result(l)[5] for l in range(23)])
    np.testing.assert_array_equal(model.cg_steps, [label_result(l)[6] for l in range(23)])
    assert model.density() == pytest.approx(np.count_nonzero(coef) / coef.size)
    assert model.complete and model.missing() == []
    for first, last in [(0, 23), (0, 1), (4, 6), (3, 19), (22, 23), (7, 7)]:
        block = model.weights(first, last)
        assert sp.issparse(block) and block.shape == (last - first, N_FEATURES)
        np.testing.assert_array_equal(block.toarray(), coef[first:last])
        W, b = model.dense_block(first, last)
        np.testing.assert_array_equal(W, coef[first:last].T)
        np.testing.assert_array_equal(b, intercept[first:last])
        np.testing.assert_array_equal(model.trained(first, last), status[first:last] == 1)
    assert repr(str(tmp_path / "m")) in repr(model)


ORDERS = {
    "reversed": range(22, -1, -1),
    "shuffled": np.random.default_rng(0).permutation(23),
    "interleaved": sorted(range(23), key=lambda label: (label % SIZE, label)),
}


@pytest.mark.parametrize("order", ORDERS)
def test_bytes_do_not_depend_on_the_order(tmp_path, order, expected):
    assert contents(write(tmp_path / "b", ORDERS[order])) == expected
    assert sorted(expected) == ["manifest.json", *(f"shard-00000{i}.safetensors" for i in range(5))]


def test_bytes_do_not_depend_on_threads(tmp_path):
    expected = contents(write(tmp_path / "a", shard_size=2))
    with ShardWriter(tmp_path / "b", META, shard_size=2) as writer:
        errors = []

        def work(part):
            try:
                fill(writer, range(part, 23, 3))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(part,)) for part in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not errors
    assert contents(tmp_path / "b") == expected


@pytest.mark.parametrize("cut", range(24))
def test_a_run_that_stops_resumes_to_the_same_bytes(tmp_path, cut, expected):
    order = np.random.default_rng(cut).permutation(23)
    with ShardWriter(tmp_path / "b", META, shard_size=SIZE) as writer:
        fill(writer, order[:cut])
        left = set(writer.missing())
    # Only labels of whole shards are on disk.
    done = set(order[:cut].tolist())
    whole = {l for l in range(23) if all(m in done for m in range(l // 5 * 5, min(l // 5 * 5 + 5, 23)))}
    assert left == set(range(23)) - whole
    with ShardWriter(tmp_path / "b", META, shard_size=SIZE, resume=True) as writer:
        assert set(writer.missing()) == left
        fill(writer)
    assert contents(tmp_path / "b") == expected


def test_shards_that_do_not_match_their_hash_are_done_again(tmp_path):
    transforms = {"idf.weight": np.arange(50.0)}
    expected = contents(write(tmp_path / "m", transforms_arrays=transforms))
    with open(tmp_path / "m" / "shard-000001.safetensors", "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x55")
    (tmp_path / "m" / "shard-000003.safetensors").unlink()
    (tmp_path / "m" / "shard-000004.safetensors").write_bytes(b"short")
    (tmp_path / "m" / "transforms.safetensors").write_bytes(b"damaged")
    with ShardWriter(
        tmp_path / "m", META, shard_size=SIZE, transforms_arrays=transforms, resume=True
    ) as writer:
        assert writer.missing().tolist() == [*range(5, 10), *range(15, 23)]
        # The manifest no longer names what is damaged.
        assert LinearModel.load(tmp_path / "m", partial=True).missing() == [(5, 10), (15, 23)]
        fill(writer)
    assert contents(tmp_path / "m") == expected


def test_nothing_that_exists_is_touched(tmp_path):
    write(tmp_path / "m")
    before = contents(tmp_path / "m")
    with pytest.raises(FileExistsError, match="found a model; --resume continues it"):
        ShardWriter(tmp_path / "m", META, shard_size=SIZE)
    assert contents(tmp_path / "m") == before
    (tmp_path / "n").mkdir()
    (tmp_path / "n" / "thesis.tex").write_text("x")
    for resume in (False, True):
        with pytest.raises(FileExistsError, match=r"thesis\.tex \(nothing was changed\)"):
            ShardWriter(tmp_path / "n", META, resume=resume)
    assert [p.name for p in (tmp_path / "n").iterdir()] == ["thesis.tex"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotADirectoryError, match="expected a directory, found a file"):
        ShardWriter(tmp_path / "file", META)
    # Shards without a manifest are not ours to continue.
    (tmp_path / "m" / "manifest.json").unlink()
    with pytest.raises(FileExistsError, match=r"found no manifest\.json but shard-000000"):
        ShardWriter(tmp_path / "m", META, shard_size=SIZE, resume=True)


def test_resume_starts_afresh_where_there_is_nothing(tmp_path, expected):
    assert contents(write(tmp_path / "b" / "c", resume=True)) == expected
    # Left-overs of a run that was killed before its first manifest, and the record of the run.
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / ".manifest.json.0123456789abcdef.tmp").write_text("{")
    (tmp_path / "d" / "transforms.safetensors").write_text("half")
    write(tmp_path / "d", resume=True)
    assert contents(tmp_path / "d") == expected


def test_a_writer_withdraws_what_it_has_begun_and_nothing_that_is_stored(tmp_path):
    def withdrawn(directory, labels=0, **more):
        with pytest.raises(MemoryError), ShardWriter(directory, META, **more) as writer:
            for label in writer.missing()[:labels]:
                writer.add(label, [], np.float32([]))
            writer.withdraw()
            raise MemoryError
        return set(os.listdir(directory)) if directory.exists() else None

    arrays = {"idf": np.ones(N_FEATURES, np.float32)}
    assert withdrawn(tmp_path / "new", transforms_arrays=arrays) is None
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.json").write_text("{}")
    assert withdrawn(tmp_path / "other", resume=True) == {"run.json"}
    kept = withdrawn(tmp_path / "stored", labels=1, shard_size=1)
    assert kept is not None and len(kept) == 2 and "manifest.json" in kept
    # what another run has begun
    assert withdrawn(tmp_path / "stored", shard_size=1, resume=True) == kept
    ShardWriter(tmp_path / "begun", META)._lock.release()
    assert withdrawn(tmp_path / "begun", resume=True) == {"manifest.json"}


def kernel_model(directory, **more):
    meta = {"n_features": 2, "n_labels": 2, "dtype": "float32"}
    write_kernel_model(directory, meta, {"alpha": np.eye(2, dtype=np.float32)}, **more)


def test_what_a_killed_writer_left_is_replaced_by_a_model_of_either_kind(tmp_path, expected):
    killed_at_once(tmp_path)
    with reserved(tmp_path):
        kernel_model(tmp_path, held=True)
    assert read_kernel_model(tmp_path).meta["n_labels"] == 2
    (tmp_path / "manifest.json").unlink()
    assert contents(write(tmp_path, at_once=True)) == expected


@pytest.mark.parametrize(
    "make",
    [
        kernel_model,
        lambda directory: write(directory, at_once=True),
        lambda directory: write(directory, at_once=True, resume=True),
    ],
)
def test_nothing_that_a_killed_writer_left_is_removed_beside_other_files(tmp_path, make):
    killed_at_once(tmp_path)
    (tmp_path / "thesis.tex").write_text("x")
    before = contents(tmp_path)
    found = r"found thesis\.tex beside what a killed writer has left \(nothing was changed\)$"
    with pytest.raises(FileExistsError, match=found):
        make(tmp_path)
    assert contents(tmp_path) == before


def test_a_folder_is_nothing_that_a_writer_left(tmp_path):
    (tmp_path / "arrays.safetensors").mkdir()
    (tmp_path / "names.json").write_text("{}")
    for make in (kernel_model, lambda directory: write(directory, at_once=True)):
        with pytest.raises(FileExistsError, match=r"found arrays\.safetensors beside what a killed writer"):
            make(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["arrays.safetensors", "names.json"]


def test_resume_removes_only_its_own_left_overs(tmp_path):
    write(tmp_path / "m")
    own = [
        ".shard-000001.safetensors.0123456789abcdef.tmp",
        ".manifest.json.0123456789abcdef.tmp",
        ".transforms.safetensors.0123456789abcdef.tmp",
        ".run.json.0123456789abcdef.tmp",
    ]
    foreign = ["run.json", "predictions.txt", ".shard-000001.safetensors.tmp", "x.0123456789abcdef.tmp"]
    for name in own + foreign:
        (tmp_path / "m" / name).write_text("x")
    write(tmp_path / "m", resume=True)
    names = {p.name for p in (tmp_path / "m").iterdir()}
    assert not names & set(own)
    assert set(foreign) <= names
    LinearModel.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"meta": META | {"C": 2.0}}, "started with C = 1.0, this run has 2.0"),
        ({"meta": META | {"data": "ffff"}}, "started with data = '0123abcd', this run has 'ffff'"),
        ({"meta": META | {"zeta": 1}}, "started with zeta = nothing, this run has 1"),
        ({"meta": {k: META[k] for k in META if k != "loss"}}, "'squared_hinge', this run has nothing"),
        ({"shard_size": 6}, "started with shard_size = 5, this run has 6"),
        ({"label_range": (0, 10)}, r"started with label_range = \(0, 23\), this run has \(0, 10\)"),
        ({"transforms_arrays": {"w": np.ones(50)}}, "started with transforms = none, this run has arrays"),
        # Options before the data, whose hash depends on the dtype.
        ({"meta": META | {"data": "f", "dtype": "float64"}}, "dtype = 'float32', this run has 'float64'"),
        # The first of several differences, by name.
        ({"meta": META | {"loss": "hinge", "C": 3.0}, "shard_size": 1}, "with C = 1.0, this run has 3.0"),
    ],
)
def test_resume_with_other_options_is_refused(tmp_path, changes, words):
    before = contents(write(tmp_path / "m", range(7)))
    with pytest.raises(ModelMismatchError, match=words):
        write(tmp_path / "m", resume=True, **changes)
    assert contents(tmp_path / "m") == before


def test_resume_compares_as_json_does(tmp_path):
    meta = META | {"transforms": ("log", "unit"), "C": np.float32(1), "seed": np.int64(3)}
    write(tmp_path / "m", meta=meta)
    write(tmp_path / "m", meta=META | {"transforms": ["log", "unit"], "C": 1, "seed": 3}, resume=True)
    assert LinearModel.load(tmp_path / "m").meta["transforms"] == ["log", "unit"]


def test_ranges_of_labels(tmp_path):
    write(tmp_path / "m", label_range=(7, 18))
    shards = [f"shard-00000{number}.safetensors" for number in (1, 2, 3)]
    assert sorted(contents(tmp_path / "m")) == ["manifest.json", *shards]
    coef, intercept, status = expected_weights()
    model = LinearModel.load(tmp_path / "m")
    assert model.label_range == (7, 18) and model.n_labels == 23 and model.complete
    np.testing.assert_array_equal(model.coef().toarray()[7:18], coef[7:18])
    assert model.coef()[:7].nnz == 0 and model.coef()[18:].nnz == 0
    inside = (np.arange(23) >= 7) & (np.arange(23) < 18)
    np.testing.assert_array_equal(model.status, np.where(inside, status, -1))
    np.testing.assert_array_equal(model.intercept(), np.where(inside, intercept, 0))
    np.testing.assert_array_equal(model.trained(0, 23), inside & (status == 1))
    assert model.density() == pytest.approx(np.count_nonzero(coef[7:18]) / coef[7:18].size)


def test_an_incomplete_model_says_what_is_missing(tmp_path):
    write(tmp_path / "m", [*range(5, 10), *range(15, 20), 1, 2])
    with pytest.raises(
        IncompleteModelError,
        match=r"expected labels 0 to 22, found 13 of them missing \(0-4, 10-14, 20-22\); .*--resume",
    ):
        LinearModel.load(tmp_path / "m")
    model = LinearModel.load(tmp_path / "m", partial=True)
    assert not model.complete
    assert model.missing() == [(0, 5), (10, 15), (20, 23)]
    coef, _, status = expected_weights()
    stored = np.isin(np.arange(23) // 5, [1, 3])
    np.testing.assert_array_equal(model.coef().toarray(), coef * stored[:, None])
    np.testing.assert_array_equal(model.trained(0, 23), stored & (status == 1))
    W, b = model.dense_block(3, 12)
    np.testing.assert_array_equal(W, (coef * stored[:, None])[3:12].T)
    assert b[0] == 0


def test_many_gaps_are_counted_not_listed(tmp_path):
    write(tmp_path / "m", range(0, 23, 2), shard_size=1)
    with pytest.raises(IncompleteModelError, match=r"11 of them missing \(1, 3, 5, 7, 9 and 6 more runs\)"):
        LinearModel.load(tmp_path / "m")


def test_one_writer_at_a_time(tmp_path):
    writer = ShardWriter(tmp_path / "m", META)
    with pytest.raises(ModelError, match="found one at work"):
        ShardWriter(tmp_path / "m", META, resume=True)
    writer.close()
    with pytest.raises(ValueError, match="found it closed"):
        writer.add(*label_result(0))
    second = ShardWriter(tmp_path / "m", META, resume=True)
    del second  # forgotten, not closed
    ShardWriter(tmp_path / "m", META, resume=True).close()


def test_a_system_without_locks_need_not_open_folders(tmp_path, monkeypatch):
    opened = os.open

    def refuse(path, *arguments, **more):
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return opened(path, *arguments, **more)

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setattr(os, "open", refuse)
    with ShardWriter(tmp_path / "m", META | {"n_labels": 1}) as writer:
        assert writer._lock.held
        writer.add(0, np.array([1], np.int32), np.array([1], np.float32))
    assert not writer._lock.held
    assert LinearModel.load(tmp_path / "m").coef().nnz == 1


def test_the_callers_buffers_may_be_used_again_and_zeros_are_not_stored(tmp_path):
    indices, values = np.array([3, 5, 6], np.int32), np.array([1, 2, -0.0], np.float32)
    with ShardWriter(tmp_path / "m", META | {"n_labels": 2}) as writer:
        writer.add(0, indices, values)
        indices[:], values[:] = [7, 9, 11], [3, 4, 0]
        writer.add(1, indices, values)
    model = LinearModel.load(tmp_path / "m")
    assert model.coef().indices.tolist() == [3, 5, 7, 9] and model.coef().data.tolist() == [1, 2, 3, 4]
    assert model.density() == 4 / (2 * N_FEATURES)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((23, [], np.float32([])), ValueError, "label 23: expected a label from 0 to 22"),
        ((-1, [], np.float32([])), ValueError, "label: expected at least 0, got -1"),
        ((0, [1, 2], np.float32([1])), ValueError, "of one length"),
        ((0, [1.5], np.float32([1])), ValueError, "indices of type float64"),
        ((0, [1], np.float64([1])), TypeError, "values of type float32, found float64"),
        ((0, [50], np.float32([1])), ValueError, "ascending features from 0 to 49"),
        ((0, [-1], np.float32([1])), ValueError, "ascending features"),
        ((0, [3, 2], np.float32([1, 1])), ValueError, "ascending features"),
        ((0, [3, 3], np.float32([1, 1])), ValueError, "ascending features"),
        ((0, np.array([3, 2], np.uint8), np.float32([1, 1])), ValueError, "ascending features"),
        ((0, [3], np.float32([np.nan])), ValueError, "finite weights"),
        ((0, [3], np.float32([1]), -np.inf), ValueError, "finite weights"),
        ((0, [3], np.float32([1]), 1e39), ValueError, "finite weights"),  # in float32
        ((0, [3], np.float32([1]), 0.0, -2), ValueError, "status: expected at least -1, got -2"),
        ((0, [3], np.float32([1]), 0.0, 7), ValueError, "status: expected at most 6, got 7"),
        ((0, [3], np.float32([1]), 0.0, 1, -1), ValueError, "newton_steps: expected at least 0, got -1"),
        ((9, [3], np.float32([1])), ValueError, "label 9: .* given twice"),
        ((2, [3], np.float32([1])), ValueError, "label 2: .* given twice"),
    ],
)
def test_impossible_weights_are_refused(tmp_path, arguments, error, words):
    with ShardWriter(tmp_path / "m", META, shard_size=SIZE) as writer:
        # Label 9 is buffered, label 2 on disk.
        fill(writer, [9, *range(5)] if "twice" in words else [])
        with pytest.raises(error, match=words):
            writer.add(*arguments)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"label_range": (5, 5)}, ValueError, "label_range"),
        ({"label_range": (0, 24)}, ValueError, "label_range"),
        ({"shard_size": 0}, ValueError, "shard_size"),
        ({"meta": {"n_features": 3}}, ValueError, "n_labels as an integer"),
        ({"meta": META | {"n_features": 0}}, ValueError, "n_features as an integer"),
        ({"meta": META | {"n_features": 2**31}}, ValueError, "n_features as an integer"),
        ({"meta": META | {"dtype": "float16"}}, ValueError, "dtype float32 or float64, found 'float16'"),
        ({"meta": META | {"C": float("nan")}}, ValueError, "nan or infinity"),
        ({"meta": META | {"C": {1, 2}}}, TypeError, "JSON can hold, found set"),
        ({"meta": META | {3: 4}}, TypeError, "strings for keys, found 3"),
        ({"transforms_arrays": {"w": np.ones((2, 3))}}, ValueError, r"\[50\] as 'w', found shape \[2, 3\]"),
        ({"transforms_arrays": {"w": np.full(50, np.nan)}}, ValueError, "'w', found NaN or infinity"),
    ],
)
def test_impossible_options_are_refused_before_anything_is_made(tmp_path, changes, error, words):
    with pytest.raises(error, match=words):
        write(tmp_path / "m", **changes)
    assert not (tmp_path / "m").exists()


def test_blocks_out_of_range(tmp_path):
    model = LinearModel.load(write(tmp_path / "m"))
    for function in (model.weights, model.dense_block, model.trained):
        for bounds in [(-1, 3), (0, 24), (5, 4)]:
            with pytest.raises(IndexError, match="0 <= first <= last <= 23"):
                function(*bounds)


def test_transforms_are_kept(tmp_path):
    X = sp.csr_array(np.random.default_rng(0).poisson(0.5, (30, N_FEATURES)).astype(np.float32))
    transforms = fit_transforms("log,idf,unit", X)
    meta = META | {"transforms": transforms.names}
    write(tmp_path / "m", meta=meta, transforms_arrays=dict(transforms.arrays))
    assert "transforms.safetensors" in contents(tmp_path / "m")
    model = LinearModel.load(tmp_path / "m")
    assert sorted(model.transforms_arrays()) == sorted(transforms.arrays)
    np.testing.assert_array_equal(model.transforms().apply(X).toarray(), transforms.apply(X).toarray())
    plain = LinearModel.load(write(tmp_path / "n"))
    assert plain.transforms_arrays() == {} and plain.transforms().names == ()


def test_a_model_moves(tmp_path):
    write(tmp_path / "m")
    coef = LinearModel.load(tmp_path / "m").coef()
    (tmp_path / "m").rename(tmp_path / "elsewhere")
    model = LinearModel.load(str(tmp_path / "elsewhere"))
    np.testing.assert_array_equal(model.coef().toarray(), coef.toarray())


def test_a_million_labels_open_lazily(tmp_path):
    """250 shards: opening reads none of them, and a block reads those it touches, once."""
    with ShardWriter(tmp_path / "m", META | {"n_labels": 1000}, shard_size=4) as writer:
        for label in range(1000):
            writer.add(label, [label % 50], np.float32([label + 1]), label, newton_steps=label)
    shards = sorted((tmp_path / "m").glob("shard-*"))
    kept = {path: path.read_bytes() for path in shards[100:103]}
    for path in shards:
        path.write_bytes(bytes(path.stat().st_size))  # which nobody could read
    model = LinearModel.load(tmp_path / "m", verify="size")
    for path, content in kept.items():
        path.write_bytes(content)
    W, b = model.dense_block(402, 410)
    assert W[402 % 50, 0] == 403 and b.tolist() == list(range(402, 410))
    for path in shards:
        path.unlink()
    assert model.trained(406, 410).all()


def test_what_is_no_model(tmp_path):
    with pytest.raises(ValueError, match="one of full, lazy, size, none, got 'some'"):
        LinearModel.load(tmp_path, verify="some")
    for directory in (tmp_path / "none", tmp_path):
        with pytest.raises(FileNotFoundError):
            LinearModel.load(directory)


def test_labels_of_some_statuses_have_no_score():
    status = np.array([*Status], np.int8)
    without = {Status.FRESH, Status.NONFINITE, Status.NO_POSITIVES}
    assert is_trained(status).tolist() == [end not in without for end in Status]
    model = ArrayModel(np.ones((len(status), 2)), None, status)
    assert model.trained(0, len(status)).tolist() == is_trained(status).tolist()


def test_every_way_to_end_is_stored(tmp_path):
    ends = [*Status]
    with ShardWriter(tmp_path / "m", META | {"n_labels": len(ends)}) as writer:
        for label, end in enumerate(ends):
            writer.add(label, [], np.float32([]), status=end)
    assert LinearModel.load(tmp_path / "m").status.tolist() == ends


def test_nothing_of_the_machine_is_stored(tmp_path):
    text = (write(tmp_path / "m") / "manifest.json").read_text()
    content = json.loads(text)
    names = "format label_range manifest_sha256 meta schema_version shard_size shards transforms"
    assert sorted(content) == names.split()
    assert content["meta"] == META
    assert str(tmp_path) not in text
