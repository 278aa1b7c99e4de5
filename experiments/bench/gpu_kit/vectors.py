"""Projections and losses, with their derivatives, against float64, twice."""

from __future__ import annotations

import numpy as np

from experiments.bench.gpu_kit import _vectors
from experiments.bench.gpu_kit._kit import Kit
from experiments.bench.gpu_kit.products import relative

TOLERANCE = 3e-6


def run(kit: Kit) -> None:
    """One figure for each function."""
    stored = kit.references()
    x, c, labels = (stored[f"vectors/{name}"] for name in ("x", "c", "labels"))
    few = kit.size(None, 2)
    for name, projection in list(_vectors.projections().items())[:few]:
        _check(kit, stored, f"projections/{name}", _vectors.with_transposed(projection), x, c)
    for name, loss in list(_vectors.losses().items())[:few]:
        _check(kit, stored, f"losses/{name}", _vectors.with_gradient(loss), x, labels)


def _check(kit: Kit, stored: dict, name: str, function, *inputs) -> None:
    import jax
    import jax.numpy as jnp

    with kit.attempt(name):
        program, arrays = jax.jit(function), [jnp.asarray(a) for a in inputs]
        first, again = ([np.asarray(a) for a in program(*arrays)] for _ in range(2))
        errors = [relative(a, stored[f"{name}/{k}"]) for k, a in enumerate(first)]
        same = all(a.tobytes() == b.tobytes() for a, b in zip(first, again, strict=True))
        right = max(errors) <= TOLERANCE and same
        kit.figure(name, value_error=errors[0], derivative_error=errors[1], same_bits=same, right=right)
