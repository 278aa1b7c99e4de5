"""Where JAX computes unless it is told otherwise, and solvers that belong on the host.

A coordinate ascent visits one row after another: on a GPU each visit is some dozen kernels in a row, on a
core of the CPU a microsecond. Such solvers take arrays of the host, and keep to the CPU and its native
kernels whatever the default device is.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")

#: What solvers on the host say where the default device is another.
SEQUENTIAL = "one row is visited after another"


def default_backend() -> str:
    """The platform of JAX's default device where nobody chose one; the one place that asks for it.

    Raises:
        ValueError: this machine has none of those that ``JAX_PLATFORMS`` names.
    """
    try:
        return jax.default_backend()
    except (RuntimeError, AssertionError) as error:  # what JAX raises depends on the platform
        wanted = jax.config.jax_platforms  # type: ignore[attr-defined]
        said = f": {str(error).splitlines()[0]}" if str(error) else ""
        raise ValueError(
            f"JAX_PLATFORMS: expected platforms that this machine has, such as cpu, got {wanted!r}{said}"
        ) from error


def default_platform() -> str:
    """The platform, "cpu" or "gpu", of new arrays here: of ``jax_default_device``, where there is one."""
    chosen = jax.config.jax_default_device  # type: ignore[attr-defined]
    if chosen is None:
        return default_backend()
    return chosen.split(":")[0] if isinstance(chosen, str) else chosen.platform


def on_host() -> contextlib.AbstractContextManager:
    """A context in which new arrays of JAX are the CPU's, so that native kernels take them.

    It changes nothing where they are so already, and where JAX has no CPU (``JAX_PLATFORMS=cuda``).
    """
    if default_platform() == "cpu":
        return contextlib.nullcontext()
    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:
        return contextlib.nullcontext()


def host_bound(function: Callable[P, R]) -> Callable[P, R]:
    """The function, which runs in :func:`on_host`."""

    @functools.wraps(function)
    def placed(*args: P.args, **options: P.kwargs) -> R:
        with on_host():
            return function(*args, **options)

    return placed


def said_of_host(reason: str, why: str = SEQUENTIAL) -> str:
    """Why a method came first, and where the default device is no CPU, why it ran on the CPU all the same."""
    return reason if default_backend() == "cpu" else f"{reason}; on the CPU, because {why}"


def said_of_device(reason: str) -> str:
    """Why a method, and where the default device is no CPU, that it ran there."""
    platform = default_platform()
    return reason if platform == "cpu" else f"{reason}; on the {platform}"


def committed_to_host(tree):
    """Arrays that stay the CPU's in every later computation; unchanged where there is no other device."""
    if default_backend() == "cpu":
        return tree
    with on_host():
        if default_platform() != "cpu":  # JAX has none
            return tree
        return jax.device_put(tree, jax.local_devices(backend="cpu")[0])
