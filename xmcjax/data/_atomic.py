"""Writes that happen completely or not at all; a file that is not regular is written to directly."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from xmcjax._file_locks import lock

# Errors that chown gives on file systems without owners (vfat), and in user namespaces without that owner.
_CANNOT_OWN = {errno.EPERM, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}
# Longest name of a file on the usual file systems.
_LONGEST_NAME = 255
# The end of the names of temporary files, with 16 hexadecimal digits.
_ENDING = ".{}.tmp"


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str], *, alone: bool = False) -> Iterator[IO[bytes]]:
    """Opens a file for writing; its content takes the place of the old one when the block ends well.

    The content goes to a temporary file in the same folder. The order is write, fsync, rename, fsync of
    the folder: after a crash there is the old file or the new one. When the block raises, the temporary
    file is removed and the old one is untouched. The new file has the mode of the old one and, as far as the
    system allows it, its owner and group; where there was none, the mode follows the umask.

    A symbolic link stays, and the file that it leads to is replaced. What is not a regular file (a device, a
    FIFO, a descriptor of this process such as /dev/stdout or /dev/fd/N) is written to directly. A regular
    file that cannot be replaced, because it is a mount point, is overwritten when the content is complete; a
    crash or a full disk meanwhile may leave a part.

    Args:
        path: of the file.
        alone: whether this must be the only writer of a regular file. It is then refused while another
            writer is at work; of two that begin at the same moment both may be refused. Temporary files of
            killed writers are removed.

    Raises:
        FileExistsError: another writer is at work, and `alone` is set.
        OSError: a directory, a folder that does not exist, a file that may not be written, a full disk; the
            error names ``path``.

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
            # A link of /proc may lead to a regular file without a name, which can only be written in place.
            flags = os.O_WRONLY | os.O_TRUNC | os.O_NOCTTY
            opened = _through(path, lambda: os.open(path, flags))
    with opened as file:
        yield file


def _own_descriptor(path: Path) -> int | None:
    """N if a path leads to the descriptor N of this process, else None."""
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
    """Makes a folder and the folders above it, unless it exists.

    Raises:
        OSError: it cannot be made. Where the system says "no such file", as it does in /proc, the error is a
            PermissionError.

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
    """The error with the user's path in it; "no such file" becomes a refusal, as the file is to be made."""
    if error.errno != errno.ENOENT or not path.absolute().parent.is_dir():
        return named(error, path)
    return PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


@contextlib.contextmanager
def _replacing(path: Path, target: Path, found: os.stat_result | None, alone: bool) -> Iterator[IO[bytes]]:
    """A file that takes the place of ``target``; errors name ``path``, as the user wrote it."""
    if not target.parent.exists():
        raise FileNotFoundError(f"{target.parent}: expected a folder for {target.name}, found none")
    stem = _stem(target.name)
    # The temporary file that will replace a private file is private from its first byte on.
    mode = 0o666 if found is None else 0o600
    scratch = _beside(target, stem)
    try:
        if found is not None:
            os.close(os.open(target, os.O_WRONLY))  # a file that may not be written is not replaced either
        with contextlib.ExitStack() as stack:
            while True:
                file = stack.enter_context(open(scratch, "xb", opener=functools.partial(os.open, mode=mode)))
                held = lock(file.fileno())
                if held is not False and scratch.exists():
                    break
                # Another writer removed this file as a left-over before it was locked.
                scratch.unlink(missing_ok=True)
                scratch = _beside(target, stem)
            if held:
                # The lock outlives the rename: until then the file could be taken for a left-over.
                stack.callback(os.close, os.dup(file.fileno()))
                if alone:
                    _check_alone(path, scratch, stem)
            yield file
            file.flush()
            if found is not None:
                _take_over(file.fileno(), found)
            os.fsync(file.fileno())
            file.close()
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


def _stem(name: str) -> str:
    """The beginning of the names of a file's temporary files; a long name is hashed."""
    if len(os.fsencode(f".{name}{_ENDING.format('0' * 16)}")) <= _LONGEST_NAME:
        return f".{name}"
    return f".xmcjax-{hashlib.sha256(os.fsencode(name)).hexdigest()[:32]}"


def _beside(target: Path, stem: str) -> Path:
    return target.with_name(stem + _ENDING.format(secrets.token_hex(8)))


def _check_alone(path: Path, own: Path, stem: str) -> None:
    """Checks that a writer, whose temporary file is made and locked, is the only one; removes left-overs.

    Raises:
        FileExistsError: another writer is at work.
    """
    try:
        names = os.listdir(own.parent)
    except PermissionError:  # a folder that may be written to, not listed
        return
    pattern = re.escape(stem) + _ENDING.format("[0-9a-f]{16}").replace(".", r"\.")
    for name in names:
        if name != own.name and re.fullmatch(pattern, name):
            _check_left_over(path, own.with_name(name))


def _check_left_over(path: Path, scratch: Path) -> None:
    """Removes a temporary file whose writer is gone.

    Raises:
        FileExistsError: the writer is at work.
    """
    try:
        descriptor = os.open(scratch, os.O_RDONLY | os.O_NONBLOCK)
    except (PermissionError, FileNotFoundError):  # of another user, or gone meanwhile
        return
    try:
        held = lock(descriptor)
        if held is False:
            raise FileExistsError(f"{path}: expected no other writer, found one at work")
        if held:
            with contextlib.suppress(PermissionError):  # of another user, in a folder such as /tmp
                scratch.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def _copy_into(target: Path, source: Path) -> None:
    """Copies the content of `source` into a file that cannot be replaced, because it is a mount point."""
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
    # The mode comes after the owner, because a change of owner clears the set-user-ID and set-group-ID bits.
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
