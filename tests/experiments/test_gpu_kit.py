"""The kit for a GPU is rehearsed whole on a CPU; what hangs, crashes or is wrong loses nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiments.bench.gpu_kit import __main__ as kit
from experiments.bench.gpu_kit import _report, _run, cuda_kernels
from experiments.bench.gpu_kit._stages import STAGES, Stage

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """The folder for a rehearsal, made once."""
    folder = tmp_path_factory.mktemp("kit") / "folder"
    assert kit.main(["pack", str(folder), "--small"]) == 0
    return folder


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
    checked = [line["values"] for line in figures if line["stage"] in _report.CORRECTNESS]
    assert len(checked) > 15 and all(values["right"] for values in checked)
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


BAD = {
    "hangs": "kit.figure('before', value=1)\n    import time; time.sleep(600)",
    "crashes": "kit.figure('before', value=2)\n    import os; os.abort()",
    "raises": "with kit.attempt('bad'): 1 / 0\n    kit.figure('after', value=3)",
    "is_wrong": "kit.figure('wrong', right=False)",
}


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
    """Until there is a GPU, the table of the page is that of no figures at all."""
    assert _report.goals([]) in (ROOT / "docs" / "guide" / "gpu.md").read_text()
