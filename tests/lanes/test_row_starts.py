"""Labels with few rows and many features start at their minima in the span of the rows."""

import functools

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import objectives
from tests.support.problems import needs_native
from xmcjax.inits import Zero
from xmcjax.lanes import LabelWeights, OneVsAll, train_one_vs_all
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.solvers import Status

N, D, LABELS = 40, 400, 3

pytestmark = needs_native


@functools.cache
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    return X, sp.csr_matrix(X @ rng.normal(size=(D, LABELS)) + 10 * rng.normal(size=(N, LABELS)) > 10)


def train(X, Y, weights=None, label_weights=None, **options):
    found = []
    more = dict(sample_weight=weights, label_weights=label_weights)
    train_one_vs_all(X, Y, OneVsAll(clip=0, **options), found.append, **more)
    return sorted(found, key=lambda result: result.label)


def arrays(results, d=D):
    W = np.zeros((d, len(results)))
    for k, result in enumerate(results):
        W[result.indices, k] = result.values
    return W, np.array([result.bias for result in results])


def centred(X):
    return X - X.mean(axis=0)  # their inner products have no inverse


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic", "huber_hinge"])
@pytest.mark.parametrize("make", [np.array, centred, np.float32])
def test_few_steps_are_left_and_the_minimum_is_that_of_all_features(loss, make):
    X, Y = make(data()[0]), data()[1]
    found, other = (train(X, Y, loss=MARGIN_LOSSES[loss], **more) for more in ({}, dict(init=Zero())))
    assert {result.status for result in found} == {Status.CONVERGED}
    assert max(result.newton_steps for result in found) <= 2
    assert max(result.newton_steps for result in other) > 2
    y = np.where(Y.toarray(), 1, -1)
    here, there = (objectives.lanes(X.astype(float), y, *arrays(results), loss) for results in (found, other))
    assert np.all(here <= 1.0005 * there)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_start_depends_on_no_other(dtype):
    X, Y = data()[0].astype(dtype), data()[1]
    models = [arrays(train(X, Y, **more)) for more in ({}, dict(block_size=1), dict(block_size=2, n_jobs=2))]
    for W, b in models[1:]:
        np.testing.assert_array_equal(W, models[0][0])
        np.testing.assert_array_equal(b, models[0][1])


def test_weights_of_rows_and_labels_count_there_too():
    X, Y = data()
    weights = np.arange(N) % 4 + 0.5
    weights[::7] = 0
    of_labels = LabelWeights(np.array([1.0, 2.0, 5.0]), np.array([1.0, 0.5, 2.0]))
    given = dict(weights=weights, label_weights=of_labels)
    found, other = train(X, Y, **given), train(X, Y, init=Zero(), **given)
    assert max(result.newton_steps for result in found) <= 2
    for here, there in zip(found, other, strict=True):
        assert here.status == Status.CONVERGED and here.value <= 1.0005 * there.value


@pytest.mark.parametrize("options", [dict(max_iter=50), dict(C=1e-3)])
def test_steps_are_as_ever_where_they_were_chosen_or_are_few(options):
    X, Y = data()
    for here, there in zip(train(X, Y, **options), train(sp.csr_matrix(X), Y, **options), strict=True):
        assert here.newton_steps == there.newton_steps
        np.testing.assert_allclose(here.values, there.values, rtol=1e-6)
