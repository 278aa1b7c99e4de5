"""References that are computed in float64 on a CPU when the kit is packed, with their inputs."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from experiments import _data, _one_vs_all
from experiments.bench.gpu_kit import _problems, _vectors

# How many labels of stackexchange_tags have their objectives in the kit.
LABELS = 200


def make(small: bool) -> dict[str, np.ndarray]:
    """All arrays by name; a part of them for a rehearsal."""
    found = {**products(small), **vectors(small), **solvers(small)}
    return found if small else found | stackexchange_tags()


def products(small: bool) -> dict[str, np.ndarray]:
    """Rows and columns of all lengths, and lanes that do not fill a tile; products by scipy."""
    rng = np.random.default_rng(1)
    n, d, lanes = (90, 70, 37) if small else (1500, 1000, 165)
    filled = rng.random((n, d)) < 0.3 * rng.random((n, 1)) ** 3
    filled[[0, 7, n - 1]] = False
    filled[:, [0, 11]] = False
    filled[20, 1:-1] = filled[1:-1, 4] = True
    X = sp.csr_matrix(np.where(filled, rng.normal(size=(n, d)), 0).astype(np.float32))
    V = rng.normal(size=(d, lanes)).astype(np.float32)
    # some rows, and whole tiles of lanes, are inactive
    D = np.where(rng.random((n, lanes)) < 0.05, rng.random((n, lanes)), 0).astype(np.float32)
    D[:, : lanes // 2] *= rng.random((n, 1)) < 0.3
    A, E, U = X.astype(np.float64), D.astype(np.float64), V.astype(np.float64)
    found = {
        "matmat": A @ U,
        "rmatmat": A.T @ E,
        "gram_matmat": A.T @ (E * (A @ U)),
        "squared_rmatmat": A.power(2).T @ E,
    }
    inputs = {"X": X.toarray(), "V": V, "D": D}
    return {f"products/{name}": a for name, a in (inputs | found).items()}


def vectors(small: bool) -> dict[str, np.ndarray]:
    """Projections and losses with derivatives, of standard normal vectors."""
    import jax

    rng = np.random.default_rng(2)
    rows, m = (6, 12) if small else (48, 200)
    inputs = {
        "x": 2 * rng.normal(size=(rows, m)).astype(np.float32),
        "c": rng.normal(size=(rows, m)).astype(np.float32),
        "labels": rng.integers(0, m, rows).astype(np.int32),
    }
    found = {f"vectors/{name}": a for name, a in inputs.items()}
    x, c, labels = inputs["x"].astype(np.float64), inputs["c"].astype(np.float64), inputs["labels"]
    with jax.enable_x64(True):
        few = 2 if small else None
        for name, projection in list(_vectors.projections().items())[:few]:
            p, back = jax.jit(_vectors.with_transposed(projection))(x, c)
            found |= {f"projections/{name}/0": np.asarray(p), f"projections/{name}/1": np.asarray(back)}
        for name, loss in list(_vectors.losses().items())[:few]:
            value, slope = jax.jit(_vectors.with_gradient(loss))(x, labels)
            found |= {f"losses/{name}/0": np.asarray(value), f"losses/{name}/1": np.asarray(slope)}
    return found


def solvers(small: bool) -> dict[str, np.ndarray]:
    """The small data, and objective and answer of each solver with the smallest tolerance."""
    data = _problems.data()
    found = {"solvers/X": data.X.toarray(), "solvers/y": data.y, "solvers/Y": data.Y.toarray()}
    for name, problem in _problems.chosen(small).items():
        answer, value = problem.solve(data.of(np.float64), True)
        found |= {f"solvers/{name}/answer": np.asarray(answer), f"solvers/{name}/value": np.float64(value)}
    return found


def stackexchange_tags() -> dict[str, np.ndarray]:
    """Objectives of a sample of the labels, by Newton's method to a hundredth of the usual gradient."""
    import jax

    from xmcjax.lanes import OneVsAll, train_one_vs_all

    split = _data.load_split("stackexchange_tags")
    labels = _one_vs_all.sample(split.Y, LABELS)
    found = _one_vs_all.Collected(split.Y.shape[1], split.X.shape[1])
    with jax.enable_x64(True):
        how = OneVsAll(tol=1e-4)
        train_one_vs_all(split.X.astype(np.float64), split.Y, how, found, labels=labels)
    return {"stackexchange_tags/labels": labels, "stackexchange_tags/values": found.value[labels]}
