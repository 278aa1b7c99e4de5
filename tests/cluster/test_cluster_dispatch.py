"""What the client of a cluster concludes from what it sees there, and what it says of it."""

import asyncio
import gc
import importlib
import types
import weakref
from typing import Any

import distributed
import numpy as np
import pytest

from tests.support import dask_processes
from xmcjax.cluster import ClusterError, connected

dispatch = importlib.import_module("xmcjax.cluster._dispatch")

blocks = importlib.import_module("xmcjax.cluster._blocks")
predict = importlib.import_module("xmcjax.cluster._predict")

WORKER = {"nthreads": 1, "host": "a", "local_directory": "/a/b", "last_seen": 0.0}


class Client:
    """A client of a scheduler that gives one answer; workers die over every task."""

    def __init__(self):
        self.status = "running"
        self.scheduler = types.SimpleNamespace(address="tcp://x", identity=self.identity)
        self.answer: dict[str, Any] | None = {}

    def scheduler_info(self):
        raise AssertionError

    def sync(self, function, callback_timeout):
        return asyncio.run(function())

    async def identity(self):
        if self.answer is None:
            raise TimeoutError
        return {"workers": self.answer}

    def submit(self, guarded, function, common, work, *, key, **more):
        return Killed(key)

    def cancel(self, futures, force):
        pass


class Killed:
    """A future of a task that has used up its retries."""

    def __init__(self, key):
        self.key, self.status = key, "error"

    def add_done_callback(self, called):
        called(self)

    def exception(self):
        return distributed.KilledWorker(self.key, None, 0)


@pytest.fixture
def clock(monkeypatch):
    found = types.SimpleNamespace(now=1000.0)
    monkeypatch.setattr(dispatch, "time", types.SimpleNamespace(monotonic=lambda: found.now))
    return found


@pytest.mark.parametrize(
    ("answer", "said"), [({}, "has had no worker for 50 seconds"), (None, "does not answer")]
)
def test_absence_counts_from_the_first_look_that_finds_it(clock, answer, said):
    client = Client()
    workers = dispatch.Workers(client)

    def look(seconds, answer):
        clock.now += seconds
        client.answer = answer
        workers.look()

    look(0, {"tcp://a": WORKER})
    look(1000, answer)  # the caller was busy meanwhile
    look(dispatch.PATIENCE - 1, answer)
    look(0, {"tcp://a": WORKER})
    look(1000, answer)
    look(dispatch.PATIENCE - 1, answer)
    with pytest.raises(ClusterError, match=rf"^the scheduler tcp://x {said}"):
        look(2, answer)


def test_a_worker_is_silent_only_where_the_scheduler_has_answered(clock):
    client = Client()
    workers = dispatch.Workers(client)
    client.answer = {"tcp://a": WORKER}
    workers.look()
    clock.now += dispatch.SILENCE + 1  # without a look
    assert workers.living() == ["tcp://a"]
    client.answer = None
    workers.look()
    assert workers.living() == ["tcp://a"]
    client.answer = {"tcp://a": WORKER}
    workers.look()
    assert not workers.living()
    client.answer = {"tcp://a": WORKER | {"last_seen": 1.0}}
    workers.look()
    assert workers.living() == ["tcp://a"]


def test_work_that_kills_workers_is_named_in_few_words():
    model = types.SimpleNamespace(n_features=3, dtype=np.float32)
    pieces = [np.ones((count, 3), np.float32) for count in (200, 5000)]
    rows = list(predict._rows_of(pieces, model))
    assert [str(some) for some in rows] == ["rows 0 to 199", "rows 200 to 4295", "rows 4296 to 5199"]
    common = types.SimpleNamespace(name="run")
    for work, said in [(rows[0], "rows 0 to 199"), (blocks.Block(0, 16, True), "labels 0 to 15")]:
        dispatcher = dispatch.Dispatcher(Client(), None, common, None, None)
        dispatcher.workers.threads = {"tcp://a": 1}
        with pytest.raises(ClusterError, match=f"^{said}: 5 times several workers have died with it; "):
            list(dispatcher.results(iter([work])))


