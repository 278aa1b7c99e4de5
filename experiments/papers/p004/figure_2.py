"""The top-k simplices and their vertices: figure 2 of Lapin, Hein and Schiele, 2015.

    python -m experiments.papers.p004.figure_2 [--small|--full] [--out results]

Δ_k(1) = {p ≥ 0, 1ᵀp ≤ 1, p_j ≤ 1ᵀp/k} (Definition 1) has one vertex at 0 and one for each k of the m
entries, which are then 1/k: binomial(m, k) + 1 of them. The vertices are found by projecting random points
that are far away. Writes p004_figure_2.json, .md and, where matplotlib is installed, .png with the sets of
m = 3.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np

from experiments import _report
from xmcjax.projections import topk_simplex

NAME = "p004_figure_2"
# The distance from 0 of the points that are projected.
_FAR = 1e3
# A projection found for at most this share of the points is no vertex: two entries were nearly equal, so that
# the point was projected onto an edge.
_RARE = 1e-3


@dataclasses.dataclass(frozen=True)
class Options(_report.Sized):
    """Vertices of the top-k simplices.

    Attributes:
        lengths: m.
        directions: random points for each of them.
        small: m = 3 alone.
        full: up to m = 6.
    """

    lengths: tuple[int, ...] = (3, 4, 5)
    directions: int = 4000

    def chosen(self) -> Options:
        """With the sizes that --small or --full stand for."""
        lengths = (3,) if self.small else (3, 4, 5, 6) if self.full else self.lengths
        return dataclasses.replace(self, lengths=lengths)


def vertices(m: int, k: int, directions: int) -> np.ndarray:
    """The vertices of Δ_k(1) in m dimensions, sorted, [vertices, m]."""
    far = _FAR * np.random.default_rng(0).normal(size=(directions, m))
    found = np.round(np.asarray(topk_simplex(far.astype(np.float32), k)), 4) + 0.0
    points, counts = np.unique(found, axis=0, return_counts=True)
    return points[counts > _RARE * directions]


def run(options: Options) -> dict:
    """The vertices by m and k."""
    return {
        "sets": [
            {"m": m, "k": k, "vertices": vertices(m, k, options.directions).tolist()}
            for m in options.lengths
            for k in range(1, m + 1)
        ]
    }


def markdown(result: dict) -> str:
    """How many vertices each set has, and what the paper says."""
    rows = [
        (one["m"], one["k"], len(one["vertices"]), math.comb(one["m"], one["k"]) + 1)
        for one in result["sets"]
    ]
    return _report.markdown_table(("m", "k", "vertices found", "binomial(m, k) + 1"), rows)


def draw(result: dict, axes) -> None:
    """The sets of m = 3 beside each other, seen from in front and above."""
    view = np.array([[-0.55, -0.45], [0.95, -0.15], [0.0, 1.0]])
    for place, one in enumerate(one for one in result["sets"] if one["m"] == 3):
        shift = np.array([2.4 * place, 0.0])
        for axis, name in zip(view, "123", strict=True):
            tip = axis * 1.15 + shift
            axes.plot(*np.array([shift, tip]).T, color="0.7", linewidth=0.8)
            axes.annotate(f"p{name}", tip)
        corners = np.array(one["vertices"]) @ view + shift
        for a, b in itertools.combinations(corners, 2):
            axes.plot(*np.array([a, b]).T, "-o", color=f"C{place}", markersize=4)
        axes.annotate(f"k = {one['k']}: {len(corners)} vertices", shift + np.array([-0.5, -0.9]))
    axes.set(xlim=(-1.0, 6.3), ylim=(-1.1, 1.4))
    axes.set_aspect("equal")
    axes.axis("off")


if __name__ == "__main__":
    _report.main(NAME, Options, __doc__, run, markdown, {NAME: draw})
