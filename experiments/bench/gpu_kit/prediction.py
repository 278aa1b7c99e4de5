"""The best labels of some rows among up to 1,000,000, with weights in memory."""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse as sp

from experiments.bench.gpu_kit._kit import Kit

TOP = 5
# Part of the time left that the next, larger figure may be reckoned to take.
PART = 0.8


def run(kit: Kit) -> None:
    """More and more labels, as far as the time goes."""
    from xmcjax.models import ArrayModel, predict_topk

    rows, features, of_row, of_label = kit.size((2_000, 50_000, 40, 50), (50, 300, 10, 10))
    rng = np.random.default_rng(0)
    X = _sparse(rng, rows, features, of_row)
    threads = kit.threads if kit.on == "cpu" else 1
    rate = 0.0
    for labels in kit.size((10_000, 100_000, 1_000_000), (200, 400)):
        if rate * labels > PART * kit.left():
            return
        with kit.attempt(f"prediction, {labels} labels"):
            W = _sparse(rng, labels, features, of_label)
            model = ArrayModel(W, np.zeros(labels, np.float32))
            if not rate:
                predict_topk(model, X, TOP, threads=threads)  # compiles
            begin = time.perf_counter()
            _, scores = predict_topk(model, X, TOP, threads=threads)
            seconds = time.perf_counter() - begin
            # a few rows again, by scipy in float64
            exact = (X[:20].astype(np.float64) @ W.T.astype(np.float64)).toarray()
            off = float(np.abs(np.sort(exact, axis=1)[:, ::-1][:, :TOP] - scores[:20]).max())
            rate = seconds / labels
            kit.figure(
                f"prediction, {labels} labels",
                rows=rows,
                seconds=seconds,
                labels=labels,
                threads=threads,
                worst_score=off,
                right=off < 1e-4 * float(np.abs(exact).max()),
            )


def _sparse(rng: np.random.Generator, n: int, d: int, entries: int) -> sp.csr_matrix:
    """n rows of about so many standard normal entries at places whose frequency falls."""
    places = (d * rng.random((n, entries)) ** 2).astype(np.int32)
    values = rng.normal(size=n * entries).astype(np.float32)
    X = sp.csr_matrix((values, places.ravel(), np.arange(0, n * entries + 1, entries)), shape=(n, d))
    X.sum_duplicates()
    return X
