"""Parquet and Arrow files whose columns hold lists; skipped where pyarrow is not installed."""

import importlib.util
import os
import pkgutil
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.matrices import MALFORMED, features
from xmcjax.data import (
    DataFormatError,
    Dataset,
    load,
    load_features,
    load_labels,
    load_parquet,
    load_pieces,
    save,
    save_arrow,
    save_parquet,
)

HERE = importlib.util.find_spec("pyarrow") is not None
KINDS = ("parquet", "arrow")
SAVE = {"parquet": save_parquet, "arrow": save_arrow}
needs_pyarrow = pytest.mark.skipif(not HERE, reason="the extra arrow is not installed")


def test_a_missing_package_is_said_in_a_sentence(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "d.parquet").touch()
    said = r"^Parquet and Arrow files need pyarrow: pip install 'xmcjax\[arrow\]'$"
    for call in (
        lambda: load(tmp_path / "d.parquet"),
        lambda: save(tmp_path / "d.arrow", sp.csr_matrix((1, 1)), np.zeros(1, int)),
    ):
        with pytest.raises(ImportError, match=said):
            call()
    assert os.listdir(tmp_path) == ["d.parquet"]


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    dense = rng.random((30, 7)).astype(np.float32) * (rng.random((30, 7)) < 0.4)
    X, Y = sp.csr_matrix(dense), sp.csr_matrix((rng.random((30, 5)) < 0.3).astype(np.float32))
    return X, rng.standard_normal((30, 4)).astype(np.float32), Y, np.arange(30) % 4 - 1


@needs_pyarrow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("classes", [False, True])
def test_data_come_back(tmp_path, data, kind, dense, classes, monkeypatch):
    X, y = data[1] if dense else data[0], data[3] if classes else data[2]
    path = tmp_path / f"d.{kind}"
    for name in ("ROWS", "_FEW_ROWS"):
        monkeypatch.setattr(f"xmcjax.data._arrow.{name}", 7)
    for dtype in (np.float32, np.float64):
        save(path, X.astype(dtype), y)
        sizes = dict(dtype=dtype, n_features=X.shape[1]) | ({} if classes else dict(n_labels=5))
        wanted = Dataset(X.astype(dtype), y).fingerprint()
        assert load(path, **sizes).fingerprint() == wanted
        pieces = list(load_pieces(path, piece=100, **sizes))
        assert len(pieces) > 2 and sum(piece.n_rows for piece in pieces) == 30
        features = [piece.X for piece in pieces]
        labels = [piece.y for piece in pieces]
        whole = Dataset(
            np.vstack(features) if dense else sp.vstack(features, "csr"),
            np.concatenate(labels) if classes else sp.vstack(labels, "csr"),
        )
        assert whole.fingerprint() == wanted
        assert Dataset(load_features(path, dtype=dtype, n_features=X.shape[1]), y).fingerprint() == wanted
        found = load_labels(path, **({} if classes else dict(n_labels=5)))
        assert np.array_equal(found, y) if classes else not (found != y).nnz


