"""What the stages of one-vs-all share: training as a figure, and the work of a block's products."""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np

from experiments import _one_vs_all
from experiments.bench.gpu_kit._kit import Kit, copy_bandwidth, seconds_of

TILE = 32
ROWS = 4096  # how many rows are counted at a time


def train(kit: Kit, X, Y, labels: np.ndarray, collected=None) -> dict:
    """Trains the labels, on a CPU with a thread per core. Returns seconds, steps and statuses."""
    from xmcjax.lanes import OneVsAll, train_one_vs_all

    kept = [0]

    def count(result) -> None:
        kept[0] += len(result.indices)
        if collected is not None:
            collected(result)

    counts = np.diff(Y.tocsc().indptr)
    labels = labels[np.argsort(-counts[labels], kind="stable")]  # the order that training itself uses
    how = OneVsAll(n_jobs=kit.threads if kit.on == "cpu" else 1)
    begin = time.perf_counter()
    summary = train_one_vs_all(X, Y, how, count, labels=labels)
    seconds = time.perf_counter() - begin
    return {
        "labels": len(labels),
        "seconds": seconds,
        "setup_seconds": seconds - summary.seconds,
        "first_step_seconds": summary.first_step_seconds,
        "seconds_per_label": (summary.seconds - summary.first_step_seconds) / len(labels),
        "statuses": {status.name: count for status, count in summary.statuses.items()},
        "newton_steps": summary.newton_steps / len(labels),
        "cg_steps": summary.cg_steps / len(labels),
        "active": summary.active / max(summary.steps, 1) / X.shape[0],
        "weights": kept[0],
        "threads": how.threads,
    }


