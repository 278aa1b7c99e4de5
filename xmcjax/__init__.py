"""xmcjax: exact extreme, multi-class and structured classification in JAX."""

__version__ = "0.1.0"
