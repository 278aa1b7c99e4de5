"""Archives and texts of the Extreme Classification Repository: checksums, and what is damaged."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.data_sets import NAME, archive, assert_same, files_in, known
from xmcjax import datasets
from xmcjax.data import DataFormatError, save_xmc

pytestmark = pytest.mark.usefixtures("cache")


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
