"""Data sets by name: from a folder, from the cache, from a server on this machine; checked, or refused."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import socket
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.data_sets import NAME, arff, assert_same, files_in, known
from xmcjax import datasets
from xmcjax.data import DataFormatError, save_svmlight, save_xmc

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def served(site, parts, monkeypatch):
    """The tiny set in two files of the server, with the checksums that they have."""
    files = []
    for name, pair in (("train.arff", parts[:2]), ("test.arff", parts[2:])):
        site.contents[f"/{name}"] = arff(*pair)
        digest = hashlib.sha256(site.contents[f"/{name}"]).hexdigest()
        files.append(datasets.File(name, f"{site.address}/{name}", digest))
    return known(monkeypatch, tuple(files), "mulan")


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
