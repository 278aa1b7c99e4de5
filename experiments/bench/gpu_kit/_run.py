"""Installs the packages of the kit, and runs the stages one after another, each in a process that may die.

Only the standard library is imported here, because the packages come with the folder.
"""

from __future__ import annotations

import contextlib
import getpass
import importlib.metadata
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from experiments.bench.gpu_kit import _report
from experiments.bench.gpu_kit._stages import BY_NAME, Stage

PROBE = """
import json, warnings
warnings.simplefilter("ignore")
import jax
try:
    from xmcjax.native import load_library
    native = "built" if load_library() else "not built"
except ImportError as error:
    native = f"broken: {error}"
try:
    platform = jax.default_backend()
except RuntimeError as error:
    platform = f"none: {error}"
print(json.dumps({"platform": platform, "native": native}))
"""
# LEAST: a stage is not begun with fewer seconds left. PREPARING: the most seconds for installing packages and
# for asking the device.
LEAST, PREPARING = 5.0, 120.0
LAST_LINES = 12
# A rehearsal may run beside other work: its stages are killed after this many times their seconds.
REHEARSAL = 10


class Part(NamedTuple):
    """A stage on the device or on the CPU, which is one process."""

    stage: Stage
    on: str  #: "device" or "cpu"
    seconds: float  #: after which the process is killed


def main(
    folder: Path,
    out: Path,
    stages: list[str],
    seconds: float,
    *,
    on: Collection[str] = ("device", "cpu"),
    again: bool = False,
) -> int:
    """Runs the stages; figures, log and report go to `out` as they come. Returns the exit code.

    Stages that `out` shows as done are left out, unless `again`: a second call continues the first one.
    """
    manifest = json.loads((folder / "manifest.json").read_text())
    begin = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.gettempdir()) / f"xmcjax_gpu_kit_{getpass.getuser()}"
    scratch.mkdir(mode=0o700, exist_ok=True)
    runner = Runner(folder.resolve(), out.resolve(), scratch, manifest, begin + seconds)
    there = [part for part in parts(stages, runner.small) if part.on in on]
    todo = pending(there, [] if again else _report.read(out))
    if todo:
        runner.prepare()
    for part in todo:
        runner.run(*part)
    print(_report.text(_report.read(out), every=False), end="")
    return int(runner.failed)


def parts(stages: list[str], small: bool) -> list[Part]:
    """The processes of these stages, in their order."""
    found, beside, times = [], 0, REHEARSAL if small else 1
    for stage in map(BY_NAME.__getitem__, stages):
        found.append(Part(stage, "device", times * stage.seconds))
        # a rehearsal runs on the CPU anyway: one stage with a second process is enough to test that
        if stage.beside_cpu and not (small and beside):
            found.append(Part(stage, "cpu", times * stage.cpu_seconds))
            beside += 1
    return found


def pending(every: list[Part], lines: list[dict]) -> list[Part]:
    """The parts that earlier calls have not done: first, in their order, those that were cut short by the end
    of a call or not begun; then those that failed or used up their own time.
    """
    ends = {(line["stage"], line["on"]): line for line in lines if "status" in line}
    first, last = [], []
    for part in every:
        end = ends.get((part.stage.name, part.on))
        if end is None or end.get("cut"):
            first.append(part)
        elif end["status"] != "done":
            last.append(part)
    return first + last


