"""Rows of distributions beside long doubles, by the kernels and by NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.internals import multinomial_distributions as distributions
from tests.support.problems import needs_native
from xmcjax import native

WAYS = [pytest.param("native", marks=needs_native), "numpy"]
EPS = float(np.finfo(np.float64).eps)


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    monkeypatch.setattr(native, "available", lambda: request.param == "native")
    return request.param


def rows(n, K, threads=1):
    rng = np.random.default_rng(n + K)
    weight = rng.choice([0.0, 0.5, 1.0, 3.0], n)
    return distributions.Instances(rng.integers(0, K, n).astype(np.int32), weight, threads)


def scores(n, K, size):
    """Some rows with the largest score twice, and one with all scores equal."""
    Z = size * np.random.default_rng(K).normal(size=(n, K))
    Z[::7, K // 2] = Z[::7].max(axis=1)
    Z[3] = 2.5
    return Z


def exact_log_p(Z, bias):
    Z = Z.astype(np.longdouble) + bias.astype(np.longdouble)
    Z -= Z.max(axis=1, keepdims=True)
    return Z - np.log(np.exp(Z).sum(axis=1, keepdims=True))


def exact_residuals(of, Q):
    R = Q.copy()
    R[of.own] = 0
    R[of.own] = -R.sum(axis=1)
    return of.weight[:, None] * R


@pytest.mark.parametrize("size", [1e-6, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("K", [2, 3, 8, 13, 70, 301])
def test_residuals(way, K, size):
    n = 150
    of, Z, bias = rows(n, K), scores(n, K, size), np.linspace(-1, 1, K)
    log_p = exact_log_p(Z, bias)
    of_scores = 4 * EPS * (1 + np.abs(Z).max(axis=1) + 1)
    R, losses = distributions.residuals(of, Z, bias)
    assert R is Z
    assert (np.abs(losses + log_p[of.own]) <= of_scores).all()
    expected = exact_residuals(of, np.exp(log_p))
    # each entry has its digits, and so has p_y − 1 of a row that is almost certain
    near = (K * EPS + of_scores)[:, None]
    assert (np.abs(R - expected) <= near * np.abs(expected) + 1e-300).all()


@pytest.mark.parametrize("step", [0.0, 1e-3, 0.3, 40.0])
@pytest.mark.parametrize("K", [2, 8, 13, 70])
def test_steps(way, K, step):
    """The first where it leaves a distribution, else e^u."""
    n = 130
    of, Z, bias = rows(n, K), scores(n, K, 3.0), np.linspace(-1, 1, K)
    rng = np.random.default_rng(1)
    U, direction = step * rng.normal(size=(n, K)), step * rng.normal(size=K)
    log_p = exact_log_p(Z, bias)
    P, u = np.exp(log_p), U.astype(np.longdouble) + direction
    u -= (P * u).sum(axis=1, keepdims=True)
    linear = u.min(axis=1) > -1
    assert linear.all() if step < 0.1 else not linear.all()
    expected = P * np.where(linear[:, None], 1 + u, np.exp(u - u.max(axis=1, keepdims=True)))
    expected /= expected.sum(axis=1, keepdims=True)
    found, Q, totals = distributions.stepped(of, Z, bias, U, direction)
    assert found is Z and Q is U
    np.testing.assert_allclose(found, log_p.astype(float), rtol=1e-14, atol=1e-14)
    near = 1e-13 * (1 + step)
    np.testing.assert_allclose(Q, expected.astype(float), rtol=near, atol=near * 1e-3)
    np.testing.assert_allclose(Q.sum(axis=1), 1, rtol=1e-14)
    np.testing.assert_allclose(totals, of.weight @ Q, rtol=1e-13)


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("K", [2, 8, 13, 70])
def test_distances(way, K, divided):
    """Near and far distributions, and such with probabilities of 0 on either side."""
    n, rng = 120, np.random.default_rng(0)
    of = rows(n, K)
    log_p = exact_log_p(scores(n, K, 5.0), np.zeros(K)).astype(float)
    log_p[5, 0] = -2000.0  # e^-2000 is 0
    P = np.exp(log_p)
    Q = P * (1 + 1e-5 * rng.normal(size=(n, K)))
    Q[::3] = rng.dirichlet(np.ones(K), len(Q[::3]))
    Q[4, 1:], Q[4, 0] = 0, 1
    Q[5, 0] = 0
    Q /= Q.sum(axis=1, keepdims=True)
    kept, taken = np.ones(K), np.zeros(K)
    if divided:
        kept[: K // 2], taken[K // 2 :] = 0.75, 1 / (K - K // 2)
    q = Q.astype(np.longdouble)
    q = q * kept + (q @ (1 - kept))[:, None] * taken
    p = np.exp(log_p.astype(np.longdouble))
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(q > 0, q * (np.log(q) - log_p) - q, 0) + p
    R, found = distributions.distances(of, log_p, Q, kept, taken)
    assert R is Q
    assert found[1] < (1e-9 if not divided else 10) and found[0] > 1e-3
    size = EPS * (8 + np.abs(log_p * q.astype(float)).max(axis=1))
    assert (np.abs(found - terms.sum(axis=1)) <= 4 * size).all()
    expected = exact_residuals(of, q).astype(float)
    np.testing.assert_allclose(R, expected, rtol=1e-13, atol=1e-300)


def test_what_is_no_number_makes_none(way):
    """Of scores that overflow and of a NaN, the losses are not finite."""
    Z = np.zeros((4, 9))
    Z[0, 3], Z[1, 3], Z[2, 3] = np.nan, np.inf, -np.inf
    of = distributions.Instances(np.array([0, 0, 3, 1], np.int32), np.ones(4), 1)
    with np.errstate(invalid="ignore"):
        R, losses = distributions.residuals(of, Z, np.zeros(9))
        assert not np.isfinite(losses[:3]).any() and np.isfinite(losses[3]) and np.isfinite(R[3]).all()
        for place, K in ((0, 2), (1, 2), (0, 60), (59, 60)):
            Z = np.zeros((3, K))
            Z[1, place] = np.nan
            one = distributions.Instances(np.full(3, 1 - place % 2, np.int32), np.ones(3), 1)
            losses = distributions.residuals(one, Z, np.zeros(K))[1]
            np.testing.assert_array_equal(np.isnan(losses), [False, True, False])
        Z, U = np.zeros((2, 9)), np.zeros((2, 9))
        U[0, 4] = np.inf
        two = of._replace(y=of.y[:2], weight=of.weight[:2])
        _, Q, totals = distributions.stepped(two, Z, np.zeros(9), U, np.zeros(9))
    assert not np.isfinite(Q[0]).all() and np.isfinite(Q[1]).all() and not np.isfinite(totals).all()


@needs_native
def test_threads_change_no_bit():
    n, K = 3000, 21
    bias, direction = np.linspace(-1, 1, K), np.linspace(0, 0.1, K)
    kept, taken = np.full(K, 0.9), np.full(K, 1 / K)
    found = []
    for threads in (1, 2, 5):
        of, Z = rows(n, K, threads), scores(n, K, 2.0)
        all_of_it = [*distributions.residuals(of, Z.copy(), bias)]
        log_p, Q, totals = distributions.stepped(of, Z, bias, 0.1 * scores(n, K, 1.0), direction)
        all_of_it += [log_p.copy(), Q.copy(), totals, *distributions.distances(of, log_p, Q, kept, taken)]
        found.append(all_of_it)
    for other in found[1:]:
        for one, same in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, same)
