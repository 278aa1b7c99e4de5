"""Losses of 1,000,000 rows of 1,000 scores, with their gradients, against the bandwidth of the memory."""

from __future__ import annotations

import functools

import numpy as np

from experiments.bench.gpu_kit import _vectors
from experiments.bench.gpu_kit._kit import Kit, copy_bandwidth, seconds_of


def run(kit: Kit) -> None:
    """The scores are read once and a gradient of their size is written."""
    import jax

    limit = copy_bandwidth(kit)
    rows, m = kit.size(1_000_000 if kit.on == "device" else 100_000, 500), kit.size(1000, 40)
    scores = jax.random.normal(jax.random.key(0), (rows, m), np.float32)
    labels = jax.random.randint(jax.random.key(1), (rows,), 0, m, np.int32)
    for name, loss in list(_vectors.losses().items())[: kit.size(None, 1)]:
        with kit.attempt(f"loss, {name}"):
            call = functools.partial(jax.jit(_vectors.with_gradient(loss)), scores, labels)
            first, seconds = seconds_of(call, kit.size(5, 2))
            _vectors.note(kit, f"loss, {name}", rows, first, seconds, 2 * scores.nbytes / limit)
