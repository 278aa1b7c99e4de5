"""The five estimators as the contracts take them: small options, and options that do not converge."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.svm import LinearSVC

import xmcjax


class _Unused(Mapping):
    """Estimators by name, a new one each time: what a test sets is not there in the next one."""

    def __init__(self, made: dict):
        self._made = made

    def __getitem__(self, name: str):
        return clone(self._made[name])

    def __iter__(self):
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


ESTIMATORS = _Unused(
    {
        "OneVsAllClassifier": xmcjax.OneVsAllClassifier(),
        "MulticlassSVC": xmcjax.MulticlassSVC(random_state=0),
        "MultinomialLogisticRegression": xmcjax.MultinomialLogisticRegression(),
        "TopKSVC": xmcjax.TopKSVC(random_state=0),
        "KernelLogisticClassifier": xmcjax.KernelLogisticClassifier(),
    }
)
UNCONVERGED = {name: dict(max_iter=1, tol=1e-9) for name in ESTIMATORS}
UNCONVERGED["OneVsAllClassifier"] |= dict(init="zero")
TIGHT = dict(tol=1e-6, clip=0.0)  # of OneVsAllClassifier


def clusters(n=90, d=4, classes=3, dtype=np.float64, seed=0):
    """Noisy clusters that overlap, and their numbers, which all occur."""
    rng = np.random.default_rng(seed)
    number = np.concatenate([np.arange(classes), rng.integers(0, classes, n - classes)])
    return (rng.normal(size=(n, d)) + 2 * np.eye(d)[number]).astype(dtype), number


def with_ones(X):
    return sp.hstack([sp.csr_array(X), np.ones((X.shape[0], 1))], format="csr")


def linear_svc(X, y, weight=None, **options):
    """(coef_, intercept_) of LinearSVC with a bias as the weight of a feature of value 1, regularised."""
    numbers = dict(dual=False, tol=1e-10, max_iter=1_000_000, fit_intercept=False) | options
    svc = LinearSVC(**numbers).fit(with_ones(X), y, weight)
    return svc.coef_[:, :-1], svc.coef_[:, -1]
