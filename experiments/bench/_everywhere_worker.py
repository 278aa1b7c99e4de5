"""The works of :mod:`experiments.bench.everywhere`: those of the library, and those of its peers.

They include the works of :mod:`experiments.bench._version_worker`, whose protocol is used. A peer that does
only a part of a work reports how long the whole would take.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from experiments import _multinomial, _one_vs_all
from experiments.bench import _version_worker, _worker, single_rows
from experiments.bench._version_worker import Timed
from xmcjax.cli._environment import native_isa

# How many rows scipy multiplies at a time.
_ROWS = 1000


def linear_svc(X, Y, sample: int) -> Callable:
    """Trains LinearSVC (primal) for one label after the other of a sample."""
    labels, every = _one_vs_all.sample(Y, sample), _one_vs_all.sample(Y, 0)
    features, Y = _one_vs_all.features(X, "published"), sp.csc_matrix(Y)

    def work():
        begin = time.process_time()
        W = _worker.fitted_linear_svc(features, Y, labels)
        return Timed(float(abs(W).sum()), (time.process_time() - begin) * len(every) / len(labels))

    return work


def multinomial_to_gap(X, y, program: str, lam: float, dtype: str, target: float, gap: float) -> Callable:
    """A program of experiments._multinomial until G is at most `target`."""
    request = _multinomial.Request("", lam, program, dtype, target=target, tolerance=gap, limit=100.0)

    def work():
        import jax

        with jax.enable_x64(dtype == "float64"):
            found = _multinomial.traced(request, X.astype(dtype), y.astype(np.int32))
        return Timed(found["value"][-1], found["seconds"][-1])

    return work


def liblinear(X, y, **options) -> Callable:
    """LinearSVC without a bias."""
    from sklearn.svm import LinearSVC

    svc = LinearSVC(fit_intercept=False, random_state=0, max_iter=100_000, **options)
    return lambda: abs(svc.fit(X, y).coef_).sum()


def gaussian_processes(X, y, v: float) -> Callable:
    """One-vs-rest Gaussian processes, with the kernel that KernelLogisticClassifier takes by default.

    The function of one class against the rest has twice the variance of a function of the softmax.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    X = X.astype(np.float64)
    kernel = ConstantKernel(2 * v) * RBF(float(np.sqrt(X.var(axis=0).sum())))

    def work():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = GaussianProcessClassifier(kernel, optimizer=None, multi_class="one_vs_rest").fit(X, y)
        return sum(one.log_marginal_likelihood_value_ for one in model.base_estimator_.estimators_)

    return work


def rows_one_by_one(X, model, program: str) -> Callable:
    """The best labels of each row, one row per call; a model is [weights, biases], [L, d+1]."""
    predict = single_rows.programs(*_parts(model))[program]
    rows = [X[i : i + 1] for i in range(X.shape[0])]
    return lambda: sum(int(predict(row)[0]) for row in rows)


def rows_at_once(X, model, program: str) -> Callable:
    """The best labels of all rows."""
    coef, bias = _parts(model)

    def ours():
        from xmcjax.models import ArrayModel, predict_topk

        return predict_topk(ArrayModel(coef, bias), X, single_rows.TOP)[0][:, 0].sum()

    by_feature = sp.csr_matrix(coef.T)

    def scipys():
        parts = (X[first : first + _ROWS] for first in range(0, X.shape[0], _ROWS))
        return sum(single_rows.best_labels(part @ by_feature, bias)[:, 0].sum() for part in parts)

    return {"xmcjax": ours, "scipy": scipys}[program]


def _parts(model):
    coef = sp.csr_matrix(model[:, :-1]) if sp.issparse(model) else model[:, :-1]
    bias = model[:, -1].toarray() if sp.issparse(model) else model[:, -1]
    return coef, np.ascontiguousarray(bias, np.float32).ravel()


KINDS = {
    **_version_worker.KINDS,
    **{
        f.__name__: f
        for f in (
            *(linear_svc, multinomial_to_gap, liblinear),
            *(gaussian_processes, rows_one_by_one, rows_at_once),
        )
    },
}

if __name__ == "__main__":
    _version_worker.main(KINDS, isa=native_isa())
