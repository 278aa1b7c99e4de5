"""NUMA nodes of made-up machines, and threads."""

import os

import pytest
import threadpoolctl

from tests.support.internals import blas_threads, topology


@pytest.fixture
def machine(tmp_path):
    """Makes a folder like /sys/devices/system/node of {node number: cpulist}."""

    def make(lists):
        for number, cores in lists.items():
            (tmp_path / f"node{number}").mkdir()
            if cores is not None:
                (tmp_path / f"node{number}" / "cpulist").write_text(cores + "\n")
        for name in ("possible", "online", "has_cpu"):
            (tmp_path / name).write_text("0-1\n")
        (tmp_path / "power").mkdir()
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("0-3\n", (0, 1, 2, 3)),
        ("5", (5,)),
        ("0-1,4,8-9", (0, 1, 4, 8, 9)),
        ("12,2-3", (2, 3, 12)),
        ("", ()),
        ("\n", ()),
    ],
)
def test_lists_of_cores(text, cores):
    assert topology.parse_cores(text) == cores
    assert topology.parse_cores(topology.format_cores(cores)) == cores


@pytest.mark.parametrize("text", ["0-", "a", "1,,2", "1-2-3", "-1"])
def test_lists_that_are_none(text):
    with pytest.raises(ValueError, match="expected a list of cores such as 0-3,8, got "):
        topology.parse_cores(text)


def test_lists_are_written_as_the_kernel_does():
    assert topology.format_cores([9, 0, 1, 2, 8, 5]) == "0-2,5,8-9"
    assert topology.format_cores([]) == ""


# name: cpulists, cores that may be used, what is found
MACHINES = {
    "two nodes": ({0: "0-3", 1: "4-7"}, range(8), {0: "0-3", 1: "4-7"}),
    "four nodes with hyper-threads": (
        {0: "0-1,8-9", 1: "2-3,10-11", 2: "4-5,12-13", 3: "6-7,14-15"},
        range(16),
        {0: "0-1,8-9", 1: "2-3,10-11", 2: "4-5,12-13", 3: "6-7,14-15"},
    ),
    "interleaved numbers": ({0: "0,2,4", 1: "1,3,5"}, range(6), {0: "0,2,4", 1: "1,3,5"}),
    "more than ten nodes": ({n: str(n) for n in range(12)}, range(12), {n: str(n) for n in range(12)}),
    "a node of memory alone": ({0: "0-1", 1: "", 2: "2-3"}, range(4), {0: "0-1", 2: "2-3"}),
    "numbers with gaps": ({0: "0", 4: "6-7"}, [0, 6, 7], {0: "0", 4: "6-7"}),
    "restricted to a part of each": ({0: "0-3", 1: "4-7"}, [1, 2, 7], {0: "1-2", 1: "7"}),
    "restricted to one node": ({0: "0-3", 1: "4-7"}, [5, 6], {1: "5-6"}),
    "cores that no node lists": ({0: "0-1", 1: "2-3"}, range(6), {0: "0-1,4-5", 1: "2-3"}),
    "a node that is going away": ({0: None, 1: "0-1"}, range(2), {1: "0-1"}),
    "no nodes": ({}, [3, 4], {0: "3-4"}),
}


@pytest.mark.parametrize("name", MACHINES)
def test_machines(machine, name):
    lists, usable, expected = MACHINES[name]
    found = topology.nodes(machine(lists), usable)
    assert {node.number: topology.format_cores(node.cores) for node in found} == expected
    assert [node.number for node in found] == sorted(expected)


def test_a_system_that_shows_no_nodes(tmp_path):
    assert topology.nodes(tmp_path / "none", [0, 1]) == [topology.Node(0, (0, 1))]


def test_this_machine_and_the_variable(machine, monkeypatch):
    usable = os.sched_getaffinity(0)
    assert sorted(core for node in topology.nodes() for core in node.cores) == sorted(usable)
    first, *rest = sorted(usable)
    monkeypatch.setenv("XMCJAX_NODES", str(machine({0: str(first), 1: topology.format_cores(rest)})))
    assert topology.nodes()[0] == topology.Node(0, (first,)) and len(topology.nodes()) == 1 + bool(rest)


TWO = [topology.Node(0, (0, 1, 2, 3)), topology.Node(1, (4, 5))]


@pytest.mark.parametrize(
    ("threads", "expected"), [(1, [1]), (2, [1, 1]), (4, [2, 2]), (6, [4, 2]), (7, [4, 3]), (12, [8, 4])]
)
def test_threads_fill_the_cores(threads, expected):
    shares = topology.share_threads(TWO, threads)
    assert [share.threads for share in shares] == expected
    assert [share.node for share in shares] == TWO[: len(expected)]


def test_nodes_without_a_thread_are_left_out():
    many = [topology.Node(n, (n,)) for n in range(4)]
    assert topology.share_threads(many, 2) == [topology.Share(many[0], 1), topology.Share(many[1], 1)]


def test_a_limit_of_blas_is_kept():
    def counts():
        return {one["num_threads"] for one in threadpoolctl.threadpool_info() if one["user_api"] == "blas"}

    with threadpoolctl.threadpool_limits(2, "blas"):
        with blas_threads(3):
            assert counts() == {2}
        with blas_threads(1):
            assert counts() == {1}
        assert counts() == {2}
