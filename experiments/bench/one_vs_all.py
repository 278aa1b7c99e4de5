"""One-vs-all training against the programs that came before, on the same matrix in the same run.

    python -m experiments.bench.one_vs_all [--small|--full] [--out results] \\
        [--dismecpp PATH_OF_ITS_train] [--pecos-python PATH_OF_AN_INTERPRETER_WITH_libpecos] \\
        [--omikuji-python PATH_OF_AN_INTERPRETER_WITH_omikuji]

Every run is a process of its own on one processor (the two-thread rows: on two). A time is the
median of the repetitions, which go round by turns, of the whole work without reading and writing
files, compilation included. "again" is the time of the same work a second time in a process of ours,
where nothing is left to start or to compile; the other programs have nothing to compile. Objectives
are those of the unclipped weights in float64, with the bias regularised alike:
½‖w‖² + ½b² + C Σ max(0, 1−m)², C = 1. Labels without positives are not counted. Writes
one_vs_all.json and one_vs_all.md.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments import _data, _one_vs_all, _report
from experiments.bench import _dismecpp, _peers, _worker
from xmcjax.data import save_xmc
from xmcjax.metrics import precision_at_k

PECOS_ROW = "PECOS one-level (dual, eps 0.1)"


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized):
    """One-vs-all training against its peers.

    Attributes:
        data: a set of experiments._data.
        repeats: of every timed run.
        inits: initialisations timed for xmcjax.
        sample: labels for LinearSVC.
        dismecpp: its train program; empty leaves it out.
        pecos_python: an interpreter that can import pecos; empty leaves it out.
        omikuji_python: an interpreter that can import omikuji; empty leaves it out.
        small: the demo set that comes with the package, one repetition, few labels for LinearSVC.
        full: stackexchange_tags, five repetitions, all initialisations.
    """

    data: str = "naics_demo"
    repeats: int = 1
    inits: tuple[str, ...] = ("mean_separating", "zero")
    sample: int = 5
    dismecpp: str = ""
    pecos_python: str = ""
    omikuji_python: str = ""

    def chosen(self) -> Options:
        """With the sizes that --small or --full stand for."""
        if self.full:
            inits = ("mean_separating", "zero", "bias", "ova_primal", "ova_primal_pp", "multi_pos")
            data = self.data if self.data != "naics_demo" else "stackexchange_tags"
            return dataclasses.replace(self, data=data, repeats=max(self.repeats, 5), inits=inits, sample=60)
        if self.small:
            return dataclasses.replace(self, data="naics_demo", repeats=1, sample=5)
        return self


class Bench:
    """The runs over one training set, in a folder of their own."""

    def __init__(self, options: Options, folder: Path):
        self.options, self.folder = options, folder
        self.split = _data.load_split(options.data)
        _one_vs_all.store(folder, self.split)
        if options.dismecpp or options.omikuji_python:
            save_xmc(folder / "train.txt", self.split.X, self.split.Y)
        processors = _worker.usable_processors()
        self.one, self.two = processors[:1], processors[:2]

    def ask(self, run: str, *, processors: list[int], **options) -> dict:
        """A run of experiments.bench._worker."""
        return _worker.ask(run, self.folder, processors, **options)

    def xmcjax(self, init: str, threads: int = 1, **more) -> dict:
        """Ours, clipping as by default."""
        processors = self.one if threads == 1 else self.two
        return self.ask(
            "xmcjax", processors=processors, init=init, threads=threads, **({"clip": 0.01} | more)
        )

    def linear_svc(self) -> dict:
        """scikit-learn's loop on a sample of the labels."""
        weights = str(self.folder / "svc.npy")
        return self.ask("linear_svc", processors=self.one, sample=self.options.sample, weights=weights)

    def peer(self, interpreter: str, program: str) -> dict:
        """A program of experiments.bench._peers in the interpreter that has the peer."""
        request = {"data": str(self.folder), "weights": str(self.folder / "pecos.npy")}
        command = [interpreter, "-c", program]
        printed = _worker.output(interpreter, command, self.one, input=json.dumps(request))
        return json.loads(printed.splitlines()[-1])

    def dismecpp(self, init: str) -> dict:
        """dismecpp's train program; its own clock, from the features being ready to the last label."""
        model = self.folder / f"dismecpp_{init}"
        found = _dismecpp.train(self.options.dismecpp, self.folder / "train.txt", model, init, self.one)
        return found | {"labels": int(self.trained.sum())}

    @property
    def trained(self) -> np.ndarray:
        """Labels with positives."""
        return np.asarray(self.split.Y.sum(axis=0)).ravel() > 0

    def objectives(self, W: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """½‖w‖² + ½b² + Σ_i max(0, 1−m_i)² in float64; W is [labels, d+1], the bias last."""
        X = self.split.X.astype(np.float64)
        Y = self.split.Y.tocsc()
        values = np.zeros(len(labels))
        for first in range(0, len(labels), 64):
            w = W[first : first + 64].astype(np.float64)
            Z = X @ w[:, :-1].T + w[:, -1]
            y = np.where(Y[:, labels[first : first + 64]].toarray() > 0, 1, -1)
            values[first : first + 64] = (w**2).sum(1) / 2 + (np.maximum(0, 1 - y * Z) ** 2).sum(0)
        return values

    def precision(self, W: np.ndarray) -> list[float]:
        """P@1, 3, 5 on the test part, in per cent; labels without positives never outrank."""
        scores = np.asarray(self.split.X_test @ W[:, :-1].T.astype(np.float32)) + W[:, -1].astype(np.float32)
        scores[:, ~self.trained] = -np.inf
        return [100 * float(precision_at_k(self.split.Y_test, scores, k)) for k in (1, 3, 5)]


def run(options: Options) -> tuple[dict, str]:
    """The result and its Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, Path(folder))
        contestants: dict[str, Callable[[], dict]] = {
            f"xmcjax {init}": lambda init=init: bench.xmcjax(init, again=True) for init in options.inits
        }
        contestants["xmcjax mean_separating, two threads"] = lambda: bench.xmcjax(
            "mean_separating", threads=2
        )
        if options.dismecpp:
            contestants["dismecpp msi"] = lambda: bench.dismecpp("mean_separating")
            contestants["dismecpp zero"] = lambda: bench.dismecpp("zero")
        if options.pecos_python:
            contestants[PECOS_ROW] = lambda: bench.peer(options.pecos_python, _peers.PECOS)
            contestants["PECOS XR-Linear (tree)"] = lambda: bench.peer(
                options.pecos_python, _peers.PECOS_TREE
            )
        if options.omikuji_python:
            contestants["Omikuji (three trees)"] = lambda: bench.peer(options.omikuji_python, _peers.OMIKUJI)
        contestants["LinearSVC loop (primal)"] = bench.linear_svc
        results = {name: [] for name in contestants}
        pairs = []
        for repeat in range(options.repeats):
            for name, contestant in contestants.items():
                results[name].append(contestant())
                print(
                    f"{repeat + 1}/{options.repeats} {name}: {results[name][-1]['seconds']:.2f} s", flush=True
                )
            pairs.append(scipy_speed_up(bench))
        rows = {name: summarise(runs) for name, runs in results.items()}
        unclipped(bench, options, rows)
        threads = {
            "xmcjax": rows["xmcjax mean_separating"]["seconds"]
            / rows["xmcjax mean_separating, two threads"]["seconds"],
            "two processes of scipy CSR @ dense": float(np.median(pairs)),
        }
        result = {
            "data": options.data,
            "rows": bench.split.X.shape[0],
            "features": bench.split.X.shape[1],
            "labels": int(bench.trained.sum()),
            "repeats": options.repeats,
            "runs": rows,
            "speed_up_of_two": threads,
        }
        return result, markdown(result)


def scipy_speed_up(bench: Bench) -> float:
    """What two processes of plain sparse products gain over one, on two processors."""
    alone = bench.ask("scipy_product", processors=bench.two, products=60)["seconds"]
    request = {"run": "scipy_product", "data": str(bench.folder), "products": 60}
    command = [sys.executable, "-m", "experiments.bench._worker"]
    both = []
    for processor in bench.two or [None, None]:
        chosen = request | {"processors": [processor] if processor is not None else []}
        environment = os.environ | _worker.ONE_THREAD
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_worker.ROOT,
            env=environment,
        )
        assert process.stdin is not None  # a pipe
        process.stdin.write(json.dumps(chosen))
        process.stdin.close()
        both.append(process)
    seconds = 0.0
    for process in both:
        with process:  # closes its pipes and waits
            seconds = max(seconds, json.loads(process.stdout.read())["seconds"])
    return len(both) * alone / seconds


def summarise(runs: list[dict]) -> dict:
    """The first run, with the median of the times and all times."""
    times = [one["seconds"] for one in runs]
    seconds = float(np.median(times))
    row = runs[0] | {
        "seconds": seconds,
        "all_seconds": times,
        "ms_per_label": 1e3 * seconds / runs[0]["labels"],
    }
    if "again_seconds" in row:
        row["again_ms_per_label"] = (
            1e3 * float(np.median([one["again_seconds"] for one in runs])) / row["labels"]
        )
    return row


def unclipped(bench: Bench, options: Options, rows: dict) -> None:
    """Adds objectives and test precision, from weights that were not clipped."""
    labels = np.flatnonzero(bench.trained)
    objectives = {}
    for init in options.inits:
        path = str(bench.folder / f"{init}.npy")
        ours = bench.xmcjax(init, clip=0.0, weights=path, observe=True)
        W = np.load(path)
        name = f"xmcjax {init}"
        objectives[name] = bench.objectives(W[labels], labels)
        rows[name] |= {"precision": bench.precision(W), "by_step": ours["by_step"]}
    for name, init in (("dismecpp msi", "mean_separating"), ("dismecpp zero", "zero")):
        if name in rows:
            W = _dismecpp.weights(bench.folder / f"dismecpp_{init}", bench.split.Y.shape[1])
            objectives[name] = bench.objectives(W[labels], labels)
            rows[name]["precision"] = bench.precision(W)
    if options.pecos_python:
        W = np.load(bench.folder / "pecos.npy")
        objectives[PECOS_ROW] = bench.objectives(W[labels], labels)
        rows[PECOS_ROW]["precision"] = bench.precision(W)
    for name, values in objectives.items():
        rows[name]["objective"] = float(values.sum())
        against = objectives.get("dismecpp msi")
        if against is not None:
            rows[name]["worst_ratio_to_dismecpp_msi"] = float((values / against).max())
    sample = np.array(rows["LinearSVC loop (primal)"].pop("sample"))
    svc = bench.objectives(np.load(bench.folder / "svc.npy"), sample)
    for name, values in objectives.items():
        rows[name]["worst_ratio_to_linear_svc"] = float((values[np.searchsorted(labels, sample)] / svc).max())


def markdown(result: dict) -> str:
    """Tables of times, objectives and the work by Newton step."""
    ours = result["runs"]["xmcjax mean_separating"]
    table = []
    for name, row in result["runs"].items():
        precision = "/".join(f"{p:.1f}" for p in row["precision"]) if "precision" in row else ""
        table.append(
            [
                name,
                row["ms_per_label"],
                f"{row['ms_per_label'] / ours['ms_per_label']:.2f}",
                f"{row['again_ms_per_label']:.2f}" if "again_ms_per_label" in row else "",
                f"{row['ms_per_label'] / ours['again_ms_per_label']:.2f}",
                f"{row['newton_steps']:.1f}" if "newton_steps" in row else "",
                f"{row['objective']:.1f}" if "objective" in row else "",
                precision,
            ]
        )
    header = (
        "program",
        "ms per label",
        "time over ours",
        "again, ms",
        "time over ours again",
        "Newton steps",
        "Σ objective",
        "P@1/3/5",
    )
    speed = result["speed_up_of_two"]
    by_step = []
    for init in ("mean_separating", "zero"):
        for entry in result["runs"].get(f"xmcjax {init}", {}).get("by_step", []):
            by_step.append(
                [
                    init,
                    entry["step"],
                    entry["labels"],
                    f"{100 * entry['active']:.2f}",
                    f"{entry['multiplier']:.2f}",
                ]
            )
    return (
        f"{result['data']}: {result['rows']} rows, {result['features']} features, {result['labels']} labels; "
        f"median of {result['repeats']}, one processor\n\n"
        + _report.markdown_table(header, table)
        + f"\nTwo threads are {speed['xmcjax']:.2f} times as fast as one; two processes of scipy's "
        + f"CSR @ dense do {speed['two processes of scipy CSR @ dense']:.2f} times the work of one.\n\n"
        + _report.markdown_table(
            ("start", "Newton step", "labels at it", "active rows, %", "mean multiplier"), by_step
        )
    )


def main() -> None:
    """Reads the options, runs, writes the results."""
    import tyro

    options = tyro.cli(Options, description=__doc__).chosen()
    result, text = run(options)
    _report.write(options.out, "one_vs_all", result, text)
    print("\n" + text + f"\nwritten to {options.out}")


if __name__ == "__main__":
    main()
