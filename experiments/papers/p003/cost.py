"""Processor time of a fit of kernel multinomial regression against n, C and P, and beside Gaussian processes.

    python -m experiments.papers.p003.cost [--small|--full] [--out results]

n: rows of satimage, six classes with one RBF kernel, beside scikit-learn's GaussianProcessClassifier, one
against the rest, with the same kernel and the same fixed hyperparameters. C: classes of normally
distributed points. P: nodes of trees of 64 such classes. Blocked: rows whose kernel matrix is never made.
Times are processor times, of all threads together, and of fits after a first one that compiles, medians of
the repetitions; the first is shown beside. Other work on the machine changes them less than times of a clock.
Writes p003_cost.json and .md.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

from experiments import _data, _report
from xmcjax.data import load_svmlight

BLOCKED = """
import json, re, sys, time
import numpy as np
from xmcjax import KernelLogisticClassifier
n, steps = int(sys.argv[1]), int(sys.argv[2])
rng = np.random.default_rng(0)
y = rng.integers(0, 4, n)
X = (rng.standard_normal((n, 8)) + 2 * rng.standard_normal((4, 8))[y]).astype(np.float32)
import warnings
warnings.simplefilter("ignore")
begin = time.process_time()
model = KernelLogisticClassifier(v=10.0, memory=2**29, max_iter=steps, max_cg=4, tol=1e-3).fit(X, y)
seconds = time.process_time() - begin
peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 2**20
accuracy = float(np.mean(model.predict(X[:1000]) == y[:1000]))
print(json.dumps(dict(seconds=seconds, peak_gib=peak, newton_steps=model.n_iter_, accuracy=accuracy)))
"""


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized):
    """Time of one fit.

    Attributes:
        rows: of satimage.
        gp_rows: most rows for GaussianProcessClassifier.
        classes: of the synthetic points.
        points: of them.
        blocked: rows of the fit in tiles; 0 for none.
        blocked_steps: Newton steps of it.
        repeats: of every fit.
        small: 100 and 200 rows, 4 and 8 classes.
        full: up to all 4,435 rows, 256 classes, 20,000 rows in tiles.
    """

    rows: tuple[int, ...] = (250, 500, 1_000, 2_000)
    gp_rows: int = 1_000
    classes: tuple[int, ...] = (4, 16, 64)
    points: int = 1_000
    blocked: int = 0
    blocked_steps: int = 2
    repeats: int = 3

    def chosen(self) -> Options:
        """With the sizes that --small or --full stand for."""
        if self.full:
            rows = (500, 1_000, 2_000, 4_435)
            return dataclasses.replace(
                self, rows=rows, classes=(4, 16, 64, 256), gp_rows=2_000, blocked=20_000
            )
        if self.small:
            small = dict(rows=(100, 200), gp_rows=100, classes=(4, 8), points=100, repeats=1)
            return dataclasses.replace(self, **small)
        return self


def timed(make, X, y, repeats: int) -> tuple[float, float, Any]:
    """(processor seconds of the first fit, median of the later ones, the model)."""
    seconds = []
    for _ in range(1 + repeats):
        begin = time.process_time()
        model = make().fit(X, y)
        seconds.append(time.process_time() - begin)
    return seconds[0], float(np.median(seconds[1:])), model


def satimage() -> tuple[np.ndarray, ...]:
    """(X, y, X_test, y_test), float32, shuffled; the variances of all features together are 1."""
    folder = _data.folder() / "satimage"
    X, y = load_svmlight(folder / "train.libsvm.xz")
    X_test, y_test = load_svmlight(folder / "test.libsvm.xz")
    X, X_test = X.toarray(), X_test.toarray()
    scale = np.float32(np.sqrt(X.var(axis=0).sum()))
    order = np.random.default_rng(0).permutation(len(X))
    return X[order] / scale, y[order].astype(int), X_test / scale, y_test.astype(int)


def against_rows(options: Options) -> list[dict]:
    """A fit of satimage by number of rows, ours and GaussianProcessClassifier."""
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    from xmcjax import KernelLogisticClassifier

    X, y, X_test, y_test = satimage()
    v, length2 = 10.0, 0.2  # near the result of a search; k = v exp(−‖x − x'‖² / (2 length2))
    results = []
    for n in options.rows:
        part = X[:n], y[:n]

        def ours():
            return KernelLogisticClassifier(v=v, w=X.shape[1] / length2, tol=1e-3)

        first, seconds, model = timed(ours, *part, options.repeats)
        row = dict(n=n, first_seconds=first, seconds=seconds, newton_steps=model.n_iter_)
        row["error"] = float(np.mean(model.predict(X_test) != y_test))
        if n <= options.gp_rows:
            kernel = ConstantKernel(2 * v) * RBF(np.sqrt(length2))

            def peer(kernel=kernel):
                return GaussianProcessClassifier(kernel, optimizer=None, multi_class="one_vs_rest")

            X64, y64 = (a.astype(np.float64) for a in part)
            _, row["gp_seconds"], other = timed(peer, X64, y64, 1)
            row["gp_error"] = float(np.mean(other.predict(X_test) != y_test))
        results.append(row)
        print(row, flush=True)
    return results


def blobs(n: int, C: int) -> tuple[np.ndarray, np.ndarray]:
    """Normally distributed points around C centres in eight dimensions."""
    rng = np.random.default_rng(0)
    y = np.concatenate([np.arange(C), rng.integers(0, C, n - C)])
    X = rng.standard_normal((n, 8)) + 2 * rng.standard_normal((C, 8))[y]
    return X.astype(np.float32), y


def trees(C: int) -> dict[str, list[tuple[int, int]]]:
    """Trees of leaves 1 … C by name."""
    leaves, result = list(range(1, C + 1)), {"star": [(0, c) for c in range(1, C + 1)]}
    for width in (8, 2):
        level, edges, number = leaves, [], C + 1
        while len(level) > width:
            above = []
            for first in range(0, len(level), width):
                edges += [(number, child) for child in level[first : first + width]]
                above.append(number)
                number += 1
            level = above
        result[f"{width} children per node"] = edges + [(0, c) for c in level]
    return result


def run(options: Options) -> dict:
    """All parts."""
    from xmcjax import KernelLogisticClassifier

    rows = against_rows(options)
    by_classes, by_nodes = [], []
    for C in options.classes:
        make = lambda: KernelLogisticClassifier(v=5.0, tol=1e-3)  # noqa: E731
        first, seconds, model = timed(make, *blobs(options.points, C), options.repeats)
        by_classes.append(dict(C=C, first_seconds=first, seconds=seconds, newton_steps=model.n_iter_))
        print(by_classes[-1], flush=True)
    C = max(c for c in options.classes if c <= 64)
    X, y = blobs(options.points, C)
    for name, edges in trees(C).items():
        make = lambda edges=edges: KernelLogisticClassifier(hierarchy=edges, v=5.0, tol=1e-3)  # noqa: E731
        first, seconds, model = timed(make, X, y + 1, options.repeats)
        by_nodes.append(dict(tree=name, P=len(edges), first_seconds=first, seconds=seconds))
        by_nodes[-1]["newton_steps"] = model.n_iter_
        print(by_nodes[-1], flush=True)
    result: dict[str, Any] = dict(
        rows=rows, classes=by_classes, nodes=by_nodes, points=options.points, leaves=C
    )
    if options.blocked:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", BLOCKED, str(options.blocked), str(options.blocked_steps)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        result["blocked"] = dict(n=options.blocked, **json.loads(done.stdout.splitlines()[-1]))
    return result


def markdown(result: dict) -> str:
    """A table for each part."""
    rows = [
        [
            r["n"],
            f"{r['seconds']:.3f}",
            f"{r['first_seconds']:.2f}",
            r["newton_steps"],
            f"{r['gp_seconds']:.2f}" if "gp_seconds" in r else "",
            f"{r['gp_seconds'] / r['seconds']:.0f}" if "gp_seconds" in r else "",
            f"{r['error']:.4f}",
            f"{r['gp_error']:.4f}" if "gp_error" in r else "",
        ]
        for r in result["rows"]
    ]
    header = ("rows of satimage", "fit, s", "first fit, s", "Newton steps", "Gaussian processes, s")
    header += ("over ours", "test error", "Gaussian processes")
    text = _report.markdown_table(header, rows)
    text = "Processor seconds:\n\n" + text + f"\n{result['points']} points:\n\n"
    header = ("classes", "nodes", "tree", "fit, s", "first fit, s", "Newton steps")
    rows = [(r["C"], "", "") for r in result["classes"]]
    rows += [(result["leaves"], r["P"], r["tree"]) for r in result["nodes"]]
    both = [*result["classes"], *result["nodes"]]
    times = [(f"{r['seconds']:.3f}", f"{r['first_seconds']:.2f}", r["newton_steps"]) for r in both]
    text += _report.markdown_table(header, [a + b for a, b in zip(rows, times, strict=True)])
    text += "\nOne Newton step stands for none, where nonlinear conjugate gradients end by themselves.\n"
    if "blocked" in result:
        b = result["blocked"]
        text += (
            f"\n{b['n']} rows in tiles: {b['newton_steps']} Newton steps in {b['seconds']:.0f} s, "
            f"peak memory of the process {b['peak_gib']:.2f} GiB\n"
        )
    return text


def main() -> None:
    """Reads the options, runs, writes the results."""
    _report.main("p003_cost", Options, __doc__, run, markdown)


if __name__ == "__main__":
    main()
