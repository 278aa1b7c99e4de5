"""A cluster gives the results of one process, to the bit, whatever happens to its workers."""

import importlib
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import dask.config
import distributed  # here, so that no change of Dask's settings in a test holds its defaults
import numpy as np
import psutil
import pytest
from scipy import sparse

from tests.support import dask_processes
from tests.support.lanes import assert_same_bits, small
from xmcjax import lanes
from xmcjax.cluster import (
    ClusterError,
    FromUrl,
    connected,
    local_cluster,
    train_on_cluster,
)
from xmcjax.data import save_npz
from xmcjax.inits import Pretrained
from xmcjax.lanes import LabelWeights, OneVsAll
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.models import LinearModel, ShardWriter

pytestmark = pytest.mark.filterwarnings(
    # of Dask and what it stands on, when processes are killed or sockets closed under it
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::pytest.PytestUnhandledThreadExceptionWarning",
    "ignore::DeprecationWarning:distributed",
    "ignore::RuntimeWarning",
)


def alone(X, Y, options=OneVsAll(), **more):  # noqa: B008 – frozen
    results = {}
    summary = lanes.train_one_vs_all(X, Y, options, lambda r: results.__setitem__(r.label, r), **more)
    return results, summary


def together(client, X, Y, options=OneVsAll(), **more):  # noqa: B008 – frozen
    results = {}

    def sink(result):
        assert result.label not in results
        results[result.label] = result

    summary = train_on_cluster(client, X, Y, options, sink, **more)
    return results, summary


@pytest.mark.parametrize("case", ["sparse", "float64", "dense", "hinge", "weights", "rows", "some"])
def test_cluster_gives_the_results_of_one_process(client, case):
    X, Y = small(dtype=np.float64 if case == "float64" else np.float32, labels=60)
    options, more = OneVsAll(), {}
    if case == "dense":
        X = X.toarray()
    if case == "hinge":
        options = OneVsAll(loss=MARGIN_LOSSES["hinge"])
    if case == "weights":
        more = dict(label_weights=LabelWeights(np.linspace(1, 2, 60), np.linspace(0.5, 1, 60)))
    if case == "rows":
        more = dict(sample_weight=np.arange(len(Y.toarray())) % 3)
    if case == "some":
        more = dict(labels=np.array([3, 50, 7, 4]))
    found, summary = together(client, X, Y, options, **more)
    expected, reference = alone(X, Y, options, **more)
    assert_same_bits(found, expected)
    assert summary.statuses == reference.statuses and summary.newton_steps == reference.newton_steps


def model(folder, d, labels, train, **more):
    meta = {"n_features": d, "n_labels": labels, "dtype": "float32"}
    with ShardWriter(folder, meta, shard_size=20, **more) as writer:
        train(writer)
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def of_one_process(folder, X, Y):
    def train(writer):
        lanes.train_one_vs_all(X, Y, OneVsAll(), lambda r: writer.add(*r[:7]))

    return model(folder, X.shape[1], Y.shape[1], train)


def test_workers_write_the_shards_of_one_process(client, tmp_path, monkeypatch):
    X, Y = small(labels=90)
    expected = of_one_process(tmp_path / "one", X, Y)
    written = []
    parts = []
    adopt = ShardWriter.adopt
    monkeypatch.setattr(ShardWriter, "adopt", lambda self, shard: written.append(shard) or adopt(self, shard))
    # a task is a whole shard where there are many of them
    monkeypatch.setattr(importlib.import_module("xmcjax.cluster._blocks"), "_LEAST", 20)

    def train(writer):
        train_on_cluster(client, X, Y, OneVsAll(), writer, done=parts.append)

    assert model(tmp_path / "many", X.shape[1], 90, train) == expected
    # a worker that was silent may have written one too
    assert len({shard.file.sha256 for shard in written}) == 5
    assert sorted(result.label for part in parts for result in part.results) == list(range(90))
    assert LinearModel.load(tmp_path / "many", verify="full").n_labels == 90


def test_run_that_was_stopped_is_resumed(client, tmp_path):
    X, Y = small(labels=90)
    expected = of_one_process(tmp_path / "one", X, Y)

    def first(writer):
        summary = train_on_cluster(client, X, Y, OneVsAll(), writer, may_begin=lambda label: label < 60)
        assert sum(summary.statuses.values()) == 60

    model(tmp_path / "two", X.shape[1], 90, first)

    def second(writer):
        assert writer.missing().tolist() == list(range(60, 90))
        train_on_cluster(client, X, Y, OneVsAll(), writer, labels=writer.missing())

    assert model(tmp_path / "two", X.shape[1], 90, second, resume=True) == expected


