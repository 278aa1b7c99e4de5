"""Models of LIBLINEAR, as its programs ``train`` and ``predict`` write and read them.

R.-E. Fan, K.-W. Chang, C.-J. Hsieh, X.-R. Wang, C.-J. Lin, LIBLINEAR: a library for large linear
classification, JMLR 9, 2008. A header of lines, and after the line ``w`` a line for each feature with its
weight for each class. With two classes, other than of Crammer and Singer, there is one weight: its score is
positive for the first class of the line ``label``.
"""

from __future__ import annotations

import array
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax._links import CALIBRATED, ONE_OF, SIGMOID, link_of
from xmcjax.data import DataFormatError, MemoryBound, atomic_write
from xmcjax.models._foreign import (
    CUT,
    ForeignModel,
    numbers_of,
    trained_biases,
    whole_classes,
    without_bias,
)
from xmcjax.models._linear import LinearModel

_CLASSIFIERS = ("L2R_LR", "L2R_L2LOSS_SVC_DUAL", "L2R_L2LOSS_SVC", "L2R_L1LOSS_SVC_DUAL", "MCSVM_CS")
_CLASSIFIERS += ("L1R_L2LOSS_SVC", "L1R_LR", "L2R_LR_DUAL")
_LOGISTIC = ("L2R_LR", "L1R_LR", "L2R_LR_DUAL")
_JOINT = "MCSVM_CS"
# _WEIGHT: bytes that a weight takes until all are one matrix. _TEXT: bytes of memory per byte of a line of
# text while its numbers are read.
_WEIGHT, _TEXT = 40, 6
_LINE = 1 << 16  # the most bytes of a line of the header, but for the line of classes
# How many weights are made dense at a time to be written.
_BLOCK = 1 << 20
_MOST = 2**31 - 1


class _Header(NamedTuple):
    solver: str
    n_classes: int
    n_features: int
    bias: float
    classes: np.ndarray

    @property
    def columns(self) -> int:
        """How many weights a feature has, one per line of the text."""
        return 1 if self.n_classes == 2 and self.solver != _JOINT else self.n_classes


def read_liblinear(path: str | os.PathLike[str], max_memory: int | None = None) -> ForeignModel:
    """A classifier that LIBLINEAR trained.

    Raises:
        DataFormatError: no such file, one of regression or of one class, a damaged one, or too much memory.
        OSError: the file cannot be read.
    """
    reader = _Reader(Path(path), MemoryBound(path, max_memory))
    with open(path, "rb") as file:
        header = reader.header(file)
        weights = reader.weights(file, header)
    weights, bias = without_bias(weights, header.bias if header.bias >= 0 else None)
    classes = header.classes
    if header.columns < header.n_classes:  # z of the first class, −z of the second
        weights, bias = sp.vstack([weights, -weights], "csr"), np.concatenate([bias, -bias])
    order = np.argsort(classes, kind="stable")
    coef, bias = sp.csr_array(weights[order]), bias[order]
    if header.columns == 2:  # only the difference of the two counts; this library has scores −z and z
        half, middle = (coef[[1]] - coef[[0]]) / 2, (bias[1] - bias[0]) / 2
        coef, bias = sp.csr_array(sp.vstack([-half, half], "csr")), np.array([-middle, middle])
    return ForeignModel(coef, bias, classes[order], _meta(header))


def _meta(header: _Header) -> dict[str, Any]:
    joint, logistic = header.solver == _JOINT, header.solver in _LOGISTIC
    link = (SIGMOID if header.n_classes == 2 else ONE_OF) if logistic else None
    parameters = {"formulation": "cs"} if joint else {"loss": "logistic"} if logistic else {}
    return {
        "system": "multiclass" if joint else "one-vs-all",
        "target": "classes",
        "link": link,
        "parameters": {**parameters, "fit_intercept": header.bias >= 0},
        "imported": {"format": "liblinear", "solver_type": header.solver, "bias": header.bias},
    }


