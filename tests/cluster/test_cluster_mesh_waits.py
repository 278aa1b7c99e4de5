"""Calls on a mesh that wait for workers end, and tell of it, whatever becomes of these."""

import importlib
from typing import Any

import pytest

from xmcjax.cluster import ClusterError

_mesh = importlib.import_module("xmcjax.cluster._mesh")


class Pending:
    """A task that has not ended."""

    status = "pending"

    def add_done_callback(self, call):
        pass

    def done(self):
        return False


class Seen:
    """Workers a, b and c, of which one is silent when they are looked at first, or none."""

    def __init__(self, silent=()):
        self.threads, self._silent, self._looks = dict.fromkeys("abc", 1), list(silent), 0

    def look(self):
        self._looks += 1
        assert self._looks < 5, "nobody ends this"

    def silent(self, seconds):
        return self._silent if self._looks == 1 else []


def test_a_worker_of_which_something_is_heard_again_was_lost_all_the_same():
    """Whoever stands by for the others would wait for ever."""
    seen: Any = Seen(silent="b")
    said = f"^process 1 beside b: nothing was heard of the worker for {_mesh.PATIENCE} seconds$"
    with pytest.raises(ClusterError, match=said):
        _mesh._at_last(seen, ["a", "b", "c"], [Pending(), Pending()], lambda: None)


def test_processes_that_did_not_begin_are_not_waited_for(monkeypatch):
    monkeypatch.setattr(_mesh, "PATIENCE", 0)
    seen: Any = Seen()
    with pytest.raises(ClusterError, match=r"^process 0 beside a: it did not begin$"):
        _mesh._answers(seen, ["a", "b"], [Pending(), Pending()], begun=False)


def test_a_worker_that_is_waited_for_long_is_named_once(monkeypatch, caplog):
    monkeypatch.setattr(_mesh, "PATIENCE", -1)
    answers, seen = [None, None, "a port"], Seen()
    found = _mesh._at_last(seen, ["a", "b", "c"], [Pending(), Pending()], lambda: answers.pop(0))  # type: ignore[arg-type]
    assert found == "a port"
    assert caplog.messages == ["a mesh waits for b, which is busy with other tasks"]


def test_a_task_that_nobody_waits_for_any_more_says_so(monkeypatch):
    monkeypatch.setattr(_mesh, "meet", lambda *_: None)
    said = "the worker closes, or nobody waits for the process any more"
    assert _mesh._member("run", 1, "127.0.0.1", 2, max, ()) == (None, said)
