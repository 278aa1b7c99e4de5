"""Settings of JAX that are made with context managers, which hold in their own thread only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax

from xmcjax.native._ffi import twins_wanted


def settings_here() -> Callable[[Any], contextlib.AbstractContextManager[None]]:
    """The precision, the device and the kernels of this thread, for a context of another one.

    Returns:
        a function of a device, None for the one of this thread.

    Example:
        >>> import threading
        >>> with jax.enable_x64(True):
        ...     here = settings_here()
        >>> found = []
        >>> def work():
        ...     with here(None):
        ...         found.append(jax.numpy.ones(1).dtype.name)
        >>> thread = threading.Thread(target=work)
        >>> thread.start(), thread.join()
        (None, None)
        >>> found
        ['float64']
    """
    x64, device = jax.config.jax_enable_x64, jax.config.jax_default_device  # type: ignore[attr-defined]
    twins = twins_wanted.value

    @contextlib.contextmanager
    def there(other: Any = None) -> Iterator[None]:
        with jax.enable_x64(x64), jax.default_device(other or device), twins_wanted(twins):
            yield

    return there
