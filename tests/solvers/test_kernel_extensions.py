"""Section 7 of Seeger, 2006: label sequences against enumeration, and dependent classes."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.kernel_models import FOLDS, C, data
from xmcjax import kernels
from xmcjax.kernels import RBF
from xmcjax.solvers import Status, kernel_multinomial
from xmcjax.solvers.kernel_multinomial import CvObjective, KernelModel, Softmax

LENGTHS, LABELS = np.array([5, 1, 3, 2]), 3
ROWS = LENGTHS.sum()
TIGHT = kernel_multinomial.HParams(tolerance=1e-10)


def sequences():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((ROWS, 2)), rng.integers(0, LABELS, ROWS)
    gram = kernels.gram(RBF(2.0), kernels.points(X))
    return kernels.class_kernels(gram, 3.0, 0.5, LABELS), y, rng.standard_normal((LABELS, LABELS))


def enumerated(u, A):
    """Of each sequence: all labelings, their probabilities, log Z."""
    first = 0
    for length in LENGTHS:
        all_labels = np.array(list(itertools.product(range(LABELS), repeat=length)))
        score = u[first + np.arange(length), all_labels].sum(axis=1)
        score = score + A[all_labels[:, :-1], all_labels[:, 1:]].sum(axis=1)
        log_z = np.log(np.exp(score).sum())
        yield first, all_labels, np.exp(score - log_z), log_z
        first += length


def test_label_sequences_by_enumeration():
    kernel, y, A = sequences()
    problem = kernel_multinomial.chain_problem(kernel, y, LENGTHS, A, weight=[1.0, 2.0, 0.5, 0.0])
    chains = problem.likelihood
    np.testing.assert_array_equal(problem.weight[:, 0], np.repeat([1.0, 2.0, 0.5, 0.0], LENGTHS))
    u, x = np.random.default_rng(1).standard_normal((2, ROWS, LABELS, 1))

    @jax.jit
    def quantities(chains, u, x):
        pi = chains.probabilities(u)
        return chains.partition(u), chains.losses(u), pi, chains.slope(u, pi), chains.curvature(u, pi)(x)

    # without transitions the rows are single points
    u_exp = np.exp(u)
    alone = quantities(dataclasses.replace(chains, transitions=jnp.zeros_like(A)), u, x)[2]
    np.testing.assert_allclose(alone, u_exp / u_exp.sum(axis=1, keepdims=True), atol=1e-12)

    log_z, losses, pi, slope, curved = (np.asarray(a) for a in quantities(chains, u, x))
    flat, labels = u[..., 0], kernel_multinomial.most_likely(u[..., 0], LENGTHS, A)
    np.testing.assert_array_equal(kernel_multinomial.marginals(flat, LENGTHS, A), pi[..., 0])
    for k, (first, every, p, z) in enumerate(enumerated(flat, A)):
        rows = slice(first, first + LENGTHS[k])
        onehot = np.eye(LABELS)[every]  # [labelings, T, C]
        marginals = np.tensordot(p, onehot, 1)
        np.testing.assert_allclose(log_z[k, 0], z, rtol=1e-12)
        np.testing.assert_allclose(pi[rows, :, 0], marginals, atol=1e-12)
        np.testing.assert_allclose(slope[rows, :, 0], marginals - np.eye(LABELS)[y[rows]], atol=1e-12)
        own = p[(every == y[rows]).all(axis=1)]
        np.testing.assert_allclose(losses[first, 0], -np.log(own[0]), rtol=1e-10)
        assert (losses[first + 1 : rows.stop] == 0).all()
        # ∂²log Z/∂u² x is the covariance of the labels times x
        along = np.tensordot(onehot, x[rows, :, 0], 2)
        covariance = np.tensordot(p * (along - p @ along), onehot, 1)
        np.testing.assert_allclose(curved[rows, :, 0], covariance, atol=1e-12)
        assert (labels[rows] == every[p.argmax()]).all()
    for narrow in (np.int8, np.uint8):  # in which places of rows, counted in them, would overflow
        many = np.tile(flat, (100, 1)), np.tile(LENGTHS, 100).astype(narrow), A
        np.testing.assert_array_equal(kernel_multinomial.most_likely(*many), np.tile(labels, 100))


def test_transitions_are_learnt_of_label_sequences_of_one_lane():
    kernel, y, A = sequences()
    points = kernel_multinomial.kernel_problem(kernel, y)
    lanes = kernel_multinomial.chain_problem(kernel, y, LENGTHS, A, weight=np.ones((len(LENGTHS), 2)))
    one = kernel_multinomial.chain_problem(kernel, y, LENGTHS, A)
    for problem, hp, error, words in (
        (points, TIGHT, TypeError, "problem: expected label sequences, .*, got Softmax"),
        (lanes, TIGHT, ValueError, "problem: expected one lane, whose transitions are learnt, got 2"),
        (one, None, TypeError, "hp: expected an object of HParams, got None"),
    ):
        with pytest.raises(error, match=f"^{words}$"):
            kernel_multinomial.fit_chains(problem, hp, 1.0)


def test_classes_that_jax_traces_are_refused():
    kernel, y, _ = sequences()
    with pytest.raises(TypeError, match=r"^y: expected numbers, found an array that JAX traces"):
        jax.jit(lambda y: kernel_multinomial.kernel_problem(kernel, y).weight)(y)


@pytest.mark.slow
def test_fit_of_label_sequences():
    kernel, y, _ = sequences()
    blank = kernel_multinomial.chain_problem(kernel, y, LENGTHS, np.zeros((LABELS, LABELS)))
    variance = 0.5
    problem, state, search = kernel_multinomial.fit_chains(blank, TIGHT, variance, tolerance=1e-8)
    assert search.converged and int(state.status[0]) == Status.CONVERGED
    assert search.value < search.history[0].value
    # α = y − π, and A = variance (pairs seen − pairs expected)
    assert isinstance(problem.likelihood, kernel_multinomial.Chains)
    u, A = np.asarray(state.u[..., 0]), np.asarray(problem.likelihood.transitions)
    pairs = np.zeros((LABELS, LABELS))
    for first, every, p, _ in enumerated(u, A):
        T = every.shape[1]
        marginals = np.tensordot(p, np.eye(LABELS)[every], 1)
        own = y[first : first + T]
        np.testing.assert_allclose(
            state.alpha[first : first + T, :, 0], np.eye(LABELS)[own] - marginals, atol=1e-9
        )
        np.add.at(pairs, (own[:-1], own[1:]), 1)
        for t in range(T - 1):
            np.add.at(pairs, (every[:, t], every[:, t + 1]), -p)
    np.testing.assert_allclose(A, variance * pairs, atol=1e-5)


@pytest.mark.slow
def test_two_factors_are_learnt_with_the_rest():
    X, y, _ = data()
    family = KernelModel(kernels.points(X), C, np.arange(2))
    B = np.random.default_rng(1).standard_normal((C, 2))
    at = family.hyperparameters(2.0, RBF(np.array([0.5, 1.5])), 0.7, B)
    target = Softmax(jnp.asarray(np.eye(C)[y][..., None]))
    free = ("v", "kernel", "loadings")
    function = CvObjective(family, target, FOLDS, at, free=free, hp=TIGHT)
    assert function.names()[-1] == "loadings[5, 1]"
    x = function.pack(at)
    value, gradient = function(x)
    for place in (0, 3, 4, len(x) - 1):
        step = 1e-4 * (np.arange(len(x)) == place)
        difference = (function(x + step)[0] - function(x - step)[0]) / 2e-4
        np.testing.assert_allclose(gradient[place], difference, rtol=1e-5, atol=1e-6)
    h, found = kernel_multinomial.tune(function, max_iter=3)
    assert found.value < value - 1 and np.abs(h.loadings - B).max() > 0.01
