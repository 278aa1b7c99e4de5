"""What every projection of the table promises, tried with arguments made from its signature."""

from __future__ import annotations

import inspect

import jax
import numpy as np
import pytest

from tests.support.projections import SETS
from xmcjax.projections import PROJECTIONS

# By the names of parameters. A projection with another one adds it here.
NUMBERS = {"radius": 1.3, "lower": -0.2, "upper": 0.6, "k": 2}
M = 7


def projection(name: str):
    """A function of x alone: the other arguments that have no default are those of NUMBERS."""
    _, *parameters = inspect.signature(PROJECTIONS[name]).parameters.values()
    numbers = {p.name: NUMBERS[p.name] for p in parameters if p.default is p.empty}
    return lambda x: PROJECTIONS[name](x, **numbers)


@pytest.fixture
def vectors():
    rng = np.random.default_rng(0)
    return np.concatenate([scale * rng.standard_normal((8, M)) for scale in (0.1, 1, 30)])


@pytest.mark.parametrize("name", PROJECTIONS)
def test_the_nearest_point(name, vectors):
    project = projection(name)
    points = np.asarray(project(vectors))
    np.testing.assert_allclose(project(points), points, atol=1e-13)
    # <x - p, v - p> <= 0 for every v of the set
    products = np.einsum("ij,ikj->ik", vectors - points, points[None] - points[:, None])
    assert products.max() < 1e-12 and products.min() < -1e-3
    assert (np.abs(points - vectors) > 1e-3).any(1).sum() > len(vectors) / 2


@pytest.mark.parametrize("name", PROJECTIONS)
def test_the_derivative_is_that_of_a_projection(name, vectors):
    project = projection(name)
    for x in vectors[[0, 8, 16]]:
        J = np.asarray(jax.jacfwd(project)(x))
        h = 1e-6
        differences = np.stack(
            [(project(x + h * e) - project(x - h * e)) / (2 * h) for e in np.eye(M)], axis=1
        )
        np.testing.assert_allclose(J, differences, atol=1e-8)
        # symmetric, with eigenvalues between 0 and 1
        np.testing.assert_allclose(J, J.T, atol=1e-12)
        values = np.linalg.eigvalsh(J)
        assert values.min() > -1e-12 and values.max() < 1 + 1e-12
        np.testing.assert_allclose(jax.jacrev(project)(x), J, atol=1e-12)


def test_the_other_tests_of_projections_know_every_one():
    for name in PROJECTIONS:
        assert PROJECTIONS[name].__name__ == name
        assert any(case.startswith(name) for case in SETS), f"tests/support/projections.py lacks {name}"
