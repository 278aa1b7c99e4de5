"""The manifest of a model: which files belong to it, with their hashes, and how it was made.

``manifest.json`` is JSON whose last member, ``manifest_sha256``, is the SHA-256 of all bytes before
its own digits, so that every flipped bit of the manifest itself is found too.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import reprlib
import stat
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np

from xmcjax._file_kinds import kind_of
from xmcjax.models._errors import ModelFormatError

MANIFEST = "manifest.json"
TRANSFORMS = "transforms.safetensors"
NAMES = "names.json"
ARRAYS = "arrays.safetensors"
#: The file of a model's first calibration; for the names of later ones see :func:`calibration_record`.
CALIBRATION = "calibration.safetensors"
FORMAT = "xmcjax-linear-model"
KERNEL_FORMAT = "xmcjax-kernel-model"
#: Version 1 has no names of classes and features, 2 no calibration; the oldest that suffices is written.
SCHEMA_VERSION = 3

# The names that `xmcjax.data.atomic_write` gives the files of this format while it writes them. Only such
# files may be removed as left-overs of a run that was killed.
_TEMPORARY = re.compile(
    r"\.(shard-\d{6,}\.safetensors|(transforms|by-feature|arrays|calibration(-[0-9a-f]{16})?)\.safetensors"
    r"|(manifest|run|names)\.json)"
    r"\.[0-9a-f]{16}\.tmp"
)
_LATER_CALIBRATION = re.compile(r"calibration-[0-9a-f]{16}\.safetensors")
_SHARD = re.compile(r"shard-\d{6,}\.safetensors")
_TAIL = re.compile(rb',\n "manifest_sha256": "([0-9a-f]{64})"\n}\n\Z')
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: Device, inode, size and time of the last change of a file; see :func:`identity`.
Identity: TypeAlias = tuple[int, int, int, int]


def shard_name(number: int) -> str:
    """The file of the shard with labels ``number * shard_size`` and up."""
    return f"shard-{number:06d}.safetensors"


def is_shard(name: str) -> bool:
    """Whether a file has the name of a shard."""
    return _SHARD.fullmatch(name) is not None


def calibration_record(content: bytes, old: FileRecord | None) -> FileRecord:
    """The record of a calibration, whose file has another name than that of the old one that it replaces.

    So the manifest names the old file until the manifest itself is replaced, then the new one.
    """
    made = record(CALIBRATION, content)
    if old is None or old.sha256 == made.sha256:
        return old or made
    return replace(made, file=f"calibration-{made.sha256[:16]}.safetensors")


def is_calibration(name: str) -> bool:
    """Whether a file has the name of a calibration."""
    return name == CALIBRATION or _LATER_CALIBRATION.fullmatch(name) is not None


def is_temporary(name: str) -> bool:
    """Whether a file is a left-over of the writer."""
    return _TEMPORARY.fullmatch(name) is not None


@dataclass(frozen=True)
class FileRecord:
    """A file of the model: its name, size in bytes and SHA-256 in hexadecimal."""

    file: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class ShardRecord(FileRecord):
    """A shard: its labels are ``first_label`` … ``first_label + n_labels − 1``."""

    first_label: int
    n_labels: int
    nonzeros: int

    @property
    def last_label(self) -> int:
        """One past its last label."""
        return self.first_label + self.n_labels


@dataclass(frozen=True)
class Manifest:
    """The content of ``manifest.json``.

    Attributes:
        meta: how the model was made; JSON values, with at least n_features, n_labels and dtype.
        label_range: (first, one past the last) label that this directory is to hold.
        shard_size: labels per shard; boundaries are multiples of it, counted from label 0.
        transforms: the arrays of the feature transforms, or None where there are none.
        shards: those that are complete, in label order.
        names: of classes and features, or None where they have none.
        calibration: of the scores, or None where there is none.
        sha256: the ``manifest_sha256`` of the file; "" where the manifest was not read from a file.
    """

    meta: dict
    label_range: tuple[int, int]
    shard_size: int
    transforms: FileRecord | None
    shards: tuple[ShardRecord, ...]
    names: FileRecord | None = None
    calibration: FileRecord | None = None
    sha256: str = ""

    @property
    def n_features(self) -> int:
        return self.meta["n_features"]

    @property
    def n_labels(self) -> int:
        return self.meta["n_labels"]

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.meta["dtype"])

    def missing(self) -> list[tuple[int, int]]:
        """The runs of labels that no shard holds, as (first, one past the last)."""
        gaps, label = [], self.label_range[0]
        for shard in self.shards:
            if shard.first_label > label:
                gaps.append((label, shard.first_label))
            label = shard.last_label
        if label < self.label_range[1]:
            gaps.append((label, self.label_range[1]))
        return gaps

    def shard_bounds(self, number: int) -> tuple[int, int]:
        """The labels (first, one past the last) of a shard, cut to the range of this model."""
        first, last = number * self.shard_size, (number + 1) * self.shard_size
        return max(first, self.label_range[0]), min(last, self.label_range[1])


def check_meta(meta: dict) -> dict:
    """The meta data as JSON gives them back, NumPy numbers as plain ones.

    Raises:
        TypeError: a key that is not a string, or a value that JSON cannot hold.
        ValueError: nan or infinity; n_features, n_labels or dtype missing or impossible; or transforms that
            are no list of names.
    """

    def plain(value):
        if isinstance(value, np.generic):
            return value.item()
        raise TypeError(f"meta: expected values that JSON can hold, found {type(value).__name__} {value!r}")

    if not isinstance(meta, dict):
        raise TypeError(f"meta: expected a dictionary, found {meta!r}")
    for key in meta:
        if not isinstance(key, str):
            raise TypeError(f"meta: expected strings for keys, found {key!r}")
    try:
        meta = json.loads(json.dumps(meta, default=plain, allow_nan=False))
    except ValueError as error:
        raise ValueError(f"meta: expected finite numbers, found nan or infinity ({error})") from error
    problem = _meta_problem(meta)
    if problem:
        raise ValueError(f"meta: expected {problem[0]}, found {problem[1]}")
    return meta


def in_order(keys: Iterable[str]) -> list[str]:
    """Members of meta data in the order in which two models are compared.

    The system comes first, because the options follow from it, and the data last, whose hash depends on the
    dtype.
    """
    of_data = ("data", "n_features", "n_labels")
    return sorted(keys, key=lambda key: (key != "system", key in of_data, key))


def _meta_problem(meta: dict) -> tuple[str, str] | None:
    for key in ("n_features", "n_labels"):
        value = meta.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31:
            return f"{key} as an integer from 1 to 2147483647", reprlib.repr(value)
    if meta.get("dtype") not in ("float32", "float64"):
        return "dtype float32 or float64", reprlib.repr(meta.get("dtype"))
    names = meta.get("transforms", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return "transforms as a list of names", reprlib.repr(names)
    return None


def _is_count(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def check_regular(path: Path) -> None:
    """Whether a file of a model can be read as one: a FIFO would be waited for without end.

    Raises:
        ModelFormatError: it is no regular file.
        OSError: there is none.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     try:
        ...         check_regular(Path(folder))
        ...     except ModelFormatError as error:
        ...         print(error.expected, "is not", error.found)
        a regular file is not a directory
    """
    identity(path)


def identity(path: Path) -> Identity:
    """Values that differ if a regular file has been changed or replaced by another.

    Raises:
        ModelFormatError, OSError: as :func:`check_regular`.
    """
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise ModelFormatError(path, "a regular file", kind_of(found.st_mode))
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def check_directory(path: Path) -> None:
    """Whether a path can be that of a model: it leads to a directory, or nothing is there.

    Raises:
        NotADirectoryError: something else is there.
        FileNotFoundError: a symbolic link is there, and it leads to nothing.
        OSError: symbolic links lead in a circle, or a directory on the way may not be read.
    """
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        if path.is_symlink():
            found = f"a symbolic link to {os.readlink(path)}, where there is nothing"
            raise FileNotFoundError(f"{path}: expected a directory, found {found}") from None
        return
    if not stat.S_ISDIR(mode):
        raise NotADirectoryError(f"{path}: expected a directory, found {kind_of(mode)}")


def sha256_of(path: Path) -> str:
    """The SHA-256 of a regular file, in hexadecimal; OSError where it cannot be read."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def named_file(directory: Path, file: FileRecord) -> Identity:
    """The identity of a file that the manifest names.

    Raises:
        ModelFormatError: there is none, or no regular one.
        OSError: it cannot be looked at.
    """
    path = directory / file.file
    if not path.exists():
        raise ModelFormatError(path, "a file that the manifest names", "none")
    return identity(path)


