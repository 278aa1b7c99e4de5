"""``train`` and ``predict`` with the processes of a cluster."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.support import dask_processes
from tests.support.processes import python, skip_where_ignored
from xmcjax.cli import train as train_command

pytestmark = [
    pytest.mark.usefixtures("no_wait_for_the_disk"),
    pytest.mark.filterwarnings(
        # of Dask and what it stands on, when sockets are closed under it
        "ignore::ResourceWarning",
        "ignore::pytest.PytestUnraisableExceptionWarning",
        "ignore::pytest.PytestUnhandledThreadExceptionWarning",
    ),
]
SHARDS = ("--shard-size", 4)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with dask_processes.cluster(tmp_path_factory.mktemp("of") / "dask", 2) as cluster:
        yield cluster


def test_the_bytes_are_those_of_one_process(train, contents, xmcjax, files, tmp_path, cluster):
    one, alone = train(*SHARDS, name="one")
    two, told = train(*SHARDS, "--local-cluster", 2, name="two")
    assert "2 workers with 2 threads at tcp://127.0.0.1:" in told.done().out
    three, told = train(*SHARDS, "--scheduler", cluster.address, "--json", name="three")
    fields = json.loads(told.done().out)
    assert fields["cluster"]["address"] == cluster.address
    assert contents(one) == contents(two) == contents(three)
    four, told = train(*SHARDS, "--scheduler", cluster.address, "--workers-read", name="four")
    told.done()
    assert contents(one) == contents(four)
    lines = [next(x for x in r.out.splitlines() if x.startswith("labels")) for r in (alone.done(), alone)]
    assert lines[0] == lines[1]
    out = [tmp_path / "one.txt", tmp_path / "two.txt"]
    xmcjax("predict", "--model", one, "--data", files / "test.txt", "--out", out[0]).done()
    more = ("--scheduler", cluster.address)
    xmcjax("predict", "--model", one, "--data", files / "test.txt", "--out", out[1], *more).done()
    assert out[0].read_bytes() == out[1].read_bytes()


def test_time_is_over_and_resume(train, contents, cluster, monkeypatch):
    monkeypatch.setattr(train_command._training, "deadline_of", lambda timeout: 0.0 if timeout else None)
    more = (*SHARDS, "--scheduler", cluster.address)
    directory, result = train(*more, "--timeout", 1)
    assert result.code == train_command.TIMED_OUT and "were not begun when the time was over" in result.err
    train(*more, "--resume")[1].done()
    assert contents(directory) == contents(train(*SHARDS, name="whole")[0])


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            ("--scheduler", "nowhere"),
            "--scheduler: expected an address such as tcp://HOST:8786, got 'nowhere'",
        ),
        (("--scheduler", "127.0.0.1:x"), "--scheduler: expected an address"),
        (("--local-cluster", 0), "--local-cluster: expected 1 to 1024 processes, got 0"),
        (("--local-cluster", 2, "--scheduler", "a:1"), "expected --scheduler or --local-cluster, got both"),
        (
            ("--local-cluster", 2, "--init", "ova_primal_pp"),
            "--local-cluster: expected an --init that trains",
        ),
        (("--workers-read",), "--workers-read needs --scheduler or --local-cluster, got neither"),
        (("--local-cluster", 2, "--calibration", "sigmoid"), "--local-cluster: expected no --calibration"),
    ],
)
def test_flags_that_make_no_cluster(train, flags, said):
    directory, result = train(*flags)
    result.refused(said)
    assert not directory.exists()


@pytest.mark.parametrize("flag", ["--train", "--labels-file", "--more-features"])
@pytest.mark.parametrize("stream", ["a FIFO", "what this process alone has open"])
def test_workers_read_no_streams(xmcjax, files, tmp_path, flag, stream):
    """Nobody writes into the FIFO: what opened it would wait for ever."""
    name = "/dev/stdin"
    if stream == "a FIFO":
        name = tmp_path / "fifo"
        os.mkfifo(name)
    train = ["train", "--train", files / "train.txt", "--model", tmp_path / "m"]
    result = xmcjax(*train, "--local-cluster", 1, "--workers-read", flag, name)
    result.refused(f"error: {flag}: expected a file that workers can open too", f"got {stream}: {name}")
    assert not (tmp_path / "m").exists()


STARTED = """
import signal, sys
from xmcjax.cli.main import main

# Where this suite itself runs in the background, its children ignore signals from the start.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
@pytest.mark.parametrize(
    ("name", "to_all", "seconds"),  # to all as a terminal does; each two of the three in every combination
    [
        ("SIGINT", True, 0),
        ("SIGINT", False, 0.3),
        ("SIGTERM", True, 0.3),
        ("SIGTERM", False, 0),
        ("SIGHUP", True, 0),
        ("SIGHUP", False, 0.3),
    ],
)
def test_a_signal_while_the_cluster_starts_is_one_line(files, tmp_path, name, to_all, seconds):
    skip_where_ignored(name)
    train = ["train", "--train", files / "train.txt", "--model", tmp_path / "m", "--local-cluster", "1"]
    run = subprocess.Popen(
        [sys.executable, "-c", STARTED, *train],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        dask_processes.wait_until(lambda: dask_processes.children(run.pid))
        time.sleep(seconds)
        (os.killpg if to_all else os.kill)(run.pid, signal.Signals[name])
        out, err = run.communicate(timeout=60)
    finally:
        run.kill()
    said = "interrupted" if name == "SIGINT" else f"ended by {name}"
    assert err.strip() == f"xmcjax train: {said}; what is complete stays on disk"
    assert run.returncode == 128 + signal.Signals[name] and "training" not in out
    dask_processes.wait_until(lambda: not dask_processes.commands(run.pid))


def test_no_dask(train, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    train("--local-cluster", 2)[1].refused('a cluster needs Dask: pip install "xmcjax[cluster]"')


def test_commands_without_a_cluster_do_not_load_dask():
    program = "import sys, xmcjax.cli.train, xmcjax.cli.predict; print('distributed' in sys.modules)"
    assert python(program, check=True).stdout.split() == ["False"]
