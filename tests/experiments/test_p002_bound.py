"""The two curves of figure 1 of paper 002: G and its bound by double majorization."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.papers.p002.bound import curves
from xmcjax import linops
from xmcjax.solvers import multinomial


def test_both_curves_fall_to_the_minima_that_the_solvers_find():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), rng.integers(0, 3, 60)
    found = curves(X, y, 0.5, 200)
    assert all(np.all(np.diff(values) <= 1e-9) for values in found.values())
    problem = multinomial.multinomial_problem(linops.make(X), y, 0.5, classes=3)
    for method, key in (("newton", "value"), ("dm", "bound")):
        values: list[float] = []

        def observe(state, record, values=values, key=key):
            values.append(float(getattr(state, key)))

        multinomial.run(problem, method, multinomial.HParams(1e-8, 500), observe=observe)
        assert found[key][-1] == pytest.approx(min(values[1:]), rel=1e-4), key
    assert found["bound"][-1] > found["value"][-1]
