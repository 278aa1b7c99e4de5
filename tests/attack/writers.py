"""Every writer on a disk that fails, is full, takes a part, or dies with the process; see harness.py."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.attack import _commands, _victim
from tests.attack._victim import TARGETS
from tests.attack.harness import ROOT, Wrong, main
from xmcjax.models import RUN_FILE, LinearModel, read_kernel_model

PURPOSE = "kill -9, ENOSPC, EIO and short writes at every call: old or new, whole; nothing saved is lost"

ONCE, FROM_THEN_ON, SHORT, KILL_BEFORE, KILL_AFTER = range(1, 6)
_OLD = b"what was there before\n"


class _Target(NamedTuple):
    name: str
    file: str | None
    cost: int
    calls: int  # of a run that nothing happens to
    new: dict[str, bytes]  # what it leaves


class _Context(NamedTuple):
    folder: Path
    victim: subprocess.Popen | None
    targets: list[_Target]


def prepare(folder: Path) -> _Context:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sys.platform.startswith("linux"):
        return _Context(folder, None, [])
    library = folder / "disk.so"
    source = Path(__file__).parent / "_disk.c"
    build = [compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"]
    subprocess.run(build, check=True, timeout=120)
    _commands.make_inputs(folder)
    command = [sys.executable, "-m", "tests.attack._victim"]
    environment = os.environ | {"LD_PRELOAD": str(library)}
    pipe = subprocess.PIPE
    victim = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True)
    context = _Context(folder / "case", victim, [])
    for name, (file, _, cost) in TARGETS.items():
        _reset(context.folder, file)
        said = _write(context, name)
        if said["error"] or said["signal"]:
            raise Wrong(f"{name}: a run that nothing happens to: {said}")
        context.targets.append(_Target(name, file, cost, said["calls"], _contents(context.folder, file)))
    return context


def _reset(folder: Path, file: str | None) -> None:
    """An old file at its place; for a model, one of which a shard is there."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "far").mkdir(parents=True)
    (folder / "link").symlink_to("far/real")
    if file is not None:
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes(_OLD)
        (folder / file).chmod(0o640)


def _contents(folder: Path, file: str | None) -> dict[str, bytes]:
    """The files at a place; without the records of runs beside a model, which name the hour."""
    place = folder / "m" if file is None else (folder / file).parent
    files = [p for p in place.iterdir() if p.is_file() and not p.is_symlink()]
    return {p.name: p.read_bytes() for p in files if file is not None or p.name != RUN_FILE}


def _write(context: _Context, name: str, call: int = 0, how: int = 0, number: int = 0) -> dict[str, Any]:
    victim = context.victim
    assert victim is not None and victim.stdin is not None and victim.stdout is not None
    order = {"target": name, "folder": str(context.folder), "call": call, "how": how, "errno": number}
    print(json.dumps(order), file=victim.stdin, flush=True)
    return json.loads(victim.stdout.readline())


def case(context: _Context, rng: np.random.Generator) -> str:
    if context.victim is None:
        return "skipped: there is no C compiler, or no Linux"
    chances = np.array([1 / target.cost for target in context.targets])
    target = context.targets[rng.choice(len(chances), p=chances / chances.sum())]
    how, number = int(rng.integers(1, 6)), (errno.ENOSPC, errno.EIO)[rng.integers(2)]
    call = int(rng.integers(1, target.calls + 1))
    # A run before this one was killed, somewhere: what it saved must stay.
    killed = int(rng.integers(1, target.calls + 1)) if target.file is None and rng.integers(2) else 0
    said = broken(context, target, call, how, number, killed)
    end = "killed" if said["signal"] else "refused" if said["error"] else "written"
    kind = {SHORT: "short write", KILL_BEFORE: "kill", KILL_AFTER: "kill"}.get(how, errno.errorcode[number])
    return f"{target.name}, {kind}: {end}"


