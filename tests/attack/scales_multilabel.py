"""The multi-label SVM with any C, any size of the features, in both precisions; see harness.py."""

from __future__ import annotations

import sys

import numpy as np
import scipy.sparse as sp

from tests.attack import _checked_fit
from tests.attack.harness import Wrong, main
from tests.support import dual_references as reference

PURPOSE = "C, scales of features, precisions: what is said to have converged is within tol of the minimum"


def prepare(folder):
    """Small problems, X [n, d] and label matrices; rows have none to all labels."""
    rng = np.random.default_rng(0)
    problems = []
    for n, d, m, noise in ((18, 3, 4, 1.0), (25, 6, 5, 0.3), (20, 2, 3, 3.0), (15, 8, 6, 0.0)):
        X = rng.normal(size=(n, d))
        Y = X @ rng.normal(size=(d, m)) + noise * rng.normal(size=(n, m)) > 0.5
        X[rng.random((n, d)) < 0.2] = 0
        Y[0], Y[1], Y[2, 0], Y[2, 1] = False, True, True, False
        problems.append((X, Y))
    return problems


def case(problems, rng):
    """A fit, and its objective against the dual objective of another one to a smaller gap, in NumPy."""
    from xmcjax import MulticlassSVC
    from xmcjax.solvers import multiclass_dual

    X, Y = problems[rng.integers(len(problems))]
    C = 10.0 ** rng.integers(-8, 9)
    X, intercept = _checked_fit.sized(X, rng), bool(rng.random() < 0.3)
    tol = 10.0 ** rng.integers(-5, -1)
    model = MulticlassSVC("cs", C=C, tol=tol, fit_intercept=intercept, random_state=0)
    how = _checked_fit.description(model, X)
    said = _checked_fit.fit(model, sp.csr_array(X) if rng.random() < 0.5 else X, Y.astype(int), how)
    if said is None:
        return "refused"
    W, bias = model.coef_.astype(np.float64).T, model.intercept_.astype(np.float64)
    if not (np.isfinite(W).all() and np.isfinite(bias).all()):
        raise Wrong(f"{how}: weights that are not finite, and {said or 'no warning'}")
    features = X.astype(np.float64)
    if intercept:
        W, features = np.vstack([W, bias]), np.hstack([features, np.ones((len(X), 1))])
    if said:
        if not any("raise" in text or "scale" in text for text in said):
            raise Wrong(f"{how}: no remedy in {said}")
        return "warned"
    value = reference.multilabel_objective(W, features, Y, C)
    other = multiclass_dual.run_multilabel(features, Y, C=C, tol=tol / 20)
    least = reference.multilabel_dual(other.alpha.toarray(), features, Y, C)
    if not value - least <= 1.05 * tol * abs(value) + 1e-300:
        if value <= other.primal:
            return "not decided"
        raise Wrong(f"{how}: converged at {value:.9g}, and {other.primal:.9g} is less")
    return "right"


if __name__ == "__main__":
    sys.exit(main(__spec__))
