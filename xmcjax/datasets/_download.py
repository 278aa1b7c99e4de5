"""Files from their publishers, with pooch: complete and with the right checksum, or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import logging
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from xmcjax.data import DataFormatError, atomic_write
from xmcjax.datasets._registry import DataSet, File

# Seconds without an answer after which a download fails.
_TIMEOUT = 60
# A line of sha256sum: the digest, how the file was read, the name.
_LINE = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


def cache() -> Path | None:
    """The folder in which fetched files are kept; None without pooch."""
    try:
        import pooch
    except ImportError:
        return None
    return Path(pooch.os_cache("xmcjax")) / "datasets"


def without_pooch(found: DataSet) -> FileNotFoundError:
    """The error for a data set that cannot be fetched, because pooch is missing."""
    return FileNotFoundError(
        f'{found.name}: expected pooch to fetch {found.address}, found none; pip install "xmcjax[datasets]"'
    )


def download(found: DataSet, file: File, folder: Path) -> Path:
    """The file in a folder of ours, fetched if it is missing; it appears there once its checksum is right.

    Raises:
        FileNotFoundError: the publisher has no such file.
        OSError: no answer, an error of the server, or an answer that breaks off.
        ValueError: the checksum is not the known one.
    """
    import pooch

    path = folder / file.name
    if path.exists() and file.sha256 is None:
        check(path, keep=True)
        return path
    with _in_a_sentence(found, file, path):
        known = f"sha256:{file.sha256}" if file.sha256 else f"sha1:{_listed(file)}"
        with _quiet(pooch.get_logger()):
            pooch.retrieve(
                file.url,
                known_hash=known,
                fname=file.name,
                path=folder,
                downloader=pooch.HTTPDownloader(timeout=_TIMEOUT),
            )
    if file.sha256 is None:
        check(path, keep=True)
    return path


@contextlib.contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """A context that hides the lines that pooch logs: `fetch` prints a line of its own."""
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextlib.contextmanager
def _in_a_sentence(found: DataSet, file: File, path: Path) -> Iterator[None]:
    """A context in which errors say in a sentence what was fetched, from where, and what to do."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, http.client.HTTPException) as error:
        answer = getattr(error, "response", None)
        reason = type(error).__name__
        if answer is not None:
            reason = f"status {answer.status_code}"
            answer.close()  # closes the connection, which pooch leaves open
        if isinstance(error, urllib.request.HTTPError):
            reason = f"status {error.code}"
            error.close()
        if isinstance(error, OSError) and error.filename is not None and error.errno is not None:
            raise  # an error of the folder, not of the network
        raise OSError(
            f"{found.name}: expected to fetch {file.url}, found no such answer ({reason}); where there is no "
            f"network, put the file at {path}, or let XMCJAX_DATA name a folder that holds {found.name}"
        ) from error
    except ValueError as error:
        # pooch has deleted the file
        if "hash" not in str(error):
            raise
        raise ValueError(f"{found.name}: {file.url} has not the known hash: {error}") from error


def _listed(file: File) -> str:
    """The SHA-1 that the publisher's listing has of the file."""
    with urllib.request.urlopen(file.listing, timeout=_TIMEOUT) as answer:
        try:
            listed = {one["name"]: one["sha1"] for one in json.load(answer)["files"] if "sha1" in one}
        except (ValueError, KeyError, TypeError) as error:
            raise OSError(f"{file.listing}: expected a JSON listing of files") from error
    if file.member not in listed:
        raise FileNotFoundError(f"{file.listing}: expected {file.member} in the listing, found it missing")
    return listed[file.member]


def check(path: Path, known: str | None = None, *, keep: bool = False) -> None:
    """Compares a file with its SHA-256.

    Args:
        path: of the file.
        known: the hash; None for the one in SHA256SUMS beside the file, if there is one.
        keep: whether a hash that SHA256SUMS lacks is added to it; only for a folder of ours.

    Raises:
        ValueError: the file has another hash.
        DataFormatError: SHA256SUMS names the file in a malformed line.
    """
    sums = path.parent / "SHA256SUMS"
    lines = sums.read_text("utf-8", "backslashreplace").splitlines() if sums.exists() else []
    expected = known or _stated(lines, sums, path)
    if expected is None and not keep:
        return
    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if expected is None:
        with atomic_write(sums) as out:
            out.write("".join(f"{line}\n" for line in [*lines, f"{found}  {path.name}"]).encode())
    elif expected != found:
        of = f" as in {sums.name}" if known is None else ""
        raise ValueError(f"{path}: expected SHA-256 {expected}{of}, found {found}")


def _stated(lines: list[str], sums: Path, path: Path) -> str | None:
    """The SHA-256 of a file in the lines of sha256sum; as sha256sum does, other lines are skipped.

    A line may give the name with the folders in which the file is.
    """
    stated = None
    for number, line in enumerate(lines, 1):
        parsed = _LINE.fullmatch(line)
        if parsed is not None:
            parts = Path(parsed[2]).parts
            if parts == path.absolute().parts[-len(parts) :]:
                stated = parsed[1].lower()
        elif not line.startswith("#") and re.search(rf"(?<![\w.-]){re.escape(path.name)}(?![\w.-])", line):
            raise DataFormatError(sums, number, None, "a SHA-256 and a name, as sha256sum writes", repr(line))
    return stated
