"""Training with a process for each NUMA node; two cores of this machine stand for two nodes."""

from __future__ import annotations

import os
import subprocess

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.lanes import assert_same_bits, small, train
from tests.support.problems import needs_native
from tests.support.processes import CORES, kill_at_take, made_up_nodes, node_workers, watch_labels_taken
from xmcjax import inits
from xmcjax.cli import train as train_command
from xmcjax.lanes import LabelWeights, OneVsAll, train_on_nodes
from xmcjax.penalties import L1

pytestmark = [needs_native, pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")]


@pytest.fixture
def shares(tmp_path_factory, monkeypatch):
    """One thread and two threads, on cores that stand for nodes 0 and 3."""
    made_up_nodes(tmp_path_factory.mktemp("nodes"), {0: CORES[1], 3: CORES[0]}, monkeypatch)
    return train_command.node_shares("auto", 3)


def on_nodes(X, Y, shares, sink=None, *, more=None, **options):
    results = {}
    summary = train_on_nodes(
        X, Y, OneVsAll(**options), sink or (lambda r: results.__setitem__(r.label, r)), shares, **more or {}
    )
    return results, summary


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("csr float32", dict(init=inits.OvaPrimalTree())),
        ("dense float64", dict(penalty=L1(), sparsify_rise=0.01, regularise_intercept=False)),
    ],
)
def test_the_bits_are_those_of_one_process(shares, form, options):
    X, Y = small(dtype=np.float64 if "64" in form else np.float32)
    X = X.toarray() if "dense" in form else X
    weights = LabelWeights(np.linspace(1, 3, Y.shape[1]), np.ones(Y.shape[1]))
    chosen = np.arange(Y.shape[1])[::-2]
    with jax.enable_x64("64" in form):
        reference, expected = train(X, Y, label_weights=weights, labels=chosen, **options)
    ours, summary = on_nodes(
        X, Y, shares, more=dict(label_weights=weights, labels=chosen), block_size=3, **options
    )
    assert_same_bits(ours, reference)
    for name in ("statuses", "newton_steps", "cg_steps"):
        assert getattr(summary, name) == getattr(expected, name)
    assert summary.steps > 0 and summary.active > 0 and summary.first_step_seconds > 0
    assert node_workers() == []


def test_every_process_stays_on_its_node(shares, monkeypatch):
    X, Y = small(n=400, labels=60)
    seen, alive = {}, []

    def watch(process):
        seen[process] = os.sched_getaffinity(process)
        alive.append(sorted(node_workers()))

    watch_labels_taken(monkeypatch, watch)
    on_nodes(X, Y, shares)
    assert sorted(seen.values(), key=min) == [{core} for core in CORES[:2]]
    assert alive[0] == sorted(seen) and node_workers() == []
    assert sorted(os.sched_getaffinity(0)) == CORES


def test_no_label_is_begun_after_the_first_no(shares):
    X, Y = small()
    asked = []

    def may_begin(label):
        asked.append(label)
        return len(asked) <= 11

    ours, _ = on_nodes(X, Y, shares, more=dict(may_begin=may_begin))
    assert sorted(ours) == sorted(asked[:11])


@pytest.mark.parametrize("count", [1, 3])
def test_a_process_that_dies_is_named(shares, monkeypatch, count):
    X, Y = small()
    killed = kill_at_take(monkeypatch, count)
    said = r"^the worker of NUMA node [03] \(process \d+\) was ended by SIGKILL$"
    with pytest.raises(ChildProcessError, match=said) as caught:
        on_nodes(X, Y, shares)
    assert f"(process {killed[0]})" in str(caught.value)
    assert node_workers() == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_error_here_ends_the_processes(shares, error):
    X, Y = small()

    def sink(result):
        raise error("enough")

    with pytest.raises(error, match="enough"):
        on_nodes(X, Y, shares, sink)
    assert node_workers() == []


def test_an_error_there_is_raised_here(shares):
    X, Y = small()
    with pytest.raises(ValueError, match="backend"):
        on_nodes(X, Y, shares, backend="none of these")
    assert node_workers() == []


def test_a_process_that_cannot_begin_ends_the_others(shares, monkeypatch):
    X, Y = small()
    begin, begun, before = subprocess.Popen, [], len(os.listdir("/proc/self/fd"))

    def fail_later(*args, **kwargs):
        if begun:
            raise OSError("no more processes")
        begun.append(begin(*args, **kwargs))
        return begun[0]

    monkeypatch.setattr(subprocess, "Popen", fail_later)
    with pytest.raises(OSError, match="no more processes"):
        on_nodes(X, Y, shares)
    assert begun[0].poll() is not None and node_workers() == []
    assert len(os.listdir("/proc/self/fd")) <= before


def test_what_is_refused_before_a_process_is_started(shares):
    X, Y = small()
    X = sp.csr_matrix(X, copy=True)
    X.data[3] = np.nan
    with pytest.raises(ValueError, match="found NaN"):
        on_nodes(X, Y, shares)
    with pytest.raises(ValueError, match="different labels"):
        on_nodes(small()[0], Y, shares, more=dict(labels=[1, 1]))


def test_nothing_is_imported_from_the_current_folder(shares, tmp_path, monkeypatch):
    X, Y = small()
    expected, _ = on_nodes(X, Y, shares)
    for name in ("xmcjax", "numpy", "scipy"):
        hostile = tmp_path / name
        hostile.mkdir()
        hostile.joinpath("__init__.py").write_text(f"open('{tmp_path}/was-run', 'a').write('{name} ')")
    monkeypatch.chdir(tmp_path)
    # What `python -c` and an interactive Python have first: the current folder, whatever it is by now.
    monkeypatch.syspath_prepend("")
    ours, _ = on_nodes(X, Y, shares)
    assert not (tmp_path / "was-run").exists()
    assert_same_bits(ours, expected)
