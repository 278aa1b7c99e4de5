"""Expected calibration error of hinges before and after calibration, on test rows, with the memory of a fit.

    python -m experiments.calibration [--small|--full] [--out results]

Before stands for σ(z) of the scores, normalised over the classes where each row has one, or softmax(z) for
the SVMs over all classes at once; after for ``calibration="sigmoid"`` and "temperature". The error is
Σ_b n_b/n |mean of p − share of positives| over 20 bins of width 1/20 (Guo et al., 2017, eq. 3), of all pairs
of a row and a label, and of the best labels of each row by score: five where rows have many, else one.
Each case runs in a process of its own, whose peak resident memory is shown. Writes calibration.json, .md and,
where matplotlib is installed, .png with the reliability diagram of the best labels.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time

import numpy as np
import scipy.sparse as sp

from experiments import _data, _multiclass, _report

BINS = 20
# How many rows' scores are processed at a time.
ROWS = 1_000
#: Data and system of each case.
CASES = (
    ("stackexchange_tags", "OneVsAllClassifier"),
    ("letter", "OneVsAllClassifier"),
    ("letter", "MulticlassSVC"),
    ("letter", "TopKSVC"),
)


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized, small=dict(cases=("letter/OneVsAllClassifier",), rows=2_000)):
    """Calibration of hinges.

    Attributes:
        cases: DATA/ESTIMATOR, any of those of the module.
        cv: folds.
        rows: most training rows, drawn at random; 0 for all.
        n_jobs: threads.
        small: letter with the one-vs-all classifier, 2,000 rows.
        full: all rows of all cases, which is the default.
    """

    cases: tuple[str, ...] = tuple(f"{data}/{kind}" for data, kind in CASES)
    cv: int = 5
    rows: int = 0
    n_jobs: int = -1


class Bins:
    """Pairs binned by probability: per bin their number and the sums of probabilities and of positives."""

    def __init__(self):
        self.count, self.p, self.positive = np.zeros((3, BINS))

    def add(self, p: np.ndarray, positive: np.ndarray) -> None:
        """Takes some pairs."""
        p, positive = p.ravel(), positive.ravel()
        place = np.minimum((p * BINS).astype(int), BINS - 1)
        self.count += np.bincount(place, minlength=BINS)
        self.p += np.bincount(place, p, BINS)
        self.positive += np.bincount(place, positive, BINS)

    @property
    def error(self) -> float:
        """The expected calibration error."""
        return float(np.abs(self.p - self.positive).sum() / self.count.sum())

    def known(self) -> dict:
        """Of the non-empty bins: the number of pairs, their mean probability, their share of positives."""
        there = self.count > 0
        count = self.count[there]
        means = (self.p[there] / count).tolist(), (self.positive[there] / count).tolist()
        return {"count": count.astype(int).tolist(), "p": means[0], "share": means[1]}


def load(name: str) -> tuple:
    """(X, y, X_test, Y_test), y as an estimator takes it and Y_test a label matrix."""
    if name == "stackexchange_tags":
        split = _data.load_split(name)
        return split.X, sp.csr_matrix(split.Y), split.X_test, sp.csr_matrix(split.Y_test)
    X, y, X_test, y_test = _multiclass.load(name)
    Y_test = sp.csr_matrix((np.ones(len(y_test)), (np.arange(len(y_test)), y_test)))
    return X, y, X_test, Y_test


def measure(data: str, kind: str, cv: int, rows: int, n_jobs: int) -> dict:
    """One case, in this process."""
    import xmcjax
    from experiments.bench._worker import memory_mb
    from xmcjax._links import ONE_OF, SIGMOID, SOFTMAX, log_probabilities
    from xmcjax.metrics import precision_at_k

    X, y, X_test, Y_test = load(data)
    if rows and rows < X.shape[0]:
        some = np.random.default_rng(0).permutation(X.shape[0])[:rows]
        X, y = X[some], y[some]
    loaded = memory_mb()
    make = getattr(xmcjax, kind)
    begin = time.perf_counter()
    plain = make(n_jobs=n_jobs, random_state=0).fit(X, y)
    middle, plain_peak = time.perf_counter(), memory_mb()
    one_vs_all = kind == "OneVsAllClassifier"
    method = "sigmoid" if one_vs_all else "temperature"
    classifier = make(n_jobs=n_jobs, random_state=0, calibration=method, cv=cv).fit(X, y)
    end = time.perf_counter()
    peak = memory_mb()
    k, link = (5, SIGMOID) if sp.issparse(y) else (1, ONE_OF if one_vs_all else SOFTMAX)
    bins = {f"{which} {when}": Bins() for which in ("all", "best") for when in ("before", "after")}
    swapped, best = 0, []
    for first in range(0, X_test.shape[0], ROWS):
        part = slice(first, first + ROWS)
        truth = Y_test[part].toarray() != 0
        z = classifier.decision_function(X_test[part])
        p = {"before": np.exp(log_probabilities(link, z)), "after": classifier.predict_proba(X_test[part])}
        top = np.argsort(-z, axis=1, kind="stable")[:, :k]
        best.append(top)
        for when, values in p.items():
            bins[f"all {when}"].add(values, truth)
            bins[f"best {when}"].add(*(np.take_along_axis(a, top, axis=1) for a in (values, truth)))
        # per label, before the probabilities are normalised over the classes
        order = np.argsort(z, axis=0, kind="stable")
        scaled = np.take_along_axis(classifier.calibration_.apply(z), order, axis=0)
        swapped += int((np.diff(scaled, axis=0) < 0).sum())
    labels = np.concatenate(best)
    before = plain.predict_topk(X_test, k)[0]
    coef = (classifier.coef_ != plain.coef_).sum()
    return {
        "data": data,
        "estimator": kind,
        "rows": X.shape[0],
        "labels": Y_test.shape[1],
        "test_rows": X_test.shape[0],
        "best": k,
        "error": {name: found.error for name, found in bins.items()},
        "bins": {name: found.known() for name, found in bins.items()},
        "slopes_at_most_0": int((classifier.calibration_.slope <= 0).sum()),
        "swapped_pairs": swapped,
        "other_weights": int(coef),
        "other_predictions": int((classifier.predict_topk(X_test, k)[0] != before).sum()),
        "precision": 100 * float(precision_at_k(Y_test, labels, k)),
        "shared": int(classifier.calibration_.shared.sum()),
        "seconds": middle - begin,
        "calibrated_seconds": end - middle,
        "loaded_mb": loaded,
        "plain_peak_mb": plain_peak,
        "peak_mb": peak,
    }


def run(options: Options) -> dict:
    """All cases, each in a process of its own."""
    runs = []
    for case in options.cases:
        data, kind = case.split("/")
        given = json.dumps(
            dict(data=data, kind=kind, cv=options.cv, rows=options.rows, n_jobs=options.n_jobs)
        )
        command = [sys.executable, "-m", "experiments.calibration", "worker", given]
        done = subprocess.run(command, capture_output=True, text=True, cwd=_data.ROOT)
        if done.returncode:
            raise RuntimeError(f"{case} failed: {done.stderr.strip().splitlines()[-1:]}")
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    return {"cv": options.cv, "bins": BINS, "runs": runs}


def markdown(result: dict) -> str:
    """Errors before and after, seconds and memory."""

    def pair(run: dict, which: str) -> list[str]:
        before, after = (run["error"][f"{which} {when}"] for when in ("before", "after"))
        return [f"{before:.5f}", f"{after:.5f}", f"{before / after:.1f}" if after else "∞"]

    rows = [
        [
            run["data"],
            run["estimator"],
            *pair(run, "all"),
            run["best"],
            *pair(run, "best"),
            f"{run['seconds']:.1f}",
            f"{run['calibrated_seconds']:.1f}",
            f"{run['loaded_mb']:.0f}",
            f"{run['plain_peak_mb']:.0f}",
            f"{run['peak_mb']:.0f}",
            f"{run['shared']} of {run['labels']}",
            f"{run['swapped_pairs']} / {run['other_weights']} / {run['other_predictions']}",
        ]
        for run in result["runs"]
    ]
    header = (
        "set",
        "estimator",
        "all pairs: before",
        "after",
        "ratio",
        "k",
        "k best: before",
        "after",
        "ratio",
    )
    header += (
        "s, fit",
        "s, calibrated",
        "MB, data",
        "MB, peak of fit",
        "MB, peak",
        "labels that share a fit",
    )
    header += ("pairs in another order / other weights / other predictions",)
    return _report.markdown_table(header, rows)


def draw(result: dict, axes) -> None:
    """The reliability diagram of the best labels: dashed before, solid after."""
    axes.plot([0, 1], [0, 1], color="grey", linewidth=1)
    for place, run in enumerate(result["runs"]):
        name = f"{run['data']}, {run['estimator']}"
        for when, style in (("before", ":"), ("after", "-")):
            found = run["bins"][f"best {when}"]
            kept = np.array(found["count"]) >= 20
            p, share = np.array(found["p"])[kept], np.array(found["share"])[kept]
            axes.plot(p, share, f"o{style}", color=f"C{place}", markersize=3, label=f"{name}, {when}")
    axes.set_xlabel("probability, mean of a bin")
    axes.set_ylabel("share of pairs that are true")
    axes.legend(fontsize="small")


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        print(json.dumps(measure(**json.loads(sys.argv[2]))))
    else:
        _report.main("calibration", Options, __doc__, run, markdown, {"calibration": draw})
