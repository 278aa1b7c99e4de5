"""Whether the files and options of a model allow a run to resume it."""

from __future__ import annotations

from pathlib import Path

from xmcjax.models import _manifest
from xmcjax.models._manifest import FileRecord, Manifest


def intact(directory: Path, file: FileRecord) -> bool:
    """Whether a file of the model is there with the size and hash of its record."""
    path = directory / file.file
    if not path.exists():
        return False
    # raises unless the file is regular, because opening a FIFO would block
    _, _, size, _ = _manifest.identity(path)
    return size == file.bytes and _manifest.sha256_of(path) == file.sha256


def first_difference(found: Manifest, wanted: Manifest) -> tuple[str, str, str] | None:
    """(key, its value on disk, its value now) of the first thing that differs, or None."""

    def of_meta(manifest: Manifest, key: str) -> str:
        return repr(manifest.meta[key]) if key in manifest.meta else "nothing"

    def of_file(file: FileRecord | None, what: str) -> str:
        return "none" if file is None else f"{what} of SHA-256 {file.sha256[:12]}…"

    for key in _manifest.in_order(found.meta.keys() | wanted.meta.keys()):
        # Values are compared, not texts: 1 is 1.0.
        if key not in found.meta or key not in wanted.meta or found.meta[key] != wanted.meta[key]:
            return key, of_meta(found, key), of_meta(wanted, key)
    for key in ("label_range", "shard_size"):
        if getattr(found, key) != getattr(wanted, key):
            return key, str(getattr(found, key)), str(getattr(wanted, key))
    for key, what in (("transforms", "arrays"), ("names", "texts")):
        files = getattr(found, key), getattr(wanted, key)
        if files[0] != files[1]:
            return key, of_file(files[0], what), of_file(files[1], what)
    return None
