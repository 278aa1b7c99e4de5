"""All-in-one SVMs against LIBLINEAR (through scikit-learn), on the same features in the same run.

    python -m experiments.bench.multiclass_svm [--small|--full] [--separate] [--out results]

No bias unless said so, float32 for us, C = 1; ours to a relative duality gap of 1e-3, LIBLINEAR until no
projected gradient exceeds 0.01 by its own measure; scikit-learn converts to float64, which its time
contains. One thread: a time is the CPU time of training, the median of repetitions that go round by turns,
of a first call; nothing of ours is compiled. On naics2017 every method has the C that held-out rows chose
(experiments.papers.p001.tables_3_5). Objectives are worked out from the weights in float64. Two threads: wall
clock times of Weston-Watkins with one thread and with two, and of scipy's CSR @ dense in one process and in
two at once, by turns. The authors' figures of the table are those of their program ported to Python 3,
recorded on another day. With --separate: one-vs-rest with the hinge alone, of experiments.bench._separate.
Writes multiclass_svm.json and .md.
"""

from __future__ import annotations

import dataclasses
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from experiments import _multiclass, _report
from experiments.bench import _separate, _worker

OURS = {"ww": "Weston-Watkins", "cs": "Crammer-Singer"}
# Recorded seconds (scikit-learn's Crammer-Singer with a bias, the authors' program).
RECORDED = {
    "satimage": (None, 1.4),
    "letter": (1.5, 4.5),
    "usps": (2.5, 6.7),
    "clinc150": (2.5, 1.2),
    "news20_bydate": (4.4, 29.0),
}
# log10 C with the least error on held-out rows of naics2017.
NAICS_C = {"ww": 0, "cs": 1, "liblinear cs": 1, "liblinear ovr": 1}


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized):
    """All-in-one SVMs against LIBLINEAR.

    Attributes:
        sets: of experiments._multiclass.SETS, at C = 1.
        many: naics2017, each method at its best C; and the two threads on it.
        separate: one-vs-rest with the hinge in place of the others.
        C: of one-vs-rest.
        intercept: whether one-vs-rest has a bias.
        gap: relative duality gap of ours.
        tol: largest projected gradient of LIBLINEAR.
        repeats: of every timed run.
        small: scikit-learn's digits, one repetition.
        full: all sets, five repetitions.
    """

    sets: tuple[str, ...] = ("letter", "usps", "clinc150", "news20_bydate")
    many: bool = False
    separate: bool = False
    C: tuple[float, ...] = (0.1, 1.0, 10.0)
    intercept: bool = False
    gap: float = 1e-3
    tol: float = 0.01
    repeats: int = 3

    def chosen(self) -> Options:
        """With the sizes that --small or --full stand for."""
        if self.full:
            return dataclasses.replace(self, sets=("satimage", *self.sets), many=True, repeats=5)
        return dataclasses.replace(self, sets=("digits",), repeats=1) if self.small else self


def objective(X, y: np.ndarray, W: np.ndarray, formulation: str, C: float) -> float:
    """The primal in float64."""
    W = W.astype(np.float64)
    gains = 1 + X @ W
    gains -= np.take_along_axis(gains, y[:, None], 1) - 1
    gains[np.arange(len(y)), y] = 0
    gains = np.maximum(gains, 0)
    loss = gains.max(axis=1) if formulation == "cs" else gains.sum(axis=1)
    return float((W**2).sum() / 2 + C * loss.sum())


