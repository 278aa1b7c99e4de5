"""Every kind of work beside its peer, for each instruction set, in one table.

    python -m experiments.bench.everywhere [--small|--full] [--dismecpp PATH_OF_ITS_train] [--out results]

One processor, one thread. For each instruction set (XMCJAX_ISA) a process of its own makes every work once,
so that compilation is left out; then they take turns with the peer, in one order and the other. Times are
medians of processor seconds, ratios are medians over the turns: so many times as long as ours the peer takes.
Start-up is that of whole programs, of which each makes one run beforehand. dismecpp's time is that of its
own clock. Instruction sets that this processor lacks are left out. Works are kept in everywhere.cells.json,
so that a run goes on where one was stopped. Writes everywhere.json, everywhere.md, whose second table has
a line for each kind of work, and everywhere.png of the best instruction set.

What stops where: one-vs-all at tol 0.01 and LinearSVC at 1e-4 (a sample of the labels, scaled up);
multinomial regression of both at a relative gap of 1e-5; SVMs of ours at a duality gap of 1e-3, and LIBLINEAR
where no projected gradient exceeds 0.01. LIBLINEAR has no SVM of Weston and Watkins, of Lee, Lin and Wahba,
or of the top k: its Crammer-Singer stands beside them. scikit-learn's Gaussian processes are one-vs-rest on
the classes, ours a softmax, flat or in a tree.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from experiments import _data, _multinomial, _report
from experiments._cells import Cells
from experiments.bench import one_vs_all, single_rows, versions
from experiments.bench._turns import Program
from experiments.bench._worker import ONE_THREAD, ROOT, pinned, usable_processors
from experiments.papers.p003 import cost as kernel_cost

WORKER = [sys.executable, "-m", "experiments.bench._everywhere_worker"]
GAP = 1e-5
# A whole program, whose start is timed: it opens a model and predicts a row.
PREDICTOR = """
import sys, scipy.sparse as sp
from xmcjax.models import Predictor
print(Predictor(sys.argv[1]).predict_topk(sp.load_npz(sys.argv[2]), 5)[0])
"""
SCIPY = """
import sys, numpy as np, scipy.sparse as sp
scores = (sp.load_npz(sys.argv[2]) @ sp.load_npz(sys.argv[1])).toarray()[0]
print(np.argsort(-scores)[:5])
"""
# The work of xmcjax train with scikit-learn: reading, training, writing.
LINEAR_SVC = """
import sys, numpy as np, scipy.sparse as sp
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC
from xmcjax.data import load_npz
X, Y = load_npz(sys.argv[1])
X, Y = normalize(X), sp.csc_matrix(Y)
W = np.zeros((Y.shape[1], X.shape[1] + 1), np.float32)
for label in np.flatnonzero(np.diff(Y.indptr)):
    y = np.full(len(X.indptr) - 1, -1)
    y[Y.indices[Y.indptr[label] : Y.indptr[label + 1]]] = 1
    svc = LinearSVC(dual=False).fit(X, y)
    W[label] = [*svc.coef_[0], svc.intercept_[0]]
