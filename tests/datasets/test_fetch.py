"""Data sets by name: from a folder, from the cache, from a server on this machine; checked, or refused."""

from __future__ import annotations

import dataclasses
import hashlib
import http.server
import io
import json
import os
import socket
import struct
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from xmcjax import datasets
from xmcjax.data import DataFormatError, make_power_law, save_svmlight, save_xmc

ROOT = Path(__file__).resolve().parent.parent.parent
NAME = "tiny-4k"


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


@pytest.fixture(autouse=True)
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


def arff(X, Y) -> bytes:
    """As Mulan writes it: a row of columns with the value 1, the labels last."""
    both = sp.hstack([X, Y], format="csr")
    head = "@relation tiny\n\n" + "".join(f"@attribute c{j} {{0,1}}\n" for j in range(both.shape[1]))
    rows = ["{" + ",".join(f"{j} 1" for j in sorted(row.indices)) + "}\n" for row in both]
    return (head + "\n@data\n" + "".join(rows)).encode()


def known(monkeypatch, files=(), reader="", **others):
    """The tiny set among those that are known."""
    usual = dict(licence="made up", source="this test", layout="xmc", kind="labels")
    shape = dict(n_train=20, n_test=10, n_features=12, n_labels=5)
    found = datasets.DataSet(name=NAME, **{**usual, **shape, **others}, files=files, reader=reader)
    monkeypatch.setitem(datasets.SETS, NAME, found)
    return found


@pytest.fixture
def served(site, parts, monkeypatch):
    """The tiny set in two files of the server, with the checksums that they have."""
    files = []
    for name, pair in (("train.arff", parts[:2]), ("test.arff", parts[2:])):
        site.contents[f"/{name}"] = arff(*pair)
        digest = hashlib.sha256(site.contents[f"/{name}"]).hexdigest()
        files.append(datasets.File(name, f"{site.address}/{name}", digest))
    return known(monkeypatch, tuple(files), "mulan")


def assert_same(found, parts):
    for one, expected in zip(found[:4], parts, strict=True):
        np.testing.assert_allclose(one.toarray(), expected.toarray(), rtol=1e-6)


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_one_line_is_said_whoever_loaded_pooch_first(site, served, cache, capsys, caplog):
    """pooch's own handler writes to the standard error of the moment at which pooch was loaded."""
    logger = pytest.importorskip("pooch").get_logger()
    logger.addHandler(caplog.handler)
    try:
        datasets.fetch(NAME)
    finally:
        logger.removeHandler(caplog.handler)
    assert caplog.messages == [] and len(site.asked) == 2
    assert capsys.readouterr() == ("", f"{NAME}: licence made up; from this test\n")


def test_fetched_once(site, served, parts, cache, capsys):
    assert_same(datasets.fetch(NAME), parts)
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"{NAME}: licence made up; from this test\n")
    assert site.asked == ["/train.arff", "/test.arff"] and files_in(cache) == ["test.arff", "train.arff"]
    found = datasets.fetch(NAME)
    assert_same(found, parts)
    assert found.info is served and found.X_valid is None
    assert len(site.asked) == 2 and capsys.readouterr().err == ""


def test_another_checksum_is_refused(site, served, cache):
    site.contents["/test.arff"] += b"{0 1}\n"
    with pytest.raises(ValueError, match=rf"^{NAME}: {site.address}/test.arff has not the known hash"):
        datasets.fetch(NAME)
    assert files_in(cache) == ["train.arff"]


def test_a_damaged_cache_is_fetched_again(site, served, parts, cache):
    datasets.fetch(NAME)
    (cache / "train.arff").write_bytes(b"@data\n")
    assert_same(datasets.fetch(NAME), parts)
    assert site.asked.count("/train.arff") == 2


def test_an_answer_that_breaks_off_leaves_nothing(site, served, parts, cache):
    site.part = 0.5
    with pytest.raises((OSError, ValueError), match=rf"^{NAME}: .*{site.address}/train.arff"):
        datasets.fetch(NAME)
    assert files_in(cache) == []
    site.part = 1
    assert_same(datasets.fetch(NAME), parts)


def test_an_error_of_the_server(site, served, cache):
    del site.contents["/train.arff"]
    with pytest.raises(OSError, match=r"^tiny-4k: expected to fetch .*/train.arff, found .*\(status 404\)"):
        datasets.fetch(NAME)
    assert files_in(cache) == []


