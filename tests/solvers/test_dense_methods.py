"""Which method solves multi-class SVMs of dense or few features, and that it ends hard ones."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits

from tests.support.internals import admm_dense, search
from tests.support.problems import needs_native
from xmcjax.native import Assessment
from xmcjax.solvers import Status
from xmcjax.solvers import multiclass_dual as md

pytestmark = needs_native


def digits(rows: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    return X[:rows].astype(np.float32), y[:rows]


@pytest.mark.parametrize("formulation", ["ww", "cs", "llw"])
def test_newton_factors_too_large_for_the_rows_come_last(formulation):
    X, y = digits(600)  # unscaled
    told = []
    found = md.run(X, y, formulation=formulation, C=1.0, observe=told.append)
    methods = list(dict.fromkeys(progress.method for progress in told))
    assert found.status == Status.CONVERGED and found.gap <= 1e-3
    assert methods == ["coordinate ascent", "steps for all rows at once"] and found.newton_steps == 0
    last = "the interior-point method" if formulation == "cs" else "Newton's method"
    assert f"{last}, whose systems are large for 600 rows (64 features, 10 classes)" in found.reason
    # few features are solved by it as ever
    found = md.run(X[:, 26:34], y, formulation=formulation, C=1.0)
    assert found.status == Status.CONVERGED and found.newton_steps > 0
    assert f"{last}, whose systems are small (8 features, 10 classes)" in found.reason


@pytest.mark.parametrize(
    ("formulation", "ascent", "steps"),
    [("cs", "8.", "500"), ("ovr", "8.", "100"), ("ovr_squared", "8.", "100"), ("llw", "4.", "500")],
)
def test_steps_for_all_rows_come_early(formulation, ascent, steps):
    """Ascent of 60 passes, or of 10 for each class, took several times as long as the steps that followed."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 40)).astype(np.float32), rng.integers(0, 10, 3000)
    X[np.arange(3000), y] += 2
    found = md.run(X, y, formulation=formulation, C=10.0)
    assert found.status == Status.CONVERGED and found.gap <= 1e-3
    assert found.newton_steps == 0
    assert f"coordinate ascent comes first, for {ascent}" in found.reason
    assert f"steps for all rows at once, because features are dense, for {steps} passes at most" in (
        found.reason
    )


def _separated(C: float, overlap: float):
    """What 3,000 dense rows of ten classes come to, with the methods that were called."""
    rng, told = np.random.default_rng(0), []
    centres, y = rng.normal(size=(10, 50)), rng.integers(0, 10, 3000)
    X = (centres[y] + overlap * rng.normal(size=(3000, 50))).astype(np.float32)
    found = md.run(X, y, formulation="cs", C=C, observe=told.append)
    assert found.status == Status.CONVERGED and found.gap <= 1e-3
    return found, {progress.method for progress in told}


@pytest.mark.parametrize(("C", "overlap"), [(0.03, 2.0), (10.0, 0.5)])
def test_ascent_goes_on_where_its_end_is_near(C, overlap):
    """It took the steps for all rows several times as long to begin anew.

    The gap of the first falls fast; of the second few rows are left, while the gap is that of W = 0 still.
    """
    found, methods = _separated(C, overlap)
    assert methods == {"coordinate ascent"} and found.epochs > 10
    assert "for 8.6 passes, and some more where those end it, then steps for all rows" in found.reason


def _many_classes(**options):
    """Rows of a hundred classes, and what is told of their solution."""
    rng, told = np.random.default_rng(0), []
    centres, y = rng.normal(size=(100, 50)), np.repeat(np.arange(100), 20)
    X = (centres[y] + 0.3 * rng.normal(size=(2000, 50))).astype(np.float32)
    found = md.run(X, y, formulation="cs", C=10.0, observe=told.append, **options)
    assert found.status == Status.CONVERGED and found.gap <= 1e-3
    return found, told


