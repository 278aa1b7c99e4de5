"""The data of a run come to each host once, while other hosts work, whatever happens to the workers there."""

import asyncio
import concurrent.futures
import contextlib
import importlib
import os
import signal
import threading
import time
import types
from typing import Any

import distributed
import numpy as np
import pytest

from tests.support import dask_processes
from tests.support.lanes import assert_same_bits, small, train
from xmcjax.cluster import ClusterError, connected, train_on_cluster
from xmcjax.lanes import OneVsAll

dispatch = importlib.import_module("xmcjax.cluster._dispatch")
supplies = importlib.import_module("xmcjax.cluster._supply")
spool = importlib.import_module("xmcjax.cluster._spool")

pytestmark = pytest.mark.filterwarnings(
    # of Dask and what it stands on, when processes are killed or sockets closed under it
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore::DeprecationWarning:distributed",
)


class Workers:
    """Workers a0, a1, … of host a and so on, as the scheduler sees them."""

    def __init__(self, *addresses):
        self.threads = dict.fromkeys(addresses, 1)
        self.places = {address: (address[0], "/") for address in addresses}
        self.stopped, self.seconds = set(), dispatch.SILENCE + 1  # and since when
        self.having = {}  # the keys of tasks by worker

    def living(self):
        return [address for address in self.threads if address not in self.stopped]

    def processing(self):
        return {address: self.having.get(address, []) for address in self.threads}

    def dies(self, address):
        del self.threads[address], self.places[address]

    def silent(self, seconds):
        return [address for address in self.threads if address in self.stopped and self.seconds > seconds]

    def look(self):
        pass


class Task:
    """A future of Dask."""

    def __init__(self, workers, key="", status="pending", answer=None):
        self.workers, self.key, self.status, self.answer = workers, key, status, answer

    def add_done_callback(self, called):
        called(self)

    def done(self):
        return self.status != "pending"

    def exception(self):
        last: Any = types.SimpleNamespace(address=self.workers[-1])
        return distributed.KilledWorker("data", last, 0)


class Client:
    """A client of Dask that sends when it is told to."""

    def __init__(self):
        self.loop = types.SimpleNamespace(asyncio_loop=asyncio.new_event_loop())
        self.sent, self.tasks, self.fails = [], [], None

    def scatter(self, data, workers, **more):
        self.sent += workers

        async def sending():
            if self.fails is not None:
                raise self.fails
            return data

        return sending()

    def send(self):
        self.loop.asyncio_loop.run_until_complete(asyncio.sleep(0.01))

    def sync(self, function, callback_timeout):
        return self.loop.asyncio_loop.run_until_complete(function())

    async def gather(self, tasks, errors, asynchronous):
        return [task.answer for task in tasks]

    def submit(self, guarded, function, name, data, *, key, workers, **more):
        self.tasks.append(Task(workers, key))
        return self.tasks[-1]


@pytest.fixture
def client():
    found = Client()
    yield found
    found.send()  # of what was given up too
    found.loop.asyncio_loop.close()


def ended(client, supply, workers, status="finished"):
    for task in client.tasks:
        task.status = status
    supply.step(workers)


def test_data_are_sent_once_and_brought_once_to_each_host(client):
    workers = Workers("a0", "a1", "b0")
    supply = supplies.Supply(client, "run", {})
    supply.begin(workers, list(workers.threads))
    supply.step(workers)
    assert client.sent == ["a0"] and not client.tasks
    supply.begin(workers, ["a1"], time.monotonic())  # whose tasks find nothing yet
    client.send()
    supply.step(workers)
    supply.begin(workers, ["b0"], time.monotonic())
    assert client.sent == ["a0"] and [task.workers for task in client.tasks] == [["a0", "a1"], ["b0"]]
    assert supply.under_way() == {("a", "/"), ("b", "/")}
    before = time.monotonic()
    ended(client, supply, workers)
    assert not supply.under_way()
    supply.begin(workers, ["a1"], before)  # a task that was handed out before they came
    assert not supply.under_way()
    supply.begin(workers, ["a1"], time.monotonic())  # they are gone since
    assert supply.under_way() == {("a", "/")} and client.sent == ["a0", "a1"]


