"""Starting weights against dense computations from their definitions."""

from __future__ import annotations

import dataclasses
import pickle
import shutil

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.inits import all_labels, random_problem, starts, training_set
from xmcjax import inits, losses
from xmcjax.models import ShardWriter

WEIGHTS = [None, np.random.default_rng(9).random(40) + 0.1]


def mean_scores(X, Y, W, b, weight=None):
    """Mean score of the positives and of the negatives of each label."""
    s = np.ones(len(X)) if weight is None else weight
    scores = (X @ W + b) * s[:, None]
    P, N = Y * s[:, None], (1 - Y) * s[:, None]
    return (scores * Y).sum(0) / P.sum(0), (scores * (1 - Y)).sum(0) / N.sum(0)


@pytest.mark.parametrize("name", inits.INITS)
def test_the_table(name):
    init = inits.INITS[name]
    assert init.name == name and init() == init() and hash(init()) == hash(init())
    assert init.tree == (name == "ova_primal_pp")


def test_zero_and_bias():
    data = training_set(*random_problem())
    W, b = starts(inits.Zero(), data)
    assert W.shape == (12, 6) and not W.any() and not b.any()
    W, b = starts(inits.Bias(0.9), data)
    assert not W.any() and np.all(b == -0.9)
    assert np.all(starts(inits.Bias(), data)[1] == -1)
    with pytest.raises(ValueError, match="needs a bias: expected fit_intercept, got False"):
        inits.Bias().check(12, 6, bias=False)


# --- mean separating --------------------------------------------------------------------------