def test_with_many_classes_ascent_has_the_time_that_the_steps_for_all_rows_would_take():
    found, told = _many_classes()
    assert {progress.method for progress in told} == {"coordinate ascent"} and found.epochs < 200
    assert "for 214 passes, and some more where those end it, then steps for all rows" in found.reason
    # few passes are left to the steps, which need fewer, and those from a start are as before
    for options in (dict(max_epochs=100), dict(start=found.alpha)):
        assert "for 8.06 passes, and some more" in _many_classes(**options)[0].reason


def test_steps_for_all_rows_begin_anew_where_ascent_is_far_from_its_end(monkeypatch):
    """From its dual variables they took twice as many."""
    for name, value in (("_OF_STEPS", 50.0), ("_MANY", 20.0)):
        monkeypatch.setattr(f"xmcjax.solvers.multiclass_dual._native.{name}", value)
    monkeypatch.setattr("xmcjax.solvers._search._MORE", 0.0)  # and ascent does not go on
    _, told = _many_classes()
    first = next(place for place, now in enumerate(told) if now.method == "steps for all rows at once")
    assert 0.01 < told[first - 1].gap < 0.9 < told[first].gap


def test_ascent_of_lee_lin_wahba_does_not_go_on_with_dense_features():
    """Its end seemed near and came after a hundred passes, steps for all rows end after a quarter."""
    rng, told = np.random.default_rng(1), []
    centres, y = rng.normal(size=(60, 200)), rng.integers(60, size=1500)
    X = (rng.normal(size=(1500, 200)) + 0.5 * centres[y]) / np.sqrt(200)
    found = md.run(X, y, formulation="llw", C=100.0, observe=told.append)
    assert found.status == Status.CONVERGED and found.gap <= 1e-3 and found.epochs < 40
    assert [p.method for p in told][-1] == "steps for all rows at once"
    assert "passes at most, then steps for all rows at once, because features are dense" in found.reason


def test_newton_soon_follows_steps_of_one_against_the_rest():
    """Where few rows have gains that are not at a bound a step of Newton's method is about a pass of them."""
    rng = np.random.default_rng(3)
    centres, y = rng.normal(size=(6, 100)), rng.integers(6, size=2000)
    X = rng.normal(size=(2000, 100)) * np.logspace(0, 2, 100) + 0.5 * centres[y]
    found = md.run(X, y, formulation="ovr", C=10.0)
    assert found.status == Status.CONVERGED and found.gap <= 1e-3
    assert found.newton_steps > 0 and found.epochs < 120


class Falling:
    """Ascent whose gap falls to a part in each sweep over all rows."""

    def __init__(self, part: float):
        self.gap, self._part = 1.0, part

    def assess(self, _tolerance: float) -> Assessment:
        return Assessment(1.0, 1.0 - self.gap, 1.0)

    def sweep(self, _tolerance: float, _shrink: bool) -> tuple[float, float]:
        self.gap *= self._part
        return 0.0, 1.0


@pytest.mark.parametrize(
    ("part", "allowed", "visited"),
    [(0.5, 1000, 10), (0.9, 1000, 5), (0.8, 1000, 31), (0.8, 30, 12)],
    ids=["ends", "is far from its end", "is near its end", "leaves passes for the next method"],
)
def test_how_far_ascent_goes_beyond_its_patience(part, allowed, visited):
    """A look at the gap counts as a sweep, and follows each of them: of ten passes five are sweeps."""
    passes = search.Passes()
    accuracy = search.Accuracy(np.dtype(np.float64), 1e-3)
    search.ascend(Falling(part), accuracy, True, passes, lambda: allowed - passes.visited, patience=10)
    assert passes.visited == visited


def test_ascent_ends_where_its_end_is_far():
    _, methods = _separated(C=1.0, overlap=3.0)
    assert methods == {"coordinate ascent", "steps for all rows at once"}


def test_newton_follows_where_steps_for_all_rows_do_not_end(monkeypatch):
    monkeypatch.setattr("xmcjax.solvers.multiclass_dual._native._BRIEF", 1.0)
    monkeypatch.setattr("xmcjax.solvers._interior._UNKNOWNS", 0)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 20)) * np.logspace(0, 3, 20), rng.integers(0, 6, 600)
    found = md.run(X.astype(np.float32), y, formulation="cs", C=100.0)
    assert found.status == Status.CONVERGED and found.gap <= 1e-3 and found.newton_steps > 0


