"""Several processes that solve one problem together: all of them report what goes wrong in one.

The processes of ``jax.distributed`` tell each other by the key-value store of its coordination service, which
process 0 keeps: what they were given, a number that rises every second, and what ended them. A collective of
XLA waits for ever for a process that does not come. So no collective is begun before all processes were given
the same, and the wait for a collective ends where another process has failed, or gives no sign of life.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import hashlib
import json
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from xmcjax._exit import end_now
from xmcjax.native import awaited, noted_at_abort

# Seconds. _PERIOD: between two signs of life. _SILENT: without one, until a process is given up; _LOST: the
# same where a connection was lost already. _GRACE: for a call to end although a process has failed. _BEGIN:
# for the other processes to begin.
_PERIOD, _SILENT, _LOST, _GRACE, _BEGIN = 1.0, 30.0, 10.0, 5.0, 600.0
# Seconds that the end of this process waits for the others, where it cannot go on without them.
_PARTING = 10.0
_STORE_GONE = "process 0 of this run has ended or cannot be reached, and JAX aborts the others"
_HINT = ": start all processes again"
_solves: collections.Counter[str] = collections.Counter()


class PeerError(RuntimeError):
    """Another process of the run failed, ended or is silent; the message names it."""


class Peers:
    """The processes of one solve over a mesh; with a single one every call is a plain one.

    ``with Peers(mesh) as peers:`` goes around the whole solve, checks of its arguments included. An exception
    that leaves it is told to the other processes, where a PeerError follows within seconds.

    Args:
        mesh: of the solve; None for none. Every process of it makes the same solves in the same order.
    """

    def __init__(self, mesh: Mesh | None):
        self._others: list[int] = []
        if mesh is None:
            return
        members = sorted({device.process_index for device in mesh.devices.flat})
        client, self._me = getattr(_state(), "client", None), jax.process_index()
        if client is None or self._me not in members:
            return
        self._client: Any = client
        self._others = [i for i in members if i != self._me]
        group = hashlib.sha256(repr(members).encode()).hexdigest()[:8]
        _solves[group] += 1
        self._folder = f"xmcjax/{group}/{_solves[group]}"
        self._before = f"xmcjax/{group}/{_solves[group] - 1}"
        self._members = members

    def __enter__(self) -> Peers:
        if self._others:
            self._over = threading.Event()
            self._worker: _Worker | None = None
            self._last_word: tuple[str, str] | None = None
            now = time.monotonic()
            self._answered = now  # when the store did last
            self._beats: dict[int, tuple[str, float]] = {}  # of each process, and when it came
            self._failed: tuple[str, float] | None = None  # the first that was heard of, and when
            self._done: set[int] = set()
            self._watcher = threading.Thread(target=self._watch, daemon=True)
            self._watcher.start()
            self._note = contextlib.ExitStack()
            if self._me != 0:
                # JAX aborts this process as soon as the connection to process 0 is lost
                sentence = f"{__name__}.PeerError: {_STORE_GONE}{_HINT}"
                self._note.enter_context(noted_at_abort(sentence, _state().coordinator_address))
        return self

    def __exit__(self, kind, error, traceback) -> None:
        if self._others:
            if self._worker is not None:
                self._worker.end()
                if error is None:  # the worker has nothing left to do
                    self._worker.thread.join()
            with self._note:
                self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if error is None:
            self._leave("done", "")
            atexit.unregister(_part)
            if _threads:
                _part_at_exit(False)
            return
        if _lost_connection(error):
            sentence = self._culprit()
            if sentence is None and "Gloo" in str(error):
                sentence = f"the connection to another process was lost ({str(error).splitlines()[0]})"
            if sentence is not None:
                error = PeerError(sentence + _HINT)
        if isinstance(error, PeerError):
            self._leave("failed", str(error).removesuffix(_HINT))
            _part_at_exit(True)
            raise error from None
        if isinstance(error, Disagreement):
            self._leave("done", "")  # everybody has found it
        else:
            self._leave("failed", f"process {self._me} of this run ended with {_described(error)}")
        if _threads:
            _part_at_exit(False)

    def agree(self, facts: Callable[[], dict[str, str]]) -> None:
        """Sees that all processes were given the same.

        Args:
            facts: by their names, in words; the first is ``"work"``, the name of the solver.

        Raises:
            Disagreement: they were given different facts; the sentence is the same on all of them.
            PeerError: a process failed or ended before, or has not come within ten minutes.
        """
        if not self._others:
            return
        own = facts()
        everyone = [json.loads(text) for text in self.exchanged("facts", json.dumps(own))]
        for name in own:
            # another solver has other names after the first one, but it differs in the first already
            self._check_same(name, [one.get(name, "") for one in everyone])
        # all processes have come so far, and so none reads the entries of the solve before
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # what is left there does no harm
            for name in ("beat", "done", "facts"):
                self._client.key_value_delete(f"{self._before}/{name}/{self._me}")

    def _check_same(self, name: str, texts: list[str]) -> None:
        usual, count = collections.Counter(texts).most_common(1)[0]
        if count < len(texts):
            odd = next(k for k, text in enumerate(texts) if text != usual)
            same = texts.index(usual)
            raise Disagreement(
                f"process {self._members[odd]} was given other {name} than process {self._members[same]}: "
                f"{texts[odd]} in place of {usual}; all have to be given the same"
            )

    def exchanged(self, name: str, text: str) -> list[str]:
        """The texts of all processes, in their order."""
        if not self._others:
            return [text]
        self._client.key_value_set(f"{self._folder}/{name}/{self._me}", text, allow_overwrite=True)
        begin, pause = time.monotonic(), 0.002
        while True:
            found = _entries(self._client, f"{self._folder}/{name}/")
            if len(found) == len(self._members):
                return [found[i] for i in self._members]
            missing = next(i for i in self._members if i not in found)
            self.look()
            ended = _entries(self._client, "xmcjax/ended/").get(missing)
            if ended is not None:
                raise PeerError(f"process {missing} of this run ended{ended}{_HINT}")
            if time.monotonic() - begin > _BEGIN:
                raise PeerError(
                    f"process {missing} of this run has not come to this solve within {_BEGIN:.0f} s{_HINT}"
                )
            time.sleep(pause)
            pause = min(2 * pause, 0.5)

    def awaited(self, function: Callable, *args: Any, **options: Any) -> Any:
        """What a jitted function over the mesh returns, as of :func:`xmcjax.native.awaited`.

        Raises:
            PeerError: the result does not come, because of another process.
        """
        return awaited(function, *args, look=self.look if self._others else None, **options)

    def apart(self, function: Callable[[], Any]) -> Any:
        """What a function returns that waits for other processes within XLA; it runs in its own thread.

        Raises:
            PeerError: the result does not come, because of another process.
        """
        if not self._others:
            return function()
        if self._worker is None:
            self._worker = _Worker()
        outcome = self._worker.begin(function)
        _threads.append(self._worker.thread)
        while not wait([outcome], 0.2).done:
            self.look()
        _threads.remove(self._worker.thread)
        return outcome.result()

    def look(self) -> None:
        """To be called while this process waits for others.

        Raises:
            PeerError: another process has failed, or gives no sign of life.
        """
        sentence = self._verdict(_SILENT, _GRACE)
        if sentence is not None:
            raise PeerError(sentence + _HINT)

    def _verdict(self, silent: float, grace: float) -> str | None:
        now = time.monotonic()
        if self._failed is not None and now - self._failed[1] >= grace:
            return self._failed[0]
        quiet = {i: beat[1] for i, beat in self._beats.items() if i not in self._done}
        if now - self._answered > silent and self._me != 0:
            # nobody is heard where the store, which process 0 keeps, does not answer
            quiet = {0: self._answered}
        for i, since in quiet.items():
            if now - since > silent:
                return (
                    f"process {i} of this run has given no sign of life for {silent:.0f} s: it was killed or "
                    "stopped, or cannot be reached"
                )
        return None

    def _culprit(self) -> str | None:
        """Who is to blame for a connection that was lost, as soon as it is known."""
        end = time.monotonic() + 2 * _LOST
        while time.monotonic() < end:
            sentence = self._verdict(_LOST, 0)
            if sentence is not None:
                return sentence
            time.sleep(0.1)
        return None

    def _watch(self) -> None:
        """The thread that speaks to the store, which may be slow to answer."""
        beat = 0
        while True:
            over = self._over.wait(_PERIOD if beat else 0)
            beat += 1
            try:
                if over:
                    assert self._last_word is not None
                    kind, text = self._last_word
                    self._set(kind, text)
                    return
                self._set("beat", str(beat))
                now = time.monotonic()
                for i, text in _entries(self._client, f"{self._folder}/beat/").items():
                    if i != self._me and self._beats.get(i, ("", 0.0))[0] != text:
                        self._beats[i] = text, now
                failed = _entries(self._client, f"{self._folder}/failed/")
                if failed and self._failed is None:
                    self._failed = min(failed.items())[1], now
                self._done |= _entries(self._client, f"{self._folder}/done/").keys()
                self._answered = now
            except jax.errors.JaxRuntimeError:  # no answer of the store: judged by how long this lasts
                if over:
                    return

    def _set(self, kind: str, text: str) -> None:
        self._client.key_value_set(f"{self._folder}/{kind}/{self._me}", text, allow_overwrite=True)

    def _leave(self, kind: str, text: str) -> None:
        self._last_word = kind, text
        self._over.set()
        # where the store does not answer, the others know that it is gone
        self._watcher.join(_PARTING)
        if self._watcher.is_alive():
            _threads.append(self._watcher)


class _Worker:
    """A thread that makes one call after the other; the interpreter does not wait for it at its end."""

    def __init__(self):
        self._calls: queue.SimpleQueue[tuple[Future, Callable[[], Any]] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def begin(self, function: Callable[[], Any]) -> Future:
        outcome: Future = Future()
        self._calls.put((outcome, function))
        return outcome

    def end(self) -> None:
        """Lets the thread end after the calls that were begun."""
        self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            outcome, function = call
            try:
                outcome.set_result(function())
            except BaseException as error:  # the caller raises it
                outcome.set_exception(error)


class Disagreement(ValueError):
    """Processes of one solve were given different arguments."""


def described(a: Any) -> str:
    """What an array, or a sparse matrix in CSR, must have in common on all processes, in words."""
    parts = (a.indptr, a.indices, a.data) if hasattr(a, "indptr") else (a,)
    digest = hashlib.sha256()
    for part in parts:
        digest.update(np.ascontiguousarray(np.asarray(part)).data)
    return f"{list(np.shape(a))} of {a.dtype} with SHA-256 {digest.hexdigest()[:16]}"


def _state() -> Any:
    """The state of ``jax.distributed``, for which JAX has no public name; None where there is none."""
    return getattr(sys.modules.get("jax._src.distributed"), "global_state", None)


def _entries(client: Any, folder: str) -> dict[int, str]:
    """What the processes have put into a folder of the store, by their numbers."""
    return {int(key.rsplit("/", 1)[1]): text for key, text in client.key_value_dir_get(folder)}


def _described(error: BaseException) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _lost_connection(error: BaseException) -> bool:
    # XLA raises one or the other, as it finds the connection lost at once or by the result
    return isinstance(error, jax.errors.JaxRuntimeError) or (
        isinstance(error, ValueError) and "Gloo" in str(error)
    )


_parting, _parted = threading.Event(), threading.Event()
# Threads that were left within JAX. One that comes back from there while Python ends would abort the process.
_threads: list[threading.Thread] = []


def _part_at_exit(collective: bool) -> None:
    if not any(thread.name == _shut_down.__name__ for thread in threading.enumerate()):
        threading.Thread(target=_shut_down, daemon=True, name=_shut_down.__name__).start()
    atexit.unregister(_part)
    atexit.register(_part, collective)


def _part(collective: bool) -> None:
    """Leaves the others at the exit of this process, after a PeerError or where a thread was left within JAX.

    The others, where they are alive and about to end as well, are waited for, so that they need not wait for
    this process; then threads that waited for them come back. After a PeerError a collective may wait in XLA,
    and the exit of JAX would wait for that for ever: the process ends here, and so it does where a thread has
    not come back.
    """
    _parting.set()
    _parted.wait(_PARTING)
    for thread in _threads:
        thread.join(0 if collective else _GRACE)
    if collective or any(thread.is_alive() for thread in _threads):
        interrupted = isinstance(getattr(sys, "last_value", None), KeyboardInterrupt)
        end_now(128 + signal.SIGINT if interrupted else 1)


def _shut_down() -> None:
    """The thread that leaves the others; it has to begin before the exit, where no thread begins any more."""
    _parting.wait()
    with contextlib.suppress(RuntimeError):  # others are gone
        jax.distributed.shutdown()
    _parted.set()


def _tell_the_end() -> None:
    """At the exit of a process: tells those that wait for it to begin a solve that it will not come."""
    state = _state()
    if state is None or state.client is None:
        return
    error = getattr(sys, "last_value", None)
    text = "" if error is None else f" with {_described(error)}"
    with contextlib.suppress(RuntimeError):  # nobody is there any more
        state.client.key_value_set(f"xmcjax/ended/{state.process_id}", text)


atexit.register(_tell_the_end)
