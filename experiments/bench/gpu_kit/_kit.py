"""What a stage gets: sizes, time, data, and the file to which each figure is written at once.

``python -m experiments.bench.gpu_kit._kit REQUEST`` runs one stage.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from experiments import _data
from experiments import _report as _of_experiments
from experiments.bench.gpu_kit import _report
from xmcjax._cores import usable_cores


class Size:
    """The size of a synthetic set."""

    def __init__(self, rows, features, labels, nonzeros, labels_per_row):
        self.rows, self.features, self.labels = rows, features, labels
        self.more = dict(nonzeros_per_row=nonzeros, labels_per_row=labels_per_row)


# Sets of power-law data; a set with the name of a real one has its size.
MADE = {
    "amazon_670k": Size(490_449, 135_909, 670_091, 76, 5.45),
    "small": Size(300, 200, 60, 15, 2),
}


class Kit:
    """One stage's view of the run.

    Attributes:
        small: whether this is a rehearsal.
        on: "device" or "cpu".
        folder: the packed folder.
        failed: whether a figure could not be taken, or is wrong.
    """

    def __init__(self, request: dict):
        self.small, self.on = request["small"], request["on"]
        self.folder, self._out = Path(request["folder"]), Path(request["out"])
        self._scratch, self._request = Path(request["scratch"]), request
        self._end = time.monotonic() + request["seconds"]
        # programs that an earlier run compiled are not compiled in a first call
        self._compiled_before = len(list((self._scratch / "compiled").glob("*-cache")))
        self.failed = False

    @property
    def threads(self) -> int:
        """How many host threads a figure of the CPU uses: one per core."""
        return usable_cores()

    def left(self) -> float:
        """Seconds until this stage is killed."""
        return self._end - time.monotonic()

    def size(self, full, small):
        """`full`, or in a rehearsal `small`."""
        return small if self.small else full

    def figure(self, name: str, **values) -> None:
        """Writes a figure with all that belongs to it; `right=False` makes the stage fail."""
        self.failed |= values.get("right") is False
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        line = {"figure": name, "stage": self._request["stage"], "on": self.on, "at": now, "values": values}
        _report.add(self._out, line | self._origin)
        print(name, json.dumps(values, default=float)[:300], flush=True)

    @functools.cached_property
    def _origin(self) -> dict:
        import jax

        device = jax.local_devices()[0]
        machine = {**_of_experiments.environment(), "device": device.device_kind, "platform": device.platform}
        machine["compiled_before"] = self._compiled_before
        return {"environment": machine, **{key: self._request[key] for key in ("commit", "command", "small")}}

    @contextlib.contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """A context in which an error is written down as this figure, and the stage goes on."""
        try:
            yield
        except Exception as error:
            traceback.print_exc()
            self.failed = True
            self.figure(name, error=f"{type(error).__name__}: {error}"[:1000], right=False)

    def made(self, name: str):
        """Features and labels, transformed, of a set of ``MADE``; made once on a machine."""
        import scipy.sparse as sp

        folder = self._scratch / f"made_{name}"
        if not folder.is_dir():
            size = MADE[name]
            split = _data.power_law(size.rows, 0, size.features, size.labels, **size.more)
            split = _data.transformed(split, "log,idf,unit")
            new = self._scratch / f"making_{name}_{os.getpid()}"
            new.mkdir()
            for part in ("X", "Y"):
                sp.save_npz(new / f"{part}.npz", getattr(split, part), compressed=False)
            new.rename(folder)
        return tuple(sp.csr_matrix(sp.load_npz(folder / f"{part}.npz")) for part in ("X", "Y"))

    def references(self) -> dict[str, np.ndarray]:
        """The references that were computed in float64 on a CPU when the kit was packed."""
        with np.load(self.folder / "references.npz") as stored:
            return dict(stored)


def seconds_of(work: Callable, repeats: int = 5) -> tuple[float, float]:
    """Seconds (of the first call, which compiles; the median of the other calls)."""
    import jax

    times = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - begin)
    return times[0], float(np.median(times[1:]))


def copy_bandwidth(kit: Kit) -> float:
    """Bytes that a copy of random numbers reads and writes in a second."""
    import jax

    numbers = kit.size(500_000_000 if kit.on == "device" else 50_000_000, 1_000_000)
    array = jax.random.normal(jax.random.key(0), (numbers,), np.float32)
    copy = jax.jit(lambda a: a + 1)
    return 2 * array.nbytes / seconds_of(lambda: copy(array), 7)[1]


def main(request: dict) -> int:
    """Runs the stage of a request; 1 where a figure failed."""
    kit = Kit(request)
    importlib.import_module(request["module"]).run(kit)
    return int(kit.failed)


if __name__ == "__main__":
    # imported by its public name, so that the stages import the same module object
    from experiments.bench.gpu_kit import _kit

    sys.exit(_kit.main(json.loads(sys.argv[1])))