def pretrained(folder, X, Y, C):
    def train(writer):
        lanes.train_one_vs_all(X, Y, OneVsAll(C=C), lambda r: writer.add(*r[:7]))

    model(folder, X.shape[1], Y.shape[1], train)


def test_workers_start_from_the_model_of_the_client_wherever_they_run(client, tmp_path, monkeypatch):
    X, Y = small()
    monkeypatch.chdir(tmp_path)
    pretrained(tmp_path / "m", X, Y, 1.0)
    options = OneVsAll(init=Pretrained("m"), max_iter=0)
    assert_same_bits(together(client, X, Y, options)[0], alone(X, Y, options)[0])

    def replaced(label):  # before the first task, as if the hosts had another model there
        if not (tmp_path / "before").exists():
            (tmp_path / "m").rename(tmp_path / "before")
            pretrained(tmp_path / "m", X, Y, 2.0)
        return True

    with pytest.raises(ClusterError, match=r"worker tcp://.*/m: expected the model of the client, found an"):
        together(client, X, Y, options, may_begin=replaced)


def test_hosts_read_the_data_themselves(client, tmp_path):
    X, Y = small(seed=4)
    assert_same_bits(together(client, X, Y, source=dask_processes.Made(4))[0], alone(X, Y)[0])
    save_npz(tmp_path / "data.npz", X, Y)
    source = FromUrl((tmp_path / "data.npz").as_uri())
    assert_same_bits(together(client, X, Y, source=source)[0], alone(X, Y)[0])
    with pytest.raises(ClusterError, match=r"worker tcp://.*: .*nowhere.npz"):
        together(client, X, Y, source=FromUrl((tmp_path / "nowhere.npz").as_uri()))
    with pytest.raises(ClusterError, match=r"worker tcp://.*: expected the data of the run, .* others"):
        together(client, X, Y, source=dask_processes.Made(5))


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_that_die_over_the_data(tmp_path, workers):
    """Of one worker there is none for a while, after each death."""
    X, Y = small(seed=4)
    (tmp_path / "some").mkdir()
    (tmp_path / "all").mkdir()
    with local_cluster(workers) as client:
        source = dask_processes.MadeByTheSurvivor(tmp_path / "some", 3)
        assert_same_bits(together(client, X, Y, source=source)[0], alone(X, Y)[0])
        assert len(list((tmp_path / "some").iterdir())) == 3
        source = dask_processes.MadeByTheSurvivor(tmp_path / "all", 100)
        with pytest.raises(ClusterError, match=r"worker tcp://.*: it died while the data were"):
            together(client, X, Y, source=source)


# enough work for something to happen meanwhile
def busy():
    return small(n=3000, d=2000, labels=1200, seed=2)


def test_a_block_whose_workers_died_is_cut_as_long_as_it_has_labels():
    blocks = importlib.import_module("xmcjax.cluster._blocks")
    left, sizes = [blocks.Block(1000, 2000, True)], []
    while left:
        parts = blocks.cut(left.pop())
        if len(parts) == 1:
            sizes.append(parts[0].last - parts[0].first)
        else:
            assert not any(part.shard for part in parts)
            assert all(a.last == b.first for a, b in itertools.pairwise(parts))
            left += parts
    assert sum(sizes) == 1000 and min(sizes) >= 15 and max(sizes) < 32


def test_workers_that_are_killed_cost_no_label(monkeypatch):
    X, Y = busy()
    expected, _ = alone(X, Y)
    found, killed, cuts = {}, [], []
    training = importlib.import_module("xmcjax.cluster._train")
    plain = training.cut
    monkeypatch.setattr(training, "cut", lambda block: cuts.append(plain(block)) or cuts[-1])
    with local_cluster(2) as client:

        def sink(result):
            found[result.label] = result
            # chance decides whether one that is killed has a whole block
            again = len(found) % 100 == 50 and not any(len(parts) > 1 for parts in cuts)
            if again or len(found) in (150, 400, 700):
                killed.append(len(found))
                dask: Any = client
                tasks, nannies = dask.processing(), dask.cluster.workers.values()
                busy_ones = [nanny.pid for nanny in nannies if tasks.get(nanny.worker_address) and nanny.pid]
                dask_processes.kill_one([*busy_ones, *dask_processes.children(os.getpid())])

        train_on_cluster(client, X, Y, OneVsAll(), sink, shard_size=50)
    assert killed
    assert any(len(parts) > 1 for parts in cuts)
    assert_same_bits(found, expected)


