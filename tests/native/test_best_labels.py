"""The k best of scores that the kernel finds, against a stable sort."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.problems import needs_native
from xmcjax.native import InPlace

LABELS = 2600


def scores(kind, dtype):
    rng = np.random.default_rng(5)
    z = rng.normal(size=LABELS)
    steps = rng.integers(-300, 300, LABELS)
    if kind == "ties":
        z = steps // 100 * np.where(rng.random(LABELS) < 0.5, -0.0, 1)
    elif kind == "near":  # many that are equal in the leading bits, of either sign
        z = np.sign(z) * (1 + steps * 2 * np.finfo(dtype).eps)
    elif kind == "tiny":  # the kernels take numbers that are not normal for 0
        z = steps * np.finfo(dtype).smallest_normal / 100
    elif kind == "infinite":
        z[::3], z[1::5], z[2::7], z[3::11] = np.inf, -np.inf, np.nan, -np.nan
    return z.astype(dtype)


def by_sorting(z, k):
    """Labels by falling score, then rising number; −1 where the score is −∞, and none of NaN."""
    labels, best = np.full(k, -1, np.int32), np.full(k, -np.inf, z.dtype)
    order = np.argsort(-np.where(np.abs(z) < np.finfo(z.dtype).smallest_normal, 0, z), kind="stable")
    order = order[z[order] > -np.inf][:k]
    labels[: len(order)], best[: len(order)] = order, z[order]
    return labels, best


@needs_native
@pytest.mark.parametrize("kind", ["usual", "ties", "near", "tiny", "infinite"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [5, 129, 1100, 3000])
@pytest.mark.parametrize("block", [20, 700, LABELS])
def test_the_best_are_those_of_a_stable_sort_to_the_bit(kind, dtype, k, block):
    z = scores(kind, dtype)
    labels, best = np.full((1, k), -1, np.int32), np.full((1, k), -np.inf, dtype)
    for first in range(0, LABELS, block):
        given = dict(z=z[None, first : first + block], first_label=first, threads=1)
        InPlace.once("best_labels", **given, scores=best, best=labels)
    expected_labels, expected = by_sorting(z, k)
    np.testing.assert_array_equal(labels[0], expected_labels)
    bits = f"u{z.itemsize}"
    np.testing.assert_array_equal(best[0].view(bits), expected.view(bits))
