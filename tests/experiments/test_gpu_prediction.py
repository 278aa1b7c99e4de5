"""Counts of what a prediction on a GPU moves."""

import pytest

from experiments.bench import gpu_prediction
from tests.support.experiments import written


def test_gpu_prediction_small(tmp_path):
    result = gpu_prediction.run(gpu_prediction.Options(small=True).chosen())
    stored, text = written(tmp_path, "gpu_prediction", result, gpu_prediction.markdown(result))
    ways = stored["ways"]
    assert all(f"| {way} |" in text for way in ways)
    assert 0 < result["pairs"] < result["rows"] * result["weights"]
    # 50 of 50,000 weights of a label, of twice the bytes
    host, device = ways["dense on the host"], ways["dense on the device"]
    assert host["sent_bytes"] / device["sent_bytes"] == pytest.approx(500, rel=0.02)
    assert host["moved_bytes"] == device["moved_bytes"] > ways["pairs, plain JAX"]["moved_bytes"]
    # one block, and a turn for each of 40 entries of a row
    assert 40 <= ways["pairs, plain JAX"]["turns"] < 80 and ways["pairs, kernels in CUDA"]["turns"] == 0
    scores = gpu_prediction.SCORES * 4 * result["rows"] * result["labels"]
    assert ways["pairs, kernels in CUDA"]["moved_bytes"] == scores + 72 * result["pairs"]
