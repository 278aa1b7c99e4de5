"""Finds and loads the shared library with the C++ kernels.

Absent is quiet (the jnp and Python twins run, and ``xmcjax info`` says so); present but
unloadable, or of another version, is an ImportError. ``XMCJAX_NATIVE=0`` leaves it out,
``XMCJAX_REQUIRE_NATIVE=1`` makes its absence an error.
"""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path

NAME = "libxmcjax_native.so"
# Raised together with XMCJAX_ABI in abi.cc whenever a signature changes or one is added.
ABI = 13


def path() -> Path | None:
    """The library beside the package's modules, or None where none was built."""
    import xmcjax.native

    for folder in xmcjax.native.__path__:
        candidate = Path(folder) / NAME
        if candidate.exists():
            return candidate
    return None


@functools.cache
def load() -> ctypes.CDLL | None:
    """The loaded library, or None where it is absent or switched off.

    Raises:
        ImportError: the library is there but cannot be loaded or has another ABI number, or
            it is absent and ``XMCJAX_REQUIRE_NATIVE=1``.
    """
    if os.environ.get("XMCJAX_NATIVE") == "0":
        return None
    found = path()
    if found is None:
        if os.environ.get("XMCJAX_REQUIRE_NATIVE") == "1":
            raise ImportError(
                f"XMCJAX_REQUIRE_NATIVE=1, but {NAME} was not built: install with a C++ compiler"
            )
        return None
    try:
        library = ctypes.CDLL(str(found))
    except OSError as error:
        raise ImportError(f"{found} is there but cannot be loaded: {error}") from error
    abi = library.xmcjax_abi()
    if abi != ABI:
        raise ImportError(f"{found} has ABI {abi}, expected {ABI}: install the package again")
    return library
