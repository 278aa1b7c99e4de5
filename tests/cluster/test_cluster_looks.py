"""What the client of a cluster concludes from its looks at the scheduler, which may be long apart."""

import importlib
import types
from typing import Any

import pytest

from xmcjax.cluster import ClusterError

dispatch = importlib.import_module("xmcjax.cluster._dispatch")

WORKER = {"nthreads": 1, "host": "a", "local_directory": "/a/b", "last_seen": 0.0}


class Client:
    """A client of a scheduler that answers each look in its turn."""

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
