"""Writes that happen completely or not at all; a file that is not regular is written to directly."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from xmcjax._file_locks import lock

# What file systems without owners answer (vfat), and user namespaces that do not know the owner.
_CANNOT_OWN = {errno.EPERM, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
# Longest name of a file on the usual file systems.
_LONGEST_NAME = 255
# Seconds between looks at a folder that another one has locked, which a model's writer does for long.
_LOOK, _LOOKS = 0.05, 20


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str], *, alone: bool = False) -> Iterator[IO[bytes]]:
    """Opens a file for writing; its content takes the place of the old one when the block ends well.

    The content goes to a temporary file in the same folder. The order is write, fsync, rename, fsync of
    the folder: after a crash there is the old file or the new one. When the block raises, the temporary
    file is removed and the old one is untouched. The new file has the mode of the old one and, as far as the
    system allows it, its owner and group; where there was none, the mode follows the umask.

    A symbolic link stays, and the file that it leads to is replaced. What is not a regular file (a device, a
    FIFO, a descriptor of this process such as /dev/stdout or /dev/fd/N) is written to directly. A regular
    file that cannot be replaced, because it is mounted by itself, is written over when the content is
    complete; a crash or a full disk meanwhile may leave a part.

    Args:
        path: of the file.
        alone: whether a second writer of a regular file is refused. Temporary files of writers that were
            killed are removed then.

    Raises:
        FileExistsError: another writer is at work, and this one was to be alone.
        OSError: a directory, a folder that does not exist, a file that may not be written, a full disk; with
            the name ``path``.

    Example:
        >>> import tempfile
        >>> path = tempfile.mkdtemp() + "/notes.txt"
        >>> with atomic_write(path) as file:
        ...     count = file.write(b"whole, or not at all")
        >>> Path(path).read_text()
        'whole, or not at all'
    """
    path = Path(path)
    try:
        found = os.stat(path)
    except FileNotFoundError:
        found = None
    descriptor = _own_descriptor(path)
    if descriptor is not None:
        opened = _through(path, lambda: os.dup(descriptor))
    elif found is None:
        opened = _replacing(path, Path(os.path.realpath(path)), None, alone)
    elif stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    else:
        target = Path(os.path.realpath(path))
        if stat.S_ISREG(found.st_mode) and target.exists() and os.path.samestat(os.stat(target), found):
            opened = _replacing(path, target, found, alone)
        else:
            # Links of /proc may also lead to a regular file without a name: it can only be written in place.
            flags = os.O_WRONLY | os.O_TRUNC | os.O_NOCTTY
            opened = _through(path, lambda: os.open(path, flags))
    with opened as file:
        yield file


def _own_descriptor(path: Path) -> int | None:
    """N where a path leads to the descriptor N of this process."""
    place = Path.cwd() / path
    for _ in range(40):  # as many links as the kernel follows
        folder = os.path.realpath(place.parent)
        if re.fullmatch(rf"/dev/fd|/proc/{os.getpid()}(/task/\d+)?/fd", folder):
            return int(place.name) if place.name.isdecimal() else None
        place = Path(folder, place.name)
        if not place.is_symlink():
            return None
        place = Path(folder, os.readlink(place))
    return None


@contextlib.contextmanager
def _through(path: Path, descriptor) -> Iterator[IO[bytes]]:
    try:
        with open(descriptor(), "wb") as file:
            yield file
    except OSError as error:
        if error.filename in (None, str(path)):
            raise named(error, path) from error
        raise


def make_folder(path: Path) -> None:
    """Makes a folder, and those above it, where it is not there.

    Raises:
        OSError: it cannot be made; a PermissionError also where the system says that there is no such file,
            as it does of what is to be made in /proc.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     make_folder(Path(folder) / "models" / "first")
        ...     (Path(folder) / "models" / "first").is_dir()
        True
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileNotFoundError as error:
        raise _not_made(error, path) from error


def _not_made(error: OSError, path: Path) -> OSError:
    """The error with the user's file in it, which is not to be found because it is yet to be made."""
    if error.errno != errno.ENOENT or not path.absolute().parent.is_dir():
        return named(error, path)
    return PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


