"""The state of a run on disk, so that a killed one goes on where it was.

Each process keeps its part of the last two iterations in two files, written under another name first: one
of them is whole at any moment, and processes that were stopped an iteration apart have one in common.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xmcjax.solvers._peers import Peers
from xmcjax.solvers.multinomial._problem import Problem
from xmcjax.solvers.multinomial._state import State


class Store:
    """The states of one run in a folder, of this process's part."""

    def __init__(self, folder: str | Path, problem: Problem, method: str, devices: int):
        self._folder = Path(folder)
        self._mark = fingerprint(problem, method, devices)

    def last_steps(self, peers: Peers) -> int:
        """The last iteration of which every process has a state, or −1.

        Args:
            peers: of the solve.

        Raises:
            ValueError: a state of another problem, method or number of devices.
        """
        found = []
        for slot in (0, 1):
            header, steps = _header(self._file(slot))
            if header and header["mark"] != self._mark:
                raise ValueError(f"{self._folder} has the state of another run: give an empty folder")
            found.append(steps)
        everyone = map(json.loads, peers.exchanged("state", json.dumps(found)))
        return max(set.intersection(*map(set, everyone)), default=-1)

    def method(self, steps: int) -> str:
        """That was running."""
        header, _ = _header(self._file(steps % 2))
        return header["method"]

    def load(self, steps: int, like: State) -> State:
        """The state after that iteration, laid out as `like`."""
        with np.load(self._file(steps % 2), allow_pickle=False) as arrays:
            leaves, tree = jax.tree.flatten(like)
            placed = []
            for i, leaf in enumerate(leaves):
                parts = [arrays[f"{i}_{k}"] for k in range(len(_shards(leaf)))]
                placed.append(_placed(leaf, parts))
        return jax.tree.unflatten(tree, placed)

    def save(self, method: str, state: State) -> None:
        """Writes the state after an iteration in place of that two iterations before."""
        self._folder.mkdir(parents=True, exist_ok=True)
        leaves = [_parts(leaf) for leaf in jax.tree.leaves(state)]
        arrays = {f"{i}_{k}": part for i, parts in enumerate(leaves) for k, part in enumerate(parts)}
        header = json.dumps({"mark": self._mark, "method": method})
        arrays["header"] = np.frombuffer(header.encode(), np.uint8)
        target = self._file(int(state.steps) % 2)
        temporary = target.with_suffix(".tmp")
        with open(temporary, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]  # names are numbers, no option's
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)

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


def _header(path: Path) -> tuple[dict[str, Any], int]:
    if not path.exists():
        return {}, -1
    with np.load(path, allow_pickle=False) as arrays:
        header = json.loads(arrays["header"].tobytes())
        return header, int(arrays[f"{State._fields.index('steps')}_0"])


def _shards(leaf: jax.Array):
    """The parts that this process has to keep: one of an array that is whole on each device."""
    shards = leaf.addressable_shards
    return shards[:1] if leaf.is_fully_replicated else shards


def _parts(leaf: jax.Array) -> list[np.ndarray]:
    return [np.asarray(shard.data) for shard in _shards(leaf)]


def _placed(leaf: jax.Array, parts: list[np.ndarray]) -> jax.Array:
    if leaf.is_fully_replicated:
        return jax.device_put(parts[0].astype(leaf.dtype, copy=False), leaf.sharding)
    pieces = [jax.device_put(part, shard.device) for part, shard in zip(parts, _shards(leaf), strict=True)]
    return jax.make_array_from_single_device_arrays(leaf.shape, leaf.sharding, pieces)
