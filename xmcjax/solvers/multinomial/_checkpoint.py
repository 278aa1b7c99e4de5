"""The state of a run on disk, so that a killed one goes on where it was.

Each process keeps its part of the last two iterations in two files, each written whole or not at all: one is
complete at any moment, and processes that were stopped an iteration apart have one iteration in common.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import jax
import numpy as np

from xmcjax.data import DataFormatError, atomic_write
from xmcjax.solvers._peers import Peers
from xmcjax.solvers.multinomial._problem import Problem
from xmcjax.solvers.multinomial._state import State


class Store:
    """The states of one run in a folder: the part of this process."""

    def __init__(self, folder: str | Path, problem: Problem, method: str, devices: int):
        self._folder = Path(folder)
        self._mark = fingerprint(problem, method, devices)

    def last_steps(self, peers: Peers) -> int:
        """The last iteration of which every process has a state, or −1.

        Args:
            peers: of the solve.

        Raises:
            DataFormatError: a state of another problem, method or number of devices, or a damaged file.
        """
        for left in self._folder.glob(f".state-{jax.process_index()}-*.tmp"):  # by a run that was killed
            left.unlink()
        found = []
        for slot in (0, 1):
            path, steps = self._file(slot), -1
            if path.exists():
                mark, _, steps = _head(path)
                if mark != self._mark:
                    found = "the state of another run: give an empty folder"
                    raise DataFormatError(self._folder, None, None, "the state of this run", found)
            found.append(steps)
        everyone = map(json.loads, peers.exchanged("state", json.dumps(found)))
        return max(set.intersection(*map(set, everyone)), default=-1)

    def method(self, steps: int) -> str:
        """The method that was running at iteration `steps`."""
        return _head(self._file(steps % 2))[1]

    def load(self, steps: int, like: State) -> State:
        """The state after iteration `steps`, laid out as `like`."""
        path = self._file(steps % 2)
        leaves, tree = jax.tree.flatten(like)
        names = [[f"{i}_{k}" for k in range(len(_shards(leaf)))] for i, leaf in enumerate(leaves)]
        arrays = iter(_arrays(path, (name for part in names for name in part)))
        placed = []
        for leaf in leaves:
            parts = [next(arrays) for _ in _shards(leaf)]
            if any(p.shape != s.data.shape for p, s in zip(parts, _shards(leaf), strict=True)):
                raise _damaged(path, "arrays of other shapes")
            placed.append(_placed(leaf, parts))
        return jax.tree.unflatten(tree, placed)

    def save(self, method: str, state: State) -> None:
        """Writes the state after an iteration in place of the state two iterations before.

        Raises:
            OSError: it cannot be written; the error names the file.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        leaves = [_parts(leaf) for leaf in jax.tree.leaves(state)]
        arrays = {f"{i}_{k}": part for i, parts in enumerate(leaves) for k, part in enumerate(parts)}
        header = json.dumps({"mark": self._mark, "method": method})
        arrays["header"] = np.frombuffer(header.encode(), np.uint8)
        with atomic_write(self._file(int(state.steps) % 2)) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # names are numbers, no option's

    def _file(self, slot: int) -> Path:
        return self._folder / f"state-{jax.process_index()}-{slot}.npz"


def fingerprint(problem: Problem, method: str, devices: int) -> str:
    """What a stored state must have in common with the run that goes on with it."""
    digest = hashlib.sha256()
    for array in jax.tree.leaves(problem):
        digest.update(np.ascontiguousarray(np.asarray(array)).tobytes())
    facts = (problem.op.shape, str(problem.op.dtype), problem.classes, problem.intercept, method, devices)
    digest.update(repr((*facts, jax.process_count())).encode())
    return digest.hexdigest()


def _head(path: Path) -> tuple[str, str, int]:
    """What a stored state belongs to, the method that was running, and the iteration."""
    header, steps = _arrays(path, ("header", f"{State._fields.index('steps')}_0"))
    try:
        content = json.loads(header.tobytes())
        return str(content["mark"]), str(content["method"]), int(steps)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, error) from error


def _arrays(path: Path, names: Iterable[str]) -> list[np.ndarray]:
    """Members of a stored state, whose checksums are compared before anything is made of them."""
    if not path.is_file():  # a FIFO would be waited for without end
        raise _damaged(path, "no regular file")
    size = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            found = []
            for name in names:
                info = archive.getinfo(f"{name}.npy")
                # members are stored as they are: no more is read than the file has
                held = max(info.compress_size, info.file_size)
                if not 0 <= info.header_offset <= size - held:
                    raise zipfile.BadZipFile(f"a member of {held} bytes at byte {info.header_offset}")
                member = io.BytesIO(archive.read(info))
                found.append(np.lib.format.read_array(member, allow_pickle=False))
            return found
    # All that zipfile is known to raise on a damaged archive, and KeyError for a member that is not there.
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        KeyError,
        ValueError,
        OverflowError,
        NotImplementedError,
        RuntimeError,
    ) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, why: object) -> DataFormatError:
    found = (
        f"a damaged file ({str(why)[:200]}); without it the run goes on from the iteration before, or begins "
        "anew"
    )
    return DataFormatError(path, None, None, "the state of a run", found)


def _shards(leaf: jax.Array):
    """The parts that this process has to keep; if an array is whole on each device, one part."""
    shards = leaf.addressable_shards
    return shards[:1] if leaf.is_fully_replicated else shards


def _parts(leaf: jax.Array) -> list[np.ndarray]:
    return [np.asarray(shard.data) for shard in _shards(leaf)]


def _placed(leaf: jax.Array, parts: list[np.ndarray]) -> jax.Array:
    if leaf.is_fully_replicated:
        return jax.device_put(parts[0].astype(leaf.dtype, copy=False), leaf.sharding)
    pieces = [jax.device_put(part, shard.device) for part, shard in zip(parts, _shards(leaf), strict=True)]
    return jax.make_array_from_single_device_arrays(leaf.shape, leaf.sharding, pieces)
