"""The state of a fit on disk, from which a run that was interrupted goes on."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax.data import (
    DataFormatError,
    atomic_write,
    load_npy,
    load_scipy_npz,
    make_folder,
    save_npy,
    save_scipy_npz,
)
from xmcjax.estimators._fit_file import FitFile
from xmcjax.models import ModelFormatError, ModelMismatchError, check_regular

#: EVERY: fewest seconds between two states that are written. SHARE: the largest share of time for writing.
EVERY, SHARE = 20.0, 0.05
_RUN, _SPARSE, _DENSE, _OWN = "run.json", "dual.npz", "dual.npy", "states"
# Files that a run was writing when it was killed.
_UNFINISHED = re.compile(
    rf"\.({re.escape(_RUN)}|{re.escape(_SPARSE)}|{re.escape(_DENSE)})\.[0-9a-f]{{16}}\.tmp"
)
# Most bytes of the file that says what a run is made of: a few hundred are written.
_LONGEST = 1 << 20


class OutOfTimeError(Exception):
    """The time of a run was over; what it has reached is on disk.

    Example:
        >>> import tempfile
        >>> from xmcjax.estimators import Checkpoint, MulticlassSVC, fit_with_state
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     over = Checkpoint(Path(folder, "state"), {"C": 1.0}, deadline=time.monotonic())
        ...     _ = over.begin(resume=False)
        ...     try:
        ...         fit_with_state(MulticlassSVC(), np.eye(3, dtype=np.float32), np.arange(3), over)
        ...     except OutOfTimeError:
        ...         print("the state is kept:", has_state(over.folder))
        the state is kept: True
    """


class Checkpoint:
    """A folder with what a run is made of and the dual variables that it has reached.

    Each file is written whole or not at all. Dual variables that are read are brought into the dual set by
    the solver, and its solution is certified anew: a state that is old, or of the wrong run, only costs time.
    States of another run are refused all the same.

    Args:
        folder: made when there is something to write.
        mark: what the run is made of, JSON by name. The first name is the same in all runs.
        deadline: of ``time.monotonic``, after which the run ends; None for none.

    Attributes:
        statistics: what gets the progress of the run, or None.

    Example:
        >>> import tempfile
        >>> from xmcjax.estimators import Checkpoint
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     state = Checkpoint(Path(folder, "state"), {"C": 1.0})  # nothing is read or written yet
        ...     state.folder.exists(), state.begin(resume=True), state.folder.exists()
        (False, False, True)
    """

    statistics: FitFile | None = None

    def __init__(self, folder: Path, mark: Mapping[str, Any], deadline: float | None = None):
        self.deadline = deadline
        self.folder, self._mark = folder, json.loads(json.dumps(dict(mark), default=str))
        self._due, self._begun = time.monotonic() + EVERY, False

    def check(self, resume: bool) -> None:
        """Checks that the folder may be used; nothing is written. :meth:`begin` checks it too.

        Args:
            resume: whether there may be a state.

        Raises:
            FileExistsError: a state is there, and nobody asked for it.
            ModelFormatError: the folder is something else, or holds something else.
            OSError: it cannot be read.
        """
        if not resume and has_state(self.folder):
            raise FileExistsError(
                f"{self.folder}: expected no state of a run that was interrupted, found one: --resume goes "
                "on with it; without the folder the run begins anew"
            )
        expected = "a folder for the state of a run"
        if os.path.lexists(self.folder) and not self.folder.is_dir():
            raise ModelFormatError(self.folder, expected, "something else")
        if not self.folder.is_dir() or has_state(self.folder):
            return
        for path in sorted(self.folder.iterdir()):
            if not (_UNFINISHED.fullmatch(path.name) or (path.name == _RUN and self._is_mark(path))):
                raise ModelFormatError(self.folder, expected, f"one that holds something else: {path.name}")

    def check_run(self, resume: bool) -> None:
        """:meth:`check`, and a check that a state in the folder is of this run, as far as its mark says.

        Raises:
            ModelMismatchError: it is of another run.
            FileExistsError, ModelFormatError, OSError: as :meth:`check`.
        """
        self.check(resume)
        if has_state(self.folder):
            self._compare(_read_mark(self.folder / _RUN))

    def begin(self, resume: bool) -> bool:
        """Prepares the folder; returns whether there is a run to go on with.

        Args:
            resume: whether there may be a state.

        Raises:
            FileExistsError: a state is there, and nobody asked for it.
            ModelMismatchError: it is of another run.
            ModelFormatError: it is damaged, or something else than a folder; the folder holds something else.
            OSError: it cannot be read or written.
        """
        self.check(resume)
        there = has_state(self.folder)
        path = self.folder / _RUN
        if there:
            self._compare(_read_mark(path))
        else:
            make_folder(self.folder)
            with atomic_write(path) as file:
                file.write(json.dumps(self._mark, indent=1).encode() + b"\n")
        self._begun = True
        return there

    def _is_mark(self, path: Path) -> bool:
        """Whether a file is the mark of a run, this one or another."""
        try:
            found = _read_mark(path)
        except ModelFormatError:
            return False
        return list(found)[:1] == list(self._mark)[:1]

    def _compare(self, found: dict[str, Any]) -> None:
        for key in dict.fromkeys((*self._mark, *found)):  # in the order of the mark
            if key == "--dtype" and key not in found:
                continue  # the mark of an earlier version, whose hash of the data tells the dtype too
            if self._mark.get(key) != found.get(key):
                raise ModelMismatchError(self.folder, key, str(found.get(key)), str(self._mark.get(key)))

    def load(self, shape: tuple[int, int] | None = None) -> Any:
        """The dual variables, sparse or dense, or None where there are none yet.

        Args:
            shape: that they are to have; None for any.

        Raises:
            DataFormatError: a damaged file, numbers that are not finite, another shape.
            OSError: it cannot be read.
        """
        for name, read in ((_SPARSE, load_scipy_npz), (_DENSE, load_npy)):
            path = self.folder / name
            if path.exists():
                try:
                    alpha = read(path, np.float64)
                    if shape is not None and alpha.shape != shape:
                        expected, found = f"dual variables {list(shape)}", f"an array {list(alpha.shape)}"
                        raise DataFormatError(path, None, None, expected, found)
                except DataFormatError as error:
                    found = f"{error.found}; without it the run begins anew"
                    raise DataFormatError(path, None, None, error.expected, found) from error
                return alpha
        return None

    def offer(self, state: Callable[[], Any]) -> None:
        """Writes the dual variables, where it is time for it.

        Raises:
            OSError: they cannot be written.
            OutOfTimeError: the time of the run is over; they are written before.
        """
        begin, over = time.monotonic(), self._over()
        if begin < self._due and not over:
            return
        alpha = state()
        if sp.issparse(alpha):
            save_scipy_npz(self.folder / _SPARSE, alpha, compressed=False)
        else:
            save_npy(self.folder / _DENSE, alpha)
        now = time.monotonic()
        self._due = now + max(EVERY, (now - begin) / SHARE)
        if over:
            raise OutOfTimeError

    def _over(self) -> bool:
        return self.deadline is not None and time.monotonic() >= self.deadline

    @property
    def every(self) -> float:
        """Seconds between the states of a solver that writes its own; the first comes by the deadline."""
        left = EVERY if self.deadline is None else self.deadline - time.monotonic()
        return min(EVERY, max(left, 1e-3))

    def check_time(self) -> None:
        """Ends the run of a solver that writes its own states, when its time is over.

        Raises:
            OutOfTimeError: the time of the run is over, and there is a state.
        """
        if self._over() and self.states.is_dir() and any(self.states.iterdir()):
            raise OutOfTimeError

    def of_a_fold(self) -> Fold | None:
        """What the trainings of folds have of the run: its deadline and its statistics; None without both."""
        nothing = self.deadline is None and self.statistics is None
        return None if nothing else Fold(self.deadline, self.statistics)

    def remove(self) -> None:
        """Removes what the run wrote, when the model is complete, and the folder if it is then empty."""
        if not self._begun:
            return
        unfinished = [path for path in self.folder.glob(".*") if _UNFINISHED.fullmatch(path.name)]
        for path in [*_states(self.folder), self.folder / _RUN, *unfinished]:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody else's file is in it
            self.folder.rmdir()

    @property
    def states(self) -> Path:
        """A folder for a solver that writes states of its own."""
        return self.folder / _OWN


class Fold:
    """In place of a checkpoint: nothing is kept, and the time is that of the run.

    Args:
        deadline: of ``time.monotonic``; None for none.
        statistics: of the run, or None.
    """

    def __init__(self, deadline: float | None, statistics: FitFile | None = None):
        self._deadline, self.statistics = deadline, statistics

    def load(self, shape: tuple[int, int] | None = None) -> None:
        """There is nothing to go on from."""

    def offer(self, _: Callable[[], Any] | None = None) -> None:
        """Keeps nothing.

        Raises:
            OutOfTimeError: the time of the run is over.
        """
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise OutOfTimeError


def _read_mark(path: Path) -> dict[str, Any]:
    """What a run is made of.

    Raises:
        ModelFormatError: the file is not there, is damaged, or holds something else.
        OSError: it cannot be read.
    """
    if not path.exists():
        raise ModelFormatError(path, "what the run is made of", "no such file")
    check_regular(path)
    size = path.stat().st_size
    if size > _LONGEST:
        expected = f"what a run is made of in {_LONGEST:,} bytes at most"
        raise ModelFormatError(path, expected, f"{size:,} bytes")
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ModelFormatError(path, "what a run is made of in JSON", f"a damaged file ({error})") from error
    if not isinstance(found, dict):
        raise ModelFormatError(path, "what a run is made of", "something else")
    return found


def has_state(folder: Path) -> bool:
    """Whether there is a state that a run can go on from."""
    return any(path.exists() for path in _states(folder))


def _states(folder: Path) -> list[Path]:
    return [folder / name for name in (_SPARSE, _DENSE, _OWN)]


def fit_with_state(
    classifier: Any, X: Any, y: np.ndarray, checkpoint: Checkpoint, statistics: FitFile | None = None
) -> None:
    """Trains with a bar on a terminal, keeps the state on disk, and goes on from one that is there.

    Args:
        classifier: of a system in which all classes are one problem.
        X, y: of ``fit``.
        checkpoint: of this run.
        statistics: gets the progress of the fit, and of those of a calibration; or None.

    Raises:
        OutOfTimeError: the deadline of the checkpoint is over.
        ValueError, TypeError: of ``fit``; a state that is damaged.
        OSError: the state cannot be read or written.

    Example:
        >>> import tempfile
        >>> from xmcjax.estimators import Checkpoint, MulticlassSVC, fit_with_state
        >>> classifier = MulticlassSVC()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     state = Checkpoint(Path(folder, "state"), {"C": 1.0})
        ...     going_on = state.begin(resume=True)
        ...     fit_with_state(classifier, np.eye(3, dtype=np.float32), np.arange(3), state)
        ...     going_on, state.folder.exists()  # so short a run had nothing to keep
        (False, False)
        >>> classifier.predict(np.eye(3)).tolist()
        [0, 1, 2]
    """
    classifier._checkpoint, checkpoint.statistics = checkpoint, statistics
    try:
        classifier.fit(X, y)
    finally:
        vars(classifier).pop("_checkpoint", None)
        if not has_state(checkpoint.folder):
            checkpoint.remove()