np.save(sys.argv[2], W)
"""


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized, small=dict(repeats=1, sample=2), full=dict(repeats=5)):
    """Every kind of work, for each instruction set.

    Attributes:
        isas: values of XMCJAX_ISA.
        works: parts of the names of those that are done; empty for all.
        repeats: turns.
        sample: labels for LinearSVC.
        dismecpp: its train program; empty leaves it out.
        small: data that come with the packages, one turn.
        full: five turns.
    """

    isas: tuple[str, ...] = ("avx512", "avx2", "baseline")
    works: tuple[str, ...] = ()
    repeats: int = 3
    sample: int = 5
    dismecpp: str = ""


@dataclasses.dataclass(frozen=True)
class Row:
    """A work of ours and the counterpart of a peer; each is a kind of the worker with its options.

    Attributes:
        work: the kind of work.
        data: the name of the data.
        peer: the name of the peer.
        stored: writes the data to a folder.
        ours, theirs: kind and options; of a kind "command" the options have the command, see
            :func:`placed`; of "dismecpp" they have the set and the program.
    """

    work: str
    data: str
    peer: str
    stored: Callable[[Path], None]
    ours: tuple[str, dict[str, Any]]
    theirs: tuple[str, dict[str, Any]]

    @property
    def name(self) -> str:
        return f"{self.work}, {self.data}, {self.peer}"


def rows(options: Options, cells: Cells) -> list[Row]:
    """All rows of the table; the minima of multinomial regression are cells."""
    small = options.small
    return [
        row
        for row in (
            *_one_vs_all(options),
            *_predictions(small),
            *_multinomials(small, cells),
            *_svms(small),
            *_trees(small),
            *_starts(small),
        )
        if not options.works or any(part in row.name for part in options.works)
    ]


def _set(name: str) -> Callable[[Path], None]:
    return lambda folder: versions.stored(name, folder)


def _one_vs_all(options: Options) -> list[Row]:
    sets = ("naics_demo",) if options.small else ("stackexchange_tags", "bibtex", "delicious")
    ours = ("one_vs_all", {"clip": 0.0})
    svc = ("linear_svc", {"sample": options.sample})
    found = [Row("one-vs-all", name, "LinearSVC", _set(name), ours, svc) for name in sets]
    if options.dismecpp:
        their = [("dismecpp", {"data": name, "program": options.dismecpp}) for name in sets]
        found += [
            Row("one-vs-all", name, "dismecpp", _set(name), ours, one)
            for name, one in zip(sets, their, strict=True)
        ]
    return found


def _predictions(small: bool) -> list[Row]:
    models: dict[str, tuple] = {}

    def stored(place: int, rows: int) -> Callable[[Path], None]:
        def store(folder: Path) -> None:
            if not models:
                models.update(single_rows.models(single_rows.Options(small=small).chosen()))
            coef, bias, X = list(models.values())[place]
            folder.mkdir()
            bias = np.asarray(bias, np.float32)[:, None]
            if sp.issparse(coef):
                sp.save_npz(folder / "X.npz", sp.csr_matrix(X[:rows]))
                sp.save_npz(folder / "y.npz", sp.csr_matrix(sp.hstack([coef, bias])))
            else:
                np.save(folder / "X.npy", X[:rows])
                np.save(folder / "y.npy", np.hstack([coef, bias]))

        return store

    def row(kind: str, work: str, data: str, store: Callable[[Path], None]) -> Row:
        return Row(work, data, "scipy", store, (kind, {"program": "xmcjax"}), (kind, {"program": "scipy"}))

    tags = "demo" if small else "stackexchange_tags"
    return [
        row("rows_one_by_one", "prediction of one row", tags, stored(0, 1000)),
        row("rows_one_by_one", "prediction of one row", "made, sparse", stored(1, 200)),
        row("rows_one_by_one", "prediction of one row", "made, dense", stored(2, 1000)),
        row("rows_at_once", "prediction of many rows", tags, stored(0, 1000)),
    ]


def _multinomials(small: bool, cells: Cells) -> list[Row]:
    found = []
    for name in ("digits",) if small else ("usps", "letter", "clinc150"):
        for lam in (1.0,) if small else (1.0, 0.01):
            best = _multinomial.optimum(
                cells, ("repeats", "sample", "dismecpp"), name, lam, seconds=1e4, rows=0, set=name
            )
            target = best["value"] * (1 + GAP)
            how = {"lam": lam, "dtype": "float64", "target": target, "gap": GAP}
            for peer in ("newton-cg",) if small else ("newton-cg", "lbfgs"):
                ours, theirs = (
                    ("multinomial_to_gap", {"program": program, **how})
                    for program in ("auto", f"sklearn {peer}")
                )
                title = f"{name}, λ = {lam:g}"
                found.append(Row("multinomial regression", title, peer, _set(name), ours, theirs))
    return found


def _svms(small: bool) -> list[Row]:
    found = []
    cs = ("liblinear", {"C": 1.0, "tol": 0.01, "multi_class": "crammer_singer"})
    hinge = ("liblinear", {"C": 1.0, "tol": 0.01, "loss": "hinge"})
    for name in ("digits",) if small else ("usps", "clinc150"):
        for formulation in ("cs", "ovr") if small else ("ovr", "cs", "ww", "llw"):
            ours = ("multiclass_svm", {"formulation": formulation, "C": 1.0, "tol": 1e-3})
            peer, theirs = ("LIBLINEAR OVR", hinge) if formulation == "ovr" else ("LIBLINEAR CS", cs)
            found.append(Row("multi-class SVM", f"{name}, {formulation}", peer, _set(name), ours, theirs))
    for variant in ("alpha", "beta"):
        name = "digits" if small else "caltech101_silhouettes"
        ours = ("topk_svm", {"variant": variant, "k": 5, "C": 0.1, "tol": 1e-3})
        theirs = (cs[0], {**cs[1], "C": 0.1})
        found.append(Row("top-k SVM", f"{name}, top-5 {variant}", "LIBLINEAR CS", _set(name), ours, theirs))
    return found


def _trees(small: bool) -> list[Row]:
    points, classes = (60, 8) if small else (500, 64)
    X, y = kernel_cost.blobs(points, classes)

    def stored(folder: Path) -> None:
        folder.mkdir()
        np.save(folder / "X.npy", X)
        np.save(folder / "y.npy", y + 1)

    edges = kernel_cost.trees(classes)["2 children per node"]
    theirs = ("gaussian_processes", {"v": 10.0})
    data = f"{points} points, {classes} classes"
    return [
        Row(
            "kernel regression",
            data + title,
            "Gaussian processes",
            stored,
            ("kernel_regression", more),
            theirs,
        )
        for title, more in (("", {}), (f", a tree of {len(edges)} nodes", {"hierarchy": edges}))
    ]


def _starts(small: bool) -> list[Row]:
    name = "naics_demo" if small else "bibtex"

    train = [*(sys.executable, "-m", "xmcjax", "train"), *("--train", "{folder}/train.npz", "--model")]

    def stored(folder: Path) -> None:
        from xmcjax.data import save_npz
        from xmcjax.models import LinearModel

        split = _data.load_split(name)
        X, Y = (split.X[:300], split.Y[:300, :50]) if small else (split.X, split.Y)
        folder.mkdir()
        save_npz(folder / "train.npz", X, Y)
        finished(placed([*train, "{folder}/model"], folder))
        W, _ = LinearModel.load(folder / "model").dense_block(0, Y.shape[1])
        sp.save_npz(folder / "row.npz", sp.csr_matrix(split.X_test[:1]))
        sp.save_npz(folder / "weights.npz", sp.csr_matrix(W))

    python = [sys.executable, "-c"]
    return [
        Row(
            *("start-up", f"a program that predicts a row, {name}", "scipy", stored),
            ("command", {"command": [*python, PREDICTOR, "{folder}/model", "{folder}/row.npz"]}),
            ("command", {"command": [*python, SCIPY, "{folder}/weights.npz", "{folder}/row.npz"]}),
        ),
        Row(
            *("start-up", f"a program that trains on {name}", "LinearSVC", stored),
            ("command", {"command": [*train, "{new}"]}),
            ("command", {"command": [*python, LINEAR_SVC, "{folder}/train.npz", "{folder}/svc.npy"]}),
        ),
    ]


class Contestant:
    """A program of one instruction set, or the peers, which have none."""

    def __init__(self, isa: str | None):
        self.environment = {} if isa is None else {"XMCJAX_ISA": isa}
        self.worker = Program(WORKER, **self.environment)

    def seconds(self, row: Row, folder: Path, work: tuple[str, dict[str, Any]], first: bool) -> float:
        """Seconds of one turn; before the first turn the work is done once."""
        kind, options = work
        if kind == "dismecpp":
            return _dismecpp(**options)
        if kind == "command":
            command = options["command"]
            if first:
                finished(placed(command, folder), **self.environment)
            return finished(placed(command, folder), **self.environment)
        return self.worker.made(f"{row.name} {kind}", kind, folder, options)["seconds"]


def placed(command: Sequence[str], folder: Path) -> list[str]:
    """A command on the data of a folder: {folder} is that folder, {new} an unused name in it."""
    new = str(folder / f"new-{len(list(folder.iterdir()))}")
    return [part.replace("{folder}", str(folder)).replace("{new}", new) for part in command]


def finished(command: Sequence[str], **environment: str) -> float:
    """Processor seconds of a program that runs to its end.

    Raises:
        RuntimeError: the program failed; the message has the last line of its errors.
    """
    environment = os.environ | ONE_THREAD | environment
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with pinned(usable_processors()[:1]):
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{command[:4]} failed: {done.stderr.strip().splitlines()[-1:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _dismecpp(data: str, program: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        bench = one_vs_all.Bench(one_vs_all.Options(data=data, dismecpp=program), Path(folder))
        return bench.dismecpp("mean_separating")["seconds"]


def run(options: Options) -> dict:
    """Makes all works by turns."""
    cells = Cells(options, "everywhere", listed=("isas", "works"))
    contestants: dict[str, Contestant] = {}
    found = []
    try:
        for isa in options.isas:
            one = contestants[isa] = Contestant(isa)
            if one.worker.said["isa"] != isa:
                contestants.pop(isa).worker.close()
        isas = list(contestants)
        contestants[""] = Contestant(None)
        for row in rows(options, cells):
            work = functools.partial(by_turns, row, contestants, options.repeats)
            found.append(cells.get(work, what=row.name, isas=isas))
    finally:
        for one in contestants.values():
            one.worker.close()
    return {"made": cells.made(), "isas": isas, "repeats": options.repeats, "rows": found}


def by_turns(row: Row, contestants: dict[str, Contestant], repeats: int) -> dict:
    """Seconds of a work and their medians; the peers are the contestant without an instruction set."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "data"
        row.stored(folder)
        seconds: dict[str, list[float]] = {isa: [] for isa in contestants}
        for turn in range(repeats):
            for isa in list(contestants)[:: -1 if turn % 2 else 1]:
                work = row.ours if isa else row.theirs
                seconds[isa].append(contestants[isa].seconds(row, folder, work, turn == 0))
    theirs = seconds.pop("")
    ratios = {
        isa: statistics.median(b / a for a, b in zip(ours, theirs, strict=True))
        for isa, ours in seconds.items()
    }
    return {
        **{"work": row.work, "data": row.data, "peer": row.peer},
        "peer_seconds": statistics.median(theirs),
        "seconds": {isa: statistics.median(ours) for isa, ours in seconds.items()},
        "ratios": ratios,
        "all_seconds": {**seconds, row.peer: theirs},
    }