def check_hash(directory: Path, file: FileRecord) -> Identity:
    """Checks that a file is the one that the manifest names, and returns its identity.

    Raises:
        ModelFormatError: it is another file.
        OSError: it cannot be read.
    """
    found = named_file(directory, file)
    digest = sha256_of(path := directory / file.file)
    if digest != file.sha256:
        raise ModelFormatError(path, f"SHA-256 {file.sha256[:12]}… as in the manifest", f"{digest[:12]}…")
    return found


def checked_bytes(directory: Path, file: FileRecord) -> bytes:
    """The content of a small file, compared with its hash; raises as :func:`check_hash`."""
    check_hash(directory, file)
    return (directory / file.file).read_bytes()


def record(name: str, content: bytes) -> FileRecord:
    """The record of a file with this content."""
    return FileRecord(name, len(content), hashlib.sha256(content).hexdigest())


def written(file: IO[bytes], name: str, parts: Iterable[bytes | memoryview]) -> FileRecord:
    """Writes a file in parts and returns its record."""
    digest, size = hashlib.sha256(), 0
    for part in parts:
        digest.update(part)
        file.write(part)
        size += len(part) if isinstance(part, bytes) else part.nbytes
    return FileRecord(name, size, digest.hexdigest())


def render(manifest: Manifest) -> bytes:
    """The bytes of ``manifest.json``: a function of the content alone."""
    content = {
        "format": FORMAT,
        "schema_version": 3 if manifest.calibration is not None else 1 if manifest.names is None else 2,
        "meta": manifest.meta,
        "label_range": list(manifest.label_range),
        "shard_size": manifest.shard_size,
        "transforms": None if manifest.transforms is None else asdict(manifest.transforms),
        "shards": [asdict(shard) for shard in manifest.shards],
    }
    if manifest.names is not None:
        content["names"] = asdict(manifest.names)
    if manifest.calibration is not None:
        content["calibration"] = asdict(manifest.calibration)
    return sealed(content)