def broken(context: _Context, target: _Target, call: int, how: int, number: int, killed: int = 0) -> dict:
    """How a run ended of which a call went wrong, after one that was killed at another call unless that is 0.

    Raises:
        Wrong: it did not end as it should, or what it left is not what was there, is new, or can be resumed.
    """
    _reset(context.folder, target.file)
    before: dict[str, bytes] = {}
    if killed:
        _write(context, target.name, killed, KILL_BEFORE)
        before = _shards(context.folder / "m")
    said = _write(context, target.name, call, how, number)
    what = f"{target.name}, call {call} of {target.calls}, " + (
        f"{errno.errorcode[number]}{' from then on' * (how == FROM_THEN_ON)}"
        if how in (ONCE, FROM_THEN_ON)
        else {SHORT: "a short write", KILL_BEFORE: "killed before", KILL_AFTER: "killed after"}[how]
    )
    _check_end(target.name, said, how, number, what, context.folder)
    if target.file is None:
        _check_model(context, target, said, before, what)
    else:
        _check_file(context.folder, target, said, what)
    return said


def _check_end(name: str, said: dict[str, Any], how: int, number: int, what: str, folder: Path) -> None:
    """Whether the process ended as the disk made it: killed, or with one sentence about the file."""
    if said["signal"]:
        if said["signal"] != signal.SIGKILL or how not in (KILL_BEFORE, KILL_AFTER):
            raise Wrong(f"{what}: ended by signal {said['signal']}")
        return
    error = said["error"]
    if error is None:
        return
    if how not in (ONCE, FROM_THEN_ON):
        raise Wrong(f"{what}: {error}")
    if error["type"] == _victim.Failed.__name__:
        begun = error["text"].startswith(f"{name}: error: {folder}")
        if not begun or not error["text"].endswith(f": {os.strerror(number).lower()}\n"):
            raise Wrong(f"{what}: not the line of an error, with the file and the cause: {error['text']}")
        return
    named = str(error["filename"]).startswith(str(folder))
    if error["errno"] != number or not named or "\n" in error["text"]:
        raise Wrong(f"{what}: the error does not name the file and the cause: {error}")


def _check_file(folder: Path, target: _Target, said: dict[str, Any], what: str) -> None:
    assert target.file is not None
    name = Path(target.file).name
    found = _contents(folder, target.file)
    if found[name] not in (_OLD, target.new[name]):
        raise Wrong(f"{what}: neither the old file nor the new one ({len(found[name])} bytes)")
    if not said["signal"]:
        if said["error"] is None and found[name] != target.new[name]:
            raise Wrong(f"{what}: no error, and the old file is there")
        if set(found) != {name}:
            raise Wrong(f"{what}: left behind {sorted(set(found) - {name})}")
    if (folder / target.file).stat().st_mode & 0o777 != 0o640:
        raise Wrong(f"{what}: another mode")
    if not (folder / "link").is_symlink():
        raise Wrong(f"{what}: the link is gone")


def _shards(directory: Path) -> dict[str, bytes]:
    """The shards that a model's manifest names; what is beside them can be read, too."""
    if (directory / RUN_FILE).exists():
        json.loads((directory / RUN_FILE).read_bytes())
    if not (directory / "manifest.json").exists():
        return {}
    content = json.loads((directory / "manifest.json").read_bytes())
    if "shards" not in content:
        read_kernel_model(directory)
        return {path.name: path.read_bytes() for path in directory.iterdir()}
    LinearModel.load(directory, verify="full", partial=True)
    names = [shard["file"] for shard in content["shards"]]
    return {name: (directory / name).read_bytes() for name in names}


def _check_model(context: _Context, target: _Target, said, before: dict[str, bytes], what: str) -> None:
    directory = context.folder / "m"
    after = _shards(directory) if directory.exists() else {}
    if any(after.get(name) != content for name, content in before.items()):
        raise Wrong(f"{what}: shards that were saved are lost")
    if not said["signal"] and said["error"] is None and _contents(context.folder, None) != target.new:
        raise Wrong(f"{what}: no error, and not the model")
    again = _write(context, target.name)
    if again["error"] or again["signal"]:
        raise Wrong(f"{what}: the run that resumes: {again}")
    if _contents(context.folder, None) != target.new:
        raise Wrong(f"{what}: the resumed model has other bytes")


if __name__ == "__main__":
    sys.exit(main(__spec__))
