"""Section 8.2 of Seeger, 2006: flat and hierarchical kernel multinomial regression with learnt variances.

    python -m experiments.kernel_hierarchy [--small|--full] [--out results]

Linear kernels on clef, naics2017 and clinc150, which stand in for WIPO-alpha. F1 and F2 are flat, H1 and
H2 hierarchical; F1 has one variance for all classes, H1 one for each level, F2 and H2 one for each subtree
of the root's children. The limits k₁, k₂, k₃ of Newton and CG steps and the start v = 5 are the paper's.
Predictions are the likeliest class, or that of the least expected loss ("least" in the table).

Runs are kept in kernel_hierarchy.cells.json. Writes kernel_hierarchy.json and .md.
"""

from __future__ import annotations

import dataclasses
import functools
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from experiments import _data, _report
from experiments._cells import Cells
from xmcjax._hierarchy import Hierarchy
from xmcjax.data import fit_transforms, load_svmlight
from xmcjax.metrics import mean_reciprocal_rank, parent_accuracy, taxonomy_loss

METHODS = {
    "F1": ("flat", "one"),
    "H1": ("tree", "level"),
    "F2": ("flat", "subtree"),
    "H2": ("tree", "subtree"),
}
SETS = ("clef", "clinc150", "naics2017")
# k₁, k₂, k₃ of the search, and k₁, k₂ of the last fit
LIMITS = {"flat": ((8, 4, 15), (25, 12)), "tree": ((10, 4, 25), (30, 17))}


@dataclasses.dataclass(frozen=True)
class Options:
    """Flat and hierarchical kernel multinomial regression.

    Attributes:
        sets: any of clef, clinc150, naics2017.
        methods: any of F1, H1, F2, H2.
        rows: most training rows of the last fit, drawn at random.
        search_rows: most of them that the search uses.
        test_rows: most test rows.
        folds: of the criterion.
        max_iter: most iterations of a search.
        sigma2: of the intercepts.
        out: folder of the results.
        small: 300 rows of clef, two iterations.
        full: all rows in the last fit, 10,000 of them in the search.
    """

    sets: tuple[str, ...] = SETS
    methods: tuple[str, ...] = tuple(METHODS)
    rows: int = 2_000
    search_rows: int = 2_000
    test_rows: int = 100_000
    folds: int = 5
    max_iter: int = 15
    sigma2: float = 1.0
    out: Path = Path("results")
    small: bool = False
    full: bool = False

    def chosen(self) -> Options:
        """With the sizes that --small or --full stand for."""
        if self.full:
            return dataclasses.replace(self, rows=1_000_000, search_rows=10_000)
        if self.small:
            return dataclasses.replace(self, sets=("clef",), rows=300, test_rows=300, max_iter=2)
        return self


@functools.cache
def load(name: str):
    """(X, y, X_test, y_test, edges): float32, text as unit tf-idf rows, clef standardised."""
    folder = _data.folder() / name
    X, y = load_svmlight(folder / "train.libsvm.xz")
    X_test, y_test = load_svmlight(folder / "test.libsvm.xz", n_features=X.shape[1])
    y, y_test = y.astype(int), y_test.astype(int)
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


