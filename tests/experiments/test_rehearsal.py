"""What a rehearsal of the papers does otherwise than a study: quick compilation, few processes."""

from __future__ import annotations

import subprocess

import pytest

from experiments import _rehearsal
from experiments.bench import _worker


def test_a_run_of_a_rehearsal_takes_no_process(monkeypatch, tmp_path):
    def refuse(*arguments, **options):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "run", refuse)
    monkeypatch.setitem(_worker.RUNS, "asked", lambda options: {"data": options["data"], "labels": (1, 2)})
    with pytest.raises(AssertionError, match="a process was started"):
        _worker.ask("asked", tmp_path, [])
    monkeypatch.setenv(_rehearsal.REHEARSAL, "1")
    # as JSON brings it from a process
    assert _worker.ask("asked", tmp_path, []) == {"data": str(tmp_path), "labels": [1, 2]}


@pytest.mark.parametrize(
    ("release", "flags"),
    [
        (
            "0.10.2",
            "--a=b --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
        ),
        ("0.11.0", "--a=b"),
    ],
)
def test_compilation_is_quick_unless_it_is_asked_for(monkeypatch, release, flags):
    monkeypatch.setattr(_rehearsal.importlib.metadata, "version", lambda name: release)
    found = _rehearsal.quick({"XLA_FLAGS": "--a=b", "HOME": "/h"})
    assert found["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "1" and found["HOME"] == "/h"
    assert found["XLA_FLAGS"] == flags
    assert _rehearsal.quick(found) == found
    users = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0", "XLA_FLAGS": "--a=b"}
    assert _rehearsal.quick(users).items() >= users.items()


def test_the_processes_of_a_rehearsal_share_their_programs(tmp_path):
    found = _rehearsal.rehearsal({}, tmp_path)
    assert found["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path) and found["OMP_NUM_THREADS"] == "1"
    assert found.items() >= _rehearsal.quick({}).items() and found[_rehearsal.REHEARSAL]
