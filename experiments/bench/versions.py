"""The library beside another version of itself: the same work by turns, in one table.

    python -m experiments.bench.versions --before PYTHON_WITH_THE_OTHER_VERSION [--topk] [--small]

One processor. Each version runs in a process of its own, which reads the data and makes every work once,
so that compilation is left out; then the two take turns, and which goes first alternates. Times are medians
of processor seconds; the ratio is the median of those of the pairs, above 1 where this version is slower. A
number that is made of each result tells whether the two did the same work. Writes versions.json and
versions.md.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from experiments import _data, _multiclass, _report
from experiments.bench._turns import Program

WORKER = Path(__file__).with_name("_version_worker.py")


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized, small=dict(pairs=1), full=dict(pairs=11)):
    """The library beside another version of itself.

    Attributes:
        before: a Python that has the other version.
        pairs: of timed runs for each work.
        only: a part of the names of the works that are done; empty for all.
        topk: top-k SVMs of any C in place of the other works; those that do not end are cut off.
        small: two works, one pair.
        full: 11 pairs.
    """

    before: Path = Path(sys.executable)
    pairs: int = 5
    only: str = ""
    topk: bool = False


@dataclasses.dataclass(frozen=True)
class Work:
    """Something that both versions do.

    Attributes:
        kind: of ``KINDS`` of the worker.
        data: a set of :func:`stored`.
        options: of the kind.
    """

    kind: str
    data: str
    options: dict[str, Any]

    @property
    def name(self) -> str:
        named = [
            str(self.options[n]) for n in ("name", "formulation", "variant", "method") if n in self.options
        ]
        numbers = [f"{n}={self.options[n]:g}" for n in ("C", "lam", "tol") if n in self.options]
        return " ".join([self.kind.replace("_", " "), *named, self.data, *numbers])


def works() -> list[Work]:
    """All of them: a second or so each."""
    dense = [("usps", 0.01), ("letter", 0.01), ("satimage", 0.01)]
    return [
        *(Work("one_vs_all", data, {"clip": 0.0}) for data in ("stackexchange_tags", "bibtex", "delicious")),
        *(
            Work("multiclass_svm", data, {"formulation": formulation, "C": C, "tol": 1e-2})
            for formulation in ("ww", "cs", "llw")
            for data, C in [*dense, ("clinc150", 1.0)]
        ),
        *(
            Work("topk_svm", "caltech101_silhouettes", {"variant": variant, "k": 5, "C": C, "tol": 1e-3})
            for variant in ("alpha", "beta")
            for C in (0.01, 0.1)
        ),
        *(
            Work("multinomial", "naics2017", {"method": method, "lam": 1.0, "steps": steps})
            for method, steps in (("dual", 5), ("newton", 2), ("lc", 5))
        ),
        *(
            Work("projection", "normal", {"name": name, "repeats": 5, **options})
            for name, options in {
                "simplex": {},
                "capped_simplex": {"radius": 1.0, "upper": 0.4},
                "knapsack": {"radius": 1.0, "lower": 0.0, "upper": 0.4},
                "topk_cone": {"k": 5},
                "topk_simplex": {"k": 5},
            }.items()
        ),
        Work("kernel_regression", "usps, 1,500 rows", {"v": 10.0}),
        Work("kernel_product", "usps, 1,500 rows", {"columns": 32, "memory": 0.0, "w": 1.0}),
    ]


def topk_works() -> list[Work]:
    """Top-5 SVMs from small to large C, to two gaps."""
    silhouettes = "caltech101_silhouettes, rows of norm 1"
    return [
        Work("topk_classifier", data, {"variant": variant, "k": 5, "C": C, "tol": tol, "max_iter": 2000})
        for data in ("usps", "letter", "satimage", silhouettes)
        for variant in ("alpha", "beta")
        for C in (0.1, 1.0, 10.0)
        for tol in (1e-3, 1e-5)
    ]


def small_works() -> list[Work]:
    """Those of ``--small``."""
    return [
        Work("multiclass_svm", "digits", {"formulation": "ww", "C": 1.0, "tol": 1e-2}),
        Work("projection", "normal", {"name": "simplex", "repeats": 1}),
    ]


def stored(name: str, folder: Path) -> None:
    """Writes the features and labels of a set, or standard normal features."""
    X: Any
    y: Any = np.zeros(0, np.int64)
    if name == "normal":
        X = np.random.default_rng(0).normal(size=(2000, 1000)).astype(np.float32)
    elif name in _data.TRANSFORMS:
        X, y, *_ = _data.load_split(name)
    elif name in _data.CLASS_SETS and name not in _multiclass.SETS:
        X, y, *_ = _data.load_classes(name)
    elif name.endswith(", rows of norm 1"):
        X, y, *_ = _data.load_classes(name.removesuffix(", rows of norm 1"))
        norms = np.linalg.norm(X, axis=1, keepdims=True)
        X = np.ascontiguousarray(X / np.where(norms > 0, norms, 1), np.float32)
    elif name.endswith("rows"):
        whole, rows = name.removesuffix(" rows").split(", ")
        X, y, *_ = _multiclass.load(whole)
        X, y = X[: int(rows.replace(",", ""))], y[: int(rows.replace(",", ""))]
    else:
        X, y, *_ = _multiclass.load(name)
    folder.mkdir()
    for part, value in (("X", X), ("y", y)):
        if sp.issparse(value):
            sp.save_npz(folder / f"{part}.npz", sp.csr_matrix(value))
        else:
            np.save(folder / f"{part}.npy", value)


class Version(Program):
    """A process with one version of the library."""

    def __init__(self, python: Path):
        super().__init__([str(python), str(WORKER)])
        self.version, self.commit = self.said["version"], _report.commit(Path(self.said["folder"]))


def run(options: Options) -> dict:
    """Makes all works by turns."""
    listed = topk_works() if options.topk else works()
    chosen = small_works() if options.small else [work for work in listed if options.only in work.name]
    rows = []
    versions: list[Version] = []
    with tempfile.TemporaryDirectory() as name:
        try:
            for python in (options.before, Path(sys.executable)):
                versions.append(Version(python))
            for work in chosen:
                folder = Path(name) / work.data.replace(" ", "_").replace(",", "")
                if not folder.exists():
                    stored(work.data, folder)
                rows.append(by_turns(work, folder, versions, options.pairs))
                print(json.dumps(rows[-1]), flush=True)
        finally:
            for version in versions:
                version.close()
    before, now = ({"version": v.version, "commit": v.commit} for v in versions)
    return {"before": before, "now": now, "rows": rows}


def by_turns(work: Work, folder: Path, versions: list[Version], pairs: int) -> dict:
    """Medians of one work, before and now."""
    seconds: list[list[float]] = [[], []]
    values = [0.0, 0.0]
    for pair in range(pairs + 1):
        for place in (0, 1) if pair % 2 else (1, 0):
            found = versions[place].made(work.name, work.kind, folder, work.options)
            values[place] = found["value"]
            if pair:  # the first one compiles
                seconds[place].append(found["seconds"])
    ratios = [now / before for before, now in zip(*seconds, strict=True)]
    return {
        "name": work.name,
        "before_seconds": statistics.median(seconds[0]),
        "now_seconds": statistics.median(seconds[1]),
        "ratio": statistics.median(ratios),
        "least_ratio": min(ratios),
        "largest_ratio": max(ratios),
        "values": values,
    }


def markdown(result: dict) -> str:
    """One table."""
    rows = [
        [
            *(row["name"], row["before_seconds"], row["now_seconds"]),
            *(row["ratio"], f"{row['least_ratio']:.2f} to {row['largest_ratio']:.2f}"),
            abs(row["values"][1] - row["values"][0]) / max(abs(row["values"][0]), 1e-300),
        ]
        for row in result["rows"]
    ]
    header = ["work", "before, s", "now, s", "now / before", "of the pairs", "difference of the results"]
    versions = "before: {version} of commit {commit}; now: ".format(**result["before"])
    return f"{versions}{result['now']['version']}\n\n" + _report.markdown_table(header, rows)


if __name__ == "__main__":
    _report.main("versions", Options, __doc__, run, markdown)
