"""A kernel CRF as an estimator: against enumeration of all label sequences, and finite differences."""

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from xmcjax import KernelChainClassifier
from xmcjax.solvers import Status

LENGTHS, CLASSES = (4, 1, 3, 5), ("a", "b", "c")
OPTIONS: dict[str, Any] = dict(v=(3.0, 2.0, 5.0), w=1.0, sigma2=0.5, transition_variance=0.7, tol=1e-9)


def sequences(seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    y = [np.array(CLASSES)[rng.integers(0, 3, length)] for length in LENGTHS]
    X = [rng.normal(size=(len(labels), 2)) + (labels == "b")[:, None] for labels in y]
    return [x.astype(dtype) for x in X], y


def made(**options):
    return KernelChainClassifier(**OPTIONS | options)


@pytest.fixture(scope="module")
def model():
    """Fitted to the sequences, once."""
    return made().fit(*sequences())


def enumerated(u, A):
    """(All labelings [·, T] as numbers, their probabilities)."""
    labelings = np.array(list(itertools.product(range(u.shape[1]), repeat=len(u))))
    score = u[np.arange(len(u)), labelings].sum(axis=1)
    score = np.exp(score + A[labelings[:, :-1], labelings[:, 1:]].sum(axis=1))
    return labelings, score / score.sum()


def objective(X, y, alpha, A):
    """That of the class docstring, of coefficients [n, C] and transitions, by enumeration."""
    rows = np.concatenate(X)
    squares = ((rows[:, None] - rows) ** 2).sum(axis=2)
    M = np.exp(-OPTIONS["w"] / (2 * rows.shape[1]) * squares)
    K = np.array(OPTIONS["v"])[:, None, None] * M + OPTIONS["sigma2"]
    u = np.einsum("cij,jc->ic", K, alpha)
    value = np.sum(alpha * u) / 2 + np.sum(A**2) / (2 * OPTIONS["transition_variance"])
    for own, part in zip(y, np.split(u, np.cumsum(LENGTHS)[:-1]), strict=True):
        labelings, p = enumerated(part, A)
        value -= np.log(p[(labelings == np.searchsorted(CLASSES, own)).all(axis=1)][0])
    return value


def test_the_fit_is_the_minimum_of_the_objective(model):
    X, y = sequences()
    assert model.status_ == Status.CONVERGED and list(model.classes_) == list(CLASSES)
    alpha, A = model.dual_coef_, model.transitions_
    np.testing.assert_allclose(model.objective_, objective(X, y, alpha, A), rtol=1e-10)
    rng = np.random.default_rng(1)
    for step in (rng.normal(size=alpha.shape), 0 * alpha):
        moved = rng.normal(size=A.shape)
        # finite differences of a smooth function at its minimum, and its curvature
        up, down = (objective(X, y, alpha + h * step, A + h * moved) for h in (1e-4, -1e-4))
        assert abs(up - down) / 2e-4 < 1e-5
        assert up > model.objective_ and down > model.objective_


def test_predictions_are_those_of_all_label_sequences(model):
    X, y = sequences()
    new, truth = sequences(seed=3)
    predicted, marginals = model.predict(new), model.predict_marginals(new)
    for u, labels, p in zip(model.decision_function(new), predicted, marginals, strict=True):
        labelings, joint = enumerated(u, model.transitions_)
        assert (labels == np.array(CLASSES)[labelings[joint.argmax()]]).all()
        expected = np.tensordot(joint, np.eye(3)[labelings], 1)
        np.testing.assert_allclose(p, expected, rtol=0, atol=1e-8)
    right = np.concatenate(predicted) == np.concatenate(truth)
    assert model.score(new, truth) == right.mean()
    with pytest.raises(
        TypeError, match=r"^y_pred: expected classes that are numbers as in y_true, found texts$"
    ):
        model.score(new, [np.zeros(len(labels)) for labels in truth])
    # α = targets − marginals of the training part
    targets = np.concatenate(y)[:, None] == np.array(CLASSES)
    np.testing.assert_allclose(
        model.dual_coef_, targets - np.concatenate(model.predict_marginals(X)), atol=1e-8
    )


def test_transitions_of_a_small_variance():
    """Are that variance times pairs of labels less their expectations, which no longer depend on it."""
    X, y = sequences()
    model = made(transition_variance=1e-7, tol=1e-8).fit(X, y)
    expected = np.zeros((3, 3))
    for labels, p in zip(y, model.predict_marginals(X), strict=True):
        given = (labels[:, None] == np.array(CLASSES)).astype(float)
        expected += given[:-1].T @ given[1:] - p[:-1].T @ p[1:]
    np.testing.assert_allclose(model.transitions_ / 1e-7, expected, atol=1e-4)


@pytest.mark.slow
def test_transitions_are_used():
    """Labels that only their order tells: a, b, a, b … where the features say nothing but at the start."""
    y = [np.resize(order, 6) for order in (["a", "b"], ["b", "a"]) * 4]
    X = [np.zeros((6, 1)) for _ in y]
    for x, labels in zip(X, y, strict=True):
        x[0] = 1 if labels[0] == "a" else -1
    model = KernelChainClassifier("linear", v=10.0, transition_variance=10.0).fit(X, y)
    assert model.score(X, y) == 1
    A = model.transitions_
    assert A[0, 1] + A[1, 0] - A[0, 0] - A[1, 1] > 4


@pytest.mark.slow
def test_sparse_float32_and_clone():
    X, y = sequences()
    model = made(kernel="linear", w=None).fit(X, y)
    sparse = clone(model).fit([sp.csr_array(x) for x in X], y)
    np.testing.assert_allclose(sparse.dual_coef_, model.dual_coef_, atol=1e-8)
    single = clone(model).set_params(tol=1e-4).fit([x.astype(np.float32) for x in X], y)
    assert single.dual_coef_.dtype == np.float32
    np.testing.assert_allclose(single.transitions_, model.transitions_, atol=1e-2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda X, y: ([], []), "X: expected one sequence of features or more, found none"),
        (lambda X, y: (X, y[:-1]), "y: expected labels of 4 sequences, found those of 3"),
        (lambda X, y: (X, [y[0][:-1], *y[1:]]), r"y: expected 4 labels of sequence 0, found \[3\]"),
        (lambda X, y: ([X[0], X[1][:0], *X[2:]], y), r"by 2 in each sequence, found \[0, 2\] in sequence 1"),
        (lambda X, y: ([X[0], X[1][:, :1], *X[2:]], y), r"found \[1, 1\] in sequence 1"),
        (lambda X, y: ([np.nan * X[0], *X[1:]], y), "X"),
        (lambda X, y: (X, [np.full(len(part), "a") for part in y]), "two classes"),
        (lambda X, y: ("text", y), "X: expected a list of sequences of features, got str"),
        (lambda X, y: (sp.csr_array(X[0]), y), "X: expected a list of sequences of features, got csr_array"),
        (lambda X, y: ([sp.csr_array(X[0]), *X[1:]], y), "all arrays or all sparse, found both"),
    ],
)
def test_what_is_no_list_of_sequences_is_refused(change, said):
    X, y = change(*sequences())
    with pytest.raises((ValueError, TypeError), match=said):
        made().fit(X, y)


