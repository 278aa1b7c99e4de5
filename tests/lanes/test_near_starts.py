"""Labels of few rows that start near their minima: in the span of the rows, or at the minimum of the dual."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.internals import dual_end
from tests.support.lanes import assert_same_bits, matrix, signs, train, values
from tests.support.problems import needs_native
from xmcjax.inits import Zero
from xmcjax.lanes import LabelWeights
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.solvers import Status

pytestmark = needs_native


@functools.cache
def data(way):
    """Rows, whose scores with noise make the labels: long sparse ones for the dual, the last label rare."""
    rng, dual = np.random.default_rng(0), way == "dual"
    (n, d, labels), noise = ((60, 300, 4), 40) if dual else ((40, 400, 3), 10)
    X = rng.normal(size=(n, d)) * (5 * (rng.random((n, d)) < 0.2) if dual else 1)
    scores = X @ rng.normal(size=(d, labels)) + noise * rng.normal(size=(n, labels))
    return (sp.csr_array(X) if dual else X), sp.csr_matrix(scores > (np.array([0, 0, 0, 60]) if dual else 10))


def dense(X):
    return X[:, :180].toarray()  # fewer than for the span of the rows


def centred(X):
    return X - X.mean(axis=0)  # their inner products have no inverse


CASES = [
    *(
        ("rows", make, dict(loss=loss), 1.0)
        for loss in ("squared_hinge", "logistic", "huber_hinge")
        for make in (np.array, centred, np.float32)
    ),
    *(
        ("dual", lambda X, form=form, dtype=dtype: form(X).astype(dtype), dict(C=10.0), r)
        for form in (sp.csr_matrix, dense)
        for dtype in (np.float32, np.float64)
        for r in (1.0, 0.0, -1.0)
    ),
]


@pytest.mark.parametrize(("way", "make", "options", "r"), CASES)
def test_few_steps_are_left_and_the_minimum_is_the_same(way, make, options, r):
    X, Y = data(way)
    X, loss, C = make(X), options.get("loss", "squared_hinge"), options.get("C", 1.0)
    more = options | dict(loss=MARGIN_LOSSES[loss], clip=0, fit_intercept=r >= 0, regularise_intercept=r != 0)
    found, other = train(X, Y, **more)[0], train(X, Y, init=Zero(), **more)[0]
    assert {result.status for result in found.values()} == {Status.CONVERGED}
    assert max(result.newton_steps for result in found.values()) <= 2
    assert max(result.newton_steps for result in other.values()) > (4 if way == "dual" else 2)
    here, there = (values(X, Y, results, loss, C, r) for results in (found, other))
    assert np.all(here <= 1.0005 * there)


@pytest.mark.parametrize(("way", "r"), [("rows", 1.0), ("dual", 1.0), ("dual", 0.0)])
def test_weights_of_rows_and_labels_count_there_too(way, r):
    X, Y = data(way)
    weights = np.arange(X.shape[0]) % 4 + 0.5
    weights[::7] = 0
    L, C = Y.shape[1], 10.0 if way == "dual" else 1.0
    of_labels = LabelWeights(np.array([1.0, 2.0, 5.0, 1.0])[:L], np.array([1.0, 0.5, 2.0, 0.1])[:L])
    given = dict(sample_weight=weights, label_weights=of_labels, C=C, clip=0, regularise_intercept=r > 0)
    found, other = train(X, Y, **given)[0], train(X, Y, init=Zero(), **given)[0]
    assert {result.status for result in found.values()} == {Status.CONVERGED}
    assert max(result.newton_steps for result in found.values()) <= 2
    costs = C * weights[:, None] * np.where(Y.toarray(), of_labels.positive, of_labels.negative)
    here, there = (values(X, Y, results, costs=costs, l2_bias=r) for results in (found, other))
    assert np.all(here <= 1.0005 * there)


@pytest.mark.parametrize("form", [sp.csr_matrix, dense], ids=["sparse", "dense"])
def test_features_of_whole_numbers_start_as_those_of_float32(form):
    X, Y = data("dual")
    whole, options = (
        form(sp.csr_array(X[:, :180]).rint().astype(np.int16)),
        dict(C=10.0, regularise_intercept=False),
    )
    found, other = (train(a, Y, **options)[0] for a in (whole, whole.astype(np.float32)))
    assert max(result.newton_steps for result in found.values()) <= 2
    assert_same_bits(found, other)


@pytest.mark.parametrize(
    ("way", "options"),
    [("rows", dict(clip=0)), ("dual", dict(C=10.0)), ("dual", dict(C=10.0, regularise_intercept=False))],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_start_depends_on_no_other(way, options, dtype):
    X, Y = data(way)
    X, labels = X.astype(dtype), np.arange(Y.shape[1])

    def models(columns=labels, **more):
        return matrix(train(X, Y[:, columns], **options, **more)[0], X.shape[1])

    W, b = models()
    for more in (dict(block_size=1), dict(block_size=2, n_jobs=2), dict(labels=labels[::-1].copy())):
        for ours, one in zip(models(**more), (W, b), strict=True):
            np.testing.assert_array_equal(ours, one)
    for columns in (labels[::-1], [2]):  # in another order, and alone
        for ours, one in zip(models(columns), (W[:, columns], b[columns]), strict=True):
            np.testing.assert_array_equal(ours, one)


@pytest.mark.parametrize("way", ["rows", "dual"])
@pytest.mark.parametrize("options", [dict(max_iter=50), dict(C=1e-3)])
def test_steps_are_as_ever_where_they_were_chosen_or_are_few(way, options, monkeypatch):
    X, Y = data(way)
    found, _ = train(X, Y, **options)
    monkeypatch.setattr(f"xmcjax.lanes._{'dual' if way == 'dual' else 'row'}_starts.serves", lambda *_: False)
    assert_same_bits(train(X, Y, **options)[0], found)


@pytest.mark.parametrize("tol", [1e-2, 1e-6])
def test_a_free_bias_takes_neither_tens_of_steps_nor_conjugate_gradients(tol, monkeypatch):
    """A looser tolerance had labels end by conjugate gradients in float64, of which they need none."""
    monkeypatch.setattr(
        "xmcjax.lanes._label_features.LabelFeatures._by_gradients", lambda *_: pytest.fail("called")
    )
    found, summary = train(*data("dual"), C=100.0, clip=0, tol=tol, regularise_intercept=False)
    assert set(summary.statuses) == {Status.CONVERGED}
    assert max(result.newton_steps for result in found.values()) <= 2


def test_a_free_bias_ends_by_ascent_of_the_dual():
    X, Y = data("dual")
    for c in (np.full(60, 100.0), np.where(np.arange(60) % 5, 1.0, 1000.0)):
        y = signs(Y, 3)
        *_, last = dual_end.DualEnd(X, 0.0)(y, c, np.zeros(300), 0.0)
        losses = np.maximum(1 - y * (X @ last.w + last.bias), 0) ** 2
        value = last.w @ last.w / 2 + c @ losses
        assert last.bound <= value <= (1 + 1e-6) * last.bound
