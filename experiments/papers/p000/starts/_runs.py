"""The runs of the study, each in a process of its own, kept by what was asked for."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from experiments import _one_vs_all
from experiments._cells import Cells
from experiments.bench import _dismecpp, _worker
from experiments.papers.p000.starts import _sets
from xmcjax.data import save_xmc

# Weights of dismecpp below this are dropped from its models, as in the paper.
CLIP = 0.01
# The most weights of a dense model of dismecpp that is read and scored.
_MOST_WEIGHTS = 10**8


class Runs:
    """Timed runs and traces over the sets; a set is read when the first of its runs is missing.

    Args:
        cells: where results are kept; all options of the study list cells.
        repeats: of every timed run.
        sample: most labels of a set that are trained in a timed run; 0 for all.
        traced: most labels of a set that are trained in a trace; 0 for all.
        dismecpp: path of dismecpp's train program, for the solver "dismecpp".
    """

    def __init__(self, cells: Cells, *, repeats: int, sample: int, traced: int, dismecpp: str = ""):
        self._cells = cells
        self._repeats, self._sample, self._traced = repeats, sample, traced
        self._dismecpp = dismecpp
        self._folder: tempfile.TemporaryDirectory | None = None
        self._stored = ""
        processors = _worker.usable_processors()
        self._processors = processors[:1]

    def facts(self, name: str) -> dict:
        """The sizes, setting and ε₀ of a set."""
        return self._cells.get(lambda: self._read(name), set=name, what="facts")

    def times(self, name: str, solver: str, loss: str, inits: Sequence[str]) -> dict[str, dict]:
        """By start: medians of the repetitions, which go round by turns, and the results of the run."""
        facts = self.facts(name)
        asked = {"solver": solver, "loss": loss, "eps": facts["eps"], "sample": self._sample}
        whole = not self._sample or facts["trained"] <= self._sample
        runs: dict[str, list[dict]] = {init: [] for init in inits}
        for repeat in range(self._repeats):
            for init in inits:
                # the test part is scored once, and only for sets whose labels are all trained
                request = asked | {"init": init, "threads": 1, "evaluate": whole and repeat == 0}
                cell = {"set": name, "what": "times", **request, "run": repeat}
                found = self._cells.get(lambda r=request: self._timed(name, r), **cell)
                runs[init].append(found)
        return {
            init: done[0]
            | {
                "cpu_seconds": float(np.median([one["cpu_seconds"] for one in done])),
                "all_cpu_seconds": [one["cpu_seconds"] for one in done],
            }
            for init, done in runs.items()
        }

    def trace(self, name: str, solver: str, init: str) -> dict:
        """A trace of training with the squared hinge, as experiments._one_vs_all.summarise returns it."""
        request = {
            "solver": solver,
            "loss": "squared_hinge",
            "eps": self.facts(name)["eps"],
            "sample": self._traced,
            "init": init,
        }
        work = functools.partial(self._ask, name, "one_vs_all_trace", request)
        return self._cells.get(work, set=name, what="trace", **request)

    def close(self) -> None:
        """Removes the set that was read last from the disk."""
        if self._folder is not None:
            self._folder.cleanup()
        self._folder, self._stored = None, ""

    def _read(self, name: str) -> dict:
        """Reads the set and stores it for the processes."""
        self.close()
        found = _sets.load(name)
        self._folder = tempfile.TemporaryDirectory()
        _one_vs_all.store(Path(self._folder.name), found.split)
        self._stored = name
        X, Y = found.split.X, found.split.Y
        return {
            "setting": found.setting,
            "eps": found.eps,
            "rows": X.shape[0],
            "features": X.shape[1],
            "nonzeros": X.nnz / X.shape[0] if hasattr(X, "nnz") else float(X.shape[1]),
            "labels": Y.shape[1],
            "trained": len(_one_vs_all.sample(Y, 0)),
            "tree": _sets.tree_facts(Y),
        }

    def _timed(self, name: str, request: dict) -> dict:
        if request["solver"] != "dismecpp":
            return self._ask(name, "xmcjax", request)
        folder = self._there(name)
        X, Y = (_one_vs_all.stored(folder, part) for part in "XY")
        labels = _one_vs_all.sample(Y, self._sample)
        text, model = folder / "train.txt", folder / "dismecpp"
        if not text.exists():
            save_xmc(text, X, sp.csr_matrix(sp.csc_matrix(Y)[:, labels]))
        asked = {part: request[part] for part in ("loss", "eps")}
        found = _dismecpp.train(self._dismecpp, text, model, request["init"], self._processors, **asked)
        found |= {"labels": len(labels)}
        if not request["evaluate"] or len(labels) * X.shape[1] > _MOST_WEIGHTS:
            return found
        W, bias = _clipped(_dismecpp.weights(model, len(labels)), labels, Y.shape[1])
        test = (_one_vs_all.stored(folder, part) for part in ("X_test", "Y_test"))
        return found | _one_vs_all.quality(W, bias, *test)

    def _ask(self, name: str, run: str, request: dict) -> dict:
        return _worker.ask(run, self._there(name), self._processors, **request)

    def _there(self, name: str) -> Path:
        """The folder of the set; the set is read first if it is not there."""
        if self._stored != name:
            self._read(name)
        assert self._folder is not None
        return Path(self._folder.name)


def _clipped(W: np.ndarray, labels: np.ndarray, n_labels: int) -> tuple[sp.csr_array, np.ndarray]:
    """Weights and biases of all labels from those of some, [labels, d+1], clipped as by the paper."""
    bias = np.full(n_labels, -np.inf, np.float32)
    bias[labels] = W[:, -1]
    kept = sp.coo_array(np.where(np.abs(W[:, :-1]) < CLIP, 0, W[:, :-1]))
    row, column = kept.coords
    return sp.csr_array((kept.data, (labels[row], column)), shape=(n_labels, W.shape[1] - 1)), bias