def many_rows(n: int = 20_000) -> tuple[sp.csr_matrix, np.ndarray]:
    """Rows of up to 3 entries, some of which have none, and a stretch of long ones."""
    rng = np.random.default_rng(3)
    lengths = np.where(np.arange(n) // 100 == 50, 800, rng.integers(0, 4, n))
    indices = np.concatenate([np.sort(rng.choice(1000, length, replace=False)) for length in lengths])
    values = rng.random(len(indices), np.float32) + 1
    return sp.csr_matrix((values, indices, np.append(0, np.cumsum(lengths))), (n, 1000)), np.arange(n) % 7


@needs_pyarrow
@pytest.mark.parametrize("kind", KINDS)
def test_dense_features_of_no_column_are_refused_and_sparse_ones_written(tmp_path, kind):
    file = tmp_path / f"d.{kind}"
    with pytest.raises(
        ValueError, match=r"^X: expected at least one column of dense .* found the shape \(3, 0\)"
    ):
        SAVE[kind](file, np.zeros((3, 0)), np.arange(3))
    assert not file.exists()
    SAVE[kind](file, sp.csr_matrix((3, 0)), np.arange(3))
    assert load(file).X.shape == (3, 0)


@needs_pyarrow
def test_small_batches_are_worked_on_together(tmp_path, monkeypatch):
    """Parquet is unpacked 64 rows at a time, for its memory; as many steps for each took most of the time."""
    X, y = many_rows()
    save_parquet(tmp_path / "d.parquet", X, y)
    where = "xmcjax.data._arrow.TableReader._features"
    taken, features = [], pkgutil.resolve_name(where)

    def spy(reader, batch):
        taken.append((batch.num_rows, batch.nbytes))
        return features(reader, batch)

    monkeypatch.setattr(where, spy)
    assert load(tmp_path / "d.parquet", n_features=1000).fingerprint() == Dataset(X, y).fingerprint()
    rows, size = np.array(taken).T
    assert rows[0] == 64 and rows.sum() == 20_000 and len(taken) < 8
    assert rows.max() < 8192 + 64 and size.max() <= 1 << 20
    taken.clear()
    assert len(list(load_pieces(tmp_path / "d.parquet", piece=50_000, n_features=1000))) > 8
    # a batch that is larger is taken as it is
    alone = [size > 50_000 for _, size in taken]
    assert 2 <= sum(alone) <= 3 and all(rows == 64 for rows, size in taken if size > 50_000)


@needs_pyarrow
@pytest.mark.parametrize("wrong", ["a value", "an index", "a class"])
def test_rows_of_small_batches_are_named(tmp_path, wrong):
    X, y = many_rows(2000)
    rows = np.repeat(np.arange(2000), np.diff(X.indptr))
    indices, values, classes = X.indices.copy(), X.data.astype(float), list(y)
    at = int(np.argmax(rows >= 1500))
    said = {
        "a value": f"finite float32 numbers in column 'feature_values', found inf in row {rows[at] + 1}$",
        "an index": f"numbers from 0 to 999 in column 'feature_indices', found 5000 in row {rows[at] + 1}$",
        "a class": "no nulls in column 'labels', found 1$",
    }[wrong]
    if wrong == "a value":
        values[at] = np.inf
    elif wrong == "an index":
        indices[at] = 5000
    else:
        classes[1500] = None
    parts = [np.split(part, X.indptr[1:-1]) for part in (indices, values)]
    written(
        tmp_path / "d.parquet",
        "parquet",
        table(feature_indices=(parts[0],), feature_values=(parts[1],), labels=(classes,)),
    )
    with pytest.raises(DataFormatError, match=said):
        load(tmp_path / "d.parquet", n_features=1000)


@needs_pyarrow
def test_sizes_that_are_not_given_are_those_of_the_rows(tmp_path, data):
    save_parquet(tmp_path / "d.parquet", data[0][:, :5], data[2][:, :3])
    X, Y = load_parquet(tmp_path / "d.parquet")
    assert X.shape[1] == int(data[0][:, :5].indices.max()) + 1 and Y.shape[1] == 3


def table(**columns):
    import pyarrow as pa

    return pa.table({name: pa.array(*given) for name, given in columns.items()})


def written(path, kind: str, content) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if kind == "parquet":
        pq.write_table(content, path)
    else:  # a stream, as other programs write
        with pa.ipc.new_stream(path, content.schema) as writer:
            writer.write_table(content)


@needs_pyarrow
@pytest.mark.parametrize("kind", KINDS)
def test_what_other_programs_write(tmp_path, kind):
    import pyarrow as pa

    path = tmp_path / f"d.{kind}"
    content = table(
        words=([[3, 1], [], [2]], pa.list_(pa.int64())),
        tfidf=([[0.5, 1], [], [0]], pa.list_(pa.float64())),
        embedding=([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float16(), 2)),
        tags=([[0], [2, 1], []], pa.large_list(pa.uint8())),
        other=(["a", None, "c"], pa.string()),
    )
    written(path, kind, content)
    X, Y = load(path, feature_columns=("words", "tfidf"), label_column="tags")
    assert X.toarray().tolist() == [[0, 1, 0, 0.5], [0] * 4, [0] * 4] and X.nnz == 2
    assert Y.toarray().tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 0]]
    E = load_features(path, feature_columns="embedding")
    assert E.dtype == np.float32 and E.tolist() == [[1, 2], [3, 4], [5, 6]]


BAD = {
    "no such column": (dict(labels=([1],)), "a column 'feature_indices', found none among 'labels'"),
    "no labels": (dict(features=([[1.0]],)), "a column 'labels', found none among 'features'"),
    "lists of other lengths": (
        dict(features=([[1.0, 2], [1]],), labels=([1, 2],)),
        "lists of 2 numbers in column 'features', found 1 in row 2",
    ),
    "a null": (dict(features=([[1.0], None],), labels=([1, 2],)), "no nulls in column 'features', found 1"),
    "a null within": (dict(features=([[1.0, None]],), labels=([1],)), "no nulls in column 'features', found"),
    "a null class": (dict(features=([[1.0], [2]],), labels=([1, None],)), "no nulls in column 'labels'"),
    "texts": (dict(features=([["a"]],), labels=([1],)), "lists of numbers in column 'features', found lists"),
    "no lists": (dict(features=([1.0],), labels=([1],)), "lists in column 'features', found double"),
    "classes with a point": (
        dict(features=([[1.0]],), labels=([1.5],)),
        "whole numbers, or lists in column 'labels', found double",
    ),
    "nan": (
        dict(features=([[1.0], [float("nan")]],), labels=([1, 2],)),
        "finite float32 numbers in column 'features', found nan in row 2",
    ),
    "too large": (dict(features=([[1e300]],), labels=([1],)), "finite float32 numbers in column 'features'"),
    "a label below 0": (
        dict(features=([[1.0], [2]],), labels=([[1], [0, -1]],)),
        "numbers from 0 to 2147483646 in column 'labels', found -1 in row 2",
    ),
    "a label twice": (
        dict(features=([[1.0], [2]],), labels=([[3, 5], [4, 2, 4]],)),
        "each number once in a row of column 'labels', found 4 again in row 2",
    ),
    "a label that is no whole number": (
        dict(features=([[1.0]],), labels=([[1.5]],)),
        "lists of whole numbers in column 'labels', found lists of double",
    ),
    "an index without a value": (
        dict(feature_indices=([[1, 2]],), feature_values=([[1.0]],), labels=([1],)),
        "as many entries in 'feature_indices' as in 'feature_values', found 2 and 1 in row 1",
    ),
    "a value that is nan": (
        dict(feature_indices=([[], [1]],), feature_values=([[], [float("inf")]],), labels=([1, 2],)),
        "finite float32 numbers in column 'feature_values', found inf in row 2",
    ),
    "a class beyond 63 bits": (
        dict(features=([[1.0]],), labels=(np.uint64([2**63]),)),
        r"classes below 2^63 in column 'labels', found a larger one",
    ),
}


