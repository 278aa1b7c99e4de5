"""Labels with a large C whose Newton steps are short, which reach it by parts of C."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from tests.support.internals import lane_certifier, lane_parts
from tests.support.lanes import matrix, signs, train, values
from tests.support.problems import needs_native
from xmcjax.data import make_power_law
from xmcjax.lanes import LabelWeights
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.solvers import Status

C, LABELS = 1000.0, 5
OPTIONS = dict(C=C, clip=0)


@pytest.fixture(scope="module")
def data():
    """Sparse rows of norm 1, nearly separable."""
    options = dict(labels_per_row=2, exponent=1.3, seed=0, nonzeros_per_row=20)
    X, Y = make_power_law(800, 800, 30, **options)
    X = sp.csr_matrix(X)
    X.data /= np.repeat(np.sqrt(np.asarray(X.power(2).sum(1)).ravel()), np.diff(X.indptr))
    return X, sp.csr_matrix(Y[:, 1 : 1 + LABELS])


@pytest.fixture(autouse=True)
def as_with_more_rows_than_features(monkeypatch):
    """With fewer, labels of the squared hinge start near the minimum of their dual: few steps are left."""
    monkeypatch.setattr("xmcjax.lanes._dual_starts.serves", lambda *_: False)


@pytest.fixture
def without_parts(monkeypatch):
    """Afterwards no label takes any."""
    return lambda: monkeypatch.setattr(lane_certifier, "_EASY", np.inf)


@pytest.fixture
def parts_taken(monkeypatch):
    """Those that lanes have taken."""
    taken, following = [], lane_parts.Parts.next

    def kept(*args):
        part = following(*args)
        taken.extend([] if part is None else [part])
        return part

    monkeypatch.setattr(lane_parts.Parts, "next", kept)
    return taken


@needs_native
def test_labels_reach_the_minimum_of_liblinear_in_fewer_steps(data, parts_taken, without_parts):
    X, Y = data
    found, summary = train(X, Y, **OPTIONS)
    assert set(summary.statuses) == {Status.CONVERGED} and parts_taken.count(1.0) >= 3
    found_values = values(X, Y, found, costs=C)
    for label in range(2):
        y, wide = signs(Y, label), X.astype(np.float64)
        reference = LinearSVC(C=C, tol=1e-9, max_iter=1_000_000, random_state=0).fit(wide, y)
        w, b = reference.coef_[0], reference.intercept_[0]
        least = C * (np.maximum(0, 1 - y * (wide @ w + b)) ** 2).sum() + w @ w / 2 + b * b / 2
        assert least * (1 - 1e-6) <= found_values[label] <= least * (1 + 2e-3)
    without_parts()
    _, before = train(X, Y, **OPTIONS)
    assert summary.newton_steps < 0.8 * before.newton_steps and summary.cg_steps < 0.7 * before.cg_steps


@needs_native
@pytest.mark.parametrize("loss", ["squared_hinge", "huber_hinge"])
@pytest.mark.parametrize("weights", ["none", "rows", "labels", "both"])
def test_a_label_ends_with_the_whole_of_its_costs(data, loss, weights, parts_taken, without_parts):
    X, Y = data
    rng, options, costs = np.random.default_rng(0), dict(loss=MARGIN_LOSSES[loss]), np.ones((X.shape[0], 1))
    if weights in ("rows", "both"):
        options["sample_weight"] = rng.uniform(0.5, 2, X.shape[0])
        costs = options["sample_weight"][:, None]
    if weights in ("labels", "both"):
        positive, negative = rng.uniform(1, 3, LABELS), rng.uniform(0.5, 1, LABELS)
        options["label_weights"] = LabelWeights(positive, negative)
        costs = costs * np.where(Y.toarray() > 0, positive, negative)
    # two lanes, into which one label comes after the other
    found, summary = train(X, Y, block_size=2, **OPTIONS, **options)
    assert set(summary.statuses) == {Status.CONVERGED} and 1.0 in parts_taken
    found_values = values(X, Y, found, loss, C * costs)
    np.testing.assert_allclose([found[k].value for k in range(LABELS)], found_values, rtol=1e-3)
    without_parts()
    before, _ = train(X, Y, **OPTIONS, **options)
    assert (found_values <= values(X, Y, before, loss, C * costs) * (1 + 1e-3)).all()


@needs_native
def test_parts_of_a_label_depend_on_no_other(data, parts_taken):
    X, Y = data
    models = [
        matrix(train(X, Y, **OPTIONS, **more)[0], X.shape[1])
        for more in ({}, dict(block_size=1), dict(block_size=3, n_jobs=2))
    ]
    assert parts_taken
    for W, b in models[1:]:
        np.testing.assert_array_equal(W, models[0][0])
        np.testing.assert_array_equal(b, models[0][1])


@needs_native
@pytest.mark.parametrize("options", [dict(C=1.0), dict(C=C, max_iter=50)], ids=["a small C", "few steps"])
def test_the_whole_of_c_is_kept(data, options, parts_taken):
    _, summary = train(*data, **options)
    assert not parts_taken and summary.newton_steps <= 50 * LABELS


RUNNING, CONVERGED, FAILED = Status.RUNNING, Status.CONVERGED, Status.LINE_SEARCH_FAILED


def after(steps, first=0.01, most=100):
    """What becomes of a lane after each of these (status, steps, multiplier)."""
    parts = lane_parts.Parts(first, most, size=2)
    parts.start(1)
    return [parts.next(1, *step) for step in steps]


def test_parts_grow_up_to_the_whole_after_short_steps():
    short = [(RUNNING, 4, 0.9), (RUNNING, 5, 0.01), (RUNNING, 6, 0.02), (RUNNING, 7, 0.01)]
    found = after([*short, (RUNNING, 8, 1e-9), *[(CONVERGED, 9, 1.0)] * 6, (RUNNING, 10, 1e-9)])
    assert found[:3] == [None] * 3 and found[3] == pytest.approx(0.01) and found[4] is None
    grown = np.array([found[3], *found[5:10]])
    np.testing.assert_allclose(grown[1:] / grown[:-1], 0.01 ** (-1 / (len(grown) - 1)))
    assert grown[-1] == 1.0 and (grown[1:] / grown[:-1] <= 3).all()
    assert found[10:] == [None, None]  # it has ended, or goes on


@pytest.mark.parametrize(
    ("step", "part"),
    [
        ((FAILED, 9, 0.0), 0.03),  # goes on with the next one
        ((RUNNING, 75, 1.0), 1.0),  # with the steps that are left
        ((Status.NONFINITE, 9, 1.0), None),
        ((RUNNING, 9, 1.0), None),
    ],
)
def test_what_ends_a_part(step, part):
    (*_, first, following) = after([*[(RUNNING, 3, 0.01)] * 3, step], first=1e-2)
    assert first == pytest.approx(1e-2)
    if part in (None, 1.0):
        assert following == part
    else:
        assert first is not None and following is not None and first < following < part


def test_no_part_is_taken_late():
    assert after([(RUNNING, steps, 0.001) for steps in range(75, 90)]) == [None] * 15
