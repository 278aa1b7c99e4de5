"""The svmlight reader and writer: options, classes, comments; equal to scikit-learn's where both read."""

import io
import lzma

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_svmlight_file

from xmcjax.data import load_features, load_svmlight, load_xmc, save_svmlight


def test_classes_are_kept_as_they_stand(parser, write):
    path = write(
        b"3 1:0.5 3:1\n-7\n+12 2:1 # text\n# text\n 2.0 1:1#text\n1e2\n000000000000000000000005 3:1\n"
    )
    X, y = load_svmlight(path, parser=parser)
    np.testing.assert_array_equal(y, [3, -7, 12, 2, 100, 5])
    assert y.dtype == np.int64
    expected = [[0.5, 0, 1], [0, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1]]
    np.testing.assert_array_equal(X.toarray(), np.array(expected, np.float32))


def test_largest_classes(parser, write):
    _, y = load_svmlight(
        write(b"999999999999999999\n-999999999999999999\n9007199254740992.0\n"), parser=parser
    )
    np.testing.assert_array_equal(y, [10**18 - 1, 1 - 10**18, 2**53])


def test_multilabel(parser, write):
    path = write(b"2,0 1:1 # a, b\n 2:1\n\n  \n# no row\n1 \n#\n # a row without labels\n")
    X, Y = load_svmlight(path, multilabel=True, parser=parser)
    assert not isinstance(Y, np.ndarray)
    np.testing.assert_array_equal(
        Y.toarray(), [[1, 0, 1], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 0]]
    )
    np.testing.assert_array_equal(X.toarray(), [[1, 0], [0, 1], [0, 0], [0, 0], [0, 0], [0, 0]])
    assert (X.dtype, Y.dtype) == (np.float32, np.float32)


def test_numbering_is_said_not_guessed(parser, write):
    path = write(b"1,3 1:1 2:1\n")
    X, Y = load_svmlight(path, multilabel=True, parser=parser)
    assert not isinstance(Y, np.ndarray)
    assert (X.indices.tolist(), Y.indices.tolist(), X.shape, Y.shape) == ([0, 1], [1, 3], (1, 2), (1, 4))
    X, Y = load_svmlight(path, multilabel=True, zero_based=True, first_label=1, parser=parser)
    assert not isinstance(Y, np.ndarray)
    assert (X.indices.tolist(), Y.indices.tolist(), X.shape, Y.shape) == ([1, 2], [0, 2], (1, 3), (1, 3))
    X, Y = load_svmlight(path, multilabel=True, n_features=9, n_labels=8, parser=parser)
    assert (X.shape, Y.shape) == ((1, 9), (1, 8))


def test_a_query_id_behind_the_labels_is_passed_over(parser, write):
    text = b"1 2:1 1:2\n2 3:0.5\n-1\n"
    ids = b"1 qid:7 1:2 2:1\n2\tqid:0012  3:0.5 # text\n-1 qid:5#\n"
    plain, found = (load_svmlight(write(content), parser=parser) for content in (text, ids))
    theirs = load_svmlight_file(io.BytesIO(ids.replace(b"#\n", b"\n")), query_id=True)
    np.testing.assert_array_equal(found[0].toarray(), plain[0].toarray())
    np.testing.assert_array_equal(found[0].toarray(), theirs[0].toarray())
    np.testing.assert_array_equal(found[1], theirs[1])
    lists = b"0,2 qid:7 1:1\n qid:8 2:1\n"
    _, Y = load_svmlight(write(lists), multilabel=True, parser=parser)
    np.testing.assert_array_equal(Y.toarray(), [[1, 0, 1], [0, 0, 0]])
    for content in (lists, lists.replace(b"0,2", b"")):
        X = load_features(write(content), "svmlight", parser=parser)
        np.testing.assert_array_equal(X.toarray(), [[1, 0], [0, 1]])


def test_width_counts_explicit_zeros(parser, write):
    X, _ = load_svmlight(write(b"1 1:1 7:0\n"), parser=parser)
    assert (X.shape, X.nnz) == ((1, 7), 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_labels": 3}, "need multilabel=True"),
        ({"first_label": 1}, "need multilabel=True"),
        ({"n_features": -1}, "n_features: expected at least 0, got -1"),
        ({"n_features": 2**31}, "n_features: expected at most 2147483647, got 2147483648"),
        ({"multilabel": True, "first_label": -1}, "first_label: expected at least 0"),
    ],
)
def test_options_that_do_not_fit(write, options, message):
    with pytest.raises(ValueError, match=message):
        load_svmlight(write(b"1 1:1\n"), **options)


