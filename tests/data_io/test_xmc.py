"""The XMC text reader and writer: what is accepted, exact values, equality of both parsers."""

import gzip
import lzma

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.matrices import assert_same
from xmcjax.data import load_svmlight, load_xmc, save_svmlight, save_xmc
from xmcjax.native import load_library

# Two labels, three features: the file and what it means as dense arrays.
ACCEPTED = {
    "plain": (b"2 3 2\n0,1 0:1 2:2.5\n1 1:-3\n", [[1, 0, 2.5], [0, -3, 0]], [[1, 1], [0, 1]]),
    "no line end": (b"1 3 2\n0 0:1 2:2", [[1, 0, 2]], [[1, 0]]),
    "CRLF": (b"2 3 2\r\n0 0:1\r\n1\r\n", [[1, 0, 0], [0, 0, 0]], [[1, 0], [0, 1]]),
    "without labels": (b"2 3 2\n 0:1 1:2\n\t2:1\n", [[1, 2, 0], [0, 0, 1]], [[0, 0], [0, 0]]),
    "without features": (b"2 3 2\n0,1\n1 \n", np.zeros((2, 3)), [[1, 1], [0, 1]]),
    "empty and blank lines": (b"3 3 2\n\n \t \n\r\n", np.zeros((3, 3)), np.zeros((3, 2))),
    "unsorted": (b"1 3 2\n1,0 2:3 0:1 1:2\n", [[1, 2, 3]], [[1, 1]]),
    "trailing blanks": (b"1 3 2 \t\n0 0:1 \t \n", [[1, 0, 0]], [[1, 0]]),
    "several blanks": (b" 1  3\t2\n0 \t 0:1  1:2\n", [[1, 2, 0]], [[1, 0]]),
    "explicit zeros": (b"1 3 2\n0 0:0 1:-0.0 2:1e-400\n", [[0, 0, 0]], [[1, 0]]),
    "leading zeros": (b"01 03 02\n" + b"0" * 22 + b"1 " + b"0" * 22 + b"2:007\n", [[0, 0, 7]], [[0, 1]]),
    "no rows": (b"0 3 2\n", np.zeros((0, 3)), np.zeros((0, 2))),
    "no columns": (b"1 0 0\n\n", np.zeros((1, 0)), np.zeros((1, 0))),
}


