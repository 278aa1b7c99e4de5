"""Each picture shows the numbers of what it is given, on the axes that it is given or on new ones."""

import types

import numpy as np
import pytest

from tests.support.lanes import small, train
from xmcjax import KernelLogisticClassifier, OneVsAllClassifier, metrics, plots
from xmcjax.models import LinearModel

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
from matplotlib import patches, pyplot  # noqa: E402 – after it is known to be there


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def trained():
    X, Y = small()
    Y = Y[:, np.flatnonzero(np.asarray(Y.sum(axis=0)).ravel())]
    steps = []
    results, _ = train(X, Y, observe=steps.append)
    return X, Y, steps, results


def line(ax, k=0):
    return ax.get_lines()[k].get_xydata().T


def test_steps_of_a_training(trained):
    X, _, steps, _ = trained
    made, fall = line(plots.convergence(steps))
    assert made[0] == 0 and fall[0] == 1 and fall[-1] < 0.1
    active = {k: [] for k in made.astype(int)}
    for record in steps:
        for k, number in zip(record.newton_steps, record.active, strict=True):
            active[int(k)].append(number / X.shape[0])
    np.testing.assert_allclose(
        line(plots.active_fraction(steps, X.shape[0]))[1], [np.median(active[k]) for k in sorted(active)]
    )
    with pytest.raises(
        ValueError, match=r"^steps: expected what a training was observed with, found no step"
    ):
        plots.convergence([])
    with pytest.raises(ValueError, match=r"^n_rows: "):
        plots.active_fraction(steps, 0)
    counted = plots.active_fraction(steps, None)
    assert counted.get_ylabel() == "rows that are active"
    np.testing.assert_allclose(line(counted)[1], [np.median(active[k]) * X.shape[0] for k in sorted(active)])


def test_objective_and_multiplier_of_a_training(trained):
    *_, steps, _ = trained
    value, multiple = {}, {}
    for record in steps:
        for label, k, f, t in zip(
            record.labels.tolist(), record.newton_steps.tolist(), record.value, record.multiplier, strict=True
        ):
            value.setdefault(label, {})[k] = f
            multiple.setdefault(k, []).append(t)
    made, drawn = line(plots.objective(steps))
    assert made[0] == 0 and drawn[0] == 1
    for k, shown in zip(made.astype(int), drawn, strict=True):
        assert shown == pytest.approx(np.median([own[k] / own[0] for own in value.values() if k in own]))
    made, drawn = line(plots.multiplier(steps))
    assert made.tolist() == sorted(set(multiple) - {0})
    np.testing.assert_allclose(drawn, [np.median(multiple[int(k)]) for k in made])


@pytest.mark.parametrize("draw", [plots.convergence, plots.objective, plots.multiplier])
def test_steps_that_can_be_read_once(trained, draw):
    steps = trained[2]
    np.testing.assert_array_equal(line(draw(iter(steps))), line(draw(steps)))
    lost = [
        record._replace(value=record.value * np.nan, gradient_norm=record.gradient_norm * 0)
        for record in steps
    ]
    if draw is not plots.multiplier:
        with pytest.raises(ValueError, match=r"^steps: expected finite numbers, of labels whose start"):
            draw(iter(lost))


def test_steps_by_positives(trained):
    _, Y, _, results = trained
    positives = np.asarray(Y.sum(axis=0)).ravel()
    made = np.array([results[label].newton_steps for label in range(len(positives))])
    ax = plots.steps_by_positives(made, positives)
    x, y = line(ax)
    np.testing.assert_array_equal(x, positives[positives > 0])
    np.testing.assert_array_equal(y, made[positives > 0])
    assert (np.diff(line(ax, 1)[0]) > 0).all()
    with pytest.raises(ValueError, match=r"^positives: expected a label that has some, found none$"):
        plots.steps_by_positives([1], [0])
    with pytest.raises(ValueError, match=r"^expected newton_steps and positives \[L\], found"):
        plots.steps_by_positives([1, 2], [1])


