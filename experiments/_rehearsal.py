"""The environment of tests and of rehearsals, which compile and import for longer than they run."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from pathlib import Path

#: Variables in the environment of a process on one core.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
#: A variable in the environment of a rehearsal, whose numbers do not matter.
REHEARSAL = "XMCJAX_REHEARSAL"

# These flags switch the fusion emitters off and compile a program in one piece: compiling its parts in
# parallel costs a quarter more, which small programs on busy cores do not gain back.
_FLAGS = ("--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1")
_OPTIMIZATIONS = "JAX_DISABLE_MOST_OPTIMIZATIONS"


def quick(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with variables that make compilation quick and programs slow. JAX reads them at import.

    If it has ``JAX_DISABLE_MOST_OPTIMIZATIONS=0``, programs are compiled as users compile them.
    """
    # The variable with LIMIT drops the source locations of operations, which are for profilers and take a
    # tenth of the time of compilation.
    found = {_OPTIMIZATIONS: "1", "JAX_TRACEBACK_IN_LOCATIONS_LIMIT": "0", **environment}
    flags = found.get("XLA_FLAGS", "")
    # jaxlib from 0.11 on ends the process because of the first flag.
    release = tuple(map(int, importlib.metadata.version("jaxlib").split(".")[:2]))
    if found[_OPTIMIZATIONS] == "1" and release < (0, 11):
        found["XLA_FLAGS"] = " ".join([flags, *(flag for flag in _FLAGS if flag not in flags)]).strip()
    return found


def rehearsal(environment: Mapping[str, str], programs: Path) -> dict[str, str]:
    """The environment for processes on one core each that share the programs they compile.

    Args:
        environment: of this process.
        programs: a folder for the compiled programs.
    """
    kept = {
        "JAX_COMPILATION_CACHE_DIR": str(programs),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    return quick(environment) | kept | ONE_THREAD | {REHEARSAL: "1"}
