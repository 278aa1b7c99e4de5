"""A writer that is killed or meets a broken disk at every single step, and at random moments."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.models import META, contents, fill, label_result
from xmcjax.models import LinearModel, ShardWriter

SIZE = 4
TRANSFORMS = {"idf.weight": np.arange(50.0)}


def open_writer(directory, **options):
    return ShardWriter(directory, META, shard_size=SIZE, transforms_arrays=TRANSFORMS, **options)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    directory = tmp_path_factory.mktemp("whole") / "m"
    with open_writer(directory) as writer:
        fill(writer)
    return contents(directory)


class Steps:
    """Counts the writer's calls to the disk and lets one of them fail."""

    def __init__(self, monkeypatch, fail_at=None, code=errno.ENOSPC):
        self.count, self.fail_at, self.code = 0, fail_at, code
        for name in ("fsync", "replace"):
            self.wrap(monkeypatch, os, name)

    def wrap(self, monkeypatch, owner, name):
        real = getattr(owner, name)

        def step(*arguments):
            self.count += 1
            if self.count == self.fail_at:
                raise OSError(self.code, os.strerror(self.code))
            return real(*arguments)

        monkeypatch.setattr(owner, name, step)


def count_steps(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        steps = Steps(patch)
        with open_writer(tmp_path / "count") as writer:
            fill(writer)
    return steps.count


def test_a_disk_that_fails_at_any_step(tmp_path, monkeypatch, expected):
    """Each fsync and each rename fails once: the error surfaces, and what is saved stays valid."""
    total = count_steps(tmp_path, monkeypatch)
    # Eight files (transforms, 6 shards and 7 manifests), each fsync, rename, fsync of the folder.
    assert total == 3 * 14
    for code in (errno.ENOSPC, errno.EIO):
        for step in range(1, total + 1):
            directory = tmp_path / f"m-{code}-{step}"
            with monkeypatch.context() as patch:
                Steps(patch, step, code)
                with pytest.raises(OSError) as caught, open_writer(directory) as writer:
                    fill(writer)
                assert caught.value.errno == code
                assert caught.value.filename is None or str(tmp_path) in caught.value.filename
            # Not even a left-over.
            assert not [p for p in directory.iterdir() if p.name.startswith(".")]
            if (directory / "manifest.json").exists():
                LinearModel.load(directory, verify="full", partial=True)
            with open_writer(directory, resume=True) as writer:
                fill(writer)
            assert contents(directory) == expected, (code, step)


def test_a_shard_that_could_not_be_written_is_tried_again(tmp_path, monkeypatch, expected):
    writer = open_writer(tmp_path / "m")
    fill(writer, range(SIZE - 1))
    with monkeypatch.context() as patch:
        Steps(patch, 1)
        with pytest.raises(OSError, match="No space left on device"):
            writer.add(*label_result(SIZE - 1))
    assert writer.missing().tolist() == list(range(23))
    fill(writer, range(SIZE, 23))  # space again: the next shard takes the first along
    writer.close()
    assert contents(tmp_path / "m") == expected


def test_a_file_size_limit_is_an_error_with_the_path(tmp_path):
    """A real write that fails half-way, no patch: the process may write at most 700 bytes a file."""
    code = f"""
import resource, signal, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from tests.support.models import META, fill
from xmcjax.models import ShardWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer = ShardWriter(sys.argv[1], META, shard_size=20)
resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))
try:
    fill(writer)
except OSError as error:
    print(error)
"""
    done = run_python(code, tmp_path / "m")
    assert "File too large" in done.stdout and "shard-000000.safetensors" in done.stdout, done.stderr
    assert sorted(contents(tmp_path / "m")) == ["manifest.json"]
    assert LinearModel.load(tmp_path / "m", partial=True).missing() == [(0, 23)]


def run_python(code, *arguments):
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


# One interpreter forks a writer for each kill: the import is paid once. A child kills itself, with
# SIGKILL, at a given call to the disk (before the call or half-way through a write), or is killed
# from outside after a random time.
KILLER = """
import os, random, signal, sys, time
folder, tests = sys.argv[1:3]
sys.path.insert(0, tests)
import test_model_crash as crash
from tests.support.models import contents, fill
import builtins

def child(directory, step, resume):
    count = 0
    def kill_at(real):
        def call(*arguments, **options):
            nonlocal count
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)
        return call
    os.fsync, os.replace = kill_at(lambda descriptor: None), kill_at(os.replace)
    real_open = builtins.open
    class HalfWriter:
        # The first half of what is written reaches the file before the process may die.
        def __init__(self, file): self.file = file
        def write(self, content):
            nonlocal count
            self.file.write(content[: len(content) // 2]); self.file.flush()
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            self.file.write(content[len(content) // 2 :])
        def __getattr__(self, name): return getattr(self.file, name)
        def __enter__(self): return self
        def __exit__(self, *rest): self.file.close()
    builtins.open = lambda path, mode="r", *a, **k: (
        HalfWriter(real_open(path, mode, *a, **k)) if mode == "xb" else real_open(path, mode, *a, **k))
    with crash.open_writer(directory, resume=resume) as writer:
        fill(writer)
    os._exit(0)

def run(directory, step, resume, after=None):
    pid = os.fork()
    if pid == 0:
        try:
            child(directory, step, resume)
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
        finally:
            os._exit(7)
    if after is not None:
        time.sleep(after)
        os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]

killed = 0
# Every step of a run, each time from an empty directory.
for step in range(1, 100):
    directory = f"{folder}/step-{step}"
    status = run(directory, step, resume=False)
    if os.WIFEXITED(status):
        print("steps", step - 1, os.WEXITSTATUS(status))
        break
    killed += 1
    if run(directory, 0, resume=True):
        print("resume failed at", step)
# One run killed again and again, at random steps of what is left.
rng = random.Random(0)
for attempt in range(40):
    status = run(f"{folder}/again", rng.randint(1, 12), resume=True)
    if os.WIFEXITED(status):
        print("again", os.WEXITSTATUS(status))
        break
    killed += 1
# Killed from outside.
for number in range(20):
    directory = f"{folder}/outside-{number}"
    if os.WIFSIGNALED(run(directory, 0, resume=False, after=rng.random() * 0.02)):
        killed += 1
    if run(directory, 0, resume=True):
        print("resume failed outside", number)
print("killed", killed)
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL and fork")
def test_kill_9_at_every_step_and_resume_gives_the_same_bytes(tmp_path, expected):
    done = run_python(KILLER, tmp_path, Path(__file__).parent)
    lines = done.stdout.splitlines()
    # 14 files, each half-written, whole, renamed, folder synced.
    assert "steps 56 0" in lines, (done.stdout, done.stderr)
    assert "again 0" in lines, done.stdout
    assert not [line for line in lines if "failed" in line], done.stdout
    assert int(lines[-1].split()[1]) >= 56 + 3
    directories = sorted(tmp_path.iterdir())
    assert len(directories) == 57 + 1 + 20
    for directory in directories:
        assert contents(directory) == expected, directory.name


def test_what_a_killed_writer_leaves_is_loaded_as_partial(tmp_path):
    code = f"""
import os, signal, sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import test_model_crash as crash
from tests.support.models import fill
writer = crash.open_writer(sys.argv[1])
fill(writer, range(10))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run_python(code, tmp_path / "m").returncode == -signal.SIGKILL
    model = LinearModel.load(tmp_path / "m", partial=True)
    assert model.missing() == [(8, 23)]
