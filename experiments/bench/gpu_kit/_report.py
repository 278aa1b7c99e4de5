"""The file of the figures, a line of JSON each, and its tables; the standard library alone is imported."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

FILE = "figures.jsonl"
MISSING = "not measured"
CORRECTNESS = ("products", "vectors", "solvers")


def add(out: Path, line: dict) -> None:
    """Appends a line and flushes it to the disk, because what follows may crash."""
    text = json.dumps(line, ensure_ascii=False, default=_number) + "\n"
    with (out / FILE).open("ab") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


def _number(value):
    """A number of numpy as one of Python."""
    return value.item() if hasattr(value, "item") else str(value)


def read(out: Path) -> list[dict]:
    """The lines; one that a crash cut short is left out."""
    lines = []
    if (out / FILE).exists():
        for text in (out / FILE).read_text(errors="replace").splitlines():
            try:
                lines.append(json.loads(text))
            except json.JSONDecodeError:
                continue
    return lines


class Found:
    """The latest figure of each name, for the device and for the CPU."""

    def __init__(self, lines: Iterable[dict]):
        self.figures = {(line["figure"], line["on"]): line["values"] for line in lines if "figure" in line}

    def get(self, name: str, key: str, on: str = "device"):
        """A value of a figure; None where there is none."""
        return self.figures.get((name, on), {}).get(key)

    def all(self, prefix: str, key: str, on: str = "device") -> list:
        """The values of all figures whose names begin with `prefix`, in the order in which they came."""
        return [
            values[key]
            for (name, where), values in self.figures.items()
            if where == on and name.startswith(prefix) and key in values
        ]

    def least(self, prefix: str, key: str, on: str = "device") -> float | None:
        """The smallest of these values."""
        return min(self.all(prefix, key, on), default=None)


def _correctness(lines: list[dict]) -> str | None:
    checks = {
        line["figure"]: line["values"]
        for line in lines
        if "figure" in line and (line["stage"] in CORRECTNESS or "right" in line["values"])
    }
    if not checks:
        return None
    wrong = [name for name, values in checks.items() if values.get("right") is False]
    other = [name for name, values in checks.items() if values.get("same_bits") is False]
    text = f"{len(checks) - len(wrong)} of {len(checks)} right"
    text += f"; wrong: {', '.join(wrong)}" if wrong else ""
    return text + (f"; other bits the second time: {', '.join(other)}" if other else "; the same bits twice")


def _beside(ours: float | None, theirs: float | None, unit: str = "s") -> str | None:
    """The seconds `ours`, with `theirs` of the CPU and the ratio where these are known."""
    if ours is None:
        return None
    if theirs is None:
        return f"{ours:.3g} {unit}; CPU {MISSING}"
    return f"{ours:.3g} {unit}; CPU {theirs:.3g} {unit}, {theirs / ours:.2g} times"


def _stackexchange(found: Found) -> str | None:
    name = "stackexchange_tags, again"
    return _beside(found.get(name, "seconds"), found.get(name, "seconds", "cpu"))


def _amazon(found: Found) -> str | None:
    """Results for as many labels as each had time for. Their numbers differ, so that no ratio is given."""
    parts = []
    for on in ("device", "cpu"):
        keys = "labels", "scaled_seconds"
        pairs = zip(*(found.all("amazon_670k, ", key, on) for key in keys), strict=True)
        labels, seconds = max(pairs, default=(0, None))
        said = MISSING if seconds is None else f"{seconds / 60:.3g} min from {labels} labels"
        parts.append(f"CPU {said}" if on == "cpu" else said)
    return None if parts[0] == MISSING else "; ".join(parts)


def _bandwidth(found: Found) -> str | None:
    """The bandwidth of CG as in training; for comparison that of its product alone."""

    def share(name: str) -> str:
        once, fetched = (found.get(name, key) for key in ("share_once", "share_fetched"))
        return MISSING if once is None else f"{once:.2f} ({fetched:.2f})"

    block = "stackexchange_tags, gpu, 512 lanes, mask start"
    names = f"X δ, {block}", f"gradient, {block}", "Newton directions, cuda, 512 lanes"
    shares, product = [share(name) for name in names], share(f"CG's product, {block}")
    if {*shares, product} == {MISSING}:
        return None
    return f"{', '.join(shares)}; CG's product alone {product}"


def _systems(lines: list[dict]) -> str | None:
    # only these stages, because the stage `solvers` has small problems with the same names
    stages = ("multinomial", "kernel_search", "topk_grid")
    found = Found(line for line in lines if line.get("stage") in stages)
    names = ("multinomial, ", "kernel search, 4000 rows", "kernel search, 1000 rows", "top-k grid, ")
    parts = [
        _beside(found.least(name, "seconds", "device"), found.least(name, "seconds", "cpu")) or MISSING
        for name in names
    ]
    return None if set(parts) == {MISSING} else " / ".join(parts)


def _shares(found: Found) -> str | None:
    parts = []
    for prefix in ("projection, ", "loss, "):
        shares = found.all(prefix, "share")
        parts.append(f"{min(shares):.2f} to {max(shares):.2f}" if shares else MISSING)
    return None if set(parts) == {MISSING} else f"projections {parts[0]}, losses {parts[1]}"


def _prediction(found: Found) -> str | None:
    """Prediction with weights that are kept where they are used, and with weights that are sent first."""
    name = "prediction, 1000000 labels"
    times = {"kept": "kept_seconds", "sent": "seconds"}
    parts = [
        f"{what} {text}"
        for what, key in times.items()
        if (text := _beside(found.get(name, key), found.get(name, key, "cpu")))
    ]
    return " / ".join(parts) or None


def goals(lines: list[dict]) -> str:
    """The table of goals beside what was measured."""
    found = Found(lines)
    rows = [
        ("all products and solvers against float64", "as on a CPU; the same bits twice", _correctness(lines)),
        ("stackexchange_tags, all labels, after compiling", "0.5 s, stretch 0.1", _stackexchange(found)),
        (
            "Amazon-670K's size (made), all labels, from a tenth scaled",
            "8 minutes, stretch 3; beside all cores in the same run",
            _amazon(found),
        ),
        (
            "part of the memory bandwidth: X δ, gradient, CG, arrays moved once (with what is fetched again)",
            "0.6, 0.5, 0.3",
            _bandwidth(found),
        ),
        (
            "naics2017 multinomial / satimage kernel search of 4,000 rows / of 1,000 / "
            "silhouettes grid of top-k as lanes",
            "10 times all cores",
            _systems(lines),
        ),
        (
            "projections 1,000,000 × 1,000, losses with gradients: part of the bandwidth",
            "0.7, or why not",
            _shares(found),
        ),
        ("prediction, 1,000,000 labels", "10 times all cores", _prediction(found)),
    ]
    return _table(("what", "goal", "measured"), [(what, goal, text or MISSING) for what, goal, text in rows])


def text(lines: list[dict], *, every: bool = True) -> str:
    """Where and when, the table of goals, the stages, and every figure."""
    figures = [line for line in lines if "figure" in line]
    parts = []
    if figures:
        first = next((line for line in figures if line["on"] == "device"), figures[0])
        machine = first["environment"]
        versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
        parts.append(
            f"{machine['device']} ({machine['platform']}), {machine['cores']} cores of "
            f"{machine['processor']}, {first['at']}, Python {machine['python']}, {versions}; "
            f"commit {first['commit']}; "
            f"`{first['command']}`\n"
        )
        if machine["platform"] == "cpu" or first["small"]:
            parts.append("A rehearsal, on a CPU or with small sizes: no figure of it means anything.\n")
    parts.append(goals(lines))
    stages = [
        (line["stage"], line["on"], line["status"], line["seconds"]) for line in lines if "status" in line
    ]
    if stages:
        parts.append(_table(("stage", "on", "end", "s"), stages))
    if figures and every:
        rows = [(line["stage"], line["figure"], line["on"], _values(line["values"])) for line in figures]
        parts.append(_table(("stage", "figure", "on", "values"), rows))
    return "\n".join(parts)


def _values(values: dict) -> str:
    """The short values of a figure as a text; long ones are only in the file."""
    shown = []
    for key, value in values.items():
        word = f"{value:.4g}" if isinstance(value, float) else str(value)
        if len(word) <= 60:
            shown.append(f"{key} {word}")
    return ", ".join(shown).replace("|", "/")


def _table(header: tuple[str, ...], rows: list[tuple]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)
