"""One shard: consecutive labels as a safetensors file.

============  =========  ============  =====================================================
tensor        dtype      shape         meaning
============  =========  ============  =====================================================
indptr        int64      [m + 1]       where the weights of each label start
indices       int32      [nonzeros]    features, ascending within a label
values        float32/64 [nonzeros]    weights, none of them zero
intercept     float32/64 [m]           the bias of each label
status        int8       [m]           how its training ended (`xmcjax.solvers.Status`)
newton_steps  int32      [m]           Newton steps taken
cg_steps      int32      [m]           conjugate-gradient steps taken
============  =========  ============  =====================================================
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from xmcjax._sparse import compressed_fault
from xmcjax.models._errors import ModelFormatError
from xmcjax.models._tensors import reading


class LabelWeights(NamedTuple):
    """The result of one label, checked and ready to be stored."""

    indices: np.ndarray
    values: np.ndarray
    intercept: float
    status: int
    newton_steps: int
    cg_steps: int


class Shard(NamedTuple):
    """The arrays of a shard, as in the table above; lane i is label ``first_label + i``."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    intercept: np.ndarray
    status: np.ndarray
    newton_steps: np.ndarray
    cg_steps: np.ndarray


def encode(labels: list[LabelWeights], dtype: np.dtype) -> bytes:
    """The bytes of the file of consecutive labels; they depend on the labels alone."""
    from safetensors.numpy import save

    shard = Shard(
        indptr=np.cumsum([0] + [len(label.indices) for label in labels], dtype=np.int64),
        indices=np.concatenate([label.indices for label in labels]).astype(np.int32),
        values=np.concatenate([label.values for label in labels]).astype(dtype),
        intercept=np.array([label.intercept for label in labels], dtype),
        status=np.array([label.status for label in labels], np.int8),
        newton_steps=np.array([label.newton_steps for label in labels], np.int32),
        cg_steps=np.array([label.cg_steps for label in labels], np.int32),
    )
    return save(shard._asdict())


def decode(path: Path, n_labels: int, nonzeros: int, n_features: int, dtype: np.dtype) -> Shard:
    """Read a shard and check it against what the manifest says of it.

    Raises:
        ModelFormatError: no safetensors file, or arrays that are not those of a shard of
            ``n_labels`` labels and ``nonzeros`` weights on ``n_features`` features.
        OSError: the file cannot be read.
    """
    from safetensors import safe_open

    wanted = {
        "indptr": (np.dtype(np.int64), n_labels + 1),
        "indices": (np.dtype(np.int32), nonzeros),
        "values": (dtype, nonzeros),
        "intercept": (dtype, n_labels),
        "status": (np.dtype(np.int8), n_labels),
        "newton_steps": (np.dtype(np.int32), n_labels),
        "cg_steps": (np.dtype(np.int32), n_labels),
    }
    with reading(path), safe_open(path, framework="numpy") as file:
        names = sorted(file.keys())
        if names != sorted(wanted):
            raise ModelFormatError(path, f"the arrays {', '.join(sorted(wanted))}", ", ".join(names))
        for name, (_, length) in wanted.items():
            shape = list(file.get_slice(name).get_shape())
            if shape != [length]:
                raise ModelFormatError(path, f"{name} of shape [{length}]", f"{shape}")
        arrays = {name: file.get_tensor(name) for name in wanted}
    for name, (kind, _) in wanted.items():
        if arrays[name].dtype != kind:
            raise ModelFormatError(path, f"{name} of type {kind}", f"{arrays[name].dtype}")
    shard = Shard(**arrays)
    _check(path, shard, nonzeros, n_features)
    return shard


def _check(path: Path, shard: Shard, nonzeros: int, n_features: int) -> None:
    indptr, indices = shard.indptr, shard.indices
    fault = compressed_fault(indptr, indices, nonzeros, len(indptr) - 1, n_features, "label")
    if fault is not None:
        raise ModelFormatError(path, *fault)
    if indptr[-1] != nonzeros:
        raise ModelFormatError(path, f"indptr rising from 0 to {nonzeros}", f"an end at {indptr[-1]}")
    falls = np.flatnonzero(indices[1:] <= indices[:-1]) + 1
    if not np.isin(falls, indptr).all():
        raise ModelFormatError(path, "ascending features within a label", "other orders")
    for name in ("values", "intercept"):
        if not np.isfinite(getattr(shard, name)).all():
            raise ModelFormatError(path, f"finite {name}", "nan or infinity")