def test_written_bytes(tmp_path):
    X = sp.csr_matrix(np.array([[0, 1.5, 0], [0, 0, 0], [2, 0, 1 / 3]]))
    path = tmp_path / "data.svm"
    save_svmlight(path, X, np.array([4, -1, 2]))
    assert path.read_bytes() == b"4 2:1.5\n-1\n2 1:2.0 3:0.3333333333333333\n"
    save_svmlight(path, X, np.array([4, 1, 2], np.uint8), zero_based=True)
    assert path.read_bytes() == b"4 1:1.5\n1\n2 0:2.0 2:0.3333333333333333\n"
    save_svmlight(path, X, sp.csr_matrix(np.array([[1, 1], [0, 0], [0, 0]])), first_label=1)
    assert path.read_bytes() == b"1,2 2:1.5\n\n 1:2.0 3:0.3333333333333333\n"
    for bad, message in [
        (np.array([1.0, 2.0, 3.0]), r"classes must be integers \[n\], got float64 \[3\]"),
        (np.eye(3, dtype=int), r"got int64 \[3, 3\]; lists of labels are a sparse matrix, such as scipy"),
        (np.array([1, 2]), "X has 3 rows, but the labels have 2"),
    ]:
        with pytest.raises(ValueError, match=message):
            save_svmlight(path, X, bad)


def _equal_to_sklearn(path, parser, multilabel, zero_based):
    X, y = load_svmlight(path, multilabel=multilabel, zero_based=zero_based, dtype=np.float64, parser=parser)
    X_ref, y_ref = load_svmlight_file(
        str(path), multilabel=multilabel, zero_based=zero_based, dtype=np.float64
    )
    X_ref.sort_indices()
    X_ref.eliminate_zeros()
    assert X.shape == X_ref.shape
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(X, part), getattr(X_ref, part))
    if multilabel:
        assert not isinstance(y, np.ndarray)
        ref = [tuple(sorted(int(label) for label in row)) for row in y_ref]
        assert [tuple(row) for row in np.split(y.indices, y.indptr[1:-1])] == ref
    else:
        np.testing.assert_array_equal(y, y_ref)


@pytest.mark.parametrize("multilabel", [False, True])
@pytest.mark.parametrize("zero_based", [False, True])
def test_equal_to_scikit_learn(parser, tmp_path, multilabel, zero_based):
    rng = np.random.default_rng(1)
    X = sp.random_array((60, 40), density=0.1, rng=rng, format="csr") * 10.0
    if multilabel:
        # Every row has a label: scikit-learn drops empty lines.
        y = sp.csr_matrix((rng.random((60, 7)) < 0.3) | (np.arange(7) == np.arange(60)[:, None] % 7))
    else:
        y = rng.integers(-3, 9, 60)
    path = tmp_path / "data.svm"
    save_svmlight(path, X, y, zero_based)
    _equal_to_sklearn(path, parser, multilabel, zero_based)


@pytest.mark.parametrize("name", ["iris/train", "letter/test", "clef/test", "naics2017/test", "clinc150/val"])
def test_equal_to_scikit_learn_on_real_data(parser, data_folder, tmp_path, name):
    path = tmp_path / "data.svm"
    path.write_bytes(lzma.decompress((data_folder / f"{name}.libsvm.xz").read_bytes()))
    _equal_to_sklearn(path, parser, False, False)


def test_real_xmc_file(data_folder):
    """The counts that the data sets' description gives; native and Python readers equal."""
    X, Y = load_xmc(data_folder / "bibtex" / "train.txt.xz")
    assert (X.shape, Y.shape) == ((4880, 1836), (4880, 159))
    assert round(X.nnz / 4880, 1) == 68.5
    X_python, Y_python = load_xmc(data_folder / "bibtex" / "train.txt.xz", parser="python")
    assert (X_python != X).nnz == 0
    assert (Y_python != Y).nnz == 0