@pytest.mark.parametrize("formulation", ["ww", "llw"])
def test_newton_follows_where_its_systems_are_large_too(formulation):
    """Features of very different sizes at a large C leave steps for all rows at once far from the end."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 40)) * np.logspace(0, 3, 40), rng.integers(0, 10, 600)
    found = md.run(X.astype(np.float32), y, formulation=formulation, C=1e3)
    assert "features are dense, for 500 passes at most" in found.reason
    assert "Newton's method, whose systems are large for 600 rows (40 features, 10 classes)" in found.reason
    assert found.status == Status.CONVERGED and found.gap <= 1e-3 and found.newton_steps > 0


def test_one_against_the_rest_with_few_sparse_rows():
    """Whose systems of Newton's method, one for each class, take longer than steps for all rows at once."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((600, 300)) < 0.1, rng.normal(size=(600, 300)) * np.logspace(0, 2, 300), 0)
    told, X, y = [], sp.csr_matrix(X.astype(np.float32)), rng.integers(0, 3, 600)
    found = md.run(X, y, formulation="ovr", C=10.0, observe=told.append)
    methods = list(dict.fromkeys(progress.method for progress in told))
    assert methods == ["coordinate ascent", "steps for all rows at once"] and found.newton_steps == 0
    assert found.status == Status.CONVERGED and found.gap <= 1e-3
    assert "for 300 passes at most, then steps for all rows at once, because rows or features are few" in (
        found.reason
    )
    # more rows for the features are Newton's
    found = md.run(X[:, :150], y, formulation="ovr", C=10.0)
    assert found.status == Status.CONVERGED and found.newton_steps > 0


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_separated_rows_end_before_newton_with_large_features(seed, monkeypatch):
    """Whose dual variables are at their end long before the last gain above 0, of which each costs C."""
    monkeypatch.setattr("xmcjax.solvers._interior._UNKNOWNS", 0)
    rng, m = np.random.default_rng(0), 6
    y = np.r_[np.arange(m), rng.integers(0, m, 194)]
    X = 1e4 * (rng.normal(size=(m, 20))[y] + 1.5 * rng.normal(size=(200, 20)))
    found = md.run(X, y, formulation="cs", C=1.0, seed=seed)
    assert found.status == Status.CONVERGED and found.newton_steps == 0


def test_steps_for_all_rows_go_on_where_newton_does_not_end_either(monkeypatch):
    # both methods are stopped early, the second at its first step
    monkeypatch.setattr("xmcjax.solvers._interior._UNKNOWNS", 0)
    monkeypatch.setattr("xmcjax.solvers.multiclass_dual._native._BRIEF", 1.0)
    monkeypatch.setattr("xmcjax.solvers.multiclass_dual._native.FAILURES", 0)
    monkeypatch.setattr("xmcjax.solvers._search._MORE", 0.0)  # and ascent does not go on
    rng = np.random.default_rng(0)
    y = np.arange(2000) % 5
    noise = rng.normal(size=(5, 30)), rng.normal(size=(2000, 30))
    X = 30 * (np.eye(5)[y] @ noise[0] * 0.5 + noise[1] * np.logspace(0, -3, 30))
    told = []
    found = md.run(X, y, formulation="cs", C=1e3, max_epochs=1500, observe=told.append)
    assert found.status == Status.CONVERGED and found.gap <= 1e-3
    methods = [a.method for a, b in itertools.pairwise(told) if a.method != b.method]
    assert methods[-2:] == ["steps for all rows at once", "Newton's method"]
    assert told[-1].method == "steps for all rows at once"


@pytest.fixture(scope="module")
def categories():
    """Those of four variables as ones and zeros, which depend on each other as their sums are the same."""
    rng, sizes = np.random.default_rng(7), np.array([3, 10, 50, 150])
    found = rng.integers(0, sizes, (300, 4))
    effects = [rng.normal(size=(size, 6)) for size in sizes]
    y = (sum(effects[j][found[:, j]] for j in range(4)) + rng.gumbel(size=(300, 6))).argmax(axis=1)
    columns = (found + np.cumsum([0, *sizes[:-1]])).ravel()
    return sp.csr_array((np.ones(1200), columns, np.arange(0, 1201, 4)), shape=(300, 213)), y


