"""Small problems for every solver, with their objectives also written in numpy and float64.

A problem is a function ``(data, exact) -> (weights or scores, objective)``. It solves in the dtype of
``data.X``; `exact` asks for the smallest tolerance, for the reference in float64.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

# Largest |f/f* − 1| of an objective, with the usual tolerances of the solvers.
TOLERANCE = 2e-3
LAM, C = 0.5, 1.0


class Data(NamedTuple):
    """The data of a small problem: sparse features, and a class and labels for each row."""

    X: sp.csr_matrix
    y: np.ndarray
    Y: sp.csr_matrix

    def of(self, dtype) -> Data:
        """The data with features of another dtype."""
        return self._replace(X=self.X.astype(dtype))


def chosen(small: bool) -> dict[str, Problem]:
    """All problems, or those of a rehearsal."""
    return {name: problem for name, problem in PROBLEMS.items() if problem.small or not small}


def data(rows: int = 120, features: int = 60, classes: int = 6) -> Data:
    """The data, always drawn from the same seed: float32 features, rows of norm 1."""
    rng = np.random.default_rng(25)
    y = np.arange(rows) % classes
    centres = rng.normal(size=(classes, features))
    dense = (rng.normal(size=(rows, features)) + centres[y]) * (rng.random((rows, features)) < 0.3)
    dense[:, 0] += 1e-3  # so that no row is empty
    dense /= np.linalg.norm(dense, axis=1, keepdims=True)
    labels = (np.arange(classes) == y[:, None]) | (rng.random((rows, classes)) < 0.1)
    return Data(sp.csr_matrix(dense.astype(np.float32)), y, sp.csr_matrix(labels.astype(np.float32)))


def _one_vs_all(d: Data, exact: bool, *, loss: str, dense: bool = False, penalty: str = "l2"):
    """½‖w‖² + ½b² + C Σ φ(y (w·x + b)), or ‖w‖₁ in place of the first term, summed over the labels."""
    from experiments._one_vs_all import Collected
    from xmcjax.lanes import OneVsAll, precision, train_one_vs_all
    from xmcjax.losses import MARGIN_LOSSES
    from xmcjax.penalties import PENALTIES

    how = OneVsAll(loss=MARGIN_LOSSES[loss], C=C, clip=0.0, penalty=PENALTIES[penalty]())
    if exact:
        how = _exact(how)
    X = d.X.toarray() if dense else d.X
    found = Collected(d.Y.shape[1], d.X.shape[1])
    with precision(d.X.dtype):
        train_one_vs_all(X, d.Y, how, found)
    W, b = found.weights().toarray().astype(np.float64), found.bias.astype(np.float64)
    m = np.where(d.Y.toarray() > 0, 1.0, -1.0) * (d.X.astype(np.float64) @ W.T + b)
    phi = {"squared_hinge": np.maximum(0, 1 - m) ** 2, "logistic": np.logaddexp(0, -m)}[loss]
    of_w = np.abs(W).sum() if penalty == "l1" else 0.5 * (W**2).sum()
    return np.column_stack([W, b]), of_w + 0.5 * (b**2).sum() + C * phi.sum()


def _exact(how):
    """The same options with the smallest tolerance."""
    return dataclasses.replace(how, tol=1e-8, max_iter=1000)


def _multiclass_svc(d: Data, exact: bool, *, formulation: str):
    """½‖W‖² + C Σ loss, see :class:`xmcjax.MulticlassSVC`."""
    from xmcjax import MulticlassSVC

    model = MulticlassSVC(
        formulation, C=C, tol=1e-7 if exact else 1e-3, max_iter=100_000 if exact else 3000, random_state=0
    )
    W = model.fit(d.X, d.y).coef_.astype(np.float64)
    z = d.X.astype(np.float64) @ W.T
    own = np.arange(z.shape[1]) == d.y[:, None]
    margin = np.where(own, -np.inf, 1 + z - (z * own).sum(axis=1, keepdims=True))
    signed = np.maximum(0, 1 - np.where(own, z, -z))
    losses = {
        "ww": np.maximum(0, margin).sum(),
        "cs": np.maximum(0, margin.max(axis=1)).sum(),
        "llw": np.where(own, 0, np.maximum(0, 1 + z)).sum(),
        "ovr": signed.sum(),
        "ovr_squared": (signed**2).sum(),
    }
    return W, 0.5 * (W**2).sum() + C * losses[formulation]


def _topk_svc(d: Data, exact: bool, *, variant: str, form: str, k: int = 2):
    """½‖W‖² + C Σ φ of the k largest margins, see :class:`xmcjax.TopKSVC`."""
    from xmcjax import TopKSVC

    kernel = "precomputed" if form == "gram" else "linear"
    model = TopKSVC(k, variant, C, kernel=kernel, random_state=0, tol=1e-3)
    if exact:
        model.set_params(tol=1e-9, max_iter=100_000)
    dense = d.X.toarray()
    X = {"sparse": d.X, "dense": dense, "gram": dense @ dense.T}[form]
    found = model.fit(X, d.y).coef_.astype(np.float64)
    X = d.X.toarray().astype(np.float64)
    W = found @ X if form == "gram" else found
    z = X @ W.T
    own = np.arange(z.shape[1]) == d.y[:, None]
    margin = np.sort(np.where(own, -np.inf, 1 + z - (z * own).sum(axis=1, keepdims=True)))[:, -k:]
    phi = np.maximum(0, margin.mean(axis=1)) if variant == "alpha" else np.maximum(0, margin).mean(axis=1)
    return found, 0.5 * (W**2).sum() + C * phi.sum()


def _multinomial(d: Data, exact: bool, *, method: str, dense: bool = False):
    """λ/2 ‖W‖² + Σ (log Σ exp z − z_y)."""
    from xmcjax import MultinomialLogisticRegression

    tol = 1e-9 if exact else 1e-4
    model = MultinomialLogisticRegression(method, C=1 / LAM, fit_intercept=False, tol=tol, max_iter=20_000)
    W = model.fit(d.X.toarray() if dense else d.X, d.y).coef_.astype(np.float64)
    z = d.X.astype(np.float64) @ W.T
    loss = np.logaddexp.reduce(z, axis=1) - z[np.arange(len(z)), d.y]
    return W, LAM / 2 * (W**2).sum() + loss.sum()


def _kernel(d: Data, exact: bool, *, rank: int | None = None, search: bool = False):
    """The minimum of the fit, or Ψ after two iterations of a search."""
    from xmcjax import KernelLogisticClassifier

    tol = 1e-11 if exact else 1e-5
    model = KernelLogisticClassifier(v=5.0, w=60.0, tol=tol, rank=rank, random_state=0)
    X = d.X.toarray()
    if search:
        model.tune(X, d.y, np.arange(len(d.y)) % 3, share="all", max_iter=2)
        return model.decision_function(X), model.criterion_
    model.fit(X, d.y)
    return model.decision_function(X), model.objective_


class Problem(NamedTuple):
    """A solver on the small data."""

    solve: Callable
    small: bool = False  #: whether a rehearsal has it too


def _table() -> dict[str, Problem]:
    of = functools.partial
    table = {
        "one-vs-all, squared hinge, sparse": Problem(of(_one_vs_all, loss="squared_hinge"), True),
        "one-vs-all, squared hinge, dense": Problem(of(_one_vs_all, loss="squared_hinge", dense=True)),
        "one-vs-all, logistic": Problem(of(_one_vs_all, loss="logistic")),
        "one-vs-all, l1": Problem(of(_one_vs_all, loss="squared_hinge", penalty="l1")),
        "multinomial, auto, dense": Problem(of(_multinomial, method="auto", dense=True)),
    }
    for method in ("auto", "newton", "lbfgs", "lc", "lc_extrapolated", "admm", "dm"):
        table[f"multinomial, {method}"] = Problem(of(_multinomial, method=method), method == "newton")
    table["kernel multinomial"] = Problem(_kernel)
    table["kernel multinomial, rank 20"] = Problem(of(_kernel, rank=20))
    table["kernel search"] = Problem(of(_kernel, search=True))
    for form in ("sparse", "dense", "gram"):
        for variant in ("alpha", "beta"):
            table[f"top-k {variant}, {form}"] = Problem(
                of(_topk_svc, variant=variant, form=form), (variant, form) == ("alpha", "dense")
            )
    for formulation in ("ww", "cs", "llw", "ovr", "ovr_squared"):
        table[f"multi-class SVM, {formulation}"] = Problem(of(_multiclass_svc, formulation=formulation))
    return table


PROBLEMS = _table()
