"""The losses in a network, on a set that needs no files."""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from experiments import _data
from experiments.papers.p004 import network
from experiments.papers.p004.network import LOSSES, accuracies, init, scores
from xmcjax.metrics import topk_accuracy


def test_small(tmp_path):
    chosen = dataclasses.replace(network.Options(small=True).chosen(), out=tmp_path)
    options = dataclasses.replace(chosen, losses=("smooth top-5 hinge, alpha",), rates=(0.01,))
    with jax.numpy_dtype_promotion("standard"):  # optax promotes
        result = network.run(options)
    stored = json.loads((tmp_path / "p004_network.json").read_text())
    for loss in options.losses:
        found = stored["sets"]["digits"][loss]
        assert found == result["sets"]["digits"][loss]
        assert len(found["top-1"]["test"]) == 2 and found["top-1"]["rates"] == [0.01, 0.01]
        assert found["top-5"]["mean"] > 90
    assert "| smooth top-5 hinge, alpha |" in (tmp_path / "p004_network.md").read_text()
    assert stored["made"] == result["made"] and stored["made"][0]["commit"]


def test_a_loss_that_is_trained_is_not_trained_again(tmp_path, monkeypatch):
    asked = []

    def run_loss(parts, d, m, loss, options):
        asked.append((loss, d, m))
        return {f"top-{top}": {"test": [1.0], "mean": 1.0, "sd": 0.0} for top in network.TOPS}

    monkeypatch.setattr(network, "run_loss", run_loss)
    options = dataclasses.replace(network.Options(small=True).chosen(), out=tmp_path, losses=("softmax",))
    first = network.run(options)
    more = dataclasses.replace(options, losses=("softmax", "top-5 entropy"))
    both = network.run(more)
    assert asked == [("softmax", 64, 10), ("top-5 entropy", 64, 10)]
    assert both["sets"]["digits"]["softmax"] == first["sets"]["digits"]["softmax"]
    network.run(dataclasses.replace(more, rates=(0.01,)))
    assert len(asked) == 4


def test_scores_and_accuracies():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((30, 20)) < 0.2, 1, 0).astype(np.float32)
    X = sp.csr_matrix(X)
    y = rng.integers(8, size=30).astype(np.int32)
    parameters = init(rng, 20, 6, 8, 4.0)
    parameters["b"] = rng.normal(size=8).astype(np.float32)
    sparse, dense = (scores(parameters, _data.padded(array)) for array in (X, X.toarray()))
    np.testing.assert_allclose(sparse, dense, atol=1e-5)
    found = accuracies(parameters, _data.padded(X), y)
    expected = [100 * topk_accuracy(y, np.asarray(sparse), top) for top in (1, 5)]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_batches():
    rows = network.batches(np.random.default_rng(0), 50, 40, 10)
    assert rows.shape == (20, 2, 10)
    assert all(sorted(order) == list(range(50)) for order in rows.reshape(-1, 50).tolist())


def test_unknown_loss():
    assert len(LOSSES) == 8
    with pytest.raises(ValueError, match="expected losses of"):
        network.run(network.Options(losses=("hinge",)).chosen())
