"""Top-1 to top-10 accuracy over ten splits: what stands in for table 2 of Lapin, Hein and Schiele, 2015.

    python -m experiments.papers.p004.table_2 [--small|--full] [--sets ...] [--splits ...] [--out results]

SUN 397, Places 205 and ImageNet are not here, nor the features of networks that the paper has of them. Two
public sets of images with more than 10,000 of them stand in: letter, 20,000 letters of 26 classes with 16
numbers each, of which 15,000 are for training, and clef, 11,006 X-ray images of 63 classes with 80 numbers
each, of which 10,000 are. A split draws the training images at random; C is that of the grid, or of the
grid extended, with the best accuracy on a fifth of them when trained on the others, one for each of top-1 to
top-10, and is then trained on all. Features have mean 0 and a variance of one together; a further one is 1.

Splits are kept in p004_table_2.cells.json. Writes p004_table_2.json and .md.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from experiments import _data, _report
from experiments._cells import Cells
from experiments.papers.p004.baselines import BASELINES, TOL
from experiments.papers.p004.published import RANKS, TABLE_2
from experiments.papers.p004.table_1 import TOPS, accuracies, best, outside, title

NAME = "p004_table_2"
VALIDATION = 5  # one in this many training rows is for validation


@dataclasses.dataclass(frozen=True)
class Options(
    _report.Sized,
    small=dict(sets=("digits",), splits=(0, 1), ks=(1, 3), extensions=0),
    full=dict(ks=(1, 2, 3, 4, 5, 10, 20)),
):
    """Top-1 to top-10 accuracy over ten splits.

    Attributes:
        sets: any of letter, clef, digits.
        splits: numbers of the splits.
        ks: of the top-k SVMs.
        baselines: of .baselines.BASELINES.
        grid: of C, ascending.
        extensions: most steps by which a grid is extended at each end.
        max_epochs: of a top-k SVM.
        small: the digits of scikit-learn, two splits, k = 1 and 3.
        full: k = 1, 2, 3, 4, 5, 10, 20 as in the paper. Its TopPush of one class against the others, which
            takes a quarter of an hour per split, is made where `baselines` names it.
    """

    sets: tuple[str, ...] = ("letter", "clef")
    splits: tuple[int, ...] = tuple(range(10))
    ks: tuple[int, ...] = (1, 5, 10)
    baselines: tuple[str, ...] = ("SVM OVA",)
    grid: tuple[float, ...] = (0.1, 1.0, 10.0)
    extensions: int = 2
    max_epochs: int = 300


class Part(NamedTuple):
    """Features with the constant one, and classes 0 … m−1."""

    X: np.ndarray
    y: np.ndarray


@functools.cache
def images(name: str) -> tuple[np.ndarray, np.ndarray, int]:
    """(X, y, training rows of a split), all images of a set."""
    if name == "digits":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        return X, y, 1_200
    X, y, X_test, y_test = _data.fetch(name)[:4]
    X, y = sp.vstack([X, X_test]).toarray(), np.concatenate([y, y_test])
    return X, np.unique(y, return_inverse=True)[1], len(X) - len(y_test)


def parts(name: str, split: int) -> tuple[Part, Part]:
    """Training and test images of a split."""
    X, y, count = images(name)
    order = np.random.default_rng(split).permutation(len(y))
    train, test = order[:count], order[count:]
    mean, scale = X[train].mean(axis=0), np.sqrt(X[train].var(axis=0).sum())
    scaled = np.hstack([(X - mean) / scale, np.ones((len(X), 1))]).astype(np.float32)
    return Part(scaled[train], y[train]), Part(scaled[test], y[test])


# A function of features, classes, C and the start that the fit of another C left, which gives the function of
# scores, the gap, and the start that it leaves.
Fit = Callable[[np.ndarray, np.ndarray, float, object], tuple[Callable, float, object]]


def top_k(k: int, variant: str, max_epochs: int) -> Fit:
    """A top-k SVM."""

    def fit(X, y, C, start):
        from xmcjax.solvers import topk_sdca

        found = topk_sdca.solve(
            X, y, k, C, variant=variant, tol=TOL, max_epochs=max_epochs, start=start and start[0]
        )
        return lambda Z: Z @ found.W, found.gap, (found.alpha,)

    return fit


def baseline(name: str) -> Fit:
    """One of BASELINES."""

    def fit(X, y, C, start):
        found = BASELINES[name].fit(X, y, C, start)
        return found.scores, found.gap, found.start

    return fit


def one(name: str, split: int, fit: Fit, options: Options) -> dict:
    """C for each of top-1 to top-10, and the accuracies on the test images."""
    train, test = parts(name, split)
    valid = np.arange(len(train.y)) % VALIDATION == 0
    begin, records, start, wanted = time.process_time(), {}, None, list(options.grid)
    while wanted:
        for C in wanted:
            scores, gap, start = fit(train.X[~valid], train.y[~valid], C, start)
            accuracy = accuracies(scores(train.X[valid]), train.y[valid])
            records[C] = {"valid": accuracy, "gap": gap, "epochs": 0}
        start, wanted = None, outside(records, options.grid, options.extensions)
    Cs, by_C = best(records), {}
    for C in sorted(set(Cs)):
        scores, gap, start = fit(train.X, train.y, C, start)
        by_C[C] = accuracies(scores(test.X), test.y), gap
    return {
        "rows": len(train.y),
        "test_rows": len(test.y),
        "classes": int(train.y.max()) + 1,
        "C": Cs,
        "test": [by_C[C][0][place] for place, C in enumerate(Cs)],
        "gap": max(gap for _, gap in by_C.values()),
        "seconds": time.process_time() - begin,
    }


def methods(options: Options) -> dict[str, Fit]:
    """The fits by the title of a row."""
    found = {name: baseline(name) for name in options.baselines}
    for variant in ("alpha", "beta"):
        for k in options.ks:
            if variant == "alpha" or k > 1:  # both variants are the same for k = 1
                found[title(variant, k)] = top_k(k, variant, options.max_epochs)
    return found


def run(options: Options) -> dict:
    """All splits, those that are stored taken from their cells."""
    cells = Cells(options, NAME, listed=("sets", "splits", "ks", "baselines"))
    runs = []
    for name in options.sets:
        for split in options.splits:
            for method, fit in methods(options).items():
                asked = dict(set=name, split=split, method=method)
                work = functools.partial(one, name, split, fit, options)
                runs.append(asked | cells.get(work, **asked))
    return {"made": cells.made(), "runs": runs}


def markdown(result: dict) -> str:
    """A table for each set, mean ± standard deviation over the splits, and the paper's of SUN 397."""
    text = ""
    for name in dict.fromkeys(one["set"] for one in result["runs"]):
        of_set = [one for one in result["runs"] if one["set"] == name]
        first, count = of_set[0], len({one["split"] for one in of_set})
        rows = []
        for method in dict.fromkeys(one["method"] for one in of_set):
            runs = [one for one in of_set if one["method"] == method]
            test = np.array([one["test"] for one in runs])
            shown = [f"{m:.2f}" for m in test.mean(axis=0)]
            if len(runs) > 1:
                shown = [f"{m} ± {s:.2f}" for m, s in zip(shown, test.std(axis=0, ddof=1), strict=True)]
            values = [one["C"][0] for one in runs] + [one["C"][4] for one in runs]
            choice = f"{min(values):g} to {max(values):g}"
            by_top = dict(zip(TOPS, shown, strict=False))
            title_of = method if len(runs) == count else f"{method}, {len(runs)} of the splits"
            rows.append([title_of, *(by_top.get(top, "–") for top in RANKS), choice])
            rows[-1].append(f"{max(one['gap'] for one in runs):.0e}")
        header = ("method", *(f"top-{top}" for top in RANKS), "C for top-1 and top-5", "largest gap")
        text += (
            f"{name}, {count} splits of {first['rows']:,} and {first['test_rows']:,} images, "
            f"{first['classes']} classes:\n\n{_report.markdown_table(header, rows)}\n"
        )
        text += markdown_gains(of_set)
    rows = [
        [method, *(f"{mean:.2f} ± {spread:.1f}" for mean, spread in cells)]
        for method, cells in TABLE_2.items()
    ]
    header = ("method", *(f"top-{top}" for top in RANKS))
    return text + "The paper's, on SUN 397, which is not here:\n\n" + _report.markdown_table(header, rows)


