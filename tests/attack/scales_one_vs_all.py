"""One-vs-all classifiers with any C, any size of the features, in both precisions, with every margin loss."""

from __future__ import annotations

import sys

import numpy as np
import scipy.sparse as sp

from tests.attack import _checked_fit
from tests.attack.harness import Wrong, main
from tests.attack.scales import prepare  # noqa: F401
from tests.support.primal_references import Problem, margin_loss

PURPOSE = "C, scales of features, precisions: a label that is said to have converged is at its minimum"
LOSSES = ("squared_hinge", "logistic", "huber_hinge", "hinge")
WIDTH = 1e-3  # the hinge is above the Huber hinge of this width by half of it at most
GAP = 5e-3  # of the value, which docs/reference/promises.md names
BIASES = {"regularised": 1.0, "free": 0.0, "none": None}  # and the weight of their penalty
INITS = ("mean_separating", "zero", "bias", "ova_primal")


def case(problems, rng):
    """A fit, and the objective of each label against the minimum, found by Newton's method."""
    from xmcjax import OneVsAllClassifier
    from xmcjax.losses import HuberHinge
    from xmcjax.solvers import Status

    X, y = problems[rng.integers(len(problems))]
    X = _checked_fit.sized(X, rng)
    loss, bias = str(rng.choice(LOSSES)), str(rng.choice(list(BIASES)))
    if loss == "hinge" and bias == "free":
        bias = "regularised"
    C, eps, delta = 10.0 ** rng.integers(-8, 9), 10.0 ** rng.integers(-4, 1), 10.0 ** rng.integers(-1, 2)
    model = OneVsAllClassifier(
        HuberHinge(float(delta)) if loss == "huber_hinge" else loss,
        str(rng.choice(INITS[:1] if loss == "hinge" else INITS[:2] if bias == "none" else INITS)),
        C=C,
        tol=eps,
        clip=0,
        fit_intercept=bias != "none",
        regularise_intercept=bias == "regularised",
    )
    how = _checked_fit.description(model, X)
    said = _checked_fit.fit(model, sp.csr_matrix(X) if rng.random() < 0.5 else X, y, how)
    if said is None:
        return "refused"
    if not np.isfinite(model.coef_).all() or np.isnan(model.intercept_).any():
        raise Wrong(f"{how}: weights that are not finite, and {said or 'no warning'}")
    problem = Problem(X.astype(np.float64), BIASES[bias], 1.0)
    for k, status in enumerate(model.status_):
        if status != Status.CONVERGED:
            if not any(Status(status).remedy(X.dtype) in text for text in said):
                raise Wrong(f"{how}: class {k} ended with {Status(status).name}, and {said or 'no warning'}")
            continue
        signs = np.where(y == k, 1, -1)
        functions = margin_loss(loss, signs, C, delta)
        weights = problem.point(model.coef_[k : k + 1].T, None if bias == "none" else model.intercept_[k])
        value = problem.objective(weights, *functions)
        if loss == "hinge":
            least = problem.minimum(*margin_loss("huber_hinge", signs, C, WIDTH), 1) + C * len(y) * WIDTH / 2
        else:
            least = problem.minimum(*functions, 1)
        if not value - least <= 1.01 * GAP * value:
            raise Wrong(f"{how}: class {k} converged at {value:.9g}, the minimum is {least:.9g} at most")
    return "warned" if said else "right"


if __name__ == "__main__":
    sys.exit(main(__spec__))
