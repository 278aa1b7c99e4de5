"""The products of a block of a set of the size of Amazon-670K."""

from __future__ import annotations

from experiments.bench.gpu_kit import _training
from experiments.bench.gpu_kit._kit import Kit


def run(kit: Kit) -> None:
    """512 lanes, and 128 for comparison."""
    full = [("gpu", lanes, ("start", "end")) for lanes in (512, 128)]
    X, Y = kit.made(kit.size("amazon_670k", "small"))
    sweep = kit.size(full, [("jnp", 16, ("start",))])
    _training.products(kit, "amazon_670k", X, Y, sweep, kit.size(5.0, 1.0))
