"""Extrapolation of the steps for all rows at once never leaves them where they make no progress."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.internals import Extrapolation, Look, admm_steps
from tests.support.problems import needs_native
from xmcjax.solvers import Status, topk_sdca


class Halved:
    """Steps of the map x → x / 2, but far away from where it takes 0 to."""

    def __init__(self, far):
        self.x, self.far = np.array([8.0]), far

    def position(self):
        return self.x.copy()

    def state(self):
        return [self.x.copy()]

    def put(self, state):
        (self.x,) = state

    def round(self, extrapolation):
        extrapolation.begin()
        self.x = self.x / 2 if abs(self.x[0]) > 1e-3 else np.array([self.far])
        extrapolation.end()
        return float(self.x[0])


@pytest.mark.parametrize("far", [100.0, np.nan])
def test_steps_go_back_where_an_extrapolation_leads_astray(far):
    steps = Halved(far)
    extrapolation = Extrapolation(steps)
    assert steps.round(extrapolation) == 4.0
    assert abs(steps.round(extrapolation)) < 1e-3  # which a map that is linear has as its fixed point
    assert steps.round(extrapolation) == 2.0  # where the round before had ended
    assert steps.round(extrapolation) == 1.0


class Balanced:
    """Steps that change now dual variables more and now scores, and all in all both alike."""

    exact, free, rounding, least, shortens, polish = True, True, 0.0, 0.0, False, None

    def __init__(self):
        self.extrapolation, self.steps, self.rhos = Extrapolation(self), 0, []

    def begin(self):
        return 1.0, 1.0

    def use(self, rho):
        self.rhos.append(rho)

    def look(self):
        return Look(1.0, 0.0, 0.0)

    def move(self, count):
        self.steps += count
        ratio = 1.0 if self.steps < 1000 else 1e6 ** (-1) ** (self.steps // 5)
        return ratio, 1 / self.rhos[-1] ** 2  # ‖Δα‖² and ‖XΔ‖²

    def position(self):
        return np.zeros(1)

    def state(self):
        return []

    def put(self, state):
        pass

    def keep_weights(self):
        pass

    def keep_alpha(self, factor):
        pass

    def best(self):
        return np.zeros((1, 2)), sp.csr_array((1, 2))


def test_one_step_after_an_extrapolation_does_not_move_rho_far():
    steps = Balanced()
    admm_steps(steps, 1.0, 1e-3, 10_000)
    assert max(steps.rhos) < 10 * steps.rhos[0] and min(steps.rhos) > steps.rhos[0] / 10


@needs_native
@pytest.mark.parametrize("seed", [1, 16, 17, 38, 44])
def test_correlated_features_do_not_keep_a_gap_from_falling(seed):
    """Each of these ended at a gap of 2e-2 to 8e-2, with as many epochs as one allowed."""
    rng, m = np.random.default_rng(seed), 2 + seed % 2
    X = rng.normal(size=(300, 2)) + 3 * rng.normal(size=(300, 1))
    y = np.argmax(X @ rng.normal(size=(2, m)) + 0.1 * rng.normal(size=(300, m)), 1)
    found = topk_sdca.solve(np.hstack([X, np.ones((300, 1))]), y, 1, 80.0, tol=1e-4, max_epochs=1500)
    assert found.status == Status.CONVERGED and found.gap <= 1e-4
