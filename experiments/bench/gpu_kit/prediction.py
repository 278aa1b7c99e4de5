"""The best labels of some rows among up to 1,000,000, with weights that are sent, and that are kept."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from experiments.bench.gpu_kit._kit import Kit

TOP = 5
# PART: the next, larger figure is begun if it is estimated to take at most this part of the time left.
# REPEATS: the number of calls whose median is taken.
PART, REPEATS = 0.8, 3


def run(kit: Kit) -> None:
    """Predicts with more and more labels while time is left; then by both methods of a device with few."""
    rows, features, of_row, of_label = kit.size((2_000, 50_000, 40, 50), (50, 300, 10, 10))
    rng = np.random.default_rng(0)
    X = sparse(rng, rows, features, of_row)
    sizes, rate, few = kit.size((100_000, 1_000_000), (200, 400)), 0.0, None
    for labels in sizes:
        name = f"prediction, {labels} labels"
        if rate * labels > PART * kit.left():
            kit.figure(name, not_run=f"{rate * labels:.0f} s are expected, {kit.left():.0f} s are left")
            break
        with kit.attempt(name):
            begin = time.perf_counter()
            W = sparse(rng, labels, features, of_label)
            _figure(kit, name, X, W)
            few = W if few is None else few
            rate = (time.perf_counter() - begin) / labels
    if kit.on == "device" and few is not None:
        for pairs, way in ((True, "pairs"), (False, "dense weights")):
            name = f"prediction by {way}, {few.shape[0]} labels"
            with kit.attempt(name):
                _way(kit, name, X, few, pairs)


def _figure(kit: Kit, name: str, X: sp.csr_matrix, W: sp.csr_matrix) -> None:
    """A prediction with weights that were never used, and more with the same weights."""
    predict = _on_a_device(None) if kit.on == "device" else _on_the_cores(kit.threads)
    values = {}
    if kit.on == "device":
        # this call compiles, too; the weights are sent anew for each model object
        values["first_seconds"] = _seconds(predict, _model(W), X)
        values["sending_seconds"], values["sent_bytes"] = _sending(W)
    model = _model(W)
    values["seconds"] = _seconds(predict, model, X)
    if kit.on == "cpu":
        from xmcjax.models import Predictor

        # a Predictor keeps the weights on the host
        kept = Predictor(model, n_jobs=kit.threads)

        def predict(model, X):
            return kept.predict_topk(X, TOP)

        predict(model, X)
    values["kept_seconds"] = float(np.median([_seconds(predict, model, X) for _ in range(REPEATS)]))
    labels, scores = predict(model, X)
    kit.figure(
        name,
        rows=X.shape[0],
        labels=W.shape[0],
        weights=int(W.nnz),
        threads=kit.threads if kit.on == "cpu" else 1,
        peak_bytes=_peak(),
        **values,
        **_checked(X, W, labels, scores),
    )


def _way(kit: Kit, name: str, X: sp.csr_matrix, W: sp.csr_matrix, pairs: bool) -> None:
    predict, model = _on_a_device(pairs), _model(W)
    first = _seconds(predict, model, X)
    kept = float(np.median([_seconds(predict, model, X) for _ in range(REPEATS)]))
    labels, scores = predict(model, X)
    checks = _checked(X, W, labels, scores)
    kit.figure(name, labels=W.shape[0], first_seconds=first, kept_seconds=kept, **checks)


def _model(W: sp.csr_matrix):
    from xmcjax.models import ArrayModel

    return ArrayModel(W, np.zeros(W.shape[0], np.float32))


def _on_a_device(pairs: bool | None) -> Callable:
    """The way of `predict_topk` on a device other than a CPU, called directly: a rehearsal has no device."""
    from xmcjax.models import _device_prediction

    def predict(model, X):
        return _device_prediction.topk(model, X, TOP, np.dtype(np.float32), None, None, 1, pairs=pairs)

    return predict


def _on_the_cores(threads: int) -> Callable:
    from xmcjax.models import predict_topk

    return lambda model, X: predict_topk(model, X, TOP, threads=threads)


def _seconds(predict: Callable, model, X) -> float:
    begin = time.perf_counter()
    predict(model, X)
    return time.perf_counter() - begin


def _sending(W: sp.csr_matrix) -> tuple[float, int]:
    """Seconds and bytes of sending weights with their features to the device, and nothing else."""
    import jax

    times = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        jax.block_until_ready(jax.device_put((W.data, W.indices)))
        times.append(time.perf_counter() - begin)
    return float(np.median(times)), W.data.nbytes + W.indices.nbytes


def _peak() -> int | None:
    """The most bytes that the device had in use since the stage began."""
    import jax

    return (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")


def _checked(X: sp.csr_matrix, W: sp.csr_matrix, labels: np.ndarray, scores: np.ndarray) -> dict:
    """Checks a few rows by scipy in float64: the best scores, and the scores of the found labels."""
    exact = (X[:20].astype(np.float64) @ W.T.astype(np.float64)).toarray()
    best = np.sort(exact, axis=1)[:, ::-1][:, :TOP]
    off = float(np.abs(best - scores[:20]).max())
    place = float(np.abs(best - np.take_along_axis(exact, labels[:20], axis=1)).max())
    most = 1e-4 * float(np.abs(exact).max())
    return {"worst_score": off, "worst_place": place, "right": max(off, place) < most}


def sparse(rng: np.random.Generator, n: int, d: int, entries: int) -> sp.csr_matrix:
    """n rows of about `entries` standard normal entries at features of falling frequency."""
    places = (d * rng.random((n, entries)) ** 2).astype(np.int32)
    values = rng.normal(size=n * entries).astype(np.float32)
    X = sp.csr_matrix((values, places.ravel(), np.arange(0, n * entries + 1, entries)), shape=(n, d))
    X.sum_duplicates()
    return X
