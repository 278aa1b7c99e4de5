"""The kernels of cuda/, compiled: for the CPU, where the threads of a warp take turns, and by nvcc.

Both become targets of JAX: programs for the CPU call the first and run; programs for a GPU that is only
described are compiled with the second.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import pytest

from tests.support.process_internals import cuda, cuda_topk

PROJECT = Path(__file__).resolve().parents[2] / "cuda"
SOURCES = PROJECT / "src"

# Of a build, on a busy machine.
SECONDS = 500
FLAGS = "-std=c++17 -O1 -Wall -Wextra -Werror -fPIC -shared -ffp-contract=off -DXMCJAX_ON_HOST"


# The variable that names the folder of builds of a run of tests.
BUILDS = "XMCJAX_TEST_BUILDS"


def shared() -> tempfile.TemporaryDirectory | None:
    """The folder of a run of tests, made by its first process; its workers and child processes find it."""
    if BUILDS in os.environ:
        return None
    made = tempfile.TemporaryDirectory(prefix="xmcjax-builds-")
    os.environ[BUILDS] = made.name
    return made


def _once(name: str, make: Callable[[Path], None]) -> Path:
    """The file or folder of this name, which the first process that asks makes; the others wait for it."""
    place = Path(os.environ[BUILDS]) / name
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            part = place.with_name(f"{name}.part")
            make(part)
            part.rename(place)
    return place


@functools.cache
def build() -> Path:
    """The library, compiled once by a run of tests; the test is skipped where there is no compiler."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is None or not SOURCES.is_dir():
        pytest.skip("needs a C++ compiler and the sources of xmcjax-cuda")
    sources = [SOURCES / "handlers.cc", "-x", "c++", SOURCES / "kernels.cu", SOURCES / "projections.cu"]
    command = [compiler, *FLAGS.split(), "-isystem", jax.ffi.include_dir(), *sources, "-o"]
    return _once(
        "libxmcjax_cuda_host.so", lambda file: subprocess.run([*command, file], check=True, timeout=SECONDS)
    )


class Built(NamedTuple):
    """The shared library of the package xmcjax-cuda."""

    library: Path
    log: str  #: with what ptxas says of each kernel


@functools.cache
def build_for_gpus() -> Built:
    """By the CMake file of the package, with the nvcc that CUDACXX names, because it takes minutes of a core.

    The test is skipped where it names none, or where there is no CMake.
    """
    if shutil.which("cmake") is None or shutil.which(os.environ.get("CUDACXX", "")) is None:
        pytest.skip("needs CMake, and the environment variable CUDACXX to name nvcc")
    if not SOURCES.is_dir():
        pytest.skip("needs the sources of xmcjax-cuda")
    options = ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CUDA_FLAGS=-Xptxas -v"]

    def make(folder: Path) -> None:
        configure = ["cmake", "-S", PROJECT, "-B", folder, *options]
        configure += [f"-DXMCJAX_FFI_INCLUDE={jax.ffi.include_dir()}"]
        subprocess.run(configure, check=True, capture_output=True, timeout=SECONDS)
        command = ["cmake", "--build", folder]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
        (folder / "said.txt").write_text(done.stdout + done.stderr)

    folder = _once("gpus", make)
    return Built(folder / "libxmcjax_cuda.so", (folder / "said.txt").read_text())


@functools.cache
def register_for_gpus() -> None:
    """Programs for a GPU may call the kernels from now on."""
    assert cuda.register(ctypes.CDLL(str(build_for_gpus().library)), "CUDA") == ""


def found_by_kernel(monkeypatch, platform: str = "cpu") -> None:
    """Programs for that platform, but not those in ``native.twins()``, find the k largest by the kernel."""
    register() if platform == "cpu" else register_for_gpus()
    # There alone: a module that is first imported now would keep what the package gives in its place.
    monkeypatch.setattr(cuda_topk, "cuda_available", lambda: not cuda.twins_wanted.value)
    monkeypatch.setattr(cuda_topk, "PLATFORM", platform)


@functools.cache
def register() -> None:
    """Programs for the CPU may call the kernels from now on."""
    library = ctypes.CDLL(str(build()))
    assert library.xmcjax_cuda_abi() == cuda.ABI
    assert cuda.register(library, "cpu") == ""
