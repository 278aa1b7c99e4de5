"""What the client of a cluster concludes from what it sees there, and what it says of it."""

import importlib
import types
from typing import Any

import distributed
import numpy as np
import pytest

from xmcjax.cluster import ClusterError

dispatch = importlib.import_module("xmcjax.cluster._dispatch")

blocks = importlib.import_module("xmcjax.cluster._blocks")
predict = importlib.import_module("xmcjax.cluster._predict")

WORKER = {"nthreads": 1, "host": "a", "local_directory": "/a/b", "last_seen": 0.0}


class Client:
    """A client of a scheduler that gives one answer; workers die over every task."""

    def __init__(self):
        self.status = "running"
        self.scheduler = types.SimpleNamespace(address="tcp://x")
        self.answer: dict[str, Any] | None = {}

    def scheduler_info(self):
        raise AssertionError

    def sync(self, function, callback_timeout):
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

    def result(self, timeout):
        raise distributed.KilledWorker(self.key, None, 0)


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
