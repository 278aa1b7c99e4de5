"""Time of every projection against the length of the vector, beside the continuous quadratic knapsack.

    python -m experiments.papers.p004.figure_3 [--small|--full] [--out results]

Every point projects as many vectors of standard normal numbers as make up the same number of
entries, on one processor, compiled beforehand; a time is the median CPU time of the repetitions, which
go round by turns. Writes p004_figure_3.json, .md and, where matplotlib is installed, .png.
"""

from __future__ import annotations

import dataclasses
import os

import numpy as np

from experiments import _report

KNAPSACK = "knapsack"


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized):
    """Time of the projections against the length of the vector.

    Attributes:
        lengths: of the vectors.
        entries: of all vectors of a point together.
        ks: k of the top-k sets; the knapsack's bound is 2 radius / k.
        radius: of all sets but the cone.
        repeats: of every timed call.
        small: k = 10, lengths 10 and 1,000, 10,000 entries, three repetitions.
        full: lengths 10 to 1,000,000, 4,000,000 entries, seven repetitions.
    """

    lengths: tuple[int, ...] = (10, 100, 1_000, 10_000, 100_000)
    entries: int = 400_000
    ks: tuple[int, ...] = (1, 5, 10)
    radius: float = 1.0
    repeats: int = 5

    def chosen(self) -> Options:
        """With the sizes that --small or --full stand for."""
        if self.full:
            lengths = (10, 32, 100, 316, 1_000, 3_162, 10_000, 31_623, 100_000, 316_228, 1_000_000)
            return dataclasses.replace(self, lengths=lengths, entries=4_000_000, repeats=7)
        if self.small:
            return dataclasses.replace(self, ks=(10,), lengths=(10, 1_000), entries=10_000, repeats=3)
        return self


def run(options: Options) -> dict:
    """Nanoseconds per entry, by k, path, set and length."""
    return {
        "ks": list(options.ks),
        "radius": options.radius,
        "entries": options.entries,
        "repeats": options.repeats,
        "lengths": list(options.lengths),
        "ns_per_entry": {str(k): times_of(k, options) for k in options.ks},
    }


def times_of(k: int, options: Options) -> dict[str, dict[str, list[float]]]:
    """Nanoseconds per entry of one k, by path, set and length."""
    import jax

    from experiments import _projections
    from xmcjax.native import available

    rng = np.random.default_rng(0)
    first = "native" if available() else _projections.PLAIN
    times: dict[str, dict[str, list[float]]] = {first: {}, _projections.PLAIN: {}}
    sets = _projections.sets(k, options.radius)
    for length in options.lengths:
        rows = max(1, options.entries // length)
        x = jax.device_put(rng.standard_normal((rows, length)).astype(np.float32))
        calls = {}
        for i, path in enumerate((first, _projections.PLAIN)):
            for name, pair in sets.items():
                calls[path, name] = jax.jit(pair[i])
                jax.block_until_ready(calls[path, name](x))
        seconds = {key: [] for key in calls}
        for _ in range(options.repeats):
            # an untimed call, because the last call of the previous turn left other memory and caches
            _projections.timed(calls[first, KNAPSACK], x)
            for key, call in calls.items():
                seconds[key].append(_projections.timed(call, x))
        for (path, name), values in seconds.items():
            times[path].setdefault(name, []).append(1e9 * float(np.median(values)) / (rows * length))
        print(f"k = {k}, length {length}: {rows} vectors done", flush=True)
    return times


def markdown(result: dict) -> str:
    """Nanoseconds per entry and the ratio to the knapsack, one table per path."""
    text = (
        f"float32, radius {result['radius']:g}, {result['entries']} standard normal "
        f"entries per point, one processor; ns of CPU time per entry, median of {result['repeats']}\n"
    )
    for k, path, sets in (
        (k, path, sets) for k, paths in result["ns_per_entry"].items() for path, sets in paths.items()
    ):
        rows = [[name, *(f"{time:.2f}" for time in times)] for name, times in sets.items()]
        text += f"\nk = {k}, {path}:\n\n" + _report.markdown_table(
            ("set", *map(str, result["lengths"])), rows
        )
        ratios = [
            [name, *(f"{time / beside:.2f}" for time, beside in zip(times, sets[KNAPSACK], strict=True))]
            for name, times in sets.items()
            if name != KNAPSACK
        ]
        text += "\nTimes over the knapsack's:\n\n"
        text += _report.markdown_table(("set", *map(str, result["lengths"])), ratios)
    return text


def draw(result: dict, axes) -> None:
    """Microseconds per vector against its length; constant time per entry is a straight line."""
    figure, lengths = axes.figure, np.array(result["lengths"])
    axes.remove()
    panels = figure.subplots(1, len(result["ks"]), squeeze=False, sharey=True).ravel()
    for panel, k in zip(panels, result["ks"], strict=True):
        paths = result["ns_per_entry"][str(k)]
        for path, style in zip(paths, ("-", ":"), strict=False):
            for i, (name, times) in enumerate(paths[path].items()):
                label = f"{name} ({path})"
                panel.loglog(lengths, 1e-3 * lengths * np.array(times), style, color=f"C{i}", label=label)
        panel.set_title(f"k = {k}", fontsize="small")
        panel.set_xlabel("length of the vector")
    panels[0].set_ylabel("µs a vector")
    panels[-1].legend(fontsize=5)


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):  # one processor
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    _report.main("p004_figure_3", Options, __doc__, run, markdown, {"p004_figure_3": draw})
