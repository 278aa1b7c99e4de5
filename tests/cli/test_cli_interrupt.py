"""Runs that are interrupted: what is complete stays, and a resumed run ends with the same bytes."""

import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from tests.support.commands import Terminal
from tests.support.processes import CORES, made_up_nodes, python, skip_where_ignored
from xmcjax.cli import info

pytestmark = pytest.mark.skipif(os.name != "posix", reason="SIGKILL and fork")

INTERRUPTED = """
import os, signal, sys, threading
from xmcjax.cli.main import main
from xmcjax.models import ShardWriter
from xmcjax.native import StopFlag

# Where this suite itself runs in the background, its children ignore signals from the start.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
wanted = signal.Signals[sys.argv.pop(1)]
real, seen = ShardWriter.add, []
tell, stopping = StopFlag.set, threading.Event()
def told(self):
    tell(self)
    stopping.set()
StopFlag.set = told
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


DROPPED = """
import gc, signal, sys, time
from xmcjax.cli._signals import Ended, ending_the_command

number, left, seen = signal.Signals[sys.argv[1]], [3], []
signal.signal(signal.SIGINT, signal.default_int_handler)
if number != signal.SIGINT:
    signal.signal(number, signal.SIG_DFL)

def collected(phase, info):  # Python drops what it raises
    if phase == "start" and left[0]:
        left[0] -= 1
        signal.raise_signal(number)
        for _ in range(100):
            pass

gc.callbacks.append(collected)
begin = time.monotonic()
try:
    with ending_the_command():
        gc.collect()
        while time.monotonic() - begin < 60:
            time.sleep(0.01)
            gc.collect()
except KeyboardInterrupt as error:
    assert isinstance(error, Ended) == (number != signal.SIGINT)
    print("ended", left[0])
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_within_a_callback_of_the_collector_is_not_lost(name):
    skip_where_ignored(name)
    done = python(DROPPED, name, timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended 0\n", "")


IMPORTING = """
import signal, sys, time
from xmcjax.cli.main import _run

for usual in ("SIGTERM", "SIGHUP"):
    signal.signal(signal.Signals[usual], signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, sys.argv[2])

def work():
    import swallows
    print(swallows.lost, flush=True)
    time.sleep(90)  # one call of the system, which the signal has to wake
    return 0

sys.exit(_run("xmcjax demo", work))
"""

SWALLOWS = """
import signal, sys
lost = 0
for _ in range(2):
    try:  # as the initialisation of a native module
        signal.raise_signal(signal.Signals[sys.argv[1]])
        for _ in range(100):
            pass
    except BaseException:
        lost += 1
"""


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("SIGINT", 130, "\nxmcjax demo: interrupted"),
        ("SIGTERM", 143, "xmcjax demo: ended by SIGTERM"),
        ("SIGHUP", 129, "xmcjax demo: ended by SIGHUP"),
    ],
)
def test_a_signal_waits_for_the_import_of_a_module(tmp_path, name, status, said):
    (tmp_path / "swallows.py").write_text(SWALLOWS)
    done = python(IMPORTING, name, tmp_path, timeout=60)
    assert done.stderr == f"{said}; what is complete stays on disk\n"
    assert (done.returncode, done.stdout) == (status, "0\n")


LOST = """
import _thread, signal, sys
from xmcjax.cli.main import _run

def refused(*_):
    raise RuntimeError("can't start new thread")

def raised(number):
    signal.raise_signal(number)
    for _ in range(100):
        pass

def work():
    for number in (signal.SIGTERM, signal.SIGHUP):
        try:
            raised(number)
            print("no effect")
        except BaseException:
            pass
    _thread.start_new_thread = refused
    sys.meta_path.insert(0, Finder())
    try:
        import nothing_of_this_name  # where the signal cannot wait, it is heeded
        print("not found")
    except KeyboardInterrupt:
        pass
    try:
        raised(signal.SIGTERM)
        print("no effect")
    finally:
        raised(signal.SIGTERM)  # which is already heeded
        raised(signal.SIGHUP)
        print("the way out is gone to its end")
    return 0

class Finder:
    def find_spec(self, name, *_):
        raised(signal.SIGHUP)

for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
sys.exit(_run("xmcjax demo", work))
"""


def test_a_signal_after_one_that_was_lost_ends_the_command():
    done = python(LOST, timeout=60)
    assert done.stdout == "the way out is gone to its end\n"
    assert done.stderr == "xmcjax demo: ended by SIGTERM; what is complete stays on disk\n"
    assert done.returncode == 143


CALLED = "import sys; sys.path.insert(0, sys.argv[1]); import commanding"
COMMANDING = """
import signal, sys
from xmcjax.cli.main import _run
signal.signal(signal.SIGTERM, signal.SIG_DFL)

def work():
    signal.raise_signal(signal.SIGTERM)
    for _ in range(100):
        pass
    print("not heeded")
    return 0

print(_run("xmcjax demo", work))
"""


def test_a_command_that_a_module_runs_as_it_is_imported_heeds_signals(tmp_path):
    (tmp_path / "commanding.py").write_text(COMMANDING)
    assert python(CALLED, tmp_path, timeout=60).stdout == "143\n"


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
    done = python(INTERRUPTED, signal_name, *train, "--model", interrupted, timeout=120)
    assert done.returncode == status, done.stderr
    assert done.stderr.strip() == f"xmcjax train: {said}; what is complete stays on disk"
    assert int(done.stdout.splitlines()[-1]) < 30  # it did not go on to the end
    shards = list(interrupted.glob("shard-*"))
    assert 0 < len(shards) < 8
    result = xmcjax(*train, "--model", interrupted, "--resume").done()
    assert f"{4 * len(shards)} were stored before" in result.out
    xmcjax(*train, "--model", tmp_path / "whole").done()
    assert contents(interrupted) == contents(tmp_path / "whole")


