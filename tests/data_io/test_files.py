"""Writes happen fully or not at all; the package of readers stays light."""

import ast
import errno
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import xmcjax.data
from xmcjax.data import atomic_write, load_xmc, save_npz, save_svmlight, save_xmc

X = sp.csr_matrix(np.eye(3, dtype=np.float32))
WRITERS = {
    "data.txt": save_xmc,
    "data.txt.gz": save_xmc,
    "data.txt.xz": save_xmc,
    "data.svm": save_svmlight,
    "data.npz": save_npz,
}


def _raise(code):
    def fail(*arguments, **options):
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize(
    ("call", "code"), [("fsync", errno.ENOSPC), ("fsync", errno.EIO), ("replace", errno.EACCES)]
)
def test_failure_leaves_the_old_file(tmp_path, monkeypatch, name, call, code):
    path = tmp_path / name
    path.write_bytes(b"precious")
    monkeypatch.setattr(os, call, _raise(code))
    with pytest.raises(OSError, match=name) as raised:
        WRITERS[name](path, X, X)
    assert (raised.value.errno, raised.value.filename) == (code, str(path))
    assert path.read_bytes() == b"precious"
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", WRITERS)
def test_failure_in_the_middle_of_a_write(tmp_path, name):
    """The system takes ten bytes and no more, as a disk that is nearly full."""
    path = tmp_path / name
    path.write_bytes(b"precious")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(OSError, match=name) as raised:
            WRITERS[name](path, X, X)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(path))
    assert path.read_bytes() == b"precious"
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


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
    import threading

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


def _modules(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            # `from xmcjax import _sparse` is about the module
            names = [f"xmcjax.{alias.name}" for alias in node.names]
            yield from names if node.module == "xmcjax" else [node.module or ""]


def test_layers():
    """The readers know numpy, scipy, the checks of arguments, files and matrices, and the library loader."""
    checks = {"xmcjax._arguments", "xmcjax._file_kinds", "xmcjax._finite", "xmcjax._sparse"}
    allowed = {"numpy", "scipy", "xmcjax.data", "xmcjax.native", *checks, *sys.stdlib_module_names}
    for path in Path(xmcjax.data.__file__).parent.glob("*.py"):
        for module in _modules(path):
            top = ".".join(module.split(".")[:2]) if module.startswith("xmcjax") else module.split(".")[0]
            assert top in allowed, f"{path.name} imports {module}"
            assert top not in {"pickle", "marshal"}, f"{path.name} imports {module}"


def test_import_is_light():
    code = (
        "import sys, xmcjax.data\n"
        "heavy = {'jax', 'sklearn', 'tqdm', 'safetensors', 'tyro', 'pandas'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
