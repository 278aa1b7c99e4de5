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

from xmcjax import _sparse
from xmcjax._arguments import number, whole_number
from xmcjax._sparse import compressed_fault
from xmcjax.models._base import STATUSES
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


def checked_weights(
    label: int,
    indices,
    values,
    bias: float,
    status: int,
    newton_steps: int,
    cg_steps: int,
    *,
    n_features: int,
    dtype: np.dtype,
) -> LabelWeights:
    """The result of a label as it is stored; the arguments are those of ``ShardWriter.add``.

    Raises:
        ValueError, TypeError: as there.

    Example:
        >>> kept = checked_weights(
        ...     4, [0, 2], np.float32([0.5, 0]), 0.0, 0, 3, 5, n_features=3, dtype=np.dtype("float32")
        ... )
        >>> kept.indices.tolist()  # without the zero
        [0]
    """
    indices, values = _sparse.dense(indices, "indices"), _sparse.dense(values, "values")
    if indices.size == 0:
        indices = indices.astype(np.int32)
    if indices.ndim != 1 or values.shape != indices.shape or indices.dtype.kind not in "iu":
        raise ValueError(
            f"label {label}: expected indices (integers) and values of one length, found shapes "
            f"{indices.shape}, {values.shape} and indices of type {indices.dtype}"
        )
    if values.dtype != dtype:
        raise TypeError(f"label {label}: expected values of type {dtype}, found {values.dtype}")
    with np.errstate(over="ignore"):
        stored_bias = dtype.type(number("bias", bias))
    if not (np.isfinite(values).all() and np.isfinite(stored_bias)):
        raise ValueError(f"label {label}: expected finite weights, found nan or infinity")
    if indices.size and (indices[0] < 0 or indices[-1] >= n_features or (indices[1:] <= indices[:-1]).any()):
        raise ValueError(
            f"label {label}: expected ascending features from 0 to {n_features - 1}, found others"
        )
    # Boolean indexing copies: the caller may use its buffers again.
    kept = values != 0
    steps = (whole_number(n, s, 0) for n, s in (("newton_steps", newton_steps), ("cg_steps", cg_steps)))
    status = whole_number("status", status, STATUSES[0], STATUSES[-1])
    return LabelWeights(indices[kept].astype(np.int32), values[kept], float(bias), status, *steps)


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


def decode_indptr(path: Path, n_labels: int, nonzeros: int) -> np.ndarray:
    """Where the weights of each label of a shard begin, int64 [n_labels + 1], without reading the others.

    Raises:
        ModelFormatError, OSError: as :func:`decode`.
    """
    from safetensors import safe_open

    with reading(path), safe_open(path, framework="numpy") as file:
        indptr = file.get_tensor("indptr")
    if indptr.dtype != np.int64 or indptr.shape != (n_labels + 1,):
        found = f"{indptr.dtype} of shape {list(indptr.shape)}"
        raise ModelFormatError(path, f"indptr of type int64 and shape [{n_labels + 1}]", found)
    if indptr[0] != 0 or indptr[-1] != nonzeros or (indptr[1:] < indptr[:-1]).any():
        raise ModelFormatError(path, f"indptr rising from 0 to {nonzeros}", "another one")
    return indptr


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
    most = np.iinfo(np.int32).max
    for name, low, high in (
        ("status", STATUSES[0], STATUSES[-1]),
        ("newton_steps", 0, most),
        ("cg_steps", 0, most),
    ):
        found = getattr(shard, name)
        wrong = found[(found < low) | (found > high)]
        if wrong.size:
            raise ModelFormatError(path, f"{name} from {low} to {high}", str(wrong[0]))
