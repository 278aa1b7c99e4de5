"""The products of every operator against float64, twice."""

from __future__ import annotations

import numpy as np

from experiments.bench.gpu_kit._kit import Kit

# Largest ‖ours − float64‖ / ‖float64‖; TF32 would be near 3e-4.
TOLERANCE = 2e-6
WORKS = {
    "matmat": lambda op, D, V: op.matmat(V),
    "rmatmat": lambda op, D, V: op.rmatmat(D),
    "gram_matmat": lambda op, D, V: op.gram_matmat(D, V),
    "squared_rmatmat": lambda op, D, V: op.squared_rmatmat(D),
}
# The backends that promise a fixed order of summation.
SAME_BITS = ("gpu", "dense")


def run(kit: Kit) -> None:
    """One figure for each backend and product."""
    import jax
    import jax.numpy as jnp
    import scipy.sparse as sp

    from xmcjax import linops

    stored = kit.references()
    X = sp.csr_matrix(stored["products/X"])
    D, V = (jnp.asarray(stored[f"products/{name}"]) for name in "DV")
    for backend in ("gpu", "jnp", "dense"):
        with kit.attempt(f"products, {backend}"):
            op = linops.make(X, np.float32, backend=backend)
            for name, work in WORKS.items():
                with kit.attempt(f"{name}, {backend}"):
                    program = jax.jit(work)
                    first, again = (np.asarray(program(op, D, V)) for _ in range(2))
                    error = relative(first, stored[f"products/{name}"])
                    same = first.tobytes() == again.tobytes()
                    right = error <= TOLERANCE and (same or backend not in SAME_BITS)
                    kit.figure(f"{name}, {backend}", error=error, same_bits=same, right=right)


def relative(found, reference) -> float:
    """‖found − reference‖ / ‖reference‖; NaN where found has one."""
    difference = np.linalg.norm(np.asarray(found, np.float64) - reference)
    return float(difference / max(np.linalg.norm(reference), 1e-300))
