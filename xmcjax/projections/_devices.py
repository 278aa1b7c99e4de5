"""Which of its forms a projection takes: the kernel of the device that it is compiled for, or plain JAX."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from xmcjax import native


def on_device(arguments: tuple[jax.Array, ...], *, twin: Callable, kernel: str, **options: Any):
    """The projection of vectors [..., m], the first of the arguments.

    Args:
        twin: in plain JAX.
        kernel: name of the call in :mod:`xmcjax.native`.
        options: of both.
    """
    there = {"cpu": native.available_here(), "cuda": native.projections_by_kernel(arguments[0].shape)}
    chosen = {p: native.projection(kernel, p, **options) for p, available in there.items() if available}
    plain = functools.partial(twin, **options)
    if not chosen:
        return plain(*arguments)
    return jax.lax.platform_dependent(*arguments, **chosen, default=plain)
