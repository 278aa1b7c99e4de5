"""The kit for a GPU is rehearsed on a CPU, by slow tests as a whole; what hangs or crashes loses nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from experiments.bench.gpu_kit import __main__ as kit
from experiments.bench.gpu_kit import _kit, _report, _run, cuda_kernels, prediction
from experiments.bench.gpu_kit._stages import STAGES, Stage
from experiments.bench.gpu_kit._training import direction_bytes
from tests.support import cuda_builds
from xmcjax import linops, native

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """The folder for a rehearsal, made once."""
    folder = tmp_path_factory.mktemp("kit") / "folder"
    assert kit.main(["pack", str(folder), "--small"]) == 0
    return folder


@pytest.mark.slow
@pytest.mark.timeout(1800)  # sixteen processes, each of which imports JAX
def test_rehearsal(packed, tmp_path):
    """Every stage ends well on a CPU, from a folder without the checkout, and leaves its figures."""
    out = tmp_path / "out"
    environment = os.environ | {"PYTHONPATH": str(packed / "program"), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-P", "-m", "experiments.bench.gpu_kit", "run", str(packed), "--out", str(out)]
    command += ["--seconds", "1700"]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=1750
    )
    assert done.returncode == 0, done.stdout + (out / "log.txt").read_text()
    lines = _report.read(out)
    ends = [(line["stage"], line["status"]) for line in lines if "status" in line and line["on"] == "device"]
    assert ends == [(stage.name, "done") for stage in STAGES]
    figures = [line for line in lines if "figure" in line]
    assert {line["stage"] for line in figures} == {stage.name for stage in STAGES}
    for line in figures:
        assert line["commit"] and "gpu_kit run" in line["command"] and line["at"].startswith("20")
        assert line["environment"]["platform"] == "cpu" and "jax" in line["environment"]["versions"]
        assert not isinstance(line["values"].get("error"), str)  # that would be what it died of
    of_kernels = [line["values"] for line in figures if line["stage"] == "cuda_kernels"]
    assert of_kernels == [{"not_run": cuda_kernels.NO_GPU}]
    of_stages = [line["values"] for line in figures if line["stage"] in _report.CORRECTNESS]
    assert len(of_stages) > 15 and all("right" in values for values in of_stages)
    # and what is compared in other stages, such as the scores of a prediction
    checked = {line["figure"]: line["values"] for line in figures if "right" in line["values"]}
    assert len(checked) > len(of_stages) and all(values["right"] for values in checked.values())
    heads = [line["values"] for line in figures if line["figure"].startswith("X δ with a dense head")]
    assert len(heads) == 1 and heads[0]["columns"] > 0 and 0 < heads[0]["entries"] <= 1
    beside = [line["values"]["threads"] for line in figures if line["on"] == "cpu"]
    assert beside and min(beside) >= 1
    text = (out / "report.md").read_text()
    assert "A rehearsal" in text and f"{len(checked)} of {len(checked)} right" in text
    assert text == _report.text(lines)
    # a second call has nothing left to do
    again = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert again.returncode == 0 and again.stdout == _report.text(lines, every=False)
    assert _report.read(out) == lines
    assert _report.goals([]).count(_report.MISSING) == 7


def test_a_stage_of_a_rehearsal(packed, tmp_path, monkeypatch):
    """By the command, in a process of its own; a second call has nothing left to do."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    out = tmp_path / "out"
    command = ["run", str(packed), "--out", str(out), "--stages", "environment", "--seconds", "500"]
    assert kit.main(command) == 0
    lines = _report.read(out)
    ends = [(line["stage"], line["on"], line["status"]) for line in lines if "status" in line]
    assert ends == [("environment", "device", "done")]
    figures = [line for line in lines if "figure" in line]
    assert figures and all(line["environment"]["platform"] == "cpu" for line in figures)
    assert (out / "report.md").read_text() == _report.text(lines)
    assert kit.main(command) == 0 and _report.read(out) == lines


BAD = {
    "hangs": "kit.figure('before', value=1)\n    import time; time.sleep(600)",
    "crashes": "kit.figure('before', value=2)\n    import os; os.abort()",
    "raises": "with kit.attempt('bad'): 1 / 0\n    kit.figure('after', value=3)",
    "is_wrong": "kit.figure('wrong', right=False)",
}


