"""Sections 7.2 and 7.3 of Seeger, 2006: a matrix B that mixes functions, and rows known up to an inner node.

    python -m experiments.papers.p003.extensions [--small|--full] [--out results]

The paper proposes both and has no experiment. On clef, with linear kernels:

- of half of the rows only the node above the class is known. "without them" leaves these rows out, "direct"
  minimises the likelihood of what was observed, as KernelLogisticClassifier does, "EM" takes the steps of
  section 7.3 until the objective gains less than 1e-6 of it, and "all known" is told every class. Each has
  a tree and the same variances; "direct, tuned" learns those of the levels from the vague labels;
- B has fewer columns than there are classes and is learnt together with v by the criterion, from random
  numbers; "flat" learns one v.

Runs are kept in p003_extensions.cells.json. Writes p003_extensions.json and .md.
"""

from __future__ import annotations

import dataclasses
import functools
import time
import warnings

import numpy as np

from experiments import _report
from experiments._cells import Cells
from experiments.papers.p003.tables_1_2 import load
from xmcjax._hierarchy import Hierarchy

LABELS = ("without them", "direct", "EM", "all known", "direct, tuned")
MIXING = ("flat", "B")
GAIN = 1e-6  # EM ends where the objective gains less than this, relatively
MOST_ROUNDS = 200


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized, small=dict(rows=150, max_iter=2), full=dict(rows=1_000, splits=(0, 1, 2))):
    """Mixed functions, and inner labels.

    Attributes:
        labels: any of "without them", "direct", "EM", "all known", "direct, tuned".
        mixing: any of flat, B.
        splits: numbers of the draws of the rows.
        rows: most training rows.
        factors: columns of B.
        v: variance of a node; where the search for that of B begins.
        max_iter: most iterations of a search.
        small: 150 rows, two iterations.
        full: 1,000 rows and three draws.
    """

    labels: tuple[str, ...] = LABELS
    mixing: tuple[str, ...] = MIXING
    splits: tuple[int, ...] = (0,)
    rows: int = 500
    factors: int = 10
    v: float = 20.0
    max_iter: int = 15


def some(split: int, rows: int):
    """(X, y, X_test, y_test, edges) with `rows` training rows, drawn at random, in float64."""
    X, y, X_test, y_test, edges = load("clef")
    chosen = np.random.default_rng(split).permutation(len(y))[:rows]
    return X[chosen].astype(np.float64), y[chosen], X_test.astype(np.float64), y_test, edges


def vague(y: np.ndarray, tree: Hierarchy, rng: np.random.Generator) -> np.ndarray:
    """Labels of which half are replaced by the node above the class, which may be the root."""
    above = tree.parent[tree.places(y, leaves_only=False)]
    return np.where(rng.random(len(y)) < 0.5, np.where(above < 0, 0, tree.nodes[above]), y)


def em(X, vague_labels: np.ndarray, edges, v: float):
    """(function that predicts, objectives after each round): section 7.3, from q uniform on the classes.

    An E step sets q to the probabilities of the classes below the label; an M step fits to q as targets.
    """
    from xmcjax import kernels
    from xmcjax.estimators._kernel_parts import below
    from xmcjax.lanes import precision
    from xmcjax.solvers.kernel_multinomial import HParams, init, kernel_problem, partial_labels, run

    tree = Hierarchy.from_edges(edges)
    single, several = below(vague_labels, tree)
    allowed = (single[:, None] == np.arange(tree.n_classes)) if several is None else several
    hp, history, alpha = HParams(tolerance=1e-6), [], None
    with precision(X.dtype):
        gram = kernels.gram(kernels.Linear(), kernels.points(X))
        kernel = kernels.class_kernels(gram, v, 1.0, tree.n_classes, hierarchy=tree)
        observed = partial_labels(allowed)
        q = allowed / allowed.sum(axis=1, keepdims=True)
        for _ in range(MOST_ROUNDS):
            problem = kernel_problem(kernel, q)
            state = run(problem, hp, init(problem, alpha))
            alpha = state.alpha
            penalty = float(np.vdot(alpha, kernel.matmat(alpha))) / 2
            history.append(float(np.sum(observed.losses(state.u))) + penalty)
            u = np.where(allowed, np.asarray(state.u[..., 0]), -np.inf)
            q = np.exp(u - u.max(axis=1, keepdims=True))
            q /= q.sum(axis=1, keepdims=True)
            if len(history) > 1 and history[-2] - history[-1] < GAIN * abs(history[-1]):
                break
        points, found = functools.partial(kernels.points, like=kernel.gram.points), state.alpha

        def predict(new):
            with precision(X.dtype):
                return tree.nodes[tree.leaves][
                    np.asarray(kernel.cross(points(new), found))[..., 0].argmax(axis=1)
                ]

    return predict, history


