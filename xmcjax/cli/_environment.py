"""What this process runs on: versions, cores, the native library, environment variables."""

from __future__ import annotations

import importlib.metadata
import platform
import warnings

from xmcjax._topology import Share, format_cores, nodes, share_threads

PACKAGES = ("jax", "jaxlib", "numpy", "scipy", "scikit-learn", "optax", "safetensors", "tqdm", "tyro")

# Environment variables that xmcjax reads.
VARIABLES = {
    "XMCJAX_NATIVE": "0 leaves the native kernels out",
    "XMCJAX_REQUIRE_NATIVE": "1 makes their absence an error",
    "XMCJAX_ISA": "baseline or avx2 keeps the kernels from using more than that",
    "XMCJAX_NODES": "a folder in place of /sys/devices/system/node, where the NUMA nodes are read",
    "XMCJAX_CACHE": "0 keeps no compiled programs; a folder for them in place of ~/.cache",
    "XMCJAX_TRACEBACK": "1 shows the Python traceback of an error",
}


def versions() -> dict[str, str]:
    """Of xmcjax, Python and the packages it stands on."""
    from xmcjax import __version__

    found = {"xmcjax": __version__, "python": platform.python_version()}
    return found | {name: importlib.metadata.version(name) for name in PACKAGES}


def node_shares(numa: str, threads: int) -> list[Share]:
    """The NUMA nodes that get a process of their own, with their threads; none for one process.

    That is where the threads are on several nodes and train on the CPU.

    Args:
        numa: "auto", or "off" for none.
        threads: of all together.
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
    count = f"{len(found)} node" + "s" * (len(found) > 1)
    return f"{count}: {', '.join(each)}"


def training_path() -> str:
    """What one-vs-all training runs on here, and on a GPU why not on CUDA kernels."""
    import jax

    from xmcjax import linops, native
    from xmcjax._platform import default_backend

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", native.PerformanceWarning)  # who asks here says so itself
        on_cpu, cuda = linops.native_ready(), native.cuda_available()
    if on_cpu:
        return "C++ kernels on the CPU"
    platform, count = default_backend(), jax.local_device_count()
    where = f"{count} devices of {platform}" if count > 1 else f"one device of {platform}"
    if platform != "gpu":
        return f"{where}: plain JAX"
    why = "" if cuda else f" (no CUDA kernels: {native.cuda_absence()})"
    return f"{where}: {_sparse_products(cuda)} for sparse features{why}, matrix products for dense ones"


def _sparse_products(cuda: bool) -> str:
    """By what sparse features are multiplied on a default device that is no CPU."""
    from xmcjax import linops

    if cuda:
        return "CUDA kernels"
    return "Pallas kernels for Triton" if linops.gpu_ready() else "plain JAX"


def solver_paths() -> dict[str, str]:
    """What each system but one-vs-all runs on here, and why; none where everything runs on the CPU.

    The rules are those of :func:`xmcjax._platform.on_host` and of ``placed`` of the multinomial solvers.
    """
    from xmcjax import native
    from xmcjax._platform import SEQUENTIAL, default_backend, default_platform, on_host
    from xmcjax.solvers.multinomial import auto

    device = default_backend()
    if device == "cpu":
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", native.PerformanceWarning)  # the line above says why
        cuda = native.cuda_available()
        sparse = _sparse_products(cuda)
    with on_host():
        reached = default_platform() == "cpu"
        kernels = "C++ kernels" if reached and native.available() else "plain JAX"
    host = f"{kernels} on the CPU"
    if not reached:
        host = f"plain JAX on the {device}, because JAX has no CPU here (JAX_PLATFORMS)"
    products = f"matrix products on the {device}, for sparse features {sparse}"
    return {
        "multi-class, multi-label and top-k SVMs": f"{host}: {SEQUENTIAL}",
        "multinomial regression": f"{host} where {auto.WHY}; else {products}",
        "kernel regression": products,
        "projections, losses": f"the {device}: vectors",
        "prediction": f"{'CUDA kernels for sparse features' if cuda else 'plain JAX'} on the {device}",
    }


def native_isa() -> str | None:
    """The instruction set that the native kernels use here, or None without the library.

    Raises:
        ImportError: the library is there and cannot be used: not loaded, or refused by JAX.
    """
    from xmcjax import native

    if native.load_library() is not None:
        native.available()
    return native.isa()
