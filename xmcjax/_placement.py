"""What runs where in this process and why, in words: for ``xmcjax info`` and for fits with ``verbose``."""

from __future__ import annotations

import warnings

_SVMS = "multi-class, multi-label and top-k SVMs"


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


def ascent_path() -> str:
    """What one-vs-all training with the hinge runs on here, whose ascent keeps to the host."""
    return solver_paths().get(_SVMS) or training_path()


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
        _SVMS: f"{host}: {SEQUENTIAL}",
        "multinomial regression": f"{host} where {auto.WHY}; else {products}",
        "kernel regression": products,
        "projections, losses": f"the {device}: vectors{', projections by CUDA kernels' if cuda else ''}",
        "prediction": f"{'CUDA kernels for sparse features' if cuda else 'plain JAX'} on the {device}",
    }