@pytest.mark.parametrize("formulation", ["ww", "cs"])
def test_steps_for_all_rows_follow_where_features_are_sparse_and_few(formulation, categories):
    X, y = categories
    narrow, weights = X.toarray().astype(np.float32), np.linspace(1, 2, 300)
    for features, weight, most in ((X, 1, 1000), (narrow, 1, 1000), (X, weights, 1000), (X, 1, 20_000)):
        told = []
        options = dict(C=1000.0 * weight, max_epochs=most, observe=told.append)
        found = md.run(features, y, formulation=formulation, **options)
        assert found.status == Status.CONVERGED and found.gap <= 1e-3
        assert found.epochs < 1200 and found.newton_steps == 0
        assert told[-1].method == "steps for all rows at once"
        if np.ndim(weight) == 0:
            assert found.reason.endswith("because rows or features are few (300 rows, 213 features)")


@pytest.mark.parametrize("formulation", ["cs", "ovr", "ovr_squared", "ww", "llw"])
@pytest.mark.parametrize("weighted", [False, True])
def test_few_weights_of_sparse_features_are_found_in_few_passes(formulation, weighted):
    rng = np.random.default_rng(0)
    X = rng.random((130, 15)) * (rng.random((130, 15)) < 0.19)
    y = (X @ rng.normal(size=(15, 72)) + 0.1 * rng.gumbel(size=(130, 72))).argmax(axis=1)
    C = 100 * (rng.uniform(0.5, 2, 130) if weighted else 1.0)
    options = dict(formulation=formulation, C=C, classes=72)
    sparse, dense = (md.run(features, y, **options) for features in (sp.csr_array(X), X + 1e-9))
    assert sparse.status == dense.status == Status.CONVERGED
    assert sparse.primal == pytest.approx(dense.primal, rel=2e-3)
    assert sparse.epochs < 150
    if formulation in ("ww", "cs"):
        assert sparse.newton_steps == 0


@pytest.mark.parametrize(
    ("formulation", "rows", "features"), [("ww", 704, 9), ("cs", 704, 9), ("ovr", 2000, 41)]
)
def test_sparse_features_of_very_different_sizes(formulation, rows, features):
    """Steps for all rows at once leave passes to Newton's method, and go on where that ends too early."""
    rng = np.random.default_rng(201)
    X = rng.lognormal(sigma=2, size=(rows, features)) * (rng.random((rows, features)) < 0.19)
    y = (np.log1p(X) @ rng.normal(size=(features, 15)) + 0.5 * rng.gumbel(size=(rows, 15))).argmax(axis=1)
    found = md.run(sp.csr_array(X), y, formulation=formulation, C=1000.0, classes=15)
    assert found.status == Status.CONVERGED and found.epochs < 1000


def test_steps_for_all_rows_leave_passes_to_proximal_point_steps_where_rows_have_weights():
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.random((60, 5)) * (rng.random((60, 5)) < 0.19))
    y = rng.integers(0, 4, 60)
    found = md.run(X, y, formulation="ww", C=rng.uniform(50, 200, 60), classes=4, tol=1e-14, max_epochs=200)
    assert found.epochs <= 161 and found.newton_steps > 0


