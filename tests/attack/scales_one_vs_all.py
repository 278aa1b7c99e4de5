"""One-vs-all classifiers with any C, any size of the features, in both precisions, with every margin loss."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import scipy.sparse as sp

from tests.attack._primal_references import Problem, margin_loss
from tests.attack.harness import Wrong, main
from tests.attack.scales import prepare  # noqa: F401

PURPOSE = "C, scales of features, precisions: a label that is said to have converged is at its minimum"
LOSSES = ("squared_hinge", "logistic", "huber_hinge")
BIASES = {"regularised": 1.0, "free": 0.0, "none": None}  # and the weight of their penalty
INITS = ("mean_separating", "zero", "bias", "ova_primal")


def case(problems, rng):
    """A fit, and the objective of each label against the minimum, found by Newton's method."""
    from sklearn.exceptions import ConvergenceWarning

    from xmcjax import OneVsAllClassifier
    from xmcjax.lanes._certificate import GAP
    from xmcjax.losses import HuberHinge
    from xmcjax.solvers import REMEDY, Status

    X, y = problems[rng.integers(len(problems))]
    X = X * 10.0 ** rng.integers(-8, 9)
    if rng.random() < 0.3:
        X[:, rng.integers(X.shape[1])] *= 10.0 ** rng.integers(-8, 9)
    X = X.astype(rng.choice([np.float32, np.float64]))
    loss, bias = str(rng.choice(LOSSES)), str(rng.choice(list(BIASES)))
    C, eps, delta = 10.0 ** rng.integers(-8, 9), 10.0 ** rng.integers(-4, 1), 10.0 ** rng.integers(-1, 2)
    model = OneVsAllClassifier(
        HuberHinge(float(delta)) if loss == "huber_hinge" else loss,
        str(rng.choice(INITS[:2] if bias == "none" else INITS)),
        C=C,
        eps=eps,
        clip=0,
        fit_intercept=bias != "none",
        regularise_intercept=bias == "regularised",
    )
    how = f"{model!r} on X of {X.dtype}, largest entry {np.abs(X).max():.3g}"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(sp.csr_matrix(X) if rng.random() < 0.5 else X, y)
        except ValueError as refusal:
            if "\n" in str(refusal):
                raise Wrong(f"{how}: refused by more than a line: {refusal}") from None
            return "refused"
    said = [str(w.message) for w in caught]
    if any(not issubclass(w.category, ConvergenceWarning) for w in caught):
        raise Wrong(f"{how}: warns of {said}")
    if not np.isfinite(model.coef_).all() or np.isnan(model.intercept_).any():
        raise Wrong(f"{how}: weights that are not finite, and {said or 'no warning'}")
    problem = Problem(X.astype(np.float64), BIASES[bias], 1.0)
    for k, status in enumerate(model.status_):
        if status != Status.CONVERGED:
            if not any(REMEDY[Status(status)] in text for text in said):
                raise Wrong(f"{how}: class {k} ended with {Status(status).name}, and {said or 'no warning'}")
            continue
        functions = margin_loss(loss, np.where(y == k, 1, -1), C, delta)
        weights = problem.point(model.coef_[k : k + 1].T, None if bias == "none" else model.intercept_[k])
        value, least = problem.objective(weights, *functions), problem.minimum(*functions, 1)
        if not value - least <= 1.01 * GAP * value:
            raise Wrong(f"{how}: class {k} converged at {value:.9g}, the minimum is {least:.9g} at most")
    return "warned" if said else "right"


if __name__ == "__main__":
    sys.exit(main(__spec__))
