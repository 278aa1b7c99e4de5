"""Multinomial regression with any λ, features of any size, both precisions, every method; see harness.py."""

from __future__ import annotations

import sys

import numpy as np
import scipy.sparse as sp

from tests.attack import _checked_fit
from tests.attack.harness import Wrong, main
from tests.attack.scales import prepare  # noqa: F401
from tests.support.primal_references import Problem, softmax

PURPOSE = "λ, scales of features, precisions: what is said to have converged is within tol of the minimum"
METHODS = ("auto", "newton", "dual", "lbfgs", "lc", "lc_extrapolated", "admm")


def case(problems, rng):
    """A fit, and its objective against the minimum, found by Newton's method in scaled variables."""
    X, y = problems[rng.integers(len(problems))]
    X = _checked_fit.sized(X, rng)
    model, excess = _multinomial(rng)
    how = _checked_fit.description(model, X)
    said = _checked_fit.fit(model, sp.csr_matrix(X) if rng.random() < 0.5 else X, y, how)
    if said is None:
        return "refused"
    with np.errstate(over="ignore", invalid="ignore"):
        found = excess(model, X.astype(np.float64), y)
    if not all(np.isfinite(value) for value, _, _ in found):
        raise Wrong(f"{how}: weights that are not finite, and {said or 'no warning'}")
    if said:
        if not any(
            "raise" in text or "loosen" in text or "scale" in text or "look for" in text for text in said
        ):
            raise Wrong(f"{how}: no remedy in {said}")
        return "warned"
    for value, least, tol in found:
        if value - least > 1.01 * tol * abs(value) + 1e-13 * abs(value):
            raise Wrong(f"{how}: converged at {value:.9g}, the minimum is {least:.9g} at most")
    return "right"


def _multinomial(rng):
    from xmcjax import MultinomialLogisticRegression

    lam, intercept = 10.0 ** rng.integers(-14, 9), bool(rng.random() < 0.5)
    model = MultinomialLogisticRegression(
        str(rng.choice(METHODS)), C=1 / lam, fit_intercept=intercept, tol=10.0 ** rng.integers(-6, -1)
    )

    def excess(model, X, y):
        problem = Problem(X, 0.0 if intercept else None, lam)
        point = problem.point(model.coef_.T, model.intercept_ if intercept else None)
        return [(problem.objective(point, *softmax(y)), problem.minimum(*softmax(y), y.max() + 1), model.tol)]

    return model, excess


if __name__ == "__main__":
    sys.exit(main(__spec__))