@pytest.mark.parametrize(
    ("having", "holder"),
    [({"a0": ["x", "y"], "a1": ["z"], "b1": ["z"]}, "b0"), ({}, "a0"), (None, "a0"), ({"a0": ["x"]}, "a1")],
)
def test_data_are_sent_to_the_worker_with_the_fewest_tasks(client, monkeypatch, having, holder):
    """The tasks that write them stay with a worker that has them, however busy it is."""
    workers = Workers("a0", "a1", "b0", "b1")
    monkeypatch.setattr(workers, "processing", lambda: having)
    supplies.Supply(client, "run", {}).begin(workers, ["a0"])
    supplies.Supply(client, "run", {}).begin(workers, list(workers.threads))
    assert client.sent[1] == holder and client.sent[0] in ("a0", "a1")


def test_a_worker_that_is_silent_is_given_up_and_another_one_of_its_host_is_asked(client):
    workers = Workers("a0", "a1", "b0")
    supply = supplies.Supply(client, "run", lambda: {})
    supply.begin(workers, ["a0", "b0"])
    workers.having = {"a0": [client.tasks[0].key]}
    supply.step(workers)
    workers.stopped = {"a0"}
    supply.step(workers)  # a reader may hold Python's lock
    assert supply.under_way() == {("a", "/"), ("b", "/")} and supply.reading()
    workers.seconds = 1000
    supply.step(workers)
    assert supply.under_way() == {("b", "/")}
    supply.begin(workers, ["a0"])
    assert [task.workers for task in client.tasks] == [["a0", "a1"], ["b0"], ["a1"]]
    workers.stopped = {"a0", "a1"}
    supply.step(workers)
    supply.begin(workers, ["a0", "a1"])  # nobody is there to ask
    assert supply.under_way() == {("b", "/")}


def test_sending_to_a_worker_that_is_silent_is_given_up(client):
    workers = Workers("a0", "b0")
    supply = supplies.Supply(client, "run", {})
    supply.begin(workers, ["a0", "b0"])
    workers.stopped = {"a0"}
    supply.step(workers)
    assert not supply.under_way()
    supply.begin(workers, ["b0"])
    client.send()
    supply.step(workers)
    assert client.sent == ["a0", "b0"] and [task.workers for task in client.tasks] == [["b0"]]


def test_what_a_silent_worker_holds_is_not_waited_for(client):
    workers = Workers("a0", "b0")
    supply = supplies.Supply(client, "run", {})
    supply.begin(workers, ["a0", "b0"])
    client.send()
    supply.step(workers)
    assert supply.under_way()
    workers.stopped = {"a0"}
    supply.step(workers)
    assert not supply.under_way()


@pytest.mark.parametrize(
    "how", ["before the data are sent", "while they are sent", "at once", "with what is sent", "later"]
)
def test_workers_that_die_over_the_data_are_counted(client, how):
    """The scheduler says that it has no such worker, or the worker is gone from its list."""
    supply = supplies.Supply(client, "run", {})

    def fail():
        workers = Workers("a0")
        client.fails = {"before the data are sent": KeyError("a0"), "while they are sent": OSError()}.get(how)
        supply.begin(workers, ["a0"])
        client.send()
        supply.step(workers)
        if how in ("at once", "with what is sent"):
            ended(client, supply, workers, "error" if how == "at once" else "cancelled")
        if how == "later":
            workers.dies("a0")
            supply.step(workers)
        assert not supply.under_way()

    for _ in range(dispatch.MOST_DEATHS):
        fail()
    supply.served()  # by a host that has them
    for _ in range(dispatch.MOST_DEATHS):
        fail()
    with pytest.raises(ClusterError, match="worker a0: it died while the data were brought to it"):
        fail()


def test_deaths_beside_hosts_that_have_the_data_are_no_matter(client):
    supply = supplies.Supply(client, "run", {})
    for _ in range(2 * dispatch.MOST_DEATHS):
        workers = Workers("a0", "b0")
        supply.begin(workers, ["a0", "b0"])
        client.send()
        supply.step(workers)
        client.tasks[-1].status = "finished"
        workers.dies("a0")
        supply.step(workers)
        assert not supply.under_way()


