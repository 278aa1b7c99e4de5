"""Scores in trees of classes and reject curves against what is counted by hand."""

import numpy as np
import pytest

from xmcjax.metrics import parent_accuracy, reject_curve, taxonomy_loss

# 1 and 2 under 10, 3 under 12 under 11, 4 under 11, 5 under the root
EDGES = [(0, 10), (0, 11), (10, 1), (10, 2), (11, 12), (12, 3), (11, 4), (0, 5)]
# paths in edges, by hand
PATHS = {(1, 1): 0, (1, 2): 2, (1, 3): 5, (1, 4): 4, (1, 5): 3, (3, 4): 3, (3, 5): 4, (4, 5): 3}


@pytest.mark.parametrize("swap", [False, True])
def test_half_a_path(swap):
    for (a, b), length in PATHS.items():
        pair = (b, a) if swap else (a, b)
        assert taxonomy_loss([pair[0]], [pair[1]], EDGES) == length / 2
    true, pred = np.array(list(PATHS)).T
    assert taxonomy_loss(true, pred, EDGES) == np.mean(list(PATHS.values())) / 2


def test_parents():
    assert parent_accuracy([1, 1, 3, 5, 4, 2], [1, 2, 4, 5, 4, 4], EDGES) == 4 / 6


def test_reject_curve_by_hand():
    true, pred = np.array(list("abcab")), np.array(list("abbbb"))  # wrong: third and fourth
    curve = reject_curve(true, pred, [0.9, 0.5, 0.6, 0.7, 0.8])
    np.testing.assert_allclose(curve, [0, 0, 0.2, 0.4, 0.4])
    # equal confidences: no order of the rows may matter
    for order in ([0, 1, 2, 3, 4], [3, 2, 1, 0, 4]):
        some = reject_curve(true[order], pred[order], np.array([0.9, 0.5, 0.5, 0.5, 0.5])[order])
        np.testing.assert_allclose(some, [0, 0.1, 0.2, 0.3, 0.4])


def test_bad_input():
    for metric in (taxonomy_loss, parent_accuracy):
        with pytest.raises(ValueError, match="y_pred: expected leaves of the hierarchy, found 10, an inner"):
            metric([1, 2], [1, 10], EDGES)
        with pytest.raises(ValueError, match=r"of one length, found shapes \(2,\), \(1,\)"):
            metric([1, 2], [1], EDGES)
        with pytest.raises(ValueError, match="cycle"):
            metric([1], [1], [*EDGES, (7, 8), (8, 7)])
    with pytest.raises(ValueError, match=r"found shapes \(2,\), \(2,\), \(1,\)"):
        reject_curve([1, 2], [1, 2], [0.5])
    with pytest.raises(ValueError, match="found nan"):
        reject_curve([1], [1], [np.nan])