def test_no_network(monkeypatch, cache):
    with socket.socket() as closed:  # bound, and nobody listens
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/train.arff"
        known(monkeypatch, (datasets.File("train.arff", url, "0" * 64),), "mulan")
        with pytest.raises(OSError, match="expected to fetch") as caught:
            datasets.fetch(NAME)
    assert str(caught.value) == (
        f"{NAME}: expected to fetch {url}, found no such answer (ConnectionError); where there is no "
        f"network, put the file at {cache / 'train.arff'}, or let XMCJAX_DATA name a folder that holds {NAME}"
    )


def test_the_folder_comes_first(site, served, parts, tmp_path, monkeypatch):
    (tmp_path / "data" / NAME).mkdir(parents=True)
    monkeypatch.setenv("XMCJAX_DATA", str(tmp_path / "data"))
    X = parts[0].copy()
    X.data[:] = 2
    save_xmc(tmp_path / "data" / NAME / "train.txt.gz", X, parts[1])
    save_xmc(tmp_path / "data" / NAME / "test.txt", *parts[2:])
    assert_same(datasets.fetch(NAME), (X, *parts[1:]))
    # of the argument before that of the environment
    for name, content in site.contents.items():
        (tmp_path / NAME).mkdir(exist_ok=True)
        (tmp_path / NAME / name[1:]).write_bytes(content)
    assert_same(datasets.fetch(NAME, folder=tmp_path), parts)
    assert site.asked == []
    # what a caller has given is refused, not replaced
    (tmp_path / NAME / "train.arff").write_bytes(b"@data\n")
    with pytest.raises(ValueError, match=r"train.arff: expected SHA-256 \w+, found"):
        datasets.fetch(NAME, folder=tmp_path)
    assert (tmp_path / NAME / "train.arff").read_bytes() == b"@data\n" and site.asked == []


def test_classes_of_a_folder(parts, tmp_path, monkeypatch):
    known(monkeypatch, kind="classes", layout="svmlight")
    (tmp_path / NAME).mkdir()
    y = np.arange(20) % 5 + 1
    for name, X, classes in (("train", parts[0], y), ("test", parts[2], y[:10]), ("val", parts[2], y[5:15])):
        save_svmlight(tmp_path / NAME / f"{name}.libsvm", X, classes)
    found = datasets.fetch(NAME, folder=tmp_path)
    np.testing.assert_array_equal(found.Y_train, y)
    np.testing.assert_array_equal(found.Y_valid, y[5:15])
    assert found.Y_test.dtype == np.int64 and found.X_valid.shape == (10, 12)


def test_a_local_copy_only(tmp_path, monkeypatch):
    known(monkeypatch)
    with pytest.raises(FileNotFoundError, match=r"expected train.txt and test.txt .* in a folder"):
        datasets.fetch(NAME)
    with pytest.raises(FileNotFoundError, match=f"in {tmp_path}/{NAME}, found none; no public address"):
        datasets.fetch(NAME, folder=tmp_path)


