"""The kernels of cuda/ compiled for the CPU, where the threads of a warp take turns, as targets of JAX."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import jax
import pytest

from tests.support.internals import cuda

PROJECT = Path(__file__).resolve().parents[2] / "cuda"
SOURCES = PROJECT / "src"


FLAGS = "-std=c++17 -O1 -Wall -Wextra -Werror -fPIC -shared -ffp-contract=off -DXMCJAX_ON_HOST"


@functools.cache
def folder() -> tempfile.TemporaryDirectory:
    """Of this process, which ends with it."""
    return tempfile.TemporaryDirectory(prefix="xmcjax-cuda-")


@functools.cache
def build() -> Path:
    """The library, compiled once by a process; the test is skipped where there is no compiler."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None or not SOURCES.is_dir():
        pytest.skip("needs a C++ compiler and the sources of xmcjax-cuda")
    file = Path(folder().name) / "libxmcjax_cuda_host.so"
    sources = [SOURCES / "handlers.cc", "-x", "c++", SOURCES / "kernels.cu"]
    command = [compiler, *FLAGS.split(), "-isystem", jax.ffi.include_dir(), *sources, "-o", file]
    subprocess.run(command, check=True)
    return file


@functools.cache
def register() -> None:
    """Programs for the CPU may call the kernels from now on."""
    library = ctypes.CDLL(str(build()))
    assert library.xmcjax_cuda_abi() == cuda.ABI
    assert cuda.register(library, "cpu") == ""
