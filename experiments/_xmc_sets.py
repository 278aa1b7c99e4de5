"""Sets of the Extreme Classification Repository by name, from the data folder or fetched into it, checked.

A set lies in a folder of its name beside the others (see experiments._data.folder), either as the
repository gives it, train.txt and test.txt, plain, .gz or .xz, or as the archive NAME.tar.gz of the PECOS
project, which holds tf-idf features. Where neither is there, the archive is fetched from the Internet Archive
and checked against the SHA-1 that the Internet Archive publishes; that needs pooch (pip install
".[datasets]"). The SHA-256 of every file that is read is kept in SHA256SUMS of the folder the first time
and compared from then on, and the shapes are those that the set is known for.
"""

from __future__ import annotations

import io
import json
import tarfile
import urllib.request
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from experiments import _data, _report
from xmcjax.data import load_xmc

ITEM = "pecos-dataset"
ARCHIVE = "https://archive.org"
# The largest member of the archives that is unpacked: the features of Amazon-3M take a few GB.
MOST_BYTES = 1 << 34


class Known(NamedTuple):
    """What a set must have."""

    labels: int
    rows: int  #: of the training part
    rows_test: int


# As the repository states them; the texts of the archives lack a few rows and labels of some sets.
SETS = {
    "eurlex-4k": (Known(3993, 15539, 3809), Known(3956, 15449, 3865)),
    "wiki10-31k": (Known(30938, 14146, 6616),),
    "amazoncat-13k": (Known(13330, 1186239, 306782),),
    "amazon-670k": (Known(670091, 490449, 153025),),
    "amazon-3m": (Known(2812281, 1717899, 742507),),
}


def load(name: str) -> _data.Split:
    """Features and labels of both parts.

    Args:
        name: of ``SETS``.

    Raises:
        ValueError: a file that differs from the one read before, or a set of another shape.
        FileNotFoundError: no data folder; or nothing there and pooch is not installed.
        OSError: the set could not be fetched.
    """
    folder = _data.folder() / name
    texts = [_text(folder, part) for part in ("train", "test")]
    if texts[0] and texts[1]:
        for path in texts:
            check(path)
        (X, Y), (X_test, Y_test) = (load_xmc(path) for path in texts)
    else:
        archive = folder / f"{name}.tar.gz"
        if not archive.exists():
            fetch(name, folder)
        check(archive)
        X, Y, X_test, Y_test = _unpacked(archive)
    found = Known(Y.shape[1], X.shape[0], X_test.shape[0])
    if found not in SETS[name]:
        expected = " or ".join(str(tuple(known)) for known in SETS[name])
        raise ValueError(f"{folder}: expected labels, rows and test rows {expected}, found {tuple(found)}")
    return _data.Split(X, Y, X_test, Y_test)


def _text(folder: Path, part: str) -> Path | None:
    for ending in ("", ".gz", ".xz"):
        path = folder / f"{part}.txt{ending}"
        if path.exists():
            return path
    return None


def fetch(name: str, folder: Path) -> None:
    """Fetches the archive of a set into a folder; the file appears there when its SHA-1 is right."""
    try:
        import pooch
    except ImportError as error:
        raise FileNotFoundError(
            f"{folder}: expected train.txt and test.txt or {name}.tar.gz there; to fetch it, install "
            'pooch (pip install ".[datasets]")'
        ) from error
    member = f"xmc-base/{name}.tar.gz"
    with urllib.request.urlopen(f"{ARCHIVE}/metadata/{ITEM}", timeout=60) as answer:
        listed = {file["name"]: file for file in json.load(answer)["files"]}
    if member not in listed:
        raise FileNotFoundError(f"{ARCHIVE}: {ITEM} has no {member}")
    pooch.retrieve(
        f"{ARCHIVE}/download/{ITEM}/{member}",
        known_hash=f"sha1:{listed[member]['sha1']}",
        fname=f"{name}.tar.gz",
        path=folder,
    )


def check(path: Path) -> None:
    """Compares the file with what SHA256SUMS beside it says of it; writes it there the first time.

    Raises:
        ValueError: it is another file.
    """
    import hashlib

    with open(path, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    sums = path.parent / "SHA256SUMS"
    lines = sums.read_text().splitlines() if sums.exists() else []
    known = {line[66:]: line[:64] for line in lines}
    if path.name not in known:
        _report.write_text(sums, "".join(f"{line}\n" for line in [*lines, f"{found}  {path.name}"]))
    elif known[path.name] != found:
        raise ValueError(f"{path}: expected SHA-256 {known[path.name]} as in {sums.name}, found {found}")


def _unpacked(archive: Path) -> tuple:
    """X, Y, X_test, Y_test of an archive of PECOS; only these four members are read, none is written."""
    wanted = {
        "tfidf-attnxml/X.trn.npz": 0,
        "Y.trn.npz": 1,
        "tfidf-attnxml/X.tst.npz": 2,
        "Y.tst.npz": 3,
    }
    found: dict[int, sp.csr_matrix] = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            _, _, inner = member.name.partition(archive.name.removesuffix(".tar.gz") + "/")
            file = tar.extractfile(member) if inner in wanted and member.isfile() else None
            if file is not None:
                if member.size > MOST_BYTES:
                    raise ValueError(f"{archive}: {member.name} is larger than {MOST_BYTES >> 30} GiB")
                matrix = sp.csr_matrix(sp.load_npz(io.BytesIO(file.read())), dtype=np.float32)
                found[wanted[inner]] = matrix
    if len(found) < len(wanted):
        raise ValueError(f"{archive}: expected {', '.join(wanted)}, found {len(found)} of them")
    return tuple(found[place] for place in range(len(wanted)))