def sealed(content: dict) -> bytes:
    """JSON with its own hash as the last member."""
    body = json.dumps(content, indent=1, sort_keys=True).encode()
    head = body[: -len(b"\n}")] + b',\n "manifest_sha256": "'
    return head + hashlib.sha256(head).hexdigest().encode() + b'"\n}\n'


def unsealed(path: Path) -> tuple[Any, str]:
    """The content of a manifest and its hash.

    Raises:
        ModelFormatError: the file was changed or cut off, or is no regular file.
        OSError: it cannot be read.
    """
    check_regular(path)
    raw = path.read_bytes()
    tail = _TAIL.search(raw)
    if not tail or hashlib.sha256(raw[: tail.start(1)]).hexdigest().encode() != tail[1]:
        raise ModelFormatError(path, "an undamaged manifest (manifest_sha256 of its bytes)", "other bytes")
    try:
        content = json.loads(raw)
    except ValueError as error:
        raise ModelFormatError(path, "JSON", str(error)) from error
    except RecursionError as error:
        raise ModelFormatError(path, "JSON", "lists or objects within each other by the thousand") from error
    return content, tail[1].decode()


def is_damaged(path: Path) -> bool:
    """Whether a file that is no intact manifest once was one: other programs have files of that name, too.

    It was one if it names our format or a manifest's hash, or if it is no JSON and weights lie beside it.

    Raises:
        OSError: it, or its directory, cannot be read.
    """
    raw = path.read_bytes()
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):
        if any(mark in raw for mark in (FORMAT.encode(), KERNEL_FORMAT.encode(), b'"manifest_sha256"')):
            return True
        return any(name == ARRAYS or is_shard(name) for name in os.listdir(path.parent))
    if not isinstance(content, dict):
        return False
    return content.get("format") in (FORMAT, KERNEL_FORMAT) or "manifest_sha256" in content


def read(path: Path) -> Manifest:
    """Read and check ``manifest.json`` of a linear model.

    Raises:
        ModelFormatError: as :func:`unsealed`; or a newer schema, or content that contradicts itself.
        OSError: it cannot be read.
    """
    content, sha256 = unsealed(path)
    return replace(_from_json(path, content), sha256=sha256)


