"""The process of one NUMA node: ``python -m xmcjax._node_worker IN OUT CORES``.

Started by :func:`xmcjax.lanes.train_on_nodes`, which it talks to over the two pipes. It pins itself to
the cores before anything else, so that all its memory lies on the node.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from multiprocessing.connection import Connection
from typing import Any

from xmcjax._topology import parse_cores


class _Channel:
    """The pipes to the process that hands out labels, for several threads."""

    def __init__(self, receiving: Connection, sending: Connection):
        self._receiving, self._sending = receiving, sending
        self._lock = threading.Lock()

    def send(self, kind: str, content: Any) -> None:
        with self._lock:
            self._sending.send((kind, content))

    def ask(self, kind: str, content: Any) -> Any:
        with self._lock:
            self._sending.send((kind, content))
            return self._receiving.recv()


class _RemoteQueue:
    """A queue (:mod:`xmcjax.lanes._queue`) at the other end of a channel."""

    def __init__(self, channel: _Channel, tree: bool):
        self._channel, self._tree = channel, tree
        self.finished = False

    def take(self, idle: int):
        if self.finished:
            return []
        taken, self.finished = self._channel.ask("take", idle)
        return taken

    def done(self, label: int, w, bias: float) -> None:
        if self._tree:
            self._channel.send("done", (label, w, bias))


def _leave_with_the_parent(pipe: int) -> None:
    """Ends this process, whatever it computes, when nobody holds the other end of the pipe any more."""
    gone = select.poll()
    gone.register(pipe, 0)  # 0: woken by the hang-up alone
    gone.poll()
    os._exit(1)


def main(receiving: str, sending: str, cores: str) -> None:
    os.sched_setaffinity(0, parse_cores(cores))
    # The process that started this one gets these signals too, and ends this one.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(signal.Signals[name], signal.SIG_IGN)
    inbound, outbound = Connection(int(receiving), writable=False), Connection(int(sending), readable=False)
    threading.Thread(target=_leave_with_the_parent, args=(inbound.fileno(),), daemon=True).start()
    channel = _Channel(inbound, outbound)
    try:
        try:
            from xmcjax._matrix_pipes import receive_matrix
            from xmcjax.lanes import make_trainer, precision

            X, Y = receive_matrix(inbound), receive_matrix(inbound)
            options, label_weights, tree = inbound.recv()

            def sink(result):
                channel.send("result", result)

            with precision(X.dtype):
                trainer = make_trainer(X, Y, None, label_weights, options, sink, None)
                summary = trainer.run(_RemoteQueue(channel, tree))  # type: ignore[arg-type]
            channel.send("end", summary)
        except (EOFError, BrokenPipeError):
            raise
        except Exception as error:
            channel.send("error", error)
    except (EOFError, BrokenPipeError):
        pass  # nobody is there to train for


if __name__ == "__main__":
    main(*sys.argv[1:])
