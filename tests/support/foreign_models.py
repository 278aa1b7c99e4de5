"""Small models of dense weights, for the exchange with other programs."""

from __future__ import annotations

import importlib.util

import numpy as np

from xmcjax.models import LinearModel, ShardWriter, predict_topk
from xmcjax.solvers import Status

D = 6
HAS_ONNX = importlib.util.find_spec("onnx") is not None
_RNG = np.random.default_rng(0)
ROWS = np.where(_RNG.random((50, D)) < 0.6, _RNG.standard_normal((50, D)), 0)


def random_weights() -> tuple[np.ndarray, np.ndarray]:
    """Weights [5, D] and biases [5], float32."""
    rng = np.random.default_rng(1)
    W = np.where(rng.random((5, D)) < 0.7, rng.standard_normal((5, D)), 0).astype(np.float32)
    return W, rng.standard_normal(5).astype(np.float32)


def model_of(directory, W, bias, *, names=None, status=None, **more) -> LinearModel:
    """A stored model of dense weights [L, d]."""
    W = np.asarray(W)
    meta = dict(n_features=W.shape[1], n_labels=len(W), dtype=W.dtype.name, transforms=[]) | more
    arrays = meta.pop("arrays", None)
    with ShardWriter(directory, meta, names=names, transforms_arrays=arrays) as writer:
        for label, row in enumerate(W):
            stored = np.flatnonzero(row)
            state = Status.CONVERGED if status is None else status[label]
            writer.add(label, stored, row[stored], float(bias[label]), state)
    return LinearModel.load(directory)


def best(model, X) -> np.ndarray:
    """The class with the largest score of each row."""
    labels = predict_topk(model, X.astype(model.dtype), 1)[0][:, 0]
    classes = model.names().classes
    return labels if classes is None else classes[labels]
