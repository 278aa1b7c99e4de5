"""Multinomial logistic regression against scikit-learn: time to a relative gap of G, in one run.

    python -m experiments.bench.multinomial [--small|--full] [--out results]

Every run is a process of its own on one processor and one thread. Its time is the processor seconds of
the process (on an idle machine the seconds of a clock), JAX's compilation included and reading the data not;
they end when G is within the gap of its minimum, which a long run in float64 found. A first call of at most
half a minute is followed by a second one in the same process. Repetitions go round by turns; a run that takes
more than half a minute is made once. Programs of ours are asked for the least of the gaps. scikit-learn's
lbfgs works in float64 whatever it is given. Runs are kept in multinomial.cells.json, so that a benchmark goes
on where one was stopped. Writes multinomial.json and .md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from experiments import _multinomial, _report
from experiments._cells import Cells

PEERS = ("sklearn lbfgs", "sklearn newton-cg", "sklearn newton-cholesky")
CALLS = ("first", "second")


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized):
    """Time of multinomial logistic regression to a relative gap.

    Attributes:
        sets: of experiments._multiclass.SETS.
        lams: λ.
        float32: programs that run in float32.
        float64: programs that run in float64.
        gaps: (G − G*)/G*.
        repeats: of every run.
        limit: processor seconds after which a run is given up.
        rows: of the training part; 0 for all.
        small: scikit-learn's digits, auto and lbfgs, once.
        full: naics2017, five repetitions.
    """

    sets: tuple[str, ...] = ("naics2017",)
    lams: tuple[float, ...] = (0.1, 0.001)
    float32: tuple[str, ...] = ("auto", "newton", "lbfgs", "lc_extrapolated", "lc", "admm", "dm", PEERS[1])
    float64: tuple[str, ...] = ("auto", *PEERS[:2])
    gaps: tuple[float, ...] = (1e-3, 1e-5)
    repeats: int = 3
    limit: float = 100.0
    rows: int = 0

    def chosen(self) -> Options:
        """With the sizes that --small or --full stand for."""
        if self.full:
            return dataclasses.replace(self, repeats=5)
        if self.small:
            few = dict(float32=("auto",), float64=("auto", "sklearn lbfgs"), lams=(1.0,), repeats=1)
            return dataclasses.replace(self, sets=("digits",), **few)  # type: ignore[arg-type]
        return self


def run(options: Options) -> dict:
    """Seconds to each gap by set, λ, program and dtype, with what the runs did."""
    cells = Cells(options, "multinomial", listed=("sets", "lams", "float32", "float64", "gaps", "repeats"))
    problems = [(data, lam) for data in options.sets for lam in options.lams]
    programs = [(p, "float64") for p in options.float64] + [(p, "float32") for p in options.float32]
    best = {
        (data, lam): _multinomial.optimum(
            cells, ("limit",), data, lam, seconds=1e4, rows=options.rows, set=data
        )
        for data, lam in problems
    }
    least = min(options.gaps)
    made: dict[tuple, list[dict]] = {}
    for repetition in range(options.repeats):
        for program, dtype in programs:
            for data, lam in problems:
                runs = made.setdefault((data, lam, program, dtype), [])
                if runs and runs[0]["seconds"][-1] > _multinomial.LONG:
                    continue
                request = _multinomial.Request(
                    data,
                    lam,
                    program,
                    dtype,
                    target=best[data, lam]["value"] * (1 + least),
                    limit=options.limit,
                    tolerance=least,
                    rows=options.rows,
                    again=True,
                )
                asked = dict(set=data, program=program, dtype=dtype, lam=lam, gap=least, run=repetition)
                runs.append(cells.get(lambda r=request: _multinomial.thinned(_multinomial.ask(r)), **asked))
    rows = []
    for (data, lam, program, dtype), runs in made.items():
        row = {"set": data, "lam": lam, "program": program, "dtype": dtype, "runs": len(runs)}
        value = best[data, lam]["value"]
        again = [run["again"] for run in runs if "again" in run]
        for call, traces in zip(CALLS, (runs, again), strict=True):
            times = [[_multinomial.seconds_to(r, value, gap) for gap in options.gaps] for r in traces]
            row[call] = [_median(column) for column in zip(*times, strict=True)] if times else None
        row["gap"] = float(min(min(r["value"]) for r in runs) / value - 1)
        row["last"] = float(np.median([r["seconds"][-1] for r in runs]))
        row["steps"], row["inner"] = runs[0]["steps"], runs[0]["inner"]
        rows.append(row)
    return {
        "made": cells.made(),
        "gaps": list(options.gaps),
        "limit": options.limit,
        "optimum": {f"{data}: {lam:g}": found for (data, lam), found in best.items()},
        "rows": rows,
        "ratios": [ratio for problem in problems for ratio in _ratios(options, *problem, rows)],
    }


def _median(times: Sequence[float | None]) -> float | None:
    known = [time for time in times if time is not None]
    return float(np.median(known)) if len(known) == len(times) else None


def _ratios(options: Options, data: str, lam: float, rows: list[dict]) -> list[dict]:
    """How many times faster auto is than the best of the peers, by dtype and gap, for both calls."""
    found = []
    for dtype in ("float64", "float32"):
        these = {
            row["program"]: row
            for row in rows
            if (row["set"], row["lam"], row["dtype"]) == (data, lam, dtype)
        }
        peers = [row for name, row in these.items() if name in PEERS]
        if "auto" not in these or not peers:
            continue
        for k, gap in enumerate(options.gaps):
            ratio = {"set": data, "lam": lam, "dtype": dtype, "gap": gap}
            for call in CALLS:
                ours = (these["auto"][call] or [None] * len(options.gaps))[k]
                # a peer has nothing to compile: if its first call was too long to be repeated, it counts
                known = [s for row in peers if (s := (row[call] or row["first"])[k]) is not None]
                # a peer that was given up took at least as long as it was given
                better = min(known) if known else min(row["last"] for row in peers)
                ratio[call] = better / ours if ours else None
                ratio["at_least"] = not known
            found.append(ratio)
    return found


def markdown(result: dict) -> str:
    """Seconds to each gap, one row a program; below, what auto gains."""

    text = (
        "One thread; processor seconds to a relative gap of G in a first call, compilation included, and in "
        "a second; > s: not reached in the s seconds that the run had\n\n"
    )
    gaps = [f"{call} call, s to {gap:g}" for call in CALLS for gap in result["gaps"]]
    header = ("set", "λ", "program", "dtype", *gaps, "outer", "inner", "least gap", "runs")
    rows = []
    for row in result["rows"]:
        times = []
        for call in CALLS:
            late = f"> {row['last']:.0f}" if call == "first" else ""
            seconds = row[call] or [None] * len(result["gaps"])
            times += [late if s is None else float(s) for s in seconds]
        counts = (row["steps"], row["inner"] or "")
        named = (row["set"], f"{row['lam']:g}", row["program"], row["dtype"])
        rows.append((*named, *times, *counts, f"{row['gap']:.1e}", row["runs"]))
    text += _report.markdown_table(header, rows) + "\n"
    rows = []
    for ratio in result["ratios"]:
        times = (
            "" if ratio[call] is None else f"{'> ' if ratio['at_least'] else ''}{ratio[call]:.1f}"
            for call in CALLS
        )
        named = (ratio["set"], f"{ratio['lam']:g}", ratio["dtype"], f"{ratio['gap']:g}")
        rows.append((*named, *times))
    text += "auto is so many times faster than the best of scikit-learn's programs:\n\n"
    header = ("set", "λ", "dtype", "gap", *(f"{call} call" for call in CALLS))
    return text + _report.markdown_table(header, rows)


if __name__ == "__main__":
    _report.main("multinomial", Options, __doc__, run, markdown)
