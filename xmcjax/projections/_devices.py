"""Which of its forms a projection takes: the kernel of the device that it is compiled for, or plain JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from xmcjax import native


def on_device(arguments: tuple[jax.Array, ...], *, twin: Callable, cpu: str, cuda: str, **options: Any):
    """The projection of vectors [..., m], the first of the arguments.

    Args:
        twin: in plain JAX.
        cpu, cuda: names of the kernels in :mod:`xmcjax.native`.
        options: of all three.
    """
    kernels = {}
    if native.available_here():
        kernels["cpu"] = cpu
    if native.projections_by_kernel(arguments[0].shape):
        kernels["cuda"] = cuda
    if not kernels:
        return twin(*arguments, **options)

    def made(function: Callable) -> Callable:
        return lambda *arrays: function(*arrays, **options)

    chosen = {platform: made(getattr(native, name)) for platform, name in kernels.items()}
    return jax.lax.platform_dependent(*arguments, **chosen, default=made(twin))
