"""Features and labels in files of their own: round trips, refusals, pieces, and two sources side by side."""

import gzip
import os

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.processes import python
from xmcjax.data import (
    ALONE,
    READERS,
    DataFormatError,
    Dataset,
    convert,
    join_features,
    join_pieces,
    load,
    load_feature_pieces,
    load_features,
    load_labels,
    load_matrix,
    load_npy,
    load_scipy_npz,
    load_xmc,
    save,
    save_features,
    save_labels,
    save_matrix,
    save_npy,
    save_npz,
    save_scipy_npz,
    save_xmc,
)


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    dense = rng.random((40, 9)).astype(np.float32) * (rng.random((40, 9)) < 0.3)
    dense[7] = 0
    X = sp.csr_matrix(dense)
    Y = sp.csr_matrix((rng.random((40, 5)) < 0.3).astype(np.float32))
    E = rng.standard_normal((40, 4)).astype(np.float32)
    return X, Y, E


def same(one, two) -> bool:
    if sp.issparse(one):
        one, two = sp.csr_array(one), sp.csr_array(two)
        return one.shape == two.shape and one.dtype == two.dtype and not (one != two).nnz
    return one.dtype == two.dtype and np.array_equal(one, two)


@pytest.mark.parametrize("suffix", [".npz", ".txt", ".txt.gz", ".txt.xz"])
def test_sparse_matrices_come_back(tmp_path, data, suffix):
    X, Y, _ = data
    save_features(tmp_path / f"X{suffix}", X)
    save_labels(tmp_path / f"Y{suffix}", Y.astype(np.int8))
    assert same(load_features(tmp_path / f"X{suffix}"), X)
    assert same(load_labels(tmp_path / f"Y{suffix}"), Y)
    assert same(sp.vstack(list(load_feature_pieces(tmp_path / f"X{suffix}", piece=100))), X)


def test_dense_features_and_classes_come_back(tmp_path, data):
    _, Y, E = data
    for dtype in (np.float32, np.float64):
        save_features(tmp_path / "E.npy", E.astype(dtype))
        found = load_features(tmp_path / "E.npy")
        assert same(found, E.astype(dtype)) and not found.flags.writeable
        assert same(load_features(tmp_path / "E.npy", dtype="float32"), E)
        assert same(np.vstack(list(load_feature_pieces(tmp_path / "E.npy", piece=64))), E.astype(dtype))
    classes = np.arange(40) - 3
    save_labels(tmp_path / "y.npy", classes)
    assert same(load_labels(tmp_path / "y.npy"), classes)
    for matrix in (Y.toarray(), Y.toarray().astype(bool), np.asfortranarray(Y.toarray())):
        np.save(tmp_path / "Y.npy", matrix)
        assert same(load_labels(tmp_path / "Y.npy"), Y)


def test_dense_features_in_other_layouts_are_converted(tmp_path, data):
    E = data[2]
    integers = (100 * E).astype(np.int16)
    for array in (np.asfortranarray(E), E.astype(">f8"), E.astype(np.float16), integers):
        np.save(tmp_path / "E.npy", array)
        assert same(load_npy(tmp_path / "E.npy", np.float32), array.astype(np.float32))
        pieces = list(load_feature_pieces(tmp_path / "E.npy", dtype=np.float32, piece=50))
        assert len(pieces) > 3 and same(np.vstack(pieces), array.astype(np.float32))