@pytest.mark.parametrize("which", ["the one that has them", "another one"])
@pytest.mark.parametrize("how", ["dies", "falls silent"])
def test_of_several_workers_of_a_host_only_the_one_that_has_the_task_matters(client, monkeypatch, which, how):
    clock = types.SimpleNamespace(now=1000.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(supplies, "time", clock)
    supply = supplies.Supply(client, "run", lambda: {})

    def lose(number):
        workers = Workers("a0", "a1", "a2")
        workers.seconds = 1000
        supply.begin(workers, ["a0"])
        supply.step(workers)  # the scheduler has not decided yet
        for having in "a0", "a1":  # which gave it first to one and then to another
            clock.now += 2
            workers.having = {having: [client.tasks[-1].key]}
            supply.step(workers)
        lost = "a1" if which == "the one that has them" else "a0"
        if how == "dies":
            workers.dies(lost)
            # the scheduler gives the task to another one before anybody has looked for the dead
            workers.having = {"a2": [client.tasks[-1].key]} if lost == "a1" else workers.having
        else:
            workers.stopped = {lost}
        clock.now += 2
        supply.step(workers)
        assert bool(supply.under_way()) == (which == "another one")
        client.tasks[-1].status = "cancelled" if supply.under_way() else "pending"
        supply.step(workers)

    for number in range(dispatch.MOST_DEATHS):
        lose(number)
    if how == "dies" or which == "another one":
        with pytest.raises(ClusterError, match="worker a1: it died while the data were brought to it"):
            lose(number)
    else:
        lose(number)


def test_another_key_error_is_an_error(client):
    client.fails = KeyError("other")
    workers = Workers("a0")
    supply = supplies.Supply(client, "run", {})
    supply.begin(workers, ["a0"])
    client.send()
    with pytest.raises(KeyError, match="other"):
        supply.step(workers)


def test_threads_of_a_worker_that_are_asked_at_once_read_once(tmp_path, monkeypatch):
    here = types.SimpleNamespace(local_directory=str(tmp_path / "worker"))
    monkeypatch.setattr(supplies, "worker_of_task", lambda: here)
    monkeypatch.setattr(supplies, "_writing", {})
    X, reads = np.ones((2, 3), np.float32), []

    def source():
        reads.append(X)
        time.sleep(0.2)  # for the others to come
        return {"X": X}

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: supplies._spool_here("run", source), range(4)))
    supplies._spool_here("run", source)
    assert len(reads) == 1
    found = spool.read(spool.folder_of(here.local_directory, "run"))
    assert found is not None
    np.testing.assert_array_equal(found["X"], X)


def test_work_goes_to_the_hosts_that_have_the_data_and_waits_where_none_has():
    """A host without them would answer at once, and be given the next piece."""
    steps = [{("a", "/"), ("b", "/")}] * 3 + [{("b", "/")}] * 5 + [set()] * 50
    handed = []

    class Immediate:
        status = "running"

        def scheduler_info(self):
            raise AssertionError

        def sync(self, function, callback_timeout):
            return asyncio.run(function())

        async def gather(self, tasks, errors, asynchronous):
            return [task.answer for task in tasks]

        def submit(self, guarded, function, common, work, *, key, workers, **more):
            handed.append((len(steps), workers))
            return Task(workers, key, "finished", work)

        def cancel(self, futures, force):
            pass

    supply = types.SimpleNamespace(
        begin=lambda *_: None, step=lambda _: steps.pop(0), under_way=lambda: steps[0], served=lambda: None
    )
    common = dask_processes.Common("run")
    dispatcher = dispatch.Dispatcher(Immediate(), None, common, supply, None)
    dispatcher.workers = Workers("a0", "b0")
    assert sorted(work for work, _ in dispatcher.results(iter(range(30)))) == list(range(30))
    assert {bool(workers) for _, workers in handed} == {True, False}
    assert all(left <= 55 and workers == (["a0"] if left > 50 else None) for left, workers in handed)


@contextlib.contextmanager
def begun(folder):
    """A cluster without workers, what hosts read there, in time, who brings it, and who has work done."""
    (folder / "reads").mkdir()
    source = dask_processes.MadeInTime(folder / "reads")
    with dask_processes.cluster(folder / "dask") as cluster, connected(cluster.address) as client:
        supply = supplies.Supply(client, "run", source)
        common = dask_processes.Common("run")
        dispatcher = dispatch.Dispatcher(client, dask_processes.look_for_data, common, supply, lambda _: None)
        yield cluster, client, source, supply, dispatcher


def test_work_that_was_meant_for_workers_that_are_gone_is_done_by_others(tmp_path):
    """The scheduler does not give it to a worker that comes when none is left, though others may do it."""
    results = []
    with begun(tmp_path) as (cluster, client, _, supply, dispatcher):
        alive = [cluster.worker(host="first")]

        def pieces():
            yield from range(6)
            alive.append(cluster.worker(host="late"))
            dask_processes.wait_until(lambda: len(client.nthreads()) == 2)
            dispatcher.workers.look()
            supply.begin(dispatcher.workers, list(dispatcher.workers.threads))  # to the one that came
            yield from range(6, 12)
            for worker in alive:
                worker.kill()
            dask_processes.wait_until(lambda: not client.nthreads())
            cluster.worker(host="first")
            yield from range(12, 20)

        client.wait_for_workers(1)
        dispatcher.workers.look()
        for number, answer in dispatcher.results(pieces()):
            assert answer[0] == number
            results.append(number)
        supply.remove()
    assert sorted(results) == list(range(20))


