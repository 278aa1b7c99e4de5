"""Section 8.2 of Seeger, 2006: flat and hierarchical kernel multinomial regression with learnt variances.

    python -m experiments.papers.p003.tables_1_2 [--small|--full] [--out results]

Linear kernels on clef, naics2017 and clinc150, which stand in for WIPO-alpha. F1 and F2 are flat, H1 and
H2 hierarchical; F1 has one variance for all classes, H1 one for each level, F2 and H2 one for each subtree
of the root's children; F and H have the variance 1, which the paper finds worse. S and HS are the flat
and the hierarchical SVM of Cai and Hofmann, HSΔ the latter with margins that grow with the loss of the tree;
their C is chosen on a fifth of the rows of the search. The limits k₁, k₂, k₃ of Newton and CG steps and the
start v = 5 are the paper's. Predictions are the likeliest class, or that of the least expected loss
("least" in the table). Split 0 is that of the set; the others draw as many training rows from all rows.
Times are processor times, of all threads together, which other work on the machine changes less than those
of a clock.

Runs are kept in p003_tables_1_2.cells.json. Writes p003_tables_1_2.json, .md and, where matplotlib is
installed, .png with the reject curves of all methods.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from experiments import _data, _report
from experiments._cells import Cells
from experiments.papers.p004.baselines._base import TOL
from xmcjax._hierarchy import Hierarchy
from xmcjax.data import fit_transforms, load_svmlight
from xmcjax.metrics import mean_reciprocal_rank, parent_accuracy, taxonomy_loss

METHODS = {
    "F1": ("flat", "one"),
    "H1": ("tree", "level"),
    "F2": ("flat", "subtree"),
    "H2": ("tree", "subtree"),
    "F": ("flat", None),
    "H": ("tree", None),
}
SVMS = {"S": (False, False), "HS": (True, False), "HSΔ": (True, True)}  # (with the tree, with its loss)
PENALTIES = (0.001, 0.01, 0.1, 1.0, 10.0)  # C of the SVMs
POINTS = 201  # of a reject curve
SETS = ("clef", "clinc150", "naics2017")
PAPER_METHODS = ("F1", "H1", "F2", "H2")
# Table 1 by section: accuracy, precision and taxonomy loss (of the least expected loss), four methods each
PAPER = {
    "A": (40.6, 41.9, 40.5, 41.9, 51.6, 53.4, 51.4, 53.4, 1.27, 1.19, 1.29, 1.19),
    "B": (32.0, 32.9, 31.7, 32.7, 41.8, 43.8, 41.6, 43.7, 1.52, 1.44, 1.55, 1.44),
    "C": (33.7, 34.7, 34.1, 34.5, 45.2, 46.6, 45.4, 46.4, 1.34, 1.26, 1.35, 1.27),
    "D": (40.0, 40.6, 39.7, 40.8, 52.4, 54.1, 52.2, 54.3, 1.19, 1.11, 1.18, 1.11),
    "E": (33.0, 34.2, 32.8, 34.1, 45.1, 47.1, 45.0, 47.1, 1.39, 1.31, 1.38, 1.31),
    "F": (31.4, 32.4, 31.4, 32.5, 42.8, 44.9, 42.8, 45.0, 1.43, 1.34, 1.43, 1.34),
    "G": (40.1, 40.7, 40.2, 40.7, 51.2, 52.5, 51.3, 52.5, 1.32, 1.26, 1.32, 1.26),
    "H": (39.3, 39.6, 39.4, 39.7, 52.4, 53.3, 52.5, 53.4, 1.17, 1.15, 1.17, 1.14),
}
# Table 2: seconds of the final fit of F1 and H1, and of a fold of the criterion
PAPER_SECONDS = {
    "A": (2030, 3873, 573, 598),
    "B": (3751, 8657, 873, 1720),
    "C": (4237, 7422, 719, 1326),
    "D": (56.3, 118.5, 9.32, 20.2),
    "E": (131.5, 203.4, 32.2, 49.6),
    "F": (1202, 2871, 426, 568),
    "G": (1342, 2947, 232, 579),
    "H": (971.7, 1052, 146, 230),
}
# for flat models and trees: k₁, k₂, k₃ of the search, and k₁, k₂ of the last fit
LIMITS = {"flat": ((8, 4, 15), (25, 12)), "tree": ((10, 4, 25), (30, 17))}


@dataclasses.dataclass(frozen=True)
class Options(
    _report.Sized,
    small=dict(sets=("clef",), rows=300, test_rows=300, max_iter=2),
    full=dict(rows=1_000_000, splits=(0, 1, 2)),
):
    """Flat and hierarchical kernel multinomial regression.

    Attributes:
        sets: any of clef, clinc150, naics2017.
        methods: any of F1, H1, F2, H2, F, H, S, HS, HSΔ.
        splits: numbers of the splits into training and test rows.
        rows: most training rows of the last fit, drawn at random.
        search_rows: most of them that the search uses.
        test_rows: most test rows.
        folds: of the criterion.
        max_iter: most iterations of a search.
        sigma2: of the intercepts.
        small: 300 rows of clef, two iterations.
        full: all rows in the last fit, 2,000 of them in the search, three splits.
    """

    sets: tuple[str, ...] = SETS
    methods: tuple[str, ...] = (*METHODS, *SVMS)
    splits: tuple[int, ...] = (0,)
    rows: int = 2_000
    search_rows: int = 2_000
    test_rows: int = 100_000
    folds: int = 5
    max_iter: int = 15
    sigma2: float = 1.0


@functools.cache
def load(name: str, split: int = 0):
    """(X, y, X_test, y_test, edges): float32, text as unit tf-idf rows, clef standardised."""
    folder = _data.folder() / name
    X, y = load_svmlight(folder / "train.libsvm.xz")
    X_test, y_test = load_svmlight(folder / "test.libsvm.xz", n_features=X.shape[1])
    y, y_test = y.astype(int), y_test.astype(int)
    if split:
        order = np.random.default_rng(split).permutation(len(y) + len(y_test))
        both, labels = sp.vstack([X, X_test], format="csr")[order], np.concatenate([y, y_test])[order]
        X, X_test, y, y_test = both[: len(y)], both[len(y) :], labels[: len(y)], labels[len(y) :]
    if name == "clef":
        X, X_test = X.toarray(), X_test.toarray()
        mean, sd = X.mean(axis=0), X.std(axis=0) * np.sqrt(X.shape[1])
        X, X_test = (((Z - mean) / sd).astype(np.float32) for Z in (X, X_test))
    else:
        fitted = fit_transforms("log,idf,unit", X)
        X, X_test = fitted.apply(X), fitted.apply(X_test)
    if name == "clinc150":
        names = (folder / "classes.txt").read_text().split()
        domain = dict(line.split("\t") for line in (folder / "class_domain.txt").read_text().splitlines())
        number = {d: len(names) + 1 + i for i, d in enumerate(sorted(set(domain.values())))}
        edges = [(0, k) for k in number.values()]
        edges += [(number[domain[c]], i + 1) for i, c in enumerate(names)]
        edges = np.array(edges)
    else:
        edges = np.loadtxt(folder / "cat_hier.txt", dtype=int)
    return X, y, X_test, y_test, edges


class Task(NamedTuple):
    """The rows of a set and a split that a run uses."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    some: np.ndarray  #: the rows that the search uses
    edges: np.ndarray
    tree: Hierarchy
    numbers: np.ndarray  #: places of y among the leaves
    rng: np.random.Generator


