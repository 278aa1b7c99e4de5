"""Long fits, each interrupted by SIGINT; after the first and the last, small fits must come out right."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time

import jax
import numpy as np
import scipy.sparse as sp

from xmcjax import estimators, linops
from xmcjax.penalties import L1
from xmcjax.solvers import admm, multiclass_dual, topk_sdca

#: Seconds of work before the signal.
WAIT = 1.5


def features(n, d, classes=40, seed=0):
    """Dense features without order in them, and classes."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)).astype(np.float32), rng.integers(0, classes, n).astype(np.int32)


def one_vs_all(n, d, **options):
    X, y = features(n, d)
    hard = dict(C=1e6, tol=1e-9, max_iter=1000, clip=0.0)
    return estimators.OneVsAllClassifier(**{"loss": "logistic", "n_jobs": 1} | hard | options).fit(
        sp.csr_matrix(X), y
    )


def multiclass(n, d, classes=40, sparse=True, C=1e4, **options):
    X, y = features(n, d, classes)
    X = sp.csr_matrix(X) if sparse else X
    return multiclass_dual.run(X, y, C=C, tol=1e-9, max_epochs=10**6, **options)


def texts(n, d, classes, words):
    """Lee-Lin-Wahba where each row has a few of many features, the first ones in many rows."""
    rng = np.random.default_rng(0)
    column = np.minimum(rng.zipf(1.3, n * words) - 1, d - 1)
    value, row = rng.uniform(0.5, 1.5, n * words).astype(np.float32), np.repeat(np.arange(n), words)
    X, y = sp.csr_matrix((value, (row, column)), shape=(n, d)), rng.permutation(np.arange(n) % classes)
    return multiclass_dual.run(X, y, formulation="llw", C=1e4, tol=1e-9, max_epochs=10**6)


def multinomial(n, d, sparse, **options):
    X, y = features(n, d)
    estimator = estimators.MultinomialLogisticRegression(C=1e8, tol=1e-13, max_iter=10**6, **options)
    return estimator.fit(sp.csr_matrix(X) if sparse else X, y)


def top_k(n, d, sparse):
    X, y = features(n, d)
    op = linops.make(sp.csr_matrix(X) if sparse else X)
    problem = topk_sdca.problem(op, y, k=3, C=1e4)
    hp = topk_sdca.HParams(tol=1e-12, max_epochs=10**6)
    return topk_sdca.run(problem, hp, topk_sdca.init(problem, jax.random.key(0)))


def lanes_of_steps(n, d, **options):
    """Steps for all rows at once in plain JAX, of two lanes."""
    X, y = features(n, d)
    problem = admm.problem(linops.make(X), y, C=[1e3, 1e4], **options)
    return admm.run(problem, admm.HParams(0.0, 10**6), admm.init(problem))


def kernel(n):
    X, y = features(n, 20)
    return estimators.KernelLogisticClassifier(v=1e6, tol=1e-12, max_iter=10**6).fit(X, y)


CASES = {
    "one-vs-all": lambda: one_vs_all(4000, 1500),
    "one-vs-all on two threads": lambda: one_vs_all(4000, 1500, n_jobs=2),
    "one-vs-all with l1": lambda: one_vs_all(4000, 1500, penalty="l1", C=100.0),
    "Weston-Watkins": lambda: multiclass(4000, 300, formulation="ww"),
    "Weston-Watkins on two threads": lambda: multiclass(4000, 300, formulation="ww", threads=2),
    "Crammer-Singer": lambda: multiclass(4000, 300, formulation="cs"),
    "one against the rest": lambda: multiclass(4000, 1300, formulation="ovr"),
    "Lee-Lin-Wahba": lambda: multiclass(4000, 1300, formulation="llw"),
    "Lee-Lin-Wahba by Newton": lambda: multiclass(40000, 60, 40, formulation="llw"),
    "Lee-Lin-Wahba by ADMM": lambda: multiclass(2500, 1900, 4, False, formulation="llw"),
    "Lee-Lin-Wahba on texts": lambda: texts(20000, 8000, 60, 6),
    "Weston-Watkins in JAX": lambda: multiclass(300, 30, sparse=False, formulation="ww", backend="dense"),
    "multinomial, dual": lambda: multinomial(8000, 800, True, solver="dual"),
    "multinomial, newton": lambda: multinomial(8000, 800, True, solver="newton"),
    "multinomial, block_newton": lambda: multinomial(8000, 800, True, solver="block_newton"),
    "multinomial, block_newton, dense": lambda: multinomial(8000, 1500, False, solver="block_newton"),
    "multinomial, dense": lambda: multinomial(4000, 800, False, solver="newton"),
    "multinomial, lc": lambda: multinomial(4000, 800, True, solver="lc"),
    "top-k": lambda: top_k(8000, 1000, False),
    "top-k, sparse": lambda: top_k(8000, 1000, True),
    "ADMM in JAX": lambda: lanes_of_steps(4000, 200, formulation="cs"),
    "kernel": lambda: kernel(2500),
}


def small():
    """Fits of a second that come out the same every time."""
    X, y = features(200, 20, 4)
    X = sp.csr_matrix(X)
    one = estimators.OneVsAllClassifier(n_jobs=1).fit(X, y).decision_function(X)
    penalised = estimators.OneVsAllClassifier(n_jobs=1, penalty=L1.name).fit(X, y).decision_function(X)
    machine = multiclass_dual.run(X, y, formulation="llw").W
    model = estimators.MultinomialLogisticRegression().fit(X, y).decision_function(X)
    return one, penalised, machine, model


def main(names):
    """Prints a line for each case: its name, and the seconds from the signal to the exception."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    expected = small()
    for name in names:
        sent = []

        def send(sent=sent):
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        # Python drops what a signal handler raises within a __del__, such as those of an earlier case's bars,
        # and within a function that is called while it collects garbage, such as JAX's
        gc.collect()
        gc.disable()
        timer = threading.Timer(WAIT, send)
        timer.start()
        begin = time.monotonic()
        try:
            CASES[name]()
            print(f"{name}: ended by itself after {time.monotonic() - begin:.1f} s", flush=True)
        except KeyboardInterrupt:
            print(f"{name}: {time.monotonic() - sent[0]:.2f} s", flush=True)
        gc.enable()
        timer.cancel()
        if name in (names[0], names[-1]):
            for a, b in zip(expected, small(), strict=True):
                np.testing.assert_array_equal(a, b)