def test_precision_by_frequency(trained):
    X, Y, _, _ = trained
    best = OneVsAllClassifier().fit(X, Y).predict_topk(X, 3)[0]
    frequencies = np.asarray(Y.sum(axis=0)).ravel()
    ax = plots.precision_by_frequency(Y, best, 3, frequencies=frequencies)
    bars = [patch for patch in ax.patches if isinstance(patch, patches.Rectangle)]
    assert len(bars) == len(ax.patches)
    heights = [bar.get_height() for bar in bars]
    parts, recall = heights[: len(heights) // 2], heights[len(heights) // 2 :]
    np.testing.assert_allclose(sum(parts), metrics.precision_at_k(Y, best, 3))
    assert max(recall) <= 1 and len(parts) == len(ax.get_xticklabels())
    labels = [int(tick.get_text().split("\n")[1].split()[0]) for tick in ax.get_xticklabels()]
    assert sum(labels) == Y.shape[1]
    ax = plots.precision_by_frequency(Y, best, 3, frequencies=frequencies, edges=[4])
    assert [tick.get_text().split("\n")[0] for tick in ax.get_xticklabels()] == ["<4", "4 and more"]


def test_reject_curve():
    x, y = line(plots.reject_curve([0, 1, 1, 0], [0, 1, 0, 1], [0.9, 0.8, 0.7, 0.6]))
    np.testing.assert_allclose(x, [0.75, 0.5, 0.25, 0])
    np.testing.assert_allclose(y, [0, 0, 0.25, 0.5])


def test_reliability():
    ax = plots.reliability([0, 1, 1, 1], [0.1, 0.15, 0.95, 1.0], bins=10)
    x, y = line(ax, 1)
    np.testing.assert_allclose(x, [0.125, 0.975])
    np.testing.assert_allclose(y, [0.5, 1])
    legend = ax.get_legend()
    assert legend is not None and legend.get_texts()[0].get_text() == "expected calibration error 0.200"
    for truth, p, message in (
        ([0, 1], [0.5], r"^expected y_true and probability of one shape"),
        ([0], [1.5], "^probability: expected numbers from 0 to 1, found others$"),
        ([2], [0.5], "^y_true: expected 0 and 1, found others$"),
    ):
        with pytest.raises(ValueError, match=message):
            plots.reliability(truth, p)


def test_progress():
    def row(run, fit, passes, **numbers):
        return dict(run=run, fit=fit, passes=passes, gap=None, objective=None) | numbers

    rows = [row(0, 0, 1, gap=0.5), row(0, 1, 1, gap=9.0), row(0, 0, 2, gap=0.1), row(1, 0, 1, gap=0.05)]
    ax = plots.progress([*rows, row(1, 0, 2)])
    first, second = ax.get_lines()
    np.testing.assert_array_equal(first.get_xydata(), [[1, 0.5], [2, 0.1]])  # not the fold
    np.testing.assert_array_equal(second.get_xydata(), [[1, 0.05]])
    assert ax.get_yscale() == "log" and ax.get_ylabel() == "gap" and ax.get_legend() is not None
    assert plots.progress([row(0, 0, 1, gap=-0.5)]).get_yscale() == "linear"
    with pytest.raises(
        ValueError, match="expected some of the fit of all rows with its objective, found none"
    ):
        plots.progress(rows, "objective")


def test_hyperparameters():
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    X = rng.normal(size=(30, 2)) + 2 * y[:, None]
    search = KernelLogisticClassifier(v=1.0).tune(X, y, folds=3, max_iter=5).search_
    ax = plots.hyperparameters(search)
    assert len(ax.get_lines()) == len(search.x)
    np.testing.assert_allclose(line(ax)[1][-1], np.exp(search.x[0] - search.history[0].x[0]))
    twin = next(other for other in ax.figure.axes if other is not ax)
    np.testing.assert_allclose(line(twin)[1], [one.value for one in search.history])
    with pytest.raises(ValueError, match=r"^names: expected .* one for each parameter, got 1$"):
        plots.hyperparameters(search, ["v"])
    with pytest.raises(ValueError, match=r"^search: expected a history of at least one iterate, found none$"):
        plots.hyperparameters(types.SimpleNamespace(history=[]))


def test_model_density(trained, tmp_path):
    X, Y, _, _ = trained
    model = OneVsAllClassifier().fit(X, Y)
    counts = np.sort(np.diff(model.coef_.indptr))[::-1]
    for given in (model.coef_, model):
        np.testing.assert_array_equal(line(plots.model_density(given))[1], np.maximum(counts, 0.5))
    model.save(tmp_path / "model")
    stored = LinearModel.load(tmp_path / "model")
    np.testing.assert_array_equal(line(plots.model_density(stored))[1], np.maximum(counts, 0.5))
    np.testing.assert_array_equal(line(plots.model_density(np.eye(3)))[1], [1, 1, 1])


def test_axes_are_those_that_are_given(trained):
    _, ax = pyplot.subplots()
    assert plots.model_density(np.eye(2), ax=ax) is ax
    assert plots.convergence(trained[2], ax=ax) is ax
