"""The C++ kernels (``*.cc``), how they are found, and their twins in plain JAX.

``_library`` needs no more than the standard library, ``_ffi`` and ``ref`` need jax.
"""

from contextlib import AbstractContextManager

from xmcjax.native._library import PerformanceWarning

__all__ = ["PerformanceWarning", "twins"]


def twins() -> AbstractContextManager:
    """A context in which the twins in plain JAX are used, without a warning: programs have no native calls.

    ``jax.export`` refuses programs with native calls, which run only where xmcjax is installed and loaded.
    What is exported in this context runs on its platforms without xmcjax. What was traced or compiled
    before is traced again in it.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from jax import export
        >>> from xmcjax import projections
        >>> from xmcjax.native import twins
        >>> with twins():
        ...     program = export.export(jax.jit(projections.simplex), platforms=["cpu", "cuda"])(jnp.zeros(3))
        >>> program.platforms
        ('cpu', 'cuda')
    """
    from xmcjax.native import _ffi

    return _ffi.twins_wanted(True)
