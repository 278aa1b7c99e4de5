"""What commands print: the result on stdout, warnings on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np

from xmcjax.metrics import RANKING_METRICS

if TYPE_CHECKING:
    from xmcjax._topology import Share
    from xmcjax.cli._training import Outcome
    from xmcjax.models import LinearModel


def warn(text: str) -> None:
    """One line on stderr."""
    print(f"xmcjax: warning: {text}", file=sys.stderr)


def print_field(name: str, text: str, file: TextIO | None = None) -> None:
    """One line of a summary; on stdout if no other stream is given."""
    print(f"{name:<11} {text}", file=file)


def summary_stream(out: Path) -> TextIO:
    """Where the summary of a command goes that wrote ``out``: to stderr where that is stdout."""
    return sys.stderr if os.path.samestat(os.stat(out), os.fstat(1)) else sys.stdout


def metric_table(
    Y_true, labels: np.ndarray, ks: Sequence[int], metrics: Mapping[str, Callable] = RANKING_METRICS, **more
) -> list[str]:
    """A metric a line, a column for each k, in per cent.

    Args:
        Y_true: [n, L].
        labels: predictions, best first, [n, K].
        ks: each at most K.
        metrics: by name, called with (Y_true, labels, k, **more).
    """
    lines = [" " * 7 + "".join(f"{f'@{k}':>8}" for k in ks)]
    for name, metric in metrics.items():
        values = [100 * metric(Y_true, labels, k, **more) for k in ks]
        lines.append(f"{name:<7}" + "".join(f"{value:8.2f}" for value in values))
    return lines


def describe_shares(shares: Sequence[Share]) -> str:
    """The processes of NUMA nodes."""
    return "a process on each of " + ", ".join(
        f"node {s.node.number} ({s.threads} thread{'s' * (s.threads > 1)})" for s in shares
    )


def warn_of_labels(outcome: Outcome) -> None:
    """What a user should know of labels that were not trained, or not to the end."""
    from xmcjax.solvers import REMEDY

    first, last = outcome.label_range
    if outcome.missing:
        warn(
            f"{outcome.missing:,} of {last - first:,} labels were not begun when the time was over: the same "
            "command with --resume trains them, and until then nothing can be predicted"
        )
    if outcome.empty:
        warn(f"{outcome.empty:,} of {last - first:,} labels have no positive row: they are never predicted")
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
            f"{REMEDY[worst.status]}"
        )


def print_training(outcome: Outcome, model: LinearModel, n_rows: int) -> None:
    """The summary of a training run."""
    summary = outcome.summary
    statuses = ", ".join(f"{n:,} {s.name.lower()}" for s, n in sorted(summary.statuses.items()))
    earlier = f"; {outcome.stored:,} were stored before" if outcome.stored else ""
    print_field("labels", (statuses or "none left to train") + earlier)
    solved = sum(n for s, n in summary.statuses.items() if s.name != "NO_POSITIVES")
    if solved and summary.steps:
        active = summary.active / summary.steps / n_rows
        print_field(
            "work",
            f"{summary.newton_steps / solved:.1f} Newton steps and {summary.cg_steps / solved:.1f} CG steps "
            f"per label, {active:.2%} of the rows active in a step",
        )
    compiling = f", {summary.first_step_seconds:.2f} s of it the first step, which compiles"
    print_field("training", f"{summary.seconds:.2f} s{compiling if summary.steps else ''}")
    size = sum(file.stat().st_size for file in model.directory.iterdir()) / 1e6
    print_field("model", f"{model.directory} ({size:.1f} MB, {model.density():.2%} of the weights non-zero)")