def of_labels(method: str, split: int, options: Options) -> dict:
    """A fit to rows of which half are known up to the node above, and its accuracy."""
    from xmcjax import KernelLogisticClassifier

    X, y, X_test, y_test, edges = some(split, options.rows)
    known = vague(y, Hierarchy.from_edges(edges), np.random.default_rng(split))
    model = KernelLogisticClassifier(
        "linear", edges, v=options.v, inner_labels=method.startswith("direct"), tol=1e-6
    )
    begin, rounds = time.perf_counter(), 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of step limits: the result has the objective
        if method == "EM":
            predict, history = em(X, known, edges, options.v)
            objective, rounds, predicted = history[-1], len(history), predict(X_test)
        else:
            rows = known == y if method == "without them" else np.full(len(y), True)
            labels = known if method.startswith("direct") else y
            if method.endswith("tuned"):
                folds = np.random.default_rng(split).permutation(len(y)) % 5
                model.tune(X, labels, folds, free=("v",), max_iter=options.max_iter)
            else:
                model.fit(X[rows], labels[rows])
            objective, predicted = model.objective_, model.predict(X_test)
    seconds = time.perf_counter() - begin
    accuracy = float(np.mean(predicted == y_test))
    vague_rows = int((known != y).sum())
    return dict(accuracy=accuracy, objective=objective, rounds=rounds, vague=vague_rows, seconds=seconds)


def of_mixing(method: str, split: int, options: Options) -> dict:
    """Hyperparameters learnt by the criterion, and the accuracy at its end."""
    from xmcjax import KernelLogisticClassifier

    X, y, X_test, y_test, _ = some(split, options.rows)
    C = len(np.unique(y))
    draws = np.random.default_rng(split).normal(size=(C, options.factors)) / np.sqrt(options.factors)
    loadings = draws if method == "B" else None
    model = KernelLogisticClassifier("linear", v=options.v, loadings=loadings, tol=1e-5, random_state=split)
    folds = np.random.default_rng(split).permutation(len(y)) % 5
    free = ("v", "loadings") if method == "B" else ("v",)
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of step limits: the result has the criterion
        model.tune(X, y, folds, share="all", free=free, max_iter=options.max_iter)
    return {
        "accuracy": float(np.mean(model.predict(X_test) == y_test)),
        "criterion": model.criterion_,
        "criterion_at_start": model.search_.history[0].value,
        "hyperparameters": model.search_.x.size,
        "classes": C,
        "seconds": time.perf_counter() - begin,
    }


def run(options: Options) -> dict:
    """All runs, those that are stored taken from their cells."""
    cells = Cells(options, "p003_extensions", listed=("labels", "mixing", "splits"))
    result = {"labels": [], "mixing": []}
    for split in options.splits:
        for part, work in (("labels", of_labels), ("mixing", of_mixing)):
            for method in getattr(options, part):
                asked = dict(part=part, method=method, split=split)
                found = cells.get(functools.partial(work, method, split, options), **asked)
                result[part].append(dict(method=method, split=split) | found)
    return {"made": cells.made(), "rows": options.rows, **result}


def markdown(result: dict) -> str:
    """A table for each section."""

    def mean(runs: list[dict], key: str, form: str = ".1f", scale: float = 1) -> str:
        values = [scale * r[key] for r in runs]
        spread = f" ± {np.std(values, ddof=1):{form}}" if len(values) > 1 else ""
        return f"{np.mean(values):{form}}{spread}"

    def of(part: str, methods: tuple[str, ...]):
        by_method = {m: [r for r in result[part] if r["method"] == m] for m in methods}
        return [(method, runs) for method, runs in by_method.items() if runs]

    rows = [
        [
            m,
            len(runs),
            mean(runs, "accuracy", ".1f", 100),
            mean(runs, "objective"),
            mean(runs, "rounds", ".0f"),
        ]
        for m, runs in of("labels", LABELS)
    ]
    text = f"{result['rows']} rows of clef, of half of which the node above the class is known (7.3):\n\n"
    header = ("labels", "draws", "accuracy, %", "objective of the labels that were given", "fits")
    text += _report.markdown_table(header, rows) + "\nFunctions mixed by B (7.2), on the same rows:\n\n"
    rows = [
        [
            m,
            len(runs),
            runs[0]["hyperparameters"],
            mean(runs, "accuracy", ".1f", 100),
            mean(runs, "criterion_at_start"),
            mean(runs, "criterion"),
        ]
        for m, runs in of("mixing", MIXING)
    ]
    header = ("functions", "draws", "hyperparameters", "accuracy, %", "Ψ at the start", "Ψ")
    return text + _report.markdown_table(header, rows)


if __name__ == "__main__":
    _report.main("p003_extensions", Options, __doc__, run, markdown)