def test_a_host_that_comes_late_reads_once_while_the_others_work(tmp_path):
    results = []
    with begun(tmp_path) as (cluster, client, source, supply, dispatcher):
        cluster.worker(host="first")

        def pieces():
            number = 0

            def some(until):
                nonlocal number
                end = time.monotonic() + 60
                while not until():
                    assert time.monotonic() < end
                    yield number
                    number += 1

            yield from some(lambda: len(results) > 5)
            cluster.worker(host="late", threads=8)
            yield from some(lambda: source.reads("late"))
            count = len(results)
            yield from some(lambda: len(results) > count + 50)
            assert {host for _, host in results} == {"first"}
            (tmp_path / "reads" / "go").touch()
            yield from some(lambda: any(host == "late" for _, host in results))

        client.wait_for_workers(1)
        dispatcher.workers.look()
        for number, answer in dispatcher.results(pieces()):
            assert answer[0] == number
            results.append(answer)
        supply.remove()
    assert sorted(number for number, _ in results) == list(range(len(results)))
    assert source.reads("first") == source.reads("late") == 1


def test_a_run_that_ends_while_a_host_reads_leaves_nothing_there(tmp_path):
    with begun(tmp_path) as (cluster, client, source, supply, dispatcher):
        cluster.worker(host="late")
        workers = dispatcher.workers
        client.wait_for_workers(1)
        workers.look()
        supply.begin(workers, list(workers.threads))
        dask_processes.wait_until(lambda: source.reads("late"))
        supply.remove()

        def idle():
            threads = client.run(lambda dask_worker: list(dask_worker.active_threads))
            assert isinstance(threads, dict)
            return not any(threads.values())

        assert not idle()
        (tmp_path / "reads" / "go").touch()
        dask_processes.wait_until(idle)
        assert not list((tmp_path / "dask").rglob("xmcjax-*"))


def test_a_worker_that_is_stopped_as_the_data_are_sent_does_not_hold_up_others(tmp_path, monkeypatch):
    monkeypatch.setattr(dispatch, "SILENCE", 3)
    monkeypatch.setattr(supplies, "_PATIENCE", 1)
    X, Y = small(labels=60)
    results = {}
    with dask_processes.cluster(tmp_path / "dask") as cluster, connected(cluster.address) as client:
        for host in ("a", "b"):
            cluster.worker(host=host)
        client.wait_for_workers(2)
        pids = client.run(os.getpid)
        assert isinstance(pids, dict)
        workers = dispatch.Workers(client)
        workers.look()
        os.kill(pids[next(iter(workers.threads))], signal.SIGSTOP)  # to which they are sent
        train_on_cluster(client, X, Y, OneVsAll(), lambda r: results.__setitem__(r.label, r), shard_size=5)
    assert_same_bits(results, train(X, Y)[0])


def test_a_worker_that_is_busy_with_something_else_does_not_hold_up_another_one_of_its_host(tmp_path):
    X, Y = small()
    expected, _ = train(X, Y)
    with dask_processes.cluster(tmp_path / "dask", 2) as cluster, connected(cluster.address) as client:
        client.wait_for_workers(2)
        for number, worker in enumerate(sorted(client.nthreads())):
            begun, go = tmp_path / f"begun{number}", tmp_path / f"go{number}"

            def hold(begun=begun, go=go):  # within a function, so that it is sent whole
                begun.touch()
                while not go.exists():
                    time.sleep(0.02)

            held = client.submit(hold, workers=[worker], pure=False)
            dask_processes.wait_until(begun.exists)
            results = {}

            def work(results=results):
                with connected(cluster.address) as other:
                    train_on_cluster(other, X, Y, OneVsAll(), lambda r: results.__setitem__(r.label, r))

            training = threading.Thread(target=work)
            training.start()
            training.join(timeout=60)
            ended, still_held = not training.is_alive(), not held.done()
            go.touch()
            training.join(timeout=60)
            assert ended and still_held
            assert_same_bits(results, expected)
            held.result(timeout=60)
