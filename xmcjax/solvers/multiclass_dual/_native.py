"""Dual ascent in the native library: coordinate ascent first, Newton's method where that is slow."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xmcjax.native._multiclass import Ascent, Assessment, CentredAscent, Proximal
from xmcjax.solvers._base import Status
from xmcjax.solvers.multiclass_dual._formulations import FORMULATIONS

# Passes over all instances, the shares of shrunk ones added up, after which Newton's method takes over: where
# its systems are factorised, and where conjugate gradients take a hundred times as long. It keeps a share of
# the epochs that are allowed.
_PATIENCE, _LONG_PATIENCE = 25.0, 5000.0
_NEWTON = 0.2
# Sweeps in a row between two passes over everything.
SWEEPS = 20
# Unknowns of a system that it pays to factorise.
_DIRECT = 1200


def ascend(X, y: np.ndarray, m: int, formulation: str, C: float, **options) -> dict:
    """Solves a problem; arguments as in ``solve``, checked.

    Returns:
        The fields of ``Solution``.
    """
    tol, most = options["tol"], options["max_epochs"]
    problem = (X, y, m, list(FORMULATIONS).index(formulation), C)
    shared = dict(seed=options["seed"], threads=options["threads"])
    # with the mean fixed, dual variables of Lee-Lin-Wahba move an m-th of the way
    point = (CentredAscent if formulation == "llw" else Ascent)(*problem, **shared)
    patience = _patience(formulation, X.shape[1], m, most)
    sweeps, visited, work, shrunk, newton_steps = 0, 0.0, 0.0, 0.0, 0
    while True:
        found = point.assess(tol)
        work += 1
        if found.violation <= tol or visited >= most or work >= patience:
            break
        # half of what is left, or below the tolerance: what was left out is then worth another look
        enough = max(tol / 2, found.violation / 2)
        for _ in range(SWEEPS):
            violation, share = point.sweep(tol, options["shrinking"])
            sweeps, visited, work, shrunk = sweeps + 1, visited + share, work + share, 1 - share
            if violation <= enough or visited >= most or work >= patience:
                break
    if found.violation > tol and visited < most:
        alpha = point.alpha
        point = Proximal(*problem, **shared)
        point.alpha = alpha
        while found.violation > tol and visited + newton_steps < most and point.failures < 4:
            found = point.step(tol)
            newton_steps = point.newton_steps
    ended = dict(epochs=sweeps, newton_steps=newton_steps, shrunk=shrunk)
    return ended | described(point.weights, point.alpha, found, tol, formulation)


def described(W: np.ndarray, alpha: sp.csr_array, found: Assessment, tol: float, formulation: str) -> dict:
    """The fields of ``Solution`` that follow from W, α and how far they are from the optimum."""
    n, m = alpha.shape
    status = Status.CONVERGED if found.violation <= tol else Status.MAX_STEPS
    return dict(
        W=W,
        alpha=alpha,
        primal=found.primal,
        dual=found.dual,
        gap=found.gap,
        violation=found.violation,
        status=status if np.isfinite(found.primal) else Status.NONFINITE,
        density_w=np.count_nonzero(W) / W.size,
        density_alpha=alpha.nnz / (n * (m - (not formulation.startswith("ovr")))),
    )


def canonical(X) -> sp.csr_array:
    """X as CSR of float32 or float64, columns ascending in a row and none twice, without zeros."""
    X = sp.csr_array(X, dtype=X.dtype if X.dtype in (np.float32, np.float64) else np.float32)
    if not (X.has_canonical_format and X.data.all()):
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
    return X


def _patience(formulation: str, d: int, m: int, most: int) -> float:
    if d > _DIRECT:
        return np.inf
    coupled = formulation in ("ww", "cs")
    return min(_LONG_PATIENCE, (1 - _NEWTON) * most) if coupled and m * d > _DIRECT else _PATIENCE