def test_results_that_died_with_their_workers_are_made_again():
    X, Y = small(labels=60)
    found = {}
    with local_cluster(2) as client:

        def wait_until(holds):
            dask_processes.wait_until(lambda: holds({state.status for state in client.futures.values()}))

        def sink(result):
            if not found:
                wait_until(lambda states: "pending" not in states)
                for worker in dask_processes.children(os.getpid()):
                    os.kill(worker, signal.SIGKILL)
                wait_until(lambda states: "lost" in states)
            found[result.label] = result

        train_on_cluster(client, X, Y, OneVsAll(), sink, shard_size=10)
    assert_same_bits(found, alone(X, Y)[0])


def test_labels_of_a_worker_that_is_silent_are_given_to_others(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.import_module("xmcjax.cluster._dispatch"), "SILENCE", 3)
    X, Y = busy()
    expected, _ = alone(X, Y)
    found = {}
    with dask_processes.cluster(tmp_path / "dask", 1) as cluster, connected(cluster.address) as client:
        stopped = cluster.worker()
        client.wait_for_workers(2)

        def sink(result):
            if not found:
                stopped.send_signal(signal.SIGSTOP)
            found[result.label] = result

        train_on_cluster(client, X, Y, OneVsAll(), sink, shard_size=50)
    assert_same_bits(found, expected)


def test_a_scheduler_that_is_gone_ends_the_run(tmp_path):
    X, Y = busy()
    begin = []
    with dask_processes.cluster(tmp_path / "dask", 1) as cluster, connected(cluster.address) as client:

        def sink(result):
            if not begin:
                begin.append(time.monotonic())
                cluster.scheduler.kill()

        with pytest.raises(ClusterError, match=rf"the scheduler {cluster.address} (is gone|does not answer)"):
            train_on_cluster(client, X, Y, OneVsAll(), sink, shard_size=50)
    assert time.monotonic() - begin[0] < 60


def test_no_worker_and_no_scheduler(tmp_path, monkeypatch):
    dispatch = importlib.import_module("xmcjax.cluster._dispatch")
    monkeypatch.setattr(dispatch, "PATIENCE", 1)
    monkeypatch.setattr(importlib.import_module("xmcjax.cluster._clients"), "CONNECT", 1)
    with dask_processes.cluster(tmp_path / "dask") as cluster:
        with connected(cluster.address) as client, pytest.raises(ClusterError, match="has had no worker"):
            together(client, *small())
        address = cluster.address
    with (
        pytest.raises(ClusterError, match=r"a Dask scheduler at .*, found none"),
        connected(address),
    ):
        pass


@pytest.mark.parametrize(
    ("prelude", "said"),
    [
        ("import xmcjax; xmcjax.__version__ = '0.0.1'", r"expected xmcjax .* found 0\.0\.1"),
        ("import os, errno\ndef full(d): raise OSError(errno.ENOSPC, 'x')\nos.fsync = full", "No space left"),
        (
            "import os, errno\ndef broken(d): raise OSError(errno.EIO, 'x')\nos.fsync = broken",
            "Input/output error",
        ),
    ],
)
def test_worker_that_cannot_do_its_work(tmp_path, prelude, said, monkeypatch):
    monkeypatch.setattr(importlib.import_module("xmcjax.cluster._blocks"), "_LEAST", 20)
    X, Y = small(labels=90)
    expected = of_one_process(tmp_path / "one", X, Y)
    with dask_processes.cluster(tmp_path / "dask") as cluster, connected(cluster.address) as client:
        cluster.worker(prelude)

        def train(writer):
            with pytest.raises(ClusterError, match=rf"worker tcp://127.0.0.1:\d+: .*{said}"):
                train_on_cluster(client, X, Y, OneVsAll(), writer)

        model(tmp_path / "many", X.shape[1], 90, train)

    def resumed(writer):
        lanes.train_one_vs_all(X, Y, OneVsAll(), lambda r: writer.add(*r[:7]), labels=writer.missing())

    assert model(tmp_path / "many", X.shape[1], 90, resumed, resume=True) == expected


