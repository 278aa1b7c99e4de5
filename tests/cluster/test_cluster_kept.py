"""What workers keep from task to task, however many runs share them."""

import contextlib
import importlib
import os
import shutil
import subprocess
import sys
import threading
import types
import typing
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.support import dask_processes
from tests.support.processes import ROOT, wait_until
from xmcjax import OneVsAllClassifier
from xmcjax.cluster import connected
from xmcjax.lanes import OneVsAll
from xmcjax.models import LinearModel

kept_values, predict, tasks = (
    importlib.import_module(f"xmcjax.cluster.{name}") for name in ("_kept", "_predict", "_training_tasks")
)


@pytest.fixture
def clock(monkeypatch):
    found = types.SimpleNamespace(now=1000.0, monotonic=lambda: found.now)
    monkeypatch.setattr(kept_values, "time", found)
    return found


@pytest.fixture
def timers(monkeypatch):
    """What is to be done later."""
    found = []

    class Timer:
        def __init__(self, seconds, function):
            found.append((seconds, function))

        def start(self):
            pass

    found_threading = types.SimpleNamespace(Lock=threading.Lock, Timer=Timer)
    monkeypatch.setattr(kept_values, "threading", found_threading)
    return found


def test_what_is_used_stays_and_the_oldest_idle_values_go(clock, timers):
    kept, made = kept_values.Kept(lasting=2), []

    def using(key):
        return kept.using(key, lambda: made.append(key) or key)

    with using("used"):
        for key in "abcd":
            clock.now += 1
            with using(key):
                pass
        for key in "badc":  # nothing has rested
            with using(key):
                pass
        assert made == ["used", *"abcd"]
        ((seconds, look),) = timers
        assert seconds == 30 - 2  # of a, which ended first
        clock.now += 40
        look()
        for key in "dcab":  # all left at once, in the order b, a, d, c
            with using(key):
                pass
        assert made == ["used", *"abcd", *"ab"]
        clock.now += 1000
        with using("used") as found:
            assert found == "used"
    assert made.count("used") == 1


def test_a_value_is_made_once_and_others_do_not_wait_for_it(clock, timers):
    kept, begun, go, made = kept_values.Kept(lasting=2), threading.Event(), threading.Event(), []

    def slowly():
        begun.set()
        assert go.wait(60)
        made.append(1)
        return "slow"

    def use(key, make):
        with kept.using(key, make) as value:
            return value

    assert use("none", lambda: None) is None and use("none", lambda: "other") == "other"
    with ThreadPoolExecutor(4) as pool:
        slow = [pool.submit(use, "slow", slowly) for _ in range(2)]
        assert begun.wait(60)
        third = pool.submit(use, "third", lambda: "third")  # whose value is made meanwhile
        assert third.result(60) == "third"
        other = pool.submit(use, "none", lambda: "third")
        assert other.result(60) == "other" and kept.remove("none") == "other"
        go.set()
        assert [one.result(60) for one in slow] == ["slow"] * 2 and made == [1]


def test_what_does_not_stay_is_let_go_while_others_use_theirs(clock, timers):
    """A value may take its time to end."""
    gone = []

    def shed(value):
        assert not kept._lock.locked()
        gone.append(value)

    kept = kept_values.Kept(lasting=1, resting=3, shed=shed)
    for number in range(5):
        clock.now += 1
        with kept.using(number, lambda: number):  # noqa: B023
            pass
    assert gone == [0, 1]
    clock.now += 40
    timers[-1][1]()
    assert gone == [0, 1, 2, 3] and kept.remove_idle(4) == 4


def test_a_session_that_nobody_uses_is_stopped(clock, timers):
    """Nobody says that the run of a command is over that was killed."""
    session: typing.Any = Held({}, None)
    with tasks._sessions.using("killed", lambda: session):
        pass
    tasks._sessions._look()
    assert not session.stopped.is_set()
    clock.now += 40
    tasks._sessions._look()
    assert session.stopped.is_set() and tasks._sessions.remove("killed") is None


class Held:
    """A session whose labels do not end before it is stopped."""

    def __init__(self, matrices, options):
        self.counts, self.stopped, self.callers = np.ones(4, int), threading.Event(), 0

    def train(self, labels, all_taken, **more):
        self.callers += 1
        assert self.stopped.wait(60)
        return None, None

    def stop(self):
        self.stopped.set()


