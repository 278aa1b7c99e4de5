"""The tests that touch native code, run on kernels that are built with a sanitizer.

    python -m tests.attack.sanitizers                     AddressSanitizer and UndefinedBehaviorSanitizer over
                                                          AVX-512, AVX2 and baseline code
    python -m tests.attack.sanitizers --sanitizer thread  ThreadSanitizer over the kernels with threads
    python -m tests.attack.sanitizers --short             baseline code and a few files of tests

The kernels are built by pip from the sources as they are, in a scratch folder, or in the one that ``--keep``
names, in a folder for each sanitizer, where a second run builds what has changed. Where scikit-build-core is
installed, pip downloads nothing. The tests run on a copy of this tree without the package, so that they
import what was built.

Before the tests, a fault is made on purpose, and has to be reported. What a sanitizer reports is written to a
file for each process, and printed. The exit status is 1 where a test failed or anything was reported. pytest
takes further arguments from PYTEST_ADDOPTS, such as "-n 1" for a single process of tests. `.ci/run all` runs
the short form.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
ISAS = ("avx512", "avx2", "baseline")

# Hardly optimised: compiled in a tenth of the time that a release with these checks takes, and no fault of
# the source is optimised away.
FLAGS = {
    "address": "-fsanitize=address,undefined -fno-sanitize-recover=undefined -O0",
    "thread": "-fsanitize=thread -O1",
}
RUNTIME = {"address": "libasan.so", "thread": "libtsan.so"}

# Tests that call the kernels of an instruction set, nearly all of them in several threads.
KERNELS = (
    *("kernels/test_hierarchy.py", "kernels/test_kernel_products.py", "lanes/test_bits.py"),
    *("lanes/test_blocks.py", "lanes/test_dense.py", "linops/test_products.py", "models/test_index.py"),
    *("models/test_predict.py", "models/test_predictor.py", "multinomial/test_block_newton.py"),
    *("multinomial/test_dual.py", "native/test_calls.py", "projections/test_edges.py"),
    *("projections/test_optimality.py", "solvers/test_admm.py", "solvers/test_multiclass_native.py"),
    "solvers/test_newton_cg.py",
    *("solvers/test_penalties.py", "solvers/test_topk_sdca.py"),
)
# Tests that reach native code on the ways that users take: the readers, all of training, the estimators.
OTHERS = (
    *("test_native_memory.py", "test_sparse.py", "data_io/test_files.py", "data_io/test_malformed.py"),
    *("data_io/test_svmlight.py", "data_io/test_xmc.py", "estimators", "inits", "lanes/test_clipping.py"),
    *("lanes/test_label_weights.py", "lanes/test_row_order.py", "lanes/test_sparsify.py"),
    *("lanes/test_training.py", "models/test_prediction_files.py", "multinomial/test_methods.py"),
    *("solvers/test_interrupts.py", "solvers/test_multiclass_dual.py"),
)
SHORT = {
    "address": ("linops/test_products.py", "data_io/test_xmc.py"),  # what data index memory
    "thread": ("linops/test_products.py", "models/test_predict.py"),
}

# Variables of the sanitizers' runtimes. Leaks are not sought: Python, NumPy and XLA keep memory to their end.
# Little is kept of where memory was allocated, which costs most while XLA compiles. Sizes that cannot be had
# are a MemoryError, as without a sanitizer. The order of the libraries is not checked, because tests preload
# one of their own before the runtime's.
SETTINGS = {
    "ASAN_OPTIONS": (
        "detect_leaks=0:malloc_context_size=2:allocator_may_return_null=1:verify_asan_link_order=0"
    ),
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=0:exitcode=0:die_after_fork=0:history_size=4",
}

# What ThreadSanitizer is not to report, all of it outside the kernels.
SUPPRESSIONS = """
# XLA's threads hand programs to each other by atomic operations and locks of its own, which are not
# instrumented: a memcpy or an operator delete of its compiler looks like a race with the thread before. What
# that library itself copies, frees and locks is passed over; the kernels that it calls are not.
called_from_lib:libjax_common.so
# NumPy copies what a kernel has written in a thread of XLA, or writes what it will read in one.
called_from_lib:_multiarray_umath
# Of a lock that XLA took unseen for that reason, only the wait in the C++ library is seen.
mutex:std::condition_variable::wait
# Exceptions' runtime has one lock, which is taken unseen too where XLA's compiler registers its code.
mutex:libgcc_s.so
deadlock:libgcc_s.so
"""

# A fault that is known: an operator built by hand, which nobody checks, reads beyond its features; calls in
# two threads write the same numbers at once.
FAULT = {
    "address": """
