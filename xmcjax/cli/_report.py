"""What commands print: the result on stdout, warnings on stderr."""

from __future__ import annotations

import contextlib
import contextvars
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from xmcjax._words import counted
from xmcjax.metrics import RANKING_METRICS

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from xmcjax._topology import Share
    from xmcjax.cli._training import Outcome
    from xmcjax.data import Dataset
    from xmcjax.models import LinearModel


class Summary:
    """The object that ``--json`` prints in place of the lines of a command.

    Attributes:
        fields: by name; each is a number, a text, or a dict of such values.
        stream: where the object is printed; None for stdout.
    """

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.stream: TextIO | None = None


# The summary of the running command, if it was given --json.
_summary: contextvars.ContextVar[Summary | None] = contextvars.ContextVar("summary", default=None)


@contextlib.contextmanager
def collected() -> Iterator[Summary]:
    """A context in which what commands print is collected instead; warnings are collected and printed."""
    summary = Summary()
    token = _summary.set(summary)
    try:
        yield summary
    finally:
        _summary.reset(token)


def warn(text: str) -> None:
    """One line on stderr."""
    print(f"xmcjax: warning: {text}", file=sys.stderr)
    if (summary := _summary.get()) is not None:
        summary.fields.setdefault("warnings", []).append(text)


def print_field(name: str, text: str, stream: TextIO | None = None, /, **values: Any) -> None:
    """One line of a summary.

    Args:
        name: of the field.
        text: what people read.
        stream: where to print, if not to stdout.
        values: what programs read in place of the text.
    """
    summary = _summary.get()
    if summary is None:
        print(printable(f"{name:<11} {text}"), file=stream)
        return
    summary.stream = stream
    if values:
        summary.fields[name] = summary.fields.get(name, {}) | values
    else:
        summary.fields[name] = text


def print_values(name: str, values: Any) -> None:
    """Adds a field that only programs read."""
    if (summary := _summary.get()) is not None:
        summary.fields[name] = values


def print_lines(lines: Iterable[str]) -> None:
    """Prints lines that only people read."""
    if _summary.get() is None:
        print("\n".join(map(printable, lines)))


