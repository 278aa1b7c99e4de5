"""``xmcjax info``."""

from __future__ import annotations

import dataclasses
import os

from xmcjax._cores import usable_cores
from xmcjax._placement import solver_paths, training_path
from xmcjax.cli._cache import cache_folder
from xmcjax.cli._environment import (
    VARIABLES,
    describe_nodes,
    native_isa,
    versions,
)
from xmcjax.cli._report import print_field
from xmcjax.data import READERS, TRANSFORMS
from xmcjax.inits import INITS
from xmcjax.losses import MARGIN_LOSSES


@dataclasses.dataclass(frozen=True)
class Options:
    """Show versions, devices, and what this installation can do."""


def run(options: Options) -> None:
    """Prints what is known. Only this command initialises a device without giving it work."""
    found = versions()
    print_field("versions", ", ".join(f"{name} {version}" for name, version in found.items()), **found)
    print_field("devices", _devices())
    print_field("cores", f"{usable_cores()} usable of {os.cpu_count()}")
    print_field("numa", describe_nodes())
    print_field("native", _native())
    print_field("training", _training())
    for system, path in _paths().items():
        print_field("runs on", f"{system}: {path}", system=system, path=path)
    print_field("cache", f"{cache_folder() or 'none'} (programs that were compiled)")
    for name, table in (
        ("losses", MARGIN_LOSSES),
        ("inits", INITS),
        ("transforms", TRANSFORMS),
        ("formats", READERS),
    ):
        print_field(name, ", ".join(table))
    for name, meaning in VARIABLES.items():
        value = f"={os.environ[name]}" if name in os.environ else " unset"
        print_field("environment", f"{name}{value} ({meaning})", **{name: os.environ.get(name)})


def _devices() -> str:
    import jax

    from xmcjax._platform import default_backend

    try:
        return f"{default_backend()}: " + ", ".join(str(device) for device in jax.devices())
    except (RuntimeError, ValueError) as error:
        return f"none: {str(error).splitlines()[0]}"


def _training() -> str:
    try:
        return training_path()
    except (ImportError, RuntimeError, ValueError) as error:  # said above: no device, or a broken library
        return f"none: {str(error).splitlines()[0]}"


def _paths() -> dict[str, str]:
    try:
        return solver_paths()
    except (ImportError, RuntimeError, ValueError):  # said above: a broken library or no device
        return {}


def _native() -> str:
    from xmcjax import native

    try:
        isa = native_isa()
    except ImportError as error:
        return f"broken: {error}"
    if isa is not None:
        return f"yes, C++ kernels for {isa} ({native.library_path()})"
    if native.switched_off():
        return "no, switched off by XMCJAX_NATIVE=0: plain JAX and Python do its work, slower"
    return f"no, plain JAX and Python do their work: {native.SLOWER}. {native.absence()}"
