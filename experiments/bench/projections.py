"""Projections of many vectors against other libraries, on the same numbers in the same run.

    python -m experiments.bench.projections [--small|--full] [--out results] [--libsdca CHECKOUT_OF_libsdca]

On one processor, float32, standard normal entries; compiled beforehand, and the first call, with its
compilation, is shown apart. A time is the median of the repetitions, which go round by turns, and CPU
time, which other work on the machine does not lengthen.
jaxopt takes part where it is installed; libsdca's headers are compiled with -Ofast -march=native into
a small program that copies and projects the same vectors. The error of a sum, |Σp − r| of the
simplex, is in units of eps r √m. Writes projections.json and projections.md.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from experiments import _report
from experiments.bench import _peers

LIBSDCA = {
    "simplex": "simplex",
    "knapsack": "knapsack",
    "topk_cone": "top-k cone",
    "topk_simplex": "top-k simplex",
    "topk_simplex_biased": "top-k simplex, biased",
    "topk_simplex_beta": "top-k simplex beta, biased",
}


@dataclasses.dataclass(frozen=True)
class Options(
    _report.Sized,
    small=dict(rows=200, repeats=3),
    full=dict(rows=10_000, length=1_000, repeats=9),
):
    """Projections against other libraries.

    Attributes:
        rows: vectors.
        length: of a vector.
        k: of the top-k sets; the knapsack's bound is 2 radius / k.
        radius: of all sets but the cone.
        repeats: of every timed call.
        libsdca: a checkout of libsdca; empty leaves it out.
        compiler: of its program.
        small: 200 vectors, three repetitions.
        full: 10,000 vectors of 1,000, nine repetitions.
    """

    rows: int = 2_000
    length: int = 1_000
    k: int = 5
    radius: float = 1.0
    repeats: int = 5
    libsdca: str = ""
    compiler: str = "c++"


def bisection(x, radius: float):
    """The simplex as jaxopt's box section solves it: at most 30 halvings, or a sum within 1e-5."""
    import jax
    import jax.numpy as jnp

    def excess(t):
        return jnp.clip(x - t[:, None], 0, radius).sum(-1) - radius

    def body(carry):
        step, low, high, _ = carry
        middle = (low + high) / 2
        off = excess(middle)
        return step + 1, jnp.where(off > 0, middle, low), jnp.where(off > 0, high, middle), jnp.abs(off)

    def more(carry):
        return (carry[0] < 30) & (carry[3] > 1e-5).any()

    start = (0, x.min(-1) - radius, x.max(-1), jnp.full(x.shape[:-1], jnp.inf, x.dtype))
    _, low, high, _ = jax.lax.while_loop(more, body, start)
    return jnp.clip(x - ((low + high) / 2)[:, None], 0, radius)


def contestants(options: Options) -> dict[tuple[str, str], Callable]:
    """(set, program) -> function of x."""
    import jax
    import jax.numpy as jnp
    import optax

    from experiments import _projections
    from xmcjax.native import available

    r = options.radius
    functions = {}
    for name, (public, plain) in _projections.sets(options.k, r).items():
        if available():
            functions[name, "xmcjax"] = public
        functions[name, f"xmcjax, {_projections.PLAIN}"] = plain
    functions["simplex", "bisection"] = lambda x: bisection(x, r)
    functions["simplex", "optax"] = jax.vmap(lambda x: optax.projections.projection_simplex(x, r))
    if importlib.util.find_spec("jaxopt"):
        projection = importlib.import_module("jaxopt.projection")

        one = np.ones(options.length, np.float32)
        section = (0 * one, jnp.asarray(r * one), one, r)
        functions["simplex", "jaxopt, box section"] = jax.vmap(
            lambda x: projection.projection_box_section(x, section)
        )
        cap = (0 * one, jnp.asarray(2 * r / options.k * one), one, r)
        functions["knapsack", "jaxopt, box section"] = jax.vmap(
            lambda x: projection.projection_box_section(x, cap)
        )
        weighted = (*cap[:2], np.linspace(0.5, 1.5, options.length, dtype=np.float32), r)
        functions["weighted knapsack", "jaxopt, box section"] = jax.vmap(
            lambda x: projection.projection_box_section(x, weighted)
        )
        functions["simplex", "jaxopt, sort"] = jax.vmap(lambda x: projection.projection_simplex(x, r))
    return {key: jax.jit(function) for key, function in functions.items()}