@contextlib.contextmanager
def _replacing(path: Path, target: Path, found: os.stat_result | None, alone: bool) -> Iterator[IO[bytes]]:
    """A file that takes the place of ``target``; errors name ``path``, as the user wrote it."""
    if not target.parent.exists():
        raise FileNotFoundError(f"{target.parent}: expected a folder for {target.name}, found none")
    ending = f".{secrets.token_hex(8)}.tmp"
    stem = f".{target.name}"
    if len(os.fsencode(stem + ending)) > _LONGEST_NAME:
        stem = ".xmcjax"
    scratch = target.with_name(stem + ending)
    # What replaces a private file is private from its first byte on.
    mode = 0o666 if found is None else 0o600
    try:
        if found is not None:
            os.close(os.open(target, os.O_WRONLY))  # a file that may not be written is not replaced either
        with contextlib.ExitStack() as stack:
            with _one_writer(path, target.parent, stem) if alone else contextlib.nullcontext():
                file = stack.enter_context(open(scratch, "xb", opener=functools.partial(os.open, mode=mode)))
                if alone:
                    lock(file.fileno())
            yield file
            file.flush()
            if found is not None:
                _take_over(file.fileno(), found)
            os.fsync(file.fileno())
        try:
            os.replace(scratch, target)
        except OSError as error:
            if error.errno != errno.EBUSY or found is None:
                raise
            _copy_into(target, scratch)
            scratch.unlink()
        _sync_folder(target.parent)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            scratch.unlink()
        if (
            isinstance(error, OSError)
            and error.errno is not None
            and error.filename in (None, str(scratch), str(target))
        ):
            raise _not_made(error, path) from error
        raise


@contextlib.contextmanager
def _one_writer(path: Path, folder: Path, stem: str) -> Iterator[None]:
    """A context in which the only writer of a file makes its temporary file, and locks it.

    Meanwhile the folder is locked: nobody takes what is made and not locked yet for a file that is left over.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows, or a folder that may be written to, not listed
        yield
        return
    try:
        held = lock(descriptor)
        for _ in range(_LOOKS):
            if held is not False:
                break
            time.sleep(_LOOK)
            held = lock(descriptor)
        for name in os.listdir(folder) if held is not None else ():
            if re.fullmatch(re.escape(stem) + r"\.[0-9a-f]{16}\.tmp", name):
                _check_left_over(path, folder / name, remove=bool(held))
        yield
    finally:
        os.close(descriptor)


def _check_left_over(path: Path, scratch: Path, remove: bool) -> None:
    """Whether the writer of a temporary file is gone, which is removed then.

    Raises:
        FileExistsError: it is at work.
    """
    try:
        descriptor = os.open(scratch, os.O_RDONLY | os.O_NONBLOCK)
    except (PermissionError, FileNotFoundError):  # of another user, or gone meanwhile
        return
    try:
        held = lock(descriptor)
        if held is False:
            raise FileExistsError(f"{path}: expected no other writer, found one at work")
        if held and remove:
            scratch.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _copy_into(target: Path, source: Path) -> None:
    """Gives a file that keeps its place, because it is mounted by itself, the content of another one."""
    shutil.copyfile(source, target)
    handle = os.open(target, os.O_WRONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _take_over(descriptor: int, found: os.stat_result) -> None:
    """Gives a file the mode of another one, and its owner and group as far as this user may."""
    own = os.fstat(descriptor)
    for user, group in ((found.st_uid, found.st_gid), (-1, found.st_gid)):
        if (own.st_uid, own.st_gid) == (found.st_uid, found.st_gid):
            break
        try:
            os.fchown(descriptor, user, group)
            break
        except OSError as error:
            if error.errno not in _CANNOT_OWN:
                raise
    # After the owner: a change of it clears the bits that make a program run as its owner.
    os.fchmod(descriptor, stat.S_IMODE(found.st_mode))


def named(error: OSError, path: Path) -> OSError:
    """The same error with the user's file in it: a full disk is reported without any name."""
    if error.errno is None:
        return error
    return OSError(error.errno, os.strerror(error.errno), str(path))


def _sync_folder(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # a folder that may be written to, not listed
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