def masks(X, Y, lanes: int, names: set[str]) -> dict[str, np.ndarray]:
    """Which rows are active in each lane, [n, lanes]: "none", at the "start", at the "end", 1.5% at "random".

    The lanes are neighbouring labels in the order of their numbers of positives, as in training, from a third
    of all labels on.
    """
    from xmcjax.lanes import OneVsAll, train_one_vs_all

    counts = np.diff(Y.tocsc().indptr)
    order = np.argsort(-counts, kind="stable")
    labels = np.resize(order[np.flatnonzero(counts[order])[-1] // 3 :][:lanes], lanes)
    signs = np.where(Y.tocsc()[:, labels].toarray() > 0, 1, -1).astype(np.int8)
    shape, found = (X.shape[0], lanes), {}
    if "none" in names:
        found["none"] = np.zeros(shape, bool)
    if "random" in names:
        found["random"] = np.random.default_rng(0).random(shape, dtype=np.float32) < 0.015
    for name, how in (("start", OneVsAll(max_iter=0, clip=0.0)), ("end", OneVsAll())):
        if name in names:
            kept = _one_vs_all.Collected(Y.shape[1], X.shape[1])
            train_one_vs_all(X, Y, how, kept, labels=np.unique(labels))
            found[name] = _active(X, kept.weights()[labels], kept.bias[labels], signs)
    return found


def _active(X, W, b, signs: np.ndarray) -> np.ndarray:
    """Where y (X wᵀ + b) < 1, for a block of lanes at a time, by a product on the device."""
    import jax
    import jax.numpy as jnp

    from xmcjax import linops

    op = linops.make(X, backend="gpu" if linops.gpu_ready() else "jnp")
    active = np.zeros(signs.shape, bool)
    margins = jax.jit(lambda op, V, b, y: y * (op.matmat(V) + b) < 1)
    step = 64
    for first in range(0, signs.shape[1], step):
        lanes = slice(first, first + step)
        V = jnp.asarray(W[lanes].toarray().T.astype(X.dtype))
        active[:, lanes] = margins(op, V, b[lanes], signs[:, lanes].astype(X.dtype))
    return active


def products(kit: Kit, name: str, X, Y, sweep: list[tuple[str, int, tuple[str, ...]]], keep: float) -> None:
    """Seconds, and parts of the bandwidth, of X δ, the gradient and CG's product, one figure for each.

    CG's product is the one used without the CUDA kernels; the stage `cuda_kernels` has the CG of these.

    Args:
        kit: of the stage.
        name: of the set.
        X, Y: the set.
        sweep: (backend, lanes, names of masks), most important first.
        keep: no further figure is begun when fewer seconds are left.
    """
    import jax
    import jax.numpy as jnp

    from xmcjax import linops

    limit = copy_bandwidth(kit)
    if not linops.gpu_ready() and jax.default_backend() != "cpu":
        kit.figure(f"{name}, kernels", error="no kernels for this GPU: plain JAX only", right=False)
        sweep = [("jnp", lanes, masks_of_it) for _, lanes, masks_of_it in sweep]
    names = {mask for *_, masks_of_it in sweep for mask in masks_of_it}
    by_mask = masks(X, Y, max(lanes for _, lanes, _ in sweep), names)
    for mask, chosen in by_mask.items():
        kit.figure(f"{name}, mask {mask}", active=float(chosen.mean()), tiles=float(tiles(chosen).mean()))
    operators: dict = {}
    for backend, lanes, names in sweep:
        with kit.attempt(f"{name}, {backend}, {lanes} lanes"):
            if backend not in operators:
                operators.clear()  # only one operator at a time is in the memory of the device
                operators[backend] = linops.make(X, backend=backend)
            op = operators[backend]
            V = jnp.asarray(np.random.default_rng(1).normal(size=(X.shape[1], lanes)).astype(X.dtype))
            programs = _programs()
            for mask in names:
                chosen = by_mask[mask][:, :lanes]
                D = jnp.asarray(chosen.astype(X.dtype))
                for product, (once, fetched) in _bytes(X, chosen).items():
                    if product == "X δ" and mask != names[0]:
                        continue  # X δ has no mask
                    if kit.left() < keep:
                        return
                    call = functools.partial(programs[product], op, D, V)
                    first, seconds = seconds_of(call, kit.size(7, 2))
                    kit.figure(
                        f"{product}, {name}, {backend}, {lanes} lanes, mask {mask}",
                        seconds=seconds,
                        first_call_seconds=first,
                        share_once=once / limit / seconds,
                        share_fetched=fetched / limit / seconds,
                        copy_gb_s=limit / 1e9,
                    )
    backend, lanes, _ = sweep[0]
    if backend == "gpu" and kit.left() >= 8 * keep:  # two more operators are made
        operators.clear()
        with kit.attempt(f"{name}, a dense head, {lanes} lanes"):
            _head(kit, name, X, lanes)


# A column that more than this part of the rows have may be multiplied faster as a dense column, by the counts
# of experiments.bench.gpu_counts.
DENSE = 0.05


def split_columns(X) -> tuple[np.ndarray, np.ndarray, Any]:
    """(the columns that more than ``DENSE`` of the rows have, as an array; their numbers; the rest of X)."""
    counts = np.bincount(X.indices, minlength=X.shape[1])
    head = np.flatnonzero(counts > DENSE * X.shape[0])
    rest = X.copy()
    rest.data[np.isin(X.indices, head)] = 0
    rest.eliminate_zeros()
    return X[:, head].toarray(), head, rest


def _head(kit: Kit, name: str, X, lanes: int) -> None:
    """X δ with frequent columns as a dense block, and X δ by the kernels alone."""
    import jax
    import jax.numpy as jnp

    from xmcjax import linops

    block, columns, rest = split_columns(X)
    parts = linops.make(block), linops.make(rest, backend="gpu"), jnp.asarray(columns)
    V = jnp.asarray(np.random.default_rng(1).normal(size=(X.shape[1], lanes)).astype(X.dtype))
    product = jax.jit(lambda head, tail, columns, V: head.matmat(V[columns]) + tail.matmat(V))
    first, seconds = seconds_of(lambda: product(*parts, V), kit.size(7, 2))
    kit.figure(
        f"X δ with a dense head, {name}, {lanes} lanes",
        seconds=seconds,
        first_call_seconds=first,
        columns=len(columns),
        entries=1 - rest.nnz / X.nnz,
    )


def _programs() -> dict:
    import jax

    return {
        "X δ": jax.jit(lambda op, D, V: op.matmat(V)),
        "gradient": jax.jit(lambda op, D, V: op.rmatmat(D)),
        "CG's product": jax.jit(lambda op, D, V: op.gram_matmat(D, V)),
    }


def tiles(chosen: np.ndarray) -> np.ndarray:
    """Whether a row is active in a lane of a tile, [n, tiles]."""
    return np.add.reduceat(chosen, np.arange(0, chosen.shape[1], TILE), axis=1) > 0


def _bytes(X, chosen: np.ndarray) -> dict[str, tuple[int, int]]:
    """(bytes if each array moved once, bytes if each entry of X that counts fetched its lanes)."""
    n, d = X.shape
    lanes, size = chosen.shape[1], X.dtype.itemsize
    matrix, of_d, of_n = X.nnz * (size + 4), size * d * lanes, size * n * lanes
    counted = int((tiles(chosen) * np.diff(X.indptr)[:, None]).sum()) * min(TILE, lanes)
    full, gradient, gram = matrix + of_d + of_n, matrix + of_d + of_n, 2 * matrix + 2 * of_d + of_n
    return {
        "X δ": (full, full + size * X.nnz * lanes),
        "gradient": (gradient, gradient + size * counted),
        "CG's product": (gram, gram + 2 * size * counted),
    }


def direction_bytes(X, chosen: np.ndarray, steps: np.ndarray, max_steps: int) -> tuple[int, int]:
    """(bytes if each array moved once, bytes if each entry of X that counts fetched its lanes) of one block's
    Newton directions by ``solvers/_lane_cg.py``, without a preconditioner.

    A step reads X twice, writes the product of all lanes, and reads the bits of D, from which it makes a word
    for each row. It reads D and writes the scores where a tile has an active row in an open lane. For an open
    lane it reads p for the product, and reads and writes nine vectors, or seven in the last step, which makes
    no new p. Before the steps come u = XᵀD1, the right-hand side and the bits; after them uᵀδ.

    Args:
        X: [n, d].
        chosen: [n, B], where D is not 0.
        steps: CG steps of each lane, [B].
        max_steps: the limit after which a lane ends although it is open.
    """
    n, d = X.shape
    lanes, size = chosen.shape[1], X.dtype.itemsize
    matrix, rows, vector = X.nnz * (size + 4), size * n * lanes, size * d * lanes
    bits, words, width = 4 * n * -(-lanes // TILE), 4 * n, min(TILE, lanes)
    # a tile asks for a row in as many steps as the longest of its lanes that are active in this row
    begins, asked, entries = np.arange(0, lanes, TILE), np.zeros(n, np.int64), np.diff(X.indptr)
    for first in range(0, n, ROWS):
        block = slice(first, first + ROWS)
        asked[block] = np.maximum.reduceat(chosen[block] * np.int32(steps), begins, axis=1).sum(axis=1)
    of_lanes = size * d * (10 * int(steps.sum()) - 2 * int(((steps > 0) & (steps < max_steps)).sum()))
    once = int(steps.max()) * (2 * matrix + vector + bits + 2 * words) + of_lanes
    once += 2 * size * width * int(asked.sum())
    # u; from u and the gradient the right-hand side, which is also the first r; p and x; at the end u and x
    once += matrix + rows + bits + 8 * vector
    fetched = 2 * int((asked * entries).sum()) + int((tiles(chosen) * entries[:, None]).sum())
    return once, once + size * width * fetched
