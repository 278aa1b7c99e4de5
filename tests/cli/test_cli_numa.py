"""``xmcjax train`` with a process for each NUMA node of a made-up machine."""

import json
import re

import pytest

from tests.support.processes import CORES, kill_at_take, made_up_nodes
from xmcjax.models import LinearModel

pytestmark = [
    pytest.mark.usefixtures("no_wait_for_the_disk", "two_nodes"),
    pytest.mark.skipif(len(CORES) < 2, reason="needs two cores"),
]
SHARDS = ("--shard-size", 4)


@pytest.fixture
def two_nodes(tmp_path_factory, monkeypatch):
    """Two nodes of a core each, and one of memory alone."""
    made_up_nodes(tmp_path_factory.mktemp("nodes"), {0: CORES[0], 1: CORES[1], 2: ""}, monkeypatch)


def test_the_bytes_are_those_of_one_process(train, contents, files):
    options = (*SHARDS, "--n-jobs", 2, "--test", files / "test.txt")
    directory, result = train(*options, name="numa")
    assert "a process on each of node 0 (1 thread), node 1 (1 thread)" in result.done().out
    run = json.loads((directory / "run.json").read_text())[-1]
    assert [node["cores"] for node in run["nodes"]] == [str(core) for core in CORES[:2]]
    one, alone = train(*options, "--numa", "off", name="one")
    assert "numa" not in alone.out and contents(directory) == contents(one)
    # the same labels, statuses and scores are reported
    for begin in ("labels", "work", "P "):
        lines = [next(x for x in r.out.splitlines() if x.startswith(begin)) for r in (result, alone)]
        assert lines[0] == lines[1]
    # a thread needs no other process
    assert "numa" not in train(*SHARDS, "--n-jobs", 1, name="single")[1].done().out


def test_a_worker_that_dies_and_resume(train, contents, monkeypatch):
    with monkeypatch.context() as patch:
        # two workers have taken and sent about ten of the thirty labels by then
        killed = kill_at_take(patch, 6)
        directory, result = train(*SHARDS, "--n-jobs", 2, "--block-size", 2)
    line = result.refused("was ended by SIGKILL; what is complete is stored, --resume trains the rest")
    assert re.search(rf"the worker of NUMA node [01] \(process {killed[0]}\) was", line)
    assert LinearModel.load(directory, partial=True).missing()
    train(*SHARDS, "--n-jobs", 2, "--resume")[1].done()
    whole, _ = train(*SHARDS, "--n-jobs", 1, name="whole")
    assert contents(directory) == contents(whole)


def test_info_lists_the_nodes(xmcjax):
    line = next(x for x in xmcjax("info").out.splitlines() if x.startswith("numa"))
    nodes = [f"node {n} has 1 usable (cores {core})" for n, core in enumerate(CORES[:2])]
    assert line.split(None, 1)[1] == f"2 nodes: {', '.join(nodes)}"
