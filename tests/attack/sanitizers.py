"""The tests that touch native code, run on kernels that are built with a sanitizer.

    python -m tests.attack.sanitizers                     AddressSanitizer and UndefinedBehaviorSanitizer over
                                                          AVX-512, AVX2 and baseline code
    python -m tests.attack.sanitizers --sanitizer thread  ThreadSanitizer over the kernels with threads
    python -m tests.attack.sanitizers --short             one instruction set, a few files of tests

The kernels are built by pip from the sources as they are, in a scratch folder, or in the one that ``--keep``
names, where a second run builds what has changed. The tests run on a copy of this tree without the package,
so that they import the package that was built. A report of a sanitizer ends the process that it is in: the
test fails, and the report is printed. The exit status is 1 where a test failed or a report was written.
"""

from __future__ import annotations

import argparse
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

# What the compiler is told besides the flags of a release.
FLAGS = {
    "address": "-fsanitize=address,undefined -fno-sanitize-recover=undefined",
    "thread": "-fsanitize=thread",
}
RUNTIME = {"address": "libasan.so", "thread": "libtsan.so"}

# Folders and files of tests in which native code runs, and those of them in which threads run it.
NATIVE = (
    "data_io",
    "estimators",
    "inits",
    "kernels",
    "lanes",
    "linops",
    "losses",
    "models",
    "multinomial",
    "projections",
    "solvers",
)
THREADED = (
    "lanes/test_bits.py",
    "lanes/test_blocks.py",
    "lanes/test_dense.py",
    "kernels/test_hierarchy.py",
    "kernels/test_kernel_products.py",
    "linops/test_products.py",
    "models/test_predict.py",
    "multinomial/test_dual.py",
    "solvers/test_multiclass_native.py",
    "solvers/test_newton_cg.py",
    "solvers/test_topk_sdca.py",
)
SHORT = {
    "address": ("data_io/test_xmc.py", "linops/test_products.py", "lanes/test_blocks.py"),
    "thread": ("linops/test_products.py", "models/test_predict.py"),
}
# Variables of the sanitizers' runtimes. Leaks are not sought: Python, NumPy and XLA keep memory to their end.
# ThreadSanitizer hears of the locks of instrumented code alone.
SETTINGS = {
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "ignore_noninstrumented_modules=1:halt_on_error=1:exitcode=66",
}


def runtime(sanitizer: str) -> list[str]:
    """The libraries that have to be in the process before Python: the runtime, and that of C++ exceptions."""
    compiler = os.environ.get("CXX", "c++")
    found = []
    for name in (RUNTIME[sanitizer], "libstdc++.so.6"):
        path = subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True, timeout=60
        ).stdout.strip()
        if not Path(path).is_absolute():
            raise SystemExit(f"expected {name} of the compiler {compiler}, found none")
        found.append(path)
    return found


def build(sanitizer: str, folder: Path) -> Path:
    """An environment whose package has sanitized kernels, on the packages of this one; its Python."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder / "wheel"),
    ]
    command += ["-C", f"build-dir={folder / 'build'}", str(ROOT)]
    flags = f"{FLAGS[sanitizer]} -fno-omit-frame-pointer -g1"
    command += ["-C", f"cmake.define.CMAKE_CXX_FLAGS={flags}"]
    shutil.rmtree(folder / "wheel", ignore_errors=True)
    subprocess.run(command, check=True, timeout=3600)
    environment = folder / "environment"
    shutil.rmtree(environment, ignore_errors=True)
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    report = "import sysconfig; print(sysconfig.get_path('purelib'))"
    said = subprocess.run([python, "-c", report], capture_output=True, text=True, check=True, timeout=60)
    site = Path(said.stdout.strip())
    # the files of other environments that are read at start, such as an editable installation's, are not
    # read from here: only the packages are found
    packages = [sysconfig.get_path("purelib"), *(p for p in sys.path if p.endswith("site-packages"))]
    (site / "packages.pth").write_text("\n".join(dict.fromkeys(packages)) + "\n")
    (wheel,) = (folder / "wheel").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return python


def tree(folder: Path) -> Path:
    """A copy of what the tests need of this tree, without the package."""
    copy = folder / "tree"
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for name in ("tests", "experiments", "docs"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copy / name)
    return copy


def run(sanitizer: str, python: Path, place: Path, isa: str, tests: list[str], seconds: float) -> bool:
    """Runs tests on one instruction set; whether all went well."""
    print(f"== {sanitizer} sanitizer, {isa}: {' '.join(tests)}", flush=True)
    preload = " ".join(runtime(sanitizer))
    native = {"XMCJAX_REQUIRE_NATIVE": "1", "XMCJAX_ISA": isa if isa != "avx512" else ""}
    data = {"XMCJAX_DATA": os.environ.get("XMCJAX_DATA", str(ROOT.parent / "shared" / "data"))}
    environment = os.environ | SETTINGS | native | data | {"PYTHONMALLOC": "malloc"}
    # pip and compilers need no sanitizer: the runtime is loaded into the interpreter alone
    command = ["env", f"LD_PRELOAD={preload}", str(python), "-m", "pytest", "-q", "--no-header", "-rfE"]
    command += ["-p", "no:cacheprovider", *tests]
    if sanitizer == "thread":
        # its shadow memory needs the addresses that a process has without randomisation
        command = ["setarch", "-R", *command]
    try:
        done = subprocess.run(
            command,
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        print(
            f"no end within {seconds:g} s; so far:\n{(error.stdout or b'').decode(errors='replace')[-2000:]}"
        )
        return False
    output = done.stdout + done.stderr
    reports = [
        at
        for mark in ("ERROR: AddressSanitizer", "runtime error:", "WARNING: ThreadSanitizer")
        for at in [output.find(mark)]
        if at >= 0
    ]
    good = done.returncode == 0 and not reports
    if not good:
        at = min(reports, default=0)
        print(output[at : at + 6000])
    print("\n".join(output.splitlines()[-12:]), flush=True)
    return good


def main() -> int:
    """The command line; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack.sanitizers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--sanitizer", choices=FLAGS, default="address")
    parser.add_argument("--isa", nargs="+", choices=("avx512", "avx2", "baseline"))
    parser.add_argument("--short", action="store_true", help="one instruction set and a few files")
    parser.add_argument(
        "--seconds", type=float, default=3600, help="that the tests of one set may take (3600)"
    )
    parser.add_argument("--keep", type=Path, help="the folder to build in, kept for the next run")
    parser.add_argument(
        "tests", nargs="*", help="files or folders of tests/ in place of those that are native"
    )
    options = parser.parse_args()
    threaded = options.sanitizer == "thread"
    isas = options.isa or (["avx512"] if options.short or threaded else ["avx512", "avx2", "baseline"])
    chosen = options.tests or (
        SHORT[options.sanitizer] if options.short else THREADED if threaded else NATIVE
    )
    tests = [f"tests/{name}" for name in chosen]
    with tempfile.TemporaryDirectory(prefix="sanitizer-") as scratch:
        folder = (options.keep or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        python, place = build(options.sanitizer, folder), tree(folder)
        good = [run(options.sanitizer, python, place, isa, tests, options.seconds) for isa in isas]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