@pytest.mark.parametrize("published", [True, False])
def test_a_local_copy_that_lacks_a_part(site, served, parts, tmp_path, monkeypatch, published):
    """It is not passed over for a download, nor said to be none."""
    if not published:
        monkeypatch.setitem(datasets.SETS, NAME, dataclasses.replace(served, files=()))
    folder = tmp_path / NAME
    folder.mkdir()
    save_xmc(folder / "train.txt.xz", *parts[:2])
    with pytest.raises(FileNotFoundError) as caught:
        datasets.fetch(NAME, folder=tmp_path)
    assert str(caught.value) == (f"{folder}: expected test.txt (plain, .gz or .xz), found train.txt.xz alone")
    monkeypatch.setenv("XMCJAX_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"expected test.txt .* found train.txt.xz alone$"):
        datasets.fetch(NAME)
    assert site.asked == []
    save_xmc(folder / "test.txt", *parts[2:])
    assert_same(datasets.fetch(NAME), parts)


@pytest.mark.parametrize("ending", ["txt", "arff"])
def test_links_that_lead_nowhere(site, served, tmp_path, ending):
    (tmp_path / NAME).mkdir()
    for name in ("train", "test"):
        (tmp_path / NAME / f"{name}.{ending}").symlink_to("nothing")
    with pytest.raises(FileNotFoundError, match=f"{NAME}/train.{ending}"):
        datasets.fetch(NAME, folder=tmp_path)
    assert site.asked == []


@pytest.mark.parametrize("name", ["train.arff", "train.arff.xz"])
def test_a_part_of_what_the_publisher_has(site, served, parts, tmp_path, cache, name):
    folder = tmp_path / NAME
    folder.mkdir()
    (folder / name).write_bytes(site.contents["/train.arff"])
    expected = "test.arff" if name == "train.arff" else "train.arff and test.arff"
    with pytest.raises(FileNotFoundError, match=f"^{folder}: expected {expected}, found {name} alone$"):
        datasets.fetch(NAME, folder=tmp_path)
    assert site.asked == []
    # in the cache it is what a download has left
    cache.mkdir(parents=True)
    (cache / "train.arff").write_bytes(site.contents["/train.arff"])
    (tmp_path / "link").symlink_to(cache.parent)
    for folder in (None, cache.parent, tmp_path / "link", os.path.relpath(cache.parent)):
        (cache / "test.arff").unlink(missing_ok=True)
        assert_same(datasets.fetch(NAME, folder=folder), parts)
    assert site.asked == ["/test.arff"] * 4


@pytest.mark.parametrize("folder", [3, b"folder", ["folder"]])
def test_a_folder_that_is_no_path(served, folder):
    for name in (NAME, "naics_demo"):
        with pytest.raises(TypeError, match=r"^folder: expected a path, got "):
            datasets.fetch(name, folder=folder)


def test_names():
    with pytest.raises(
        ValueError, match=r"^name: expected a data set of naics_demo, bibtex, .*, got 'bibtext'$"
    ):
        datasets.fetch("bibtext")
    assert datasets.names() == tuple(datasets.SETS)
    for name, found in datasets.SETS.items():
        assert found.name == name and found.licence and found.source
        for file in found.files:
            assert file.url.startswith("https://") and (len(file.sha256 or "") == 64 or file.listing)


def test_the_table_of_the_page():
    page = (ROOT / "docs" / "reference" / "datasets.md").read_text()
    assert datasets.table() in page, "docs/reference/datasets.md: expected what datasets.table() gives"


def test_a_file_of_another_format(site, served, monkeypatch):
    content = b"@data\n{0 1,1 2}\n"
    site.contents["/train.arff"] = content
    first = served.files[0]._replace(sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(datasets.SETS, NAME, dataclasses.replace(served, files=(first, served.files[1])))
    with pytest.raises(DataFormatError, match=r"train.arff:2: expected a row .*, found \{0 1,1 2\}"):
        datasets.fetch(NAME)


def test_questions_and_their_classes(site, monkeypatch):
    stored = {
        "train": [["What's that, b that?", "two"], ["a bird", "one"]],
        "test": [["that fish", "one"]],
        "val": [["bird", "two"]],
    }
    content = json.dumps(stored).encode()
    site.contents["/data.json"] = content
    file = datasets.File("data.json", f"{site.address}/data.json", hashlib.sha256(content).hexdigest())
    known(
        monkeypatch,
        (file,),
        "clinc",
        kind="classes",
        layout="svmlight",
        **dict(n_train=2, n_test=1, n_features=3, n_labels=2),
    )
    found = datasets.fetch(NAME)  # of bird, that, what
    np.testing.assert_array_equal(found.X_train.toarray(), [[0, 2, 1], [1, 0, 0]])
    np.testing.assert_array_equal(found.X_test.toarray(), [[0, 1, 0]])
    assert (found.Y_train.tolist(), found.Y_test.tolist(), found.Y_valid.tolist()) == ([2, 1], [1], [2])


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


@pytest.fixture
def listed(site, parts, monkeypatch):
    """The tiny set as an archive whose SHA-1 the publisher lists; a function that publishes a listing."""
    member, content = f"xmc-base/{NAME}.tar.gz", archive(parts)
    digest = hashlib.sha1(content).hexdigest()
    site.contents[f"/download/{member}"] = content
    address = f"{site.address}/download/{member}"
    known(
        monkeypatch,
        (datasets.File(f"{NAME}.tar.gz", address, None, f"{site.address}/metadata", member),),
        "pecos",
        n_features=None,
    )

    def publish(name=member, sha1=digest):
        site.contents["/metadata"] = json.dumps(
            {"files": [{"name": "other"}, {"name": name, "sha1": sha1}]}
        ).encode()

    return publish


def test_a_checksum_of_the_publisher(site, listed, parts, cache):
    with pytest.raises(OSError, match=r"found no such answer \(status 404\)"):
        datasets.fetch(NAME)
    listed(sha1="0" * 40)
    with pytest.raises(ValueError, match="has not the known hash"):
        datasets.fetch(NAME)
    listed(name="xmc-base/other.tar.gz")
    with pytest.raises(FileNotFoundError, match=f"expected xmc-base/{NAME}.tar.gz in the listing"):
        datasets.fetch(NAME)
    site.contents["/metadata"] = b"[]"
    with pytest.raises(OSError, match=NAME):
        datasets.fetch(NAME)
    assert files_in(cache) == []
    listed()
    assert_same(datasets.fetch(NAME), parts)
    asked = len(site.asked)
    assert_same(datasets.fetch(NAME), parts)
    assert len(site.asked) == asked and files_in(cache) == ["SHA256SUMS", f"{NAME}.tar.gz"]
    (cache / f"{NAME}.tar.gz").write_bytes(archive(tuple(2 * part for part in parts)))
    with pytest.raises(ValueError, match=r"tiny-4k.tar.gz: expected SHA-256 \w+ as in SHA256SUMS, found"):
        datasets.fetch(NAME)


def save_texts(folder: Path, parts) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_xmc(folder / "train.txt.gz", *parts[:2])
    save_xmc(folder / "test.txt", *parts[2:])


def test_texts_of_the_repository_are_held_to_their_first_checksum(listed, parts, cache):
    save_texts(cache, parts)
    assert_same(datasets.fetch(NAME), parts)
    digest = hashlib.sha256((cache / "test.txt").read_bytes()).hexdigest()
    assert f"{digest}  test.txt" in (cache / "SHA256SUMS").read_text().splitlines()
    save_xmc(cache / "test.txt", 2 * parts[2], parts[3])
    with pytest.raises(ValueError, match=r"test.txt: expected SHA-256"):
        datasets.fetch(NAME)


@pytest.mark.parametrize("form", ["texts", "archive"])
def test_nothing_is_written_into_a_folder_that_is_given(listed, parts, tmp_path, form):
    """It may be read-only, and of others."""
    folder = tmp_path / NAME
    folder.mkdir()
    if form == "texts":
        save_texts(folder, parts)
    else:
        (folder / f"{NAME}.tar.gz").write_bytes(archive(parts))
    before = files_in(folder)
    folder.chmod(0o555)
    try:
        assert_same(datasets.fetch(NAME, folder=tmp_path), parts)
    finally:
        folder.chmod(0o755)
    assert files_in(folder) == before


@pytest.mark.parametrize("name", ["  test.txt", " *test.txt", "  ./test.txt", f"  {NAME}/test.txt"])
def test_sums_of_a_folder_that_is_given_are_compared(listed, parts, tmp_path, name):
    folder = tmp_path / NAME
    save_texts(folder, parts)
    sums, digest = folder / "SHA256SUMS", hashlib.sha256((folder / "test.txt").read_bytes()).hexdigest()
    sums.write_text(f"{digest}{name}\n")  # of one file: the other is as it is
    assert_same(datasets.fetch(NAME, folder=tmp_path), parts)
    assert sums.read_text() == f"{digest}{name}\n"
    save_xmc(folder / "test.txt", 2 * parts[2], parts[3])
    with pytest.raises(ValueError, match=rf"test.txt: expected SHA-256 {digest} as in SHA256SUMS, found"):
        datasets.fetch(NAME, folder=tmp_path)
    sums.write_text(f"{digest}{name}\n{digest[:-1]}  train.txt.gz\n")
    with pytest.raises(DataFormatError, match=r"SHA256SUMS:2: expected a SHA-256 and a name"):
        datasets.fetch(NAME, folder=tmp_path)


@pytest.mark.parametrize("given", [True, False])
def test_sums_that_others_wrote(listed, parts, tmp_path, cache, given):
    """What sha256sum -c passes over is passed over, and kept; upper case is the same number."""
    folder = tmp_path / NAME if given else cache
    save_texts(folder, parts)
    sums, other = folder / "SHA256SUMS", "0" * 64
    digest = hashlib.sha256((folder / "test.txt").read_bytes()).hexdigest()
    lines = [
        "# of test.txt",
        "",
        f"SHA256 (val.txt) = {other}",
        f"{other}  test.txt.gz",
        f"{other}  old/test.txt",
    ]
    lines.append(f"{digest.upper()}  test.txt")
    sums.write_text("\n".join(lines))
    assert_same(datasets.fetch(NAME, folder=tmp_path if given else None), parts)
    added = sums.read_text().splitlines()[len(lines) :]
    assert sums.read_text().splitlines()[: len(lines)] == lines
    assert [line.split()[1] for line in added] == ([] if given else ["train.txt.gz"])
    sums.write_text(f"SHA256 (test.txt) = {other}\n")
    with pytest.raises(DataFormatError, match=r"SHA256SUMS:1: expected a SHA-256 and a name"):
        datasets.fetch(NAME, folder=tmp_path if given else None)


@pytest.mark.parametrize("features", [12, 11])
def test_another_shape(listed, parts, tmp_path, features):
    (tmp_path / NAME).mkdir()
    cut = slice(9) if features == 12 else slice(None)
    X_test = parts[2][cut, :features]
    (tmp_path / NAME / f"{NAME}.tar.gz").write_bytes(archive((*parts[:2], X_test, parts[3][cut])))
    expected = {
        12: r"expected labels, rows and test rows \(5, 20, 10\), found \(5, 20, 9\)",
        11: "expected 12 features, found 12 and 11",  # as in training, where no number is known
    }
    with pytest.raises(ValueError, match=expected[features]):
        datasets.fetch(NAME, folder=tmp_path)


@pytest.mark.parametrize("wrong", ["labels", "rows"])
def test_parts_that_do_not_fit_each_other(listed, parts, tmp_path, wrong):
    (tmp_path / NAME).mkdir()
    X, Y, X_test, Y_test = parts
    given = (X, Y, X_test, Y_test[:, :4]) if wrong == "labels" else (X, Y[:19], X_test, Y_test)
    expected = {
        "labels": "expected 5 labels, found 4 of the test rows",
        "rows": "expected labels of the 20 training rows, found those of 19",
    }
    (tmp_path / NAME / f"{NAME}.tar.gz").write_bytes(archive(given))
    with pytest.raises(ValueError, match=expected[wrong]):
        datasets.fetch(NAME, folder=tmp_path)


def test_an_archive_whose_indices_lead_outside(listed, parts, tmp_path):
    (tmp_path / NAME).mkdir()
    X = parts[0].copy()
    X.indices[3] = 12
    (tmp_path / NAME / f"{NAME}.tar.gz").write_bytes(archive((X, *parts[1:])))
    with pytest.raises(DataFormatError, match=r"tiny-4k.tar.gz: expected an archive .*X.trn.npz"):
        datasets.fetch(NAME, folder=tmp_path)


def header(text: str) -> bytes:
    """An npy file of a header alone."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


DAMAGED = {
    "a huge shape": ("data", header(f"{{'descr':'<f4','fortran_order':False,'shape':({10**12},)}}\n")),
    "a shape beyond int64": ("data", header(f"{{'descr':'<f4','fortran_order':False,'shape':({2**70},)}}\n")),
    "a header that does not end": ("data", header("{'descr':'<f4'\n")),
    "a format that is a number": ("format", np.array(3)),
    "values that are NaN": ("data", np.full(80, np.nan, np.float32)),
    "indices that are fractions": ("indices", np.full(80, 0.5)),
}


@pytest.mark.parametrize("wrong", DAMAGED)
def test_an_archive_whose_matrix_is_damaged(listed, parts, tmp_path, monkeypatch, wrong):
    name, content = DAMAGED[wrong]
    save_npz = sp.save_npz

    def save(file, matrix):
        whole = io.BytesIO()
        save_npz(whole, matrix)
        with zipfile.ZipFile(whole) as old, zipfile.ZipFile(file, "w") as new:
            for member in old.namelist():
                with new.open(member, "w") as out:
                    if member != f"{name}.npy":
                        out.write(old.read(member))
                    elif isinstance(content, bytes):
                        out.write(content)
                    else:
                        np.save(out, content)

    monkeypatch.setattr(sp, "save_npz", save)
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / f"{NAME}.tar.gz").write_bytes(archive(parts))
    with pytest.raises(DataFormatError, match=r"4k.tar.gz: expected an archive .*X.trn.npz: .*, found"):
        datasets.fetch(NAME, folder=tmp_path)


def test_an_archive_that_lacks_a_part(listed, parts, tmp_path):
    (tmp_path / NAME).mkdir()
    whole = archive(parts)
    (tmp_path / NAME / f"{NAME}.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataFormatError, match=r"tiny-4k.tar.gz: expected an archive"):
        datasets.fetch(NAME, folder=tmp_path)


def test_without_pooch(served, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(FileNotFoundError, match=r"^tiny-4k: expected pooch to fetch .*train.arff.*datasets"):
        datasets.fetch(NAME, folder=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"^tiny-4k: expected pooch to fetch .*train.arff.*datasets"):
        datasets.fetch(NAME)
    assert datasets.fetch("naics_demo").Y_train.shape == (16108, 1055)


@pytest.mark.parametrize("name", [name for name, found in datasets.SETS.items() if found.reader != "pecos"])
def test_copies_of_the_folder_have_the_shapes_of_the_registry(name, data_folder):
    found = datasets.fetch(name, folder=data_folder)
    assert found.X_train.shape == (found.info.n_train, found.info.n_features)
    assert found.X_test.shape == (found.info.n_test, found.info.n_features)
