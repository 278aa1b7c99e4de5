"""The folder in which programs that XLA has compiled are kept for the next command."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import stat
from collections.abc import Iterator
from pathlib import Path

VARIABLE = "XMCJAX_CACHE"
# Settings of JAX with which programs of any size are kept, however short their compilation was.
_SETTINGS = {"jax_persistent_cache_min_compile_time_secs": 0, "jax_persistent_cache_min_entry_size_bytes": -1}


def cache_folder() -> Path | None:
    """Where programs are kept; None if the environment says no, JAX has a folder, or the user has no home.

    A folder is for one version of jaxlib and one kind of processor, because machines may share a home.
    """
    if os.environ.get(VARIABLE) == "0" or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return None
    try:
        base = os.environ.get(VARIABLE) or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # the home of this user is not known
        return None
    return Path(base, "xmcjax", f"jaxlib-{importlib.metadata.version('jaxlib')}-{_processor()}")


@contextlib.contextmanager
def compilation_cache() -> Iterator[None]:
    """A context in which JAX takes compiled programs from the folder and stores new ones there."""
    import jax

    folder = cache_folder()
    if folder is None or not _ours(folder):
        yield
        return
    wanted = {"jax_compilation_cache_dir": str(folder), **_SETTINGS}
    before = {name: getattr(jax.config, name) for name in wanted}
    try:
        for name, value in wanted.items():
            jax.config.update(name, value)
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def _ours(folder: Path) -> bool:
    """Whether the folder is there and nobody else can put files into it, because its programs will be run."""
    try:
        folder.parent.parent.mkdir(parents=True, exist_ok=True)
        for own in (folder.parent, folder):
            own.mkdir(mode=0o700, exist_ok=True)
        found = [(place, os.stat(place)) for place in (folder, *folder.resolve().parents)]
    except OSError:  # no home, or one that may not be written: nothing is kept
        return False
    if not hasattr(os, "getuid"):
        return True
    for place, status in found:
        others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # where others may write, the sticky bit keeps them from moving our folders
        if status.st_uid not in (os.getuid(), 0) or (others and not status.st_mode & stat.S_ISVTX):
            return False
        if place in (folder, folder.resolve().parent) and (status.st_uid != os.getuid() or others):
            return False
    return True


def _processor() -> str:
    """A few digits that tell kinds of processors apart."""
    cpuinfo = Path("/proc/cpuinfo")
    kind = platform.machine() + platform.processor()
    if cpuinfo.exists():
        lines = cpuinfo.read_text(errors="replace").splitlines()
        kind += next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(kind.encode()).hexdigest()[:12]
