"""A server on this machine, a cache of its own, and the parts of a tiny data set."""

from __future__ import annotations

import http.server
import threading

import pytest

from tests.support.data_sets import NAME
from xmcjax.data import make_power_law


class Site:
    """A server of this machine: contents by path, and what it was asked for."""

    def __init__(self):
        self.contents: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.part = 1.0  # of each answer that is sent
        self.address = ""


@pytest.fixture
def site():
    made = Site()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            made.asked.append(self.path)
            content = made.contents.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: int(made.part * len(content))])

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join(60)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of its own, and no data folder."""
    pooch = pytest.importorskip("pooch")
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / "cache" / name)
    monkeypatch.delenv("XMCJAX_DATA", raising=False)
    return tmp_path / "cache" / "xmcjax" / "datasets" / NAME


@pytest.fixture
def parts():
    X, Y = make_power_law(30, 12, 5, nonzeros_per_row=4, seed=0)
    X.data[:] = 1
    return X[:20], Y[:20], X[20:], Y[20:]
