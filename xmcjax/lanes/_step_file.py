"""Statistics of a training: a file with the numbers of every Newton step of every label."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from xmcjax._pyarrow import pyarrow
from xmcjax.data import atomic_write
from xmcjax.lanes._lanes import StepRecord
from xmcjax.solvers import newton_cg

#: Columns of the file and their types.
COLUMNS = {
    "label": "int64",
    "step": "int32",
    "objective": "float64",
    "gradient_norm": "float64",
    "active": "int64",
    "cg_steps": "int32",
    "multiplier": "float64",
    "seconds": "float64",
    "status": "int8",
}
# Rows of a group of a Parquet file.
_TOGETHER = 100_000
# Bound on numbers of steps, which are int32.
_BEYOND = 2**31


class StepFile:
    """A file that gets a row for each Newton step of each label, for ``observe`` of ``train_one_vs_all``.

    It is Parquet where the name ends in ``.parquet``, which needs pyarrow (the extra ``arrow``), and JSON
    lines otherwise. The columns, in this order:

    label, step: which step of which label; step 0 takes the starting weights.
    objective, gradient_norm: f and ‖∇f‖ after the step.
    active: rows with a slope or a curvature there.
    cg_steps: steps of CG made there, for the direction of the next step.
    multiplier: of the direction, found by the line search (Schultheis and Babbar 2022, figure 3).
    seconds: of the step, in equal shares among the labels that made it together.
    status: of :class:`xmcjax.solvers.Status` after the step; 0 while the label goes on.

    Numbers that are not finite are null in JSON. The rows come in the order in which the steps were made.
    They go to a temporary file, which takes the place of the old one when the block ends. Where it ends with
    an error, the rows until then are kept, if there are any; after a crash the old file is there, and the
    next writer removes the temporary one. A second writer at the same time is refused.

    Args:
        path: of the file.

    Raises:
        ImportError: Parquet without pyarrow.
        FileExistsError: another one writes the file, where the block begins.
        OSError: a file that cannot be written.

    Examples:
        >>> import json, tempfile
        >>> from pathlib import Path
        >>> import numpy as np, scipy.sparse as sp
        >>> from xmcjax.lanes import OneVsAll, StepFile, train_one_vs_all
        >>> X, Y = sp.eye_array(6, format="csr", dtype=np.float32), sp.eye_array(6, format="csr")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with StepFile(f"{folder}/steps.jsonl") as steps:
        ...         _ = train_one_vs_all(X, Y, OneVsAll(), lambda result: None, observe=steps)
        ...     rows = [json.loads(line) for line in Path(folder, "steps.jsonl").read_text().splitlines()]
        >>> sorted({row["label"] for row in rows}), rows[0]["step"]
        ([0, 1, 2, 3, 4, 5], 0)
    """

    def __init__(self, path: str | os.PathLike[str]):
        self._path = Path(path)
        self._pyarrow = pyarrow() if self._path.suffix == ".parquet" else None
        self._exit = contextlib.ExitStack()
        self._waiting: list[dict[str, np.ndarray]] = []
        self._rows = 0  # of those in _waiting
        self._any = self._broken = False
        self._cg_steps: dict[int, int] = {}  # made so far, of labels under way

    def __enter__(self) -> Self:
        self._file: IO[bytes] = self._exit.enter_context(atomic_write(self._path, alone=True))
        if self._pyarrow is not None:
            schema = self._pyarrow.schema([(name, kind) for name, kind in _arrow_types().items()])
            self._writer = self._exit.enter_context(self._pyarrow.parquet.ParquetWriter(self._file, schema))
        return self

    def __exit__(self, kind, error, trace) -> None:
        if error is not None and (self._broken or not self._any):
            self._exit.__exit__(kind, error, trace)
            return
        with self._exit:
            self._write()

    def __call__(self, record: StepRecord) -> None:
        """Takes the numbers of one step of some labels."""
        if not len(record.labels):
            return
        labels = record.labels.tolist()
        # A lane may be given another label, which counts from 0 again, as does one that begins anew.
        steps = record.newton_steps.tolist()
        before = [
            self._cg_steps.get(label, 0) if step else 0 for label, step in zip(labels, steps, strict=True)
        ]
        going_on = newton_cg.moving(record.status).tolist()
        for label, made, goes_on in zip(labels, record.cg_steps.tolist(), going_on, strict=True):
            if goes_on:
                self._cg_steps[label] = made
            else:
                self._cg_steps.pop(label, None)
        self._put(
            {
                "label": record.labels,
                "step": record.newton_steps,
                "objective": record.value,
                "gradient_norm": record.gradient_norm,
                "active": record.active,
                "cg_steps": record.cg_steps - np.array(before),
                "multiplier": record.multiplier,
                "seconds": np.full(len(labels), record.seconds / len(labels)),
                "status": record.status,
            }
        )

    def records(self) -> Iterator[StepRecord]:
        """The steps in the file that is there, for :mod:`xmcjax.plots`.

        A record has many rows of the file, in its order, and a label several times. Its ``seconds`` are those
        of all its rows, and its ``thread_seconds``, which the file does not have, are NaN.

        Raises:
            ValueError: a file without these columns.
            OSError: it cannot be read.
        """
        made: dict[int, int] = {}  # CG steps of labels
        for rows in self._pieces():
            cg_steps = rows["cg_steps"].copy()
            for place, (label, step) in enumerate(zip(rows["label"].tolist(), rows["step"], strict=True)):
                made[label] = int(cg_steps[place]) + (made.get(label, 0) if step else 0)
                if not -_BEYOND <= made[label] < _BEYOND:
                    raise self._wrong(f"{made[label]:,} CG steps of label {label} together")
                cg_steps[place] = made[label]
            yield StepRecord(
                labels=rows["label"],
                newton_steps=rows["step"],
                cg_steps=cg_steps,
                active=rows["active"],
                multiplier=rows["multiplier"],
                value=rows["objective"],
                gradient_norm=rows["gradient_norm"],
                status=rows["status"],
                seconds=sum(rows["seconds"].tolist()),
                thread_seconds=math.nan,
            )

    def take_over(self, without: np.ndarray) -> np.ndarray:
        """Begins with the rows of the existing file, except those of some labels; no file counts as empty.

        Args:
            without: labels that are trained again.

        Returns:
            The labels of these rows.

        Raises:
            ValueError: a file without these columns.
        """
        found: list[np.ndarray] = [np.zeros(0, COLUMNS["label"])]
        for rows in self._pieces() if self._path.is_file() else ():
            stays = ~np.isin(rows["label"], without)
            if stays.any():
                self._put({name: column[stays] for name, column in rows.items()})
                found.append(np.unique(rows["label"][stays]))
        return np.unique(np.concatenate(found))

    def _put(self, rows: dict[str, np.ndarray]) -> None:
        self._waiting.append({name: np.asarray(rows[name]).astype(kind) for name, kind in COLUMNS.items()})
        self._any, self._rows = True, self._rows + len(rows["label"])
        if self._rows >= _TOGETHER:
            self._write()

    def _write(self) -> None:
        if not self._waiting:
            return
        rows = {name: np.concatenate([some[name] for some in self._waiting]) for name in COLUMNS}
        self._waiting, self._rows = [], 0
        try:
            if self._pyarrow is not None:
                self._writer.write_table(self._pyarrow.table(rows, schema=self._writer.schema))
                return
            for values in zip(*(column.tolist() for column in rows.values()), strict=True):
                row = {n: None if _is_no_number(v) else v for n, v in zip(rows, values, strict=True)}
                self._file.write(json.dumps(row).encode() + b"\n")
        except BaseException:
            self._broken = True
            raise

    def _pieces(self) -> Iterator[dict[str, np.ndarray]]:
        return self._json_rows() if self._pyarrow is None else self._parquet_rows()

    def _parquet_rows(self) -> Iterator[dict[str, np.ndarray]]:
        assert self._pyarrow is not None
        types = self._pyarrow.types
        try:
            # opened here, so that an error of the system names the file
            with open(self._path, "rb") as raw, self._pyarrow.parquet.ParquetFile(raw) as file:
                schema = file.schema_arrow
                if schema.names != list(COLUMNS):
                    raise self._wrong(f"the columns {', '.join(schema.names)}")
                for name, kind in COLUMNS.items():
                    found = schema.field(name).type
                    if not (types.is_integer(found) or ("float" in kind and types.is_floating(found))):
                        raise self._wrong(f"a column {name} of {found}")
                for batch in file.iter_batches():
                    yield {name: self._column(batch.column(name), name) for name in COLUMNS}
        except (self._pyarrow.ArrowException, OSError, UnicodeError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            why = " ".join(str(error).split())
            raise self._wrong(f"no Parquet file, or a damaged one ({why})") from error

    def _column(self, column: Any, name: str) -> np.ndarray:
        """A column of a Parquet file; numbers that are not finite may be null."""
        if "int" in COLUMNS[name] and column.null_count:
            raise self._wrong(f"nulls in the column {name}")
        return column.cast(_arrow_types()[name]).to_numpy(zero_copy_only=False)

    def _json_rows(self) -> Iterator[dict[str, np.ndarray]]:
        rows: list[dict[str, Any]] = []
        with open(self._path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    row = json.loads(line)
                    rows.append({name: _number(row[name], kind) for name, kind in COLUMNS.items()})
                except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
                    raise self._wrong(f"line {number} of another form") from error
                if len(rows) >= _TOGETHER:
                    yield _columns(rows)
                    rows = []
        yield _columns(rows)

    def _wrong(self, found: str) -> ValueError:
        return ValueError(
            f"{self._path}: expected statistics of training, {', '.join(COLUMNS)}, found {found}"
        )


def _is_no_number(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _number(value: Any, kind: str) -> int | float:
    """What JSON has for a number of a column; OverflowError or TypeError where it is none."""
    if isinstance(value, bool) or not isinstance(value, int if "int" in kind else int | float | None):
        raise TypeError
    if value is None:
        return math.nan
    return int(np.array(value, kind)) if "int" in kind else float(value)


def _columns(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    return {name: np.array([row[name] for row in rows], kind) for name, kind in COLUMNS.items()}


def _arrow_types() -> dict[str, str]:
    return {name: kind.replace("float64", "double") for name, kind in COLUMNS.items()}
