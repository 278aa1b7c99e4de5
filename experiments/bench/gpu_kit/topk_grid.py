"""A grid of k and C of the top-k SVM on the silhouettes as lanes: time of an epoch, and how far it comes."""

from __future__ import annotations

import time

import numpy as np

from experiments import _data
from experiments.bench.gpu_kit import _problems
from experiments.bench.gpu_kit._kit import Kit


def run(kit: Kit) -> None:
    """As many epochs on the device as on the CPU: first few, which compile, then more."""
    import jax

    from xmcjax import linops
    from xmcjax.solvers import topk_sdca

    if kit.small:
        data = _problems.data()
        X, y = data.X.toarray(), data.y
    else:
        split = _data.load_classes("caltech101_silhouettes")
        X, y = split.X, split.y
    Cs = kit.size((1e-4, 1e-3, 1e-2, 1e-1), (1.0,))
    grid = [(k, C) for k in kit.size((1, 3, 5, 10), (1, 2)) for C in Cs]
    ks, Cs = (list(column) for column in zip(*grid, strict=True))
    # lanes in plain JAX on a device; where that is a CPU, the native kernels
    backend = "auto" if jax.default_backend() == "cpu" else "jnp"
    problem = topk_sdca.problem(linops.make(X), y, ks, Cs, backend=backend)
    for epochs in kit.size((1, 2, 10, 50), (1, 2)):
        with kit.attempt(f"top-k grid, {epochs} epochs"):
            hp = topk_sdca.HParams(tol=1e-12, max_epochs=epochs)
            begin = time.perf_counter()
            state = topk_sdca.run(problem, hp, topk_sdca.init(problem, jax.random.key(0)))
            gaps = np.asarray(state.gap) / np.asarray(state.primal)
            seconds = time.perf_counter() - begin
            kit.figure(
                f"top-k grid, {epochs} epochs",
                seconds=seconds,
                lanes=len(grid),
                largest_gap=float(gaps.max()),
                native=problem.rows is None,
            )
            # the first call compiles; the next has five times the epochs
            if epochs > 1 and 6 * seconds > kit.left():
                return
