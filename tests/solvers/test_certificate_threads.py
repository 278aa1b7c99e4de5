"""The certificate of the dual solvers on several threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import scipy.sparse as sp
import threadpoolctl

from tests.support.internals import certificates, search
from tests.support.problems import svm_problem
from xmcjax.solvers import REMEDY, Status
from xmcjax.solvers import multiclass_dual as md


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("formulation", ["ww", "llw", "topk_beta"])
def test_threads_change_no_bit(monkeypatch, formulation, sparse):
    X, y = svm_problem(n=90, d=6, m=4)
    X = sp.csr_array(X.astype(np.float32)) if sparse else X.astype(np.float32)
    rng = np.random.default_rng(0)
    alpha = rng.uniform(0, 0.3, size=(len(y), 4))
    alpha[np.arange(len(y)), y] = 0
    monkeypatch.setattr(certificates, "_SCORES", 8 * 4 * 7)  # blocks of seven rows
    workers = set()
    losses = certificates._losses

    def noted(*given):
        workers.add(threading.current_thread().name)
        return losses(*given)

    monkeypatch.setattr(certificates, "_losses", noted)
    C = rng.uniform(0.5, 2, size=len(y)) if formulation == "ww" else 0.7
    given = X, y, sp.csr_array(alpha), formulation, C, 1e-9
    one = certificates.certified(*given, k=2)
    assert workers == {threading.current_thread().name}
    workers.clear()
    three = certificates.certified(*given, k=2, threads=3)
    assert workers and all(name.startswith("xmcjax-certificate") for name in workers)
    assert (three.primal, three.dual, three.rounding) == (one.primal, one.dual, one.rounding)
    np.testing.assert_array_equal(three.W, one.W)


@pytest.mark.parametrize("formulation", ["ovr", "llw"])
def test_threads_change_no_bit_of_dense_features_in_float64(formulation):
    """Products so large that BLAS would divide them."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(800, 150))
    y = np.argmax(X @ rng.normal(size=(150, 4)) + 10 * rng.normal(size=(800, 4)), axis=1)
    with threadpoolctl.threadpool_limits(2, "blas"):
        one, two = (
            md.run(X, y, formulation=formulation, C=1.0, tol=1e-6, threads=threads) for threads in (1, 2)
        )
    assert one.status == Status.CONVERGED and one.epochs > 10
    np.testing.assert_array_equal(one.W, two.W)


def test_a_problem_is_certified_on_its_threads(monkeypatch):
    X, y = svm_problem(n=60, d=5, m=3)
    seen = []
    certified = search.certified

    def noted(*given, threads, **more):
        seen.append(threads)
        return certified(*given, threads=threads, **more)

    monkeypatch.setattr(search, "certified", noted)
    for backend in ("auto", "dense"):
        seen.clear()
        found = md.run(X.astype(np.float32), y, backend=backend, threads=2)
        assert found.gap <= 1e-3 and set(seen) == {2}, backend


def tried(monkeypatch, X, y, alpha, tol, C):
    """The certificate, and how many W were looked at."""
    looks, primal = [], certificates._primal
    monkeypatch.setattr(certificates, "_primal", lambda *given: looks.append(given) or primal(*given))
    found = certificates.certified(X, y, alpha, "ww", C, tol)
    monkeypatch.undo()
    return found, len(looks)


def test_longer_weights_are_tried_where_they_may_help(monkeypatch):
    """W itself, two that say what others can bring, and the others where that is enough for the tolerance."""
    rng, y = np.random.default_rng(3), np.arange(24) % 4
    X = rng.normal(size=(24, 40)).astype(np.float32)
    alpha = md.run(X.astype(np.float64), y, C=1e4, tol=1e-9).alpha  # all gains are 0 but for rounding
    near, looks = tried(monkeypatch, X, y, alpha, 1e-4, 1e4)
    assert near.gap <= 1e-2 and looks == 1 + len(certificates.LONGER)
    # far from the end no length can help; the last look is at no weights, which these may be worse than
    far, looks = tried(monkeypatch, X, y, 0.5 * alpha, 1e-4, 1e4)
    assert far.gap > 0.1 and looks == 3 + 1
    plain, looks = tried(monkeypatch, X, y, alpha, 1.0, 1e4)
    assert looks == 1 and plain.gap >= near.gap


def test_what_is_left_of_the_search_is_made_up_for_in_float64(monkeypatch):
    """Dual variables shorter by a millionth leave gains of 1e-6, which cost as much as all weights."""
    rng, y = np.random.default_rng(3), np.arange(24) % 4
    X = rng.normal(size=(24, 40))
    alpha = (1 - 1e-6) * md.run(X, y, C=1e6, tol=1e-9).alpha
    near, looks = tried(monkeypatch, X, y, alpha, 1e-3, 1e6)
    assert near.gap <= 1e-3 and looks == 1 + len(certificates._WIDER) + len(certificates.OF_TOLERANCE)
    # no loss is left
    assert near.primal == pytest.approx(np.vdot(near.W, near.W) / 2, rel=1e-9)


@pytest.mark.parametrize("formulation", ["ww", "llw"])
def test_long_rows_are_certified_in_float64_too(formulation):
    """C ‖x‖² is about 5e13: in float64 losses of weight C that are rounding were a percent of P and more."""
    rng, y = np.random.default_rng(0), np.arange(24) % 3
    X = np.round(1e6 * rng.normal(size=(24, 40)))
    found = md.run(X, y, formulation=formulation, C=1.0, max_epochs=200)
    assert found.status == Status.CONVERGED and found.gap <= 1e-3
    # no loss is left
    assert found.primal == pytest.approx(np.vdot(found.W, found.W) / 2, rel=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_advised_is_to_be_had(dtype):
    for status, said in REMEDY.items():
        here = status.remedy(dtype)
        assert (here == said) == (dtype == "float32" or "float64" not in said)
        assert "float64" not in here or ("float64 in place of float32" in here and dtype == "float32")
