"""stackexchange_tags, all labels: cold, warm, and against float64 objectives."""

from __future__ import annotations

import numpy as np

from experiments import _data, _one_vs_all
from experiments.bench.gpu_kit import _training
from experiments.bench.gpu_kit._kit import Kit

# Largest ratio of an objective to that of float64, the tolerance of training being 0.01.
WORST = 1.005


def run(kit: Kit) -> None:
    """Trains all labels. A rehearsal takes a synthetic set, for which the kit has no objectives."""
    if kit.small:
        X, Y = kit.made("small")
    else:
        split = _data.load_split("stackexchange_tags")
        X, Y = split.X, split.Y
    every = _one_vs_all.sample(Y, 0)
    for name in ("cold", "warm", "again"):
        found = _one_vs_all.Collected(Y.shape[1], X.shape[1])
        with kit.attempt(f"stackexchange_tags, {name}"):
            values = _training.train(kit, X, Y, every, found)
            stored = kit.references()
            if "stackexchange_tags/labels" in stored:
                ours = found.value[stored["stackexchange_tags/labels"]]
                worst = float(np.max(ours / stored["stackexchange_tags/values"]))
                values |= {"worst_ratio": worst, "right": worst <= WORST}
            kit.figure(f"stackexchange_tags, {name}", **values)