def test_a_result_that_died_with_its_worker_leaves_no_traceback(client, monkeypatch, caplog):
    async def died(direct, local_worker):
        # as Dask's own: an answer that is kept, or there at once, is asked for without end after a cancel
        other._gather_keys = other._gather_future = None
        await asyncio.sleep(0.01)
        return {"status": "error", "keys": [future.key]}

    with connected(client.scheduler.address) as other:
        future = other.submit(len, "ab", pure=False)  # not the key that another test cancels
        dask_processes.wait_until(future.done)
        monkeypatch.setattr(other, "_gather_remote", died)
        monkeypatch.setattr(other, "_send_to_scheduler", lambda message: None)  # which would give it anew
        with pytest.raises(TimeoutError):
            dispatch.fetched(other, future, 0.2)
        monkeypatch.undo()
        other.cancel([future], force=True)
        other.sync(asyncio.sleep, 0.1)
        gc.collect()
        other.sync(asyncio.sleep, 0)
    assert not [record.getMessage() for record in caplog.records if record.name == "asyncio"]


@pytest.mark.parametrize("times", [1, 10])
def test_a_client_that_is_told_of_cancelled_keys_with_the_answer_to_it(client, monkeypatch, times):
    """One in a hundred is, beside a client that cancels, and Dask's own code fails by this assertion."""
    connect, begun = distributed.Client._ensure_connected, []

    async def told(self, timeout):
        begun.append(weakref.ref(self))
        assert len(begun) > times
        await connect(self, timeout)

    monkeypatch.setattr(distributed.Client, "_ensure_connected", told)
    if times == 1:
        with connected(client.scheduler.address) as other:
            assert len(other.nthreads()) == 2
    else:
        said = "^expected an answer of the scheduler at .*, found other messages with it 10 times: "
        with pytest.raises(ClusterError, match=said), connected(client.scheduler.address):
            raise NotImplementedError
    assert [found() for found in begun[:times]] == [None] * times


def test_results_that_are_fetched(client):
    good, bad = client.submit(len, "ab", pure=False), client.submit(len, 3, pure=False)
    dask_processes.wait_until(lambda: good.done() and bad.done())
    assert dispatch.fetched(client, good, 60) == 2
    with pytest.raises(TypeError, match="has no len"):
        dispatch.fetched(client, bad, 60)
    good.cancel()
    with pytest.raises(distributed.CancelledError):
        dispatch.fetched(client, good, 60)


class Keeping(Client):
    """A client whose tasks do not end."""

    def __init__(self):
        super().__init__()
        self.scheduler.processing = self.processing
        self.handed, self.cancelled, self.under_way = [], [], {}

    async def processing(self):
        return self.under_way

    def submit(self, guarded, function, common, work, *, key, workers, **more):
        self.handed.append((work, workers))
        future: Any = types.SimpleNamespace(key=key, add_done_callback=lambda _: None, done=lambda: False)
        return future

    def cancel(self, futures, force):
        self.cancelled += [future.key for future in futures]


def test_work_that_the_scheduler_keeps_for_workers_that_are_gone_is_begun_anew_once():
    client, coming = Keeping(), {("b", "/b")}
    a, b = WORKER, WORKER | {"host": "b", "local_directory": "/b/c"}
    supply = types.SimpleNamespace(step=lambda _: None, under_way=lambda: coming, reading=lambda: True)
    common, cut = dask_processes.Common("run"), lambda work: [work[:1], work[1:]]
    dispatcher = dispatch.Dispatcher(client, None, common, supply, None, cut)

    def look(**workers):
        client.answer = workers
        dispatcher._looked = -100
        dispatcher._look()
        dispatcher._go_on()

    look(a0=a, b0=b)
    dispatcher._begin("xy")
    client.under_way = {"b0": ("run-0-0",)}  # others may do it
    look(b0=b)
    assert client.handed == [("xy", ["a0"])] and not client.cancelled
    client.under_way = {}
    look(b0=b)  # which waits for data itself
    assert client.handed == [("xy", ["a0"])] and client.cancelled == ["run-0-0"]
    look(b0=b)
    look(a1=a, b0=b)
    look(a1=a, b0=b)
    assert client.handed[1:] == [("x", ["a1"]), ("y", ["a1"])]