@pytest.mark.parametrize("weight", WEIGHTS, ids=["plain", "weighted"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("s", "t"), [(1.0, -2.0), (0.3, 0.1), (-1.0, 5.0), (0.0, 0.0)])
def test_the_means_are_separated(s, t, bias, weight):
    X, Y = random_problem(offset=0.3)
    if bias and weight is None:  # the mean of all rows may be zero
        X, Y = np.vstack([X, -X]), np.vstack([Y, np.zeros_like(Y)])
    W, b = starts(inits.MeanSeparating(s, t), training_set(X, Y, bias=bias, weight=weight))
    positive, negative = mean_scores(X, Y, W, b, weight)
    np.testing.assert_allclose(positive, s, atol=1e-11)
    np.testing.assert_allclose(negative, t, atol=1e-11)
    assert bias or not b.any()


@pytest.mark.parametrize(("loss", "t"), [("squared_hinge", -2), ("huber_hinge", -2), ("logistic", -3)])
@pytest.mark.parametrize("init", [inits.MeanSeparating(), inits.MultiPos(max_positives=0)])
def test_the_targets_of_the_loss(loss, t, init):
    X, Y = random_problem()
    positive, negative = mean_scores(X, Y, *starts(init, training_set(X, Y, losses.MARGIN_LOSSES[loss])))
    np.testing.assert_allclose(positive, 1, atol=1e-11)
    np.testing.assert_allclose(negative, t, atol=1e-11)


def test_the_start_lies_between_the_means():
    """w0 = u p̄ + v x̄ with the paper's u and v, the bias feature included."""
    X, Y = random_problem()
    W, b = starts(inits.MeanSeparating(), training_set(X, Y))
    ones = np.hstack([X, np.ones((len(X), 1))])
    x = ones.mean(0)
    for l, y in enumerate(Y.T):
        p, pi, s, t = ones[y > 0].mean(0), y.mean(), 1, -2
        u = ((x @ p) * (t + (s - t) * pi) - s * (x @ x)) / ((p @ x) ** 2 - (p @ p) * (x @ x))
        v = (s - u * (p @ p)) / (x @ p)
        np.testing.assert_allclose(np.append(W[:, l], b[l]), u * p + v * x, rtol=1e-9, atol=1e-12)


def test_orthogonal_means():
    """⟨x̄, p̄⟩ = 0, where the paper's v divides by zero."""
    X = np.array([[1.0, 0.0], [-2.0, 1.0], [1.0, 2.0], [0.0, 0.0]])
    Y = np.array([[1.0], [0], [0], [0]])
    W, b = starts(inits.MeanSeparating(), training_set(X, Y, bias=False))
    p, x = X[0], X.mean(0)
    assert p @ x == 0
    u, v = 1 / (p @ p), (3 * -2 + 1 * 1) / (4 * (x @ x))
    np.testing.assert_allclose(W[:, 0], u * p + v * x, rtol=1e-12)
    positive, negative = mean_scores(X, Y, W, b)
    np.testing.assert_allclose([positive[0], negative[0]], [1, -2], rtol=1e-12)


@pytest.mark.parametrize("init", [inits.MeanSeparating(), inits.MultiPos()])
@pytest.mark.parametrize(
    ("name", "X", "y", "bias"),
    [
        ("all rows alike", [[1.0, 2], [1, 2], [1, 2]], [1, 0, 0], True),
        ("rows on one line", [[1.0, 2], [2, 4], [3, 6]], [0, 1, 0], False),
        ("mean of zero", [[1.0, 2], [-1, -2], [0, 0]], [0, 1, 0], False),
        ("positives that are zero", [[0.0, 0], [1, 2], [2, 1]], [1, 0, 0], False),
        ("no features but the bias", [[0.0], [0], [0]], [1, 0, 1], True),
        ("no features and no bias", [[0.0], [0], [0]], [1, 0, 1], False),
        ("no positives", [[1.0, 2], [2, 1], [0, 1]], [0, 0, 0], True),
        ("no negatives", [[1.0, 2], [2, 1], [0, 1]], [1, 1, 1], True),
        ("one row", [[1.0, 2]], [1], True),
    ],
)
def test_where_nothing_can_be_separated(name, X, y, bias, init):
    W, b = starts(init, training_set(X, np.array(y)[:, None], bias=bias))
    assert np.isfinite(W).all() and np.isfinite(b).all()
    if isinstance(init, inits.MeanSeparating):
        assert not W.any() and not b.any()


# --- every positive ---------------------------------------------------------------------------


@pytest.mark.parametrize("weight", WEIGHTS, ids=["plain", "weighted"])
@pytest.mark.parametrize("bias", [True, False])
def test_multi_pos_equals_a_dense_computation(bias, weight):
    X, Y = random_problem(d=30, labels=4)
    Y[:, :3] = 0
    Y[[3], 0] = Y[[3, 8], 1] = Y[[2, 4, 6, 8, 9], 2] = 1
    init = inits.MultiPos(0.8, -1.5, ridge=0.02)
    data = training_set(X, Y, bias=bias, weight=weight)
    W, b = starts(init, data)
    s = np.ones(len(X)) if weight is None else weight
    ones = np.hstack([X, np.full((len(X), 1), float(bias))])
    for l, y in enumerate(Y.T[:3] > 0):
        negative = np.average(ones[~y], axis=0, weights=s[~y])
        V = np.vstack([negative, ones[y]]).T
        alpha = np.linalg.solve(V.T @ V + 0.02 * np.eye(y.sum() + 1), [-1.5] + [0.8] * y.sum())
        np.testing.assert_allclose(
            np.append(W[:, l], b[l] * bias), (V @ alpha) * np.append(np.ones(30), bias)
        )
        np.testing.assert_allclose(ones[y] @ V @ alpha, 0.8, atol=0.1)
    frequent = starts(inits.MeanSeparating(0.8, -1.5), data)
    assert Y[:, 3].sum() > 5
    np.testing.assert_array_equal(W[:, 3], frequent[0][:, 3])


def test_multi_pos_with_positives_that_coincide():
    X, Y = random_problem()
    X[[4, 5]] = X[3]
    Y[:, 0] = 0
    Y[3:6, 0] = 1
    W, b = starts(inits.MultiPos(), training_set(X, Y))
    assert np.isfinite(W).all()
    np.testing.assert_allclose((X @ W + b)[3:6, 0], 1, atol=0.05)


# --- from other solutions ---------------------------------------------------------------------


@pytest.mark.parametrize("how", ["loose", "strict"])
def test_ova_primal_solves_the_problem_without_positives(how):
    asked = []

    def solve(positives, loose):
        asked.append((len(positives), loose))
        return np.arange(12.0), -7.0

    data = training_set(*random_problem(), solve=solve)
    give = inits.OvaPrimal(how).prepare(data)
    for _ in range(2):
        W, b = give(all_labels(data)).dense()
        np.testing.assert_array_equal(W, np.arange(12.0)[:, None] * np.ones(6))
        assert np.all(b == -7)
    assert asked == [(0, how == "loose")]  # once


def write_model(directory, W, b, dtype="float64", **more):
    meta = {"n_features": W.shape[0], "n_labels": W.shape[1], "dtype": dtype, **more}
    with ShardWriter(directory, meta, shard_size=4) as writer:
        for label, w in enumerate(W.T):
            at = np.flatnonzero(w)
            writer.add(label, at, w[at].astype(dtype), float(b[label]), status=1)


@pytest.mark.parametrize("bias", [True, False])
def test_pretrained_gives_the_saved_weights(tmp_path, bias):
    rng = np.random.default_rng(0)
    W, b = rng.normal(size=(12, 6)) * (rng.random((12, 6)) < 0.5), rng.normal(size=6)
    write_model(tmp_path / "model", W, b)
    data = training_set(*random_problem(), bias=bias)
    init = inits.Pretrained(tmp_path / "model")
    init.check(12, 6, bias)
    got = starts(init, data)
    np.testing.assert_array_equal(got[0], W)
    np.testing.assert_array_equal(got[1], b * bias)
    two = all_labels(data)
    two = inits.Labels(
        two.ids[[4, 1]], [two.positives[k] for k in (4, 1)], two.counts[[4, 1]], two.sums[[4, 1]]
    )
    np.testing.assert_array_equal(init.prepare(data)(two).dense()[0], W[:, [4, 1]])


def test_pretrained_checks_the_model(tmp_path):
    with pytest.raises(ValueError, match="needs the directory of a model"):
        inits.Pretrained().check(12, 6, True)
    write_model(tmp_path / "model", np.ones((11, 6)), np.zeros(6))
    with pytest.raises(ValueError, match="expected a model of 12 features and 6 labels, found 11 and 6"):
        inits.Pretrained(tmp_path / "model").check(12, 6, True)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("meta", "first"),
    [
        (dict(target="classes"), 0),
        (dict(system="multinomial", target="classes", link="sigmoid"), 0),
        (dict(system="multinomial", link="softmax"), -1),
    ],
)
def test_two_classes_start_the_one_problem_of_the_second(tmp_path, meta, first, bias):
    """σ(z_1) of classes that score by themselves, σ(z_1 − z_0) of a softmax."""
    W, b = np.arange(1.0, 25).reshape(12, 2), np.array([3.0, 5])
    write_model(tmp_path / "model", W, b, **meta)
    X, Y = random_problem(labels=1)
    init = inits.Pretrained(tmp_path / "model")
    init.check(12, 1, bias)
    got = starts(init, training_set(X, Y, bias=bias))
    np.testing.assert_array_equal(got[0], W @ [[first], [1]])
    np.testing.assert_array_equal(got[1], b @ [[first], [1]] * bias)


