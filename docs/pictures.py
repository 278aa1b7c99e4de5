"""Draws the pictures of README and of the guide from the committed results: ``python -m docs.pictures``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: What experiments.bench.everywhere has written; docs/develop/benchmarks.md shows it as a table.
EVERYWHERE = ROOT / "experiments" / "results" / "bench.everywhere.json"
PICTURE = ROOT / "docs" / "figures" / "beside_peers.png"


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
        text = " to ".join(dict.fromkeys(f"{ratio:g}" for ratio in (min(ratios), max(ratios))))
        at, beside = (max(ratios), place), (8, 0)
        axes.annotate(f"{text} ×", at, beside, textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(works)), [f"{work}\n({peers})" for work, peers, _ in works], fontsize=8.5)
    axes.set(xscale="log", xlim=(0.3, 300), ylim=(-0.6, len(works) - 0.4))
    axes.set_xticks([0.3, 1, 3, 10, 30, 100], ["0.3", "1", "3", "10", "30", "100"])
    axes.minorticks_off()
    axes.set_xlabel("the peer's processor time over that of xmcjax, one thread")
    axes.set_title("Time to solution beside the peer", fontsize=11, loc="left")
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Writes the files."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
    beside_peers(json.loads(EVERYWHERE.read_text()), axes)
    figure.savefig(PICTURE, dpi=130, metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
