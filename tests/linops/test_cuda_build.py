"""What nvcc makes of the CUDA kernels, for each GPU that they are compiled for."""

from __future__ import annotations

import ctypes
import re
import shutil

import pytest

from tests.support import cuda_builds
from tests.support.internals import cuda

CAPABILITIES = ("sm_75", "sm_80", "sm_90")
MOST_REGISTERS = 128  # 256 threads of a block, twice on a multiprocessor
LARGEST = 3_000_000  # bytes of the library
# ptxas, of one kernel: its name and target; two lines later the stack, then the registers
KERNEL = re.compile(
    r"Compiling entry function '(\w+)' for '(\w+)'.*?"
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers",
    re.S,
)


@pytest.fixture(scope="module")
def built():
    return cuda_builds.build_for_gpus()


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_kernels_keep_their_numbers_in_registers(built, capability):
    found = [(name, *map(int, rest)) for name, of, *rest in KERNEL.findall(built.log) if of == capability]
    # of each body; float32 and float64
    for body in (
        "Product",
        "Join",
        "Mark",
        "Count",
        "Scan",
        "List",
        "Scores",
        "Columns",
        "Words",
        "Centre",
        "Total",
        "Residual",
        "Direction",
        "PlaneSums",
        "Fold",
        "Pairs",
        "LargestOfRow",
        "BoxRows",
        "TopkRows",
        "WeightedRows",
    ):
        assert any(body in name for name, *_ in found), body
    for name, stack, stores, loads, registers in found:
        assert stack == stores == loads == 0, name
        assert registers <= MOST_REGISTERS, name


def test_the_library_is_small_and_says_what_it_is(built):
    assert built.library.stat().st_size <= LARGEST
    library = ctypes.CDLL(str(built.library))
    assert library.xmcjax_cuda_abi() == cuda.ABI
    library.xmcjax_cuda_unusable.restype = ctypes.c_char_p
    why = library.xmcjax_cuda_unusable().decode()
    if shutil.which("nvidia-smi") is None:
        assert why  # without a driver
    for name in cuda.TARGETS:
        assert hasattr(library, f"xmcjax_cuda_{name}")
