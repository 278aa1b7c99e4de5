"""A tiny data set that is known by its name, and its files as publishers have them."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from xmcjax import datasets

NAME = "tiny-4k"


def arff(X, Y) -> bytes:
    """As Mulan writes it: a row of columns with the value 1, the labels last."""
    both = sp.hstack([X, Y], format="csr")
    head = "@relation tiny\n\n" + "".join(f"@attribute c{j} {{0,1}}\n" for j in range(both.shape[1]))
    rows = ["{" + ",".join(f"{j} 1" for j in sorted(row.indices)) + "}\n" for row in both]
    return (head + "\n@data\n" + "".join(rows)).encode()


def known(monkeypatch, files=(), reader="", **others):
    """The tiny set among those that are known."""
    usual = dict(licence="made up", source="this test", layout="xmc", kind="labels")
    shape = dict(n_train=20, n_test=10, n_features=12, n_labels=5)
    found = datasets.DataSet(name=NAME, **{**usual, **shape, **others}, files=files, reader=reader)
    monkeypatch.setitem(datasets.SETS, NAME, found)
    return found


def assert_same(found, parts):
    for one, expected in zip(found[:4], parts, strict=True):
        np.testing.assert_allclose(one.toarray(), expected.toarray(), rtol=1e-6)


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def archive(parts) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        names = ("tfidf-attnxml/X.trn.npz", "Y.trn.npz", "tfidf-attnxml/X.tst.npz", "Y.tst.npz")
        for name, matrix in zip(names, parts, strict=True):
            stored = io.BytesIO()
            sp.save_npz(stored, matrix)
            member = tarfile.TarInfo(f"xmc-base/{NAME}/{name}")
            member.size = len(stored.getvalue())
            tar.addfile(member, io.BytesIO(stored.getvalue()))
    return content.getvalue()
