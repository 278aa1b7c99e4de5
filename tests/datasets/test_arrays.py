"""Local copies of sets whose features are arrays, in npz and MAT files: read, or refused in a sentence."""

from __future__ import annotations

import dataclasses
import gzip
import io
import os
import struct
import zipfile

import numpy as np
import pytest
import scipy.io

from xmcjax import datasets
from xmcjax.data import DataFormatError

NAME = "tiny"
WORDS = ["train"] * 20 + ["val"] * 4 + ["test"] * 6


@pytest.fixture(params=["npz", "silhouettes"])
def layout(request):
    return request.param


def known(monkeypatch, layout):
    """The tiny set among those that are known; no data folder."""
    shape = dict(n_train=20, n_test=6, n_features=9, n_labels=5)
    found = datasets.DataSet(NAME, "classes", **shape, licence="made up", source="this test", layout=layout)
    monkeypatch.setitem(datasets.SETS, NAME, found)
    monkeypatch.delenv("XMCJAX_DATA", raising=False)


@pytest.fixture
def folder(layout, tmp_path, monkeypatch):
    """Of the set."""
    known(monkeypatch, layout)
    (tmp_path / NAME).mkdir()
    return tmp_path / NAME


def arrays(X=None, y=None) -> tuple[np.ndarray, np.ndarray]:
    made = np.random.default_rng(0).integers(0, 2, (30, 9))
    return made if X is None else X, np.arange(30) % 5 + 1 if y is None else y


def npz(X, y) -> dict[str, np.ndarray]:
    return dict(X_train=X[:20], y_train=y[:20], X_test=X[20:26], y_test=y[20:26])


def save(folder, layout, X, y, **options) -> None:
    if layout == "npz":
        np.savez(folder / f"{NAME}.npz", **npz(X, y))
    else:
        names = np.array([["a", "bb"]], object)
        content = dict(classnames=names, X=X, Y=y[None])
        scipy.io.savemat(folder / "caltech101_silhouettes_28.mat", content, **options)
        (folder / "split.txt").write_text("\n".join(WORDS))


def fetch(folder):
    return datasets.fetch(NAME, folder=folder.parent)


def file_of(folder, layout):
    return folder / (f"{NAME}.npz" if layout == "npz" else "caltech101_silhouettes_28.mat")


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8"])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    ("layout", "options"),
    [("npz", {}), ("silhouettes", {}), ("silhouettes", {"do_compression": True})],
    indirect=["layout"],
)
def test_numbers_of_any_type_become_float32(folder, layout, options, dtype, order):
    X, y = arrays()
    save(folder, layout, np.asarray(X, dtype, order), y.astype("u1"), **options)
    found = fetch(folder)
    test = slice(20, 26) if layout == "npz" else slice(24, 30)
    for one, expected in zip(found[:4], (X[:20], y[:20], X[test], y[test]), strict=True):
        np.testing.assert_array_equal(one, expected)
        assert one.dtype == (np.float32 if one.ndim == 2 else np.int64) and one.flags.writeable
    assert (found.X_valid is None) == (layout == "npz")
    if layout == "silhouettes":
        np.testing.assert_array_equal(found.X_valid, X[20:24])


def test_a_mat_file_of_the_other_byte_order(tmp_path, monkeypatch):
    """The set has each order that the header may name; short elements hold four bytes at most."""
    for order in "<>":
        X, y = arrays()

        def element(kind, content, order=order):
            size = len(content)
            if size <= 4:
                return struct.pack(f"{order}I", size << 16 | kind) + content.ljust(4, b"\0")
            return struct.pack(f"{order}II", kind, size) + content + bytes(-size % 8)

        parts = []
        for name, array, kind, code in (("X", X, 7, "f4"), ("Y", y[None], 3, "i2")):
            inner = element(6, struct.pack(f"{order}II", 7, 0))
            inner += element(5, struct.pack(f"{order}ii", *array.shape)) + element(1, name.encode())
            inner += element(kind, array.astype(order + code).tobytes("F"))
            parts.append(element(14, inner))
        mark = b"\x00\x01IM" if order == "<" else b"\x01\x00MI"
        path = tmp_path / "a.mat"
        path.write_bytes(b"MATLAB 5.0".ljust(124) + mark + b"".join(parts))
        stored = scipy.io.loadmat(path)
        np.testing.assert_array_equal(stored["X"], X)  # it is such a file
        known(monkeypatch, "silhouettes")
        folder = tmp_path / NAME
        folder.mkdir(exist_ok=True)
        path.rename(folder / "caltech101_silhouettes_28.mat")
        (folder / "split.txt").write_text(" ".join(WORDS))
        found = fetch(folder)
        np.testing.assert_array_equal(found.X_train, X[:20])
        np.testing.assert_array_equal(found.Y_valid, y[20:24])
        assert found.X_train.dtype == np.float32 and found.Y_train.dtype == np.int64