def _check_canonical(matrix, shape, dtype):
    assert isinstance(matrix, sp.csr_matrix)
    assert (matrix.shape, matrix.dtype) == (shape, dtype)
    assert matrix.indices.dtype == matrix.indptr.dtype == np.int32
    fresh = sp.csr_matrix((matrix.data, matrix.indices, matrix.indptr), shape)
    fresh.check_format(full_check=True)
    assert fresh.has_canonical_format
    assert (matrix.data != 0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(parser, write, name, dtype):
    content, features, labels = ACCEPTED[name]
    X, Y = load_xmc(write(content), dtype, parser=parser)
    features, labels = np.array(features, dtype), np.array(labels, dtype)
    _check_canonical(X, features.shape, dtype)
    _check_canonical(Y, labels.shape, dtype)
    np.testing.assert_array_equal(X.toarray(), features)
    np.testing.assert_array_equal(Y.toarray(), labels)


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_in_small_chunks(parser, write, name, chunk, monkeypatch):
    monkeypatch.setattr("xmcjax.data._files.CHUNK", chunk)
    content, features, labels = ACCEPTED[name]
    X, Y = load_xmc(write(content), parser=parser)
    np.testing.assert_array_equal(X.toarray(), np.array(features, np.float32))
    np.testing.assert_array_equal(Y.toarray(), labels)


@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed(parser, write, suffix, pack):
    content, features, _ = ACCEPTED["plain"]
    # Two streams one after the other are one file, as gzip and xz define it.
    path = write(pack(content[:10]) + pack(content[10:]), f"data.txt{suffix}")
    np.testing.assert_array_equal(load_xmc(path, parser=parser)[0].toarray(), features)


# Texts where a reader that is almost right goes wrong: halfway cases, many digits, the ends of the range.
NUMBERS = [
    *("1", "+1", "-1", "1.", ".5", "+.5", "-0.5", "1e3", "1E+3", "1e-3", "1.5e2", "00012.500", "0.1", "0.3"),
    *("9007199254740993", "9007199254740992.5", "9007199254740993.0", "123456789012345678"),
    *("1234567890123456789", "0.1234567890123456789012345", "3.14159265358979323846", "1e22", "1e23"),
    *("1" + "0" * 30, "0." + "0" * 30 + "1"),
    *("8.5899345920000008e9", "16777217", "16777219", "33554431.5", "0.000000059604644775390625", "5e-324"),
    *("1.1754943508222875e-38", "1e-40", "1.401298464324817e-45", "7.006492321624085e-46", "7.1e-46"),
    "1e-46",
    *("3.4028234663852886e38", "3.4028235677973362e38", "340282346638528859811704183484516925440", "1e-400"),
    "0." + "1" * 400,
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_are_correctly_rounded(parser, write, dtype):
    path = write(f"{len(NUMBERS)} 1 0\n".encode() + "".join(f" 0:{text}\n" for text in NUMBERS).encode())
    X, _ = load_xmc(path, dtype, parser=parser)
    with np.errstate(under="ignore"):
        expected = np.array([float(text) for text in NUMBERS]).astype(dtype)
    np.testing.assert_array_equal(X.toarray()[:, 0], expected)


def test_random_values_are_correctly_rounded(parser, write):
    rng = np.random.default_rng(0)
    forms = ("%.3f", "%.9g", "%.15g", "%.16g", "%.17g", "%.20f", "%.6e")
    numbers = rng.standard_normal(2000) * 10.0 ** rng.integers(-12, 12, 2000)
    texts = [forms[i % len(forms)] % number for i, number in enumerate(numbers)]
    path = write(b"1 2000 0\n" + "".join(f" {i}:{text}" for i, text in enumerate(texts)).encode())
    for dtype in (np.float32, np.float64):
        X, _ = load_xmc(path, dtype, parser=parser)
        np.testing.assert_array_equal(X.toarray()[0], np.array([float(text) for text in texts]).astype(dtype))


def test_dtype_is_checked(write):
    with pytest.raises(TypeError, match="dtype must be float32 or float64, got int32"):
        load_xmc(write(b"1 1 1\n\n"), np.int32)


def _built():
    return ("python",) if load_library() is None else ("native", "python")


def _sparse(draw, rows, columns, values, dtype):
    dense = np.zeros((rows, columns), dtype)
    for row in range(rows if columns else 0):
        for column in draw(st.lists(st.integers(0, columns - 1), max_size=4, unique=True)):
            dense[row, column] = draw(values)
    return sp.csr_matrix(dense)


@st.composite
def data_sets(draw):
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    n, d, n_labels = draw(st.integers(0, 4)), draw(st.integers(0, 6)), draw(st.integers(0, 5))
    finite = st.floats(allow_nan=False, allow_infinity=False, width=32 if dtype == np.float32 else 64)
    return _sparse(draw, n, d, finite, dtype), _sparse(draw, n, n_labels, st.just(1), dtype)


# A loaded machine makes data slowly.
_SUPPRESSED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
_FAST = settings(max_examples=150, deadline=None, suppress_health_check=_SUPPRESSED)


@_FAST
@given(data_sets())
def test_round_trip(tmp_path, data):
    X, Y = data
    save_xmc(tmp_path / "data.txt", X, Y)
    for parser in _built():
        X_read, Y_read = load_xmc(tmp_path / "data.txt", X.dtype, parser=parser)
        assert_same(X_read, X)
        assert_same(Y_read, Y)


@_FAST
@given(data_sets(), st.booleans(), st.integers(0, 3))
def test_svmlight_round_trip(tmp_path, data, zero_based, first_label):
    X, Y = data
    if X.shape[0] == 0:
        return
    path = tmp_path / "data.svm"
    save_svmlight(path, X, Y, zero_based, first_label=first_label)
    options = dict(n_features=X.shape[1], n_labels=Y.shape[1], zero_based=zero_based, first_label=first_label)
    for parser in _built():
        X_read, Y_read = load_svmlight(path, multilabel=True, dtype=X.dtype, parser=parser, **options)
        assert_same(X_read, X)
        assert_same(Y_read, Y)


KINDS = {
    "xmc": (load_xmc, {}),
    "classes": (load_svmlight, {}),
    "multilabel": (load_svmlight, dict(multilabel=True, zero_based=True, n_labels=50)),
    "multilabel from 1": (load_svmlight, dict(multilabel=True, first_label=1)),
}


@settings(max_examples=400, deadline=None, suppress_health_check=_SUPPRESSED)
@given(
    st.lists(
        st.sampled_from(
            [*"0123456789:,. \t\n\r-+e#", "1:2", " 3:4", "\n5", "nan", "1.5", "é", "\0", "99999999999"]
        ),
        max_size=40,
    ).map("".join),
    st.sampled_from(list(KINDS)),
    st.integers(1, 9),
)
def test_parsers_agree_on_any_text(tmp_path, text, kind, chunk):
    """Same arrays or the same error, word for word, on text that is nearly right."""
    if "native" not in _built():
        pytest.skip("the native library was not built")
    path = tmp_path / "data.txt"
    path.write_bytes((b"2 7 9\n" if kind == "xmc" else b"") + text.encode())

    load, options = KINDS[kind]

    def outcome(parser):
        try:
            X, y = load(path, parser=parser, **options)
        except ValueError as error:
            return str(error)
        y = (y.shape, y.indices.tolist(), y.indptr.tolist()) if sp.issparse(y) else y.tolist()
        return X.shape, X.data.tolist(), X.indices.tolist(), X.indptr.tolist(), y

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("xmcjax.data._files.CHUNK", chunk)
        assert outcome("native") == outcome("python")


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_written_bytes(tmp_path, suffix):
    X = sp.csr_matrix(np.array([[0, 0.1, 3], [0, 0, 0], [-1e-10, 0, 0]], np.float32))
    Y = sp.csr_matrix(np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0]], np.float32))
    path = tmp_path / f"data.txt{suffix}"
    save_xmc(path, X, Y)
    unpack = {"": bytes, ".gz": gzip.decompress, ".xz": lzma.decompress}[suffix]
    first = path.read_bytes()
    assert unpack(first) == b"3 3 3\n0,2 1:0.100000001 2:3\n1\n 0:-1.00000001e-10\n"
    save_xmc(path, X, Y)
    assert path.read_bytes() == first
    assert_same(load_xmc(path)[0], X)


