"""What this process runs on: versions, cores, the native library, environment variables."""

from __future__ import annotations

import ctypes
import importlib.metadata
import platform

from xmcjax._cores import usable_cores

PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "scikit-learn", "optax", "safetensors", "tqdm", "tyro")

# Environment variables that xmcjax reads.
VARIABLES = {
    "XMCJAX_NATIVE": "0 leaves the native kernels out",
    "XMCJAX_REQUIRE_NATIVE": "1 makes their absence an error",
    "XMCJAX_ISA": "baseline or avx2 keeps the kernels from using more than that",
    "XMCJAX_TRACEBACK": "1 shows the Python traceback of an error",
}


def versions() -> dict[str, str]:
    """Of xmcjax, Python and the packages it stands on."""
    from xmcjax import __version__

    found = {"xmcjax": __version__, "python": platform.python_version()}
    return found | {name: importlib.metadata.version(name) for name in PACKAGES}


def check_threads(threads: int | None) -> int:
    """A number of threads from a flag; None is one a core.

    Raises:
        ValueError: fewer than one.
    """
    if threads is None:
        return usable_cores()
    if threads < 1:
        raise ValueError(f"--threads: expected at least 1, got {threads}")
    return threads


def native_isa() -> str | None:
    """The instruction set that the native kernels use here, or None without the library.

    Raises:
        ImportError: the library is there and cannot be used.
    """
    from xmcjax.native import _library

    library = _library.load()
    if library is None:
        return None
    isa = library.xmcjax_isa
    isa.restype = ctypes.c_char_p
    return isa().decode()
