"""Projections of 1,000,000 vectors of 1,000 numbers against the bandwidth of the memory."""

from __future__ import annotations

import functools

import numpy as np

from experiments.bench.gpu_kit import _vectors
from experiments.bench.gpu_kit._kit import Kit, copy_bandwidth, seconds_of


def run(kit: Kit) -> None:
    """x is read once and p written once: what a copy moves. A CPU projects a tenth of the vectors."""
    import jax

    limit = copy_bandwidth(kit)
    rows, m = kit.size(1_000_000 if kit.on == "device" else 100_000, 500), kit.size(1000, 40)
    x, c = (jax.random.normal(jax.random.key(k), (rows, m), np.float32) for k in range(2))
    for name, projection in list(_vectors.projections().items())[: kit.size(None, 1)]:
        with kit.attempt(f"projection, {name}"):
            call = functools.partial(jax.jit(projection), x)
            first, seconds = seconds_of(call, kit.size(5, 2))
            _vectors.note(kit, f"projection, {name}", rows, first, seconds, 2 * x.nbytes / limit)
    with kit.attempt("projection, simplex, with its transposed derivative"):
        both = jax.jit(_vectors.with_transposed(_vectors.projections()["simplex"]))
        first, seconds = seconds_of(lambda: both(x, c), kit.size(5, 2))
        name = "projection, simplex, with its transposed derivative"
        _vectors.note(kit, name, rows, first, seconds, 4 * x.nbytes / limit)