def markdown(result: dict) -> str:
    """A table of all works, and the one of :func:`summary`."""
    isas = result["isas"]
    header = ["work", "data", "peer", "peer, s", *(f"{isa}, s" for isa in isas), *isas]
    lines = [
        [row["work"], row["data"], row["peer"], row["peer_seconds"]]
        + [row["seconds"][isa] for isa in isas]
        + [two_digits(row["ratios"][isa]) for isa in isas]
        for row in result["rows"]
    ]
    return _report.markdown_table(header, lines) + "\n" + summary(result)


def two_digits(ratio: float) -> str:
    """A ratio as tables and pictures show it: 114.8 is 110."""
    return f"{float(f'{ratio:.2g}'):g}"


def summary(result: dict) -> str:
    """For each kind of work the least and the largest ratio of its rows, for each instruction set."""
    lines = []
    for work in dict.fromkeys(row["work"] for row in result["rows"]):
        these = [row for row in result["rows"] if row["work"] == work]
        peers = ", ".join(dict.fromkeys(row["peer"] for row in these))
        cells = []
        for isa in result["isas"]:
            ratios = [row["ratios"][isa] for row in these]
            both = dict.fromkeys(two_digits(ratio) for ratio in (min(ratios), max(ratios)))
            cells.append(" to ".join(both))
        lines.append([work, peers, *cells])
    return _report.markdown_table(["work", "times faster than", *result["isas"]], lines)


def draw(result: dict, axes: Any) -> None:
    """Bars of the ratios with the first instruction set, a colour for each kind of work."""
    rows, isa = result["rows"][::-1], result["isas"][0]
    works = list(dict.fromkeys(row["work"] for row in result["rows"]))
    axes.figure.set_size_inches(9, 0.2 * len(rows) + 1)
    axes.barh(
        range(len(rows)),
        [row["ratios"][isa] for row in rows],
        color=[f"C{works.index(r['work'])}" for r in rows],
    )
    titles = [f"{row['work']}: {row['data']} ({row['peer']})" for row in rows]
    axes.set_yticks(range(len(rows)), titles, fontsize=7)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set(xscale="log", ylim=(-0.7, len(rows) - 0.3))
    axes.set_ylabel("work: data (peer)")
    axes.set_xlabel(f"the peer takes so many times as long as xmcjax ({isa}, one thread)")
    axes.xaxis.set_major_formatter("{x:g}")


if __name__ == "__main__":
    _report.main("everywhere", Options, __doc__, run, markdown, {"everywhere": draw})
