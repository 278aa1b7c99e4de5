"""The NUMA nodes of this machine, as Linux shows them in sysfs, and the cores of each that may be used."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from xmcjax._cores import usable_cores

#: Where Linux shows the nodes; the variable ``XMCJAX_NODES`` names another folder of the same form.
SYSFS = "/sys/devices/system/node"


@dataclasses.dataclass(frozen=True)
class Node:
    """A NUMA node.

    Attributes:
        number: as the system counts.
        cores: those of it that this process may use, ascending; there is at least one.
    """

    number: int
    cores: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Share:
    """What a node contributes to a job."""

    node: Node
    threads: int


def parse_cores(text: str) -> tuple[int, ...]:
    """The cores of a list as the kernel writes it: "0-3,8,10-11"; none of an empty one.

    Raises:
        ValueError: another form.
    """
    cores: set[int] = set()
    for part in text.strip().split(",") if text.strip() else []:
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            raise ValueError(f"expected a list of cores such as 0-3,8, got {text.strip()!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        cores.update(range(first, last + 1))
    return tuple(sorted(cores))


def format_cores(cores: Iterable[int]) -> str:
    """A list of cores as the kernel writes it."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and core == runs[-1][1] + 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs)


def nodes(root: str | os.PathLike[str] | None = None, usable: Iterable[int] | None = None) -> list[Node]:
    """The nodes with cores for this process, in the order of their numbers; at least one.

    A node of memory alone has no cores and is left out. Where the system shows no nodes, or
    does not say which cores are usable, all usable cores are one node; usable cores that no node lists
    count to the first.

    Args:
        root: the folder of the nodes; None takes ``XMCJAX_NODES``, or :data:`SYSFS`.
        usable: cores that may be used; None for those that the process may run on.
    """
    if usable is None:
        if not hasattr(os, "sched_getaffinity"):
            return [Node(0, tuple(range(usable_cores())))]
        usable = os.sched_getaffinity(0)
    left = set(usable)
    folder = Path(root or os.environ.get("XMCJAX_NODES") or SYSFS)
    found: list[Node] = []
    numbers = [int(p.name[4:]) for p in folder.glob("node*") if p.name[4:].isdecimal()]
    for number in sorted(numbers):
        try:
            listed = parse_cores((folder / f"node{number}" / "cpulist").read_text())
        except OSError:
            continue  # a node that was taken away meanwhile
        cores = tuple(core for core in listed if core in left)
        left -= set(cores)
        if cores:
            found.append(Node(number, cores))
    if not found:
        return [Node(0, tuple(sorted(left)))]
    if left:
        found[0] = Node(found[0].number, tuple(sorted((*found[0].cores, *left))))
    return found


def share_threads(found: Sequence[Node], threads: int) -> list[Share]:
    """A number of threads over the nodes: one per core before any core has two, evenly among the nodes.

    Nodes that get none are left out.
    """
    given = [0] * len(found)
    for _ in range(threads):
        # where most cores are free, counted in whole rounds of the node's cores
        place = min(range(len(found)), key=lambda i: (given[i] // len(found[i].cores), given[i], i))
        given[place] += 1
    return [Share(node, count) for node, count in zip(found, given, strict=True) if count]
