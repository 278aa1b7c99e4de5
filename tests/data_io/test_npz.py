"""The npz form, and load, save, convert and fingerprint over all formats."""

import io
import os
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.matrices import assert_same
from xmcjax.data import FORMATS, DataFormatError, Dataset, convert, load, load_npz, save, save_npz, save_xmc


@pytest.fixture
def data():
    rng = np.random.default_rng(3)
    X = sp.csr_matrix(sp.random_array((9, 7), density=0.4, rng=rng), dtype=np.float32)
    Y = sp.csr_matrix(rng.random((9, 4)) < 0.4, dtype=np.float32)
    return X, Y


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_round_trip(tmp_path, data, dtype, compressed):
    X, Y = data[0].astype(dtype), data[1].astype(dtype)
    save_npz(tmp_path / "a.npz", X, Y, compressed=compressed)
    X_read, Y_read = load_npz(tmp_path / "a.npz")
    assert_same(X_read, X)
    assert_same(Y_read, Y)
    classes = np.arange(-4, 5, dtype=np.int16)
    save_npz(tmp_path / "a.npz", X, classes, compressed=compressed)
    X_read, y_read = load_npz(tmp_path / "a.npz", np.float64)
    assert_same(X_read, X.astype(np.float64))
    np.testing.assert_array_equal(y_read, classes)
    assert y_read.dtype == np.int64


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (4, 2)])
def test_round_trip_without_entries(tmp_path, shape):
    X = sp.csr_matrix(shape, dtype=np.float32)
    save_npz(tmp_path / "a.npz", X, X)
    for matrix in load_npz(tmp_path / "a.npz"):
        assert_same(matrix, X)


def test_equal_data_give_equal_bytes(tmp_path, data):
    X, Y = data
    save_npz(tmp_path / "a.npz", X, Y)
    shuffled = sp.csc_matrix(X.tocoo())
    save_npz(tmp_path / "b.npz", sp.coo_array(shuffled), Y.astype(bool))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    # The name is kept as it is, without a suffix of numpy's own.
    save_npz(tmp_path / "c", X, Y)
    assert (tmp_path / "c").read_bytes() == (tmp_path / "a.npz").read_bytes()