@pytest.mark.parametrize("formulation", ["cs", "ovr", "ovr_squared", "ww", "llw"])
def test_no_features(formulation):
    for C in (1.0, np.arange(1.0, 7.0)):
        found = md.run(np.zeros((6, 0), np.float32), [0, 1, 2, 0, 1, 2], formulation=formulation, C=C)
        assert found.status == Status.CONVERGED and found.W.shape == (0, 3) and found.density_w == 0


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_a_label_that_ascent_does_not_end_goes_to_newtons_method(kind, weighted):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3)) * np.array([30.0, 1.0, 100.0])
    Y = rng.random((40, 2)) < 0.3
    if kind is sp.csr_array:
        X[rng.random(X.shape) < 0.8] = 0  # sparse enough to be multiplied as such
    cost = 1000 * (rng.choice([0.5, 1.0, 2.0], size=40) if weighted else np.ones(1))
    labels = md.Labels(np.arange(2), sp.csc_array(Y.astype(float)), np.ones(2), np.ones(2))
    hinges = md.LabelHinges(kind(X), np.float64, cost, True, 2, 1e-4, 2000.0)
    found = hinges.solved(labels)
    assert found.status.tolist() == [Status.CONVERGED] * 2
    assert np.all(found.gap <= 1e-4 * found.value)
    assert np.all(
        (found.passes > 60) & (found.passes < 100)
    )  # so that the label was in need of it, and had it
    # P of the weights that came out, by its definition
    sign, bias = np.where(Y, 1, -1), found.W[-1]
    losses = np.maximum(1 - sign * (X @ found.W[:-1] + bias), 0)
    value = (found.W**2).sum(axis=0) / 2 + (np.broadcast_to(cost, 40)[:, None] * losses).sum(axis=0)
    np.testing.assert_allclose(value, found.value, rtol=1e-9)


