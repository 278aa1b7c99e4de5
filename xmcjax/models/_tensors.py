"""Headers of safetensors files; errors of such files and of a model's transforms as `ModelFormatError`."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from xmcjax import _sparse
from xmcjax.data import Transforms
from xmcjax.models._errors import ModelFormatError


def described(arrays: Mapping[str, tuple[np.dtype, tuple[int, ...]]]) -> dict[str, Any]:
    """The part of a safetensors header that describes arrays, given as (type, shape), in this order."""
    entries, at = {}, 0
    for name, (dtype, shape) in arrays.items():
        end = at + dtype.itemsize * math.prod(shape)
        kind = {"i": "I", "u": "U", "f": "F"}[dtype.kind] + str(8 * dtype.itemsize)
        entries[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    return entries


def header(text: str) -> bytes:
    """The bytes that a safetensors file begins with, made from the JSON of its header."""
    padded = text.encode()
    padded += b" " * (-len(padded) % 8)
    return len(padded).to_bytes(8, "little") + padded


@contextlib.contextmanager
def reading(path: str | os.PathLike[str]) -> Iterator[None]:
    """Raises ModelFormatError where safetensors, used within the block, finds the file unreadable.

    For types that NumPy does not have, safetensors raises KeyError or AttributeError.
    """
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, KeyError, AttributeError) as error:
        what = str(error) if isinstance(error, SafetensorError) else f"a type of numbers: {error}"
        raise ModelFormatError(path, "a safetensors file", f"one that cannot be read ({what})") from error


def transforms_of(
    path: str | os.PathLike[str], meta: dict[str, Any], arrays: dict[str, np.ndarray]
) -> Transforms:
    """The transforms that the meta data of a manifest name.

    Raises:
        ModelFormatError: unknown transforms, or transforms that these arrays do not fit.
    """
    try:
        return Transforms.from_arrays(meta.get("transforms", []), arrays)
    except (ValueError, TypeError) as error:
        raise ModelFormatError(path, "known transforms with their arrays", str(error)) from error


def transforms_bytes(arrays: dict[str, np.ndarray] | None, n_features: int) -> bytes | None:
    """A file of the arrays of transforms, or None where there are none.

    Raises:
        TypeError, ValueError: arrays that cannot be stored.
    """
    if not arrays:
        return None
    from safetensors.numpy import save

    checked = {name: _sparse.dense(array, "transforms_arrays") for name, array in arrays.items()}
    for name, array in checked.items():
        of_features = array.shape == (n_features,)
        if not of_features or not np.isfinite(array).all():
            found = "NaN or infinity" if of_features else f"shape {list(array.shape)}"
            raise ValueError(
                f"transforms_arrays: expected finite numbers [{n_features}] as {name!r}, found {found}"
            )
    return save({name: np.ascontiguousarray(array) for name, array in checked.items()})
