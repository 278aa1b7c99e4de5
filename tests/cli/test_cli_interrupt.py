"""Runs that are killed or interrupted: what is complete stays, and a resumed run ends with the same bytes."""

import io
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from xmcjax.cli import info

pytestmark = pytest.mark.skipif(os.name != "posix", reason="SIGKILL and fork")

# Each run is a child that was forked before JAX made a device: seconds less than a new Python.
KILLER = """
import builtins, glob, os, random, shutil, signal, sys, time
from xmcjax.cli import train
from xmcjax.cli.main import main
from xmcjax.models import ShardWriter

file, folder, inits = sys.argv[1], sys.argv[2], sys.argv[3:]
OPTIONS = "--transform unit --shard-size 4 --n-jobs 2 --block-size 3 --resume".split()
rng = random.Random(0)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def at_a_label(share):
    # Just before one of the missing labels is handed over.
    real, seen = ShardWriter.add, []
    def add(self, *result):
        seen.append(result[0])
        if len(seen) >= share * len(self.missing()):
            die()
        real(self, *result)
    ShardWriter.add = add

def in_a_shard(share):
    # With half of a shard's bytes in the file.
    real = builtins.open
    class Half:
        def __init__(self, file): self.file = file
        def write(self, data):
            self.file.write(data[: int(share * len(data))])
            self.file.flush()
            die()
        def __enter__(self): return self
        def __exit__(self, *rest): self.file.close()
    def opened(path, mode="r", *more, **options):
        file = real(path, mode, *more, **options)
        return Half(file) if mode == "xb" and os.path.basename(path).startswith(".shard-") else file
    builtins.open = opened

def run(directory, init, prepare=None, after=None):
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            if prepare:
                prepare(rng.random())
            code = main(["train", "--train", file, "--model", directory, "--init", init, *OPTIONS])
        finally:
            os._exit(code)
    if after is not None:
        time.sleep(after)
        os.kill(pid, signal.SIGKILL)
    rng.random()
    return os.waitpid(pid, 0)[1]

def killed(status):
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL

KINDS = {"label": at_a_label, "shard": in_a_shard}
counts = {"time": 0, "label": 0, "shard": 0}
for init in inits:
    directory = f"{folder}/{init}"
    after = rng.random()
    while not killed(run(directory, init, after=after)) or len(glob.glob(directory + "/shard-*")) == 8:
        after /= 2  # too late: nothing was left to do
        shutil.rmtree(directory, ignore_errors=True)
    counts["time"] += 1
    for kind in ("label", "shard", "label", "label"):
        status = run(directory, init, KINDS[kind])
        if killed(status):
            counts[kind] += 1
        else:
            print(init, kind, "ended by itself", status, file=sys.stderr)
    status = run(directory, init)
    if status:
        print(init, "resume failed", status, file=sys.stderr)
print(counts)
"""


def test_twenty_kills_and_the_same_bytes(xmcjax, files, tmp_path, contents):
    inits = ("mean_separating", "ova_primal_pp", "zero", "multi_pos")
    command = [sys.executable, "-c", KILLER, files / "train.txt", tmp_path, *inits]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[-1:] == ["{'time': 4, 'label': 12, 'shard': 4}"], (
        done.stdout,
        done.stderr,
    )
    assert "by itself" not in done.stderr and "resume failed" not in done.stderr, done.stderr
    for init in inits:
        whole = tmp_path / f"whole-{init}"
        train = ("train", "--train", files / "train.txt", "--model", whole, "--transform", "unit")
        assert xmcjax(*train, "--init", init, "--shard-size", 4).code == 0
        assert contents(tmp_path / init) == contents(whole)


