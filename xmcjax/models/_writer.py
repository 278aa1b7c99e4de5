"""Writing a model: shards in label order, whatever the order in which labels are finished.

A crash at any moment loses at most the shards in flight and those that the manifest does not name yet. A run
that resumes ends with the same bytes as one that was never interrupted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import sys
import threading
import time
import weakref
from pathlib import Path

import numpy as np

from xmcjax import _sparse
from xmcjax._arguments import flag, whole_number
from xmcjax._fork import OwnLock
from xmcjax.data import atomic_write, make_folder
from xmcjax.models import _manifest
from xmcjax.models._calibration import Calibration
from xmcjax.models._errors import ModelMismatchError
from xmcjax.models._lock import DirectoryLock
from xmcjax.models._manifest import (
    CALIBRATION,
    MANIFEST,
    NAMES,
    TRANSFORMS,
    FileRecord,
    Manifest,
    ShardRecord,
)
from xmcjax.models._names import Names, decode
from xmcjax.models._outside import Outside, remove_unadopted
from xmcjax.models._resumed import first_difference, intact
from xmcjax.models._shard import Content, LabelWeights, checked_rows, checked_weights, of_labels, of_rows
from xmcjax.models._tensors import transforms_bytes
from xmcjax.models._vacant import BESIDE, check_place, check_vacant, clear_unfinished

# The command line writes this file beside a model (clock, host, options); the store never reads it.
RUN_FILE = "run.json"
# After the manifest was written, this many times the duration of that writing passes before the next one.
_PAUSES = 10


class ShardWriter:
    """Takes the weights of labels one at a time, in any order, and writes complete shards.

    Each shard is written as: temporary file, fsync, rename, fsync of the directory; then the manifest.
    Writing the manifest takes at most a tenth of the time; besides, it is written when the range is complete
    and when the writer is closed, even after an error. So use a writer in a ``with`` block, or close it: else
    the manifest may not name all shards on disk. Shards that it names are complete. The bytes of the finished
    directory depend on the labels, the meta data and the shard size only. `add` may be called from several
    threads; one process at a time writes a directory.

    Args:
        directory: the model; made if absent.
        meta: how the model is made: JSON values, at least ``n_features``, ``n_labels`` and
            ``dtype`` ("float32" or "float64"). Nothing that differs between two runs of the same
            work (clock, host, threads) belongs here.
        label_range: (first, one past the last) label to be stored; None is all.
        shard_size: labels per shard, 1000 by default. Boundaries are its multiples.
        transforms_arrays: arrays of the feature transforms by name, or None.
        resume: continue a model that was started with the same arguments; a new or empty
            directory is started afresh. Without it nothing that exists is touched.
        names: of the classes and features, or None.
        calibration: of the labels of the range, or None; :func:`write_calibration` adds it later.
        at_once: whether all labels are written in one go, when they have been trained together. Left-overs
            of another such writer that was killed are then replaced.
        held: whether the caller has :func:`reserved` the directory.

    Raises:
        FileExistsError: the directory holds anything and ``resume`` is False, or holds files
            without a manifest.
        ModelMismatchError: ``resume`` with other meta data, range, shard size or transforms; the
            message names the first difference.
        ModelFormatError: ``resume`` with a damaged manifest.
        ModelError: another process is writing this model.
        TypeError, ValueError: meta data or arrays that cannot be stored, an impossible range or shard size.
        OSError: the directory cannot be made, read or written.

    Example:
        >>> import tempfile
        >>> meta = {"n_features": 4, "n_labels": 2, "dtype": "float32"}
        >>> with ShardWriter(tempfile.mkdtemp(), meta) as writer:
        ...     for label in writer.missing():
        ...         writer.add(label, [0, 3], np.float32([1, 2]), 0.5, status=1)
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        meta: dict,
        label_range: tuple[int, int] | None = None,
        shard_size: int = 1000,
        transforms_arrays: dict[str, np.ndarray] | None = None,
        resume: bool = False,
        *,
        names: Names | None = None,
        calibration: Calibration | None = None,
        at_once: bool = False,
        held: bool = False,
    ):
        meta = _manifest.check_meta(meta)
        first, last = (0, meta["n_labels"]) if label_range is None else _pair(label_range)
        if not 0 <= first < last <= meta["n_labels"]:
            raise ValueError(
                f"label_range: expected 0 <= first < last <= {meta['n_labels']}, found {(first, last)}"
            )
        shard_size = whole_number("shard_size", shard_size, 1, sys.maxsize)
        flag("resume", resume)
        self.directory = Path(directory)
        #: files beside the shards, which are written first
        self._beside: dict[str, bytes] = {}
        arrays = transforms_bytes(transforms_arrays, meta["n_features"])
        if arrays is not None:
            self._beside[TRANSFORMS] = arrays
        if names is not None:
            self._beside[NAMES] = names.encode()
            decode(self.directory / NAMES, self._beside[NAMES], meta["n_labels"], meta["n_features"])
        if calibration is not None:
            if len(calibration.slope) != last - first:
                found = len(calibration.slope)
                raise ValueError(f"calibration: expected {last - first} labels, found {found}")
            self._beside[CALIBRATION] = calibration.encode()
        records = {name: _manifest.record(name, content) for name, content in self._beside.items()}
        transforms, named, scaled = (records.get(name) for name in BESIDE)
        self._manifest = Manifest(meta, (first, last), shard_size, transforms, (), named, scaled)
        self._pending: dict[int, dict[int, LabelWeights]] = {}
        self._full: dict[int, dict[int, LabelWeights]] = {}
        self._stored: dict[int, ShardRecord] = {}
        #: number of shards that the manifest on disk names; when its last writing ended; how long that took
        self._named, self._named_at, self._naming = 0, -math.inf, 0.0
        #: writes the manifest at the end of the pause, where no shard has done so
        self._timer: threading.Timer | None = None
        self._at_once = flag("at_once", at_once)
        self._begun = False
        self._buffer_lock = threading.Lock()
        self._write_lock = OwnLock()  # the timer's thread is not there in a forked process
        check_place(self.directory)
        make_folder(self.directory)
        self._lock = DirectoryLock(self.directory, flag("held", held))
        try:
            if not resume:
                check_vacant(self.directory, resumable=not at_once, unfinished=at_once)
            if at_once:
                clear_unfinished(self.directory)
            self._start()
        except BaseException:
            self._lock.release()
            raise

    def _start(self) -> None:
        names = set(os.listdir(self.directory))
        if MANIFEST in names:
            self._continue(_manifest.read(self.directory / MANIFEST))
        else:
            own = {*BESIDE, RUN_FILE}
            foreign = sorted(n for n in names - own if not _manifest.is_temporary(n))
            if foreign:
                raise FileExistsError(
                    f"{self.directory}: expected a model to resume, found no {MANIFEST} but "
                    f"{', '.join(foreign[:3])} (nothing was changed)"
                )
            self._remove_temporary(names)
            for name in names & {*BESIDE}:
                (self.directory / name).unlink()
            for name, content in self._beside.items():
                self._write(name, content)
            self._write_manifest()
            self._begun = True

    def _continue(self, found: Manifest) -> None:
        difference = first_difference(found, self._manifest)
        if difference:
            raise ModelMismatchError(self.directory, *difference)
        self._remove_temporary(os.listdir(self.directory))
        scaled, content = found.calibration, self._beside.get(CALIBRATION)
        if content is not None:
            scaled = _manifest.calibration_record(content, scaled)
            self._beside[scaled.file] = content
        elif scaled is not None and not intact(self.directory, scaled):
            scaled = None  # it is made anew
        for file in (found.transforms, found.names, scaled):
            if file is not None and not intact(self.directory, file):
                self._write(file.file, self._beside[file.file])
        shards = tuple(shard for shard in found.shards if intact(self.directory, shard))
        self._manifest = dataclasses.replace(found, shards=(), calibration=scaled)
        self._stored = {shard.first_label // found.shard_size: shard for shard in shards}
        if (shards, scaled) != (found.shards, found.calibration):
            self._write_manifest()
        self._named = len(shards)

    def _remove_temporary(self, names) -> None:
        for name in names:
            if _manifest.is_temporary(name):
                (self.directory / name).unlink()

    def _whole(self) -> Manifest:
        """The manifest with all shards that are on disk."""
        with self._buffer_lock:
            stored = self._stored.copy()
        return dataclasses.replace(self._manifest, shards=tuple(stored[number] for number in sorted(stored)))

    def _write_manifest(self) -> None:
        begin, manifest = time.monotonic(), self._whole()
        self._write(MANIFEST, _manifest.render(manifest))
        self._named, self._named_at = len(manifest.shards), time.monotonic()
        self._naming = self._named_at - begin

    def _name_when_due(self) -> None:
        """Writes the manifest, now or at the end of the pause; the caller holds `_write_lock`."""
        # This takes at most a tenth of a run. Writing it per shard would take time quadratic in the shards.
        rest = self._named_at + _PAUSES * self._naming - time.monotonic()
        if rest <= 0 or self.complete:
            self._write_manifest()
        elif self._timer is None or not self._timer.is_alive():  # as in a forked process
            # the weak reference lets a writer that is no longer used be collected
            timer = threading.Timer(rest, _call, [weakref.WeakMethod(self._name_late)])
            timer.daemon = True
            timer.start()
            self._timer = timer

    def _name_late(self) -> None:
        """Writes the manifest at the end of a pause, unless it is written already."""
        with self._write_lock:
            self._timer = None
            if self._lock.held and self._named < len(self._stored):
                with contextlib.suppress(OSError):  # the next shard, or the end, tries again
                    self._name_when_due()

    def _write(self, name: str, content: bytes) -> None:
        with atomic_write(self.directory / name) as file:
            file.write(content)

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind, *_) -> None:
        # After an error no shard is written again: another error would hide the first one.
        if kind is None:
            self.close()
        else:
            self._leave(failed=True)

    @property
    def complete(self) -> bool:
        """Whether every label of the range is on disk."""
        return len(self._stored) == len(self._numbers())

    def _numbers(self) -> range:
        """The numbers of all shards of the range."""
        size, (first, last) = self._manifest.shard_size, self._manifest.label_range
        return range(first // size, (last - 1) // size + 1)

    def _check_open(self) -> None:
        if not self._lock.held:
            raise ValueError(f"{self.directory}: expected an open writer, found it closed")

    @property
    def shard_size(self) -> int:
        """Labels per shard."""
        return self._manifest.shard_size

    def missing(self) -> np.ndarray:
        """The labels that are not on disk, int64, ascending; those only added so far are among them."""
        gaps = self._whole().missing()
        return np.concatenate([np.arange(*gap) for gap in gaps]) if gaps else np.empty(0, np.int64)

    def add(
        self,
        label: int,
        indices,
        values,
        bias: float = 0.0,
        status: int = 1,
        newton_steps: int = 0,
        cg_steps: int = 0,
    ) -> None:
        """Take the weights of a label; the last label of a shard writes the shard.

        Args:
            label: its number, within the range and not stored yet.
            indices: features with a weight, integers, strictly ascending.
            values: their weights, of the model's dtype; zeros are dropped.
            bias: its intercept.
            status: how training ended, a number of `xmcjax.solvers.Status`.
            newton_steps, cg_steps: how many steps it took.

        Raises:
            ValueError: a label out of the range or given twice, indices out of range or not
                ascending, weights that are not finite.
            TypeError: weights of another dtype.
            OSError: the shard cannot be written. What is saved stays valid, and the next `add`
                that completes a shard, or `close`, tries this one again.
        """
        label = whole_number("label", label, 0)
        first, last = self._manifest.label_range
        if not first <= label < last:
            raise ValueError(f"label {label}: expected a label from {first} to {last - 1}")
        d, dtype = self._manifest.n_features, self._manifest.dtype
        numbers = bias, status, newton_steps, cg_steps
        entry = checked_weights(label, indices, values, *numbers, n_features=d, dtype=dtype)
        number = label // self._manifest.shard_size
        first, last = self._manifest.shard_bounds(number)
        with self._buffer_lock:
            self._check_open()
            slots = self._pending.setdefault(number, {})
            if label in slots or number in self._full or number in self._stored:
                raise ValueError(f"label {label}: expected a label not stored yet, found it given twice")
            slots[label] = entry
            if len(slots) < last - first:
                return
            self._full[number] = self._pending.pop(number)
        self._write_full()

    def _write_full(self) -> None:
        with self._write_lock:
            while True:
                with self._buffer_lock:
                    number = min(self._full, default=None)
                if number is None:
                    return
                self._check_open()
                first, last = self._manifest.shard_bounds(number)
                labels = [self._full[number][label] for label in range(first, last)]
                self._write_shard(number, of_labels(labels, self._manifest.dtype))
                with self._buffer_lock:
                    del self._full[number]

    def _write_shard(self, number: int, content: Content) -> None:
        name = _manifest.shard_name(number)
        with atomic_write(self.directory / name) as file:
            record = _manifest.written(file, name, content.encoded())
        self._enter(record, number, content.nonzeros)

    def missing_shards(self) -> list[tuple[int, int]]:
        """The labels, first and one past the last, of each shard that is not on disk."""
        absent = (number for number in self._numbers() if number not in self._stored)
        return [self._manifest.shard_bounds(number) for number in absent]

    def add_rows(self, labels: np.ndarray, W, **numbers: np.ndarray) -> None:
        """Take the weights of all labels that are not on disk from the rows of a matrix.

        Args:
            labels: of the rows, whole numbers, ascending; other labels have no positives.
            W: their weights, of the model's dtype, sparse or dense; zeros are dropped.
            numbers: ``intercept``, ``status``, ``newton_steps`` and ``cg_steps`` of the rows, as in `add`.

        Raises:
            ValueError, TypeError, OSError: as `add`.
        """
        labels, W = self._checked_rows(labels, W, self._manifest.label_range, numbers)
        for first, last in self.missing_shards():
            rows = slice(*np.searchsorted(labels, (first, last)).tolist())
            part = {name: array[rows] for name, array in numbers.items()}
            self._store_rows(first, labels[rows], _sparse.rows_of(W, rows), part)

    def add_shard(self, first: int, labels: np.ndarray, W, **numbers: np.ndarray) -> None:
        """As `add_rows`, for the labels of one shard, which begins with `first` and is not on disk."""
        bounds = self._manifest.shard_bounds(first // self._manifest.shard_size)
        self._store_rows(first, *self._checked_rows(labels, W, bounds, numbers), numbers)

    def _checked_rows(self, labels, W, bounds: tuple[int, int], numbers: dict[str, np.ndarray]):
        d, dtype = self._manifest.n_features, self._manifest.dtype
        return checked_rows(labels, W, numbers, bounds, n_features=d, dtype=dtype)

    def _store_rows(self, first: int, labels: np.ndarray, W, numbers: dict[str, np.ndarray]) -> None:
        number = first // self._manifest.shard_size
        first, last = self._manifest.shard_bounds(number)
        content = of_rows(first, last, labels, W, numbers)
        with self._write_lock:
            self._check_open()
            with self._buffer_lock:
                if any(number in known for known in (self._pending, self._full, self._stored)):
                    which = f"labels {first} to {last - 1}"
                    raise ValueError(f"{which}: expected labels not stored yet, found some given twice")
            self._write_shard(number, content)

    def _enter(self, file: FileRecord, number: int, nonzeros: int) -> None:
        """Takes a shard that is on disk, which the manifest names now or later."""
        first, last = self._manifest.shard_bounds(number)
        shard = ShardRecord(
            **dataclasses.asdict(file), first_label=first, n_labels=last - first, nonzeros=nonzeros
        )
        with self._buffer_lock:
            self._stored[number] = shard
        try:
            # where all labels are written in one go, the manifest names all shards or none
            if self.complete or not self._at_once:
                self._name_when_due()
        except BaseException:
            # The manifest on disk may not name the shard: it counts as not written.
            with self._buffer_lock:
                del self._stored[number]
            raise

    def adopt(self, shard: Outside) -> bool:
        """Takes a shard that :func:`write_outside` has written into the directory, in another process.

        Returns:
            False where its labels are stored already; the file is then removed.

        Raises:
            ModelFormatError: the file is not the one that was written.
            ValueError: some labels of the shard were added here, or the writer is closed.
            OSError: it cannot be read, or renamed.
        """
        path = self.directory / shard.file.file
        number = shard.first_label // self._manifest.shard_size
        with self._write_lock:
            self._check_open()
            with self._buffer_lock:
                if number in self._pending or number in self._full:
                    raise ValueError(f"{path}: expected none of its labels here, found some added")
                stored = number in self._stored
            if stored:
                path.unlink(missing_ok=True)
                return False
            _manifest.check_hash(self.directory, shard.file)
            name = _manifest.shard_name(number)
            os.replace(path, self.directory / name)
            self._enter(dataclasses.replace(shard.file, file=name), number, shard.nonzeros)
            return True

    def withdraw(self) -> None:
        """Closes the writer; removes the model if this writer began it and has stored no shard of it.

        Raises:
            OSError: a file cannot be removed.
        """
        try:
            if self._begun and not self._stored:
                for name in (MANIFEST, *self._beside):
                    (self.directory / name).unlink()
                with contextlib.suppress(OSError):  # the directory is not empty
                    self.directory.rmdir()
        finally:
            self._leave(failed=True)

    def _leave(self, failed: bool) -> None:
        """Releases the directory, once; the manifest names what is on disk, where it can be written.

        Args:
            failed: whether an error is on its way to the caller, which no other error must hide.
        """
        timer = self._timer
        if timer is not None:
            timer.cancel()
            timer.join()
        with self._write_lock:  # so that nothing is written after the release
            try:
                if self._lock.held and self._named < len(self._stored) and not (failed and self._at_once):
                    with contextlib.suppress(*([OSError] if failed else [])):
                        self._write_manifest()
                with contextlib.suppress(OSError):  # a file that is not removed harms nobody
                    if self._lock.held:
                        remove_unadopted(self.directory, self._stored)
            finally:
                self._lock.release()

    def close(self) -> None:
        """Write what is complete and release the directory. Incomplete shards are dropped: their
        labels stay `missing`, and a run with ``resume=True`` trains them again. A second call does nothing.

        Raises:
            OSError: a complete shard cannot be written.
        """
        failed = True
        try:
            if self._lock.held:
                self._write_full()
            failed = False
        finally:
            self._leave(failed)


def _call(method: weakref.WeakMethod) -> None:
    """Calls the method, if its object still exists."""
    found = method()
    if found is not None:
        found()


def _pair(label_range) -> tuple[int, int]:
    """The first label and the one past the last."""
    bounds = _sparse.array(label_range, "label_range")
    if bounds.shape != (2,) or bounds.dtype.kind not in "iu":
        raise TypeError(f"label_range: expected a pair of whole numbers, found {label_range!r}")
    return int(bounds[0]), int(bounds[1])
