"""The products of a block of stackexchange_tags: backends, lanes and masks."""

from __future__ import annotations

from experiments import _data
from experiments.bench.gpu_kit import _training
from experiments.bench.gpu_kit._kit import Kit

Sweep = list[tuple[str, int, tuple[str, ...]]]
ALL = ("start", "end", "random", "none")


def run(kit: Kit) -> None:
    """512 lanes first, which training takes."""
    if kit.small:
        few: Sweep = [("gpu", 33, ("start", "random")), ("jnp", 33, ("none",))]
        X, Y = kit.made("small")
        _training.products(kit, "stackexchange_tags", X, Y, few, 1.0)
        return
    split = _data.load_split("stackexchange_tags")
    sweep: Sweep = [("gpu", 512, ALL), ("gpu", 128, ALL), ("gpu", 256, ALL), ("gpu", 1024, ALL)]
    sweep += [("jnp", 512, ALL[:2]), ("jnp", 128, ALL[:2])]
    _training.products(kit, "stackexchange_tags", split.X, split.Y, sweep, 3.0)
