"""A model as one sparse matrix W in the form of ``scipy.sparse.save_npz``: scores are [X, 1] W."""

from __future__ import annotations

import os

import scipy.sparse as sp

from xmcjax.data import MemoryBound, load_scipy_npz, save_scipy_npz
from xmcjax.models._errors import ModelFormatError
from xmcjax.models._foreign import ForeignModel, of_matrix, told_of_never, trained_biases
from xmcjax.models._linear import LinearModel

# Bytes per label beside its weights: for its place, bias and status.
_PER_LABEL = 32


def read_matrix_model(
    path: str | os.PathLike[str], bias: float | None = None, max_memory: int | None = None
) -> ForeignModel:
    """A model whose weights are a matrix [d, L], such as those of PECOS.

    Args:
        path: the npz.
        bias: value of the last feature, which is the bias; None where there is no bias.
        max_memory: bytes that reading may take; None allows 20 times the file's size and 64 MB.

    Raises:
        DataFormatError: no such file, or too much memory.
        ModelFormatError: no weights.
        OSError: it cannot be read.
    """
    W = load_scipy_npz(path, max_memory=max_memory)
    least = 1 if bias is None else 2
    if W.shape[0] < least or W.shape[1] < 1:
        expected = f"weights [d, L] of at least {least} features and one label"
        raise ModelFormatError(path, expected, str(list(W.shape)))
    MemoryBound(path, max_memory).check(_PER_LABEL * W.shape[1], f"{W.shape[1]:,} labels")
    return of_matrix(sp.csr_array(W.T), bias, "npz")


def write_matrix_model(path: str | os.PathLike[str], model: LinearModel) -> list[str]:
    """Writes the weights, CSR [d + 1, L] with the biases as last row. Returns what a user should be told.

    Raises:
        OSError: the file cannot be written.
    """
    trained, bias = trained_biases(model)
    last = sp.csr_array(bias.astype(model.dtype)[None, :])
    save_scipy_npz(path, sp.csr_array(sp.vstack([sp.csr_array(model.coef().T), last], "csr")))
    return ["the last row is the bias: scores are [X, 1] W", *told_of_never(trained)]
