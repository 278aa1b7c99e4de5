"""Draws the pictures of README and of the guide from the committed results: ``python -m docs.pictures``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments.bench.everywhere import two_digits

ROOT = Path(__file__).resolve().parent.parent
#: What experiments.bench.everywhere has written; docs/develop/benchmarks.md shows it as a table.
EVERYWHERE = ROOT / "experiments" / "results" / "bench.everywhere.json"
FIGURES = ROOT / "docs" / "figures"
PICTURE = FIGURES / "beside_peers.png"
#: The kind of work on the page of a system, by the name of the page.
SYSTEMS = {
    "multiclass": "multi-class SVM",
    "multinomial": "multinomial regression",
    "topk": "top-k SVM",
    "kernels": "kernel regression",
}
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50)


def by_work(result: dict) -> list[tuple[str, str, list[float]]]:
    """(kind of work, its peers, times faster with the first instruction set) of every kind."""
    found = []
    for work in dict.fromkeys(row["work"] for row in result["rows"]):
        these = [row for row in result["rows"] if row["work"] == work]
        peers = ", ".join(dict.fromkeys(row["peer"] for row in these))
        found.append((work, peers, [row["ratios"][result["isas"][0]] for row in these]))
    return found


def beside_peers(result: dict, axes: Any) -> None:
    """A line for each kind of work, and a dot for each set of data: how many times as long the peer takes."""
    works = by_work(result)[::-1]
    axes.axvspan(1, 300, color="C0", alpha=0.06, linewidth=0)
    axes.axvline(1, color="black", linewidth=0.8)
    for place, (_, _, ratios) in enumerate(works):
        axes.plot([min(ratios), max(ratios)], [place, place], color="C0", alpha=0.35, linewidth=5)
        axes.plot(ratios, [place] * len(ratios), "o", color="C0", markersize=5)
        text = " to ".join(dict.fromkeys(two_digits(ratio) for ratio in (min(ratios), max(ratios))))
        at, beside = (max(ratios), place), (8, 0)
        axes.annotate(f"{text} ×", at, beside, textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(works)), [f"{work}\n({peers})" for work, peers, _ in works], fontsize=8.5)
    axes.set(xscale="log", xlim=(0.3, 300), ylim=(-0.6, len(works) - 0.4))
    axes.set_xticks([0.3, 1, 3, 10, 30, 100], ["0.3", "1", "3", "10", "30", "100"])
    axes.minorticks_off()
    axes.set_xlabel("the peer's processor time over that of xmcjax, one thread")
    axes.set_title("Time to solution beside the peer", fontsize=11, loc="left")
    axes.spines[["top", "right"]].set_visible(False)


def of_a_work(result: dict, work: str) -> list[tuple[str, str, float, float]]:
    """(data, peer, seconds of xmcjax, of the peer) of a kind of work; of several peers the fastest."""
    found: dict[str, tuple[str, str, float, float]] = {}
    for row in result["rows"]:
        if row["work"] == work:
            ours = row["seconds"][result["isas"][0]]
            this = (row["data"], row["peer"], ours, row["peer_seconds"])
            found[row["data"]] = min(found.get(row["data"], this), this, key=lambda one: one[3])
    return list(found.values())


def seconds(result: dict, work: str, axes: Any) -> None:
    """Two dots for each set of data: the processor seconds of xmcjax and of the peer."""
    rows = of_a_work(result, work)[::-1]
    for place, (_, _, ours, theirs) in enumerate(rows):
        axes.plot([ours, theirs], [place, place], color="0.8", linewidth=3, zorder=1)
    places = range(len(rows))
    axes.plot([row[2] for row in rows], places, "o", color="C0", label="xmcjax")
    axes.plot([row[3] for row in rows], places, "s", color="C1", label="the peer")
    axes.set_yticks(places, [f"{data}\n({peer})" for data, peer, _, _ in rows], fontsize=8.5)
    axes.set(xscale="log", ylim=(-0.6, len(rows) - 0.4), xlabel="processor seconds, one thread")
    axes.grid(axis="x", color="0.92")
    axes.set_axisbelow(True)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, fontsize=9)
    ends = [one for row in rows for one in row[2:]]
    ticks = [tick for tick in _TICKS if min(ends) / 2 <= tick <= 2 * max(ends)]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Writes the files."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    result = json.loads(EVERYWHERE.read_text())
    drawn = {PICTURE: (4.4, lambda axes: beside_peers(result, axes))}
    for page, work in SYSTEMS.items():
        height = 1.3 + 0.42 * len(of_a_work(result, work))
        drawn[FIGURES / f"{page}.png"] = (height, lambda axes, work=work: seconds(result, work, axes))
    for path, (height, draw) in drawn.items():
        figure, axes = plt.subplots(figsize=(8, height), layout="constrained")
        draw(axes)
        figure.savefig(path, dpi=130, metadata={"Software": None})
        plt.close(figure)


if __name__ == "__main__":
    main()
