"""``xmcjax train`` with a process for each NUMA node of a made-up machine."""

import json
import os
import re

import pytest

from tests.support.processes import kill_at_take
from xmcjax.models import LinearModel

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
pytestmark = [
    pytest.mark.usefixtures("no_wait_for_the_disk"),
    pytest.mark.skipif(len(CORES) < 2, reason="needs two cores"),
]


@pytest.fixture
def two_nodes(tmp_path_factory, monkeypatch):
    """Two nodes of a core each, and one of memory alone."""
    folder = tmp_path_factory.mktemp("nodes")
    for number, cores in ((0, CORES[0]), (1, CORES[1]), (2, "")):
        (folder / f"node{number}").mkdir()
        (folder / f"node{number}" / "cpulist").write_text(f"{cores}\n")
    monkeypatch.setenv("XMCJAX_NODES", str(folder))


@pytest.fixture
def train(xmcjax, files, tmp_path):
    def run(name, *options):
        begin = ("train", "--train", files / "train.txt", "--model", tmp_path / name)
        return tmp_path / name, xmcjax(*begin, "--transform", "unit", "--shard-size", 4, *options)

    return run


def test_the_bytes_are_those_of_one_process(two_nodes, train, contents, files):
    options = ("--n-jobs", 2, "--test", files / "test.txt")
    directory, result = train("numa", *options)
    assert result.code == 0, result.err
    assert "a process on each of node 0 (1 thread), node 1 (1 thread)" in result.out
    run = json.loads((directory / "run.json").read_text())[-1]
    assert [node["cores"] for node in run["nodes"]] == [str(core) for core in CORES[:2]]
    one, alone = train("one", *options, "--numa", "off")
    assert "numa" not in alone.out and contents(directory) == contents(one)
    # the same labels, statuses and scores are reported
    for begin in ("labels", "work", "P "):
        lines = [next(x for x in r.out.splitlines() if x.startswith(begin)) for r in (result, alone)]
        assert lines[0] == lines[1]
    # a thread needs no other process
    _, single = train("single", "--n-jobs", 1)
    assert single.code == 0 and "numa" not in single.out


def test_a_worker_that_dies_and_resume(two_nodes, train, contents, monkeypatch):
    options = ("--n-jobs", 2, "--block-size", 2)
    with monkeypatch.context() as patch:
        # two workers have taken and sent about ten of the thirty labels by then
        killed = kill_at_take(patch, 6)
        directory, result = train("m", *options)
    assert result.code == 2
    (line,) = result.err.splitlines()
    assert re.search(rf"the worker of NUMA node [01] \(process {killed[0]}\) was", line)
    assert LinearModel.load(directory, partial=True).missing()
    assert line.endswith("was ended by SIGKILL; what is complete is stored, --resume trains the rest")
    _, result = train("m", "--n-jobs", 2, "--resume")
    assert result.code == 0, result.err
    whole, _ = train("whole", "--n-jobs", 1)
    assert contents(directory) == contents(whole)


def test_info_lists_the_nodes(two_nodes, xmcjax):
    line = next(x for x in xmcjax("info").out.splitlines() if x.startswith("numa"))
    wanted = "2 nodes: " + ", ".join(
        f"node {n} has 1 usable (cores {core})" for n, core in enumerate(CORES[:2])
    )
    assert line.split(None, 1)[1] == wanted
