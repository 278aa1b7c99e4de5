"""Tasks on several workers that begin their work together, however long some workers are busy before.

A task that has begun keeps its thread, leaves a message and waits for the message of the client, which sends
it when all tasks have begun.
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

# _ASKED: seconds that a worker waits for a task to begin before it answers that it has not. _ANSWER: seconds
# that the client waits for this answer.
_ASKED, _ANSWER = 1, 3

# In a worker, by run and place: the message of each waiting task, and the queue for that of the client.
_waiting: dict[tuple[str, int], tuple[Any, queue.SimpleQueue[Any]]] = {}


def meet(run: str, place: int, word: Any) -> Any:
    """In a task: waits for the message of the client; None where nobody waits for this task any more.

    Args:
        run: name of the run whose tasks begin together.
        place: of this task in the run.
        word: the message for the client.
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
    """[the message of a task], or [] where the task has not begun within a second."""
    return _called(client, [worker], _come, run, place).get(worker, [])


def tell(client: Client, workers: list[str], run: str, word: Any) -> bool:
    """Sends the client's message to all tasks of a run. Returns whether all of their workers received it."""
    return _called(client, workers, _tell, run, word).keys() >= set(workers)


def _called(client: Any, workers: list[str], function: Any, *arguments: Any) -> dict[str, Any]:
    """What a function returns in workers, called beside their tasks; silent workers are left out."""
    with contextlib.suppress(OSError, TimeoutError):  # the caller checks which workers are lost
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
