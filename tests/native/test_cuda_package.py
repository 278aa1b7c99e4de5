"""The package xmcjax-cuda is used where it is installed and works; else it is said why not."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import cuda_builds
from tests.support.internals import cuda, platforms, solver_paths, training_path
from tests.support.processes import python
from xmcjax import linops, native

X = sp.csr_matrix(np.eye(3, dtype=np.float32))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installs one with that library, on a machine whose default device is said to be a GPU."""

    def install(library):
        folder = tmp_path / cuda.PACKAGE
        folder.mkdir()
        (folder / "__init__.py").write_text(f"LIBRARY = {str(library)!r}\n")
        monkeypatch.syspath_prepend(tmp_path)

    def forget():
        sys.modules.pop(cuda.PACKAGE, None)
        cuda._absence.cache_clear()
        cuda._warn.cache_clear()

    monkeypatch.setattr(platforms, "default_backend", lambda: "gpu")
    forget()
    yield install
    forget()


def kernels() -> str:
    """Of an operator for GPUs."""
    op = linops.make(X, backend="gpu")
    assert isinstance(op, linops.Grouped)
    return op.kernels


def test_without_the_package(package):
    if importlib.util.find_spec(cuda.PACKAGE) is not None:
        pytest.skip("xmcjax-cuda is installed here")
    assert not native.cuda_available()
    assert native.cuda_absence() == "xmcjax-cuda is not installed"
    assert "(no CUDA kernels: xmcjax-cuda is not installed)" in training_path()
    assert "CUDA kernels" not in solver_paths()["kernel regression"]


@pytest.mark.parametrize("fault", ["file", "library", "abi", "machine"])
def test_a_package_that_cannot_be_used_is_told_once(package, tmp_path, monkeypatch, fault):
    library = tmp_path / "absent.so" if fault == "file" else cuda_builds.build()
    if fault == "library":
        library = tmp_path / "broken.so"
        library.write_text("no library")
    abi = cuda.ABI
    if fault == "abi":
        monkeypatch.setattr(cuda, "ABI", 99)
    package(library)
    why = {
        "file": "cannot be loaded",
        "library": "cannot be loaded",
        "abi": f"has ABI {abi}, expected 99: install xmcjax and xmcjax-cuda of one version",
        "machine": "they were compiled for the CPU, to be tested",
    }[fault]
    with pytest.warns(native.PerformanceWarning, match=why):
        assert not native.cuda_available()
    assert not native.cuda_available()  # and says nothing more
    assert why in native.cuda_absence() and why in training_path()
    assert kernels() != "cuda"


def test_a_package_that_can_be_used(package, monkeypatch):
    """By the library for GPUs, whose targets JAX takes; nothing runs."""
    package(cuda_builds.build_for_gpus().library)
    monkeypatch.setattr(cuda, "_unusable", lambda library: "")
    assert native.cuda_available() and linops.gpu_ready() and native.cuda_absence() == ""
    assert kernels() == "cuda"
    assert training_path().endswith("CUDA kernels for sparse features, matrix products for dense ones")
    assert solver_paths()["prediction"] == "CUDA kernels for sparse features on the gpu"
    assert solver_paths()["kernel regression"].endswith("for sparse features CUDA kernels")
    with native.twins():
        assert not native.cuda_available()
    monkeypatch.setenv("XMCJAX_NATIVE", "0")
    assert not native.cuda_available() and native.cuda_absence() == "XMCJAX_NATIVE=0 leaves them out"


def test_on_a_cpu_nothing_is_looked_for(monkeypatch):
    monkeypatch.setattr(cuda, "_absence", lambda: pytest.fail("the package was looked for"))
    assert not native.cuda_available()
    assert kernels() == "interpreted"


def test_an_import_does_not_look_for_it(tmp_path):
    (tmp_path / f"{cuda.PACKAGE}.py").write_text("raise SystemExit('imported')\n")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import xmcjax, xmcjax.linops, xmcjax.native"
    )
    assert python(program).returncode == 0
