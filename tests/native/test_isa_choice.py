"""The kernels that run are those of the instruction set that is named, whichever sets the compiler knows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[2] / "xmcjax" / "native"
COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
pytestmark = [
    pytest.mark.skipif(
        COMPILER is None or os.uname().machine != "x86_64" or not sys.platform.startswith("linux"),
        reason="needs a C++ compiler, Linux and x86-64",
    ),
    pytest.mark.skipif(
        not NATIVE.is_dir(), reason="the package under test is installed without its C++ sources"
    ),
]

# Tables of kernels that are told apart by their lane tile, which is the only member that is set.
PROGRAM = """
#include <cstdio>

#include "core/isa.cc"

#define TABLES(name, tile)                                                                           \\
  namespace xmcjax::name {                                                                           \\
  const Kernels<float>& kernels_float() { static const Kernels<float> k{tile}; return k; }           \\
  const Kernels<double>& kernels_double() { static const Kernels<double> k{tile}; return k; }        \\
  }
TABLES(baseline, 0)
TABLES(avx2, 1)
TABLES(avx512, 2)

int main() {
  const char* names[] = {"baseline", "avx2", "avx512"};
  std::printf("%s %s %s", xmcjax::isa_name(), names[xmcjax::kernels<float>().lane_tile],
              names[xmcjax::kernels<double>().lane_tile]);
}
"""


@pytest.mark.parametrize("compiled", [("avx2",), ("avx512",)], ids="".join)
def test_the_set_that_is_named_is_the_one_that_runs(tmp_path, compiled):
    (tmp_path / "main.cc").write_text(PROGRAM)
    defines = [f"-DXMCJAX_HAS_{isa}" for isa in compiled]
    command = [COMPILER, "-std=c++17", "-O0", f"-I{NATIVE}", *defines]
    command += [tmp_path / "main.cc", "-o", tmp_path / "main"]
    subprocess.run(command, check=True, timeout=120)
    for wanted in ("baseline", "avx2", "avx512"):
        chosen = os.environ | {"XMCJAX_ISA": wanted}
        said = subprocess.run(
            [tmp_path / "main"], env=chosen, capture_output=True, text=True, check=True, timeout=60
        )
        named, *run = said.stdout.split()
        assert run == [named, named]
        assert named in ("baseline", *compiled)
        assert wanted != "baseline" or named == "baseline"
