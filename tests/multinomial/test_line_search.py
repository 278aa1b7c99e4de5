"""The length at which a slope is about 0."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.internals import line_search


@pytest.mark.parametrize("slopes", [(-1.0, 1.0), (-1.0, 40.0), (-1e-3, 5.0)])
def test_a_slope_between_two_is_found_about_0(slopes):
    """Of a cubic with these slopes and curvatures exactly, and never at an end."""
    low = line_search.OnALine(0.5, slopes[0], 0.3)
    high = line_search.OnALine(2.5, slopes[1], 0.9)
    t = line_search.between(low, high)
    assert 0.5 < t < 2.5
    u = (t - 0.5) / 2
    # Hermite's cubic of the slopes
    slope = (
        (1 + 2 * u) * (1 - u) ** 2 * low.slope
        + u * (1 - u) ** 2 * 2 * low.curvature
        + u * u * (3 - 2 * u) * high.slope
        + u * u * (u - 1) * 2 * high.curvature
    )
    assert abs(slope) <= 1e-4 * slopes[1] or u == pytest.approx(line_search.EDGE)
    beyond = line_search.between(low, line_search.OnALine(np.inf, np.inf, 0.0))
    assert 0.5 < beyond <= 1.0


@pytest.mark.parametrize("leap", [0.3, 1e-4, 1e-7])
@pytest.mark.parametrize("after", [3.0, 1e6])
def test_a_slope_that_leaps_ends_before_the_leap(leap, after):
    search, last = line_search.Search(-1.0), 0.0
    while search.t is not None:
        last = search.t
        search.go_on(line_search.OnALine(last, -1.0 if last < leap else after, 1e-3))
    assert last == pytest.approx(leap, rel=1e-3)
    assert last < leap


def test_a_function_that_rises_has_no_length():
    search, trials = line_search.Search(-1.0), 0
    while search.t is not None:
        trials += 1
        search.go_on(line_search.OnALine(search.t, 1.0, 0.0))
    assert trials < 80