def task(name: str, split: int, options: Options) -> Task:
    """The task of a set and a split, which is the same for every method."""
    X, y, X_test, y_test, edges = load(name, split)
    rng = np.random.default_rng(split)
    rows = np.sort(rng.permutation(X.shape[0])[: options.rows])
    test = np.sort(rng.permutation(X_test.shape[0])[: options.test_rows])
    X, y, X_test, y_test = X[rows], y[rows], X_test[test], y_test[test]
    if sp.issparse(X):  # words that no training row has do not count in a linear kernel
        words = np.unique(X.indices)
        X, X_test = X[:, words], X_test[:, words]
    some = np.sort(rng.permutation(len(rows))[: options.search_rows])
    tree = Hierarchy.from_edges(edges)
    return Task(X, y, X_test, y_test, some, edges, tree, tree.places(y, leaves_only=True), rng)


def scores(given: Task, ranks: np.ndarray, proba: np.ndarray | None) -> dict:
    """The scores of Table 1, and the reject curve.

    Args:
        given: the task, with the test rows.
        ranks: scores of the classes in the order of the leaves, the larger the better, [m, C].
        proba: probabilities, [m, C]; None if a method has none and takes its best class for every loss.
    """
    from xmcjax.estimators._kernel_parts import least_expected_loss
    from xmcjax.metrics import reject_curve

    leaves, y_test, edges = given.tree.nodes[given.tree.leaves], given.y_test, given.edges
    best = leaves[np.argmax(ranks, axis=1)]
    by_rule = {
        rule: best if proba is None else leaves[least_expected_loss(proba, proba, rule, given.tree)]
        for rule in ("taxonomy", "parent")
    }
    # the confidence of an SVM is the distance between its best and its second score
    two = np.partition(ranks, -2, axis=1)[:, -2:]
    sure = two[:, 1] - two[:, 0] if proba is None else proba.max(axis=1)
    curve = reject_curve(y_test, best, sure)
    places = np.linspace(0, len(curve) - 1, POINTS).round().astype(int)
    return {
        "accuracy": float(np.mean(best == y_test)),
        "precision": mean_reciprocal_rank(given.tree.places(y_test, leaves_only=True), ranks),
        "taxonomy_loss": taxonomy_loss(y_test, best, edges),
        "taxonomy_loss_least": taxonomy_loss(y_test, by_rule["taxonomy"], edges),
        "parent_accuracy": parent_accuracy(y_test, best, edges),
        "parent_accuracy_least": parent_accuracy(y_test, by_rule["parent"], edges),
        "kept": ((places + 1) / len(curve)).round(5).tolist(),
        "curve": curve[places].round(6).tolist(),
    }


