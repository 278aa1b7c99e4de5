"""Reading a stored model: shards are opened when their labels are asked for."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from xmcjax import _sparse
from xmcjax._arguments import flag, name_of
from xmcjax._fork import OwnLock
from xmcjax._links import CALIBRATED
from xmcjax._state_folder import no_model
from xmcjax.models import _manifest
from xmcjax.models._base import NOT_STORED, check_labels, is_trained
from xmcjax.models._calibration import Calibration
from xmcjax.models._calibration import decode as decode_calibration
from xmcjax.models._errors import IncompleteModelError, ModelFormatError
from xmcjax.models._manifest import MANIFEST, FileRecord, Identity, Manifest, ShardRecord
from xmcjax.models._names import Names
from xmcjax.models._names import decode as decode_names
from xmcjax.models._shard import Shard, decode, decode_of_labels, decode_parts
from xmcjax.models._tensors import reading, transforms_of

VERIFY = ("full", "lazy", "size", "none")
# Models of fewer bytes are checked as a whole at first: SHA-256 at about 1 GB/s takes seconds for them.
_FULL_BELOW = 8_000_000_000
# How many decoded shards are kept: a block of labels that straddles a boundary needs two.
_CACHED_SHARDS = 2


class LinearModel:
    """A linear model in a directory, one weight vector and bias per label; made by `load`.

    Attributes:
        directory: where it is.
        meta: how it was made (dict of JSON values): loss, C, init, eps, clip, transforms, …
        n_labels: L, the number of labels of the problem.
        n_features: d, the features of X after its transforms, without the bias.
        label_range: (first, one past the last) label that the directory is to hold.
        dtype: of the weights, float32 or float64.

    Example:
        >>> import tempfile
        >>> from xmcjax.models import ShardWriter
        >>> folder = tempfile.mkdtemp()
        >>> with ShardWriter(folder, {"n_features": 4, "n_labels": 1, "dtype": "float32"}) as writer:
        ...     writer.add(0, [0, 3], np.float32([1, 2]), 0.5)
        >>> model = LinearModel.load(folder)
        >>> model.weights(0, 1).toarray().tolist()
        [[1.0, 0.0, 0.0, 2.0]]
    """

    def __init__(self, directory: Path, manifest: Manifest, compared: dict[str, Identity] | None):
        self.directory = directory
        self.meta = manifest.meta
        self.n_labels = manifest.n_labels
        self.n_features = manifest.n_features
        self.label_range = manifest.label_range
        self.dtype = manifest.dtype
        self._manifest = manifest
        self._first_labels = np.array([shard.first_label for shard in manifest.shards], np.int64)
        self._cache: OrderedDict[int, Shard] = OrderedDict()
        self._cache_lock = OwnLock()
        # The files whose hashes matched the manifest. A file that has replaced one of them since then is
        # compared when it is read. None means that no file is compared.
        self._compared = compared
        self._status: np.ndarray | None = None

    def __getstate__(self) -> dict:
        """The state without decoded shards: a copy reads them itself, from any working directory."""
        return self.__dict__ | {"_cache": OrderedDict(), "directory": self.directory.absolute()}

    @classmethod
    def load(
        cls, directory: str | os.PathLike[str], verify: str | None = None, partial: bool = False
    ) -> LinearModel:
        """Open a model. Weights are read later, shard by shard, when they are asked for.

        Args:
            directory: the model.
            verify: "full" compares the SHA-256 of every file now, "lazy" that of a shard when it is
                first read; both compare it again if the file has been replaced. "size" compares only the
                sizes, "none" nothing. None, the default, is "full" up to 8 GB and "lazy" above. The
                manifest's own hash is always compared, and the arrays of a shard are checked against the
                manifest whenever it is read.
            partial: accept a model that lacks labels; they are never predicted.

        Raises:
            ModelFormatError: a damaged, missing or foreign file.
            IncompleteModelError: labels are missing and ``partial`` is False; the message says which.
            ValueError: an unknown ``verify``.
            OSError: no such directory or something else in its place, no manifest in it, or no permission.
        """
        if verify is not None:
            name_of("verify", verify, VERIFY)
        flag("partial", partial)
        directory = Path(directory)
        _manifest.check_directory(directory)
        try:
            manifest = _manifest.read(directory / MANIFEST)
        except FileNotFoundError as error:
            raise no_model(directory, MANIFEST) from error
        files: list[FileRecord] = [*manifest.shards]
        beside = (manifest.transforms, manifest.names, manifest.calibration)
        files += [file for file in beside if file is not None]
        if verify is None:
            verify = "full" if sum(file.bytes for file in files) <= _FULL_BELOW else "lazy"
        if verify != "none":
            for file in files:
                _check_size(directory, file)
        compared: dict[str, Identity] = {}
        if verify == "full":
            compared = {file.file: _manifest.check_hash(directory, file) for file in files}
        gaps = manifest.missing()
        if gaps and not partial:
            runs = ", ".join(
                f"{first}" if last == first + 1 else f"{first}-{last - 1}" for first, last in gaps[:5]
            )
            more = f" and {len(gaps) - 5} more runs" if len(gaps) > 5 else ""
            count = sum(last - first for first, last in gaps)
            low, high = manifest.label_range
            raise IncompleteModelError(
                f"{directory}: expected labels {low} to {high - 1}, found {count} of them missing "
                f"({runs}{more}); finish the training with --resume"
            )
        return cls(directory, manifest, compared if verify in ("full", "lazy") else None)

    @property
    def complete(self) -> bool:
        """Whether every label of ``label_range`` is stored."""
        return not self._manifest.missing()

    def missing(self) -> list[tuple[int, int]]:
        """The runs of labels that are not stored, as (first, one past the last)."""
        return self._manifest.missing()

    def __repr__(self) -> str:
        shape = f"n_labels={self.n_labels}, n_features={self.n_features}"
        return f"LinearModel({os.fspath(self.directory)!r}, {shape})"

    # Shards

    def _shard(self, place: int) -> Shard:
        with self._cache_lock:  # training threads may start from one model together
            if place in self._cache:
                self._cache.move_to_end(place)
                return self._cache[place]
            shard = self._read(place)
            self._cache[place] = shard
            while len(self._cache) > _CACHED_SHARDS:
                self._cache.popitem(last=False)
            return shard

    def forget(self) -> None:
        """Drops the decoded shards that are kept; they are read again when they are asked for."""
        with self._cache_lock:
            self._cache.clear()

    def _file(self, place: int) -> Path:
        """The path of a shard, after its hash is compared where `verify` asks for that."""
        entry = self._manifest.shards[place]
        path = self.directory / entry.file
        found = _manifest.identity(path)
        if self._compared is not None and self._compared.get(entry.file) != found:
            self._compared[entry.file] = _manifest.check_hash(self.directory, entry)
        return path

    def _read(self, place: int) -> Shard:
        entry, path = self._manifest.shards[place], self._file(place)
        return decode(path, entry.n_labels, entry.nonzeros, self.n_features, self.dtype)

    def _overlapping(self, first: int, last: int):
        """(place, shard record, first and one past the last of its labels in the range), in order."""
        place = max(int(np.searchsorted(self._first_labels, first, side="right")) - 1, 0)
        while place < len(self._manifest.shards):
            entry: ShardRecord = self._manifest.shards[place]
            if entry.first_label >= last:
                return
            low, high = max(first, entry.first_label), min(last, entry.last_label)
            if low < high:
                yield place, entry, low, high
            place += 1

    # Weights

    def weights(self, first: int, last: int) -> sp.csr_array:
        """The weights of labels first … last − 1, CSR [last − first, d]; biases are in `intercept`.

        Labels that are not stored have empty rows.

        Raises:
            IndexError: labels out of range.
            ModelFormatError: a damaged shard.
        """
        first, last = check_labels(first, last, self.n_labels)
        spans = list(self._overlapping(first, last))
        cut = {
            place: self._shard(place).part(low - entry.first_label, high - entry.first_label)
            for place, entry, low, high in spans
            if high - low < entry.n_labels
        }
        count = sum(len(cut[place].values) if place in cut else entry.nonzeros for place, entry, *_ in spans)
        parts = ((low, cut[place] if place in cut else self._shard(place)) for place, _, low, _ in spans)
        return self._stacked(first, last, count, parts)

    def _stacked(self, first: int, last: int, count: int, parts: Iterable[tuple[int, Shard]]) -> sp.csr_array:
        """CSR of labels first … last − 1 from parts, each with its first label; they have `count` weights."""
        index = _sparse.index_type(count, self.n_features, last - first)
        indptr = np.zeros(last - first + 1, index)
        indices, values = np.empty(count, index), np.empty(count, self.dtype)
        begin = 0
        for low, part in parts:
            entries = slice(begin, begin + len(part.values))
            indptr[low - first + 1 :][: len(part.indptr) - 1] = np.diff(part.indptr)
            indices[entries], values[entries] = part.indices, part.values
            begin = entries.stop
        np.cumsum(indptr, out=indptr)
        return sp.csr_array((values, indices, indptr), shape=(last - first, self.n_features))

    def _parts(self) -> Iterator[tuple[int, Shard]]:
        """All shards in parts of a few labels, (first label, part) in order; no part is kept in the cache."""
        for place, entry in enumerate(self._manifest.shards):
            shard = self._cache.get(place)
            sizes = entry.n_labels, entry.nonzeros, self.n_features
            found = [(0, shard)] if shard else decode_parts(self._file(place), *sizes, self.dtype)
            for first, part in found:
                yield entry.first_label + first, part

    def dense_block(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """Weights [d, last − first], one label per column, and biases [last − first].

        Labels that are not stored have zeros; see `trained`.
        """
        first, last = check_labels(first, last, self.n_labels)
        W = np.zeros((self.n_features, last - first), self.dtype)
        b = np.zeros(last - first, self.dtype)
        for place, entry, low, high in self._overlapping(first, last):
            part = self._shard(place).part(low - entry.first_label, high - entry.first_label)
            columns = np.repeat(np.arange(low - first, high - first), np.diff(part.indptr))
            W[part.indices, columns] = part.values
            b[low - first : high - first] = part.intercept
        return W, b

    def coef(self) -> sp.csr_array:
        """All weights, CSR [L, d]."""
        return self._stacked(0, self.n_labels, self.n_weights, self._parts())

    def dense(self, labels: np.ndarray) -> np.ndarray:
        """The weights of some labels, ascending, as an array [labels, d], without a copy of that size.

        Raises:
            ModelFormatError: a damaged shard.
        """
        W = np.zeros((len(labels), self.n_features), self.dtype)
        for low, part in self._parts():
            shape = len(part.indptr) - 1, self.n_features
            begin, end = np.searchsorted(labels, (low, low + shape[0]))
            rows = sp.csr_array((part.values, part.indices, part.indptr), shape=shape)
            rows[labels[begin:end] - low].toarray(out=W[begin:end])
        return W

    def intercept(self) -> np.ndarray:
        """All biases, [L]; 0 for labels that are not stored."""
        return self._per_label("intercept", 0, self.dtype)

    @property
    def manifest_sha256(self) -> str:
        """The hash by which the manifest that was read names itself."""
        return self._manifest.sha256

    def shard_runs(self, most: int) -> list[tuple[int, int]]:
        """All labels of the problem in runs, (first, one past the last), of whole shards.

        Args:
            most: weights of a run; a run has more where a shard has.
        """
        runs, first, weights = [], 0, 0
        for shard in self._manifest.shards:
            if weights and weights + shard.nonzeros > most:
                runs.append((first, shard.first_label))
                first, weights = shard.first_label, 0
            weights += shard.nonzeros
        return [*runs, (first, self.n_labels)]

    @property
    def shard_size(self) -> int:
        """Labels per file."""
        return self._manifest.shard_size

    def file_hashes(self) -> dict[str, str]:
        """SHA-256 of the files beside the shards, by what they hold."""
        files = {"transforms": self._manifest.transforms, "names": self._manifest.names}
        return {f"SHA-256 of {name}": file.sha256 for name, file in files.items() if file is not None}

    @property
    def n_weights(self) -> int:
        """Weights that are stored, none of them zero."""
        return sum(shard.nonzeros for shard in self._manifest.shards)

    def weight_starts(self) -> np.ndarray:
        """Where the weights of each label of ``label_range`` begin among all weights, int64 [labels + 1].

        Only this array of each shard is read.

        Raises:
            ModelFormatError: a damaged shard.
        """
        first, last = self.label_range
        lengths = np.zeros(last - first, np.int64)
        for place, entry, low, high in self._overlapping(first, last):
            indptr = self._of_labels(place, "indptr")
            bounds = indptr[low - entry.first_label : high - entry.first_label + 1]
            lengths[low - first : high - first] = np.diff(bounds)
        return np.concatenate([[0], np.cumsum(lengths)])

    def intercept_of(self, first: int, last: int) -> np.ndarray:
        """The biases of labels first … last − 1; 0 for labels that are not stored."""
        return self._part("intercept", first, last, 0, self.dtype)

    def density(self) -> float:
        """The fraction of weights that are not zero, over the labels that are stored."""
        labels = sum(shard.n_labels for shard in self._manifest.shards)
        return self.n_weights / (labels * self.n_features) if labels else 0.0

    # What is known about each label

    def _per_label(self, name: str, absent, dtype) -> np.ndarray:
        result = np.full(self.n_labels, absent, dtype)
        for place, entry in enumerate(self._manifest.shards):
            result[entry.first_label : entry.last_label] = self._of_labels(place, name)
        return result

    def _of_labels(self, place: int, name: str) -> np.ndarray:
        """An array of a shard with a number for each label; if the shard is not cached, only it is read."""
        shard, entry = self._cache.get(place), self._manifest.shards[place]
        if shard is not None:
            return getattr(shard, name)
        return decode_of_labels(self._file(place), name, entry.n_labels, entry.nonzeros, self.dtype)

    def _part(self, name: str, first: int, last: int, absent, dtype) -> np.ndarray:
        """As `_per_label`, for labels first … last − 1; their shards stay in the cache."""
        first, last = check_labels(first, last, self.n_labels)
        result = np.full(last - first, absent, dtype)
        for place, entry, low, high in self._overlapping(first, last):
            stored = getattr(self._shard(place), name)
            result[low - first : high - first] = stored[low - entry.first_label : high - entry.first_label]
        return result

    @property
    def status(self) -> np.ndarray:
        """int8 [L]: how the training of each label ended (`xmcjax.solvers.Status`); −1 where the
        label is not stored.
        """
        if self._status is None:
            self._status = self._per_label("status", NOT_STORED, np.int8)
        return self._status.copy()

    @property
    def newton_steps(self) -> np.ndarray:
        """int32 [L]: Newton steps taken by each label, 0 where it is not stored."""
        return self._per_label("newton_steps", 0, np.int32)

    @property
    def cg_steps(self) -> np.ndarray:
        """int32 [L]: conjugate-gradient steps taken by each label, 0 where it is not stored."""
        return self._per_label("cg_steps", 0, np.int32)

    def training_of(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`status`, `newton_steps` and `cg_steps` of labels first … last − 1, which are all stored."""
        status = self._part("status", first, last, NOT_STORED, np.int8)
        newton = self._part("newton_steps", first, last, 0, np.int32)
        return status, newton, self._part("cg_steps", first, last, 0, np.int32)

    def trained(self, first: int, last: int) -> np.ndarray:
        """bool [last − first]: labels that have a score: stored, with positive instances, and finite."""
        return is_trained(self._part("status", first, last, NOT_STORED, np.int8))

    # Names and transforms

    def names(self) -> Names:
        """What the labels and features are called, where they have names.

        Raises:
            ModelFormatError: a damaged file.
        """
        entry = self._manifest.names
        if entry is None:
            return Names()
        return decode_names(
            self.directory / entry.file,
            _manifest.checked_bytes(self.directory, entry),
            self.n_labels,
            self.n_features,
        )

    @property
    def calibrated(self) -> bool:
        """Whether there is a calibration."""
        return self._manifest.calibration is not None

    def calibration(self) -> Calibration | None:
        """What turns the scores of all labels into probabilities; None for a model that is not calibrated.

        Raises:
            IncompleteModelError: training was interrupted before the calibration was made.
            ModelFormatError: a damaged file.
        """
        found, (low, high) = self.calibration_of(), self.label_range
        if found is None or high - low == self.n_labels:
            return found
        return found.placed(np.arange(low, high), self.n_labels)

    def calibration_of(self) -> Calibration | None:
        """As :meth:`calibration`, only for the labels of `label_range`."""
        entry = self._manifest.calibration
        if entry is None:
            if CALIBRATED in self.meta:
                raise IncompleteModelError(
                    f"{self.directory}: expected a calibration, found none yet; finish the training with "
                    "--resume"
                )
            return None
        raw, (low, high) = _manifest.checked_bytes(self.directory, entry), self.label_range
        return decode_calibration(self.directory / entry.file, raw, high - low)

    def transforms(self):
        """The feature transforms of the training data, an `xmcjax.data.Transforms`: its ``apply``
        turns raw features into those that this model was trained on.

        Raises:
            ModelFormatError: a damaged file.
        """
        path = self.directory / MANIFEST
        transforms = transforms_of(path, self.meta, self.transforms_arrays())
        if transforms.n_features not in (None, self.n_features):
            found = str(transforms.n_features)
            raise ModelFormatError(path, f"transforms of {self.n_features} features", found)
        return transforms

    def transforms_arrays(self) -> dict[str, np.ndarray]:
        """The arrays of the feature transforms by name, as they were given to the writer.

        Raises:
            ModelFormatError: a damaged file.
        """
        entry = self._manifest.transforms
        if entry is None:
            return {}
        from safetensors.numpy import load

        raw = _manifest.checked_bytes(self.directory, entry)
        with reading(self.directory / entry.file):
            return load(raw)


def _check_size(directory: Path, file: FileRecord) -> None:
    _, _, size, _ = _manifest.named_file(directory, file)
    if size != file.bytes:
        raise ModelFormatError(directory / file.file, f"{file.bytes} bytes as in the manifest", f"{size}")
