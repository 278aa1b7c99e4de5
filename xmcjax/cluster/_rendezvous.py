"""Tasks on several workers that begin their work together, however long some of these are busy before.

A task that has come keeps its thread, gives a word and waits for that of the client, who speaks when all have
come.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import time
from typing import TYPE_CHECKING, Any

from xmcjax.cluster._dispatch import LOOK, wanted

if TYPE_CHECKING:
    from distributed import Client

# Seconds in which a worker says that a task has not come; for its answer, before it is asked again.
_ASKED, _ANSWER = 1, 3

# In a worker, by run and place: the words of tasks that wait, and where they hear that of the client.
_waiting: dict[tuple[str, int], tuple[Any, queue.SimpleQueue[Any]]] = {}


def meet(run: str, place: int, word: Any) -> Any:
    """In a task: the word of the client; None where nobody waits for this task any more.

    Args:
        run: name of what begins together.
        place: of this task in it.
        word: for the client.
    """
    told: queue.SimpleQueue[Any] = queue.SimpleQueue()
    _waiting[run, place] = word, told
    try:
        while wanted():
            with contextlib.suppress(queue.Empty):
                return told.get(timeout=LOOK)
        return None
    finally:
        del _waiting[run, place]


def come(client: Client, worker: str, run: str, place: int) -> list[Any]:
    """[the word of a task], or nothing where it has not come within a second."""
    return _called(client, [worker], _come, run, place).get(worker, [])


def tell(client: Client, workers: list[str], run: str, word: Any) -> bool:
    """Tells all tasks of a run; whether all of their workers have heard it."""
    return _called(client, workers, _tell, run, word).keys() >= set(workers)


def _called(client: Any, workers: list[str], function: Any, *arguments: Any) -> dict[str, Any]:
    """What it returns in workers, beside their tasks; without those that do not answer."""
    with contextlib.suppress(OSError, TimeoutError):  # who asks sees what has become of them
        return client.run(function, *arguments, workers=workers, on_error="ignore", callback_timeout=_ANSWER)
    return {}


async def _come(run: str, place: int) -> list[Any]:
    end = time.monotonic() + _ASKED
    while (run, place) not in _waiting and time.monotonic() < end:
        await asyncio.sleep(0.01)
    return list(_waiting.get((run, place), ())[:1])


def _tell(run: str, word: Any) -> None:
    for (name, _), (_, told) in list(_waiting.items()):
        if name == run:
            told.put(word)
