"""Models to and from the files of other programs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from xmcjax._arguments import name_of, number
from xmcjax._links import CALIBRATED
from xmcjax.models._dismec import read_dismec, write_dismec
from xmcjax.models._errors import ModelFormatError
from xmcjax.models._foreign import ForeignModel, store, whole_classes
from xmcjax.models._kernel import system_of
from xmcjax.models._liblinear import read_liblinear, write_liblinear
from xmcjax.models._linear import LinearModel
from xmcjax.models._matrix_model import read_matrix_model, write_matrix_model
from xmcjax.models._onnx import write_onnx


class Exchange(NamedTuple):
    """How models of another program are read and written.

    Attributes:
        what: the kind of file, in a few words.
        write: function (path, model) -> what is to be told about the file.
        read: function (path, max_memory=…) -> the model; None where such files can only be written.
        asks_bias: whether the reader must be told of a feature that stands for the bias.

    Example:
        >>> from xmcjax.models import EXCHANGES
        >>> sorted(name for name, exchange in EXCHANGES.items() if exchange.read)
        ['dismec', 'liblinear', 'npz']
    """

    what: str
    write: Callable[..., list[str]]
    read: Callable[..., ForeignModel] | None = None
    asks_bias: bool = False


#: What models can be exchanged with.
EXCHANGES = {
    "liblinear": Exchange("text of LIBLINEAR", write_liblinear, read_liblinear),
    "dismec": Exchange("JSON of dismecpp and its files of weights", write_dismec, read_dismec, True),
    "npz": Exchange("weights [d, L] as scipy.sparse.save_npz", write_matrix_model, read_matrix_model, True),
    "onnx": Exchange("a graph for onnxruntime", write_onnx),
}
#: The formats of `EXCHANGES` that can be read.
IMPORTS = tuple(name for name, entry in EXCHANGES.items() if entry.read is not None)


def export_model(
    model: LinearModel | str | os.PathLike[str], path: str | os.PathLike[str], format: str
) -> list[str]:
    """Writes a linear model for another program.

    The file is complete or not there at all. The files of weights of dismec take the places of those of the
    same names when all are complete, and the JSON after them.

    Args:
        model: a complete model, or its directory.
        path: the file; dismec has files of weights beside it, whose names begin with its own.
        format: "liblinear", "dismec", "npz" or "onnx" (of ``EXCHANGES``). The features that the program
            predicts from are those after the transforms of the model, but for ONNX, which has these in its
            graph.

    Returns:
        What a user of the file should know, in sentences: of a bias, of labels that are never predicted, of
        classes, a calibration and transforms that the format has no place for.

    Raises:
        ValueError: no such format, a kernel model, or one that the format cannot hold.
        ModelError: the model is damaged or not complete.
        ImportError: ONNX without onnx (the extra ``onnx``).
        OSError: the file cannot be written.

    Example:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> from xmcjax.models import ShardWriter
        >>> folder = tempfile.mkdtemp()
        >>> with ShardWriter(folder, {"n_features": 2, "n_labels": 2, "dtype": "float32"}) as writer:
        ...     for label in writer.missing():
        ...         writer.add(label, [0], np.float32([1]), 0.5)
        >>> notes = export_model(folder, folder + ".txt", "liblinear")
        >>> pathlib.Path(folder + ".txt").read_text().splitlines()[0]
        'solver_type MCSVM_CS'
    """
    entry = EXCHANGES[name_of("format", format, EXCHANGES)]
    if not isinstance(model, LinearModel):
        if system_of(model) == "kernel":
            raise ValueError(f"{model}: expected a linear model, found one of the system kernel")
        model = LinearModel.load(model)
    return entry.write(path, model) + _left_out(model, format)


def _left_out(model: LinearModel, format: str) -> list[str]:
    """Sentences on what a model has that files of this format cannot hold; an ONNX graph holds everything."""
    told = []
    if format == "onnx":
        return told
    classes, whole = whole_classes(model)
    if not whole and format == "liblinear":
        told.append("classes are no whole numbers of 32 bits: labels in the file are their places")
    elif not (whole and (format == "liblinear" or np.array_equal(classes, np.arange(model.n_labels)))):
        told.append("the classes are left out: labels in the file are their places")
    if CALIBRATED in model.meta:
        told.append("the calibration is left out: the file has scores and no probabilities")
    names = model.meta.get("transforms", [])
    if names:
        told.append(f"the weights are for features after the transforms {','.join(names)}")
    return told


def import_model(
    path: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    format: str,
    *,
    bias: float | None = None,
    max_memory: int | None = None,
) -> LinearModel:
    """Stores a linear model of another program as a directory, for prediction and for another training.

    Args:
        path: the file.
        directory: new or empty.
        format: "liblinear", "dismec" or "npz".
        bias: of dismec and npz: the value of the last feature, where it stands for the bias, as dismecpp's
            ``--augment-for-bias`` and PECOS have it. A file of LIBLINEAR says so itself.
        max_memory: bytes that reading a file may take; by default 20 times its size and 64 MB.

    Returns:
        The stored model: float64 of LIBLINEAR, float32 of dismecpp, and what the file has of npz. Classes of
        LIBLINEAR are in ascending order, whatever the order in the file.

    Raises:
        DataFormatError, ModelFormatError: the file is damaged or another one, or takes too much memory.
        ValueError: no such format, or a bias where the file knows it.
        FileExistsError: the directory holds anything.
        OSError: a file cannot be read or written.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> import scipy.sparse as sp
        >>> folder = tempfile.mkdtemp()
        >>> sp.save_npz(folder + "/weights.npz", sp.csr_matrix(np.float32([[1, 0], [0, 1]])))
        >>> import_model(folder + "/weights.npz", folder + "/model", "npz", bias=-1).n_labels
        2
    """
    entry = EXCHANGES[name_of("format", format, IMPORTS)]
    options = {}
    if bias is not None:
        if not entry.asks_bias:
            raise ValueError(f"bias: a file of {format} says it itself, got {bias}")
        if not np.isfinite(number("bias", bias)):
            raise ValueError(f"bias: expected a finite number, got {bias}")
        options["bias"] = float(bias)
    assert entry.read is not None
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large becomes infinite, and is refused
        model = entry.read(path, max_memory=max_memory, **options)
    if not (np.isfinite(model.coef.data).all() and np.isfinite(model.intercept).all()):
        expected = f"weights and biases that {model.coef.dtype.name} can hold"
        raise ModelFormatError(path, expected, "larger ones")
    return store(model, directory)
