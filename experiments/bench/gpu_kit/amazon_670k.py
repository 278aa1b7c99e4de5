"""A made set of the size of Amazon-670K: as many labels as there is time for, scaled to all."""

from __future__ import annotations

from experiments import _one_vs_all
from experiments.bench.gpu_kit import _training
from experiments.bench.gpu_kit._kit import Kit

# The next, larger figure is begun if it is estimated to take at most this part of the time left.
PART = 0.8


def run(kit: Kit) -> None:
    """Takes figures of more and more labels, up to a tenth of all."""
    X, Y = kit.made(kit.size("amazon_670k", "small"))
    every = len(_one_vs_all.sample(Y, 0))
    counts = kit.size((512, 5_000, 67_009) if kit.on == "device" else (200, 1_000, 10_000), (10, 20))
    rate = 0.0
    for count in counts:
        if rate * count > PART * kit.left():
            break
        with kit.attempt(f"amazon_670k, {count} labels"):
            values = _training.train(kit, X, Y, _one_vs_all.sample(Y, count))
            rate = values["seconds_per_label"]
            once = values["setup_seconds"] + values["first_step_seconds"]
            values |= {"all_labels": every, "scaled_seconds": once + rate * every}
            kit.figure(f"amazon_670k, {count} labels", **values)
