"""Every test runs in float64 with strict promotion unless it says otherwise."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import sys
from pathlib import Path

from experiments._rehearsal import quick

# Most of the tests' time is compilation. Child processes inherit it; 0 tests what users compile.
os.environ.update(quick(os.environ))
# Beside other workers, threads of BLAS wait for each other, busy, for longer than a product of small matrices
# takes. Child processes inherit it; a test of threads sets their number.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Many tests are of the CPU's kernels and of their bits; a GPU in the machine is for what is asked for there.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Tests of commands leave nothing in the home directory.
os.environ.setdefault("XMCJAX_CACHE", "0")

import jax
import pytest
import threadpoolctl

from tests.support import cuda_builds
from tests.support.processes import CORES
from xmcjax import native

# NumPy comes before this file where pytest-randomly imports it.
threadpoolctl.threadpool_limits(int(os.environ["OPENBLAS_NUM_THREADS"]), "blas")

ROOT = Path(__file__).resolve().parent.parent
# It is kept as long as this process lives.
BUILDS = cuda_builds.shared()
# Bytes of a process of tests above which it forgets what it has compiled.
MOST_RESIDENT = 1 << 30


def pytest_xdist_auto_num_workers(config) -> int:
    """One more than there are cores: tests with processes of their own wait for them.

    None for a single file, because each worker imports JAX and compiles for itself.
    """
    files = {argument.split("::")[0] for argument in config.args}
    return 0 if len(files) == 1 and Path(*files).is_file() else max(len(CORES), 1) + 1


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Python looks for garbage seldom, and not in what is there when the tests begin, which stays to the end.

    Of more than ten thousand tests, and of what JAX keeps of the functions that it traces, it would be looked
    through again and again: that was more than half of the time of the collection, which each worker does.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
        gc.set_threshold(5_000, 20, 50)


@pytest.fixture(autouse=True, scope="session")
def kernels_for_good():
    """What a process finds out once about the kernels is found out before a test changes what it depends on.

    A test that hides the library, or names another instruction set, would else decide for those after it.
    """
    if native.available():
        library = native.load_library()
        assert library is not None
        library.xmcjax_isa()


@pytest.fixture(autouse=True)
def strict_numbers():
    """x64 on, no silent promotion of dtypes."""
    with jax.enable_x64(True), jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture
def default_settings(strict_numbers):
    """JAX's settings as users have them, in the files that ask for it: float32, and standard promotion."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def _resident_bytes() -> int:
    """Of this process, on Linux; elsewhere nothing is known, which counts as much."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 2 * MOST_RESIDENT
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """JAX keeps every program: of all tests that is gigabytes, and more mappings than a process may have.

    The memory is given back to the system: the process would else forget everything after each module.
    """
    yield
    if _resident_bytes() > MOST_RESIDENT:
        jax.clear_caches()
        gc.collect()
        if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
            libc.malloc_trim(0)


@pytest.fixture
def compilations(caplog):
    """Runs a function and returns the programs that were compiled."""

    def count(work):
        caplog.clear()
        with caplog.at_level(logging.WARNING), jax.log_compiles(True):
            work()
        return [r.getMessage() for r in caplog.records if "Finished XLA compilation" in r.getMessage()]

    return count


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real data sets: ``XMCJAX_DATA``, or shared/data beside the checkout."""
    folder = Path(os.environ.get("XMCJAX_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data: {folder} is not a folder; set XMCJAX_DATA")
    return folder
