"""The training program of dismecpp, the code of Schultheis and Babbar, 2022.

https://github.com/xmc-aalto/dismecpp; its program `train`, by its path
"""

from __future__ import annotations

import io
import os
import re
import resource
import time
from pathlib import Path

import numpy as np

from experiments.bench import _peers, _worker

#: dismecpp's names of our starts.
STARTS = {"zero": "zero", "bias": "bias", "ova_primal": "ova-primal", "mean_separating": "msi"}
LOSSES = {"squared_hinge": "squared-hinge", "logistic": "logistic"}
# t of the mean-separating start with the logistic loss, as ours (Schultheis and Babbar, 2022, Table 2)
_LOGISTIC = ("--msi-neg=-3",)


def train(
    program: str,
    data: Path,
    model: Path,
    start: str,
    processors: list[int],
    *,
    loss: str = "squared_hinge",
    eps: float = 0.01,
) -> dict:
    """Trains all labels of a file on one thread, the bias a regularised feature.

    Args:
        program: path of `train`.
        data: XMC text.
        model: the model file to write, with unclipped dense weights.
        start: of :data:`STARTS`.
        processors: where the program runs; [] for all.
        loss: of :data:`LOSSES`.
        eps: ε₀.

    Returns:
        ``seconds`` by the program's own clock, from the features being ready to the last label, with what the
        start takes for all labels; ``cpu_seconds``, which is ``seconds`` times the share of a processor that
        the process had; ``newton_steps``, the mean over labels; ``failed``, labels reported as not converged.

    Raises:
        RuntimeError: the program failed, or its output lacks what is read here.
    """
    command = [
        *(program, str(data), str(model), "--augment-for-bias", "--reg-bias", "--threads=1"),
        *(f"--epsilon={eps}", f"--init-mode={STARTS[start]}", f"--loss={LOSSES[loss]}"),
        *(_LOGISTIC if loss == "logistic" else ()),
        *("--save-dense-npy", f"--stats-file={os.devnull}", "-v"),
    ]
    begin, cpu_begin = time.perf_counter(), _children()
    printed = _worker.output("dismecpp", command, processors, env=os.environ | {"OMP_NUM_THREADS": "1"})
    share = (_children() - cpu_begin) / (time.perf_counter() - begin)
    steps = re.findall(r"finished minimization for label\s+\d+ in\s+(\d+) iterations", printed)
    clock = dict(_peers.dismecpp_clock(printed, "Processed feature", "Threads finished"))
    if len(clock) != 2 or not steps:
        raise RuntimeError(f"{program}: expected the log of dismecpp's train, found another")
    seconds = clock["Threads finished"] - clock["Processed feature"]
    return {
        "seconds": seconds,
        "cpu_seconds": seconds * min(share, 1.0),
        "newton_steps": float(np.mean([int(made) for made in steps])),
        "failed": len(re.findall(r"Minimization for label\s+\d+ failed", printed)),
    }


def weights(model: Path, labels: int) -> np.ndarray:
    """The weights of a model that :func:`train` wrote, [labels, d+1], the bias last."""
    return np.load(io.BytesIO(Path(f"{model}.weights-0-{labels - 1}").read_bytes()))


def _children() -> float:
    """Processor seconds of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