def svm(method: str, given: Task) -> dict:
    """The C of the least error on a fifth of the rows of the search, the fit to all rows, its scores."""
    from experiments.papers.p003.hierarchical_svm import HierarchicalSvm

    with_tree, scaled = SVMS[method]
    flat = np.stack([np.zeros(given.tree.n_classes, int), given.tree.nodes[given.tree.leaves]], axis=1)
    # a flat SVM has the leaves of the tree in the same order, so that the places of the classes stay
    machine = HierarchicalSvm(given.edges if with_tree else flat, scaled, tol=1e-2)
    held_out = np.arange(len(given.some)) % 5 == 0
    fit, valid = given.some[~held_out], given.some[held_out]
    errors, start = [], None
    for C in PENALTIES:
        fitted = machine.fit(given.X[fit], given.numbers[fit], C, start)
        start = fitted.start
        errors.append(float(np.mean(fitted.scores(given.X[valid]).argmax(axis=1) != given.numbers[valid])))
    C = PENALTIES[int(np.argmin(errors))]
    begin = time.process_time()
    fitted = dataclasses.replace(machine, tol=TOL).fit(given.X, given.numbers, C)
    seconds = time.process_time() - begin
    return {
        "n": len(given.y),
        "searched": len(given.some),
        "penalty": C,
        "validation_errors": errors,
        "gap": fitted.gap,
        "fit_seconds": seconds,
        **scores(given, np.asarray(fitted.scores(given.X_test)), None),
    }


