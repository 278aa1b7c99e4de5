"""What the measurements of one-vs-all training share: starts by name, the published method, traces.

A start is named as on the command line, with its number or word after a colon: "bias:0.9",
"ova_primal:strict", "mean_separating:-3" (t). A solver is "xmcjax" or "published", see :class:`Published`, or
"published alone", whose labels share no products with features, as in the authors' program.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from xmcjax.inits import INITS, Init, Starts
from xmcjax.lanes import LabelResult, OneVsAll, StepRecord, train_one_vs_all
from xmcjax.linops import native_ready
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.solvers import Status

PUBLISHED, ALONE = "published", "published alone"
SOLVERS = ("xmcjax", PUBLISHED, ALONE)
_OPTION = {
    "bias": ("bias_lambda", float),
    "ova_primal": ("ova_primal", str),
    "mean_separating": ("msi_t", float),
}
# How many labels a trace trains in step, as the lanes of a block.
_LANES = 16


class Published(OneVsAll):
    """The method of Schultheis and Babbar, 2022: the bias is only the weight of a last feature of value 1.

    They take the rules of LIBLINEAR (Galli and Lin, 2021). CG stops at its step i if i times the last
    decrease of the quadratic model is 0.5 of the total decrease; its preconditioner is 0.99 I + 0.01 diag(H).
    The line search takes the first of 1, ½, ¼ … with a decrease of 0.01 of what the slope promises. A label
    ends by its gradient alone (eqs. 12 and 13).
    """

    def hparams(self):
        return (
            super()
            .hparams()
            ._replace(
                cg_progress=0.5,
                preconditioner=0.01,
                decrement=1e30,
                armijo=0.01,
                backtracking=0.5,
                max_backtracks=20,
            )
        )


@dataclasses.dataclass(frozen=True)
class BiasFeature(Init):
    """w0 = −λ for the last feature, 0 for the others: the bias start where the bias is a feature."""

    bias_lambda: float = 1.0

    name: ClassVar[str] = "bias_feature"

    def prepare(self, data):
        base = np.zeros(len(data.mean))
        base[-1] = -self.bias_lambda
        return lambda labels: Starts.constant(len(labels.ids), len(base), base)


def start(name: str, solver: str = "xmcjax") -> Init:
    """The initialisation of this name.

    Raises:
        ValueError: there is none, or it takes no number or word.
    """
    kind, _, number = name.partition(":")
    if kind not in INITS or (number and kind not in _OPTION):
        raise ValueError(
            f"expected a start of {', '.join(INITS)}, of which {', '.join(_OPTION)} take a parameter "
            f"after a colon; got {name!r}"
        )
    options = {}
    if number:
        field, read = _OPTION[kind]
        options[field] = read(number)
    if kind == "bias" and solver in (PUBLISHED, ALONE):
        return BiasFeature(**options)
    return INITS[kind](**options)


def method(solver: str, start_name: str, *, loss: str = "squared_hinge", **options) -> OneVsAll:
    """How a solver trains from a start; `options` are those of OneVsAll.

    Weights below 0.01 are dropped unless `options` say otherwise. So do Schultheis and Babbar, and dismecpp.
    """
    if solver not in SOLVERS:
        raise ValueError(f"expected a solver of {', '.join(SOLVERS)}, got {solver!r}")
    options = {"loss": MARGIN_LOSSES[loss], "init": start(start_name, solver), "clip": 0.01, **options}
    if solver == ALONE:
        options["block_size"] = 1
    return OneVsAll(**options) if solver == "xmcjax" else Published(fit_intercept=False, **options)


def features(X, solver: str):
    """X as the solver takes it: the published one has the bias feature in it."""
    if solver == "xmcjax":
        return X
    ones = np.ones((X.shape[0], 1), X.dtype)
    if not sp.issparse(X):
        return np.hstack([X, ones])
    X = sp.csr_matrix(sp.hstack([X, ones]))
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X


def sample(Y, most: int) -> np.ndarray:
    """Labels with positives, at most `most`: a seeded sample, ascending; all of them for 0."""
    labels = np.flatnonzero(np.diff(sp.csc_matrix(Y).indptr) > 0)
    if most and len(labels) > most:
        labels = np.sort(np.random.default_rng(0).choice(labels, most, replace=False))
    return labels


def store(folder: Path, split) -> None:
    """Writes the matrices of an experiments._data.Split for other processes."""
    for name, matrix in split._asdict().items():
        if sp.issparse(matrix):
            sp.save_npz(folder / f"{name}.npz", sp.csr_matrix(matrix))
        else:
            np.save(folder / f"{name}.npy", matrix)


def stored(folder: str | Path, name: str):
    """A matrix that :func:`store` wrote."""
    sparse = Path(folder) / f"{name}.npz"
    return sp.load_npz(sparse) if sparse.exists() else np.load(sparse.with_suffix(".npy"))


class Collected:
    """A sink that keeps the weights, [L, d] in CSR, biases and objectives."""

    def __init__(self, n_labels: int, n_features: int):
        self.shape = n_labels, n_features
        self.bias = np.full(n_labels, -np.inf, np.float32)  # −∞ marks a label that is never predicted
        self.value = np.zeros(n_labels)
        self._parts: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def __call__(self, result: LabelResult) -> None:
        self.value[result.label] = result.value
        if result.status != Status.NO_POSITIVES:
            self._parts[result.label] = result.indices.astype(np.int32), result.values
            self.bias[result.label] = result.bias

    def weights(self) -> sp.csr_array:
        """The weights of all labels so far."""
        nothing = np.zeros(0, np.int32), np.zeros(0, np.float32)
        parts = [self._parts.get(label, nothing) for label in range(self.shape[0])]
        indptr = np.cumsum([0] + [len(indices) for indices, _ in parts])
        indices, values = (np.concatenate(column) for column in zip(*parts, strict=True))
        return sp.csr_array((values, indices, indptr), shape=self.shape)

    def trained_bias(self) -> np.ndarray:
        """Biases, 0 for labels that were not trained."""
        return np.where(np.isfinite(self.bias), self.bias, 0)


def quality(weights, bias: np.ndarray, X_test, Y_test) -> dict:
    """P@1, 3, 5 and the mean precision and recall of the binary problems, in per cent (Table 4).

    Args:
        weights: [L, d], CSR.
        bias: [L], −∞ for labels that are never predicted.
        X_test, Y_test: of the test part.
    """
    from xmcjax.metrics import label_precision_recall, precision_at_k
    from xmcjax.models import ArrayModel, predict_topk, scores_above

    model = ArrayModel(weights, bias)
    best, _ = predict_topk(model, X_test, 5)
    binary = label_precision_recall(Y_test, scores_above(model, X_test))
    return {
        "precision_at": [100 * float(precision_at_k(Y_test, best, k)) for k in (1, 3, 5)],
        "precision": 100 * binary.precision,
        "recall": 100 * binary.recall,
    }


class ByStep:
    """An observer that collects what the lanes did, by Newton step."""

    def __init__(self, n: int):
        self._n = n
        self._totals: dict[int, list[float]] = {}

    def __call__(self, record: StepRecord) -> None:
        # record.newton_steps counts the steps made; 0 is the start
        for step, active, multiplier in zip(
            record.newton_steps.tolist(), record.active.tolist(), record.multiplier.tolist(), strict=True
        ):
            totals = self._totals.setdefault(step, [0, 0, 0.0])
            totals[0] += 1
            totals[1] += active
            totals[2] += multiplier

    def table(self) -> list[dict]:
        """By step: the number of labels, their mean share of active rows and their mean multiplier."""
        return [
            {"step": step, "labels": n, "active": active / n / self._n, "multiplier": multiplier / n}
            for step, (n, active, multiplier) in sorted(self._totals.items())
        ]


@dataclasses.dataclass
class Trace:
    """Every step of every label.

    Attributes:
        label, step, value, active, multiplier, seconds: of each step, by label and step; step 0 evaluates
            the starting weights, active is a share of the rows.
        positives, distance: of each label; distance is ‖w − w0‖ with the bias.
    """

    label: np.ndarray
    step: np.ndarray
    value: np.ndarray
    active: np.ndarray
    multiplier: np.ndarray
    seconds: np.ndarray
    positives: np.ndarray
    distance: np.ndarray


def trace(X, Y, how: OneVsAll, labels: np.ndarray) -> Trace:
    """Trains the labels without clipping and keeps every step.

    Sixteen labels with about equally many positives start together and go in step; no lane is refilled. The
    time of a label at a step is the time of the step, divided by the number of lanes that made it. It is
    processor time where the step is native.

    Args:
        X, Y: as of train_one_vs_all.
        how: the options of training; block size, threads and clipping are not used.
        labels: numbers of labels with positives.
    """
    how = dataclasses.replace(how, block_size=_LANES, n_jobs=1, clip=0.0)
    still = dataclasses.replace(how, max_iter=0)
    positives = np.diff(sp.csc_matrix(Y).indptr)[labels]
    order = np.argsort(positives, kind="stable")
    labels, positives = labels[order], positives[order]
    number = np.full(Y.shape[1], -1)
    number[labels] = np.arange(len(labels))
    records: list[tuple[float, ...]] = []
    distance = np.zeros(len(labels))

    def observe(record: StepRecord) -> None:
        numbers = record.newton_steps, record.value, record.active / X.shape[0], record.multiplier
        seconds = record.thread_seconds if native_ready() else record.seconds
        shares = np.full(len(record.labels), seconds / len(record.labels))
        records.extend(zip(number[record.labels], *numbers, shares, strict=True))

    train_one_vs_all(X, Y, how, lambda result: None, labels=labels[:1])  # compiles, if compilation is needed
    for first in range(0, len(labels), _LANES):
        chunk = labels[first : first + _LANES]
        starts, ends = (Collected(Y.shape[1], X.shape[1]) for _ in range(2))
        train_one_vs_all(X, Y, still, starts, labels=chunk)
        train_one_vs_all(X, Y, how, ends, labels=chunk, observe=observe)
        moved = (ends.weights()[chunk] - starts.weights()[chunk]).power(2).sum(axis=1)
        distance[first : first + _LANES] = np.sqrt(moved + (ends.bias[chunk] - starts.bias[chunk]) ** 2)
    # sorted by label and step
    label, step, value, active, multiplier, seconds = np.array(sorted(records)).T
    label, step = label.astype(int), step.astype(int)
    return Trace(label, step, value, active, multiplier, seconds, positives, distance)


def summarise(trace: Trace) -> dict:
    """A trace as the figures show it.

    ``by_step``: of the labels that made the step. ``by_time``: the mean objective of all labels, each after
    equally many milliseconds. ``by_positives``: means and 2.5% and 97.5% quantiles over labels whose number
    of positives is in [low, high]. ``histograms``: numbers of labels by Newton steps and by milliseconds.
    """
    labels = len(trace.positives)
    steps = np.zeros(labels, int)
    np.maximum.at(steps, trace.label, trace.step)
    milliseconds = 1e3 * np.bincount(trace.label, trace.seconds, labels)
    initial = np.zeros(labels)
    initial[trace.label[trace.step == 0]] = trace.value[trace.step == 0]
    by_step = []
    for step in range(steps.max() + 1):
        here = trace.step == step
        row: dict = {"step": step, "labels": int(here.sum())}
        for name in ("value", "active", "multiplier"):
            row[name] = _spread(getattr(trace, name)[here])
        row["ms"] = _spread(1e3 * trace.seconds[here])
        by_step.append(row)
    edges = 10 ** np.arange(-3, 6, 0.125)
    counts, _ = np.histogram(milliseconds, edges)
    by_positives = []
    high = 0
    while high < trace.positives.max():
        low, high = high + 1, 2 * high + 1
        here = (trace.positives >= low) & (trace.positives <= high)
        if here.any():
            of = {"steps": steps, "ms": milliseconds, "initial": initial, "distance": trace.distance}
            row = {"low": low, "high": high, "labels": int(here.sum())}
            by_positives.append(row | {name: _spread(values[here]) for name, values in of.items()})
    return {
        "labels": labels,
        "steps": float(steps.mean()),
        "ms": float(milliseconds.mean()),
        "initial": float(initial.mean()),
        "distance": float(trace.distance.mean()),
        "by_step": by_step,
        "by_time": _by_time(trace, milliseconds),
        "by_positives": by_positives,
        "histograms": {
            "steps": np.bincount(steps).tolist(),
            "ms": {"edges": edges.tolist(), "labels": counts.tolist()},
        },
    }


def _spread(values: np.ndarray) -> dict:
    low, high = np.quantile(values, (0.025, 0.975))
    spread = {"mean": values.mean(), "sd": values.std(), "low": low, "high": high}
    return {name: float(f"{value:.5g}") for name, value in spread.items()}


def _by_time(trace: Trace, milliseconds: np.ndarray) -> dict:
    """Mean objective of all labels against the time each has had; a label that ended keeps its last value."""
    # each label's clock: the running sum of its own steps
    clock = np.cumsum(trace.seconds)
    starts = trace.step == 0
    clock -= (clock - trace.seconds)[starts][np.cumsum(starts) - 1]
    after = 1e3 * clock
    first = trace.value[starts]
    # Mean over labels as a step function: every step changes it by (its value − the one before) / labels.
    change = np.diff(trace.value, prepend=0.0) * ~starts
    order = np.argsort(after, kind="stable")
    mean = first.mean() + np.cumsum(change[order]) / len(milliseconds)
    times = np.geomspace(after[starts].min(), milliseconds.max(), 60)
    place = np.searchsorted(after[order], times, side="right") - 1
    values = np.where(place >= 0, mean[np.maximum(place, 0)], first.mean())
    return {"ms": times.tolist(), "value": values.tolist()}