def methods(parts: _multiclass.Parts, options: Options, log_C: dict[str, int]) -> dict[str, Callable]:
    """By name, functions that train and return W and whether training converged."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    from xmcjax.solvers import Status, multiclass_dual

    def ours(formulation: str):
        C = 10.0 ** log_C.get(formulation, 0)
        s = multiclass_dual.run(
            parts.X, parts.y, formulation=formulation, C=C, tol=options.gap, max_epochs=10_000
        )
        return s.W, s.status == Status.CONVERGED

    def liblinear(name: str, **how):
        C = 10.0 ** log_C.get(name, 0)
        svc = LinearSVC(C=C, tol=options.tol, random_state=0, **how)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            svc.fit(parts.X, parts.y)
        return svc.coef_.T, not caught

    cs = dict(multi_class="crammer_singer", max_iter=100_000)
    found: dict[str, Callable] = {
        "ww": lambda: ours("ww"),
        "cs": lambda: ours("cs"),
        "liblinear cs": lambda: liblinear("liblinear cs", fit_intercept=False, **cs),
    }
    if log_C:
        hinge = dict(loss="hinge", fit_intercept=False, max_iter=100_000)
        found["liblinear ovr"] = lambda: liblinear("liblinear ovr", **hinge)
    else:
        found["liblinear cs bias"] = lambda: liblinear("liblinear cs bias", **cs)
    return found


def one_set(name: str, options: Options, log_C: dict[str, int]) -> dict:
    """Seconds, error and objective of each method."""
    parts = _multiclass.load(name)
    if not sp.issparse(parts.X):
        parts = parts._replace(X=np.ascontiguousarray(parts.X, np.float32))
    rows: dict[str, dict[str, Any]] = {method: {"seconds": []} for method in methods(parts, options, log_C)}
    for _ in range(options.repeats):
        for method, train in methods(parts, options, log_C).items():
            begin = time.process_time()
            W, converged = train()
            rows[method]["seconds"].append(time.process_time() - begin)
            rows[method] |= {"converged": bool(converged), "log_C": log_C.get(method, 0)}
            if "bias" not in method:
                rows[method]["error"] = _multiclass.test_error(W, parts.X_test, parts.y_test)
            formulation = method.removeprefix("liblinear ")
            if formulation in OURS:
                C = 10.0 ** log_C.get(method, 0)
                rows[method]["primal"] = objective(parts.X, parts.y, W, formulation, C)
    for row in rows.values():
        row["median"] = float(np.median(row["seconds"]))
    return rows


def two_threads(options: Options) -> dict:
    """Speed-ups of two threads, and of two processes of scipy's product, in wall-clock time."""
    from xmcjax.solvers import multiclass_dual

    parts = _multiclass.load("naics2017" if options.many else "digits")
    X = sp.csr_array(parts.X)

    def train(threads: int) -> float:
        begin = time.perf_counter()
        multiclass_dual.run(X, parts.y, tol=options.gap, threads=threads)
        return time.perf_counter() - begin

    folder = options.out / "multiclass_svm.data"
    folder.mkdir(parents=True, exist_ok=True)
    sp.save_npz(folder / "X.npz", sp.csr_matrix(X))
    sp.save_npz(folder / "Y.npz", sp.csr_matrix((X.shape[0], 1)))
    processors = _worker.usable_processors()[:2]
    products = 3000 if options.many else 20  # about as long as a training run

    def multiply(count: int) -> float:
        """Seconds of one process's products while `count` of them run."""
        seconds = [0.0] * count

        def work(k: int):
            own = processors[k : k + 1]
            seconds[k] = _worker.ask("scipy_product", folder, own, products=products)["seconds"]

        pool = [threading.Thread(target=work, args=(k,)) for k in range(count)]
        for thread in pool:
            thread.start()
        for thread in pool:
            thread.join()
        return max(seconds)

    times: dict[str, list[float]] = {"one": [], "two": [], "product": [], "products": []}
    for _ in range(options.repeats):
        times["one"].append(train(1))
        times["two"].append(train(2))
        times["product"].append(multiply(1))
        times["products"].append(multiply(2))
    median = {name: float(np.median(values)) for name, values in times.items()}
    return {
        "times": times,
        "speed_up": median["one"] / median["two"],
        # times 2, because two processes do twice the work
        "scipy_speed_up": 2 * median["product"] / median["products"],
    }


def run(options: Options) -> dict:
    """All rows."""
    if options.separate:
        found = [
            _separate.compared(name, C, options.intercept, options.gap, options.repeats)
            for name in options.sets
            for C in options.C
        ]
        return {"options": dataclasses.asdict(options) | {"out": None}, "separate": found}
    rows = {name: one_set(name, options, {}) for name in options.sets}
    if options.many:
        rows["naics2017"] = one_set("naics2017", options, NAICS_C)
    return {
        "options": dataclasses.asdict(options) | {"out": None},
        "rows": rows,
        "threads": two_threads(options),
    }


def markdown(result: dict) -> str:
    """The tables."""
    if "separate" in result:
        return _separate.markdown(result["separate"])

    def cell(rows: dict, method: str, score: str, form: str) -> str:
        if score not in rows.get(method, {}):
            return "–"
        late = "" if rows[method]["converged"] or score != "median" else " (not converged)"
        return form.format(rows[method][score]) + late

    def recorded(name: str, k: int) -> str:
        value = RECORDED.get(name, (None, None))[k]
        return "–" if value is None else f"{value:g}"

    methods_of = ("ww", "cs", "liblinear cs", "liblinear cs bias")
    header = ["C = 1", "WW", "CS", "LIBLINEAR CS", "… with a bias", "recorded: … with a bias"]
    header += ["recorded: the authors' WW", "WW ahead of the faster"]
    table = []
    for name, rows in result["rows"].items():
        if name == "naics2017":
            continue
        rivals = [rows[m]["median"] for m in methods_of[2:]]
        rivals += [v for v in RECORDED.get(name, ()) if v is not None]
        ahead = min(rivals) / rows["ww"]["median"]
        cells = [cell(rows, method, "median", "{:.2f}") for method in methods_of]
        table.append([name, *cells, recorded(name, 0), recorded(name, 1), f"{ahead:.1f} ×"])
    text = "CPU seconds, one thread, ours to a relative duality gap of 0.001\n\n"
    text += _report.markdown_table(header, table) + "\n"
    if "naics2017" in result["rows"]:
        rows = result["rows"]["naics2017"]
        titles = {"ww": "WW", "cs": "CS", "liblinear cs": "LIBLINEAR CS", "liblinear ovr": "LIBLINEAR OVR"}
        table = [
            [
                titles[m],
                rows[m]["log_C"],
                cell(rows, m, "median", "{:.2f}"),
                cell(rows, m, "error", "{:.2f}"),
                cell(rows, m, "primal", "{:.6g}"),
            ]
            for m in titles
        ]
        text += "naics2017, each at its best C\n\n"
        text += _report.markdown_table(["", "log10 C", "CPU seconds", "error %", "primal"], table) + "\n"
    threads = result["threads"]
    share = threads["speed_up"] / threads["scipy_speed_up"]
    text += (
        f"Two threads, Weston-Watkins: {threads['speed_up']:.2f} times as fast as one; two processes of "
        f"scipy's product: {threads['scipy_speed_up']:.2f} times. The ratio is {share:.2f}.\n"
    )
    return text


if __name__ == "__main__":
    _report.main("multiclass_svm", Options, __doc__, run, markdown)
