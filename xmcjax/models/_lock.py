"""One writer per directory."""

from __future__ import annotations

import contextlib
import os
import weakref
from pathlib import Path

from xmcjax._file_locks import has_locks, lock
from xmcjax.models._errors import ModelError


class DirectoryLock:
    """Holds a directory against a second writer until `release`, the end of ``with``, garbage collection or
    exit.

    The lock is the kernel's and leaves no file behind, however the process ends. Where the file
    system or the operating system has no such locks, writers are not kept apart.

    Args:
        directory: what is held.
        of_caller: whether the caller holds it already, so that nothing is locked.

    Raises:
        ModelError: another writer, of this or another process, holds the directory.
    """

    def __init__(self, directory: Path, of_caller: bool = False):
        # A system without such locks may not open folders either.
        descriptor = os.open(directory, os.O_RDONLY) if has_locks() and not of_caller else None
        self._close = weakref.finalize(self, _close, descriptor)
        if descriptor is None:
            return
        try:
            locked = lock(descriptor)
        except OSError:
            self.release()
            raise
        if locked is False:
            self.release()
            raise ModelError(f"{directory}: expected no other writer, found one at work")

    def __enter__(self) -> DirectoryLock:
        return self

    def __exit__(self, *_) -> None:
        self.release()

    @property
    def held(self) -> bool:
        """Whether `release` has not been called yet."""
        return self._close.alive

    def release(self) -> None:
        """Let another writer in; a second call does nothing."""
        self._close()


def _close(descriptor: int | None) -> None:
    if descriptor is None:
        return
    # Nothing was written through this descriptor: an error of closing it would only hide a relevant one.
    with contextlib.suppress(OSError):
        os.close(descriptor)
