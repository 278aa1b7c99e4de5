"""Lanes with the Huber penalty and others, on dense features, end after few steps."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.internals import lane_certificate, lowered_step
from tests.support.lanes import train
from tests.support.problems import needs_native
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.penalties import PENALTIES, HuberPenalty

pytestmark = needs_native


def wide(n=100, d=150, labels=3):
    """Dense features, and labels that a hyperplane separates."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, d)).astype(np.float32)
    S = X @ rng.standard_normal((d, labels))
    return X, sp.csr_matrix((np.quantile(S, 0.8, axis=0) < S).astype(np.float32))


@pytest.mark.parametrize("name", ["l1", "elastic_net", "huber"])
@pytest.mark.parametrize("share", [0.8, 1.0])
def test_columns_that_are_whole_and_those_of_entries(name, share):
    """The minimum of features is that of the same ones, with as many columns more that have no entries."""
    X, Y = wide(n=45, d=13)
    X[np.random.default_rng(0).random(X.shape) > share] = 0
    more = dict(penalty=PENALTIES[name](), loss=MARGIN_LOSSES["logistic"], tol=1e-6, clip=0.0)
    thin = sp.csr_matrix(np.hstack([X, np.zeros((45, 500), np.float32)]))
    found, expected = (train(features, Y, **more)[0] for features in (X, thin))
    for label, r in found.items():
        assert r.value == pytest.approx(expected[label].value, rel=1e-6)
        w, other = (np.zeros(513) for _ in range(2))
        w[r.indices], other[expected[label].indices] = r.values, expected[label].values
        np.testing.assert_allclose(w, other, rtol=2e-3, atol=2e-4)


def test_short_steps_begin_again_with_a_part_of_C():
    X, Y = wide()
    for r in train(X, Y, penalty=HuberPenalty(1.0), C=100.0, clip=0.0)[0].values():
        assert r.status == 1 and r.newton_steps <= 40


def test_a_search_goes_on_where_f_falls():
    """Where t was good enough but the minimum is at 0.03; not at a minimum, nor in other lanes."""
    least = np.array([0.03, 0.25, 0.03])

    def change(t):
        return (t - least) ** 2 - least**2

    t, searching = jnp.array([0.125, 0.25, 0.125]), jnp.array([True, True, False])
    assert lowered_step(change, t, searching, 20).tolist() == [2.0**-5, 0.25, 0.125]
    assert lowered_step(change, t, searching, 1).tolist() == [2.0**-4, 0.25, 0.125]


def test_a_bound_that_is_too_low_takes_a_few_steps_more_and_no_path(monkeypatch):
    X, Y = wide()
    label = lane_certificate.Label
    taken, path = [], label._path

    def counted(self, op, parts, start):
        taken.append(len(parts))
        return path(self, op, parts, start)

    monkeypatch.setattr(label, "_path", counted)
    options = dict(loss=MARGIN_LOSSES["logistic"], penalty=HuberPenalty(0.1), C=300.0, clip=0.0)
    assert all(r.status == 1 for r in train(X, Y, **options)[0].values())
    assert taken and set(taken) == {1}
