"""The formula of a run on a cluster and its simulation."""

import dataclasses

import pytest

from experiments import cluster_scaling
from xmcjax.lanes import Forecast

SHAPE = (10_000, 2_000, 500_000, 30_000, 40_000)
COSTS = cluster_scaling.Costs(task=1e-3, restart=2.0)
ALIKE = cluster_scaling.Options(threads=4, failures=1e9, spread=0.0, shard_size=100)


def worked_out(machines, options=ALIKE, seconds=80_000.0, costs=COSTS):
    """Of labels that take so many seconds together."""
    return cluster_scaling.formula(SHAPE, machines, Forecast(100, 1.0, seconds, 1e6), options, costs)


def simulated(machines, options=ALIKE, costs=COSTS, seed=0):
    found = worked_out(machines, options, costs=costs)
    return cluster_scaling.simulated(found, machines, options, costs, seed)


def test_machines_that_are_alike_and_do_not_fail_take_what_the_formula_says():
    for machines in (1, 3, 10):
        found, made = worked_out(machines), simulated(machines)
        assert made["failures"] == made["lost_tasks"] == 0
        assert made["seconds"] == pytest.approx(found["seconds"], rel=0.06)
    assert found["sent_bytes"] == 10 * found["data_bytes"] and found["tasks"] == 400
    # 400 tasks of 200 s on 40 threads: ten each
    assert found["working_s"] == pytest.approx(2000) and found["one_task_s"] == pytest.approx(200)


def test_a_scheduler_too_slow_for_its_tasks_decides():
    slow = dataclasses.replace(COSTS, task=20.0)
    assert worked_out(10, costs=slow)["seconds"] == pytest.approx(400 * 20, rel=0.01)
    assert simulated(10, costs=slow)["seconds"] == pytest.approx(400 * 20, rel=0.05)


def test_failures_lose_tasks_and_time_and_all_tasks_are_done():
    often = dataclasses.replace(ALIKE, failures=0.01)  # one in a quarter of an hour
    made = simulated(10, often)
    assert made["failures"] > 5 and made["lost_tasks"] > 0
    assert made["seconds"] > simulated(10)["seconds"]
    assert made == simulated(10, often) != simulated(10, often, seed=1)


def test_slower_machines_end_later():
    assert simulated(10, dataclasses.replace(ALIKE, spread=0.3))["seconds"] > simulated(10)["seconds"]


def test_fewer_threads_where_memory_does_not_hold_them():
    large = (30_000_000, 1_000_000, 1_500_000_000, 300_000_000, 100_000_000)
    forecast = Forecast(100, 1.0, 1e8, 1e9)
    found = cluster_scaling.formula(large, 10, forecast, dataclasses.replace(ALIKE, threads=64), COSTS)
    assert 0 < found["threads"] < 64 and found["held_bytes"] > 256e9


@pytest.mark.slow
def test_cluster_scaling_small(tmp_path):
    result = cluster_scaling.run(cluster_scaling.Options(small=True, out=tmp_path).chosen())
    assert 0 < result["costs"]["task"] < 1 and 0 < result["costs"]["restart"] < 60
    (row,) = result["rows"]
    assert row["formula"]["tasks"] == 40 and row["simulated"]["seconds"] > 0
    assert "| made | 4 |" in cluster_scaling.markdown(result)
