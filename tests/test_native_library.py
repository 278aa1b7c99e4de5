"""Which kernels a process finds, and what it says where there are none, or none that JAX takes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import xmcjax
from tests.support.problems import needs_native
from xmcjax.native import library_path

PACKAGE = Path(xmcjax.__file__).parent
SOURCES = next((Path(f) for f in xmcjax.native.__path__ if (Path(f) / "interface" / "abi.cc").exists()), None)
NAME = Path(str(library_path())).name

# Without the site-packages, so that nothing but the two folders of a test is there.
FIND = [
    sys.executable,
    "-S",
    "-c",
    "from xmcjax.native import absence, library_path, load_library; "
    "print(library_path() if load_library() else absence())",
]
# A library of this name was never built.
ABSENT = "import xmcjax.native\nxmcjax.native._library.NAME = 'libabsent.so'\n"


def run(command, *, path=(), cwd=None, **environment):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), **environment}
    if not path:
        del env["PYTHONPATH"]
    env.pop("XMCJAX_REQUIRE_NATIVE", None)
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=cwd, timeout=300)


@pytest.fixture
def folders(tmp_path):
    """A source tree without kernels, and a folder where a package is installed that has them."""
    if SOURCES is None:
        pytest.skip("the package under test is installed without its C++ sources")
    tree, site = tmp_path / "tree", tmp_path / "site"
    (tree / "xmcjax").mkdir(parents=True)
    shutil.copy(PACKAGE / "__init__.py", tree / "xmcjax")
    shutil.copytree(SOURCES, tree / "xmcjax" / "native", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (site / "xmcjax" / "native").mkdir(parents=True)
    shutil.copy(library_path(), site / "xmcjax" / "native")
    install(site, xmcjax.__version__)
    return tree, site


def install(site, version):
    (site / f"xmcjax-{version}.dist-info").mkdir()
    metadata = f"Metadata-Version: 2.1\nName: xmcjax\nVersion: {version}\n"
    (site / f"xmcjax-{version}.dist-info" / "METADATA").write_text(metadata)


@needs_native
def test_a_source_tree_uses_the_kernels_installed_from_it(folders):
    tree, site = folders
    done = run(FIND, path=[tree, site], cwd=tree)
    assert done.stdout == f"{site}/xmcjax/native/{NAME}\n", done.stderr


@needs_native
@pytest.mark.parametrize("change", ["sources", "version", "no compiler", "not installed"])
def test_a_source_tree_uses_no_others(folders, change):
    tree, site = folders
    library = site / "xmcjax" / "native" / NAME
    if change == "sources":
        with (tree / "xmcjax" / "native" / "isa.h").open("a") as header:
            header.write("\n")
        expected = f"and {library} was built from other C++ sources"
    elif change == "version":
        shutil.rmtree(site / f"xmcjax-{xmcjax.__version__}.dist-info")
        install(site, "0.0.7")
        expected = f"and {library} is of version 0.0.7, not {xmcjax.__version__}"
    elif change == "no compiler":
        library.unlink()
        expected = f"and the xmcjax installed in {site} was built without a C++ compiler"
    else:
        shutil.rmtree(site)
        expected = "and no xmcjax is installed"
    done = run(FIND, path=[tree, site], cwd=tree)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Python runs the source tree {tree}, which has none, {expected}")
    assert "pip install" in done.stdout


USE = (
    ABSENT
    + """
import io, sys, numpy as np
from xmcjax import data, linops, projections
import jax.numpy as jnp
with open("rows.txt", "w") as file:
    file.write("1 3 2\\n0 0:1 2:2\\n")
for _ in range(2):
    X, Y = data.load_xmc("rows.txt")
    print(linops.make(X).native, projections.simplex(jnp.asarray([3.0, 1.0])))
"""
)


def test_the_twins_warn_once_and_say_what_to_do(tmp_path):
    done = run([sys.executable, "-c", USE], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "False [1. 0.]\n" * 2
    assert done.stderr.count("PerformanceWarning: xmcjax works without its C++ kernels") == 1
    assert "install" in done.stderr and "XMCJAX_NATIVE=0" in done.stderr


def test_twins_that_were_asked_for_are_quiet(tmp_path):
    done = run([sys.executable, "-W", "error", "-c", USE], cwd=tmp_path, XMCJAX_NATIVE="0")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    done = run([sys.executable, "-W", "error", "-c", USE], cwd=tmp_path)
    assert done.returncode == 1 and "PerformanceWarning" in done.stderr


COMMAND = "import sys\nfrom xmcjax.cli.main import main\nsys.exit(main(sys.argv[1:]))\n"


def test_a_command_warns_in_one_line_and_info_in_its_own_words(tmp_path):
    (tmp_path / "rows.txt").write_text("1 3 2\n0 0:1 2:2\n")
    convert = ["convert", "--data", "rows.txt", "--out", "rows.npz"]
    absent = [sys.executable, "-c", ABSENT + COMMAND]
    done = run([*absent, *convert], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    said = "xmcjax: warning: xmcjax works without its C++ kernels: training is about ten times"
    assert line.startswith(said)
    done = run([*absent, "info"], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nnative      no, plain JAX and Python do their work: training is about ten" in done.stdout
    assert "\ntraining    one device of cpu: plain JAX\n" in done.stdout


OTHER_HANDLER = """
import jax
from xmcjax.native import load_library
other = jax.ffi.pycapsule(load_library().xmcjax_csr_rmatmat)
jax.ffi.register_ffi_target("xmcjax_csr_matmat", other, platform="cpu")
"""


@needs_native
def test_info_says_that_jax_refuses_the_kernels(tmp_path):
    """Here because another handler has the name of one; a jax older than the headers refuses all."""
    done = run([sys.executable, "-c", OTHER_HANDLER + COMMAND, "info"], JAX_PLATFORMS="cpu")
    assert done.returncode == 0, done.stderr
    assert "\nnative      broken: jax " in done.stdout
    assert f" refuses the kernels of {library_path()}" in done.stdout
    assert "Duplicate FFI handler registration for xmcjax_csr_matmat" in done.stdout
    program = OTHER_HANDLER + COMMAND
    demo = run([sys.executable, "-c", program, "demo", "--model", str(tmp_path / "m")], JAX_PLATFORMS="cpu")
    (line,) = demo.stderr.splitlines()
    assert demo.returncode == 2 and line.startswith("xmcjax demo: error: jax "), demo.stderr
