"""Linear models of other programs: what their readers give, how it is stored, and what their writers need."""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax import __version__, _sparse
from xmcjax.models._errors import ModelFormatError
from xmcjax.models._linear import LinearModel
from xmcjax.models._names import Names
from xmcjax.models._vacant import reserved
from xmcjax.models._writer import ShardWriter

#: The bias of a label that is never predicted, where a format cannot say so.
NEVER = -1e30
# A whole line of numbers between blanks; anything else makes the match fail.
_NUMBERS = re.compile(
    rb"(?:[ \t]*+[+-]?+(?:\d++\.?+\d*+|\.\d++)(?:[eE][+-]?+\d++)?+(?=[ \t\r\n]|$))*+[ \t]*+\r?+\n?+"
)
#: What is expected and found where a text of weights ends within a line.
CUT = ("a line break after the last weight, without which the file may be cut", "the end of the file")
_LARGEST_CLASS = 2**31 - 1


class ForeignModel(NamedTuple):
    """A linear model of another program.

    Attributes:
        coef: CSR [L, d].
        intercept: [L]; `NEVER` and below for labels that are never predicted.
        classes: whole numbers, ascending, [L], or None where labels are numbers from 0.
        meta: members of the manifest: system, target, link, parameters, imported.
    """

    coef: sp.csr_array
    intercept: np.ndarray
    classes: np.ndarray | None
    meta: dict[str, Any]


def store(model: ForeignModel, directory: str | os.PathLike[str]) -> LinearModel:
    """Writes a model as a directory of the library.

    Raises:
        FileExistsError, OSError: as :class:`xmcjax.models.ShardWriter`.
    """
    coef = _sparse.canonical_csr(model.coef, "coef", zeros=False)
    count, d = coef.shape
    meta = {
        "xmcjax_version": __version__,
        "n_features": d,
        "n_labels": count,
        "dtype": coef.dtype.name,
        "transforms": [],
        "dense": False,
        **model.meta,
    }
    names = None if model.classes is None else Names(model.classes)
    with (
        reserved(directory),
        ShardWriter(directory, meta, names=names, at_once=True, held=True) as writer,
    ):
        for first, last in writer.missing_shards():
            _add(writer, first, _sparse.rows_of(coef, slice(first, last)), model.intercept[first:last])
    return LinearModel.load(directory, verify="size")


def _add(writer: ShardWriter, first: int, coef: sp.csr_array, intercept: np.ndarray) -> None:
    """Adds one shard: selecting the predicted labels of all shards at once would copy the whole model."""
    known = ~(intercept <= NEVER)
    labels = np.flatnonzero(known)
    W = coef if known.all() else _sparse.csr(coef[labels])
    ones, zeros = np.ones(len(labels), np.int8), np.zeros(len(labels), np.int32)
    numbers = dict(status=ones, newton_steps=zeros, cg_steps=zeros)
    writer.add_shard(first, first + labels, W, intercept=intercept[labels], **numbers)


def without_bias(coef: sp.csr_array, bias: float | None) -> tuple[sp.csr_array, np.ndarray]:
    """Weights [L, d] and biases [L] of weights whose last feature, if `bias` is no None, has that value."""
    if bias is None:
        return coef, np.zeros(coef.shape[0], coef.dtype)
    last = coef[:, [-1]].toarray().ravel()
    return sp.csr_array(coef[:, :-1]), last * coef.dtype.type(bias)


def of_matrix(coef: sp.csr_array, bias: float | None, format: str) -> ForeignModel:
    """A one-vs-all model of a format that holds only the weights, which `without_bias` takes apart."""
    coef, intercept = without_bias(coef, bias)
    meta = {
        "system": "one-vs-all",
        "target": "sparse",
        "link": None,
        "parameters": {"fit_intercept": bias is not None},
        "imported": {"format": format, "bias": bias},
    }
    return ForeignModel(coef, intercept, None, meta)


def of_finite_type(coef: sp.csr_array, dtype: np.dtype, path) -> sp.csr_array:
    """The weights in another type.

    Raises:
        ModelFormatError: a weight that this type cannot hold.
    """
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
        cast = coef.astype(dtype)
    if not np.isfinite(cast.data).all():
        raise ModelFormatError(path, f"weights that {dtype.name} can hold", "larger ones")
    return cast


def numbers_of(line: bytes) -> np.ndarray | None:
    """The numbers of a line, float64; None where the line holds anything else."""
    if not _NUMBERS.fullmatch(line):
        return None
    stripped = line.strip()
    return np.fromstring(stripped, np.float64, sep=" ") if stripped else np.empty(0)


def trained_biases(model: LinearModel) -> tuple[np.ndarray, np.ndarray]:
    """Which labels of a model have a score, and the biases, `NEVER` for labels without; both [L]."""
    trained = model.trained(0, model.n_labels)
    return trained, np.where(trained, model.intercept(), model.dtype.type(NEVER))


def told_of_never(trained: np.ndarray) -> list[str]:
    """What a user is told of labels without a score, where a format cannot say so."""
    count = int(np.count_nonzero(~trained))
    return [f"{count:,} labels that are never predicted have a bias of {NEVER:g}"] if count else []


def whole_classes(model: LinearModel) -> tuple[np.ndarray, bool]:
    """The class of each label as a whole number, and whether these are the classes of the model.

    Where the classes of the model are no whole numbers of 32 bits, their places 0 … L − 1 stand for them.
    """
    classes = model.names().classes
    places = np.arange(model.n_labels)
    if classes is None:
        return places, True
    if classes.dtype.kind in "iu" and -_LARGEST_CLASS <= classes[0] <= classes[-1] <= _LARGEST_CLASS:
        return classes.astype(np.int64), True
    return places, False