def markdown_gains(runs: list[dict]) -> str:
    """What k = 5 and k = 10 gain over k = 1 in the same splits, as the text of the paper states it."""

    def of(method: str) -> np.ndarray:
        return np.array([one["test"] for one in runs if one["method"] == method])

    one, lines = of(title("alpha", 1)), []
    for variant in ("alpha", "beta"):
        for k in (5, 10):
            if len(of(title(variant, k))) and len(one):
                change = of(title(variant, k)) - one
                mean, error = change.mean(axis=0), change.std(axis=0, ddof=1) / np.sqrt(len(change))
                of_paper = TABLE_2[title(variant, k)]
                paper = [a[0] - b[0] for a, b in zip(of_paper, TABLE_2[title("alpha", 1)], strict=True)]
                said = ", ".join(
                    f"{mean[top - 1]:+.2f} ± {error[top - 1]:.2f} in top-{top} accuracy (paper, SUN 397: "
                    f"{paper[RANKS.index(top)]:+.1f})"
                    for top in (1, 5, 10)
                )
                lines.append(f"- {title(variant, k)} over {title('alpha', 1)}: {said}\n")
    return "".join(lines) + "\n" if lines else ""


if __name__ == "__main__":
    _report.main(NAME, Options, __doc__, run, markdown)