MEMORY = """
import resource, sys
import numpy as np, scipy.sparse
from xmcjax.data import load_npy, Dataset
def held():
    lines = open("/proc/self/status").read().splitlines()
    return {line.split(":")[0]: 1024 * int(line.split()[1]) for line in lines if line.startswith("Rss")}
before = held()
X = load_npy(sys.argv[1], np.float32)
Dataset(X, np.zeros(len(X), np.int64)).fingerprint()
print(held()["RssAnon"] - before["RssAnon"])
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="it shows the kinds of memory")
def test_embeddings_are_mapped_and_not_copied(tmp_path):
    """An array of 77 MB, looked at whole, takes no memory beside the pages of the file."""
    np.lib.format.open_memmap(tmp_path / "E.npy", "w+", np.float32, (25_000, 768)).flush()
    assert int(python(MEMORY, tmp_path / "E.npy", check=True).stdout) < 25e6


@pytest.mark.parametrize("format", ["csr", "csc", "coo"])
@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csr_array])
@pytest.mark.parametrize("compressed", [True, False])
def test_what_scipy_wrote_is_read(tmp_path, data, format, make, compressed):
    X = data[0].astype(np.float64)
    sp.save_npz(tmp_path / "X.npz", make(X).asformat(format), compressed)
    assert same(load_scipy_npz(tmp_path / "X.npz"), X)
    assert same(load_scipy_npz(tmp_path / "X.npz", np.float32), X.astype(np.float32))


def test_scipy_reads_what_is_written(tmp_path, data):
    X = data[0]
    X.data[3] = 0
    save_scipy_npz(tmp_path / "X.npz", X, zeros=True)
    assert sp.load_npz(tmp_path / "X.npz").nnz == X.nnz
    assert load_scipy_npz(tmp_path / "X.npz", zeros=True).nnz == X.nnz
    assert load_scipy_npz(tmp_path / "X.npz").nnz == X.nnz - 1
    save_scipy_npz(tmp_path / "Z.npz", X)
    assert sp.load_npz(tmp_path / "Z.npz").nnz == X.nnz - 1


def test_unsorted_and_repeated_entries_become_one_matrix(tmp_path):
    parts = (np.float32([1, 2, 3, 4]), np.array([2, 0, 0, 1]), np.array([0, 3, 4]))
    sp.save_npz(tmp_path / "X.npz", sp.csr_matrix(parts, shape=(2, 3)))
    found = load_scipy_npz(tmp_path / "X.npz")
    assert found.toarray().tolist() == [[5, 0, 1], [0, 4, 0]] and found.has_canonical_format


def _scipy_members(X) -> dict:
    arrays = dict(indices=X.indices, indptr=X.indptr, data=X.data)
    return arrays | dict(format=np.array(b"csr"), shape=np.array(X.shape))


BAD_SCIPY = {
    "another format": (dict(format=np.array(b"bsr")), "in the format csr, csc or coo, found 'bsr'"),
    "three sizes": (dict(shape=np.array([40, 9, 1])), "expected two sizes in shape"),
    "rows below 0": (dict(shape=np.array([-1, 9])), "expected two sizes in shape"),
    "an index too large": (dict(shape=np.array([40, 3])), "expected in the matrix indices from 0 to 2"),
    "offsets that fall": (dict(indptr=np.arange(41)[::-1].copy()), "an indptr that begins with 0"),
    "too few offsets": (dict(indptr=np.arange(4)), "41 offsets in indptr"),
    "nan": (dict(data=np.full(500, np.nan, np.float32)), "finite float32 numbers in data"),
    "complex": (dict(data=np.zeros(5, complex)), "dtype kind"),
    "objects": (dict(data=np.array([print], object)), "dtype kind"),
}


@pytest.mark.parametrize("name", BAD_SCIPY)
def test_malformed_files_of_scipy(tmp_path, data, name):
    change, said = BAD_SCIPY[name]
    members = _scipy_members(data[0])
    if name == "nan":
        change = dict(data=np.full(data[0].nnz, np.nan, np.float32))
    np.savez(tmp_path / "X.npz", **members | change)
    with pytest.raises(DataFormatError) as caught:
        load_scipy_npz(tmp_path / "X.npz")
    assert said in str(caught.value) and str(caught.value).startswith(str(tmp_path / "X.npz"))
    np.savez(tmp_path / "X.npz", indices=data[0].indices)
    with pytest.raises(DataFormatError, match="save_npz, found one without a member 'data'"):
        load_scipy_npz(tmp_path / "X.npz")


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        (dict(row=np.array([0]), col=np.array([9])), "expected numbers from 0 to 8 in 'col', found 9"),
        (dict(row=np.array([-1]), col=np.array([0])), "expected numbers from 0 to 39 in 'row', found -1"),
        (dict(row=np.array([0, 1]), col=np.array([0])), "as many numbers in 'row' as values, 1, found 2"),
    ],
)
def test_malformed_entries_of_scipy(tmp_path, entries, said):
    members = dict(data=np.ones(1), format=np.array(b"coo"), shape=np.array([40, 9]))
    np.savez(tmp_path / "X.npz", **members, **entries)
    with pytest.raises(DataFormatError, match=said):
        load_scipy_npz(tmp_path / "X.npz")


def test_either_npz_gives_its_parts_and_says_what_it_is(tmp_path, data):
    X, Y, _ = data
    save_npz(tmp_path / "both.npz", X, Y)
    save_scipy_npz(tmp_path / "X.npz", X)
    assert same(load_features(tmp_path / "both.npz"), X) and same(load_labels(tmp_path / "both.npz"), Y)
    with pytest.raises(
        DataFormatError, match=r"of scipy\.sparse\.save_npz, which holds one matrix: labels have"
    ):
        load(tmp_path / "X.npz")
    with pytest.raises(ValueError, match="the format npy, which holds one matrix"):
        load(tmp_path / "E.npy")


def test_labels_must_be_zeros_and_ones(tmp_path, data):
    X, _, E = data
    for suffix in ("npz", "txt"):
        save_features(tmp_path / f"X.{suffix}", X)
        with pytest.raises(DataFormatError, match=r"a label matrix of zeros and ones, found 0\.\d+ in row 1"):
            load_labels(tmp_path / f"X.{suffix}")
    save_npy(tmp_path / "E.npy", E)
    with pytest.raises(DataFormatError, match="a label matrix of zeros and ones, found"):
        load_labels(tmp_path / "E.npy")


# Of a matrix as text: content, line and column, and what is said.
BAD_TEXT = [
    (b"", 1, 1, "expected a header 'n m', found an empty file"),
    (b"2\n", 1, 2, "the number of columns m, found the end of the line"),
    (b"1 3 4\n", 1, 5, "two numbers 'n m' (--format xmc reads labels and features in one file), found '4'"),
    (b"1 2147483648\n", 1, 3, "an integer from 0 to 2147483647"),
    (b"2 3\n0:1 1:x\n\n", 2, 7, "expected a finite float32 number, found 'x'"),
    (b"2 3\n0:1\n3:1\n", 3, 1, "expected a column index from 0 to 2, found '3'"),
    (b"2 3\n1:1\n0,2 0:1\n", 3, 1, "expected index:value, found '0,2'"),
    (b"1 3\n 0:1 0:2\n", 2, 6, "expected each column index once in a row, found '0'"),
    (b"2 3\n0:1\n", 3, 1, "expected 2 rows as in the header, found the end of the file after 1"),
    (b"1 3\n0:1\n0:1\n", 3, 1, "expected 1 rows as in the header, found one more line"),
    (b"1 3\n0:nan\n", 2, 3, "expected a finite float32 number, found 'nan'"),
]


@pytest.mark.parametrize(("content", "line", "column", "said"), BAD_TEXT)
def test_text_that_is_no_matrix(parser, write, content, line, column, said):
    path = write(content)
    with pytest.raises(DataFormatError) as caught:
        load_matrix(path, parser=parser)
    assert (caught.value.line, caught.value.column) == (line, column) and said in str(caught.value)


def test_matrix_text_is_accepted_as_it_comes(parser, write):
    path = write(b"4 3\r\n2:1 0:2.5\r\n\r\n   1:4  \r\n0:0")
    found = load_matrix(path, parser=parser)
    assert found.toarray().tolist() == [[2.5, 0, 1], [0, 0, 0], [0, 4, 0], [0, 0, 0]] and found.nnz == 3
    headless = write(b"1:2 \n\n", "headless.txt")
    assert load_matrix(headless, shape=(2, 3), parser=parser).toarray().tolist() == [[0, 2, 0], [0, 0, 0]]
    with pytest.raises(DataFormatError, match=":3:1: expected 3 rows"):
        load_matrix(headless, shape=(3, 3), parser=parser)


def test_matrix_text_in_pieces_is_the_whole(parser, write, monkeypatch, data):
    monkeypatch.setattr("xmcjax.data._files.CHUNK", 100)
    path = write(b"")
    save_matrix(path, data[0])
    pieces = list(load_feature_pieces(path, piece=200, parser=parser))
    assert len(pieces) > 3 and same(sp.vstack(pieces), data[0])
    packed = write(gzip.compress(path.read_bytes()), "X.txt.gz")
    assert same(load_matrix(packed, parser=parser), data[0])


def test_labels_of_svmlight_are_not_looked_at_where_features_are_read(parser, write):
    """Nor need they be there."""
    rows = [b"7,2 1:1", b"0.5 2:1", b" 3:1", b"1:1 3:1", b" -1 2:2", b"", b"3", b"b,a 1:3\r", b"1,1\t3:4"]
    path, format = write(b"\n".join(rows)), "svmlight"
    dense = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 1], [0, 2, 0], *[[0, 0, 0]] * 2, [3, 0, 0], [0, 0, 4]]
    assert load_features(path, format, parser=parser).toarray().tolist() == dense
    pieces = load_feature_pieces(path, format, piece=1, parser=parser, n_features=3)
    assert np.concatenate([X.toarray() for X in pieces]).tolist() == dense
    commented = write(b"# no row\n1 1:1 # 2:2\n # a row\n1#2:1\n", "commented")
    options = dict(parser=parser, multilabel=True, n_labels=1)  # which labels are for
    assert load_features(commented, format, **options).toarray().tolist() == [[1], [0], [0]]
    for row, column, found in ((b"1 2 1:1", 3, "'2'"), (b"1, 2 1:1", 4, "'2'"), (b"qid:7 1:1", 1, "'qid'")):
        with pytest.raises(DataFormatError, match=rf":{column}: expected .*, found {found}$"):
            load_features(write(row, "wrong"), format, parser=parser)


def test_text_counts_from_where_it_is_said_to(parser, tmp_path, data):
    X, Y, _ = data
    save_xmc(tmp_path / "one.txt", X, Y, one_based=True)
    save_matrix(tmp_path / "X.txt", X, one_based=True)
    found = load_xmc(tmp_path / "one.txt", one_based=True, parser=parser)
    assert same(found[0], X) and same(found[1], Y)
    assert same(load_matrix(tmp_path / "X.txt", one_based=True, parser=parser), X)
    # never guessed: an index of 9 is none of 9 that count from 0, and 0 none that counts from 1
    with pytest.raises(DataFormatError, match="from 0 to 8, found '9'"):
        load_matrix(tmp_path / "X.txt", parser=parser)
    save_xmc(tmp_path / "zero.txt", X, Y)
    with pytest.raises(DataFormatError, match=r"from 1 to [59]"):
        load_xmc(tmp_path / "zero.txt", one_based=True, parser=parser)


BAD_NPY = {
    "an empty file": (b"", "expected an npy file, found another one"),
    "text": (b"1 2 3\n", "expected an npy file, found another one"),
    "a header of another version": (b"\x93NUMPY\x09\x00" + bytes(100), "expected an npy file"),
}


@pytest.mark.parametrize("name", BAD_NPY)
def test_files_that_are_no_npy(write, name):
    content, said = BAD_NPY[name]
    with pytest.raises(DataFormatError, match=said):
        load_npy(write(content, "E.npy"))


def test_arrays_that_are_no_features(tmp_path):
    path = tmp_path / "E.npy"
    nan, objects = np.zeros((3, 2), np.float32), np.array([[None]])
    nan[1, 1] = np.nan
    for array, said in (
        (nan, "expected finite float32 numbers, found nan in row 2, column 1"),
        (nan.astype(np.float64), "expected finite float32 numbers, found nan in row 2, column 1"),
        (np.full((2, 2), 1e300), "expected finite float32 numbers, found inf in row 1, column 0"),
        (np.zeros(3), "expected features, [n, d], found an array [3]"),
        (np.zeros((2, 2), complex), "real numbers of at most 64 bits, found an array of complex128"),
        (objects, "real numbers of at most 64 bits, found an array of object"),
    ):
        np.save(path, array, allow_pickle=True)
        with pytest.raises(DataFormatError) as caught:
            load_npy(path, np.float32)
        assert said in str(caught.value)
    np.save(path, np.zeros((4, 4)))
    whole = path.read_bytes()
    for content in (whole[:-1], whole + b"\0"):
        path.write_bytes(content)
        with pytest.raises(DataFormatError, match=r"128 bytes of an array \[4, 4\] of float64, found 12[79]"):
            load_npy(path)
    for array, said in ((np.zeros(3), "classes, whole numbers"), (np.uint64([2**63]), r"below 2\^63, found")):
        np.save(path, array)
        with pytest.raises(DataFormatError, match=said):
            load_labels(path)


def test_features_side_by_side(data):
    X, _, E = data
    for one, two in ((X, E), (E, X), (X, X), (E, E)):
        wanted = np.hstack([part.toarray() if sp.issparse(part) else part for part in (one, two)])
        found = join_features(one, two)
        assert sp.issparse(found) == (one is X or two is X)
        assert np.array_equal(found.toarray() if sp.issparse(found) else found, wanted)
        assert found.dtype == np.float32
    assert join_features(X, E.astype(np.float64)).dtype == np.float64
    with pytest.raises(ValueError, match="more: expected 40 rows as in X, got 39"):
        join_features(X, E[:39])
    with pytest.raises(ValueError, match="more: expected features"):
        join_features(X, E[0])


@pytest.mark.parametrize("sizes", [(7, 11), (40, 1), (1, 40), (13, 13)])
def test_pieces_that_end_at_different_rows(data, sizes):
    X, _, E = data

    def cut(matrix, size):
        return iter([matrix[start : start + size] for start in range(0, 40, size)])

    joined = list(join_pieces(cut(X, sizes[0]), cut(E, sizes[1]), lambda *rows: AssertionError(rows)))
    assert same(sp.vstack(joined), join_features(X, E))
    for one, two, rows in ((X[:30], E, (30, 40)), (X, E[:30], (40, 30))):
        with pytest.raises(KeyError) as caught:
            list(join_pieces(cut(one, sizes[0]), cut(two, sizes[1]), lambda *rows: KeyError(rows)))
        found = caught.value.args[0]
        assert min(found) == 30 and np.sign(found[0] - found[1]) == np.sign(rows[0] - rows[1])


def test_dense_data_are_described_and_told_apart(data):
    _, Y, E = data
    dense = Dataset(E, Y)
    assert dense.describe().startswith("40 rows, 4 features (dense), 5 labels (5 in use")
    assert dense.fingerprint() == Dataset(np.asfortranarray(E), Y).fingerprint()
    other = E.copy()
    other[0, 0] += 1
    prints = {
        Dataset(X, Y).fingerprint() for X in (E, other, E.astype(np.float64), sp.csr_matrix(E), E[:, :3])
    }
    assert len(prints) == 5
    E[3, 2] = np.inf
    with pytest.raises(ValueError, match=r"X must be finite, but X\[3, 2\] is inf"):
        dense.fingerprint()


def test_dense_features_are_written_as_sparse_ones(tmp_path, data):
    _, Y, E = data
    for format in ("xmc", "svmlight", "npz"):
        save(tmp_path / "d", E, Y, format)
        options = dict(multilabel=True) if format == "svmlight" else {}
        assert same(load(tmp_path / "d", format, **options).X, sp.csr_matrix(E))


def test_what_a_format_cannot_hold(tmp_path, data):
    X, Y, _ = data
    for call, said in (
        (lambda: save_features(tmp_path / "X.npy", X), "expected dense features to write npy, found sparse"),
        (
            lambda: save_labels(tmp_path / "Y.npy", Y),
            "a label matrix cannot be written as npy; npz and matrix",
        ),
        (lambda: save_labels(tmp_path / "y.npz", np.arange(4)), "one class per row cannot be written as npz"),
        (
            lambda: save_features(tmp_path / "X", X, "xmc"),
            "format: expected one of npz, matrix, npy, got 'xmc'",
        ),
        (lambda: load_features(tmp_path / "X", "csv"), "format: expected one of xmc, svmlight, npz, matrix"),
        (lambda: save_npy(tmp_path / "X.npy", np.array([[np.nan]])), "X must be finite"),
        (lambda: save_npy(tmp_path / "X.npy", np.zeros((1, 1, 1))), "expected one or two axes"),
    ):
        with pytest.raises(ValueError, match=said):
            call()
    assert list(tmp_path.iterdir()) == []
    assert set(ALONE) <= set(READERS)


@pytest.mark.parametrize("dtype", [np.int32, bool])
@pytest.mark.parametrize("name", ["X.npz", "X.npy", "X.txt"])
def test_features_of_another_type_are_named(tmp_path, dtype, name):
    said = f"^X: dtype must be float32 or float64, got {np.dtype(dtype)}$"
    with pytest.raises(TypeError, match=said):
        save_features(tmp_path / name, np.eye(2, dtype=dtype))
    with pytest.raises(TypeError, match=said):
        save(tmp_path / "both.npz", np.eye(2, dtype=dtype), np.array([0, 1]))
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_no_file_to_map(tmp_path):
    os.mkfifo(tmp_path / "E.npy")
    with pytest.raises(
        DataFormatError, match="a regular file, because npy is mapped into memory, found a FIFO"
    ):
        load_npy(tmp_path / "E.npy")


def test_zeros_of_an_npz_are_kept_where_they_are_wanted(tmp_path, data):
    X = sp.csr_matrix(data[0], dtype=np.float32, copy=True)
    X.data[::3] = 0
    save_scipy_npz(tmp_path / "X.npz", X, zeros=True)
    assert load_features(tmp_path / "X.npz", zeros=True).nnz == X.nnz
    assert load_features(tmp_path / "X.npz").nnz == np.count_nonzero(X.data)
    save_npz(tmp_path / "both.npz", X, np.zeros(X.shape[0], np.int64))
    assert load_features(tmp_path / "both.npz", zeros=True).nnz == np.count_nonzero(X.data)
    with pytest.raises(TypeError, match="zeros: expected True or False"):
        load_features(tmp_path / "X.npz", zeros=1)


@pytest.mark.parametrize("name", ["a.csv", "a.TSV.gz", "a.svm", "a.jsonl"])
def test_a_name_that_promises_another_text_is_not_written_as_xmc(tmp_path, name):
    source, out = tmp_path / "s.txt", tmp_path / name
    source.write_text("1 2 3\n0,2 1:0.5\n")
    found = load(source)
    for write in (lambda: convert(source, out), lambda: save(out, *found)):
        with pytest.raises(ValueError, match="expected a format by its name, as that of the file promises"):
            write()
        assert not out.exists()
    save(out, *found, "svmlight")
    assert load(out, "svmlight", multilabel=True).describe().startswith("1 row, 2 features")


@pytest.mark.parametrize("suffix", [".bz2", ".zst", ".ZIP", ".7z"])
def test_a_compression_that_is_not_written_is_refused(tmp_path, suffix):
    path, (X, y) = tmp_path / f"a{suffix}", (sp.csr_matrix([[0.5, 0.0]]), sp.csr_matrix([[1.0, 0.0, 1.0]]))
    for write in (
        lambda: save(path, X, y),
        lambda: save(path, X, y, "svmlight"),
        lambda: save_features(path, X),
        lambda: save_labels(path, y),
    ):
        with pytest.raises(
            ValueError, match=rf"expected a name of plain text, .gz or .xz to write, got {suffix}"
        ):
            write()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["table.csv", "table.TSV", "table.xlsx"])
def test_a_table_is_read_where_its_format_is_named(tmp_path, name):
    path = tmp_path / name
    path.write_text("1 2 3\n0,2 1:0.5\n")
    for read in (load, load_features, load_labels):
        with pytest.raises(ValueError, match=r"found a table \(\.\w+\): read it with numpy or pandas"):
            read(path)
    assert load(path, "xmc").describe().startswith("1 row, 2 features")
