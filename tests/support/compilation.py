"""How XLA compiles what the tests run: this is read before JAX is imported."""

from __future__ import annotations

import importlib.metadata
import os

_NO_EMITTERS = "--xla_cpu_use_fusion_emitters=false"


def xla_flags() -> str:
    """``XLA_FLAGS`` with which compilation takes half of the time, where the tests are compiled for speed.

    Releases of jaxlib from 0.11 on end the process over the flag.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    release = tuple(map(int, importlib.metadata.version("jaxlib").split(".")[:2]))
    if os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS") != "1" or release >= (0, 11) or _NO_EMITTERS in flags:
        return flags
    return f"{flags} {_NO_EMITTERS}".strip()
