"""A sentence for a process that JAX aborts because process 0 of its run has ended (abort_note.cc)."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

from xmcjax.native import _library


@contextlib.contextmanager
def noted_at_abort(sentence: str, address: str) -> Iterator[None]:
    """A context in which an abort of this process prints a sentence on stderr, if an address does not answer.

    Args:
        sentence: at most 500 bytes.
        address: host and port, as "host:port" or "[IPv6]:port".

    Nothing is printed where the host has no IP address, or without the native kernels.
    """
    library = _library.load_library()
    host, _, port = address.rpartition(":")
    try:
        ip, number = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0][4][:2]
    except (OSError, ValueError):  # no such host
        library = None
    if library is None:
        yield
        return
    library.xmcjax_note_at_abort(f"{sentence}\n".encode(), str(ip).encode(), int(number))
    try:
        yield
    finally:
        library.xmcjax_note_at_abort(None, None, 0)
