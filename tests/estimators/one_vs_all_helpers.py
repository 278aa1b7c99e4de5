"""One-vs-all problems that scikit-learn solves."""

import numpy as np
import scipy.sparse as sp
from sklearn.svm import LinearSVC

TIGHT = dict(tol=1e-6, clip=0.0)


def with_ones(X):
    return sp.hstack([sp.csr_array(X), np.ones((X.shape[0], 1))], format="csr")


def reference(X, y, weight=None, C=1.0):
    """LinearSVC with a bias as the weight of a feature of value 1, regularised."""
    svc = LinearSVC(C=C, dual=False, tol=1e-10, max_iter=100000, fit_intercept=False)
    svc.fit(with_ones(X), y, weight)
    return svc.coef_[:, :-1], svc.coef_[:, -1]
