"""Finds and loads the shared library with the C++ kernels.

The library is beside the modules of the package. A source tree has none: there the library of an installed
xmcjax is used, if it has the same version, the same ABI and the same hash of its C++ sources.

Where there is no library, twins in plain JAX and Python do the work; the first use of one gives a
:class:`PerformanceWarning`. A library that is there but cannot be loaded, or has another ABI, raises
ImportError. ``XMCJAX_NATIVE=0`` selects the twins, without a warning; ``XMCJAX_REQUIRE_NATIVE=1`` makes the
absence of the library an error.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import warnings
from pathlib import Path

from xmcjax.native import _ids, _interrupts, _schema

NAME = "libxmcjax_native.so"
# Raised together with XMCJAX_ABI in abi.cc whenever a signature changes or one is added.
ABI = 32

SLOWER = "training is about ten times slower, that of SVMs and reading text a hundred times"


class PerformanceWarning(UserWarning):
    """Plain JAX and Python do the work of the C++ kernels, which are missing."""


def switched_off() -> bool:
    """Whether ``XMCJAX_NATIVE=0`` leaves the kernels out."""
    return os.environ.get("XMCJAX_NATIVE") == "0"


@functools.cache
def load_library() -> ctypes.CDLL | None:
    """The loaded library, or None where it is absent or switched off.

    Raises:
        ImportError: the library is there but cannot be loaded or has another ABI number, or
            it is absent and ``XMCJAX_REQUIRE_NATIVE=1``.
    """
    if switched_off():
        return None
    library, reason = _find()
    if library is None and os.environ.get("XMCJAX_REQUIRE_NATIVE") == "1":
        raise ImportError(f"XMCJAX_REQUIRE_NATIVE=1, but there are no C++ kernels: {reason}")
    if library is not None:
        _interrupts.prepare(library)
    return library


def library_path() -> str:
    """The path of the loaded library."""
    library = load_library()
    assert library is not None  # the caller has checked this
    return library._name


def isa() -> str | None:
    """The instruction set that the kernels use here; None without them."""
    library = load_library()
    return None if library is None else _told(library.xmcjax_isa)


def sources() -> str | None:
    """The hash of the C++ sources that the kernels were built from; None without them."""
    library = load_library()
    return None if library is None else _hash_of(library)


def absence() -> str:
    """Why there is no library, and what to do about that; "" where there is one."""
    return _find()[1]


@functools.cache
def warn_of_twins() -> None:
    """Warns once that the twins are slower than the kernels would be, unless the user selected the twins."""
    if not switched_off():
        warnings.warn(
            f"xmcjax works without its C++ kernels: {SLOWER}. {absence()} (XMCJAX_NATIVE=0 says that "
            "this is wanted.)",
            PerformanceWarning,
            stacklevel=3,
        )


@functools.cache
def _find() -> tuple[ctypes.CDLL | None, str]:
    """(library, ""), or (None, the text of :func:`absence`)."""
    import xmcjax.native

    folders = [Path(folder) for folder in xmcjax.native.__path__]
    for folder in folders:
        if (folder / NAME).exists():
            library = _opened(folder / NAME)
            abi = library.xmcjax_abi()
            if abi != ABI:
                raise ImportError(f"{folder / NAME} has ABI {abi}, expected {ABI}: install the package again")
            lists = ("ids", library.xmcjax_ids, _ids), ("calls", library.xmcjax_calls, _schema)
            for list_, told, ours in lists:
                if _told(told) != ours.text():
                    raise ImportError(
                        f"{folder / NAME} was built from another {list_}.def: install the package again"
                    )
            return library, ""
    tree = next((folder for folder in folders if (folder / "interface" / "abi.cc").exists()), None)
    if tree is None:
        return None, (
            "None were built, because there was no C++ compiler when the package was installed: install one, "
            "then the package again."
        )
    return _installed_for(tree)


def _opened(file: Path) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(file))
    except OSError as error:
        raise ImportError(f"{file} is there but cannot be loaded: {error}") from error


def _installed_for(tree: Path) -> tuple[ctypes.CDLL | None, str]:
    """The library of an installed package that was built from the sources in `tree`; see :func:`_find`."""
    from importlib.metadata import distributions

    from xmcjax import __version__

    reason = "no xmcjax is installed"
    for installed in distributions(name="xmcjax"):
        file = Path(str(installed.locate_file(f"xmcjax/native/{NAME}")))
        if not file.exists():
            reason = f"the xmcjax installed in {file.parents[2]} was built without a C++ compiler"
        elif installed.version != __version__:
            reason = f"{file} is of version {installed.version}, not {__version__}"
        else:
            library = _opened(file)
            if _hash_of(library) == hash_of_sources(tree):
                return library, ""
            reason = f"{file} was built from other C++ sources"
    return None, (
        f"Python runs the source tree {tree.parents[1]}, which has none, and {reason}: install the tree "
        "(pip install .), or start Python elsewhere."
    )


def _hash_of(library: ctypes.CDLL) -> str:
    """The hash of the sources that a library was built from; "" if the library does not know it."""
    if not hasattr(library, "xmcjax_sources"):
        return ""
    return _told(library.xmcjax_sources)


def _told(function) -> str:
    """The text that a function of the library returns."""
    function.restype = ctypes.c_char_p
    return function().decode()


def hash_of_sources(folder: Path) -> str:
    """SHA-256 over a line "SHA-256 name" for each C++ file of a folder, as CMakeLists.txt computes it."""
    kinds = ("*.cc", "*.h", "*.def")
    names = sorted(file.relative_to(folder).as_posix() for kind in kinds for file in folder.rglob(kind))
    lines = (f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()} {name}\n" for name in names)
    return hashlib.sha256("".join(lines).encode()).hexdigest()