def checked_head(path: Path, content, form: str, newest: int) -> tuple[dict, int]:
    """The meta data and the version of a manifest.

    Args:
        path: of the manifest.
        content: what it holds.
        form: its member ``format``.
        newest: version of the schema.

    Raises:
        ModelFormatError: another format, a newer version, or meta data without the sizes or of another form.
    """
    _need(path, isinstance(content, dict), "a JSON object", type(content).__name__)
    if form == FORMAT and content.get("format") == KERNEL_FORMAT:
        raise ModelFormatError(path, "a linear model", "one of the system kernel")
    _need(path, content.get("format") == form, f"format {form!r}", content.get("format"))
    version, meta = content.get("schema_version"), content.get("meta")
    _need(path, _is_count(version), "schema_version as an integer", version)
    if version > newest:
        made_by = meta.get("xmcjax_version") if isinstance(meta, dict) else None
        known = isinstance(made_by, str) and len(made_by) < 40
        needed = f"xmcjax {made_by} or later" if known else "a newer version of xmcjax"
        raise ModelFormatError(path, f"schema_version up to {newest}", f"{version}: install {needed}")
    _need(path, isinstance(meta, dict), "meta as a JSON object", meta)
    problem = _meta_problem(meta)
    if problem:
        raise ModelFormatError(path, *problem)
    return meta, version


def file_of(
    path: Path, content: dict, key: str, name: str, named: Callable[[str], bool] | None = None
) -> FileRecord | None:
    """The record of a file that a manifest names under a key; None where it names none.

    Args:
        path, content, key: of the manifest.
        name: of the file.
        named: tells whether another name is allowed, too; None where no other is.
    """
    if content.get(key) is None:
        return None
    file = FileRecord(**_file_fields(path, content[key]))
    right = file.file == name or (named is not None and isinstance(file.file, str) and named(file.file))
    _need(path, right, f"the file name {name}", file.file)
    return file


def _file_fields(path: Path, entry) -> dict:
    _need(path, isinstance(entry, dict), "a file record", entry)
    _need(path, _is_count(entry.get("bytes")), "a file size", entry.get("bytes"))
    digest = entry.get("sha256")
    _need(path, isinstance(digest, str) and _SHA256.fullmatch(digest) is not None, "a SHA-256", digest)
    return {key: entry.get(key) for key in ("file", "bytes", "sha256")}


def _need(path: Path, condition: bool, expected: str, found) -> None:
    if not condition:
        raise ModelFormatError(path, expected, reprlib.repr(found))


def _from_json(path: Path, content) -> Manifest:
    need = functools.partial(_need, path)
    meta, version = checked_head(path, content, FORMAT, SCHEMA_VERSION)
    bounds = content.get("label_range")
    need(
        isinstance(bounds, list)
        and len(bounds) == 2
        and all(map(_is_count, bounds))
        and bounds[0] < bounds[1] <= meta["n_labels"],
        f"label_range within 0 to {meta['n_labels']}",
        bounds,
    )
    size = content.get("shard_size")
    need(_is_count(size) and size > 0, "shard_size as a positive integer", size)

    transforms = file_of(path, content, "transforms", TRANSFORMS)
    names = file_of(path, content, "names", NAMES) if version >= 2 else None
    calibration = file_of(path, content, "calibration", CALIBRATION, is_calibration) if version >= 3 else None
    manifest = Manifest(meta, (bounds[0], bounds[1]), size, transforms, (), names, calibration)
    need(isinstance(content.get("shards"), list), "a list of shards", content.get("shards"))
    shards: list[ShardRecord] = []
    for entry in content["shards"]:
        fields = _file_fields(path, entry)
        for key in ("first_label", "n_labels", "nonzeros"):
            need(_is_count(entry.get(key)), f"{key} as a count", entry.get(key))
            fields[key] = entry[key]
        shard = ShardRecord(**fields)
        # Name and labels follow from the number alone, so shards can neither overlap nor leave gaps
        # within themselves, and no name can point out of the directory.
        number = shard.first_label // size
        first, last = manifest.shard_bounds(number)
        need(shard.file == shard_name(number), f"the file name {shard_name(number)}", shard.file)
        need(
            (shard.first_label, shard.last_label) == (first, last) and first < last,
            f"labels {first} to {last - 1} in {shard.file}",
            (shard.first_label, shard.last_label - 1),
        )
        need(
            not shards or shards[-1].last_label <= first,
            f"labels in order, from {shards[-1].last_label if shards else 0}",
            first,
        )
        shards.append(shard)
    return replace(manifest, shards=tuple(shards))