def test_workers_of_different_processors_are_told(tmp_path):
    X, Y = busy()
    kinds, found = set(), {}
    with dask_processes.cluster(tmp_path / "dask", 1) as cluster, connected(cluster.address) as client:
        cluster.worker(XMCJAX_ISA="baseline")
        client.wait_for_workers(2)
        done = lambda part: kinds.add(part.isa)  # noqa: E731
        train_on_cluster(client, X, Y, OneVsAll(), lambda r: found.__setitem__(r.label, r), done=done)
    expected, _ = alone(X, Y)
    assert "baseline" in kinds
    for label, result in found.items():
        reference = expected[label]
        assert result.status == reference.status
        assert result.value == pytest.approx(reference.value, rel=1e-2, nan_ok=True)


def test_a_local_cluster_listens_on_the_loopback_interface_alone(client):
    own = psutil.Process()
    ports = [c for p in (own, *own.children(recursive=True)) for c in p.net_connections("inet")]
    listening = [c.laddr.ip for c in ports if c.status == psutil.CONN_LISTEN]
    assert len(listening) >= 4 and set(listening) == {"127.0.0.1"}


def test_two_clients_share_a_cluster(client):
    X, Y = small(labels=60)
    other, _ = small(seed=7, labels=60)
    results = {}

    def second():
        with connected(client.scheduler.address) as another:
            results["other"], _ = together(another, other, Y)

    thread = threading.Thread(target=second)
    thread.start()
    results["own"], _ = together(client, X, Y)
    thread.join(timeout=120)
    assert_same_bits(results["own"], alone(X, Y)[0])
    assert_same_bits(results["other"], alone(other, Y)[0])


def test_nothing_is_left_on_the_host(client, tmp_path):
    folders = client.run(lambda dask_worker: os.path.dirname(dask_worker.local_directory))
    together(client, *small())
    for folder in folders.values():
        assert not [name for name in os.listdir(folder) if name.startswith("xmcjax-")]


def test_worker_that_dies_as_it_starts_is_started_again(monkeypatch):
    calls, start = [], distributed.LocalCluster

    def fail_once(*arguments, **more):
        calls.append(more["n_workers"])
        if len(calls) == 1:
            raise RuntimeError("Nanny failed to start.")
        return start(*arguments, **more)

    monkeypatch.setattr(distributed, "LocalCluster", fail_once)
    with local_cluster(1) as client:
        assert client.submit(len, "ab").result() == 2
    assert calls == [1, 1]


def test_a_worker_that_is_long_in_starting_again_is_waited_for():
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "10ms"}), local_cluster(1) as client:
        asked = client.run(os.getpid)
        assert isinstance(asked, dict)
        ((before, pid),) = asked.items()
        os.kill(pid, signal.SIGKILL)
        dask_processes.wait_until(lambda: client.nthreads() and before not in client.nthreads(), pause=0.1)
        assert client.cluster is not None and list(client.cluster.workers) == [0]


def test_workers_that_die_as_they_start(monkeypatch):
    def fail(self, *arguments, **more):
        raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr("distributed.LocalCluster.__init__", fail)
    monkeypatch.setattr("distributed.LocalCluster.__del__", lambda self: None)
    said = r"2 processes of a local cluster could not be started: Nanny failed to start\."
    with pytest.raises(ClusterError, match=said), local_cluster(2):
        pass


def test_folders_of_processes_that_were_killed_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(timeout=60)
    names = [f"xmcjax-local-{ended.pid}-a", f"xmcjax-local-{os.getpid()}-b", "xmcjax-local-x-c"]
    for name in names:
        (tmp_path / name).mkdir()
    with local_cluster(1):
        assert not (tmp_path / names[0]).exists()
    assert sorted(path.name for path in tmp_path.glob("xmcjax-*")) == sorted(names[1:])


def test_labels_without_rows(client):
    Y = sparse.csr_array((200, 5), dtype=np.float32)
    found, summary = together(client, small()[0], Y)
    assert len(found) == 5 and all(not len(result.indices) for result in found.values())
    assert sum(summary.statuses.values()) == 5