@needs_pyarrow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BAD)
def test_tables_that_are_no_data(tmp_path, kind, name):
    columns, said = BAD[name]
    path = tmp_path / f"d.{kind}"
    written(path, kind, table(**columns))
    with pytest.raises(DataFormatError) as caught:
        load(path)
    assert said in str(caught.value) and str(caught.value).startswith(str(path))


@needs_pyarrow
def test_sizes_bind(tmp_path, data):
    save_parquet(tmp_path / "d.parquet", data[0], data[2])
    with pytest.raises(DataFormatError, match="numbers from 0 to 2 in column 'feature_indices'"):
        load(tmp_path / "d.parquet", n_features=3)
    with pytest.raises(DataFormatError, match="numbers from 0 to 1 in column 'labels'"):
        load(tmp_path / "d.parquet", n_labels=2)
    for read, option in ((load_features, "n_labels"), (load_labels, "n_features")):
        with pytest.raises(TypeError, match=rf"d\.parquet: expected options of .* alone, got {option}$"):
            read(tmp_path / "d.parquet", **{option: 9})
    save_parquet(tmp_path / "d.parquet", data[1], data[2])
    with pytest.raises(DataFormatError, match="lists of 3 numbers in column 'features', found 4 in row 1"):
        load(tmp_path / "d.parquet", n_features=3)
    with pytest.raises(ValueError, match=r"one column of lists of numbers, or two, .* got 3"):
        load(tmp_path / "d.parquet", feature_columns=("a", "b", "c"))
    for names in ((1,), 3, {"a": 1}):
        with pytest.raises(TypeError, match="feature_columns: expected names"):
            load(tmp_path / "d.parquet", feature_columns=names)
    with pytest.raises(ValueError, match=r"feature_columns: expected each column once, got \('a', 'a'\)"):
        load(tmp_path / "d.parquet", feature_columns=("a", "a"))
    with pytest.raises(TypeError, match="label_column: expected a name"):
        load(tmp_path / "d.parquet", label_column=1)


@needs_pyarrow
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files(tmp_path, data, kind):
    path = tmp_path / f"d.{kind}"
    SAVE[kind](path, data[0], data[2])
    whole = path.read_bytes()
    for content in (b"", b"PAR1", b"ARROW1", b"1 2 3\n", whole[: len(whole) // 2], whole[:-1], b"\0" * 100):
        path.write_bytes(content)
        with pytest.raises(
            DataFormatError, match=r"expected a complete (Parquet|Arrow) file, found a damaged"
        ):
            load(path)


@needs_pyarrow
def test_a_file_that_unpacks_to_much(tmp_path):
    import pyarrow as pa

    values = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(20_000_000, np.float32)), 1000)
    written(
        tmp_path / "d.parquet", "parquet", pa.table({"features": values, "labels": np.zeros(20_000, int)})
    )
    assert (tmp_path / "d.parquet").stat().st_size < 500_000
    with pytest.raises(DataFormatError, match=r"data that take at most .* for the first \d+,\d\d\d rows"):
        load(tmp_path / "d.parquet")
    assert load(tmp_path / "d.parquet", max_memory=10**9).X.shape == (20_000, 1000)


@needs_pyarrow
@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_matrices_are_not_written(tmp_path, data, case):
    for save_ in SAVE.values():
        with pytest.raises((ValueError, TypeError), match=r"^X[.a-z]*: expected"):
            save_(tmp_path / "d", MALFORMED[case](features()), np.arange(features().shape[0]))
        with pytest.raises((ValueError, TypeError), match=r"^Y[.a-z]*: expected"):
            save_(tmp_path / "d", data[0], MALFORMED[case](features()))
    assert list(tmp_path.iterdir()) == []


@needs_pyarrow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "names", [{"feature_columns": ["labels", "feature_values"]}, {"label_column": "features"}]
)
def test_labels_and_features_are_different_columns(tmp_path, data, kind, names):
    path = tmp_path / f"d.{kind}"
    SAVE[kind](path, data[1] if "label_column" in names else data[0], data[2])
    said = "expected labels in another column than the features, found both in '"
    with pytest.raises(DataFormatError, match=said):
        load(path, **names)
