"""Makes the folder that is carried to a machine without a network."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from experiments import _data, _report
from experiments.bench.gpu_kit import _references

# The most bytes of the folder.
MOST = 60 << 20
# Packages that a machine with jax, numpy and scipy may lack, and their requirements; installed if missing.
PACKAGES = (
    "absl-py",
    "chex",
    "docstring-parser",
    "joblib",
    "optax",
    "safetensors",
    "scikit-learn",
    "threadpoolctl",
    "toolz",
    "tqdm",
    "typeguard",
    "typing-extensions",
    "tyro",
)
PLATFORMS = tuple(f"manylinux{name}_x86_64" for name in ("_2_28", "_2_27", "_2_17", "2014"))
SETS = ("stackexchange_tags", "naics2017", "satimage", "caltech101_silhouettes")


def main(folder: Path, small: bool, python: str) -> int:
    """Makes the folder; prints its content and its size."""
    if folder.exists() and any(folder.iterdir()):
        print(f"{folder}: expected a new or empty folder, found files", file=sys.stderr)
        return 1
    data = None
    if not small:
        try:
            data = _data.folder()
        except FileNotFoundError as error:
            print(error, file=sys.stderr)
            return 1
    for name in ("wheels", "program"):
        (folder / name).mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(_data.ROOT / "experiments", folder / "program" / "experiments", ignore=ignored)
    if data is not None:
        for name in SETS:
            shutil.copytree(data / name, folder / "data" / name)
        _wheels(folder / "wheels", python)
    np.savez_compressed(folder / "references.npz", **_references.make(small))  # type: ignore[arg-type]
    key = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        key.update(path.read_bytes() if path.is_file() else b"")
    manifest = {
        "small": small,
        "commit": _report.commit(),
        "key": key.hexdigest()[:16],
        "python": python,
        "jax_of_references": importlib.metadata.version("jax"),
        "packed": _report.environment(),
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    sizes = {
        part.name: sum(path.stat().st_size for path in [part, *part.rglob("*")] if path.is_file())
        for part in sorted(folder.iterdir())
    }
    for name, size in sizes.items():
        print(f"{size / 2**20:8.2f} MiB  {name}")
    total = sum(sizes.values())
    print(f"{total / 2**20:8.2f} MiB  in {folder}")
    if total > MOST:
        print(f"{folder}: expected at most {MOST >> 20} MiB, found {total / 2**20:.1f}", file=sys.stderr)
        return 1
    return 0


def _wheels(folder: Path, python: str) -> None:
    """Adds our wheel with the native library, built here, and wheels of PACKAGES for a version of Python."""
    pip = [sys.executable, "-m", "pip"]
    with tempfile.TemporaryDirectory() as scratch:
        # built from a copy, so that its build folder and that of this tree do not mix
        kept = ("pyproject.toml", "README.md", "LICENSE")
        for name in kept:
            shutil.copy(_data.ROOT / name, scratch)
        shutil.copytree(_data.ROOT / "xmcjax", Path(scratch) / "xmcjax")
        subprocess.run([*pip, "wheel", "--quiet", "--no-deps", "-w", folder, scratch], check=True)
    if shutil.which("nvcc") is None:
        print("nvcc is not there: the folder has no CUDA kernels (xmcjax-cuda)")
    else:
        with tempfile.TemporaryDirectory() as scratch:
            ignored = shutil.ignore_patterns("build")
            shutil.copytree(_data.ROOT / "cuda", Path(scratch) / "cuda", ignore=ignored)
            made = [*pip, "wheel", "--quiet", "--no-deps", "-w", folder, Path(scratch) / "cuda"]
            subprocess.run(made, check=True)
    # The library does not use Python's API, so that "py3-none-linux_x86_64" fits every version.
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    only = ["--no-deps", "--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    subprocess.run([*pip, "download", "--quiet", *only, *platforms, "-d", folder, *PACKAGES], check=True)
