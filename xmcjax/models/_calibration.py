"""The calibration of a linear model: what makes probabilities of the scores of losses that know none."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xmcjax import _sparse
from xmcjax._arguments import instance
from xmcjax._links import CALIBRATED, of_classes
from xmcjax.data import atomic_write
from xmcjax.models import _manifest
from xmcjax.models._errors import ModelFormatError
from xmcjax.models._lock import DirectoryLock
from xmcjax.models._manifest import MANIFEST
from xmcjax.models._tensors import reading

_TYPES = {"slope": np.dtype(np.float64), "offset": np.dtype(np.float64), "shared": np.dtype(bool)}


@dataclasses.dataclass(frozen=True, eq=False)
class Calibration:
    """Platt's scaling of the scores of some labels: p_l = σ(slope_l z_l + offset_l).

    Attributes:
        slope: above 0, float64 [m], so that the scores and the probabilities of a label have the same order.
        offset: float64 [m].
        shared: whether the label has the numbers that labels with few positive rows share, bool [m].

    Raises:
        TypeError: arrays of another kind.
        ValueError: of another shape, numbers that are not finite, slopes that are not above 0.

    Example:
        >>> calibration = Calibration(np.array([2.0]), np.array([-1.0]), np.array([False]))
        >>> calibration.apply(np.array([[0.5], [3.0]])).tolist()  # 2 z − 1: the log odds
        [[0.0], [5.0]]
    """

    slope: np.ndarray
    offset: np.ndarray
    shared: np.ndarray

    def __post_init__(self):
        for name, dtype in _TYPES.items():
            array = _sparse.dense(getattr(self, name), name)
            if (array.dtype.kind == "b") != (dtype.kind == "b"):
                raise TypeError(f"{name}: expected {dtype}, found {array.dtype}")
            object.__setattr__(self, name, array.astype(dtype))  # which is frozen
            if array.ndim != 1 or array.shape != self.slope.shape:
                raise ValueError(f"{name}: expected [{self.slope.size}], one a label, found {array.shape}")
        wrong = np.flatnonzero(~(np.isfinite(self.slope) & (self.slope > 0) & np.isfinite(self.offset)))
        if wrong.size:
            found = f"{self.slope[wrong[0]]} and {self.offset[wrong[0]]} for label {wrong[0]}"
            raise ValueError(f"expected finite slopes above 0 and finite offsets, found {found}")

    @classmethod
    def identity(cls, n_labels: int) -> Calibration:
        """The calibration that changes no score."""
        return cls(np.ones(n_labels), np.zeros(n_labels), np.zeros(n_labels, bool))

    def apply(self, scores: np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
        """slope z + offset, in float64. Finite scores stay finite, and −inf stays −inf.

        Args:
            scores: z, [n, m] with a column per label, or of the shape of `labels`.
            labels: the label of each score, −1 for none; None where column l is label l.
        """
        scores, m = _sparse.dense(scores, "scores"), len(self.slope)
        if labels is None and scores.shape[-1:] != (m,) and not (scores.ndim == m == 1):
            raise ValueError(f"scores: expected [n, {m}], found shape {list(scores.shape)}")
        chosen: slice | np.ndarray = slice(None) if labels is None else labels
        with np.errstate(over="ignore"):  # of scores far outside those of the fit only the sign counts
            found = np.asarray(self.slope[chosen] * scores + self.offset[chosen], np.float64)
        beyond = np.isinf(found) & np.isfinite(scores)
        if beyond.any():
            found = np.where(beyond, np.copysign(np.finfo(float).max, found), found)
        return found

    def at(self, places: np.ndarray) -> Calibration:
        """The calibration of some of the labels."""
        return Calibration(self.slope[places], self.offset[places], self.shared[places])

    def placed(self, places: np.ndarray, n_labels: int) -> Calibration:
        """These labels among others, which are left as they are."""
        made = Calibration.identity(n_labels)
        made.slope[places], made.offset[places], made.shared[places] = self.slope, self.offset, self.shared
        return made

    def opposite(self) -> Calibration:
        """The calibration of the scores with the other sign, whose probabilities are 1 − p."""
        return Calibration(self.slope, -self.offset, self.shared)

    @classmethod
    def joined(cls, *parts: Calibration) -> Calibration:
        """One part's labels after the other's."""
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in _TYPES))

    def method(self, meta: Mapping[str, Any]) -> str:
        """The name of the method for a model: temperature where all classes share a slope, else sigmoid.

        Args:
            meta: the meta data of the model.
        """
        same = len(np.unique(self.slope)) == 1 and not self.offset.any()
        return "temperature" if same and of_classes(meta) else "sigmoid"

    def encode(self) -> bytes:
        """The bytes of the file: a function of the numbers alone."""
        from safetensors.numpy import save

        return save({name: np.ascontiguousarray(getattr(self, name)) for name in _TYPES})


def decode(path: Path, raw: bytes, n_labels: int) -> Calibration:
    """The calibration of a file.

    Raises:
        ModelFormatError: other content than :meth:`Calibration.encode` writes for so many labels.
    """
    from safetensors.numpy import load

    with reading(path):
        arrays = load(raw)
    for name, dtype in _TYPES.items():
        found = arrays.get(name)
        if found is None or found.dtype != dtype or found.shape != (n_labels,):
            text = "none" if found is None else f"{found.dtype} {list(found.shape)}"
            raise ModelFormatError(path, f"{name} as {dtype} [{n_labels}]", text)
    try:
        return Calibration(**{name: arrays[name] for name in _TYPES})
    except ValueError as error:
        raise ModelFormatError(path, "slopes above 0 and finite offsets", str(error)) from error


def write_calibration(directory: str | os.PathLike[str], calibration: Calibration) -> None:
    """Gives a stored model a calibration; an old one is replaced. Its index has to be made anew.

    The file is written first, beside an old one, then the manifest that names it and says its method: a model
    has the old or the new calibration, whenever the program is killed. The file of the previous calibration
    stays until the next call, for those who have the model open.

    Args:
        directory: of a complete linear model.
        calibration: of the labels that the directory holds.

    Raises:
        TypeError: another object.
        ValueError: of another number of labels, or a model that lacks labels.
        ModelError: a damaged manifest; another writer is at work.
        OSError: no model there, or it cannot be written.

    Example:
        >>> import tempfile
        >>> from xmcjax import OneVsAllClassifier
        >>> from xmcjax.models import Calibration, LinearModel, write_calibration
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     OneVsAllClassifier().fit([[0.0], [1.0], [2.0]], [0, 1, 2]).save(f"{folder}/model")
        ...     write_calibration(f"{folder}/model", Calibration.identity(3))
        ...     LinearModel.load(f"{folder}/model").calibration().slope.tolist()
        [1.0, 1.0, 1.0]
    """
    instance("calibration", calibration, Calibration)
    directory = Path(directory)
    _manifest.check_directory(directory)
    if not (directory / MANIFEST).exists():
        raise FileNotFoundError(f"{directory}: expected a model, found no {MANIFEST}")
    with DirectoryLock(directory):
        manifest = _manifest.read(directory / MANIFEST)
        low, high = manifest.label_range
        if manifest.missing():
            raise ValueError(f"{directory}: expected a complete model, found labels missing")
        if len(calibration.slope) != high - low:
            found = len(calibration.slope)
            raise ValueError(f"calibration: expected {high - low} labels as in {directory}, found {found}")
        content, old = calibration.encode(), manifest.calibration
        record = _manifest.calibration_record(content, old)
        meta = dict(manifest.meta)
        method, told = calibration.method(meta), meta.get(CALIBRATED)
        if not isinstance(told, dict) or told.get("method") != method:
            meta[CALIBRATED] = {"method": method}
        manifest = dataclasses.replace(manifest, meta=meta, calibration=record)
        for name, raw in ((record.file, content), (MANIFEST, _manifest.render(manifest))):
            with atomic_write(directory / name) as file:
                file.write(raw)
        if old is None or record == old:
            return
        for name in filter(_manifest.is_calibration, os.listdir(directory)):
            if name not in (record.file, old.file) and (directory / name).is_file():
                (directory / name).unlink()