def one(name: str, method: str, cells: Cells, options: Options) -> dict:
    """A search, taken from its cell if it is there, the fit at its end, its scores, and times."""
    import jax
    import jax.numpy as jnp

    from xmcjax import KernelLogisticClassifier, kernels
    from xmcjax.estimators._kernel_parts import least_expected_loss
    from xmcjax.solvers.kernel_multinomial import CvObjective, HParams, KernelModel, Softmax, tune

    X, y, X_test, y_test, edges = load(name)
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(X.shape[0])[: options.rows])
    test = np.sort(rng.permutation(X_test.shape[0])[: options.test_rows])
    X, y, X_test, y_test = X[rows], y[rows], X_test[test], y_test[test]
    if sp.issparse(X):  # words that no training row has do not count in a linear kernel
        words = np.unique(X.indices)
        X, X_test = X[:, words], X_test[:, words]
    some = np.sort(rng.permutation(len(rows))[: options.search_rows])
    tree = Hierarchy.from_edges(edges)
    C, (shape, shared) = tree.n_classes, METHODS[method]
    functions = np.arange(tree.n_nodes) if shape == "tree" else tree.leaves
    group = {"one": np.zeros(tree.n_nodes, int), "level": tree.depth - 1, "subtree": tree.above(1)}[shared]
    group = np.unique(group[functions], return_inverse=True)[1]
    search, last = LIMITS[shape]

    family = functools.partial(
        KernelModel, n_classes=C, groups=group, hierarchy=tree if shape == "tree" else None
    )
    model = family(kernels.points(X[some]))
    at = model.hyperparameters(5.0, kernels.Linear(), options.sigma2)
    numbers = tree.places(y, leaves_only=True)

    def searched() -> dict:
        target = Softmax(jnp.asarray((numbers[some, None] == np.arange(C))[..., None], jnp.float32))
        hp = HParams(tolerance=1e-4, max_steps=search[0], max_cg=search[1], max_cg_gradient=search[2])
        folds = rng.permutation(len(some)) % options.folds
        objective = CvObjective(model, target, folds, at, free=("v",), hp=hp)
        times = []  # from the first evaluation on, which compiles
        h, found = tune(
            objective,
            max_iter=options.max_iter,
            progress=True,
            watch=lambda iterate: times.append(time.perf_counter()),
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

    found = cells.get(searched, ("test_rows",), set=name, method=method, what="search")
    h = at._replace(v=np.array(found["v"]))

    # one product of all classes
    kernel, S = family(kernels.points(X)).kernels(h), jnp.ones((len(rows), C, 1), jnp.float32)
    product = jax.jit(lambda kernel, S: kernel.matmat(S))
    times = []
    for _ in range(21):
        start = time.perf_counter()
        jax.block_until_ready(product(kernel, S))
        times.append(time.perf_counter() - start)

    v = h.v[group]
    fixed = dict(sigma2=options.sigma2, tol=1e-4, max_iter=last[0], max_cg=last[1])
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
            start = time.perf_counter()
            classifier.fit(X, y)
            fits.append(time.perf_counter() - start)
            if fits[0] > 30:  # beside which compilation is nothing
                break
    proba = np.zeros((X_test.shape[0], C))
    proba[:, tree.places(classifier.classes_, leaves_only=True)] = classifier.predict_proba(X_test)
    leaves = tree.nodes[tree.leaves]
    by_rule = {
        rule: leaves[least_expected_loss(proba, rule, tree)] for rule in ("zero_one", "taxonomy", "parent")
    }
    likeliest = by_rule["zero_one"]
    return {
        **found,
        "n": len(rows),
        "searched": len(some),
        "C": C,
        "P": len(functions),
        "functions": int(kernel.n_functions),
        "hyperparameters": int(group.max()) + 1,
        "accuracy": float(np.mean(likeliest == y_test)),
        "precision": mean_reciprocal_rank(tree.places(y_test, leaves_only=True), proba),
        "taxonomy_loss": taxonomy_loss(y_test, likeliest, edges),
        "taxonomy_loss_least": taxonomy_loss(y_test, by_rule["taxonomy"], edges),
        "parent_accuracy": parent_accuracy(y_test, likeliest, edges),
        "parent_accuracy_least": parent_accuracy(y_test, by_rule["parent"], edges),
        "fit_seconds": fits[-1],
        "newton_steps": classifier.n_iter_,
        "cg_steps": classifier.n_cg_,
        "status": classifier.status_.name,
        "product_seconds": float(np.median(times[1:])),
    }


def run(options: Options) -> dict:
    """All runs, those that are stored taken from their cells."""
    cells = Cells(options, "kernel_hierarchy", listed=("sets", "methods"))
    runs = []
    for name in options.sets:
        for method in options.methods:
            work = functools.partial(one, name, method, cells, options)
            found = cells.get(work, set=name, method=method, what="fit")
            runs.append({"set": name, "method": method, **found})
    return {"made": cells.made(), "folds": options.folds, "runs": runs}


def markdown(result: dict) -> str:
    """Tables 1 and 2."""
    rows = [
        [
            f"{r['set']} ({r['n']} rows, {r['searched']} in the search)",
            r["method"],
            r["hyperparameters"],
            f"{100 * r['accuracy']:.1f}",
            f"{100 * r['precision']:.1f}",
            f"{r['taxonomy_loss_least']:.3f} / {r['taxonomy_loss']:.3f}",
            f"{100 * r['parent_accuracy_least']:.1f} / {100 * r['parent_accuracy']:.1f}",
            f"{r['criterion']:.1f}",
        ]
        for r in result["runs"]
    ]
    header = ("set", "method", "variances", "accuracy, %", "precision, %", "taxonomy loss, least / likeliest")
    header += ("parent accuracy, %, least / likeliest", "Ψ")
    text = _report.markdown_table(header, rows) + "\n"
    flat = {r["set"]: r for r in result["runs"] if r["method"] == "F1"}
    rows = []
    for r in result["runs"]:
        beside = flat.get(r["set"])
        ratios = ["", ""]
        if beside and r is not beside:
            ratios = [f"{r[key] / beside[key]:.2f}" for key in ("product_seconds", "fit_seconds")]
        rows.append(
            [
                r["set"],
                r["method"],
                f"{r['P']} / {r['C']}",
                r["functions"],
                f"{1e3 * r['product_seconds']:.1f}",
                ratios[0],
                f"{r['fit_seconds']:.2f}",
                ratios[1],
                f"{r['newton_steps']} / {r['cg_steps']}",
                f"{r['fold_seconds']:.2f}",
                r["evaluations"],
            ]
        )
    header = ("set", "method", "P / C", "P, only children merged", "product, ms", "over F1's", "fit, s")
    header += ("over F1's", "Newton / CG steps", "CV fold, s", "evaluations of Ψ")
    return text + _report.markdown_table(header, rows)


def main() -> None:
    """Reads the options, runs, writes the results."""
    _report.main("kernel_hierarchy", Options, __doc__, run, markdown)


if __name__ == "__main__":
    main()