class _Reader:
    def __init__(self, path: Path, bound: MemoryBound):
        self._path, self._bound = path, bound
        self._line = 0
        self._position = 0

    def _next(self, file, longest: int) -> bytes:
        line = file.readline(longest)
        self._line += 1
        self._position += len(line)
        self._bound.seen(self._position)
        if len(line) >= longest and not line.endswith(b"\n"):
            raise self._error(1, f"a line of at most {longest} bytes", "a longer one")
        return line

    def _error(self, column: int | None, expected: str, found: str) -> DataFormatError:
        return DataFormatError(self._path, self._line, column, expected, found)

    def header(self, file) -> _Header:
        """What stands before the weights."""
        known: dict[str, Any] = {}
        while True:
            classes = known.get("nr_class")
            line = self._next(file, _LINE if classes is None else _LINE + 13 * classes)
            name, _, value = line.strip().partition(b" ")
            key = name.decode("ascii", "backslashreplace")
            if key == "w" and not value:
                break
            if not line:
                raise self._error(1, "a line 'w' before the weights", "the end of the file")
            if key in known:
                raise self._error(1, "each line of the header once", f"{key!r} again")
            known[key] = self._field(key, value.strip(), known)
        for key in ("solver_type", "nr_class", "nr_feature", "bias", "label"):
            if key not in known:
                found = "none" if key != "label" else "none, as in a model of regression"
                raise self._error(1, f"a line {key!r} before the weights", found)
        return _Header(*(known[key] for key in ("solver_type", "nr_class", "nr_feature", "bias", "label")))

    def _field(self, key: str, value: bytes, known: dict[str, Any]) -> Any:
        text = value[:60].decode("utf-8", "backslashreplace")
        match key:
            case "solver_type":
                if text not in _CLASSIFIERS:
                    expected = f"a solver of classification, one of {', '.join(_CLASSIFIERS)}"
                    raise self._error(len(key) + 2, expected, repr(text))
                return text
            case "nr_class" | "nr_feature":
                if not re.fullmatch(rb"[0-9]{1,10}", value) or not 1 <= int(value) <= _MOST:
                    raise self._error(len(key) + 2, f"a whole number from 1 to {_MOST}", repr(text))
                self._check_count(key, int(value))
                return int(value)
            case "bias":
                number = numbers_of(value)
                if number is None or number.size != 1 or not np.isfinite(number[0]):
                    raise self._error(len(key) + 2, "a finite number", repr(text))
                return float(number[0])
            case "label":
                return self._classes(value, known.get("nr_class"))
        expected = "a line of solver_type, nr_class, label, nr_feature, bias or w"
        raise self._error(1, expected, repr(f"{key} {text}".strip()[:60]))

    def _check_count(self, key: str, count: int) -> None:
        # a class takes at least two bytes of the line of labels, a feature at least two of its own line
        if 2 * count > max(self._bound.size, 2):
            raise self._error(
                None,
                f"at most {self._bound.size // 2}, as many as the file has room for, in {key!r}",
                str(count),
            )

    def _classes(self, value: bytes, n_classes: int | None) -> np.ndarray:
        if n_classes is None:
            raise self._error(1, "a line 'nr_class' before the line 'label'", "none")
        if not re.fullmatch(rb"(?:[+-]?[0-9]{1,10}(?:[ \t]++|$))*+", value):
            raise self._error(7, "classes, whole numbers", "others")
        classes = np.fromstring(value, np.int64, sep=" ") if value else np.empty(0, np.int64)
        if len(classes) != n_classes:
            raise self._error(7, f"{n_classes} classes as in 'nr_class'", str(len(classes)))
        if (np.abs(classes) > _MOST).any():
            raise self._error(7, "classes of 32 bits", "larger ones")
        ordered = np.sort(classes)
        if (ordered[1:] == ordered[:-1]).any():
            raise self._error(7, "each class once", f"{ordered[:-1][ordered[1:] == ordered[:-1]][0]} again")
        return classes

    def weights(self, file, header: _Header) -> sp.csr_array:
        """The weights, CSR [columns, features], the bias as last feature where there is one."""
        features, columns = header.n_features + (header.bias >= 0), header.columns
        longest = _LINE + 40 * columns
        lengths, labels, values = array.array("q"), [np.zeros(0, np.int32)], [np.zeros(0)]
        held = 0
        for feature in range(features):
            line = self._next(file, longest)
            if not line:
                raise self._error(1, f"{features} lines of weights", f"the end of the file after {feature}")
            if not line.endswith(b"\n"):  # the last number may be cut off
                raise self._error(len(line) + 1, *CUT)
            row = numbers_of(line)
            if row is None or len(row) != columns:
                found = "others" if row is None else str(len(row))
                raise self._error(1, f"{columns} weights", found)
            if not np.isfinite(row).all():
                raise self._error(1, "weights that float64 can hold", "larger ones")
            stored = np.flatnonzero(row)
            lengths.append(len(stored))
            if len(stored):
                labels.append(stored.astype(np.int32))
                values.append(row[stored])
            held += _WEIGHT * len(stored) + 8
            if feature % 256 == 0 or len(line) > _LINE:
                self._bound.check(held + _TEXT * len(line), f"the weights of {feature + 1:,} features")
        for line in self._rest(file):
            if line.strip():
                raise self._error(1, f"{features} lines of weights", "one more line")
        self._bound.check(held, f"the weights of {features:,} features")
        indptr = np.concatenate([[0], np.cumsum(np.frombuffer(lengths, np.int64))])
        parts = np.concatenate(values), np.concatenate(labels), indptr
        return sp.csr_array(sp.csc_array(parts, shape=(columns, features)))

    def _rest(self, file) -> Iterator[bytes]:
        while line := self._next(file, _LINE):
            yield line


