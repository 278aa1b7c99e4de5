"""Locks of files and folders, which the kernel gives up however a process ends."""

from __future__ import annotations

import errno
import importlib.util

# What file systems without such locks answer (NFS among them).
_UNSUPPORTED = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF, errno.EINVAL}


def has_locks() -> bool:
    """Whether the operating system has such locks, which Windows has not."""
    return importlib.util.find_spec("fcntl") is not None


def lock(descriptor: int) -> bool | None:
    """Locks the file or folder that a descriptor has open, until it is closed.

    Returns:
        Whether it is locked now; False where another one holds it. None where the file system, or the
        operating system, has no such locks.

    Raises:
        OSError: any other answer.
    """
    if not has_locks():
        return None
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        return None
    return True