def test_options_out_of_range(model):
    X, y = sequences()
    for options, said in (
        (dict(kernel="precomputed"), "kernel: expected rbf, matern, linear or a Kernel"),
        (dict(transition_variance=0.0), "^transition_variance: expected a number above 0, got 0"),
        (dict(max_iter=0), "max_iter"),
        (dict(tol=-1.0), "tol"),
        (dict(memory=np.inf), "memory: expected a finite number from 0, got inf"),
        (dict(memory=-1), "memory: expected a number from 0, got -1"),
        (dict(v=(1.0, 2.0)), "expected v as a number or"),
    ):
        with pytest.raises(ValueError, match=said):
            made(**options).fit(X, y)
    with pytest.raises(ValueError, match="features"):
        model.predict([x[:, :1] for x in X])
    with pytest.warns(ConvergenceWarning, match="not converged"):
        made(max_iter=1).fit(X, y)


def test_labels_of_two_kinds_are_refused():
    X = np.random.default_rng(0).standard_normal((7, 2))
    for labels in (["a", "b"], [True, False]):
        with pytest.raises(
            TypeError, match=r"expected labels of one kind, found (texts|truth values) and num"
        ):
            KernelChainClassifier().fit([X[:2], X[2:]], [labels, [1, 2, 1, 2, 1]])