@pytest.mark.parametrize("compressed", [False, True])
def test_truncation_and_bit_flips(tmp_path, data, compressed):
    """A damaged file is an error, or it still holds the same data (a flip in a time stamp)."""
    X, Y = data
    path = tmp_path / "a.npz"
    save_npz(path, X, Y, compressed=compressed)
    content = path.read_bytes()
    for stop in range(0, len(content), 7):
        path.write_bytes(content[:stop])
        with pytest.raises(DataFormatError, match=r"a\.npz: expected "):
            load_npz(path)
    rng = np.random.default_rng(0)
    errors = 0
    for bit in rng.integers(8 * len(content), size=400):
        broken = bytearray(content)
        broken[bit // 8] ^= 1 << bit % 8
        path.write_bytes(broken)
        try:
            X_read, Y_read = load_npz(path)
        except DataFormatError:
            errors += 1
            continue
        assert_same(X_read, X)
        assert_same(Y_read, Y)
    assert errors > 200


def _members(X, Y):
    return {
        "format": np.array("xmcjax-data-1"),
        "X_data": X.data,
        "X_indices": X.indices,
        "X_indptr": X.indptr.astype(np.int64),
        "X_shape": np.array(X.shape),
        "Y_indices": Y.indices,
        "Y_indptr": Y.indptr.astype(np.int64),
        "Y_shape": np.array(Y.shape),
    }


def _changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


def _wrapped(indptr, kind):
    """Neighbours fall, and their differences do not, because they wrap around in this type."""
    indptr = indptr.astype(kind)
    indptr[1:4] = np.iinfo(kind).max, np.iinfo(kind).min, -1
    return indptr


# (what is changed in a good file, a part of what was expected)
BAD = {
    "no format": (lambda m: m.pop("format"), "an npz file written by save_npz"),
    "other format": (lambda m: m.update(format=np.array("other")), "the format 'xmcjax-data-1'"),
    "format is a number": (lambda m: m.update(format=np.array(3)), "dtype kind 'U'"),
    "no X_data": (lambda m: m.pop("X_data"), "a member 'X_data'"),
    "no labels": (lambda m: m.pop("Y_indices"), "a member 'y'"),
    "two axes": (lambda m: m.update(X_data=m["X_data"][None]), "1 axes"),
    "half floats": (lambda m: m.update(X_data=m["X_data"].astype(np.float16)), "float32 or float64"),
    "big endian": (lambda m: m.update(X_data=m["X_data"].astype(">f4")), "dtype kind 'f' in X_data"),
    "nan": (lambda m: m.update(X_data=_changed(m["X_data"], 2, np.nan)), "finite values"),
    "index above": (lambda m: m.update(X_indices=_changed(m["X_indices"], -1, 7)), "from 0 to 6"),
    "index below": (lambda m: m.update(X_indices=_changed(m["X_indices"], 0, -1)), "from 0 to 6"),
    "int64 indices": (lambda m: m.update(X_indices=m["X_indices"].astype(np.int64)), "of int32"),
    "unsorted": (lambda m: m.update(X_indices=m["X_indices"][::-1].copy()), "rising in every row"),
    "offsets fall": (lambda m: m.update(X_indptr=_changed(m["X_indptr"], 1, 20)), "that does not fall"),
    "offsets start at 1": (lambda m: m.update(X_indptr=_changed(m["X_indptr"], 0, 1)), "begins with 0"),
    "offsets end early": (lambda m: m.update(X_indptr=_changed(m["X_indptr"], -1, 5)), "that does not fall"),
    "offsets wrap in 8 bits": (lambda m: m.update(X_indptr=_wrapped(m["X_indptr"], np.int8)), "not fall"),
    "offsets wrap in 64 bits": (lambda m: m.update(X_indptr=_wrapped(m["X_indptr"], np.int64)), "not fall"),
    "too few offsets": (lambda m: m.update(X_indptr=m["X_indptr"][:-1]), "one more than rows"),
    "too few values": (lambda m: m.update(X_data=m["X_data"][:-1]), "as many indices as values"),
    "three sizes": (lambda m: m.update(X_shape=np.array([9, 7, 1])), "two sizes in X_shape"),
    "size below 0": (lambda m: m.update(X_shape=np.array([9, -7])), "two sizes in X_shape"),
    "size above int32": (lambda m: m.update(X_shape=np.array([9, 2**31])), "two sizes in X_shape"),
    "other rows": (
        lambda m: m.update(Y_shape=np.array([8, 4]), Y_indptr=np.delete(m["Y_indptr"], 8)),
        "labels of 9 rows",
    ),
    "pickles": (lambda m: m.update(X_data=np.array([print], object)), "dtype kind 'f' in X_data"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_content(tmp_path, data, name):
    members = _members(*data)
    path = tmp_path / "a.npz"
    np.savez(path, **members)
    load_npz(path)
    change, expected = BAD[name]
    change(members)
    np.savez(path, **members)
    with pytest.raises(DataFormatError) as raised:
        load_npz(path)
    assert expected in str(raised.value)
    assert (raised.value.line, raised.value.column) == (None, None)


def test_small_file_cannot_ask_for_much_memory(tmp_path, data):
    """A header that promises 2^40 numbers is refused before anything is allocated."""
    members = _members(*data)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (2**40,)})
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in members.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, array)
            archive.writestr(f"{name}.npy", header.getvalue() if name == "X_data" else buffer.getvalue())
    with pytest.raises(DataFormatError, match=f"expected {2**42} bytes in X_data, found 0"):
        load_npz(path)


def test_other_files_are_not_npz(tmp_path):
    for content in (b"", b"2 3 1\n", b"PK\x03\x04" + bytes(100)):
        (tmp_path / "a.npz").write_bytes(content)
        with pytest.raises(DataFormatError, match="expected a complete npz file"):
            load_npz(tmp_path / "a.npz")
    with pytest.raises(FileNotFoundError):
        load_npz(tmp_path / "b.npz")
    with pytest.raises(IsADirectoryError):
        load_npz(tmp_path)


