"""Sets of the Extreme Classification Repository: from the folder, from an archive, fetched; checked."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import io
import json
import tarfile
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from experiments import _xmc_sets
from xmcjax.data import make_power_law, save_xmc

NAME = "tiny-4k"


@pytest.fixture
def parts():
    X, Y = make_power_law(30, 12, 5, nonzeros_per_row=4, seed=0)
    return X[:20], Y[:20], X[20:], Y[20:]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A data folder, and a set of 5 labels, 20 rows and 10 test rows among those known."""
    monkeypatch.setenv("XMCJAX_DATA", str(tmp_path))
    monkeypatch.setitem(_xmc_sets.SETS, NAME, (_xmc_sets.Known(5, 20, 10),))
    (tmp_path / NAME).mkdir()
    return tmp_path / NAME


def archive(parts) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        names = ("tfidf-attnxml/X.trn.npz", "Y.trn.npz", "tfidf-attnxml/X.tst.npz", "Y.tst.npz")
        for name, matrix in zip(names, parts, strict=True):
            stored = io.BytesIO()
            sp.save_npz(stored, matrix)
            member = tarfile.TarInfo(f"xmc-base/{NAME}/{name}")
            member.size = len(stored.getvalue())
            tar.addfile(member, io.BytesIO(stored.getvalue()))
    return content.getvalue()


def assert_same(split, parts):
    for found, expected in zip(split, parts, strict=True):
        np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-6)


def test_texts_of_the_repository(folder, parts):
    save_xmc(folder / "train.txt.gz", *parts[:2])
    save_xmc(folder / "test.txt", *parts[2:])
    assert_same(_xmc_sets.load(NAME), parts)
    sums = (folder / "SHA256SUMS").read_text().splitlines()
    digest = hashlib.sha256((folder / "test.txt").read_bytes()).hexdigest()
    assert len(sums) == 2 and f"{digest}  test.txt" in sums
    assert_same(_xmc_sets.load(NAME), parts)
    # another file under the same name
    save_xmc(folder / "test.txt", 2 * parts[2], parts[3])
    with pytest.raises(ValueError, match=r"test.txt: expected SHA-256"):
        _xmc_sets.load(NAME)


def test_an_archive_that_lies_there(folder, parts):
    (folder / f"{NAME}.tar.gz").write_bytes(archive(parts))
    assert_same(_xmc_sets.load(NAME), parts)


def test_another_shape(folder, parts):
    (folder / f"{NAME}.tar.gz").write_bytes(archive((*parts[:2], parts[2][:9], parts[3][:9])))
    with pytest.raises(
        ValueError, match=r"expected labels, rows and test rows \(5, 20, 10\), found \(5, 20, 9\)"
    ):
        _xmc_sets.load(NAME)


@contextlib.contextmanager
def site(root):
    """Serves a folder on this machine: its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    handler = functools.partial(Quiet, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(60)


def test_fetching(folder, parts, tmp_path, monkeypatch):
    pytest.importorskip("pooch")
    content, member = archive(parts), f"xmc-base/{NAME}.tar.gz"
    files = tmp_path / "site" / "download" / _xmc_sets.ITEM / member
    listing = tmp_path / "site" / "metadata" / _xmc_sets.ITEM
    for path in (files, listing):
        path.parent.mkdir(parents=True)
    files.write_bytes(content)

    def publish(name, sha1):
        listing.write_text(json.dumps({"files": [{"name": name, "sha1": sha1}]}))

    with site(tmp_path / "site") as address:
        monkeypatch.setattr(_xmc_sets, "ARCHIVE", address)
        publish(member, "0" * 40)
        with pytest.raises(ValueError, match="hash"):
            _xmc_sets.load(NAME)
        publish("xmc-base/other.tar.gz", "0" * 40)
        with pytest.raises(FileNotFoundError, match=f"has no {member}"):
            _xmc_sets.load(NAME)
        publish(member, hashlib.sha1(content).hexdigest())
        assert_same(_xmc_sets.load(NAME), parts)
    # it is there now
    assert_same(_xmc_sets.load(NAME), parts)


def test_without_pooch(folder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pooch", None)
    with pytest.raises(FileNotFoundError, match=r"train.txt and test.txt or tiny-4k.tar.gz there.*datasets"):
        _xmc_sets.load(NAME)
