"""Prediction files: round trips, and errors that name line and column."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from xmcjax.data import DataFormatError
from xmcjax.models import prediction_file, read_predictions, write_predictions


def test_what_it_looks_like(tmp_path):
    path = tmp_path / "p.txt"
    labels = np.array([[3, 0, 12], [7, -1, -1], [-1, -1, -1]])
    scores = np.array([[1.5, 0.1, -2.0], [1e-20, -np.inf, -np.inf], [-np.inf] * 3], np.float32)
    write_predictions(path, labels, scores)
    assert path.read_bytes() == b"3:1.5 0:0.1 12:-2.0\n7:1e-20\n\n"
    found = read_predictions(path)
    assert (found[0].dtype, found[1].dtype) == (np.int32, np.float32)
    np.testing.assert_array_equal(found, (labels, scores))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    scores=hnp.arrays(
        np.float32,
        st.tuples(st.integers(0, 6), st.integers(1, 5)),
        elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
    ),
    seed=st.integers(0, 100),
)
def test_round_trip(tmp_path, scores, seed):
    rng = np.random.default_rng(seed)
    scores = -np.sort(-scores, axis=1)
    labels = np.stack([rng.choice(2**31 - 1, scores.shape[1], replace=False) for _ in scores] or [[]])
    labels = labels.reshape(scores.shape).astype(np.int64)
    empty = rng.integers(0, scores.shape[1] + 1, len(scores))
    for row, count in enumerate(empty):
        labels[row, scores.shape[1] - count :] = -1
        scores[row, scores.shape[1] - count :] = -np.inf
    path = tmp_path / "p.txt"
    write_predictions(path, labels, scores)
    got_labels, got_scores = read_predictions(path)
    width = got_labels.shape[1]
    assert width == max((scores.shape[1] - empty), default=0)
    np.testing.assert_array_equal(got_labels, labels[:, :width])
    np.testing.assert_array_equal(got_scores, scores[:, :width])
    assert (labels[:, width:] == -1).all()


def test_many_rows_go_in_chunks(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.permuted(np.tile(np.arange(5), (20_000, 1)), axis=1)
    scores = -np.sort(-rng.standard_normal((20_000, 5)), axis=1).astype(np.float32)
    write_predictions(tmp_path / "p.txt", labels, scores)
    got = read_predictions(tmp_path / "p.txt")
    np.testing.assert_array_equal(got[0], labels)
    np.testing.assert_array_equal(got[1], scores)


@pytest.mark.parametrize(
    ("text", "labels", "scores"),
    [
        (b"", np.empty((0, 0)), np.empty((0, 0))),
        (b"\n\n", np.empty((2, 0)), np.empty((2, 0))),
        (b"1:2\r\n3:4\r\n", [[1], [3]], [[2], [4]]),
        (b"  1:2.5\t 0:-.5 \n", [[1, 0]], [[2.5, -0.5]]),
        (b"1:+2e0 2:2\n", [[1, 2]], [[2, 2]]),
        (b"1:1e-60\n", [[1]], [[0]]),
    ],
)
def test_what_is_accepted(tmp_path, text, labels, scores):
    (tmp_path / "p.txt").write_bytes(text)
    got = read_predictions(tmp_path / "p.txt")
    np.testing.assert_array_equal(got[0], labels)
    np.testing.assert_array_equal(got[1], scores)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        (b"1:2 x:3\n", 1, 5, "label:score .*found 'x:3'"),
        (b"1:2\n3\n", 2, 1, "found '3'"),
        (b"1:2\n 3:4 5: 6:1\n", 2, 6, "found '5:'"),
        (b"-1:2\n", 1, 1, "found '-1:2'"),
        (b"1:nan\n", 1, 1, "found '1:nan'"),
        (b"1:2 3:inf\n", 1, 5, "found '3:inf'"),
        (b"1:1_0\n", 1, 1, "found '1:1_0'"),
        (b"1:0x10\n", 1, 1, "found '1:0x10'"),
        (b"2147483648:1\n", 1, 1, "a label from 0 to 2147483647"),
        (b"99999999999999999999:1\n", 1, 1, "a label from 0"),
        (b"1.5:1\n", 1, 1, "found '1.5:1'"),
        (b"1:2,2:1\n", 1, 1, "found '1:2,2:1'"),
        ("١:1\n".encode(), 1, 1, "label:score"),
        (b"\x00\xff\n", 1, 1, "label:score"),
        (b"1:2 2:3\n", 1, 5, "scores best first, found 3.0 after 2.0"),
        (b"7:1 8:1 7:1\n", 1, 9, "each label once per line, found label 7 again"),
        (b"1:2\n3:4", 2, 4, "a line end, found the end of the file"),
        (b"\n1:1e39\n", 2, None, "float32 can hold, found 1e[+]39"),
        (b"1:1e999\n", 1, None, "float32 can hold, found inf"),
    ],
)
def test_what_is_refused(tmp_path, text, line, column, words):
    path = tmp_path / "p.txt"
    path.write_bytes(text)
    with pytest.raises(DataFormatError, match=words) as caught:
        read_predictions(path)
    assert (caught.value.path, caught.value.line, caught.value.column) == (str(path), line, column)


def test_long_tokens_are_cut_in_the_message(tmp_path):
    (tmp_path / "p.txt").write_bytes(b"x" * 10_000 + b"\n")
    with pytest.raises(DataFormatError) as caught:
        read_predictions(tmp_path / "p.txt")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("labels", "scores", "error", "words"),
    [
        ([[1]], [[1.0, 2.0]], ValueError, "of one shape"),
        ([1], [1.0], ValueError, "of one shape"),
        ([[1.0]], [[1.0]], TypeError, "found float64, float64"),
        ([[1]], [[1]], TypeError, "floating-point scores"),
        ([[0, 4]], [[1.0, np.nan]], ValueError, "found nan for label 4 in row 0"),
        ([[4, -1]], [[-np.inf, 0]], ValueError, "found -inf for label 4 in row 0"),
        ([[0], [2**40]], [[1.0], [1.0]], ValueError, "of at most 2147483647, found 1099511627776 in row 1"),
        (np.uint64([[2**63]]), [[1.0]], ValueError, "found 9223372036854775808 in row 0"),
        ([[1, 2]], [[1e300, 1.0]], ValueError, r"float32 can hold, found 1e\+300 for label 1 in row 0"),
        ([[1, 2]], [[1.0, 2.0]], ValueError, r"scores best first, found 2\.0 after 1\.0 in row 0"),
        ([[1, -1, 2]], [[1.0, 0.0, 2.0]], ValueError, r"scores best first, found 2\.0 after 1\.0 in row 0"),
        ([[0, 1, 2], [7, 8, 7]], np.ones((2, 3)), ValueError, "once per row, found label 7 again in row 1"),
    ],
)
def test_what_cannot_be_written(tmp_path, labels, scores, error, words):
    with pytest.raises(error, match=words):
        write_predictions(tmp_path / "p.txt", labels, scores)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["p.txt", "p.jsonl", "p.npz"])
def test_a_row_that_is_refused_has_its_number_in_the_file(tmp_path, name):
    refused = pytest.raises(ValueError, match="found inf for label 3 in row 4")
    with refused, prediction_file(tmp_path / name) as write:
        write([[0], [1]], np.ones((2, 1), np.float32))
        write([[0]], np.ones((1, 1), np.float32))
        write([[2], [3]], np.float32([[1], [np.inf]]))
    assert not list(tmp_path.iterdir())


def test_what_is_no_prediction_may_stand_between_others(tmp_path):
    none = np.finfo(np.float64).max
    write_predictions(tmp_path / "p.txt", [[-1, 5, -1, 3, -1]], [[none, 2.0, np.nan, 2.0, none]])
    labels, scores = read_predictions(tmp_path / "p.txt")
    assert (labels.tolist(), scores.tolist()) == ([[5, 3]], [[2.0, 2.0]])


def test_no_such_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_predictions(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        read_predictions(tmp_path)


def test_a_label_twice_in_a_row_of_an_npz_is_refused(tmp_path):
    scores, rows, columns = np.float32([1, 2, 3, 4]), [0, 1, 1, 2], [4, 2, 2, 0]
    for name, matrix in (
        ("coo", sp.coo_matrix((scores, (rows, columns)), (3, 5))),
        ("csr", sp.csr_matrix((scores, columns, [0, 1, 3, 4]), (3, 5))),
    ):
        sp.save_npz(tmp_path / f"{name}.npz", matrix)
        with pytest.raises(DataFormatError, match=r"found column 2 again in row 2$"):
            read_predictions(tmp_path / f"{name}.npz")


@pytest.mark.parametrize("name", ["p.txt", "p.jsonl", "p.npz"])
def test_scores_of_float64_keep_their_order(tmp_path, name):
    # such as probabilities of labels that are all but certain, which float32 cannot tell apart
    labels, scores = np.array([[5, 2, 7]]), np.array([[1 - 1e-12, 1 - 1e-9, 1 - 1e-9]])
    write_predictions(tmp_path / name, labels, scores)
    found = read_predictions(tmp_path / name)
    assert found[1].dtype == np.float32
    np.testing.assert_array_equal(found, (labels, np.ones((1, 3))))


def test_a_score_of_an_npz_that_float32_cannot_hold_is_refused(tmp_path):
    sp.save_npz(tmp_path / "p.npz", sp.csr_matrix([[1.0, 1e300]]))
    with pytest.raises(DataFormatError, match=r"p\.npz: expected finite float32 numbers in data"):
        read_predictions(tmp_path / "p.npz")
