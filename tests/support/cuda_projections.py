"""Projections by the kernels in CUDA, compiled for the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax

from tests.support import cuda_builds
from tests.support.internals import projection_devices
from xmcjax import native

# A part of the key of JAX's caches, so that what is compiled with the kernels is not used without them.
_wanted = jax.make_user_context(False)
_as_it_is = projection_devices.on_device


def _on_device(arguments, *, twin: Callable, kernel: str, **options: Any):
    if _wanted.value:
        return native.projection(kernel, "cuda", **options)(*arguments)
    return _as_it_is(arguments, twin=twin, kernel=kernel, **options)


@contextlib.contextmanager
def kernels():
    """A context in which the public projections on a CPU are computed by them."""
    cuda_builds.register()
    projection_devices.on_device = _on_device
    with _wanted(True):
        yield
