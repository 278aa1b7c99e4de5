"""Multinomial logistic regression against scikit-learn: time to a relative gap of G, in one run.

    python -m experiments.bench.multinomial [--small|--full] [--out results]

Every run is a process of its own on one processor and one thread. Its time is the processor seconds of
the process (on an idle machine the seconds of a clock), JAX's compilation included and reading the data not;
they end when G is within the gap of its minimum, which a long run in float64 found. Repetitions go round
by turns; a run that takes more than half a minute is made once. scikit-learn's lbfgs works in float64
whatever it is given. Runs are kept in multinomial.cells.json, so that a benchmark goes on where one was
stopped. Writes multinomial.json and .md.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from experiments import _multinomial, _report
from experiments._cells import Cells

PEERS = ("sklearn lbfgs", "sklearn newton-cg")


@dataclasses.dataclass(frozen=True)
class Options:
    """Time of multinomial logistic regression to a relative gap.

    Attributes:
        data: a set of experiments._multiclass.SETS.
        lams: λ.
        float32: programs that run in float32.
        float64: programs that run in float64.
        gaps: (G − G*)/G*.
        repeats: of every run.
        limit: processor seconds after which a run is given up.
        rows: of the training part; 0 for all.
        out: folder of the results.
        small: scikit-learn's digits, auto and lbfgs, once.
        full: naics2017, five repetitions.
    """

    data: str = "naics2017"
    lams: tuple[float, ...] = (0.1, 0.001)
    float32: tuple[str, ...] = ("auto", "newton", "lbfgs", "lc_extrapolated", "lc", "admm", "dm", PEERS[1])
    float64: tuple[str, ...] = ("auto", *PEERS)
    gaps: tuple[float, ...] = (1e-3, 1e-5)
    repeats: int = 3
    limit: float = 100.0
    rows: int = 0
    out: Path = Path("results")
    small: bool = False
    full: bool = False

    def chosen(self) -> Options:
        """With the sizes that --small or --full stand for."""
        if self.full:
            return dataclasses.replace(self, repeats=5)
        if self.small:
            few = dict(float32=("auto",), float64=("auto", "sklearn lbfgs"), lams=(1.0,), repeats=1)
            return dataclasses.replace(self, data="digits", **few)  # type: ignore[arg-type]
        return self


def run(options: Options) -> dict:
    """Seconds to each gap by λ, program and dtype, with what the runs did."""
    cells = Cells(options, "multinomial", listed=("lams", "float32", "float64", "gaps", "repeats"))
    programs = [(p, "float64") for p in options.float64] + [(p, "float32") for p in options.float32]
    best = {
        lam: _multinomial.optimum(cells, ("limit",), options.data, lam, seconds=1e4, rows=options.rows)
        for lam in options.lams
    }
    made: dict[tuple, list[dict]] = {}
    for repetition in range(options.repeats):
        for program, dtype in programs:
            for lam in options.lams:
                runs = made.setdefault((lam, program, dtype), [])
                if runs and runs[0]["seconds"][-1] > 30:
                    continue
                target = best[lam]["value"] * (1 + min(options.gaps))
                request = _multinomial.Request(
                    options.data, lam, program, dtype, target, options.limit, rows=options.rows
                )
                asked = dict(program=program, dtype=dtype, lam=lam, gap=min(options.gaps), run=repetition)
                found = cells.get(lambda r=request: _multinomial.thinned(_multinomial.ask(r)), **asked)
                runs.append(found)
    rows = []
    for (lam, program, dtype), runs in made.items():
        row = {"lam": lam, "program": program, "dtype": dtype, "runs": len(runs)}
        times = [[_multinomial.seconds_to(r, best[lam]["value"], gap) for gap in options.gaps] for r in runs]
        row["seconds"] = [_median(column) for column in zip(*times, strict=True)]
        row["gap"] = float(min(min(r["value"]) for r in runs) / best[lam]["value"] - 1)
        row["last"] = float(np.median([r["seconds"][-1] for r in runs]))
        row["start"] = None if program in PEERS else _median([_multinomial.start_seconds(r) for r in runs])
        row["steps"], row["inner"] = runs[0]["steps"], runs[0]["inner"]
        rows.append(row)
    return {
        "made": cells.made(),
        "data": options.data,
        "gaps": list(options.gaps),
        "limit": options.limit,
        "optimum": {f"{lam:g}": found for lam, found in best.items()},
        "rows": rows,
        "ratios": [ratio for lam in options.lams for ratio in _ratios(options, lam, rows)],
    }


def _median(times: list[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return float(np.median(known)) if len(known) == len(times) else None


def _ratios(options: Options, lam: float, rows: list[dict]) -> list[dict]:
    """How many times faster auto is than the better of the peers, by dtype and gap."""
    found = []
    for dtype in ("float64", "float32"):
        these = {row["program"]: row for row in rows if row["lam"] == lam and row["dtype"] == dtype}
        peers = [row for name, row in these.items() if name in PEERS]
        if "auto" not in these or not peers:
            continue
        for k, gap in enumerate(options.gaps):
            ours, theirs = these["auto"]["seconds"][k], [row["seconds"][k] for row in peers]
            known = [seconds for seconds in theirs if seconds is not None]
            # a peer that was given up took at least as long as it was given
            better = min(known) if known else min(row["last"] for row in peers)
            ratio = better / ours if ours else None
            found.append({"lam": lam, "dtype": dtype, "gap": gap, "ratio": ratio, "at_least": not known})
    return found


def markdown(result: dict) -> str:
    """Seconds to each gap, one row a program; below, what auto gains."""

    text = (
        f"{result['data']}, one thread; processor seconds to a relative gap of G, compilation included "
        "(most of the start); > s: not reached in the s seconds that the run had\n\n"
    )
    gaps = [f"s to {gap:g}" for gap in result["gaps"]]
    header = ("λ", "program", "dtype", *gaps, "of it start, s", "outer", "inner", "least gap", "runs")
    rows = []
    for row in sorted(result["rows"], key=lambda r: (-r["lam"], r["dtype"], r["seconds"][-1] or 1e9)):
        times = (f"> {row['last']:.0f}" if s is None else f"{s:.1f}" for s in row["seconds"])
        start = "" if row["start"] is None else f"{row['start']:.1f}"
        counts = (row["steps"], row["inner"] or "")
        cells = (row["program"], row["dtype"], *times, start, *counts, f"{row['gap']:.1e}", row["runs"])
        rows.append((f"{row['lam']:g}", *cells))
    text += _report.markdown_table(header, rows) + "\n"
    rows = [
        (
            f"{r['lam']:g}",
            r["dtype"],
            f"{r['gap']:g}",
            "" if r["ratio"] is None else f"{'> ' if r['at_least'] else ''}{r['ratio']:.1f}",
        )
        for r in result["ratios"]
    ]
    header = ("λ", "dtype", "gap", "auto faster than the better of scikit-learn's, times")
    return text + _report.markdown_table(header, rows)


def main() -> None:
    """Reads the options, runs, writes the results."""
    _report.main("multinomial", Options, __doc__, run, markdown)


if __name__ == "__main__":
    main()