def test_load_save_convert(tmp_path, data):
    X, Y = data
    save(tmp_path / "a.txt.xz", X, Y)
    save(tmp_path / "a.svm", X, Y, "svmlight")
    svmlight = {"multilabel": True, "n_features": 7, "n_labels": 4}
    for name, format, options in [("a.txt.xz", None, {}), ("a.svm", "svmlight", svmlight)]:
        target = tmp_path / "b.npz"
        converted = convert(tmp_path / name, target, format, **options)
        assert isinstance(converted, Dataset)
        for dataset in (converted, load(target), load(tmp_path / name, format, **options)):
            assert_same(dataset.X, X)
            assert_same(dataset.y, Y)
            assert dataset.fingerprint() == Dataset(X, Y).fingerprint()
        convert(target, tmp_path / "c.svm", target_format="svmlight")
        assert (tmp_path / "c.svm").read_bytes() == (tmp_path / "a.svm").read_bytes()
    save(tmp_path / "classes.svm", X, np.arange(9), "svmlight")
    with pytest.raises(ValueError, match=r"classes\.svm: expected lists of labels to write xmc text"):
        convert(tmp_path / "classes.svm", tmp_path / "b.txt", "svmlight")
    assert not (tmp_path / "b.txt").exists()


def test_unknown_format(tmp_path):
    assert set(FORMATS) == {"xmc", "svmlight", "npz", "parquet", "arrow"}
    for call in (
        lambda: load("a.txt", "csv"),
        lambda: convert(tmp_path / "no.txt", "b.txt", target_format="csv"),
    ):
        with pytest.raises(
            ValueError, match="format: expected one of xmc, svmlight, npz, parquet, arrow, got 'csv'"
        ):
            call()


def test_dataset_describes_itself(data):
    X, Y = data
    dataset = Dataset(X, Y)
    assert (dataset.n_rows, dataset.n_features, dataset.n_labels, dataset.multilabel) == (9, 7, 4, True)
    text = f"9 rows, 7 features ({X.nnz / 9:.1f} non-zeros per row), "
    text += f"4 labels (4 in use, {Y.nnz / 9:.2f} per row)"
    assert dataset.describe() == text
    classes = Dataset(X, np.array([5, 5, -1, 5, 5, 5, 5, 5, 5]))
    assert (classes.n_labels, classes.multilabel) == (2, False)
    assert classes.describe().endswith("2 classes")


def test_fingerprint_tells_data_apart(data):
    X, Y = data
    changed = X.copy()
    changed.data[0] += 1e-6
    y = np.arange(9)
    others = [
        Dataset(X, Y),
        Dataset(changed, Y),
        Dataset(X.astype(np.float64), Y),
        Dataset(X[::-1], Y[::-1]),
        Dataset(sp.csr_matrix((X.data, X.indices, X.indptr), (9, 8)), Y),
        Dataset(X, sp.csr_matrix((Y.data, Y.indices, Y.indptr), (9, 5))),
        Dataset(X, y),
        Dataset(X, y + 1),
    ]
    assert len({dataset.fingerprint() for dataset in others}) == len(others)
    # Another matrix of the same data: not sorted, with a zero that is stored.
    rows, columns = X.nonzero()
    entries = [
        np.append(part[::-1], last) for part, last in ((X.data, np.float32(0)), (rows, 8), (columns, 6))
    ]
    same = sp.coo_array((entries[0], (entries[1], entries[2])), X.shape)
    assert Dataset(sp.csr_array(same), Y.astype(np.int8)).fingerprint() == others[0].fingerprint()


def test_save_refuses_what_the_format_cannot_hold(tmp_path, data):
    X, Y = data
    with pytest.raises(ValueError, match="X has 9 rows, but the labels have 8"):
        save_npz(tmp_path / "a.npz", X, Y[:8])
    with pytest.raises(ValueError, match="classes must be integers"):
        save_npz(tmp_path / "a.npz", X, np.ones(9))
    with pytest.raises(ValueError, match="zeros and ones"):
        save_npz(tmp_path / "a.npz", X, 3 * Y)
    assert list(tmp_path.iterdir()) == []
    save_xmc(tmp_path / "a.txt", X, Y)


def test_a_pipe_is_no_regular_file(data, tmp_path):
    X, Y = data
    save_npz(tmp_path / "a.npz", X, Y)
    reading, writing = os.pipe()
    try:
        os.write(writing, (tmp_path / "a.npz").read_bytes()[:4096])
        said = r"expected a regular file, because npz is read from its end, found a FIFO$"
        with pytest.raises(DataFormatError, match=said):
            load_npz(f"/dev/fd/{reading}")
    finally:
        os.close(reading)
        os.close(writing)