def write_liblinear(path: str | os.PathLike[str], model: LinearModel) -> list[str]:
    """Writes a model for LIBLINEAR's ``predict``. Returns what a user should be told about the file.

    Labels that are never predicted are left out. Weights have enough digits for float64 to read them back.

    Raises:
        ValueError: no label of the model can be predicted.
        OSError: the file cannot be written.
    """
    trained, bias = trained_biases(model)
    kept = np.flatnonzero(trained)
    if not kept.size:
        raise ValueError(f"{model.directory}: expected a label that can be predicted, found none")
    classes, _ = whole_classes(model)
    coef, bias = sp.csc_array(model.coef()[kept]).astype(np.float64), bias[kept].astype(np.float64)
    opposite = len(kept) == 2 and bias[0] == -bias[1] and not (coef[[0]] + coef[[1]]).count_nonzero()
    order = [1] if opposite else list(range(len(kept)))  # if both score 0, we predict the lower class
    head = [f"solver_type {_solver(model, len(kept), opposite)}", f"nr_class {len(kept)}"]
    numbers = classes[kept][::-1] if opposite else classes[kept]
    head += [f"label {' '.join(map(str, numbers.tolist()))}", f"nr_feature {model.n_features}"]
    with_bias = bool(bias.any())
    head += [f"bias {1 if with_bias else -1}", "w"]
    with atomic_write(path) as file:
        file.write(("\n".join(head) + "\n").encode())
        rows = max(1, _BLOCK // len(order))
        for start in range(0, model.n_features, rows):
            file.writelines(_lines(coef[:, start : start + rows][order].toarray().T))
        if with_bias:
            file.writelines(_lines(bias[order][None, :]))
    told = []
    if len(kept) < model.n_labels:
        told.append(f"{model.n_labels - len(kept):,} labels that are never predicted are left out")
    if len(kept) == 2 and not opposite:
        told.append("of two labels the difference of the scores counts: of each row one is positive")
    return told


def _solver(model: LinearModel, n_kept: int, opposite: bool) -> str:
    system = model.meta.get("system", "one-vs-all")
    if system == "one-vs-all" and (opposite or n_kept != 2):
        likelihood = link_of(model.meta) is not None and CALIBRATED not in model.meta
        return "L2R_LR" if likelihood else "L2R_L2LOSS_SVC"
    # only this solver keeps separate weights for each of two classes
    return "L2R_L2LOSS_SVC" if opposite else _JOINT


def _lines(W: np.ndarray) -> Iterator[bytes]:
    for row in W.tolist():
        yield (" ".join(["0" if value == 0 else repr(value) for value in row]) + " \n").encode()
