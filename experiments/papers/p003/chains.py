"""Section 7.1 of Seeger, 2006: a kernel conditional random field, on the digits of naics2017's codes.

    python -m experiments.papers.p003.chains [--small|--full] [--out results]

The paper announces the model and has no experiment. A public set of label sequences whose licence allows it
is not here; the path of a code down its tree stands in: the six digits of a code are the labels of a
sequence, and position t has the words of the text as features of its own, so that each position has its own
linear function of the words. The same fit without scores of transitions, "single points", says what these
are worth. Rows are drawn at random. Both methods take v, σ² and τ² as they are.

Runs are kept in p003_chains.cells.json. Writes p003_chains.json and .md.
"""

from __future__ import annotations

import dataclasses
import functools
import time
import warnings

import numpy as np
import scipy.sparse as sp

from experiments import _data, _report
from experiments._cells import Cells
from xmcjax.data import fit_transforms, load_svmlight

# The variance of the scores of transitions by method: nearly 0, or the default of the estimator.
METHODS = {"single points": 1e-6, "chain": 1.0}


@dataclasses.dataclass(frozen=True)
class Options(
    _report.Sized,
    small=dict(rows=60, test_rows=200, max_iter=5),
    full=dict(rows=4_000, test_rows=100_000, splits=(0, 1, 2)),
):
    """A kernel conditional random field.

    Attributes:
        methods: any of "single points", "chain".
        splits: numbers of the draws of the training rows.
        rows: most training rows, drawn at random; each is a sequence of six.
        test_rows: most test rows.
        v: variance of the functions.
        tol: of the fits.
        max_iter: most iterations of the search for the transitions.
        small: 60 rows.
        full: 4,000 rows, three draws.
    """

    methods: tuple[str, ...] = tuple(METHODS)
    splits: tuple[int, ...] = (0,)
    rows: int = 500
    test_rows: int = 2_000
    v: float = 20.0
    tol: float = 1e-3
    max_iter: int = 30


@functools.cache
def load():
    """(X, digits, X_test, digits_test): unit tf-idf rows, float32, and six digits of each row."""
    folder = _data.folder() / "naics2017"
    codes = np.array([list(map(int, code)) for code in (folder / "classes.txt").read_text().split()])
    X, y = load_svmlight(folder / "train.libsvm.xz")
    X_test, y_test = load_svmlight(folder / "test.libsvm.xz", n_features=X.shape[1])
    fitted = fit_transforms("log,idf,unit", X)
    return fitted.apply(X), codes[y.astype(int) - 1], fitted.apply(X_test), codes[y_test.astype(int) - 1]


def sequences(X, length: int) -> list[sp.csr_array]:
    """For each row a sequence of `length` positions with columns of their own, [length, length · d]."""
    X = sp.csr_array(X)
    rows = np.repeat(np.arange(X.shape[0]), length)
    there = X[rows]
    position = np.repeat(np.tile(np.arange(length), X.shape[0]), np.diff(there.indptr))
    shape = (there.shape[0], length * X.shape[1])
    wide = sp.csr_array((there.data, there.indices + position * X.shape[1], there.indptr), shape=shape)
    return [wide[length * i : length * (i + 1)] for i in range(X.shape[0])]


def one(method: str, split: int, options: Options) -> dict:
    """A fit, and its scores on the test rows."""
    from sklearn.exceptions import ConvergenceWarning

    from xmcjax import KernelChainClassifier

    X, digits, X_test, digits_test = load()
    rng = np.random.default_rng(split)
    rows, test = (
        rng.permutation(len(y))[:most]
        for y, most in ((digits, options.rows), (digits_test, options.test_rows))
    )
    X, digits, X_test, digits_test = X[rows], digits[rows], X_test[test], digits_test[test]
    words = np.unique(X.indices)  # words that no training row has do not count in a linear kernel
    length = digits.shape[1]
    model = KernelChainClassifier(
        "linear",
        v=options.v,
        transition_variance=METHODS[method],
        tol=options.tol,
        max_iter=options.max_iter,
    )
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the status is in the result
        model.fit(sequences(X[:, words], length), list(digits))
    seconds = time.perf_counter() - begin
    new = sequences(X_test[:, words], length)
    predicted, marginals = np.array(model.predict(new)), np.array(model.predict_marginals(new))
    right = predicted == digits_test
    places = np.searchsorted(model.classes_, digits_test)
    likelihood = np.take_along_axis(marginals, places[..., None], axis=2)
    codes = {tuple(code) for code in digits}
    return {
        "n": len(digits),
        "test": len(digits_test),
        "digits": float(right.mean()),
        "codes": float(right.all(axis=1).mean()),
        "by_position": right.mean(axis=0).tolist(),
        "prefixes": np.cumprod(right, axis=1).mean(axis=0).tolist(),
        "by_marginals": float((model.classes_[marginals.argmax(axis=2)] == digits_test).mean()),
        "log_loss": float(-np.log(np.maximum(likelihood, 1e-300)).mean()),
        "known": float(np.mean([tuple(code) in codes for code in predicted])),
        "objective": model.objective_,
        "iterations": model.n_iter_,
        "status": model.status_.name,
        "fit_seconds": seconds,
    }


def run(options: Options) -> dict:
    """All runs, those that are stored taken from their cells."""
    cells = Cells(options, "p003_chains", listed=("methods", "splits"))
    runs = []
    for split in options.splits:
        for method in options.methods:
            asked = dict(method=method, split=split)
            runs.append(asked | cells.get(functools.partial(one, method, split, options), **asked))
    return {"made": cells.made(), "v": options.v, "runs": runs}


def markdown(result: dict) -> str:
    """A row for each method, with the mean over the draws."""
    rows = []
    for method in METHODS:
        runs = [r for r in result["runs"] if r["method"] == method]
        if not runs:
            continue

        def mean(key: str, form: str = ".1f", scale: float = 100, runs=runs) -> str:
            values = [scale * r[key] for r in runs]
            spread = f" ± {np.std(values, ddof=1):{form}}" if len(values) > 1 else ""
            return f"{np.mean(values):{form}}{spread}"

        prefixes = 100 * np.mean([r["prefixes"] for r in runs], axis=0)
        rows.append(
            [
                f"{method} ({runs[0]['n']} sequences)",
                len(runs),
                mean("digits"),
                mean("by_marginals"),
                mean("codes"),
                ", ".join(f"{value:.1f}" for value in prefixes),
                mean("log_loss", ".3f", 1),
                mean("known"),
                f"{np.median([r['fit_seconds'] for r in runs]):.1f}",
                ", ".join(sorted({r["status"] for r in runs})),
            ]
        )
    header = (
        "method",
        "draws",
        "digits right, %",
        "by marginals",
        "whole codes, %",
        "first 1 to 6 digits, %",
    )
    header += (
        "−log marginal per digit",
        "predicted codes that a training row has, %",
        "fit, s; the first compiles",
        "status",
    )
    return _report.markdown_table(header, rows)


if __name__ == "__main__":
    _report.main("p003_chains", Options, __doc__, run, markdown)
