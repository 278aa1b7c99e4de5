"""Weights by feature beside the shards of a model, from which single rows are predicted at once.

``by-feature.safetensors`` is made of the whole model by :func:`write_index`. It is mapped into memory, not
read; a block of its entries is compared with its hash, and looked at, when a row first needs it.

==========  ==========  =============  ==========================================================
tensor      dtype       shape          meaning
==========  ==========  =============  ==========================================================
indptr      int64       [d + 1]        where the weights of each feature start
values      float32/64  [nonzeros]     the weights
bias        float32/64  [L]            of each label; −inf where it is never predicted
hashes      uint8       [blocks, 32]   SHA-256 of values and labels of each block of 16,384 entries
labels      int32       [nonzeros]     of the weights, ascending within a feature
==========  ==========  =============  ==========================================================

The metadata of the file name the manifest that it was made of, and the SHA-256 of indptr, bias and hashes.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax._arguments import whole_number
from xmcjax._row_groups import groups
from xmcjax.data import atomic_write
from xmcjax.models import _manifest
from xmcjax.models._arrays import ArrayModel
from xmcjax.models._errors import ModelFormatError
from xmcjax.models._linear import LinearModel
from xmcjax.models._lock import DirectoryLock
from xmcjax.models._tensors import described, header
from xmcjax.models._weights import ByFeature

INDEX = "by-feature.safetensors"
_BLOCK = 1 << 14
# Bytes that a weight takes while the weights of some features are sorted.
_PER_WEIGHT = 40
_DIGEST = 32
_LONGEST_HEADER = 1 << 12
_FORMAT = "xmcjax-weights-by-feature"


class _Tensor(NamedTuple):
    """A tensor of the file; `begin` counts bytes from the beginning of the file."""

    dtype: np.dtype
    shape: tuple[int, ...]
    begin: int

    @property
    def bytes(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))


class _Layout:
    """Where each tensor stands in the index of a model with `nonzeros` weights."""

    def __init__(self, model: LinearModel, nonzeros: int):
        real, blocks = np.dtype(model.dtype), -(-nonzeros // _BLOCK)
        shapes: dict[str, tuple[np.dtype, tuple[int, ...]]] = {
            "indptr": (np.dtype(np.int64), (model.n_features + 1,)),
            "values": (real, (nonzeros,)),
            "bias": (real, (model.n_labels,)),
            "hashes": (np.dtype(np.uint8), (blocks, _DIGEST)),
            "labels": (np.dtype(np.int32), (nonzeros,)),
        }
        self._described = described(shapes)
        begin = len(self.header("0" * 64, "0" * 64))
        self.tensors: dict[str, _Tensor] = {}
        self.bytes = begin
        for name, (dtype, shape) in shapes.items():
            self.tensors[name] = _Tensor(dtype, shape, self.bytes)
            self.bytes += self.tensors[name].bytes

    def header(self, manifest_sha256: str, head_sha256: str) -> bytes:
        """What the file begins with; its length does not depend on the hashes."""
        metadata = {"format": _FORMAT, "head_sha256": head_sha256, "manifest_sha256": manifest_sha256}
        return header(json.dumps({"__metadata__": metadata, **self._described}))


def write_index(directory: str | os.PathLike[str], *, memory: int = 1 << 30) -> Path:
    """Writes the weights of a complete model by feature, beside its shards; an old index is replaced.

    :class:`Predictor` finds the index there: it then opens a model of any size at once, and keeps in memory
    what the rows needed. The index is as large as all shards. A model that is trained anew needs a new one.

    Args:
        directory: a model.
        memory: bytes that sorting may use, and as a rule uses; a single shard, or the weights of a single
            feature, may take more. The fewer bytes, the more often the shards are read.

    Returns:
        The file.

    Raises:
        OSError, ModelError: as :meth:`LinearModel.load`; another writer is at work; the disk is full.
        TypeError, ValueError: a memory that is no whole number above 0.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from xmcjax.models import ShardWriter
        >>> folder = tempfile.mkdtemp()
        >>> with ShardWriter(folder, {"n_features": 2, "n_labels": 1, "dtype": "float32"}) as writer:
        ...     writer.add(0, [0], np.float32([1]))
        >>> write_index(folder).name
        'by-feature.safetensors'
    """
    memory = whole_number("memory", memory, 1, sys.maxsize)
    directory = Path(directory)
    if (directory / INDEX).exists():
        _manifest.check_regular(directory / INDEX)  # opening a FIFO would wait without end
    LinearModel.load(directory, "size")  # says what is wrong with a directory that cannot be locked
    with DirectoryLock(directory):
        model = LinearModel.load(directory)
        most = max(1, memory // _PER_WEIGHT)
        counts = np.zeros(model.n_features, np.int64)
        for first, last in model.shard_runs(most):
            counts += np.bincount(model.weights(first, last).indices, minlength=model.n_features)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        layout = _Layout(model, int(indptr[-1]))
        with atomic_write(directory / INDEX) as file:
            hashes = b"".join(_entries(file, model, layout, indptr, most))
            head = {"indptr": indptr.tobytes(), "bias": biases(model).tobytes(), "hashes": hashes}
            for name, content in head.items():
                file.seek(layout.tensors[name].begin)
                file.write(content)
            digest = hashlib.sha256(b"".join(head.values())).hexdigest()
            file.seek(0)
            file.write(layout.header(model.manifest_sha256, digest))
    return directory / INDEX


def biases(model: LinearModel | ArrayModel) -> np.ndarray:
    """The biases of a model, [L]; −inf for labels that are never predicted."""
    trained = model.trained(0, model.n_labels)
    return np.where(trained, model.intercept(), -np.inf).astype(model.dtype)


def _entries(
    file: IO[bytes], model: LinearModel, layout: _Layout, indptr: np.ndarray, most: int
) -> Iterator[bytes]:
    """Writes values and labels of all weights; gives the digest of each block."""
    values, labels = np.empty(0, model.dtype), np.empty(0, np.int32)
    written = 0
    for first, last in groups(indptr, most):
        parts = [model.weights(*run)[:, first:last] for run in model.shard_runs(most)]
        W = sp.vstack(parts, format="csr").tocsc()
        values = np.concatenate([values, W.data])
        labels = np.concatenate([labels, W.indices.astype(np.int32, copy=False)])
        whole = len(values) if last == model.n_features else len(values) // _BLOCK * _BLOCK
        for name, array in (("values", values), ("labels", labels)):
            tensor = layout.tensors[name]
            file.seek(tensor.begin + tensor.dtype.itemsize * written)
            file.write(array[:whole].tobytes())
        for begin in range(0, whole, _BLOCK):  # only the last block of the file may be shorter
            block = slice(begin, begin + _BLOCK)
            yield _digest(values[block], labels[block])
        values, labels, written = values[whole:], labels[whole:], written + whole


def _digest(values: np.ndarray, labels: np.ndarray) -> bytes:
    found = hashlib.sha256(values.tobytes())
    found.update(labels.tobytes())
    return found.digest()


def opened(model: LinearModel) -> StoredIndex | None:
    """The index of a model; None where there is none, or it belongs to another state of the model.

    Raises:
        ModelFormatError: a damaged file.
        OSError: it cannot be read.
    """
    path = Path(model.directory) / INDEX
    if not path.exists():
        return None
    _manifest.check_regular(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        text = file.read(min(length, _LONGEST_HEADER))
        try:
            found = json.loads(text)
            metadata = dict(found.pop("__metadata__"))
            manifest_sha256, head_sha256 = str(metadata["manifest_sha256"]), str(metadata["head_sha256"])
            nonzeros = int(found["values"]["shape"][0])
        except (
            *(ValueError, TypeError, KeyError, AttributeError, IndexError),
            *(OverflowError, RecursionError),
        ) as error:
            raise ModelFormatError(path, "the header of a safetensors file", repr(text[:40])) from error
        if manifest_sha256 != model.manifest_sha256:
            return None
        if nonzeros != model.n_weights:
            raise ModelFormatError(path, f"{model.n_weights} weights as in the manifest", f"{nonzeros}")
        layout = _Layout(model, nonzeros)
        expected = layout.header(manifest_sha256, head_sha256)
        size = os.fstat(file.fileno()).st_size
        if length.to_bytes(8, "little") + text != expected or size != layout.bytes:
            found = f"{size} bytes with another header"
            raise ModelFormatError(path, f"{layout.bytes} bytes with the header of this model", found)
        head = {}
        for name in ("indptr", "bias", "hashes"):
            file.seek(layout.tensors[name].begin)
            head[name] = file.read(layout.tensors[name].bytes)
        digest = hashlib.sha256(b"".join(head.values())).hexdigest()
        if digest != head_sha256:
            raise ModelFormatError(path, f"SHA-256 {head_sha256:.12}… of its head", f"{digest:.12}…")
        return StoredIndex(path, file, layout, head)


class StoredIndex(ByFeature):
    """Weights by feature in a file: mapped, each block of them checked before it is first used."""

    in_memory = False

    def __init__(self, path: Path, file: IO[bytes], layout: _Layout, head: dict[str, bytes]):
        arrays = {
            name: np.frombuffer(content, layout.tensors[name].dtype).reshape(layout.tensors[name].shape)
            for name, content in head.items()
        }
        indptr, bias = arrays["indptr"], arrays["bias"]
        nonzeros = layout.tensors["values"].shape[0]
        falls = bool((indptr[1:] < indptr[:-1]).any())
        if falls or indptr[0] != 0 or indptr[-1] != nonzeros:
            raise ModelFormatError(path, f"an indptr that rises from 0 to {nonzeros}", "another one")
        if not (bias < np.inf).all():
            raise ModelFormatError(path, "finite biases, or −inf", "nan or infinity")
        values, labels = (_mapped(file, layout.tensors[name]) for name in ("values", "labels"))
        super().__init__(indptr, labels, values, bias)
        self._path, self._hashes = path, arrays["hashes"]
        self._seen = np.zeros(len(self._hashes), bool)

    def check(self, X) -> None:
        """Compares each block that holds weights of the features of X with its hash, unless it was before.

        Raises:
            ModelFormatError: a block is damaged.
        """
        if self._seen.all():
            return
        needed = np.zeros(len(self.indptr) - 1, bool)
        needed[X.indices] = True
        features = np.flatnonzero(needed) if X.nnz > len(needed) // 16 else np.unique(X.indices)
        begin, end = self.indptr[features], self.indptr[features + 1]
        begin, end = begin[begin < end] // _BLOCK, (end[begin < end] - 1) // _BLOCK + 1
        needed = np.zeros(len(self._seen) + 1, np.int64)
        np.add.at(needed, begin, 1)
        np.add.at(needed, end, -1)
        for block in np.flatnonzero((np.cumsum(needed)[:-1] > 0) & ~self._seen):
            self._check(int(block))
            self._seen[block] = True

    def _check(self, block: int) -> None:
        first, last = block * _BLOCK, min((block + 1) * _BLOCK, len(self.values))
        values, labels = self.values[first:last], self.labels[first:last]
        if _digest(values, labels) != self._hashes[block].tobytes():
            raise ModelFormatError(self._path, f"the SHA-256 of block {block}", "another one")
        outside = (labels < 0) | (labels >= len(self.bias))
        # the first feature in the block may begin before it
        before = labels[:-1] if first == 0 else self.labels[first - 1 : last - 1]
        begins = np.zeros(last - first + 1, bool)
        inside = self.indptr[np.searchsorted(self.indptr, first) : np.searchsorted(self.indptr, last)]
        begins[inside - first] = True
        rises = labels[len(labels) - len(before) :] > before
        if outside.any() or not (rises | begins[last - first - len(before) : last - first]).all():
            raise ModelFormatError(self._path, f"ascending labels below {len(self.bias)}", "others")
        if not np.isfinite(values).all():
            raise ModelFormatError(self._path, "finite weights", "nan or infinity")


def _mapped(file: IO[bytes], tensor: _Tensor) -> np.ndarray:
    if not tensor.bytes:
        return np.empty(tensor.shape, tensor.dtype)
    # as a plain array, which native calls require
    return np.asarray(np.memmap(file, tensor.dtype, "r", tensor.begin, tensor.shape))