def one(name: str, method: str, split: int, cells: Cells, options: Options) -> dict:
    """A search, taken from its cell if it is there, the fit at its end, its scores, and times."""
    import jax
    import jax.numpy as jnp

    from xmcjax import KernelLogisticClassifier, kernels
    from xmcjax.solvers.kernel_multinomial import CvObjective, HParams, KernelModel, Softmax, tune

    given = task(name, split, options)
    if method in SVMS:
        return svm(method, given)
    X, y, X_test, _, some, edges, tree, numbers, rng = given
    rows = range(len(y))
    C, (shape, shared) = tree.n_classes, METHODS[method]
    functions = np.arange(tree.n_nodes) if shape == "tree" else tree.leaves
    group = {"one": np.zeros(tree.n_nodes, int), "level": tree.depth - 1, "subtree": tree.above(1)}[
        shared or "one"
    ]
    group = np.unique(group[functions], return_inverse=True)[1]
    search, last = LIMITS[shape]

    family = functools.partial(
        KernelModel, n_classes=C, groups=group, hierarchy=tree if shape == "tree" else None
    )
    model = family(kernels.points(X[some]))
    at = model.hyperparameters(5.0, kernels.Linear(), options.sigma2)

    def searched() -> dict:
        target = Softmax(jnp.asarray((numbers[some, None] == np.arange(C))[..., None], jnp.float32))
        hp = HParams(tolerance=1e-4, max_steps=search[0], max_cg=search[1], max_cg_gradient=search[2])
        folds = rng.permutation(len(some)) % options.folds
        objective = CvObjective(model, target, folds, at, free=("v",), hp=hp)
        times = []  # of all evaluations; the first compiles
        h, found = tune(
            objective,
            max_iter=options.max_iter,
            progress=True,
            watch=lambda iterate: times.append(time.process_time()),
        )
        evaluations = found.history[-1].evaluations
        return {
            "criterion": found.value,
            "v": np.asarray(h.v).tolist(),
            "evaluations": evaluations,
            "fold_seconds": (times[-1] - times[0]) / max(evaluations - 1, 1) / options.folds,
            "newton_steps_search": objective.steps,
            "cg_steps_search": objective.cg_steps,
        }

    if shared is None:
        found, h = {"v": [1.0]}, at._replace(v=np.ones(1))
    else:
        found = cells.get(searched, ("test_rows",), set=name, method=method, split=split, what="search")
        h = at._replace(v=np.array(found["v"]))

    # one product of all classes
    kernel, S = family(kernels.points(X)).kernels(h), jnp.ones((len(rows), C, 1), jnp.float32)
    product = jax.jit(lambda kernel, S: kernel.matmat(S))
    times = []
    for _ in range(21):
        start = time.process_time()
        jax.block_until_ready(product(kernel, S))
        times.append(time.process_time() - start)

    v = h.v[group]
    fixed: dict[str, Any] = dict(sigma2=options.sigma2, tol=1e-4, max_iter=last[0], max_cg=last[1])
    if shape == "tree":
        classifier = KernelLogisticClassifier("linear", edges, v=v[np.argsort(tree.nodes)], **fixed)
    else:
        # classes that these rows lack have no function of their own in a flat model
        present = np.unique(numbers)
        classifier = KernelLogisticClassifier("linear", v=v[present], **fixed)
    fits = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the limits are the paper's: status is in the result
        for _ in range(2):
            start = time.process_time()
            classifier.fit(X, y)
            fits.append(time.process_time() - start)
            if fits[0] > 30:  # compilation is negligible then
                break
    proba = np.zeros((X_test.shape[0], C))
    proba[:, tree.places(classifier.classes_, leaves_only=True)] = classifier.predict_proba(X_test)
    return {
        **found,
        "n": len(rows),
        "searched": len(some),
        "C": C,
        "P": len(functions),
        "functions": int(kernel.n_functions),
        "hyperparameters": int(group.max()) + 1,
        "fit_seconds": fits[-1],
        "newton_steps": classifier.n_iter_,
        "cg_steps": classifier.n_cg_,
        "status": classifier.status_.name,
        "product_seconds": float(np.median(times[1:])),
        **scores(given, proba, proba),
    }


def run(options: Options) -> dict:
    """The runs that are asked for, and all stored runs of the same sizes, with other sets and methods."""
    cells = Cells(options, "p003_tables_1_2", listed=("sets", "methods", "splits"))
    for name, split, method in itertools.product(options.sets, options.splits, options.methods):
        work = functools.partial(one, name, method, split, cells, options)
        cells.get(work, set=name, method=method, split=split, what="fit")
    listed = ("set", "method", "split")
    runs = [{key: asked[key] for key in listed} | found for asked, found in cells.alike(what="fit")]
    runs.sort(key=lambda r: (SETS.index(r["set"]), r["split"], [*METHODS, *SVMS].index(r["method"])))
    return {"made": cells.made(), "folds": options.folds, "runs": runs}


def groups(result: dict) -> Iterator[tuple[str, str, list[dict]]]:
    """(set, method, its runs by split)."""
    for name in dict.fromkeys(r["set"] for r in result["runs"]):
        for method in (*METHODS, *SVMS):
            runs = [r for r in result["runs"] if (r["set"], r["method"]) == (name, method)]
            if runs:
                yield name, method, runs


