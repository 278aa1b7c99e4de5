"""Labels that start at weights far larger than those at their minima."""

from __future__ import annotations

import dataclasses
import functools
from typing import ClassVar

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from tests.support import objectives
from tests.support.internals import blocks, device_blocks, ranges
from tests.support.lanes import small
from tests.support.problems import needs_native
from xmcjax import OneVsAllClassifier, linops, losses
from xmcjax.inits import Bias, Init, MeanSeparating, MultiPos, Starts
from xmcjax.lanes import Job
from xmcjax.penalties import L1, L2
from xmcjax.solvers import Status, newton_cg

N, D, LABELS = 300, 8, 5
PENALTIES = {"l2": L2(), "l1": L1()}


@functools.cache
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)).astype(np.float32)
    return X, sp.csr_matrix(X @ rng.normal(size=(D, LABELS)) + rng.normal(size=(N, LABELS)) > 1)


def objective(fitted):
    X, Y = data()
    w, b = fitted.coef_, np.asarray(fitted.intercept_, np.float64)
    w = np.asarray(w.toarray() if sp.issparse(w) else w, np.float64).T
    y = np.where(Y.toarray(), 1, -1)
    penalty = PENALTIES[fitted.penalty]
    return objectives.lanes(X.astype(np.float64), y, w, b, fitted.loss, fitted.C, penalty=penalty)


@functools.cache
def least(loss, penalty):
    return objective(OneVsAllClassifier(clip=0, loss=loss, penalty=penalty, tol=1e-3).fit(*data()))


@dataclasses.dataclass(frozen=True)
class Far(Init):
    """Everything at this weight."""

    weight: float = 0.0

    name: ClassVar[str] = "far"

    def prepare(self, data):
        def starts(labels):
            none = np.zeros(len(labels.ids))
            return Starts(None, none, sp.csr_matrix(np.full((len(none), D), self.weight)), none)

        return starts


WAYS = [("squared_hinge", "l2"), ("logistic", "l2"), ("squared_hinge", "l1")]


@pytest.mark.parametrize("form", [np.asarray, pytest.param(sp.csr_matrix, marks=needs_native)])
@pytest.mark.parametrize(("loss", "penalty"), WAYS)
def test_labels_converge_at_their_minima(loss, penalty, form):
    """Scores that were only ever added to had the rounding of the first, and no one looked."""
    X, Y = data()
    for weight in (1e6, 1e9):
        made = OneVsAllClassifier(clip=0, loss=loss, penalty=penalty, init=Far(weight)).fit(form(X), Y)
        assert set(made.status_) == {Status.CONVERGED} and made.n_iter_.max() <= made.max_iter
        np.testing.assert_allclose(objective(made), least(loss, penalty), rtol=2e-3)


@pytest.mark.parametrize("form", [np.asarray, pytest.param(sp.csr_matrix, marks=needs_native)])
@pytest.mark.parametrize(("loss", "penalty"), WAYS)
@pytest.mark.parametrize("init", [Far(1e20), Bias(1e20), MeanSeparating(1e20), MultiPos(1e20)], ids=repr)
def test_labels_whose_start_has_no_finite_objective_begin_from_zero(loss, penalty, form, init):
    """They were lost, as those whose features are too large."""
    X, Y = form(data()[0]), data()[1]
    given = OneVsAllClassifier(clip=0, loss=loss, penalty=penalty, init=init)
    at_zero = clone(given).set_params(init="zero")
    for made in (given, at_zero):
        made.fit(X, Y)
    assert set(given.status_) == {Status.CONVERGED}
    for name in ("coef_", "intercept_", "n_iter_"):
        np.testing.assert_array_equal(getattr(given, name), getattr(at_zero, name), err_msg=name)


def test_labels_that_are_not_finite_from_zero_either_end():
    X, Y = data()
    fitted = OneVsAllClassifier(init=Bias(1e20), C=1e38)
    with pytest.warns(ConvergenceWarning, match="5 of 5 labels did not converge.*NONFINITE"):
        fitted.fit(X * np.float32(1e15), Y)
    assert set(fitted.status_) == {Status.NONFINITE}


def test_a_warm_start_from_features_of_another_scale():
    X, Y = data()
    fitted = OneVsAllClassifier(clip=0, warm_start=True, C=1e18).fit(X * np.float32(1e-9), Y)
    assert np.abs(fitted.coef_).max() > 1e8
    fitted.set_params(C=1.0).fit(X, Y)
    assert set(fitted.status_) == {Status.CONVERGED}
    np.testing.assert_allclose(objective(fitted), least("squared_hinge", "l2"), rtol=2e-3)


def stepped(block):
    """The numbers of the lanes after a step."""
    block.begin()
    return block.numbers()


@needs_native
@pytest.mark.parametrize("penalty", PENALTIES.values(), ids=repr)
def test_blocks_on_the_host_and_on_the_device_begin_the_same_lanes_again(penalty):
    X, Y = small(dtype=np.float32)
    given = linops.make(X, backend="native"), losses.squared_hinge, np.ones(1), newton_cg.HParams()
    shared = device_blocks.Shared(*given, penalty=penalty)
    made = [kind(shared, 4) for kind in (blocks.HostBlock, blocks.DeviceBlock)]
    at, found = np.arange(X.shape[1]), []
    sizes = (1e3, 1.0, 1e3)
    for block in made:
        positives = [Y.tocsc()[:, [label]].indices for label in range(3)]
        todo = [
            Job(lane, positives[lane], 1e-2, None, 1.0, at, np.full(len(at), size), 0.0)
            for lane, size in enumerate(sizes)
        ]
        block.start(list(enumerate(todo)))
        last = stepped(block)
        while newton_cg.moving(last["status"]).any():
            last = stepped(block)
        assert set(last["status"]) == {Status.CONVERGED}
        again = block.again([0, 1, 2], np.sqrt(len(at)) * np.array(sizes))
        found.append((again, stepped(block)))
    assert found[0][0] == found[1][0] == [0, 2]
    for name in blocks.NUMBERS:
        np.testing.assert_array_equal(found[0][1][name], found[1][1][name], err_msg=name)


@pytest.mark.parametrize("form", [np.asarray, pytest.param(sp.csr_matrix, marks=needs_native)])
def test_starts_of_ordinary_size_are_not_looked_at(form, monkeypatch):
    for kind in (blocks.HostBlock, blocks.DeviceBlock):
        monkeypatch.setattr(kind, "again", lambda *_: pytest.fail("scores were multiplied out"))
    X, Y = data()
    fitted = OneVsAllClassifier(warm_start=True).fit(form(X), Y)
    fitted.set_params(C=0.5).fit(form(X), Y)
    assert set(fitted.status_) == {Status.CONVERGED}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_the_largest_norm_of_rows(dtype):
    X = np.random.default_rng(0).integers(-9, 9, (700, 600)).astype(dtype)
    X[::7] = 0
    best = np.sqrt((X.astype(np.float64) ** 2).sum(axis=1).max())
    for form in (X, sp.csr_array(X), sp.csr_array(X)[::-1]):
        np.testing.assert_allclose(ranges.largest_norm(form), best, rtol=1e-12)
    for nothing in (X[:0], sp.csr_array((0, 3), dtype=dtype), sp.csr_array((4, 3), dtype=dtype), X[:, :0]):
        assert ranges.largest_norm(nothing) == 0