@pytest.mark.slow
def test_a_bad_stage_loses_nothing(packed, tmp_path, monkeypatch):
    """One that hangs is ended, one that crashes is noted, and what they had found is there."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    program = packed / "program" / "bad"
    program.mkdir()
    for name, body in BAD.items():
        (program / f"{name}.py").write_text(f"def run(kit):\n    {body}\n")
    manifest = json.loads((packed / "manifest.json").read_text())
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    class Child(subprocess.Popen):
        """The time of the stage that hangs begins when it hangs, however long it takes to get there."""

        def wait(self, timeout=None):
            end = time.monotonic() + 200
            while timeout == 20.0 and not any("figure" in line for line in _report.read(tmp_path)):
                assert time.monotonic() < end and self.poll() is None
                time.sleep(0.1)
            return super().wait(1.0 if timeout == 20.0 else timeout)

    monkeypatch.setattr(subprocess, "Popen", Child)
    runner = _run.Runner(packed, tmp_path, scratch, manifest, time.monotonic() + 500)
    for name in BAD:
        runner.run(Stage(name, 0, package="bad"), "device", 20.0 if name == "hangs" else 200.0)
    lines = _report.read(tmp_path)
    ends = {line["stage"]: line for line in lines if "status" in line}
    assert not any(end.get("cut") for end in ends.values())
    assert ends["hangs"]["status"] == "ended after 20 s" and ends["hangs"]["seconds"] < 300
    assert ends["crashes"]["status"] == "failed with exit code -6"
    assert ends["raises"]["status"] == ends["is_wrong"]["status"] == "failed with exit code 1"
    assert "ZeroDivisionError" in "\n".join(ends["raises"]["last_lines"])
    found = [f"{line['stage']} {line['figure']}" for line in lines if "figure" in line]
    assert found == ["hangs before", "crashes before", "raises bad", "raises after", "is_wrong wrong"]
    assert runner.failed
    runner.end = time.monotonic()
    runner.run(STAGES[0], "device", 60.0)
    last = _report.read(tmp_path)[-1]
    assert last["status"] == "not begun: no time was left" and last["cut"]
    before = len(_report.read(tmp_path))
    runner.end = time.monotonic() + 8  # more than the least, and less than the stage takes to begin to hang
    runner.run(Stage("hangs", 0, package="bad"), "device", 200.0)
    last = _report.read(tmp_path)[-1]
    assert last["status"].startswith("ended after ") and last["cut"] and len(_report.read(tmp_path)) > before


def test_a_second_call_goes_on_where_the_first_ended():
    """First with what had no time or too little; what failed, or took all of its own, comes last."""
    every = _run.parts([stage.name for stage in STAGES], small=False)
    assert [part.stage for part in every if part.on == "device"] == [*STAGES]
    beside = [part.stage.name for part in every if part.on == "cpu"]
    assert beside == [stage.name for stage in STAGES if stage.beside_cpu]
    assert _run.pending(every, []) == every

    def end(part, status, **more):
        return {"stage": part.stage.name, "on": part.on, "status": status, "seconds": 1.0, **more}

    done, failed, late, cut, none, *others = every
    lines = [
        end(done, "failed with exit code 1"),
        end(done, "done"),  # the second time
        {"figure": "a", "stage": cut.stage.name, "on": cut.on},
        end(failed, "failed with exit code -6"),
        end(late, "ended after 60 s"),
        end(cut, "ended after 20 s", cut=True),
        end(none, "not begun: no time was left", cut=True),
    ]
    assert _run.pending(every, lines) == [cut, none, *others, failed, late]


def test_what_tells_most_comes_first():
    """In nine minutes: what is right, then the first goals; nothing is timed before it was found right."""
    names = [stage.name for stage in STAGES]
    first = ["environment", "cuda_kernels", "products", "stackexchange_tags", "bandwidth", "solvers"]
    assert names[: len(first)] == first
    most = sum(part.seconds for part in _run.parts(first, small=False))
    assert most <= 540
    for checked, timed in (("vectors", "projections"), ("vectors", "losses"), ("solvers", "multinomial")):
        assert names.index(checked) < names.index(timed)


def test_the_command_needs_the_standard_library_alone(tmp_path):
    """On a machine without our packages; and a file that a crash cut short can still be read."""
    command = [sys.executable, "-S", "-m", "experiments.bench.gpu_kit", "report", str(tmp_path)]
    (tmp_path / _report.FILE).write_text('{"figure": "a", "stage"')
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == _report.goals([])


def test_a_folder_that_is_not_empty_is_kept(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    assert kit.main(["pack", str(tmp_path)]) == 1
    assert "expected a new or empty folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_without_the_data_sets_nothing_is_packed(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XMCJAX_DATA", str(tmp_path / "absent"))
    assert kit.main(["pack", str(tmp_path / "folder")]) == 1
    assert "expected a folder of data sets; set XMCJAX_DATA" in capsys.readouterr().err
    assert not (tmp_path / "folder").exists()


def test_the_page_has_the_table():
    """The table of the page is that of the figures which are kept."""
    kept = json.loads((ROOT / "experiments" / "results" / "bench.gpu_kit.json").read_text())
    assert _report.goals(kept["figures"]) in (ROOT / "docs" / "guide" / "gpu.md").read_text()


def test_the_stage_of_the_kernels_with_those_of_a_cpu(packed, tmp_path, monkeypatch):
    """All is found right, and Newton directions say which part of the bandwidth they took."""
    cuda_builds.found_by_kernel(monkeypatch)
    monkeypatch.setattr(native, "cuda_available", lambda: True)
    make = linops.make
    monkeypatch.setattr(linops, "make", lambda *a, **o: dataclasses.replace(make(*a, **o), kernels="cuda"))
    # without Pallas's backend for Triton, as with a JAX that has it no longer
    find, without = importlib.util.find_spec, "jax.experimental.pallas.triton"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == without else find(name))
    counted = []

    def count(*args):
        counted.append(direction_bytes(*args))
        return counted[-1]

    monkeypatch.setattr(cuda_kernels, "direction_bytes", count)
    monkeypatch.setattr(cuda_kernels, "copy_bandwidth", lambda kit: 1e9)
    request = {
        place: str(path) for place, path in (("folder", packed), ("out", tmp_path), ("scratch", tmp_path))
    }
    request |= {"stage": "cuda_kernels", "on": "device", "seconds": 600, "small": True}
    assert _kit.main(request | {"module": cuda_kernels.__name__, "commit": "none", "command": "none"}) == 0
    values = {line["figure"]: line["values"] for line in _report.read(tmp_path)}
    works = "Newton directions", "matmat", "rmatmat", "gram_matmat"
    assert {f"{work}, cuda, 512 lanes" for work in works} <= values.keys()
    checked = [of_figure["right"] for of_figure in values.values() if "right" in of_figure]
    assert len(checked) == 25 and all(checked)
    assert sum(of_figure.get("by_kernel", False) for of_figure in values.values()) == 6
    ours = values["Newton directions, cuda, 512 lanes"]
    assert ours["cg_steps"] >= ours["mean_cg_steps"] > 1
    ((once, fetched),) = counted
    assert once < fetched
    assert ours["share_once"] * ours["seconds"] * 1e9 == pytest.approx(once)
    assert ours["share_fetched"] * ours["seconds"] * 1e9 == pytest.approx(fetched)


def test_the_part_of_the_bandwidth_is_that_of_the_cg_of_training():
    """Newton directions by the kernels in CUDA; the product alone stands beside."""

    def figure(name: str, share: float) -> dict:
        shares = {"share_once": share, "share_fetched": 2 * share}
        return {"figure": name, "stage": "bandwidth", "on": "device", "values": shares}

    block = "stackexchange_tags, gpu, 512 lanes, mask start"
    names = [f"X δ, {block}", f"gradient, {block}", f"CG's product, {block}"]
    lines = [figure(name, share) for name, share in zip(names, (0.1, 0.2, 0.3), strict=True)]
    measured = _report.goals(lines)
    assert "| 0.10 (0.20), 0.20 (0.40), not measured; CG's product alone 0.30 (0.60) |" in measured
    measured = _report.goals([*lines, figure("Newton directions, cuda, 512 lanes", 0.4)])
    assert "| 0.10 (0.20), 0.20 (0.40), 0.40 (0.80); CG's product alone 0.30 (0.60) |" in measured


def test_small_problems_of_the_solvers_stand_for_no_system():
    """The stage `solvers` has figures whose names begin as those of the stage `multinomial`."""

    def figure(stage: str, name: str, on: str, seconds: float) -> dict:
        return {"figure": name, "stage": stage, "on": on, "values": {"seconds": seconds}}

    lines = [figure("solvers", "multinomial, auto", "device", 0.005), {"run": {"notes": []}}]
    assert "multinomial, auto" not in _report.goals(lines) and "0.005 s" not in _report.goals(lines)
    lines += [
        figure("multinomial", "multinomial, newton, warm", on, t) for on, t in (("device", 0.5), ("cpu", 3))
    ]
    assert "| 0.5 s; CPU 3 s, 6 times / " in _report.goals(lines)


def test_bytes_of_newton_directions():
    """Counted step by step; lanes end at different steps, one at the most that it may take, one at once."""
    rng = np.random.default_rng(0)
    n, d, lanes, most = 90, 30, 70, 7
    X = sp.csr_matrix(sp.random(n, d, 0.2, dtype=np.float32, random_state=rng))
    chosen = rng.random((n, lanes)) < 0.03
    steps = rng.integers(1, most, lanes)
    steps[:2] = most, 0
    rows, matrix, vector = np.diff(X.indptr), 8 * X.nnz, 4 * d * lanes
    tiles = [slice(first, first + 32) for first in range(0, lanes, 32)]
    bits = 4 * n * len(tiles)

    def active(open_):
        """(row, tile) pairs with an active row in an open lane, and the entries of X that these are."""
        there = np.stack([(chosen & open_)[:, tile].any(axis=1) for tile in tiles], axis=1)
        return int(there.sum()), int(rows @ there.sum(axis=1))

    once = matrix + 4 * n * lanes + bits + 8 * vector
    fetched = 4 * 32 * active(True)[1]
    for step in range(1, most + 1):
        open_, after = steps >= step, (steps > step) | (steps == most)
        pairs, entries = active(open_)
        once += 2 * matrix + vector + bits + 8 * n + 2 * 4 * 32 * pairs
        once += 4 * d * int(8 * open_.sum() + 2 * (open_ & after).sum())
        fetched += 2 * 4 * 32 * entries
    assert direction_bytes(X, chosen, steps, most) == (once, once + fetched)


@pytest.mark.parametrize("on", [pytest.param("device", marks=pytest.mark.slow), "cpu"])
def test_the_stage_of_prediction(packed, tmp_path, monkeypatch, on):
    """Weights that are sent and kept, the way to the device alone, and both ways that it has; all are right.

    With the kernels in CUDA, compiled for the CPU; and on the cores.
    """
    cuda_builds.register()
    monkeypatch.setattr(native, "cuda_available", lambda: on == "device")
    places = {"folder": packed, "out": tmp_path, "scratch": tmp_path}
    request = {name: str(path) for name, path in places.items()} | {"commit": "none", "command": "none"}
    request |= {"stage": "prediction", "on": on, "seconds": 600, "small": True}
    assert _kit.main(request | {"module": prediction.__name__}) == 0
    values = {line["figure"]: line["values"] for line in _report.read(tmp_path)}
    sizes = [f"prediction, {labels} labels" for labels in (200, 400)]
    ways = [f"prediction by {way}, 200 labels" for way in ("pairs", "dense weights")]
    assert list(values) == sizes + (ways if on == "device" else [])
    assert all(found["right"] and found["kept_seconds"] > 0 for found in values.values())
    for name in sizes:
        found = values[name]
        assert found["seconds"] > 0
        sent = {"first_seconds", "sending_seconds", "sent_bytes"} & found.keys()
        assert len(sent) == (3 if on == "device" else 0)
        assert on == "cpu" or found["sent_bytes"] == 8 * found["weights"]


def test_what_there_is_no_time_for_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(prediction, "_figure", lambda *arguments: None)
    said = {}

    class Kit:
        on = "cpu"
        attempt = staticmethod(contextlib.nullcontext)

        def size(self, full, small):
            return small

        def left(self):
            return 1e-9

        def figure(self, name, **values):
            said[name] = values

    prediction.run(Kit())  # type: ignore[arg-type]
    assert (
        list(said) == ["prediction, 400 labels"] and "s are left" in said["prediction, 400 labels"]["not_run"]
    )


def test_prediction_of_weights_that_are_kept_and_sent_stands_in_the_table():
    def figure(on: str, **values) -> dict:
        return {"figure": "prediction, 1000000 labels", "stage": "prediction", "on": on, "values": values}

    lines = [figure("device", seconds=0.5, kept_seconds=0.02), figure("cpu", seconds=2.0, kept_seconds=0.3)]
    expected = "| kept 0.02 s; CPU 0.3 s, 15 times / sent 0.5 s; CPU 2 s, 4 times |"
    assert expected in _report.goals(lines)
