"""Memory of a block: the peak that the device reports, and the memory that the choice of lanes assumes."""

from __future__ import annotations

from experiments import _data, _one_vs_all
from experiments.bench.gpu_kit._kit import Kit


def run(kit: Kit) -> None:
    """Takes figures with more and more lanes, in this order because the peak of a process never falls."""
    import jax

    from xmcjax import linops
    from xmcjax.lanes import OneVsAll, lanes_that_fit, train_one_vs_all

    if kit.small:
        X, Y = kit.made("small")
    else:
        split = _data.load_split("stackexchange_tags")
        X, Y = split.X, split.Y
    device = jax.local_devices()[0]
    backend = "gpu" if linops.gpu_ready() else "jnp"
    with kit.attempt("lanes"):
        stats = device.memory_stats() or {}
        kit.figure("lanes", chosen=lanes_that_fit(linops.make(X, backend=backend)), memory_stats=stats)
    labels = _one_vs_all.sample(Y, kit.size(600, 10))
    for lanes in kit.size((32, 128, 512, 1024), (4,)):
        with kit.attempt(f"memory, {lanes} lanes"):
            train_one_vs_all(X, Y, OneVsAll(block_size=lanes), lambda result: None, labels=labels)
            stats = device.memory_stats() or {}
            peak = stats.get("peak_bytes_in_use")
            of_rows_and_columns = 4 * lanes * sum(X.shape)
            kit.figure(
                f"memory, {lanes} lanes",
                peak_bytes=peak,
                bytes_of_an_array_of_rows_and_columns=of_rows_and_columns,
                arrays=None if peak is None else peak / of_rows_and_columns,
            )
