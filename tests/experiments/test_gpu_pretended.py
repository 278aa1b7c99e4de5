"""Solvers of the host take as long where the default device is said to be a GPU."""

from __future__ import annotations

import contextlib

import pytest

from experiments.bench import gpu_pretended
from tests.support.experiments import written
from tests.support.internals import platforms
from tests.support.problems import needs_native
from xmcjax import linops


def seconds(row: dict, without: float, offset: float) -> float:
    """By how much the fits with a GPU are above so many times those without, and an offset."""
    return row["with"] - without * row["without"] - offset


def test_gpu_pretended_small(tmp_path):
    result = gpu_pretended.run(gpu_pretended.Options(small=True).chosen())
    stored, text = written(tmp_path, "gpu_pretended", result, gpu_pretended.markdown(result))
    assert len(stored["systems"]) == 12
    for name, row in stored["systems"].items():
        assert row["same"], name
        if linops.native_ready():  # what went to the device would take some seconds
            assert seconds(row, 3, 0.2) < 0, name
    assert "| SVM, ww |" in text and "| yes |" in text


@pytest.mark.slow
@needs_native
def test_a_solver_that_goes_to_the_device_is_seen(monkeypatch):
    monkeypatch.setattr(platforms, "on_host", contextlib.nullcontext)
    every = gpu_pretended.systems

    def one(rows):
        return {name: what for name, what in every(rows).items() if name == "SVM, ww"}

    monkeypatch.setattr(gpu_pretended, "systems", one)
    (row,) = gpu_pretended.run(gpu_pretended.Options(small=True).chosen())["systems"].values()
    assert seconds(row, 3, 0.2) > 0
