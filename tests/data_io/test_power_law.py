"""The synthetic data: deterministic, the sizes asked for, a long tail, labels that features tell."""

import hashlib

import numpy as np
import pytest
import scipy.sparse as sp

from xmcjax.data import fit_transforms, make_power_law


def test_shapes_and_sizes():
    X, Y = make_power_law(2000, 1500, 300, labels_per_row=4, nonzeros_per_row=60, seed=1)
    for matrix, shape in ((X, (2000, 1500)), (Y, (2000, 300))):
        assert isinstance(matrix, sp.csr_matrix)
        assert (matrix.shape, matrix.dtype) == (shape, np.float32)
        matrix.check_format(full_check=True)
        assert matrix.has_canonical_format
    assert (Y.data == 1).all()
    assert (X.data >= 1).all()
    assert (X.data == np.floor(X.data)).all()
    assert np.diff(Y.indptr).min() >= 1
    assert np.diff(X.indptr).min() >= 1
    assert abs(Y.nnz / 2000 - 4) < 0.2
    assert abs(X.nnz / 2000 - 60) < 3


def test_seed_decides_everything():
    def digest(**options):
        X, Y = make_power_law(300, 200, 50, **options)
        parts = (X.data, X.indices, X.indptr, Y.indices, Y.indptr)
        return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()

    assert digest(seed=5) == digest(seed=5)
    assert len({digest(seed=5), digest(seed=6), digest(seed=5, exponent=0.5)}) == 3
    X, _ = make_power_law(300, 200, 50, seed=5, dtype=np.float64)
    assert X.dtype == np.float64
    assert (make_power_law(300, 200, 50, seed=5)[0] != X).nnz == 0


def test_frequencies_follow_the_power_law():
    n = 30_000
    _, Y = make_power_law(n, 100, 2000, labels_per_row=2, exponent=1.0, seed=0, nonzeros_per_row=1)
    counts = np.sort(np.bincount(Y.indices, minlength=2000))[::-1]
    ranks = np.arange(20, 400)
    slope = np.polyfit(np.log(ranks), np.log(counts[ranks - 1]), 1)[0]
    assert abs(slope + 1) < 0.1
    _, flat = make_power_law(n, 100, 50, labels_per_row=2, exponent=0, seed=0, nonzeros_per_row=1)
    counts = np.bincount(flat.indices, minlength=50)
    assert counts.max() < 1.3 * counts.min()


def test_labels_depend_on_the_features():
    """Means of the labels' rows find a label far more often than the most frequent label does."""
    X, Y = make_power_law(6000, 5000, 400, seed=2)
    train, test = slice(0, 4500), slice(4500, 6000)
    X = fit_transforms("log,idf,unit", X[train]).apply(X)
    means = fit_transforms("unit", X).apply(Y[train].T @ X[train])
    best = (X[test] @ means.T).toarray().argmax(axis=1)
    hits = np.asarray(Y[test][np.arange(1500), best]).mean()
    assert hits > 1.5 * Y[test].mean(axis=0).max()
    assert hits > 0.8


def test_rows_in_blocks(monkeypatch):
    monkeypatch.setattr("xmcjax.data._power_law._BLOCK", 64)
    X, Y = make_power_law(500, 80, 30, seed=3, nonzeros_per_row=30)
    assert (X.shape, Y.shape) == ((500, 80), (500, 30))
    assert np.diff(Y.indptr).min() >= 1
    # Blocks are independent: no row repeats from one to the next.
    assert len({tuple(row) for row in np.split(X.indices, X.indptr[1:-1])}) > 450


@pytest.mark.parametrize(
    ("sizes", "labels", "features", "most"),
    [
        ((0, 5, 3), 1, 1, 0),
        ((1, 1, 1), 1, 1, 1),
        ((3, 1, 1), 1, 1, 3),
        ((20, 6, 4), 4, 6, 120),  # all labels of every row
        # a million labels cost time and memory of the non-zeros, not of rows times labels
        ((2000, 50_000, 1_000_000), 5, 50, 120_000),
    ],
)
def test_any_size(sizes, labels, features, most):
    X, Y = make_power_law(*sizes, labels_per_row=labels, nonzeros_per_row=features, seed=4)
    assert (X.shape, Y.shape) == (sizes[:2], (sizes[0], sizes[2]))
    assert np.diff(Y.indptr).min(initial=labels) >= (labels if labels == sizes[2] else 1) and X.nnz <= most


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ((-1, 5, 3), {}, "n: expected at least 0, got -1"),
        ((1, 0, 3), {}, "d: expected at least 1, got 0"),
        ((1, 5, 2**31), {}, "n_labels: expected at most 2147483647"),
        ((1, 5, 3), {"labels_per_row": 4}, "labels_per_row must be from 1 to 3, got 4"),
        ((1, 5, 3), {"nonzeros_per_row": 6}, "nonzeros_per_row must be from 1 to 5, got 6"),
        ((1, 5, 3), {"nonzeros_per_row": 2, "exponent": -1}, "exponent must be from 0"),
        ((1, 5, 3), {"nonzeros_per_row": float("nan")}, "nonzeros_per_row must be from 1 to 5, got nan"),
    ],
)
def test_arguments_are_checked(sizes, options, message):
    options = {"labels_per_row": 1, "nonzeros_per_row": 1} | options
    with pytest.raises(ValueError, match=message):
        make_power_law(*sizes, **options)