def test_two_labels_that_are_no_classes_start_no_single_one(tmp_path):
    write_model(tmp_path / "model", np.ones((12, 2)), np.zeros(2))
    with pytest.raises(ValueError, match="expected a model of 12 features and 1 labels, found 12 and 2"):
        inits.Pretrained(tmp_path / "model").check(12, 1, True)


@pytest.mark.parametrize("order", [None, [3, 1, 0, 2]])
def test_starts_stand_where_their_features_do(tmp_path, order):
    W, before = np.arange(1.0, 9).reshape(4, 2), np.array([1, 2, 3, 0])
    meta = {"n_features": 4, "n_labels": 2, "dtype": "float64", "transforms": ["frequency"]}
    with ShardWriter(tmp_path / "m", meta, transforms_arrays={"frequency.order": before}) as writer:
        for label, w in enumerate(W.T):
            writer.add(label, np.arange(4), w, 0.0, status=1)
    data = training_set(*random_problem(d=4, labels=2))
    init = inits.Pretrained(tmp_path / "m")
    np.testing.assert_array_equal(starts(init, data)[0], W)  # where nothing says how the features stand
    of_raw = np.empty_like(W)
    of_raw[before] = W
    found = starts(init.of_features(None if order is None else np.array(order)), data)[0]
    np.testing.assert_array_equal(found, of_raw if order is None else of_raw[order])
    assert all(inits.INITS[name]().of_features(before) == inits.INITS[name]() for name in ("zero", "bias"))


def test_starts_for_workers_are_those_of_the_model_that_is_there_now(tmp_path, monkeypatch):
    write_model(tmp_path / "m", np.arange(1.0, 9).reshape(4, 2), np.zeros(2))
    data, order = training_set(*random_problem(d=4, labels=2)), np.array([3, 1, 0, 2])
    monkeypatch.chdir(tmp_path)
    sent = pickle.dumps(inits.Pretrained("m").of_features(order).for_workers())
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    write_model(tmp_path / "elsewhere" / "m", np.ones((4, 2)), np.zeros(2))
    found = pickle.loads(sent)
    found.check(4, 2, True)
    np.testing.assert_array_equal(starts(found, data)[0], np.arange(1.0, 9).reshape(4, 2)[order])
    shutil.rmtree(tmp_path / "m")
    write_model(tmp_path / "m", np.ones((4, 2)), np.zeros(2))
    for use in (lambda: found.check(4, 2, True), lambda: found.prepare(data)):
        with pytest.raises(ValueError, match="m: expected the model of the client, found another one"):
            use()
    with pytest.raises(ValueError, match="needs the directory of a model"):
        inits.Pretrained().for_workers()


class Doubled(inits.Pretrained):
    """Starts of one's own, with twice the weights."""

    def prepare(self, data):
        made = super().prepare(data)
        return lambda labels: dataclasses.replace(made(labels), sparse=2 * made(labels).sparse)


def test_starts_are_of_their_kind_whatever_the_order(tmp_path):
    write_model(tmp_path / "m", np.arange(1.0, 9).reshape(4, 2), np.zeros(2))
    data, order = training_set(*random_problem(d=4, labels=2)), np.array([3, 1, 0, 2])
    for kind, scale in ((inits.Pretrained, 1), (Doubled, 2)):
        init = kind(tmp_path / "m")
        told = init.of_features(order)
        assert type(told) is kind and told == init and dataclasses.asdict(told) == dataclasses.asdict(init)
        found = starts(told, data)[0]
        np.testing.assert_array_equal(found, scale * np.arange(1.0, 9).reshape(4, 2)[order])


def test_starts_are_scale_times_base_plus_sparse():
    sparse = sp.csr_array(np.array([[0, 1.0, 0], [2, 0, 0]]))
    W, b = inits.Starts(np.array([1.0, 1, 5]), np.array([2.0, -1]), sparse, np.array([3.0, 4])).dense()
    np.testing.assert_array_equal(W.T, [[2, 3, 10], [1, -1, -5]])
    np.testing.assert_array_equal(b, [3, 4])
