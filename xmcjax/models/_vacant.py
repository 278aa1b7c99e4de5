"""Whether a directory can take a new model, and holding it until the model is written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from xmcjax.data import make_folder
from xmcjax.models import _manifest
from xmcjax.models._errors import ModelFormatError
from xmcjax.models._lock import DirectoryLock
from xmcjax.models._manifest import ARRAYS, CALIBRATION, MANIFEST, NAMES, TRANSFORMS

# The files of a model that are written before the shards.
BESIDE = (TRANSFORMS, NAMES, CALIBRATION)
# The member of the meta data that marks models written in one go, because their labels are trained together.
AT_ONCE = "parameters"
_DAMAGED = f" whose {MANIFEST} is damaged: restore that file, or remove the model"


def check_vacant(
    directory: str | os.PathLike[str], *, resumable: bool = True, unfinished: bool = False
) -> None:
    """Whether a new model can be written to a directory, as far as what it holds is concerned.

    Args:
        directory: where the model is to be.
        resumable: whether the error about a model that is there says that ``--resume`` continues it.
        unfinished: whether left-overs of a killed writer that writes a model in one go are ignored.

    Raises:
        FileExistsError: it holds anything else.
        ValueError: it is within the directory of another model.
        OSError: it is a file, or cannot be read.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     check_vacant(folder)
        ...     Path(folder, "notes.txt").touch()
        ...     try:
        ...         check_vacant(folder)
        ...     except FileExistsError as error:
        ...         print(str(error).partition(": ")[2])
        expected a new or empty directory, found notes.txt (nothing was changed)
    """
    directory = Path(directory)
    check_place(directory)
    names = set(os.listdir(directory)) if directory.exists() else set()
    left = _unfinished_files(directory, names) if unfinished else set()
    names -= left
    if names:
        holds, hint = ", ".join(sorted(names)[:3]), " beside what a killed writer has left" if left else ""
        how = None if left else _model_in(directory)
        if how is not None:
            holds, hint = f"a model{how}", "; --resume continues it" if resumable and not how else ""
        raise FileExistsError(
            f"{directory}: expected a new or empty directory, found {holds}{hint} (nothing was changed)"
        )


def check_place(directory: Path) -> None:
    """Checks that a model can be there: the path is free or a directory, and outside other models.

    Raises:
        ValueError: it is within the directory of another model.
        OSError: as :func:`xmcjax.models._manifest.check_directory`.
    """
    _manifest.check_directory(directory)
    if _model_in(directory) is not None:
        return
    for above in Path(os.path.realpath(directory)).parents:
        how = _model_in(above)
        if how is not None:
            found = f"found one in {above}{how}"
            raise ValueError(f"{directory}: expected a directory outside other models, {found}")


def _model_in(directory: Path) -> str | None:
    """What an error adds about the model in a directory: "" if its manifest is intact; None if no model."""
    manifest = directory / MANIFEST
    if not manifest.is_file():
        return None
    try:
        try:
            content, _ = _manifest.unsealed(manifest)
        except ModelFormatError:
            return _DAMAGED if _manifest.is_damaged(manifest) else None
    except OSError:
        return None
    ours = isinstance(content, dict) and content.get("format") in (_manifest.FORMAT, _manifest.KERNEL_FORMAT)
    return "" if ours else None


def clear_unfinished(directory: Path) -> None:
    """Removes what a killed writer that writes a model in one go has left.

    Raises:
        FileExistsError: there are other files, too.
    """
    left = _unfinished_files(directory, set(os.listdir(directory)))
    if left:
        check_vacant(directory, resumable=False, unfinished=True)
    for name in sorted(left, key=lambda name: name != MANIFEST):  # the manifest first, which names the rest
        (directory / name).unlink()


def _unfinished_files(directory: Path, names: set[str]) -> set[str]:
    """The files of a model that was to be written in one go and lacks labels or its manifest; else none."""
    folders = {name for name in names if (directory / name).is_dir() and not (directory / name).is_symlink()}
    names = names - folders
    beside = {name for name in names if name in (*BESIDE, ARRAYS) or _manifest.is_temporary(name)}
    if MANIFEST not in names:
        return beside
    if _model_in(directory) != "":
        return set()
    content, _ = _manifest.unsealed(directory / MANIFEST)
    if content["format"] != _manifest.FORMAT:
        return set()
    try:
        found = _manifest.read(directory / MANIFEST)
    except ModelFormatError:  # its manifest has an intact hash, so that it is a model all the same
        return set()
    if AT_ONCE not in found.meta or not found.missing():
        return set()
    shards = {name for name in names if _manifest.is_shard(name)}
    return beside | shards | {MANIFEST}


@contextlib.contextmanager
def reserved(directory: str | os.PathLike[str]) -> Iterator[None]:
    """Holds a new or empty directory for a model that is written in one go when it has been trained.

    Args:
        directory: made if absent, and removed again where nothing was put into it.

    Raises:
        FileExistsError: it holds anything but left-overs of a killed writer that writes a model in one go.
        ModelError: another writer holds it.
        OSError: it cannot be made, read or written.

    Example:
        >>> import tempfile
        >>> from xmcjax import OneVsAllClassifier
        >>> from xmcjax.models import reserved
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with reserved(f"{folder}/model"):  # another program that asks for it is refused meanwhile
        ...         Path(folder, "model").exists()
        ...     Path(folder, "model").exists()  # nothing was put into it
        True
        False
    """
    directory = Path(directory)
    check_vacant(directory, resumable=False, unfinished=True)
    made = not directory.exists()
    make_folder(directory)
    lock = DirectoryLock(directory)
    try:
        check_vacant(directory, resumable=False, unfinished=True)
        probe = directory / f".{MANIFEST}.{'0' * 16}.tmp"  # whether a file can be written there
        probe.touch()
        probe.unlink()
        yield
    finally:
        lock.release()
        if made:
            with contextlib.suppress(OSError):  # it is not empty: the model is in it
                directory.rmdir()
