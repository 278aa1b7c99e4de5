"""What this process runs on: versions, cores, the native library, environment variables."""

from __future__ import annotations

import importlib.metadata
import platform

from xmcjax._topology import Share, format_cores, nodes, share_threads
from xmcjax._words import counted

PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "scikit-learn", "optax", "safetensors", "tqdm", "tyro")

# Environment variables that xmcjax reads.
VARIABLES = {
    "XMCJAX_NATIVE": "0 leaves the native kernels out",
    "XMCJAX_REQUIRE_NATIVE": "1 makes their absence an error",
    "XMCJAX_ISA": "baseline or avx2 keeps the kernels from using more than that",
    "XMCJAX_NODES": "a folder in place of /sys/devices/system/node, where the NUMA nodes are read",
    "XMCJAX_DATA": "a folder of data sets, searched before the cache and their publishers",
    "XMCJAX_CACHE": "0 keeps no compiled programs; a folder for them in place of ~/.cache",
    "XMCJAX_TRACEBACK": "1 shows the Python traceback of an error",
}


def versions() -> dict[str, str]:
    """The versions of xmcjax, of Python and of the packages that xmcjax depends on."""
    from xmcjax import __version__

    found = {"xmcjax": __version__, "python": platform.python_version()}
    return found | {name: importlib.metadata.version(name) for name in PACKAGES}


def node_shares(numa: str, threads: int) -> list[Share]:
    """The NUMA nodes that get a process of their own, with their threads; empty for a single process.

    Several processes are used where the threads are on several nodes and train on the CPU.

    Args:
        numa: "auto", or "off" for a single process.
        threads: how many all processes have together.
    """
    if numa == "off":
        return []
    shares = share_threads(nodes(), threads)
    if len(shares) < 2:
        return []
    from xmcjax._platform import default_platform

    return shares if default_platform() == "cpu" else []


def describe_nodes() -> str:
    """The NUMA nodes and their cores, for people."""
    found = nodes()
    each = (f"node {n.number} has {len(n.cores)} usable (cores {format_cores(n.cores)})" for n in found)
    return f"{counted(len(found), 'node')}: {', '.join(each)}"


def native_isa() -> str | None:
    """The instruction set that the native kernels use here, or None without the library.

    Raises:
        ImportError: the library exists but cannot be used: it does not load, or JAX refuses it.
    """
    from xmcjax import native

    if native.load_library() is not None:
        native.available()
    return native.isa()