def printable(line: str) -> str:
    """A line with control characters, such as the colour codes of a terminal, escaped."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def summary_stream(*outs: Path) -> TextIO:
    """The stream for the summary of a command that writes these files: stderr if one of them is stdout."""
    own = os.fstat(1)
    there = (os.stat(out) for out in outs if os.path.exists(out))  # a file may be about to be written
    return sys.stderr if any(os.path.samestat(found, own) for found in there) else sys.stdout


def print_metrics(
    Y_true,
    labels: np.ndarray,
    ks: Sequence[int],
    metrics: Mapping[str, Callable] = RANKING_METRICS,
    *,
    head: bool = True,
    **more,
) -> None:
    """A table in per cent with a line for each metric and a column for each k.

    Args:
        Y_true: [n, L].
        labels: predictions, best first, [n, K].
        ks: each at most K, or larger if no row has more than K predictions or true labels.
        metrics: by name, called with (Y_true, labels, k, **more).
        head: whether a line with the numbers k is printed above.
        more: further arguments of the metrics.
    """
    if head:
        print_lines([" " * 7 + "".join(f"{f'@{k}':>8}" for k in ks)])
    for metric, function in metrics.items():
        values = {}
        for k in ks:
            held = min(k, labels.shape[1])
            # labels beyond K bring no more hits, so that only the mean over k labels keeps falling
            share = held / k if metric == "P" else 1.0
            values[k] = 100 * share * float(function(Y_true, labels, held, **more))
        print_lines([f"{metric:<7}" + "".join(f"{value:8.2f}" for value in values.values())])
        if (summary := _summary.get()) is not None:
            summary.fields.setdefault("metrics", {})[metric] = {str(k): value for k, value in values.items()}


#: The k of the table of ``--test``.
TEST_K = (1, 3, 5)


def print_test(Y_true, labels: np.ndarray, part: str = "") -> None:
    """Prints what ``--test`` shows: the precision at each k of :data:`TEST_K`.

    Args:
        Y_true: [n, L].
        labels: predictions, best first, [n, at least the largest k]; -1 for none.
        part: which labels were trained, if not all.
    """
    n_rows = Y_true.shape[0]
    print_field("test", f"per cent of {counted(n_rows, 'row')}{part}", rows=n_rows)
    print_metrics(Y_true, labels, TEST_K, {"P": RANKING_METRICS["P"]})


def describe_shares(shares: Sequence[Share]) -> str:
    """A text about the processes of the NUMA nodes."""
    return "a process on each of " + ", ".join(
        f"node {s.node.number} ({counted(s.threads, 'thread')})" for s in shares
    )


def warn_of_empty(empty: int, count: int) -> None:
    """Warns of labels without a row, if there are any."""
    if empty:
        warn(f"{empty:,} of {count:,} labels have no positive row: they are never predicted")


def warn_of_labels(outcome: Outcome, dtype: DTypeLike) -> None:
    """Warns of labels that could not be trained in this dtype, or not to the end."""
    from xmcjax.solvers import REMEDY

    first, last = outcome.label_range
    if outcome.missing:
        warn(
            f"{outcome.missing:,} of {last - first:,} labels were not begun when the time was over: the same "
            "command with --resume trains them, and until then nothing can be predicted"
        )
    elif not outcome.calibrated:
        warn(
            "the model was not calibrated when the time was over: the same command with --resume does it, "
            "and until then it has scores and no probabilities"
        )
    warn_of_empty(outcome.empty, last - first)
    raised = outcome.summary.raised
    if raised.labels:
        warn(raised.describe(f"label {raised.worst}", outcome.clip))
    if outcome.worst is not None:
        counts = {s: n for s, n in sorted(outcome.summary.statuses.items()) if s in REMEDY}
        kinds = ", ".join(f"{count:,} {status.name.lower()}" for status, count in counts.items())
        worst = outcome.worst
        warn(
            f"{sum(counts.values()):,} of {outcome.trained:,} labels did not converge ({kinds}), "
            f"the worst is label {worst.label} (gradient norm {worst.gradient_norm:.3g}): "
            f"{worst.status.remedy(dtype)}"
        )


def describe_data(dataset: Dataset, prefix: str = "", file: TextIO | None = None) -> None:
    """Prints the line about a data set."""
    (n, d), L = dataset.X.shape, dataset.n_labels
    print_field("data", prefix + dataset.describe(), file, rows=n, features=d, labels=L)


def model_size(directory: Path) -> int:
    """Bytes of the files of a model."""
    return sum(file.stat().st_size for file in directory.iterdir())


def print_model(directory: Path, more: str = "", **values: Any) -> None:
    """Prints the line about a model that was written.

    Args:
        directory: of the model.
        more: what people read about it beside its size.
        values: what programs read in place of `more`.
    """
    size = model_size(directory)
    text = f"{directory} ({size / 1e6:.1f} MB{more})"
    print_field("model", text, directory=str(directory), bytes=size, **values)


def print_written(
    file: Path,
    stream: TextIO | None = None,
    *,
    name: str = "written",
    more: str = "",
    beside: Sequence[Path] = (),
) -> None:
    """Prints the line about a file that was written and the files beside it; `more` precedes their size."""
    size, others = file.stat().st_size, sum(other.stat().st_size for other in beside)
    values = {"bytes": size} | ({"bytes_beside": others} if beside else {})
    print_field(name, f"{file} ({more}{(size + others) / 1e6:.1f} MB)", stream, file=str(file), **values)


def print_training(outcome: Outcome, model: LinearModel, n_rows: int) -> None:
    """Prints the summary of a training run of one-vs-all."""
    summary = outcome.summary
    counts = {status.name.lower(): n for status, n in sorted(summary.statuses.items())}
    ends = [f"{n:,} {name}" for name, n in counts.items()]
    if outcome.missing:
        ends.append(f"{outcome.missing:,} not begun")
    earlier = f"; {outcome.stored:,} were stored before" if outcome.stored else ""
    print_field(
        "labels",
        (", ".join(ends) or "none left to train") + earlier,
        trained=outcome.trained,
        stored=outcome.stored,
        missing=outcome.missing,
        **counts,
    )
    solved = sum(n for s, n in summary.statuses.items() if s.name != "NO_POSITIVES")
    if solved and summary.steps:
        active = summary.active / summary.steps / n_rows
        print_field(
            "work",
            f"{summary.newton_steps / solved:.1f} Newton steps and {summary.cg_steps / solved:.1f} CG steps "
            f"per label, {active:.2%} of the rows active in a step",
            newton_steps=summary.newton_steps,
            cg_steps=summary.cg_steps,
            active_rows=active,
        )
    elif solved and summary.newton_steps:  # with the hinge loss these are passes over the rows
        passes = summary.newton_steps
        print_field("work", f"{passes / solved:.1f} passes over the rows per label", newton_steps=passes)
    if outcome.calibration_seconds and outcome.calibrated:
        took = outcome.calibration_seconds
        print_field("calibration", f"{took:.2f} s", seconds=took)
    compiling = f", {summary.first_step_seconds:.2f} s of it the first step, which compiles"
    print_field(
        "training",
        f"{summary.seconds:.2f} s{compiling if summary.steps else ''}",
        seconds=summary.seconds,
        first_step_seconds=summary.first_step_seconds,
    )
    density = model.density()
    print_model(model.directory, f", {density:.2%} of the weights non-zero", density=density)
