"""Pictures of how trainings and searches went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from xmcjax import _sparse
from xmcjax._arguments import whole_number
from xmcjax.plots._axes import LARGEST, counts_on, given_or_new

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from xmcjax.lanes import StepRecord

# The quantiles of the labels between which a band is drawn.
_BAND = (0.1, 0.9)


def convergence(steps: Iterable[StepRecord], *, ax: Axes | None = None) -> Axes:
    """‖∇f‖ of the labels by Newton step, divided by that at their start: the median, and a band of 80%.

    Numbers that are not finite, or beyond 1e100, are left out, here and in the other pictures of steps.

    Args:
        steps: what ``observe`` of :func:`xmcjax.lanes.train_one_vs_all` was called with.
        ax: axes of matplotlib; None for new ones.

    Raises:
        ValueError: no steps, or none with such a number.
        ImportError: matplotlib is missing.

    Example:
        >>> from xmcjax.data import make_power_law
        >>> from xmcjax.lanes import OneVsAll, train_one_vs_all
        >>> steps, (X, Y) = [], make_power_law(100, 50, 20)
        >>> summary = train_one_vs_all(X, Y, OneVsAll(), lambda result: None, observe=steps.append)
        >>> convergence(steps).get_xlabel()
        'Newton steps'
    """
    steps = list(steps)  # read twice
    ax = _by_step(steps, _over_start(steps, lambda record: record.gradient_norm), ax)
    ax.set(yscale="log", ylabel="‖∇f‖ over that of the start")
    return ax


def objective(steps: Iterable[StepRecord], *, ax: Axes | None = None) -> Axes:
    """The objectives of the labels by Newton step, divided by that at their start: the median, and a band.

    Args:
        steps: of :func:`convergence`.
        ax: axes of matplotlib; None for new ones.

    Raises:
        ValueError: no steps, or none with such a number.
        ImportError: matplotlib is missing.

    Example:
        >>> from xmcjax.data import make_power_law
        >>> from xmcjax.lanes import OneVsAll, train_one_vs_all
        >>> steps, (X, Y) = [], make_power_law(100, 50, 20)
        >>> summary = train_one_vs_all(X, Y, OneVsAll(), lambda result: None, observe=steps.append)
        >>> objective(steps).get_lines()[0].get_ydata()[0].item()
        1.0
    """
    steps = list(steps)  # read twice
    ax = _by_step(steps, _over_start(steps, lambda record: record.value), ax)
    ax.set(yscale="log", ylabel="objective over that of the start")
    return ax


def multiplier(steps: Iterable[StepRecord], *, ax: Axes | None = None) -> Axes:
    """The multiple of the direction that each Newton step takes: the median of the labels, and a band.

    Far below 1 the quadratic model of the objective does not hold (Schultheis and Babbar 2022, figure 3).

    Args:
        steps: of :func:`convergence`; those that take the starting weights are left out.
        ax: axes of matplotlib; None for new ones.

    Raises:
        ValueError: no steps after those of the start, or none with such a number.
        ImportError: matplotlib is missing.

    Example:
        >>> from xmcjax.data import make_power_law
        >>> from xmcjax.lanes import OneVsAll, train_one_vs_all
        >>> steps, (X, Y) = [], make_power_law(100, 50, 20)
        >>> summary = train_one_vs_all(X, Y, OneVsAll(), lambda result: None, observe=steps.append)
        >>> int(multiplier(steps).get_lines()[0].get_xdata()[0])
        1
    """
    ax = _by_step(steps, lambda record: np.where(record.newton_steps > 0, record.multiplier, np.nan), ax)
    ax.set(ylabel="multiple of the direction", ylim=(0, None))
    return ax


def active_fraction(steps: Iterable[StepRecord], n_rows: int | None, *, ax: Axes | None = None) -> Axes:
    """The share of the rows that are active by Newton step: the median of the labels, and a band.

    A row is active where the loss of its margin has a slope or a curvature. A step costs more, the more rows
    are active.

    Args:
        steps: of :func:`convergence`.
        n_rows: of the training data; None for the number of active rows in place of their share.
        ax: axes of matplotlib; None for new ones.

    Raises:
        ValueError: no steps, or n_rows below 1.
        ImportError: matplotlib is missing.

    Example:
        >>> from xmcjax.data import make_power_law
        >>> from xmcjax.lanes import OneVsAll, train_one_vs_all
        >>> steps, (X, Y) = [], make_power_law(100, 50, 20)
        >>> summary = train_one_vs_all(X, Y, OneVsAll(), lambda result: None, observe=steps.append)
        >>> active_fraction(steps, 100).get_ylabel()
        'share of the rows that are active'
    """
    n = 1 if n_rows is None else whole_number("n_rows", n_rows, 1)
    ax = _by_step(steps, lambda record: record.active / n, ax)
    ax.set(ylabel=("" if n_rows is None else "share of the ") + "rows that are active", ylim=(0, None))
    return ax


def steps_by_positives(newton_steps, positives, *, ax: Axes | None = None) -> Axes:
    """Newton steps of the labels against their positives: a point for each label, and medians.

    Args:
        newton_steps: ``n_iter_`` of :class:`xmcjax.OneVsAllClassifier` or ``newton_steps`` of
            :class:`xmcjax.models.LinearModel`, [L].
        positives: rows that have each label, [L]; those without any are left out.
        ax: axes of matplotlib; None for new ones.

    Raises:
        ValueError: arrays of different shapes, or no label with positives.
        ImportError: matplotlib is missing.

    Example:
        >>> steps_by_positives([3, 5], [1, 40]).get_ylabel()
        'Newton steps'
    """
    made, positives = _sparse.numbers(newton_steps, "newton_steps"), _sparse.numbers(positives, "positives")
    if made.ndim != 1 or made.shape != positives.shape:
        raise ValueError(f"expected newton_steps and positives [L], found {made.shape} and {positives.shape}")
    used = positives > 0
    if not used.any():
        raise ValueError("positives: expected a label that has some, found none")
    made, positives = made[used], positives[used]
    ax = given_or_new(ax)
    ax.plot(positives, made, ".", markersize=2, alpha=0.4, color="C0", label="a label")
    bins = np.floor(np.log2(positives)).astype(int)
    present = np.unique(bins)
    middle = [np.median(made[bins == one]) for one in present]
    ax.plot(1.5 * 2.0**present, middle, "o-", color="C1", label="median of labels with so many")
    ax.set(xscale="log", xlabel="positives of the label", ylabel="Newton steps", ylim=(0, None))
    counts_on(ax.xaxis)
    ax.legend(markerscale=2)
    return ax


def progress(rows: Iterable[dict[str, Any]], quantity: str = "gap", *, ax: Axes | None = None) -> Axes:
    """The progress of a joint fit of all classes after its passes, with a line for each run of the command.

    Numbers beyond 1e100 are left out.

    Args:
        rows: of :meth:`xmcjax.estimators.FitFile.rows`.
        quantity: "gap", "objective", "gradient_norm" or "residual".
        ax: axes of matplotlib; None for new ones.

    Raises:
        ValueError: no row has the quantity.
        ImportError: matplotlib is missing.

    Example:
        >>> rows = [dict(run=0, fit=0, passes=k, gap=10.0**-k) for k in range(4)]
        >>> progress(rows).get_yscale()
        'log'
    """
    runs: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        known = row["fit"] == 0 and row.get(quantity) is not None
        if known and max(abs(row["passes"]), abs(row[quantity])) <= LARGEST:
            runs[row["run"]].append((row["passes"], row[quantity]))
    if not runs:
        raise ValueError(f"rows: expected some of the fit of all rows with its {quantity}, found none")
    ax = given_or_new(ax)
    for run, points in sorted(runs.items()):
        ax.plot(*zip(*points, strict=True), ".-", label=f"run {run}")
    if len(runs) > 1:
        ax.legend()
    if all(number > 0 for points in runs.values() for _, number in points):
        ax.set_yscale("log")
    ax.set(xlabel="passes", ylabel=quantity.replace("_", " "))
    return ax


def hyperparameters(search: Any, names: Sequence[str] | None = None, *, ax: Axes | None = None) -> Axes:
    """The path of a search: each parameter divided by its start, by iteration, and the criterion, dashed.

    Args:
        search: ``search_`` of a tuned :class:`xmcjax.KernelLogisticClassifier`, or the result of
            :func:`xmcjax.solvers.kernel_multinomial.tune`; both hold logarithms of the parameters.
        names: of the parameters, such as :meth:`xmcjax.solvers.kernel_multinomial.CvObjective.names`; None
            for numbers.
        ax: axes of matplotlib; None for new ones. The criterion has axes of its own at the right.

    Raises:
        ValueError: a search without an iterate, or another number of names than of parameters.
        ImportError: matplotlib is missing.

    Example:
        >>> from types import SimpleNamespace as Record
        >>> history = [Record(x=[0.0, 0.0], value=9.0), Record(x=[0.7, -0.2], value=8.0)]
        >>> hyperparameters(Record(history=history), ["variance", "length"]).get_ylabel()
        'parameter over its start'
    """
    path = np.array([np.asarray(iterate.x) for iterate in search.history])
    if not len(path):
        raise ValueError("search: expected a history of at least one iterate, found none")
    names = [f"parameter {k}" for k in range(path.shape[1])] if names is None else list(names)
    if len(names) != path.shape[1]:
        raise ValueError(f"names: expected {path.shape[1]}, one for each parameter, got {len(names)}")
    ax = given_or_new(ax)
    for k, name in enumerate(names):
        ax.plot(np.exp(path[:, k] - path[0, k]), label=name)
    ax.set(yscale="log", xlabel="iteration", ylabel="parameter over its start")
    if len(names) <= 20:
        ax.legend(fontsize="x-small", ncols=2)
    right = ax.twinx()
    right.plot([float(iterate.value) for iterate in search.history], "--", color="black")
    right.set_ylabel("criterion Ψ (dashed)")
    return ax


def _over_start(
    steps: Iterable[StepRecord], numbers: Callable[[StepRecord], np.ndarray]
) -> Callable[[StepRecord], np.ndarray]:
    """Numbers of the labels divided by those at the start; NaN where these are unknown or not above 0."""
    first: dict[int, float] = {}
    for record in steps:
        for label, made, number in zip(record.labels, record.newton_steps, numbers(record), strict=True):
            if made == 0:
                first[int(label)] = float(number)

    def relative(record: StepRecord) -> np.ndarray:
        start = np.array([first.get(int(label), np.nan) for label in record.labels])
        with np.errstate(over="ignore"):  # a quotient that is too large becomes infinite, and is left out
            return numbers(record) / np.where(start > 0, start, np.nan)

    return relative


def _by_step(
    steps: Iterable[StepRecord], numbers: Callable[[StepRecord], np.ndarray], ax: Axes | None
) -> Axes:
    """Draws, for each Newton step, the median of numbers over the labels that make the step, and a band."""
    of_step: dict[int, list[float]] = defaultdict(list)
    found = 0
    for record in steps:
        found += len(record.labels)
        for made, number in zip(record.newton_steps, numbers(record), strict=True):
            if abs(float(number)) <= LARGEST:
                of_step[int(made)].append(float(number))
    if found and not of_step:
        raise ValueError("steps: expected finite numbers, of labels whose start is among them, found none")
    if not of_step:
        raise ValueError("steps: expected what a training was observed with, found no step")
    ax = given_or_new(ax)
    made = sorted(of_step)
    low, high = (np.array([np.quantile(of_step[k], part) for k in made]) for part in _BAND)
    ax.plot(made, [np.median(of_step[k]) for k in made], "o-", label="median of the labels")
    ax.fill_between(made, low, high, alpha=0.2, label="four labels in five")
    ax.set_xlabel("Newton steps")
    ax.legend()
    return ax