INTERRUPTED = """
import concurrent.futures, os, signal, sys, threading
from xmcjax.cli.main import main
from xmcjax.models import ShardWriter

# Where this suite itself runs in the background, its children ignore signals from the start.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
wanted = signal.Signals[sys.argv.pop(1)]
real, seen = ShardWriter.add, []
shutdown, stopping = concurrent.futures.ThreadPoolExecutor.shutdown, threading.Event()
def told(self, *more, **options):
    stopping.set()
    shutdown(self, *more, **options)
concurrent.futures.ThreadPoolExecutor.shutdown = told
def add(self, *result):
    seen.append(result[0])
    if len(seen) == 14:
        os.kill(os.getpid(), wanted)
    if len(seen) > 14:  # another thread gives a label up once the main one has told them all to stop
        assert stopping.wait(60)
    real(self, *result)
ShardWriter.add = add
code = main(sys.argv[1:])
print(len(seen))
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("signal_name", "threads", "status", "said"),
    [
        ("SIGINT", 1, 130, "interrupted"),
        ("SIGINT", 2, 130, "interrupted"),
        ("SIGTERM", 1, 143, "ended by SIGTERM"),
        ("SIGTERM", 2, 143, "ended by SIGTERM"),
        ("SIGHUP", 2, 129, "ended by SIGHUP"),
    ],
)
def test_a_signal_ends_the_run(xmcjax, files, tmp_path, contents, signal_name, threads, status, said):
    train = ["train", "--train", files / "train.txt", "--transform", "unit", "--shard-size", 4]
    train += ["--block-size", 4, "--n-jobs", threads]
    interrupted = tmp_path / "interrupted"
    command = [sys.executable, "-c", INTERRUPTED, signal_name, *map(str, train), "--model", interrupted]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == status, done.stderr
    assert done.stderr.strip() == f"xmcjax train: {said}; what is complete stays on disk"
    assert int(done.stdout.splitlines()[-1]) < 30  # it did not go on to the end
    shards = list(interrupted.glob("shard-*"))
    assert 0 < len(shards) < 8
    result = xmcjax(*train, "--model", interrupted, "--resume")
    assert result.code == 0 and f"{4 * len(shards)} were stored before" in result.out
    assert xmcjax(*train, "--model", tmp_path / "whole").code == 0
    assert contents(interrupted) == contents(tmp_path / "whole")


ON_NODES = """
import os, signal, sys
from xmcjax import lanes
from xmcjax._topology import Node, Share
from xmcjax.cli import train
from xmcjax.cli.main import main
from xmcjax.models import ShardWriter

for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
core = min(os.sched_getaffinity(0))
train.node_shares = lambda numa, threads: [Share(Node(number, (core,)), 1) for number in (0, 1)]
real = ShardWriter.add
def add(self, *result):
    real(self, *result)
    if not os.path.exists(sys.argv[1]):
        open(sys.argv[1], "w").close()
        os.killpg(0, signal.SIGTERM)  # what `timeout` and a service manager do: to the nodes' processes, too
ShardWriter.add = add
sys.exit(main(sys.argv[2:]))
"""


def test_processes_of_nodes_end_with_a_run_that_is_ended(files, tmp_path):
    command = [sys.executable, "-c", ON_NODES, tmp_path / "sent", "train", "--train", files / "train.txt"]
    command += ["--model", tmp_path / "m", "--shard-size", "1"]
    run = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    err = run.communicate(timeout=120)[1]
    assert run.returncode == 143, err
    assert err.strip() == "xmcjax train: ended by SIGTERM; what is complete stays on disk"
    with pytest.raises(ProcessLookupError):
        os.killpg(run.pid, 0)  # the session is empty
    assert list((tmp_path / "m").glob("shard-*"))


def test_a_signal_that_is_ignored_stays_ignored_and_handlers_are_put_back(xmcjax, monkeypatch):
    seen = []

    def run(options):
        seen.append([signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)])
        return 0

    monkeypatch.setattr(info, "run", run)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        assert xmcjax("info").code == 0
        assert callable(seen[0][0]) and seen[0][1] == signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        # in another thread than the main one Python lets nobody touch signals
        thread = threading.Thread(target=lambda: seen.append(xmcjax("info").code))
        thread.start()
        thread.join(60)
        assert seen[1:] == [[signal.SIG_DFL, signal.SIG_IGN], 0]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Terminal(io.StringIO):
    """A stderr that passes for one."""

    def isatty(self):
        return True


def test_a_terminal_sees_how_far_it_is(xmcjax, files, tmp_path, monkeypatch):
    train = ("train", "--train", files / "train.txt", "--model", tmp_path / "m", "--shard-size", 10)
    terminal = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        assert xmcjax(*train).code == 0
    last = terminal.getvalue().split("\r")[-1]
    assert "30/30 [00:0" in last and "label/s]" in last
    (tmp_path / "m" / "shard-000001.safetensors").unlink()
    terminal = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        assert xmcjax(*train, "--resume").code == 0
    seen = terminal.getvalue()
    assert "20/30 [" in seen and "30/30 [" in seen and " 0/30 [" not in seen
    shutil.rmtree(tmp_path / "m")
    result = xmcjax(*train)  # no terminal: no bar
    assert "label/s" not in result.err