class Libsdca:
    """The program that times libsdca, compiled in a folder of its own."""

    def __init__(self, options: Options, folder: Path, x: np.ndarray):
        program = _peers.compile_libsdca(
            _peers.LIBSDCA_PROX, folder, checkout=options.libsdca, compiler=options.compiler
        )
        x.tofile(folder / "x.bin")
        sizes = (options.rows, options.length, options.k, options.radius)
        self.command = [program, str(folder / "x.bin"), *map(str, sizes)]

    def __call__(self) -> dict[str, dict]:
        """Seconds and the worst sum of each set."""
        done = subprocess.run(self.command, capture_output=True, text=True, check=True)
        return {LIBSDCA[name]: row for name, row in json.loads(done.stdout).items()}


def run(options: Options) -> dict:
    """All programs by turns."""
    import jax

    from experiments import _projections

    host = np.random.default_rng(0).standard_normal((options.rows, options.length)).astype(np.float32)
    x = jax.device_put(host)
    functions = contestants(options)
    unit = float(np.finfo(np.float32).eps * options.radius * np.sqrt(options.length))
    rows: dict[tuple[str, str], dict] = {}
    for (name, program), function in functions.items():
        row = rows[name, program] = {"set": name, "program": program, "all_seconds": []}
        row["first_call_seconds"] = _projections.timed(function, x)
        if name == "simplex":
            sums = np.asarray(function(x), np.float64).sum(-1)
            row["sum_error"] = float(np.abs(sums - options.radius).max() / unit)
    with tempfile.TemporaryDirectory() as folder:
        libsdca = Libsdca(options, Path(folder), host) if options.libsdca else None
        # a program's sets follow one another: the first call after another program suffers from the state of
        # memory and caches that this left, and is made twice
        programs = dict.fromkeys(program for _, program in functions)
        turns = [[key for key in functions if key[1] == program] for program in programs]
        for repeat in range(options.repeats):
            for turn in turns:
                _projections.timed(functions[turn[0]], x)
                for key in turn:
                    rows[key]["all_seconds"].append(_projections.timed(functions[key], x))
            for name, row in (libsdca() if libsdca else {}).items():
                empty = {"set": name, "program": "libsdca", "all_seconds": []}
                kept = rows.setdefault((name, "libsdca"), empty)
                kept["all_seconds"].append(row["seconds"])
                if name == "simplex":
                    kept["sum_error"] = row["sum_error"] / unit
            print(f"{repeat + 1}/{options.repeats} done", flush=True)
    for row in rows.values():
        row["seconds"] = float(np.median(row["all_seconds"]))
    sizes = {field: getattr(options, field) for field in ("rows", "length", "k", "radius", "repeats")}
    order = [name for name, _ in functions]
    return sizes | {"runs": sorted(rows.values(), key=lambda row: order.index(row["set"]))}


def ours(rows: dict[tuple[str, str], dict]) -> str:
    """The name of the program that a user of this machine gets."""
    return "xmcjax" if ("simplex", "xmcjax") in rows else "xmcjax, plain JAX"


def markdown(result: dict) -> str:
    """One table, sets together."""
    keyed = {(row["set"], row["program"]): row for row in result["runs"]}
    ours_name = ours(keyed)
    table = [
        [
            row["set"],
            row["program"],
            f"{1e3 * row['seconds']:.1f}",
            f"{row['seconds'] / keyed[row['set'], ours_name]['seconds']:.2f}",
            f"{row['seconds'] / keyed['simplex', ours_name]['seconds']:.2f}",
            f"{row['sum_error']:.2f}" if "sum_error" in row else "",
            f"{row['first_call_seconds']:.2f}" if "first_call_seconds" in row else "",
        ]
        for row in result["runs"]
    ]
    error = "largest error of a sum, eps r √m"
    header = ("set", "program", "ms", "over ours", "over our simplex", error, "first call, s")
    return (
        f"{result['rows']} vectors of {result['length']}, float32, k = {result['k']}, "
        f"radius {result['radius']:g}; median CPU time of {result['repeats']}, one processor\n\n"
        + _report.markdown_table(header, table)
    )


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity"):  # one processor
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    _report.main("projections", Options, __doc__, run, markdown)