def markdown(result: dict) -> str:
    """Tables 1 and 2, and the paper's numbers."""

    def mean(runs: list[dict], *keys: str, form: str = ".3f", scale: float = 1) -> str:
        parts = []
        for key in keys:
            values = [scale * r[key] for r in runs]
            spread = f" ± {np.std(values, ddof=1):{form}}" if len(values) > 1 else ""
            parts.append(f"{np.mean(values):{form}}{spread}")
        return " / ".join(parts)

    percent: dict[str, Any] = dict(form=".1f", scale=100)
    rows, times, flat = [], [], {}
    for name, method, runs in groups(result):
        first = runs[0]
        kernel = method in METHODS
        rows.append(
            [
                f"{name} ({first['n']} rows, {first['searched']} in the search)",
                method,
                len(runs),
                first["hyperparameters"] if kernel else f"C = {', '.join(str(r['penalty']) for r in runs)}",
                mean(runs, "accuracy", **percent),
                mean(runs, "precision", **percent),
                mean(runs, "taxonomy_loss_least", "taxonomy_loss"),
                mean(runs, "parent_accuracy_least", "parent_accuracy", **percent),
                mean(runs, "criterion", form=".1f") if "criterion" in first else "",
            ]
        )
        if not kernel:
            continue
        cost = {key: np.median([r[key] for r in runs]) for key in ("product_seconds", "fit_seconds")}
        beside = flat.setdefault(name, cost) if method == "F1" else flat.get(name)
        ratios = [f"{cost[key] / beside[key]:.2f}" if beside not in (None, cost) else "" for key in cost]
        times.append(
            [
                name,
                method,
                f"{first['P']} / {first['C']}",
                first["functions"],
                f"{1e3 * cost['product_seconds']:.1f}",
                ratios[0],
                f"{cost['fit_seconds']:.2f}",
                ratios[1],
                f"{first['newton_steps']} / {first['cg_steps']}",
                f"{np.median([r['fold_seconds'] for r in runs]):.2f}" if "fold_seconds" in first else "",
                first.get("evaluations", ""),
            ]
        )
    header = ("set", "method", "splits", "variances", "accuracy, %", "precision, %")
    header += ("taxonomy loss, least / likeliest", "parent accuracy, %, least / likeliest", "Ψ")
    text = _report.markdown_table(header, rows)
    gaps = [r["gap"] for r in result["runs"] if "gap" in r]
    if gaps:
        text += f"\nThe largest relative duality gap of an SVM is {max(gaps):.1g}.\n"
    header = (
        "set",
        "method",
        "P / C",
        "P, only children merged",
        "product, processor ms",
        "over F1's",
        "fit, processor s",
    )
    header += ("over F1's", "Newton / CG steps", "CV fold, processor s", "evaluations of Ψ")
    text += "\n" + _report.markdown_table(header, times)
    text += "\nOne Newton step stands for none, where nonlinear conjugate gradients end by themselves.\n"
    ended = [
        f"{name} {method} {len(late)} of {len(runs)}"
        for name, method, runs in groups(result)
        if (late := [r for r in runs if r.get("status") == "MAX_STEPS"])
    ]
    if ended:
        text += (
            f"Fits that the paper's limits of {LIMITS['flat'][1][0]} Newton steps (flat) and "
            f"{LIMITS['tree'][1][0]} (tree) ended before they had converged: {', '.join(ended)}.\n"
        )
    return text + "\n" + beside_the_paper(result)


def beside_the_paper(result: dict) -> str:
    """Table 1 of the paper, its differences of H1 and F1 beside ours, and the ratios of Table 2."""
    text = "The paper's numbers, of the sections A to H of WIPO-alpha, which is not here:\n\n"
    header = ("section", *(f"{m}: accuracy, % / precision, % / taxonomy loss" for m in PAPER_METHODS))
    header += ("final fit, H1 over F1", "CV fold, H1 over F1")
    rows = []
    for section, line in PAPER.items():
        cells = [f"{line[i]} / {line[4 + i]} / {line[8 + i]}" for i in range(4)]
        fit_flat, fit_tree, fold_flat, fold_tree = PAPER_SECONDS[section]
        rows.append([section, *cells, f"{fit_tree / fit_flat:.2f}", f"{fold_tree / fold_flat:.2f}"])
    text += _report.markdown_table(header, rows) + "\nWhat the tree adds, H1 less F1:\n\n"
    rows = [
        ["paper, A to H", *(_range([line[i + 1] - line[i] for line in PAPER.values()]) for i in (0, 4, 8))]
    ]
    found = {(name, method): runs for name, method, runs in groups(result)}
    for name in dict.fromkeys(r["set"] for r in result["runs"]):
        pair = [found.get((name, method)) for method in ("F1", "H1")]
        if None not in pair:
            keys = {"accuracy": 100, "precision": 100, "taxonomy_loss_least": 1}
            values = [[np.mean([s * r[key] for r in runs or ()]) for runs in pair] for key, s in keys.items()]
            rows.append([name, *(f"{tree - one:+.2f}" for one, tree in values)])
    return text + _report.markdown_table(("", "accuracy, points", "precision, points", "taxonomy loss"), rows)


def _range(values: list[float]) -> str:
    return f"{min(values):+.2f} to {max(values):+.2f}"


def draw(result: dict, axes) -> None:
    """The reject curve of every method on the first set."""
    first = result["runs"][0]["set"]
    for name, method, runs in groups(result):
        if name == first:
            curve = np.mean([r["curve"] for r in runs], axis=0)
            axes.plot(1 - np.array(runs[0]["kept"]), curve, label=method)
    axes.set_xlabel(f"fraction rejected, {first}")
    axes.set_ylabel("errors over all test rows")
    axes.legend()


if __name__ == "__main__":
    _report.main("p003_tables_1_2", Options, __doc__, run, markdown, {"p003_tables_1_2": draw})