def with_nan(array, at):
    array = array.astype(np.float64)
    array[at] = np.nan
    return array


FEATURES, CLASSES = arrays()
WRONG = {
    "fractions": (FEATURES, CLASSES + 0.5, r"expected classes, whole numbers, in \w+, found 1.5 in row 1"),
    "classes that are NaN": (FEATURES, with_nan(CLASSES, 3), r"whole numbers, in \w+, found nan in row 4"),
    "classes beyond int64": (FEATURES, CLASSES * 1e30, r"whole numbers, in \w+, found 1e\+30 in row 1"),
    "features that are NaN": (
        with_nan(FEATURES, (2, 1)),
        CLASSES,
        r"finite float32 numbers in \w+, found nan in row 3, col",
    ),
    "features beyond float32": (
        FEATURES * 1e39,
        CLASSES,
        r"expected finite float32 numbers in \w+, found inf in row",
    ),
    "complex numbers": (FEATURES + 1j, CLASSES, "expected .*, found"),
    "classes of text": (FEATURES, np.array(list("abcde") * 6), "expected .*, found"),
    "features of one axis": (FEATURES.ravel(), CLASSES, "expected .*, found"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("wrong", WRONG)
def test_other_numbers_are_refused(folder, layout, wrong):
    *given, expected = WRONG[wrong]
    save(folder, layout, *given)
    with pytest.raises(DataFormatError, match=expected) as caught:
        fetch(folder)
    assert caught.value.path == str(file_of(folder, layout))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("layout", ["npz"], indirect=True)
def test_classes_of_narrow_and_of_large_numbers(folder, layout):
    X, y = arrays()
    for classes in (y.astype(np.float16), np.where(y == 5, 2**63 - 1, y), np.where(y == 5, -(2**63), y)):
        save(folder, layout, X, classes)
        np.testing.assert_array_equal(fetch(folder).Y_train, classes[:20].astype(np.int64))
    save(folder, layout, X, np.where(y == 5, np.uint64(2**63), y.astype(np.uint64)))
    with pytest.raises(
        DataFormatError, match="whole numbers, in y_train, found 9223372036854775808 in row 5"
    ):
        fetch(folder)


@pytest.mark.parametrize("layout", ["npz"], indirect=True)
def test_an_npz_of_other_members(folder, layout):
    stored = npz(*arrays())
    np.savez(folder / f"{NAME}.npz", **{**stored, "y_train": stored["y_train"][:10]})
    with pytest.raises(
        ValueError, match=r"tiny: expected labels of the 20 training rows, found those of 10$"
    ):
        fetch(folder)
    np.savez(folder / f"{NAME}.npz", **{**stored, "X_test": np.array([{}])})
    with pytest.raises(DataFormatError, match=r"tiny.npz: .* in X_test, found \[1\] of object"):
        fetch(folder)
    del stored["X_test"]
    np.savez(folder / f"{NAME}.npz", **stored)
    with pytest.raises(DataFormatError, match=r"tiny.npz: expected a member 'X_test', found none$"):
        fetch(folder)


@pytest.mark.parametrize("layout", ["silhouettes"], indirect=True)
def test_another_mat_file_or_split(folder, layout):
    X, y = arrays()
    path = file_of(folder, layout)
    for words, expected in (
        (WORDS[:-5], "expected a word for each of 30 images, found 25 words$"),
        ([], "expected a word for each of 30 images, found 0 words$"),
        (["other" if word == "val" else word for word in WORDS], "words train, test, val, found 'other'$"),
        (["train" if word == "val" else word for word in WORDS], "words train, test, val, found no 'val'$"),
        ([*WORDS[:-1], "x" * 10**6], f"words train, test, val, found '{'x' * 40}'$"),
        ([*WORDS, "x" * 10**6], "expected a word for each of 30 images, found 31 words$"),
    ):
        save(folder, layout, X, y)
        (folder / "split.txt").write_text(" ".join(words))
        with pytest.raises(DataFormatError, match=rf"split.txt: .*{expected}"):
            fetch(folder)
    for content, expected in (
        (dict(X=X), "expected an array Y, found none"),
        (dict(X=X[None], Y=y), "a damaged one .an array of 3 dimensions"),
        (dict(X=X, Y=y[:9]), "expected classes of 30 images in Y, found 9"),
        (dict(X=np.array([[{}]]), Y=y), "a damaged one .an array that is none of real numbers"),
    ):
        scipy.io.savemat(path, content)
        with pytest.raises(DataFormatError, match=expected):
            fetch(folder)
    for content in (b"", b"junk", b"MATLAB 7.3 MAT-file" + bytes(105) + b"\x00\x02IM" + bytes(100)):
        path.write_bytes(content)
        with pytest.raises(
            DataFormatError, match=r"expected a MAT file of a version from 5 to 7.2, found anoth"
        ):
            fetch(folder)


@pytest.mark.parametrize("layout", ["silhouettes"], indirect=True)
@pytest.mark.parametrize("name", ["caltech101_silhouettes_28.mat", "split.txt"])
def test_no_file_is_waited_for(folder, layout, name):
    save(folder, layout, *arrays())
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(DataFormatError, match=rf"{name}: expected a regular file, .* found a FIFO$"):
        fetch(folder)


@pytest.mark.parametrize("layout", ["silhouettes"], indirect=True)
@pytest.mark.parametrize("shape", [(1,) * 65, (0, *[2**31 - 1] * 5), ()])
def test_an_array_of_other_dimensions(folder, layout, shape):
    save(folder, layout, *arrays())
    path = file_of(folder, layout)
    sizes = struct.pack(f"<{len(shape)}i", *shape)
    parts = struct.pack("<4I2I", 6, 8, 7, 0, 5, len(sizes)) + sizes + bytes(-len(sizes) % 8)
    parts += struct.pack("<HH4s", 1, 1, b"X") + struct.pack("<II", 7, 0)
    path.write_bytes(path.read_bytes()[:128] + struct.pack("<II", 14, len(parts)) + parts)
    with pytest.raises(DataFormatError, match=rf"28.mat: .*an array of {len(shape)} dimensions"):
        fetch(folder)


@pytest.mark.parametrize("layout", ["silhouettes"], indirect=True)
def test_a_packed_array_that_would_fill_the_memory(folder, layout):
    X, y = np.zeros((30, 2_500_000), np.uint8), arrays()[1]  # 75 MB in 75 KB
    save(folder, layout, X, y, do_compression=True)
    with pytest.raises(DataFormatError, match="an element cut short, or of more than"):
        fetch(folder)


def test_damaged_files(folder, layout):
    """Each is refused, or read as a set of the right shape: a MAT file has no checksum of the whole."""
    rng, refused = np.random.default_rng(1), 0
    path = file_of(folder, layout)
    good = []
    for options in ({}, {"do_compression": True}) if layout == "silhouettes" else ({},):
        save(folder, layout, *arrays(), **options)
        good.append(path.read_bytes())
    for turn in range(600):
        content = bytearray(good[turn % len(good)])
        if turn % 5 == 0:
            content = content[: rng.integers(len(content))]
        else:
            ends = (260, len(content))
            for at in rng.integers(0, ends[turn % 2], rng.integers(1, 4)):
                content[at] = rng.integers(256)
        path.write_bytes(content)
        said = ""
        try:
            found = fetch(folder)
        except ValueError as error:
            said = str(error)
            refused += isinstance(error, DataFormatError)
        assert f"{folder}" in said and "expected" in said if said else found.X_train.shape == (20, 9)
    assert refused > 200


def test_packed_files_are_not_offered(folder, layout):
    save(folder, layout, *arrays())
    path = file_of(folder, layout)
    with pytest.raises(FileNotFoundError, match=rf"^tiny: expected {path.name}( and split.txt)? in a folder"):
        datasets.fetch(NAME)
    (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    with pytest.raises(
        FileNotFoundError, match=rf"tiny: expected {path.name}, found {path.name}.gz\b.* alone$"
    ):
        fetch(folder)


@pytest.mark.parametrize("layout", ["npz"], indirect=True)
def test_an_npz_of_float64_may_be_packed(folder, layout, monkeypatch):
    """32 MB in 32 KB, and 16 MB as float32."""
    X, y = np.zeros((26, 160_000)), arrays()[1]
    monkeypatch.setitem(datasets.SETS, NAME, dataclasses.replace(datasets.SETS[NAME], n_features=X.shape[1]))
    np.savez_compressed(folder / f"{NAME}.npz", **npz(X, y))
    assert fetch(folder).X_train.shape == (20, 160_000)


@pytest.mark.parametrize("layout", ["npz"], indirect=True)
def test_an_npz_that_unpacks_to_more_than_memory_may_take(folder, layout):
    """Its members say how large they are before any is read."""
    large = io.BytesIO()
    np.lib.format.write_array(large, np.zeros((20, 10**6), np.uint8))
    with zipfile.ZipFile(folder / f"{NAME}.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X_train.npy", large.getvalue())
    with pytest.raises(DataFormatError, match="expected data that take at most"):
        fetch(folder)
