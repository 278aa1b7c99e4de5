"""Shards that other processes write into the directory of a model, for its one writer to take."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from xmcjax.models import _manifest
from xmcjax.models._manifest import FileRecord
from xmcjax.models._shard import LabelWeights, of_labels


@dataclasses.dataclass(frozen=True)
class Outside:
    """A shard under a temporary name.

    Attributes:
        file: as it was written.
        first_label: of the shard.
        nonzeros: its weights.

    Example:
        >>> import tempfile
        >>> from xmcjax.models import checked_weights, write_outside
        >>> dtype = np.dtype("float32")
        >>> label = checked_weights(0, [1], np.float32([0.5]), 0.0, 0, 3, 5, n_features=2, dtype=dtype)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     shard = write_outside(Path(folder), 0, 1, [label], dtype)
        >>> isinstance(shard, Outside), shard.first_label, shard.nonzeros
        (True, 0, 1)
    """

    file: FileRecord
    first_label: int
    nonzeros: int


def write_outside(
    directory: Path, first_label: int, shard_size: int, labels: Sequence[LabelWeights], dtype: np.dtype
) -> Outside:
    """Writes a whole shard under a temporary name, which ``ShardWriter.adopt`` changes.

    Two processes that write the same shard choose different names. A file that nobody has adopted is removed
    when the model's writer is closed, if its shard is stored by then, or when a writer resumes the model.

    Raises:
        OSError: it cannot be written; nothing is left of it.

    Example:
        >>> import tempfile
        >>> from xmcjax.models import ShardWriter, checked_weights, write_outside
        >>> dtype = np.dtype("float32")
        >>> label = checked_weights(0, [1], np.float32([0.5]), 0.0, 0, 3, 5, n_features=2, dtype=dtype)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with ShardWriter(folder, {"n_features": 2, "n_labels": 1, "dtype": "float32"}) as writer:
        ...         writer.adopt(write_outside(Path(folder), 0, writer.shard_size, [label], dtype))
        True
    """
    content = of_labels(labels, dtype)
    name = f".{_manifest.shard_name(first_label // shard_size)}.{secrets.token_hex(8)}.tmp"
    path = Path(directory) / name
    try:
        with open(path, "xb") as file:
            record = _manifest.written(file, name, content.encoded())
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        with contextlib.suppress(OSError):  # the first error is the one that matters
            path.unlink()
        if isinstance(error, OSError) and error.errno is not None:
            # the error of a full disk names no file
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise
    return Outside(record, first_label, content.nonzeros)


def remove_unadopted(directory: Path, stored: Iterable[int]) -> None:
    """Removes files that :func:`write_outside` wrote for shards that are stored: nobody will adopt them.

    Such a file stays behind when a worker dies, or falls silent, before it reports its result.

    Args:
        directory: of the model.
        stored: numbers of the shards that it has.

    Raises:
        OSError: a file cannot be removed.
    """
    shards = {_manifest.shard_name(number) for number in stored}
    for name in os.listdir(directory):
        if _manifest.is_temporary(name) and name[1:].rsplit(".", 2)[0] in shards:
            (directory / name).unlink(missing_ok=True)


@contextlib.contextmanager
def beacon(directory: Path) -> Iterator[Path]:
    """A file in a model's directory, by whose name other processes see whether they share the directory.

    Example:
        >>> import tempfile
        >>> from xmcjax.models import beacon
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with beacon(Path(folder)) as light:
        ...         light.exists()  # a process that sees the same folder sees it too
        ...     light.exists()
        True
        False
    """
    path = Path(directory).absolute() / f".run.json.{secrets.token_hex(8)}.tmp"
    path.touch()
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
