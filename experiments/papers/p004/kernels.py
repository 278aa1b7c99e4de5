"""The top-k SVM with a kernel: section 3 of Lapin, Hein and Schiele, 2015, which has no experiment of it.

    python -m experiments.papers.p004.kernels [--small|--full] [--sets ...] [--out results]

The paper says that its Algorithm 1 "can also be easily kernelized". TopKSVC is given inner products: of
the features themselves, and of k(x, x') = exp(−‖x − x'‖² / (2 σ²)), with σ² a multiple of the mean
‖x − x'‖². Width and C are those with the best accuracy on the validation images, for each of top-1 to
top-10, after training on the training images; the test images are then predicted. As a check "features"
is the same SVM trained on the features: inner products of the features have to end at the same objective.

Fits are kept in p004_kernels.cells.json. Writes p004_kernels.json and .md.
"""

from __future__ import annotations

import dataclasses
import functools
import time
import warnings

import numpy as np

from experiments import _data, _report
from experiments._cells import Cells
from experiments.papers.p004.table_1 import TOPS, accuracies

NAME = "p004_kernels"
FEATURES, LINEAR, GAUSS = "features", "inner products", "Gauss"


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized):
    """The top-k SVM with a kernel.

    Attributes:
        sets: of experiments._data.CLASS_SETS.
        ks: of the top-k SVM, alpha.
        widths: σ² over the mean squared distance.
        Cs: of the Gauss kernel.
        linear_Cs: of the features and of their inner products.
        tol: relative duality gap.
        max_epochs: of a fit.
        small: the digits of scikit-learn, one width, one C.
        full: k = 1 to 5, 10 and 20, six widths and five C.
    """

    sets: tuple[str, ...] = ("caltech101_silhouettes_by_class",)
    ks: tuple[int, ...] = (1, 5, 10)
    widths: tuple[float, ...] = (0.125, 0.25, 0.5)
    Cs: tuple[float, ...] = (0.3, 1.0, 3.0, 10.0)
    linear_Cs: tuple[float, ...] = (0.003, 0.01, 0.03)
    tol: float = 1e-3
    max_epochs: int = 300

    def chosen(self) -> Options:
        """With the sizes that --small or --full stand for."""
        if self.full:
            widths, Cs = (0.03125, 0.0625, 0.125, 0.25, 0.5, 1.0), (0.1, 0.3, 1.0, 3.0, 10.0)
            return dataclasses.replace(self, ks=(1, 2, 3, 4, 5, 10, 20), widths=widths, Cs=Cs)
        if self.small:
            small = dict(sets=("digits",), ks=(1, 3), widths=(0.25,), Cs=(1.0,), linear_Cs=(1.0,))
            return dataclasses.replace(self, **small)
        return self


@functools.lru_cache(maxsize=1)
def products(name: str, width: float) -> tuple[np.ndarray, ...]:
    """Inner products of training, validation and test rows with the training rows; width 0 is linear."""
    data = _data.load_classes(name)
    X = np.asarray(data.X, np.float64)
    norms, mean = np.square(X).sum(axis=1), X.mean(axis=0)
    spread = 2 * (norms.mean() - mean @ mean)  # the mean of ‖x − x'‖²
    found = []
    for Z in (data.X, data.X_valid, data.X_test):
        K = np.asarray(Z, np.float64) @ X.T
        if width:
            distances = np.square(np.asarray(Z, np.float64)).sum(axis=1)[:, None] + norms - 2 * K
            K = np.exp(-np.maximum(distances, 0) / (2 * width * spread))
        found.append(K.astype(np.float32))
    return tuple(found)


def one(name: str, kernel: str, width: float, k: int, C: float, options: Options) -> dict:
    """A fit: objective, gap, and the accuracies on validation and test images."""
    from sklearn.exceptions import ConvergenceWarning

    from xmcjax import TopKSVC

    data = _data.load_classes(name)
    given = (data.X, data.X_valid, data.X_test) if kernel == FEATURES else products(name, width)
    model = TopKSVC(
        k=k,
        C=C,
        kernel="linear" if kernel == FEATURES else "precomputed",
        tol=options.tol,
        max_iter=options.max_epochs,
        random_state=0,
    )
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the gap is in the result
        model.fit(given[0], data.y)
    seconds = time.process_time() - begin
    valid, test = (model.decision_function(X) for X in given[1:])
    return {
        "objective": model.objective_,
        "gap": model.dual_gap_,
        "epochs": model.n_iter_,
        "seconds": seconds,
        "valid": accuracies(valid, data.y_valid),
        "test": accuracies(test, data.y_test),
    }


def run(options: Options) -> dict:
    """All fits, those that are stored taken from their cells."""
    cells = Cells(options, NAME, listed=("sets", "ks", "widths", "Cs", "linear_Cs"))
    runs = []
    for name in options.sets:
        choices = [(kernel, 0.0, C) for kernel in (FEATURES, LINEAR) for C in options.linear_Cs]
        choices += [(GAUSS, width, C) for width in options.widths for C in options.Cs]
        for kernel, width, C in choices:
            for k in options.ks:
                asked = dict(set=name, kernel=kernel, width=width, k=k, C=C)
                work = functools.partial(one, name, kernel, width, k, C, options)
                runs.append(asked | cells.get(work, **asked))
    return {"made": cells.made(), "tol": options.tol, "runs": runs}


def markdown(result: dict) -> str:
    """The best of the validation images for each kernel and k, and the check of the two linear ones."""
    text = ""
    for name in dict.fromkeys(one["set"] for one in result["runs"]):
        rows, apart = [], []
        for kernel in (FEATURES, LINEAR, GAUSS):
            for k in dict.fromkeys(one["k"] for one in result["runs"]):
                fits = [r for r in result["runs"] if (r["set"], r["kernel"], r["k"]) == (name, kernel, k)]
                best = [max(fits, key=lambda r, top=top: r["valid"][top - 1]) for top in TOPS]
                shown = [f"{fit['test'][top - 1]:.2f}" for top, fit in zip(TOPS, best, strict=True)]
                at = ", ".join(
                    f"C {fit['C']:g}" + (f" σ² {fit['width']:g}" if kernel == GAUSS else "")
                    for fit in (best[0], best[4])
                )
                seconds = np.median([fit["seconds"] for fit in fits])
                gap = max(fit["gap"] for fit in best)
                rows.append([kernel, k, *shown[:5], shown[9], at, f"{gap:.0e}", f"{seconds:.1f}"])
                if kernel == LINEAR:
                    apart += [markdown_apart(result["runs"], fit) for fit in fits]
        header = ("inner products", "k", *(f"top-{top}" for top in (*range(1, 6), 10)))
        header += ("chosen for top-1, top-5", "largest gap", "processor s of a fit")
        text += f"{name}:\n\n" + _report.markdown_table(header, rows)
        text += (
            "\nObjectives of the fits to features and to their inner products are at most "
            f"{max(apart):.1g} apart, relatively; both may be {result['tol']:g} above the minimum.\n"
        )
    return text


def markdown_apart(runs: list[dict], fit: dict) -> float:
    """The difference between the objectives of a fit to inner products and of the fit to the features."""
    same = ("set", "k", "C")
    other = next(r for r in runs if r["kernel"] == FEATURES and all(r[key] == fit[key] for key in same))
    return abs(fit["objective"] / other["objective"] - 1)


if __name__ == "__main__":
    _report.main(NAME, Options, __doc__, run, markdown)
