"""Settings of JAX that are made with context managers, which hold in their own thread only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax

# A part of the key of JAX's caches: what was compiled with native calls is not used where there must be none.
twins_wanted = jax.make_user_context(False)
_CONTEXTS: dict[str, Any] = {
    "jax_enable_x64": jax.enable_x64,
    "jax_default_matmul_precision": jax.default_matmul_precision,
    "jax_numpy_dtype_promotion": jax.numpy_dtype_promotion,
    "jax_numpy_rank_promotion": jax.numpy_rank_promotion,
    "jax_debug_nans": jax.debug_nans,
    "jax_debug_infs": jax.debug_infs,
}


def settings_of_programs() -> tuple:
    """What programs of a function differ by: numbers of 64 bits, the precision of products, the kernels."""
    config: Any = jax.config
    return config.jax_enable_x64, config.jax_default_matmul_precision, twins_wanted.value


def settings_here() -> Callable[[Any], contextlib.AbstractContextManager[None]]:
    """The precisions, the device, the kernels and the checks of this thread, for a context of another one.

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
    config: Any = jax.config
    device, twins = config.jax_default_device, twins_wanted.value
    values = [(context, getattr(config, name)) for name, context in _CONTEXTS.items()]

    @contextlib.contextmanager
    def there(other: Any = None) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for context, value in (*values, (jax.default_device, other or device), (twins_wanted, twins)):
                stack.enter_context(context(value))
            yield

    return there
