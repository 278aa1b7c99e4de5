"""A grid of k and C of the top-k SVM on the silhouettes, each to the same duality gap.

A device uses ADMM, with the values of C as lanes; a CPU uses dual ascent, a lane for each k and C on a thread
of its own. Both minimise the same objective.
"""

from __future__ import annotations

import time

import numpy as np

from experiments import _data
from experiments.bench.gpu_kit import _problems
from experiments.bench.gpu_kit._kit import Kit

TOL = 1e-3
# More epochs than the ascent needs.
MOST = 10_000


def run(kit: Kit) -> None:
    """Solves the grid twice, the first time with compilation."""
    from xmcjax import linops

    if kit.small:
        data = _problems.data()
        X, y = data.X.toarray(), data.y
    else:
        split = _data.load_classes("caltech101_silhouettes")
        X, y = np.ascontiguousarray(split.X, np.float32), split.y
    op, ks = linops.make(X), kit.size((1, 3, 5, 10), (1, 2))
    Cs = kit.size((1e-4, 1e-3, 1e-2, 1e-1), (0.1, 1.0))
    for name in ("cold", "warm"):
        with kit.attempt(f"top-k grid, {name}"):
            begin = time.perf_counter()
            work = in_steps if kit.on == "device" else by_ascent
            values, gaps, counts = work(op, y, ks, Cs)
            kit.figure(
                f"top-k grid, {name}",
                seconds=time.perf_counter() - begin,
                lanes=len(ks) * len(Cs),
                largest_gap=max(gaps),
                objectives=values,
                steps_or_epochs=counts,
                right=max(gaps) <= TOL,
            )


def in_steps(op, y, ks, Cs) -> tuple[list, list, list]:
    """(objectives, certified gaps, steps) of all k, and of all C for each, by ADMM."""
    from xmcjax.solvers import admm

    found = [], [], []
    for k in ks:
        problem = admm.problem(op, y, formulation="topk_alpha", C=Cs, k=k)
        state = admm.run(problem, admm.HParams(tol=TOL), admm.init(problem))
        for numbers, of_state in zip(found, (state.primal, state.gap, state.steps), strict=True):
            numbers.extend(np.asarray(of_state).tolist())
    return found


def by_ascent(op, y, ks, Cs) -> tuple[list, list, list]:
    """(objectives, certified gaps, epochs) of all k and C, by prox-SDCA."""
    import jax

    from xmcjax.solvers import topk_sdca

    grid = [(k, C) for k in ks for C in Cs]
    problem = topk_sdca.problem(op, y, *(list(column) for column in zip(*grid, strict=True)))
    hp = topk_sdca.HParams(tol=TOL, max_epochs=MOST)
    state = topk_sdca.run(problem, hp, topk_sdca.init(problem, jax.random.key(0)))
    primal, gap = np.asarray(state.primal), np.asarray(state.gap)
    return primal.tolist(), (gap / primal).tolist(), np.asarray(state.epochs).tolist()
