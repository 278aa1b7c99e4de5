"""Weights dropped within a bounded rise of the objective."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import objectives
from tests.support.internals import sparsify
from tests.support.lanes import assert_same_bits, margins, signs, small, train, vector
from tests.support.problems import needs_native
from xmcjax import losses
from xmcjax.lanes import LabelWeights
from xmcjax.penalties import L1, HuberPenalty


@pytest.mark.parametrize("loss", [losses.squared_hinge, losses.logistic, losses.huber_hinge])
@pytest.mark.parametrize("rise", [1e-3, 0.01, 0.3])
@pytest.mark.parametrize("bias", ["regularised", "free"])
def test_the_rise_is_bounded_and_used(loss, rise, bias):
    X, Y = small(dtype=np.float64)
    rng = np.random.default_rng(0)
    sample_weight = rng.uniform(0.5, 2, X.shape[0])
    label_weights = LabelWeights(rng.uniform(1, 3, Y.shape[1]), rng.uniform(0.5, 1, Y.shape[1]))
    more = dict(sample_weight=sample_weight, label_weights=label_weights, C=2.0, loss=loss)
    more["regularise_intercept"] = bias == "regularised"
    whole, _ = train(X, Y, clip=0.0, **more)
    ours, _ = train(X, Y, sparsify_rise=rise, **more)
    dropped = 0
    for label, result in ours.items():
        reference = whole[label]
        if not result.newton_steps and not len(reference.indices):
            continue
        a, b = label_weights.positive[label], label_weights.negative[label]
        c = 2 * sample_weight * np.where(signs(Y, label) > 0, a, b)

        def f(result, c=c, r=float(bias == "regularised")):
            w = vector(result, X.shape[1])
            return objectives.lanes(X, signs(Y, result.label), w, result.bias, loss.name, c, l2_bias=r)

        assert result.value == reference.value and result.bias == reference.bias
        np.testing.assert_allclose(f(reference), result.value, rtol=1e-9)
        assert f(result) <= (1 + rise) * result.value * (1 + 1e-12)
        # the largest weights are kept, as they were
        np.testing.assert_array_equal(
            reference.values[np.isin(reference.indices, result.indices)], result.values
        )
        largest = np.argsort(-np.abs(reference.values), kind="stable")
        kept = len(result.indices)
        assert set(result.indices) == set(reference.indices[largest[:kept]])
        dropped += len(reference.indices) - kept
        # a few fewer, as far as the search looks, would have been too few
        fewer = kept - max(1, kept // sparsify.RESOLUTION)
        if fewer > 0:
            order = np.sort(largest[:fewer])
            less = reference._replace(indices=reference.indices[order], values=reference.values[order])
            assert f(less) > (1 + rise) * result.value
    assert dropped > 0


@needs_native
@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_bits(form):
    X, Y = small()
    X = X if form == "sparse" else X.toarray()
    reference, _ = train(X, Y, sparsify_rise=0.01)
    assert_same_bits(train(X, Y, sparsify_rise=0.01, block_size=3, n_jobs=2)[0], reference)
    assert all(r.values.dtype == np.float32 for r in reference.values())


@pytest.mark.parametrize("penalty", [L1(), HuberPenalty(0.1)], ids=repr)
def test_the_objective_has_the_penalty_of_the_weights(penalty):
    X, Y = small(dtype=np.float64)
    ours, _ = train(X, Y, sparsify_rise=0.05, penalty=penalty)
    whole, _ = train(X, Y, clip=0.0, penalty=penalty)
    fewer = 0
    for label, result in ours.items():
        if np.isnan(result.value):
            continue
        slack = np.maximum(1 - margins(X, Y, result), 0)
        of_weights = np.sum(penalty.value(jnp.asarray(np.append(result.values, result.bias))))
        assert slack @ slack + of_weights <= 1.05 * result.value * (1 + 1e-12)
        fewer += len(whole[label].indices) - len(result.indices)
    assert fewer > 0


def test_starting_weights_are_left_alone():
    X, Y = small()
    plain, _ = train(X, Y, max_iter=0, clip=0.0)
    sparse, _ = train(X, Y, max_iter=0, sparsify_rise=0.5)
    assert_same_bits(sparse, plain)


def test_a_solution_of_zero():
    X, Y = small(dtype=np.float64)
    results, _ = train(X * 0, Y, sparsify_rise=0.01)
    assert all(len(r.indices) == 0 for r in results.values())