@pytest.fixture
def sessions(monkeypatch):
    """Those that a worker opens."""
    opened = []
    worker = types.SimpleNamespace(local_directory="/a/b", state=types.SimpleNamespace(nthreads=1))
    monkeypatch.setattr(tasks, "worker_of_task", lambda: worker)
    monkeypatch.setattr(tasks._spool, "read", lambda folder: {})
    monkeypatch.setattr(tasks, "Session", lambda *more: opened.append(Held(*more)) or opened[-1])
    monkeypatch.setattr(tasks, "_stopped", tasks.collections.deque())
    yield opened
    for session in opened:
        session.stop()


def run(name):
    return tasks.Run(name, tasks.__version__, tasks.native.sources(), OneVsAll(), None, 4)


def test_a_run_that_trains_is_stopped_however_many_others_train_beside_it(sessions):
    block = tasks.Block(0, 4, True)
    with ThreadPoolExecutor(8) as pool, contextlib.ExitStack() as stack:
        stack.callback(lambda: [session.stop() for session in sessions])  # else a failure would hang
        answers = []
        for number in range(4):
            answers += [pool.submit(tasks.train_block, run(f"r{number}"), block) for _ in range(2)]
            wait_until(lambda: sum(session.callers for session in sessions) == len(answers))  # noqa: B023
        assert len(sessions) == 4  # one of each run
        tasks.stop_run("r0")
        assert [answer.result(60) for answer in answers[:2]] == [tasks.Refused("the run is over")] * 2
        assert not any(answer.done() for answer in answers[2:])
        assert tasks.train_block(run("r0"), block) == tasks.Refused("the run is over")
    assert all(tasks._sessions.remove(f"r{number}") is None for number in range(4))


def test_four_models_of_predictions_side_by_side_are_opened_once_each(tmp_path, monkeypatch):
    X, pieces, opened = np.eye(4, dtype=np.float32), [], []
    OneVsAllClassifier().fit(X, [0, 1, 2, 3]).save(tmp_path / "m0")
    for number in range(1, 6):
        shutil.copytree(tmp_path / "m0", tmp_path / f"m{number}")
    load = LinearModel.load

    def counted(directory, *more):
        opened.append(directory.name)
        return load(directory, *more)

    monkeypatch.setattr(predict.LinearModel, "load", counted)
    sha256 = load(tmp_path / "m0").manifest_sha256
    names = [f"m{number}" for number in range(6)]
    for name in names[:4] * 3 + names[4:]:
        run = predict._Run("run", predict.__version__, tmp_path / name, sha256, 1, False)
        pieces.append(predict._predict_rows(run, predict._Rows(0, 0, X))[0][:, 0].tolist())
    assert pieces == [[0, 1, 2, 3]] * 14
    assert sorted(opened) == names
    assert [predict._predictors.remove_idle((tmp_path / name, sha256)) is None for name in names] == [
        *[True] * 2,  # those that were used first
        *[False] * 4,
    ]


# Training in a worker that does not end before it is stopped.
ENDLESS = """
import threading, time
from xmcjax.cluster._session import Session

def begin(self, feed):
    self._totals.append(self._trainer.again(self._end, self._stop).summary)

    def run():
        while not self._stop.is_set():
            time.sleep(0.02)

    threading.Thread(target=run, name="xmcjax-session", daemon=True).start()

Session._begin = begin
"""

COMMAND = """
import sys
from tests.support.lanes import small
from xmcjax.cluster import connected, train_on_cluster
from xmcjax.lanes import OneVsAll

with connected(sys.argv[1]) as client:
    train_on_cluster(client, *small(), OneVsAll(), [].append, shard_size=5)
"""


def test_workers_stop_the_work_of_a_command_that_is_killed(tmp_path):
    with dask_processes.cluster(tmp_path / "dask") as cluster, connected(cluster.address) as client:
        cluster.worker(ENDLESS, threads=2)
        client.wait_for_workers(1, timeout=60)

        def at_work(dask_worker):  # within a function, so that it is sent whole
            sessions = importlib.import_module("xmcjax.cluster._training_tasks")._sessions
            threads = [thread for thread in threading.enumerate() if thread.name == "xmcjax-session"]
            return len(dask_worker.active_threads), len(sessions._entries), len(threads)

        def found():
            asked = client.run(at_work)
            assert isinstance(asked, dict)
            return list(asked.values())

        command = [sys.executable, "-c", COMMAND, cluster.address]
        process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)})
        try:
            wait_until(lambda: found() == [(2, 1, 1)], pause=0.1)
        finally:
            process.kill()
            process.wait(timeout=60)
        wait_until(lambda: found() == [(0, 0, 0)], pause=0.1)