def test_labels_over_few_dense_features_end_by_newtons_method_before_steps(monkeypatch):
    """Steps for all rows at once took 160 passes where features had different sizes."""
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(1000, 40)) * np.logspace(0, -2, 40)).astype(np.float32)
    X[rng.random(X.shape) < 0.3] = 0  # stored or not
    Y = X @ rng.normal(size=(40, 2)) + 0.2 * rng.normal(size=(1000, 2)) > [0, 1]
    monkeypatch.setattr(admm_dense, "basis_of", lambda X: pytest.fail("steps for all rows at once"))
    labels = md.Labels(np.arange(2), sp.csc_array(Y.astype(float)), np.ones(2), np.ones(2))
    found = md.LabelHinges(X, np.float32, np.full(1, 1e3), True, 2, 1e-3, 1000.0).solved(labels)
    assert found.status.tolist() == [Status.CONVERGED] * 2
    assert np.all((found.passes > 60) & (found.passes < 130))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_labels_over_dense_features_end_by_steps_in_one_basis(dtype, monkeypatch):
    """Each has the optimum of its problem of two classes, and the same bits by itself."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(150, 40)).astype(dtype)
    Y = np.stack([X[:, 0] + 2 * rng.normal(size=150) > t for t in (-1, 0, 1.5)], axis=1)
    cost, positive = rng.uniform(50, 100, 150), np.array([1.0, 2.0, 0.5])
    labels = md.Labels(np.arange(3), sp.csc_array(Y.astype(float)), positive, np.ones(3))
    made, basis_of = [], admm_dense.basis_of
    monkeypatch.setattr(admm_dense, "basis_of", lambda X: made.append(X) or basis_of(X))
    hinges = md.LabelHinges(X, dtype, cost, False, 3, 1e-4, 1000.0)
    found = hinges.solved(labels)
    assert found.status.tolist() == [Status.CONVERGED] * 3
    assert np.all(found.passes > 60) and len(made) == 1  # not by ascent alone, nor by a basis for each
    sign = np.where(Y, 1, -1)
    C = np.where(Y, positive, 1.0) * cost[:, None]
    W = found.W.astype(float)
    value = (W**2).sum(axis=0) / 2 + (C * np.maximum(1 - sign * (X @ W), 0)).sum(axis=0)
    np.testing.assert_allclose(value, found.value, rtol=1e-9)
    for k in range(3):
        alone = hinges.solved(labels.some(np.array([k])))
        np.testing.assert_array_equal(alone.W[:, 0], found.W[:, k])
        options = dict(formulation="ovr", C=C[:, k], classes=2, tol=1e-6)
        both = md.run(X.astype(float), 1 - Y[:, k].astype(int), **options)
        assert both.status == Status.CONVERGED
        # its other class is the same problem with the signs turned
        np.testing.assert_allclose(value[k], both.primal / 2, rtol=1.1e-4)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("full", [True, False])
def test_a_label_of_all_rows_or_of_none(full, native, monkeypatch):
    """No other class stands beside it, and ascent does not end it in 300 passes."""
    if not native:
        monkeypatch.setattr("xmcjax.native.available", lambda: False)
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 4)) * np.array([30.0, 1.0, 100.0, 0.01])
    Y = np.stack([np.full(40, float(full)), rng.random(40) < 0.5], axis=1)
    labels = md.Labels(np.arange(2), sp.csc_array(Y), np.ones(2), np.ones(2))
    hinges = md.LabelHinges(X, np.float64, np.array([1000.0]), False, 2, 1e-4, 2000.0)
    found = hinges.solved(labels)
    assert found.status.tolist() == [Status.CONVERGED] * 2
    losses = np.maximum(1 - (2 * Y - 1) * (X @ found.W), 0)
    np.testing.assert_allclose(
        (found.W**2).sum(axis=0) / 2 + 1000 * losses.sum(axis=0), found.value, rtol=1e-9
    )


def test_a_label_comes_out_the_same_beside_any_others():
    rng = np.random.default_rng(2)
    X = (rng.normal(size=(60, 5)) * np.array([30.0, 1.0, 100.0, 5.0, 1.0])).astype(np.float32)
    Y = sp.csc_array((rng.random((60, 6)) < 0.3).astype(float))
    every = md.Labels(np.arange(6), Y, np.ones(6), np.ones(6))
    hinges = md.LabelHinges(X, np.float32, np.array([100.0]), True, 6, 1e-4, 1000.0)
    together = hinges.solved(every)
    for k in range(6):
        alone = hinges.solved(every.some(np.array([k])))
        np.testing.assert_array_equal(alone.W[:, 0], together.W[:, k])


@pytest.mark.parametrize("formulation", ["ww", "cs", "llw", "ovr", "ovr_squared"])
@pytest.mark.parametrize("backend", ["native", "jnp"])
def test_classes_that_no_row_has(formulation, backend):
    X = np.float32([[1, 0], [0.5, 1], [1, 1]])
    found = md.run(X, [1, 1, 1], formulation=formulation, classes=3, backend=backend)
    assert found.status == Status.CONVERGED and np.argmax(X @ found.W, axis=1).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match=r"^expected at least two classes, found class 0 alone$"):
        md.run(X, [0, 0, 0], formulation=formulation, backend=backend)


def hard_labels(passes: float) -> tuple[md.LabelHinges, md.Labels]:
    """Three labels of dense rows, which 100 passes do not end."""
    rng = np.random.default_rng(0)
    X, rows = rng.normal(size=(300, 71)), sp.csc_array((rng.random((300, 3)) < 0.4).astype(float))
    hinges = md.LabelHinges(X, np.float64, np.full(1, 100.0), False, 3, 1e-5, passes)
    return hinges, md.Labels(np.arange(3), rows, np.ones(3), np.ones(3))


def test_labels_that_the_limit_stops_in_steps_for_all_rows_say_so():
    """They were said to be stopped by rounding."""
    hinges, labels = hard_labels(100.0)
    found = hinges.solved(labels)
    assert np.all(found.gap > 1e-5 * found.value) and np.all(found.status == Status.MAX_STEPS)


def test_newton_begins_where_steps_for_all_rows_ended(monkeypatch):
    """It began where ascent had ended, with a gap near 1."""
    hinges, labels = hard_labels(1000.0)
    steps, newton, seen = hinges._by_steps, hinges._by_newton, {}

    def by_steps(*args):
        ended, seen["steps"] = steps(*args)
        return ended, seen["steps"]

    def by_newton(labels, most, start):
        seen["start"] = start
        return newton(labels, most, start)

    monkeypatch.setattr(hinges, "_by_steps", by_steps)
    monkeypatch.setattr(hinges, "_by_newton", by_newton)
    found = hinges.solved(labels)
    assert np.all(found.status == Status.CONVERGED)
    np.testing.assert_array_equal(seen["start"].toarray(), sp.hstack(seen["steps"]).toarray())
