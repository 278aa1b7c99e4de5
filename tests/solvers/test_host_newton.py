"""Conjugate gradients and halvings on the host."""

from typing import NamedTuple

import numpy as np
import pytest

from xmcjax.solvers.host_newton import conjugate_gradients, halved


class Point(NamedTuple):
    t: float
    value: float


@pytest.fixture
def system():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(8, 8))
    return root @ root.T + 0.1 * np.eye(8), rng.normal(size=8)


def never(r, rz, fall):
    return False


def test_the_solution_and_its_fall(system):
    A, b = system
    x, fall = conjugate_gradients(lambda p: A @ p, b, np.diagonal(A), never, 50)
    expected = np.linalg.solve(A, b)
    np.testing.assert_allclose(x, expected, rtol=1e-8)
    assert fall == pytest.approx(b @ expected / 2, rel=1e-10)


def test_it_ends_where_that_is_enough_or_no_curvature_is_left(system):
    A, b = system
    seen = []

    def enough(r, rz, fall):
        seen.append(fall)
        return len(seen) == 4

    _, fall = conjugate_gradients(lambda p: A @ p, b, np.diagonal(A), enough, 50)
    assert seen[0] == 0
    assert seen == sorted(seen)
    assert fall == seen[-1]
    x, fall = conjugate_gradients(lambda p: 0 * p, b, np.ones(8), never, 50)
    assert not x.any()
    assert fall == 0


def test_the_first_of_the_halvings_that_falls():
    def at(t):
        return Point(t, t - 0.3)

    assert halved(at, 0.0, 10) == Point(0.25, 0.25 - 0.3)
    assert halved(at, 0.0, 2) is None
    assert halved(lambda t: Point(t, np.nan), 0.0, 10) is None