BUSY = """
import os, signal, sys, threading, time
from xmcjax.cli.main import main
from xmcjax.models import ShardWriter

signal.signal(signal.SIGINT, signal.default_int_handler)
first = threading.Lock()
def add(self, *result):  # a thread that heeds no flag
    for _ in range(2 if first.acquire(blocking=False) else 0):
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(200)
ShardWriter.add = add
sys.exit(main(sys.argv[1:]))
"""


def test_a_second_ctrl_c_leaves_a_thread_that_does_not_end(files, tmp_path):
    train = ["train", "--train", files / "train.txt", "--model", tmp_path / "m", "--n-jobs", 2]
    done = python(BUSY, *train, timeout=60)
    assert done.returncode == 130, done.stderr
    assert done.stderr.strip() == "xmcjax train: interrupted; what is complete stays on disk"


COMPILING = """
import os, signal, sys, threading, time
import jax, jax.numpy as jnp
from xmcjax.cli.main import main
from xmcjax.models import ShardWriter

signal.signal(signal.SIGINT, signal.default_int_handler)
def send():
    for seconds in (0.3, 0.3):
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGINT)
def sorted_often(x):
    for k in range(150):
        x = jnp.sort(x + k)
    return x
first = threading.Lock()
def add(self, *result):  # XLA takes some seconds
    traced = jax.jit(sorted_often).lower(jnp.ones(1000))
    if first.acquire(blocking=False):
        threading.Thread(target=send, daemon=True).start()
    traced.compile()
ShardWriter.add = add
sys.exit(main())
"""


def test_a_second_ctrl_c_leaves_a_thread_that_compiles(files, tmp_path):
    """Python would end beside it, and abort as it comes back from XLA."""
    train = ["train", "--train", files / "train.txt", "--model", tmp_path / "m", "--n-jobs", 2]
    done = python(COMPILING, *train, timeout=60, XMCJAX_CACHE="0")
    assert done.returncode == 130, done.stderr
    assert done.stderr.strip() == "xmcjax train: interrupted; what is complete stays on disk"


AT_THE_END = """
import atexit, os, signal, sys
from xmcjax.cli.main import main
from xmcjax.models import ShardWriter

signal.signal(signal.SIGINT, signal.default_int_handler)
def send(*_):
    os.kill(os.getpid(), signal.SIGINT)
ShardWriter.add = send
atexit.register(send)
sys.exit(main())
"""


def test_a_second_ctrl_c_at_the_end_of_python_says_nothing(files, tmp_path):
    done = python(AT_THE_END, "train", "--train", files / "train.txt", "--model", tmp_path / "m", timeout=60)
    assert done.returncode == 130, done.stderr
    assert done.stderr.strip() == "xmcjax train: interrupted; what is complete stays on disk"


FINISHED = """
import atexit, os, signal, sys
from xmcjax.cli.main import main

for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
atexit.register(os.kill, os.getpid(), signal.Signals[sys.argv.pop(1)])
sys.exit(main())
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize(("arguments", "status"), [(["--version"], 0), (["train"], 2)])
def test_a_signal_at_the_end_of_python_does_not_change_the_status(name, arguments, status):
    """After its last line a command has finished."""
    done = python(FINISHED, name, *arguments, timeout=60)
    assert done.returncode == status, done.stderr
    assert status or (done.stdout.startswith("xmcjax ") and not done.stderr)


ON_NODES = """
import os, signal, sys
from xmcjax.cli.main import main
from xmcjax.models import ShardWriter

for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
real = ShardWriter.add
def add(self, *result):
    real(self, *result)
    if not os.path.exists(sys.argv[1]):
        open(sys.argv[1], "w").close()
        os.killpg(0, signal.SIGTERM)  # what `timeout` and a service manager do: to the nodes' processes, too
ShardWriter.add = add
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_processes_of_nodes_end_with_a_run_that_is_ended(files, tmp_path, monkeypatch):
    made_up_nodes(tmp_path, {0: CORES[0], 1: CORES[1]}, monkeypatch)
    command = [sys.executable, "-c", ON_NODES, tmp_path / "sent", "train", "--train", files / "train.txt"]
    command += ["--model", tmp_path / "m", "--shard-size", "1", "--n-jobs", "2"]
    run = subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
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


def test_a_terminal_sees_how_far_it_is(xmcjax, files, tmp_path, monkeypatch):
    train = ("train", "--train", files / "train.txt", "--model", tmp_path / "m", "--shard-size", 10)

    def seen(*more):
        terminal = Terminal()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", terminal)
            assert xmcjax(*train, *more).code == 0
        return terminal.getvalue()

    last = seen().split("\r")[-1]
    assert "30/30 [00:0" in last and "label/s]" in last
    (tmp_path / "m" / "shard-000001.safetensors").unlink()
    resumed = seen("--resume")
    assert "20/30 [" in resumed and "30/30 [" in resumed and " 0/30 [" not in resumed
    shutil.rmtree(tmp_path / "m")
    assert "label/s" not in xmcjax(*train).err  # no terminal: no bar
