"""Top-k SVMs trained to a relative duality gap, against libsdca and LinearSVC, on the same features.

    python -m experiments.bench.topk_svm [--small|--full] [--out results] [--raw] \\
        [--libsdca CHECKOUT_OF_libsdca --libsdca-flags="-DBLAS_DEFAULT -lopenblas"]

Problems of C = 1 without bias: the hinge of the k largest margins, alpha and beta; k = 1 is Crammer
and Singer's SVM. Every run is a process of its own on one processor, float32, and ends at the first
gap that is small enough, (P − D)/P ≤ 1e-3; libsdca works the gap out after every epoch. A time is
the median of the repetitions, which go round by turns, of training without the gaps, which are
timed apart. It is CPU time, which other work on the machine does not lengthen; compiled beforehand, and
the first call, with its compilation and gaps, is shown apart. LinearSVC knows no gap. Its P and ours
are worked out from the weights in float64, and (P − max D)/P says how good a P is. Writes topk_svm.json
and topk_svm.md.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from experiments import _data, _report
from experiments.bench import _peers, _worker

OURS, LIBSDCA, LINEAR_SVC = "xmcjax", "libsdca", "LinearSVC"


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized):
    """Top-k SVMs against their peers.

    Attributes:
        data: a set of experiments._data.CLASS_SETS.
        problems: variant:k.
        tol: relative duality gap.
        linear_svc_tol: LinearSVC's, of its projected gradient.
        repeats: of every timed run.
        raw: the features as they are; else rows of norm 1.
        libsdca: a checkout of libsdca; empty leaves it out.
        libsdca_flags: of its compiler: -DBLAS_DEFAULT and a library with cblas.
        compiler: of its program.
        small: scikit-learn's digits, one repetition.
        full: Caltech-101 Silhouettes, five repetitions.
    """

    data: str = "digits"
    problems: tuple[str, ...] = ("alpha:5", "beta:5", "alpha:1", "alpha:10")
    tol: float = 1e-3
    linear_svc_tol: float = 0.1
    repeats: int = 3
    raw: bool = False
    libsdca: str = ""
    libsdca_flags: str = ""
    compiler: str = "c++"

    def chosen(self) -> Options:
        """With the sizes that --small or --full stand for."""
        if self.full:
            return dataclasses.replace(self, data="caltech101_silhouettes", repeats=max(self.repeats, 5))
        if self.small:
            return dataclasses.replace(self, data="digits", problems=("alpha:5", "alpha:1"), repeats=1)
        return self


class Bench:
    """The runs over one training set, in a folder of their own."""

    def __init__(self, options: Options, folder: Path):
        self.options, self.folder = options, folder
        split = _data.load_classes(options.data)
        X = np.ascontiguousarray(split.X, np.float32)
        norms = np.linalg.norm(X, axis=1, keepdims=True)
        self.X = X if options.raw else X / np.where(norms > 0, norms, 1)
        self.y, self.classes = split.y, int(split.y.max()) + 1
        np.save(folder / "X.npy", self.X)
        np.save(folder / "y.npy", self.y)
        processors = _worker.usable_processors()
        self.processors = processors[:1]
        if options.libsdca:
            self.X.tofile(folder / "X.bin")
            self.y.astype(np.uint64).tofile(folder / "y.bin")
            self.program = _peers.compile_libsdca(
                _peers.LIBSDCA_SOLVE,
                folder,
                checkout=options.libsdca,
                compiler=options.compiler,
                flags=shlex.split(options.libsdca_flags),
            )

    def ours(self, variant: str, k: int) -> dict:
        """Our run, with P computed from the weights in float64."""
        weights = self.folder / "ours.npy"
        how = dict(variant=variant, k=k, C=1.0, tol=self.options.tol, weights=str(weights))
        row = _worker.ask("topk_svm", self.folder, self.processors, **how)
        return row | {"primal": self.primal(np.load(weights), variant, k)}

    def libsdca(self, variant: str, k: int) -> dict:
        """libsdca's run, with its own clocks and objectives."""
        sizes = (*self.X.shape, self.classes, k, 1.0, variant, self.options.tol)
        command = [self.program, str(self.folder / "X.bin"), str(self.folder / "y.bin"), *map(str, sizes)]
        environment = os.environ | _worker.ONE_THREAD
        with _worker.pinned(self.processors):
            done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        return json.loads(done.stdout)

    def linear_svc(self) -> dict:
        """LinearSVC's run, for k = 1."""
        weights = self.folder / "svc.npy"
        how = dict(C=1.0, tol=self.options.linear_svc_tol, weights=str(weights))
        row = _worker.ask("crammer_singer", self.folder, self.processors, **how)
        return row | {"primal": self.primal(np.load(weights), "alpha", 1)}

    def primal(self, W: np.ndarray, variant: str, k: int) -> float:
        """½‖W‖² + Σ_i φ(z_i), by sorting."""
        W = W.astype(np.float64)
        Z = self.X @ W.T
        rows = np.arange(len(Z))
        H = 1 + Z - Z[rows, self.y][:, None]
        H[rows, self.y] = -np.inf
        H = -np.sort(-H, axis=1)[:, :k]
        losses = np.maximum(H.mean(1), 0) if variant == "alpha" else np.maximum(H, 0).mean(1)
        return float((W**2).sum() / 2 + losses.sum())