class Runner:
    """The processes of one run.

    Args:
        folder: that was packed.
        out: of the figures.
        scratch: for installed packages, compiled programs and made data, kept from run to run.
        manifest: of the folder.
        end: of all stages, by ``time.monotonic``.
    """

    def __init__(self, folder: Path, out: Path, scratch: Path, manifest: dict, end: float):
        self.folder, self.out, self.scratch, self.manifest, self.end = folder, out, scratch, manifest, end
        self.failed = False
        self.site = scratch / f"site_{manifest['key']}"
        self.small = manifest["small"]
        self.environment = os.environ | {
            # the source tree here has no native library: the installed package is to be measured
            "PYTHONSAFEPATH": "1",
            "PYTHONPATH": os.pathsep.join([str(self.site), str(folder / "program")]),
            "PYTHONUNBUFFERED": "1",
            "JAX_COMPILATION_CACHE_DIR": str(scratch / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        if (folder / "data").is_dir():
            self.environment["XMCJAX_DATA"] = str(folder / "data")
        self.probe: dict = {"platform": "not known", "native": "not known"}

    def prepare(self) -> None:
        """Installs what is missing, and asks which device there is."""
        notes = self._install()
        left = max(min(PREPARING, self.end - time.monotonic()), LEAST)
        command = [sys.executable, "-c", PROBE]
        options = dict(capture_output=True, text=True, env=self.environment, cwd=self.scratch)
        try:
            done = subprocess.run(command, timeout=left, **options)  # type: ignore[call-overload]
            self.probe |= json.loads(done.stdout.splitlines()[-1])
        except (subprocess.TimeoutExpired, json.JSONDecodeError, IndexError) as error:
            notes.append(f"the device did not answer: {error!r}")
            if not isinstance(error, subprocess.TimeoutExpired):
                notes.append("\n".join(done.stderr.splitlines()[-LAST_LINES:]))
        if self.probe["native"].startswith("broken"):
            notes.append(f"the native library is left out: {self.probe['native']}")
            self.environment["XMCJAX_NATIVE"] = "0"
        self._add({"run": {"notes": notes, "packed": self.manifest, **self.probe}})
        for note in notes:
            print(note, flush=True)

    def _install(self) -> list[str]:
        """Installs our wheels, and other wheels that the machine lacks. Returns what went wrong."""
        notes = []
        done = self.site / "installed"
        if done.exists():
            return notes
        for wheel in sorted((self.folder / "wheels").glob("*.whl")):
            name = wheel.name.split("-")[0]
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                if name not in ("xmcjax", "xmcjax_cuda") and importlib.metadata.version(name):
                    continue
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
            command = [*pip, "--no-cache-dir", "--upgrade", "--target", str(self.site), str(wheel)]
            try:
                made = subprocess.run(command, capture_output=True, text=True, timeout=PREPARING)
            except subprocess.TimeoutExpired:
                notes.append(f"{wheel.name} was not installed in {PREPARING:.0f} s")
                continue
            if made.returncode:
                notes.append(f"{wheel.name} was not installed: {made.stderr.strip()[-500:]}")
        if not notes:
            self.site.mkdir(exist_ok=True)
            done.touch()
        return notes

    def run(self, stage: Stage, on: str, seconds: float) -> None:
        """Runs a stage on the device or on the CPU, and kills it when its time is over."""
        whole, seconds = seconds, min(seconds, self.end - time.monotonic())
        if seconds < LEAST:
            self._ended(stage, on, "not begun: no time was left", 0.0, [], cut=True)
            return
        environment = dict(self.environment)
        if on == "cpu":
            environment["JAX_PLATFORMS"] = "cpu"
        elif self.probe["platform"] == "cpu":
            # a rehearsal takes the code path of a device, not the native kernels of the CPU
            environment["XMCJAX_NATIVE"] = "0"
        request = {
            "stage": stage.name,
            "module": f"{stage.package}.{stage.name}",
            "on": on,
            "folder": str(self.folder),
            "out": str(self.out),
            "scratch": str(self.scratch),
            "seconds": seconds,
            "small": self.small,
            "commit": self.manifest["commit"],
            "command": shlex.join([Path(sys.executable).name, *sys.orig_argv[1:]]),
        }
        command = [sys.executable, "-m", "experiments.bench.gpu_kit._kit", json.dumps(request)]
        begin = time.monotonic()
        log = self.out / "log.txt"
        with log.open("ab") as file:
            file.write(f"== {stage.name} on {on}\n".encode())
            start = file.tell()
            # a process group of its own, so that processes that the stage started end with it
            options = dict(stdout=file, stderr=subprocess.STDOUT, process_group=0)
            child = subprocess.Popen(command, env=environment, cwd=self.scratch, **options)  # type: ignore
            try:
                code = child.wait(seconds)
                status = "done" if code == 0 else f"failed with exit code {code}"
            except subprocess.TimeoutExpired:
                status = f"ended after {seconds:.0f} s"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        lines = log.read_bytes()[start:].decode(errors="replace").splitlines()
        cut = status.startswith("ended") and seconds < whole
        self._ended(stage, on, status, time.monotonic() - begin, lines[-LAST_LINES:], cut)

    def _ended(self, stage: Stage, on: str, status: str, seconds: float, lines: list[str], cut: bool) -> None:
        self.failed |= status != "done"
        end: dict = {"stage": stage.name, "on": on, "status": status, "seconds": round(seconds, 1)}
        end |= {"cut": True} if cut else {}  # cut short by the end of the time of all stages
        self._add(end | ({} if status == "done" else {"last_lines": lines}))
        print(f"{stage.name} on {on}: {status}, {seconds:.1f} s", flush=True)
        if status.startswith("failed"):
            print("\n".join("    " + re.sub(r"\s+$", "", line) for line in lines), flush=True)
        (self.out / "report.md").write_text(_report.text(_report.read(self.out)))

    def _add(self, line: dict) -> None:
        _report.add(self.out, line)
