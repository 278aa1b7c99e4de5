"""Writes happen fully or not at all; what readers leave behind."""

import errno
import os
import resource
import stat
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from xmcjax.data import atomic_write, load_xmc, save_npz, save_svmlight, save_xmc

X = sp.csr_matrix(np.eye(3, dtype=np.float32))
WRITERS = {
    "data.txt": save_xmc,
    "data.txt.gz": save_xmc,
    "data.txt.xz": save_xmc,
    "data.svm": save_svmlight,
    "data.npz": save_npz,
}


@pytest.fixture(params=WRITERS)
def refused(tmp_path, request):
    """Writes over an old file, which stays, alone; the error has its name and this number."""
    path = tmp_path / request.param
    path.write_bytes(b"precious")

    def refused(number):
        with pytest.raises(OSError, match=path.name) as raised:
            WRITERS[path.name](path, X, X)
        assert (raised.value.errno, raised.value.filename) == (number, str(path))
        assert path.read_bytes() == b"precious"
        assert list(tmp_path.iterdir()) == [path]

    return refused


@pytest.mark.parametrize(
    ("call", "number"), [("fsync", errno.ENOSPC), ("fsync", errno.EIO), ("replace", errno.EACCES)]
)
def test_failure_leaves_the_old_file(refused, monkeypatch, call, number):
    def fail(*arguments, **options):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, fail)
    refused(number)


def test_failure_in_the_middle_of_a_write(refused):
    """The system takes ten bytes and no more, as a disk that is nearly full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        refused(errno.EFBIG)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize("name", WRITERS)
def test_where_no_file_can_be(tmp_path, name):
    (tmp_path / name).mkdir()
    with pytest.raises(IsADirectoryError, match=name):
        WRITERS[name](tmp_path / name, X, X)
    with pytest.raises(FileNotFoundError, match=rf"nowhere: expected a folder for {name}, found none"):
        WRITERS[name](tmp_path / "nowhere" / name, X, X)
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


def test_interruption_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), atomic_write(tmp_path / "a") as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_mode_is_that_of_a_new_file(tmp_path):
    (tmp_path / "plain").touch()
    save_xmc(tmp_path / "data.txt", X, X)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "data.txt")]
    assert modes[0] == modes[1]


def test_reading_thread_ends_with_the_error(tmp_path, monkeypatch):
    monkeypatch.setattr("xmcjax.data._files.CHUNK", 10)
    path = tmp_path / "data.txt"
    path.write_bytes(b"3 3 2\n0 x\n" + b"0 1:1\n" * 1000)
    before = threading.active_count()
    with pytest.raises(ValueError, match="index:value"):
        load_xmc(path)
    assert threading.active_count() == before


def test_arrays_outlive_the_reader(tmp_path):
    """The native reader hands its memory over; a view keeps it alive, and it can be written to."""
    path = tmp_path / "data.txt"
    path.write_bytes(b"2000 5 3\n" + b"1 0:1 1:2 4:3\n" * 2000)
    views = []
    for _ in range(20):
        matrix, _ = load_xmc(path)
        matrix.data *= 2
        views.append(matrix.data[5::100])
        del matrix
    for view in views:
        np.testing.assert_array_equal(view, np.tile([2.0, 4.0, 6.0], 2000)[5::100])
