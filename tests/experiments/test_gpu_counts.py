"""The counts by which a dense head and a fused search were left out, and the figure that will check them."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from experiments.bench import gpu_counts
from experiments.bench.gpu_kit._training import DENSE, split_columns
from tests.support.experiments import written

H200, T4 = gpu_counts.GPUS["H200"], gpu_counts.GPUS["T4"]


def test_gpu_counts_small(tmp_path):
    options = gpu_counts.Options(small=True, lanes=96).chosen()
    result = gpu_counts.run(options)
    stored, text = written(tmp_path, "gpu_counts", result, gpu_counts.markdown(result))
    found = stored["sets"]["naics_demo"]
    assert len(found["heads"]) == 8 and {row["gpu"] for row in found["heads"]} == {"H200", "T4"}
    for row in found["heads"]:
        assert 0 < row["best"] <= row["sparse"] < 1e-3 and 0 <= row["columns"] <= found["features"]
        assert (row["columns"] == 0) == (row["entries"] == 0) == (row["best"] == row["sparse"])
    for when, row in found["asked"].items():
        assert 0 < row["part"] <= 1 and row["best"] <= row["sparse"], when
    assert found["asked"].keys() == {"start", "end"}
    tables = [part.splitlines() for part in text.split("\n\n") if part.startswith("|")]
    assert len(tables) == 3 and all(len({line.count("|") for line in table}) == 1 for table in tables)
    assert "| naics_demo | Xᵀ C, no zeros | T4 |" in text and "commit" in text


def rows_drawn(chance: np.ndarray, n: int) -> sp.csr_matrix:
    """Entries of a row independent of each other."""
    drawn = np.random.default_rng(0).random((n, len(chance))) < chance
    return sp.csr_matrix(drawn.astype(np.float32))


def test_what_a_cache_keeps(monkeypatch):
    """By the formula as by following the requests, for columns of very different frequency."""
    monkeypatch.setattr(gpu_counts, "PROCESSORS", 1)
    X = rows_drawn(0.9 / np.arange(1, 1001) ** 0.8, 12_000)
    counts = np.bincount(X.indices, minlength=1000)
    for slots in (50, 200, 600):
        formula = counts @ gpu_counts.hits(counts, slots) / counts.sum()
        assert formula == pytest.approx(gpu_counts.followed(X, slots), abs=0.04)
    assert gpu_counts.hits(np.array([3, 0, 1]), 2).tolist() == [1, 0, 1]
    # all rows fit, and each misses once
    asked = 20_000
    assert gpu_counts.followed(X, 1000, asked) == pytest.approx(
        1 - len(np.unique(X.indices)) / asked, abs=0.01
    )


def test_a_head_of_the_columns_that_most_rows_have():
    """Found where there is one, and none where all columns are rare."""
    rare = np.full(2_000, 5e-3)
    X = rows_drawn(np.concatenate([np.full(32, 0.9), rare]), 4_000)
    of_head = gpu_counts.Heads(X, 512)
    found = of_head.best(T4, transposed=True)
    left, k = of_head.left[of_head.sizes.tolist().index(found.columns)], found.columns
    rest = gpu_counts.product(left, X.shape[1] - k, 512, T4).seconds
    assert found.best == pytest.approx(rest + gpu_counts.head(k, 4_000, 512, T4, transposed=True))
    assert 25 <= found.columns <= 40 and found.entries > 0.6
    assert found.best < 0.8 * found.sparse
    heads = gpu_counts.Heads(rows_drawn(rare, 4_000), 512)
    for gpu in (H200, T4):
        for transposed in (False, True):
            assert heads.best(gpu, transposed=transposed, first_level=False).columns == 0
    assert heads.needed(H200) is None


def test_times_of_products():
    """A cache that keeps everything leaves its own rate; one that keeps nothing the next one's."""
    counts, n, lanes = np.full(100, 1_000), 5_000, 512
    asked, stream = 4 * 512 * 100_000, 8 * 100_000 * 4
    kept = gpu_counts.product(counts, n, lanes, H200)
    assert kept.first == pytest.approx((asked + stream) / H200.first)
    assert kept.second == pytest.approx(stream / H200.second)
    lost = gpu_counts.product(counts, n, lanes, H200, first_level=False, active=0.1)
    assert lost.second == pytest.approx((asked / 10 + stream) / H200.second)
    assert lost.memory == pytest.approx((4 * 512 * 10 + stream + 4 * 512 * n) / H200.memory)
    multiplied = gpu_counts.head(1_000, n, lanes, H200) - 8 * n * lanes / H200.memory
    assert multiplied == pytest.approx(2 * 1_000 * n * lanes / H200.multiplications)
    assert gpu_counts.head(1_000, n, lanes, H200, transposed=True) == pytest.approx(multiplied)


def test_what_one_kernel_of_both_saves():
    """One reading of m, less the sums of a warp of 32 rows, written and read."""
    found = gpu_counts.fused(sp.csr_matrix(np.ones((3, 10))), 2)
    assert (found.apart, found.fused) == (4 * 10 + 4 + 2 * 9, 4 * 10 + 2 * 9 + 1.5)


def test_frequent_columns_and_the_rest_are_the_matrix():
    X = rows_drawn(np.array([0.5, 0.001, 0.0, 0.2, 0.02]), 2_000)
    block, columns, rest = split_columns(X)
    assert columns.tolist() == [0, 3] and rest.nnz == X[:, [1, 2, 4]].nnz
    whole = rest.toarray()
    whole[:, columns] += block
    np.testing.assert_array_equal(whole, X.toarray())
    assert 0.02 < DENSE < 0.2