import dataclasses
import numpy as np, scipy.sparse as sp
from xmcjax import linops
good = linops.make(sp.csr_matrix(np.eye(4, dtype=np.float32)), threads=1)
bad = dataclasses.replace(good, column=good.column + np.int32(4))
bad.matmat(np.ones((4, 3), np.float32)).block_until_ready()
""",
    "thread": """
import threading
import numpy as np
from xmcjax.native import put_columns
matrix, rows = np.zeros((100000, 2), np.float32), np.ones((1, 100000), np.float32)
def often():
    for _ in range(20):
        put_columns(matrix, [0], rows)
threads = [threading.Thread(target=often) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
""",
}


def runtime(sanitizer: str) -> str:
    """The libraries that have to be in the process before Python: the runtime, and that of C++ exceptions."""
    compiler = os.environ.get("CXX", "c++")
    found = []
    for name in (RUNTIME[sanitizer], "libstdc++.so.6"):
        command = [compiler, f"-print-file-name={name}"]
        path = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
        if not Path(path).is_absolute():
            raise SystemExit(f"expected {name} of the compiler {compiler}, found none")
        found.append(path)
    return " ".join(found)


def build(sanitizer: str, folder: Path, isas: list[str]) -> Path:
    """The wheel of the package with sanitized kernels."""
    found = importlib.util.find_spec("jaxlib")
    assert found is not None and found.submodule_search_locations is not None
    (jaxlib,) = found.submodule_search_locations
    settings = {
        "build-dir": folder / "-".join(["build", *sorted(isas)]),
        "cmake.build-type": "Sanitized",  # no release: CMakeLists.txt leaves the optimisation to these flags
        "cmake.define.CMAKE_CXX_FLAGS": f"{FLAGS[sanitizer]} -g1 -fno-omit-frame-pointer",
        "cmake.define.XMCJAX_FFI_INCLUDE": Path(jaxlib) / "include",
    }
    for isa in {"avx2", "avx512"} - set(isas):  # takes a third of the time to compile
        settings[f"cmake.define.XMCJAX_FLAG_{isa.upper()}"] = "OFF"
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--verbose",
        "--no-deps",
        "--wheel-dir",
        folder / "wheel",
    ]
    if importlib.util.find_spec("scikit_build_core"):
        command.append("--no-build-isolation")
    for name, value in settings.items():
        command += ["-C", f"{name}={value}"]
    shutil.rmtree(folder / "wheel", ignore_errors=True)
    done = subprocess.run([*command, ROOT], capture_output=True, text=True, timeout=7200)
    wheels = list((folder / "wheel").glob("*.whl"))
    # a compiler that fails leaves a package without kernels
    if not wheels or not any(name.endswith(".so") for name in zipfile.ZipFile(wheels[0]).namelist()):
        raise SystemExit(f"the kernels could not be built:\n{(done.stdout + done.stderr)[-20000:]}")
    return wheels[0]


def environment(wheel: Path, folder: Path) -> Path:
    """An environment with the package of a wheel, on the packages of this one; its Python."""
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    report = "import sysconfig; print(sysconfig.get_path('purelib'))"
    said = subprocess.run([python, "-c", report], capture_output=True, text=True, check=True, timeout=60)
    site = Path(said.stdout.strip())
    # the files of other environments that are read at start, such as an editable installation's, are not
    # read from here: only the packages are found
    packages = [sysconfig.get_path("purelib"), *(p for p in sys.path if p.endswith("site-packages"))]
    (site / "packages.pth").write_text("\n".join(dict.fromkeys(packages)) + "\n")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return python


def tree(folder: Path) -> Path:
    """A copy of what the tests need of this tree, without the package."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    # what the site is made of may be written at this moment
    made = {ROOT / "docs" / name for name in ("_site", "jupyter_execute", "notebooks", "reference/api")}

    def ignored(parent: str, names: list[str]) -> set[str]:
        return {name for name in names if name == "__pycache__" or Path(parent, name) in made}

    for name in ("tests", "experiments", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, folder / name)
    return folder


class Sanitized:
    """Programs on sanitized kernels of one instruction set."""

    def __init__(self, sanitizer: str, isa: str, folder: Path):
        self.sanitizer, self.isa, self.tree = sanitizer, isa, folder / "tree"
        self.reports = folder / f"reports-{isa}"
        shutil.rmtree(self.reports, ignore_errors=True)
        self.reports.mkdir()
        self.python = folder / "environment" / "bin" / "python"
        suppressions = folder / "suppressions.txt"
        suppressions.write_text(SUPPRESSIONS)
        written = {name: f"{value}:log_path={self.reports}/report" for name, value in SETTINGS.items()}
        written["TSAN_OPTIONS"] += f":suppressions={suppressions}"
        chosen = {"XMCJAX_REQUIRE_NATIVE": "1", "XMCJAX_ISA": isa}
        if sanitizer == "thread":
            # libraries that are not instrumented hand arrays to their threads unseen, which looks like races:
            # OpenBLAS has no threads here, and JAX calls kernels in the thread that asks for the result
            chosen |= {"OPENBLAS_NUM_THREADS": "1", "JAX_CPU_ENABLE_ASYNC_DISPATCH": "false"}
        data = {"XMCJAX_DATA": os.environ.get("XMCJAX_DATA", str(ROOT.parent / "shared" / "data"))}
        # most of the time is compilation by XLA, of the same programs for every instruction set
        kept = {"JAX_COMPILATION_CACHE_DIR": f"{folder}/programs"}
        kept |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        self.environment = os.environ | written | chosen | data | kept

    def run(self, *arguments: str, seconds: float, **options) -> subprocess.CompletedProcess:
        """Python with the arguments, in the copy of the tree."""
        # the runtime is loaded into the interpreter alone: what starts it needs no sanitizer
        command = ["env", f"LD_PRELOAD={runtime(self.sanitizer)}", str(self.python), *arguments]
        if self.sanitizer == "thread":
            # its shadow memory needs the addresses that a process has without randomisation
            command = ["setarch", "-R", *command]
        return subprocess.run(command, cwd=self.tree, env=self.environment, timeout=seconds, **options)

    def found(self) -> list[str]:
        """What has been reported, of each process."""
        return [path.read_text(errors="replace") for path in sorted(self.reports.iterdir())]

    def begin(self) -> bool:
        """Whether the processor has the instruction set, and the sanitizer finds a fault made for it."""
        asked = "from xmcjax.cli._environment import native_isa\nprint(native_isa(), flush=True)\n"
        said = self.run("-c", asked + FAULT[self.sanitizer], seconds=600, capture_output=True, text=True)
        if said.stdout.split() != [self.isa]:
            print(f"expected kernels for {self.isa}, found {said.stdout}{said.stderr}")
            return False
        if not self.found():
            print(f"expected a report of the fault that was made on purpose, found none\n{said.stderr}")
            return False
        for path in self.reports.iterdir():
            path.unlink()
        return True

    def test(self, tests: list[str], seconds: float, options: list[str]) -> bool:
        """Runs tests; whether all passed and nothing was reported."""
        # everything takes a few times longer; what is deselected runs the twins in JAX, not the kernels
        command = ["-m", "pytest", "-q", "--no-header", "-rfE", "-p", "no:cacheprovider"]
        command += ["-o", "timeout=3000", "-k", "not jnp", *options, *tests]
        try:
            passed = self.run(*command, seconds=seconds).returncode == 0
        except subprocess.TimeoutExpired:
            print(f"no end within {seconds:g} s")
            passed = False
        found = self.found()
        for report in found:
            print(report[:6000])
        print(f"{self.sanitizer} sanitizer, {self.isa}: reports of {len(found)} processes", flush=True)
        return passed and not found


def main() -> int:
    """The command line; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack.sanitizers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--sanitizer", choices=FLAGS, default="address")
    parser.add_argument("--isa", nargs="+", choices=ISAS)
    parser.add_argument("--short", action="store_true", help="baseline code and a few files of tests")
    parser.add_argument(
        "--seconds", type=float, default=7200, help="that the tests of one set may take (7200)"
    )
    parser.add_argument("--keep", type=Path, help="the folder to build in, kept for the next run")
    parser.add_argument(
        "tests", nargs="*", help="files or folders of tests/ in place of those that are native"
    )
    options = parser.parse_args()
    threaded = options.sanitizer == "thread"
    # which threads meet where is the same in every instruction set, and the baseline is compiled alone
    isas = options.isa or (["baseline"] if options.short or threaded else list(ISAS))
    with tempfile.TemporaryDirectory(prefix="sanitizer-") as scratch:
        folder = (options.keep or Path(scratch)).resolve() / options.sanitizer  # builds of two differ
        folder.mkdir(parents=True, exist_ok=True)
        environment(build(options.sanitizer, folder, isas), folder / "environment")
        tree(folder / "tree")
        good = []
        for isa in isas:
            # the code that no instruction set changes is tested with the first one
            native = KERNELS if threaded or isa != isas[0] else KERNELS + OTHERS
            chosen = options.tests or (SHORT[options.sanitizer] if options.short else native)
            print(f"== {options.sanitizer} sanitizer, {isa}: {' '.join(chosen)}", flush=True)
            sanitized = Sanitized(options.sanitizer, isa, folder)
            tests, one_process = [f"tests/{name}" for name in chosen], ["-n", "0"] if options.short else []
            good.append(sanitized.begin() and sanitized.test(tests, options.seconds, one_process))
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