def test_writer_takes_any_sparse_matrix_and_leaves_it_alone(tmp_path):
    X = sp.csr_array(
        (np.array([2.0, 0.0, 1.0, 3.0]), np.array([2, 1, 0, 2], np.int64), np.array([0, 4], np.int64)),
        shape=(1, 3),
    )
    before = X.copy()
    save_xmc(tmp_path / "data.txt", X, sp.coo_array(np.array([[True, False]])))
    assert (tmp_path / "data.txt").read_bytes() == b"1 3 2\n0 0:1.0 2:5.0\n"
    assert_same(X, before)


def test_writer_refuses(tmp_path):
    X, Y = sp.csr_matrix(np.eye(2, dtype=np.float32)), sp.csr_matrix(np.ones((2, 2), np.float32))
    path = tmp_path / "data.txt"
    path.write_bytes(b"precious")
    for bad_X, bad_Y, error, message in [
        (X[:1], Y, ValueError, "X has 1 rows, but the labels have 2"),
        (X * np.float32(np.nan), Y, ValueError, r"X must be finite, but X\[0, 0\] is nan"),
        (X, 2 * Y, ValueError, r"Y must hold zeros and ones, but Y\[0, 0\] is 2"),
        (X.astype(np.int64), Y, TypeError, "dtype must be float32 or float64"),
        (X.astype(bool), Y, TypeError, "^X: dtype must be float32 or float64, got bool$"),
        (X, [[0], [0, 1]], ValueError, "^Y: expected rows of one length, found a ragged list"),
        (X, [0, 1], ValueError, "found one class per row: svmlight, npz, parquet and arrow hold classes$"),
        (X.toarray(), Y, TypeError, "X: expected a sparse matrix, found ndarray"),
    ]:
        with pytest.raises(error, match=message):
            save_xmc(path, bad_X, bad_Y)
    assert path.read_bytes() == b"precious"
    assert list(tmp_path.iterdir()) == [path]