def run(options: Options) -> dict:
    """All programs by turns."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, Path(folder))
        contestants = {}
        for problem in options.problems:
            variant, k = problem.split(":")
            how = (variant, int(k))
            contestants[problem, OURS] = lambda how=how: bench.ours(*how)
            if options.libsdca:
                contestants[problem, LIBSDCA] = lambda how=how: bench.libsdca(*how)
            if how == ("alpha", 1):
                contestants[problem, LINEAR_SVC] = bench.linear_svc
        runs = {key: [] for key in contestants}
        for repeat in range(options.repeats):
            for key, contestant in contestants.items():
                runs[key].append(contestant())
                print(
                    f"{repeat + 1}/{options.repeats} {' '.join(key)}: {runs[key][-1]['seconds']:.2f} s",
                    flush=True,
                )
        n, d = bench.X.shape
        sizes = {"data": options.data, "n": n, "d": d, "classes": bench.classes}
    rows = [summarise(problem, program, values) for (problem, program), values in runs.items()]
    for row in rows:
        duals = [other["dual"] for other in rows if other["problem"] == row["problem"] and "dual" in other]
        row["excess"] = (row["primal"] - max(duals)) / row["primal"]
    how = {field: getattr(options, field) for field in ("raw", "tol", "linear_svc_tol", "repeats")}
    return sizes | how | {"runs": rows}


def summarise(problem: str, program: str, runs: list[dict]) -> dict:
    """The first run, with the medians of the times and all times."""
    row: dict[str, Any] = {"problem": problem, "program": program} | runs[0]
    for name in [name for name in row if name.endswith("seconds")]:
        values = [one[name] for one in runs]
        row |= {name: float(np.median(values)), f"all_{name}": values}
    if "dual" in row:
        row["gap"] = (row["primal"] - row["dual"]) / row["primal"]
    return row


def markdown(result: dict) -> str:
    """One table, problems together."""
    ours = {row["problem"]: row for row in result["runs"] if row["program"] == OURS}
    table = []
    for row in result["runs"]:
        beside = ours[row["problem"]]
        table.append(
            [
                row["problem"],
                row["program"],
                f"{row['seconds']:.3f}",
                f"{row['seconds'] / beside['seconds']:.2f}",
                f"{row['check_seconds']:.3f}" if "check_seconds" in row else "",
                f"{row['first_call_seconds']:.2f}" if "first_call_seconds" in row else "",
                row["epochs"],
                f"{row['primal']:.2f}",
                f"{row['gap']:.2e}" if "gap" in row else "",
                f"{row['excess']:.2e}",
            ]
        )
    header = (
        *("problem", "program", "s", "over ours", "gaps, s", "first call, s"),
        *("epochs", "P", "(P − D)/P", "(P − max D)/P"),
    )
    rows = "as they are" if result["raw"] else "of norm 1"
    return (
        f"{result['data']}: {result['n']} rows {rows}, {result['d']} features, {result['classes']} classes; "
        f"C = 1, gap {result['tol']:g}; median CPU time of {result['repeats']}, one processor\n\n"
        + _report.markdown_table(header, table)
    )


if __name__ == "__main__":
    _report.main("topk_svm", Options, __doc__, run, markdown)
