"""Made data: shapes, seeds, and what they are made of."""

import re

import numpy as np
import pytest

from xmcjax import data, datasets


def test_texts():
    X, y = datasets.make_texts(4000, 500, 20, seed=1)
    assert X.shape == (4000, 500) and X.dtype == np.float32 and set(X.data) <= set(range(1, 11))
    lengths = X.sum(axis=1)
    assert set(lengths.astype(int)) == set(range(4, 11))
    assert y[:20].tolist() == list(range(20)) and set(y) == set(range(20))
    again = datasets.make_texts(4000, 500, 20, seed=1)[0]
    assert (again != X).nnz == 0 and (datasets.make_texts(4000, 500, 20, seed=2)[0] != X).nnz > 0
    # with share 1 a class shows its own words alone, twelve at most
    X, y = datasets.make_texts(4000, 500, 20, share=1.0)
    shown = np.array([(X[np.flatnonzero(y == c)].sum(axis=0) > 0).sum() for c in range(20)])
    assert shown.max() <= 12 and shown.min() > 1
    X, y = datasets.make_texts(4000, 500, 20, share=0.0)
    assert min((X[np.flatnonzero(y == c)].sum(axis=0) > 0).sum() for c in range(20)) > 50


def test_hierarchy():
    X, y, edges = datasets.make_hierarchy(20_000, 30, (3, 1, 4), spread=2.0, noise=0.5, seed=3)
    assert X.shape == (20_000, 30) and X.dtype == np.float32
    children, parents = edges[:, 1], edges[:, 0]
    assert sorted(children) == list(range(1, 19)) and len(edges) == 3 + 3 + 12
    assert set(y) == set(range(1, 13)) == set(children) - set(parents)
    assert np.bincount(parents, minlength=1)[0] == 3
    centres = np.array([X[y == leaf].mean(axis=0) for leaf in range(1, 13)])
    above = dict(zip(children.tolist(), parents.tolist(), strict=True))
    top = np.array([above[above[leaf]] for leaf in range(1, 13)])
    near = (top[:, None] == top) & ~np.eye(12, dtype=bool)
    squared = ((centres[:, None] - centres) ** 2).mean(axis=2)
    # 2 edges of variance 4 apart, or 6
    np.testing.assert_allclose(squared[near].mean(), 8, rtol=0.3)
    np.testing.assert_allclose(squared[top[:, None] != top].mean(), 24, rtol=0.3)
    deviations = [X[y == leaf].std(axis=0).mean() for leaf in range(1, 13)]
    np.testing.assert_allclose(deviations, 0.5, rtol=0.05)
    assert (
        datasets.make_hierarchy(50, 2, (3, 2), seed=4).X == datasets.make_hierarchy(50, 2, (3, 2), seed=4).X
    ).all()


def test_the_power_law_is_that_of_data():
    assert datasets.make_power_law is data.make_power_law


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: datasets.make_texts(5, 10, 6), "^n: expected at least 6, got 5$"),
        (lambda: datasets.make_texts(5, 10, 2, share=1.5), r"^share must be from 0 to 1, got 1.5$"),
        (lambda: datasets.make_hierarchy(5, 2, (2, 3)), "^n: expected at least 6, got 5$"),
        (lambda: datasets.make_hierarchy(5, 2, ()), "^branching: expected one level at least"),
        (
            lambda: datasets.make_hierarchy(9, 2, (2,), noise=-1),
            "^noise must be at least 0 and finite, got -1$",
        ),
    ],
)
def test_arguments_out_of_range(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("branching", [5, None, "45", b"45", {4: 5}, np.array(5)], ids=repr)
def test_branching_is_a_sequence(branching):
    said = f"branching: expected the number of children on each level, such as (4, 5), got {branching!r}"
    with pytest.raises(TypeError, match=f"^{re.escape(said)}$"):
        datasets.make_hierarchy(50, 2, branching)


def test_branching_may_be_an_array():
    made = [datasets.make_hierarchy(50, 2, b).X.tobytes() for b in ((3, 2), [3, 2], np.array([3, 2]))]
    assert len(set(made)) == 1
