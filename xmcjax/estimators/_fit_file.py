"""Statistics of a joint fit: a file with how far it was, each time that its solver looked."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from pathlib import Path
from typing import IO, Any, Self

from xmcjax._pyarrow import pyarrow
from xmcjax.data import atomic_write

_NUMBERS = ("gap", "objective", "gradient_norm", "residual")
#: Columns of the file and their types.
COLUMNS = {
    **{"run": "int32", "fit": "int32", "passes": "float64", "method": "string"},
    **dict.fromkeys((*_NUMBERS, "seconds"), "float64"),
}


class FitFile:
    """A file that gets a row each time that the solver of a joint fit looks how far it is.

    It is Parquet where the name ends in ``.parquet``, which needs pyarrow (the extra ``arrow``), and JSON
    lines otherwise. What a system does not know stays null. The columns, in this order:

    - run: the commands that wrote to the file, from 0.
    - fit: 0 is the fit of all rows, those from 1 are the fits of the folds of a calibration.
    - passes: made so far: epochs of a dual solver, outer iterations of multinomial regression, Newton and CG
      steps of kernel regression.
    - method: the method that made them, where a solver has several.
    - gap: relative duality gap, as the method works it out.
    - objective, gradient_norm: of multinomial and kernel regression, and ‖∇G‖ of the former.
    - residual: of the optimality condition of kernel regression.
    - seconds: since the fit began.

    The rows go to a temporary file, which takes the place of the old one when the block ends. Where it ends
    with an error, the rows until then are kept, if there are any. A second writer meanwhile is refused.

    Args:
        path: of the file.
        resume: whether the rows of a file that is there come first.

    Raises:
        ImportError: Parquet without pyarrow.
        FileExistsError: another one writes the file, where the block begins.
        OSError: a file that cannot be read or written.
        ValueError: a file that is there, of something else, where the block begins.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from xmcjax.estimators import Checkpoint, FitFile, MulticlassSVC, fit_with_state
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     state = Checkpoint(Path(folder, "state"), {})
        ...     going_on = state.begin(resume=False)
        ...     with FitFile(f"{folder}/fit.jsonl") as statistics:
        ...         fit_with_state(MulticlassSVC(), np.eye(3), np.arange(3), state, statistics)
        ...     rows = FitFile.rows(f"{folder}/fit.jsonl")
        >>> rows[-1]["fit"], rows[-1]["gap"] <= 1e-3
        (0, True)
    """

    def __init__(self, path: str | os.PathLike[str], resume: bool = False):
        self._path = Path(path)
        self._pyarrow = pyarrow() if self._path.suffix == ".parquet" else None
        self._resume = resume
        self._fit, self._begin = -1, time.perf_counter()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as opened:
            self._file: IO[bytes] = opened.enter_context(atomic_write(self._path, alone=True))
            # Read by the only writer: one that ended just before has added its rows.
            self._rows = self.rows(self._path) if self._resume and self._path.is_file() else []
            self._before = len(self._rows)
            self._run = 1 + max((row["run"] for row in self._rows), default=-1)
            self._exit = opened.pop_all()
        return self

    def __exit__(self, kind, error, trace) -> None:
        if error is not None and len(self._rows) == self._before:
            self._exit.__exit__(kind, error, trace)
            return
        with self._exit:
            self._write()

    def begin(self) -> None:
        """Another fit begins."""
        self._fit, self._begin = self._fit + 1, time.perf_counter()

    def __call__(self, passes: float, *, method: str | None = None, **numbers: float) -> None:
        """Takes how far the fit is."""
        row: dict[str, Any] = {"run": self._run, "fit": self._fit, "passes": float(passes), "method": method}
        row |= {name: _finite(numbers.get(name)) for name in _NUMBERS}
        self._rows.append(row | {"seconds": time.perf_counter() - self._begin})

    def _write(self) -> None:
        if self._pyarrow is None:
            self._file.writelines(json.dumps(row).encode() + b"\n" for row in self._rows)
            return
        names = {"float64": "double"}
        schema = self._pyarrow.schema([(name, names.get(kind, kind)) for name, kind in COLUMNS.items()])
        self._pyarrow.parquet.write_table(
            self._pyarrow.Table.from_pylist(self._rows, schema=schema), self._file
        )

    @staticmethod
    def rows(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
        """The rows of a file, by column; None for what is not known.

        Raises:
            ImportError: Parquet without pyarrow.
            ValueError: a file without these columns.
            OSError: it cannot be read.
        """
        path = Path(path)
        rows = _parquet_rows(path) if path.suffix == ".parquet" else _json_rows(path)
        for number, row in enumerate(rows, 1):
            if not (isinstance(row, dict) and row.keys() == COLUMNS.keys() and _of_types(row)):
                raise _wrong(path, f"row {number} of another form")
        return rows


def _finite(number: float | None) -> float | None:
    return float(number) if number is not None and math.isfinite(number) else None


def _of_types(row: dict[str, Any]) -> bool:
    whole = all(type(row[name]) is int for name in ("run", "fit"))
    known = all(type(row[name]) in (int, float) for name in ("passes", "seconds"))
    numbers = all(row[name] is None or type(row[name]) in (int, float) for name in _NUMBERS)
    return whole and known and numbers and (row["method"] is None or isinstance(row["method"], str))


def _json_rows(path: Path) -> list[Any]:
    rows = []
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                rows.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise _wrong(path, f"line {number} of another form") from error
    return rows


def _parquet_rows(path: Path) -> list[Any]:
    arrow = pyarrow()
    try:
        # opened here, so that an error of the system names the file
        with open(path, "rb") as file:
            return arrow.parquet.read_table(file).to_pylist()
    except (arrow.ArrowException, OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise _wrong(path, f"no Parquet file, or a damaged one ({' '.join(str(error).split())})") from error


def _wrong(path: Path, found: str) -> ValueError:
    return ValueError(f"{path}: expected statistics of a joint fit, {', '.join(COLUMNS)}, found {found}")
