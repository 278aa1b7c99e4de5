"""Processes that join one mesh: by given numbers, by those of SLURM and Open MPI, and on a Dask cluster."""

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import jax
import pytest

from tests.support import dask_processes
from tests.support import multinomial as helpers
from tests.support.processes import ROOT, python, running
from xmcjax.cluster import ClusterError, connected, join_mesh, local_cluster, run_on_mesh

_dispatch, _mesh = (importlib.import_module(f"xmcjax.cluster.{name}") for name in ("_dispatch", "_mesh"))

PROGRAM = """
import json, sys
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
from xmcjax.cluster import join_mesh
mesh = join_mesh(*json.loads(sys.argv[1]))
assert join_mesh() == mesh  # what runs is taken
place = jax.process_index()
split, same = (NamedSharding(mesh, spec) for spec in (P(mesh.axis_names), P()))
own = jax.make_array_from_process_local_data(split, np.array([1.0 + place]))
print(json.dumps([mesh.size, place, float(jax.jit(sum, out_shardings=same)(own))]))
"""


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def numbers(place, port):
    return [f"127.0.0.1:{port}", 2, place], {}


def of_job(job):
    """Where process 0 is to listen, at the port that JAX takes from the number of a job."""
    return {"JAX_COORDINATOR_BIND_ADDRESS": f"127.0.0.1:{job % 4096 + 61440}"}


def slurm(place, port):
    job = {"SLURM_JOB_ID": str(port), "SLURM_STEP_NODELIST": "127.0.0.1"} | of_job(port)
    return [], job | {"SLURM_NTASKS": "2", "SLURM_PROCID": str(place), "SLURM_LOCALID": str(place)}


def open_mpi(place, port):
    uri = {"OMPI_MCA_orte_hnp_uri": f"{port * 4096}.0;tcp://127.0.0.1:1234"} | of_job(port)
    sizes = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": str(place)}
    return [], uri | sizes | {"OMPI_COMM_WORLD_LOCAL_RANK": str(place)}


@pytest.mark.parametrize("started", [numbers, slurm, open_mpi])
def test_two_processes_find_each_other(started):
    port, running = free_port(), []
    for place in range(2):
        arguments, more = started(place, port)
        command = [sys.executable, "-c", PROGRAM, json.dumps(arguments)]
        environment = os.environ | more | {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1"}
        running.append(
            subprocess.Popen(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        )
    try:
        said = [process.communicate(timeout=120) for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0], said
    found = [json.loads(out.splitlines()[-1]) for out, _ in said]
    assert [one[:2] for one in found] == [[2, 0], [2, 1]]
    assert found[0][2] == found[1][2] == 1 + 2  # what each of them has, added


SIGTERM = """
import signal, sys, time
from xmcjax.cluster import join_mesh

def handled(number, frame):
    print("handled")
    sys.exit(7)

handler = handled if sys.argv[2] == "handled" else signal.Handlers[sys.argv[2]]
signal.signal(signal.SIGTERM, handler)
join_mesh(f"127.0.0.1:{sys.argv[1]}", 1, 0)
assert signal.getsignal(signal.SIGTERM) is handler
signal.raise_signal(signal.SIGTERM)
time.sleep(0.1)
print("still there")
"""


@pytest.mark.skipif(os.name != "posix", reason="signals")
@pytest.mark.parametrize(
    ("handler", "status", "said"),
    [("SIG_DFL", -signal.SIGTERM, ""), ("handled", 7, "handled"), ("SIG_IGN", 0, "still there")],
)
def test_sigterm_does_in_a_mesh_what_it_did_before(handler, status, said):
    done = python(SIGTERM, free_port(), handler, JAX_PLATFORMS="cpu")
    assert (done.returncode, done.stdout.strip()) == (status, said), done.stderr


def solved(mesh, C):
    """In a process of the mesh."""
    import jax

    jax.config.update("jax_enable_x64", True)
    X, y = helpers.sparse_set()
    from xmcjax.solvers import multiclass_dual

    return mesh.size, multiclass_dual.run_over_mesh(X, y, mesh, formulation="ww", C=C).primal


def failing(mesh):
    import jax

    if jax.process_index() == 1:
        raise ValueError("no such thing")
    return solved(mesh, 1.0)


def test_a_dask_cluster_solves_one_problem_together_twice_and_says_who_failed():
    from xmcjax.solvers import multiclass_dual

    X, y = helpers.sparse_set()
    alone = multiclass_dual.run(X, y, formulation="ww", C=1.0).primal
    with local_cluster(workers=2) as client:
        for _ in range(2):
            found = run_on_mesh(client, solved, 1.0)
            assert [size for size, _ in found] == [2, 2]
            assert found[0][1] == found[1][1] == pytest.approx(alone, rel=2e-3)
        with pytest.raises(ClusterError, match=r"process 1 beside tcp://127.0.0.1:\d+: .*no such thing"):
            run_on_mesh(client, failing)


ENDLESS = """
import signal, sys, time
from xmcjax.cluster import connected, local_cluster, run_on_mesh

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored, where this suite runs in the background
with connected(sys.argv[1]) if sys.argv[1:] else local_cluster(2) as client:
    run_on_mesh(client, lambda mesh: time.sleep(600))
"""


def members(folder):
    """Processes of a mesh whose requests are in this folder."""
    return [x for _, _, x in running() if "cluster._member" in x and str(folder) in x]


def endless(folder, *arguments):
    """A command that has started two processes of a mesh, in a group of its own."""
    environment = os.environ | {"TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", ENDLESS, *arguments]
    run = subprocess.Popen(
        command, env=environment, start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    dask_processes.wait_until(lambda: len(members(folder)) == 2, pause=0.1)
    return run


def nothing_is_left(folder):
    dask_processes.wait_until(lambda: not members(folder), pause=0.1)
    # a walk takes no notice of folders that a worker removes meanwhile
    dask_processes.wait_until(lambda: not [f for f, *_ in os.walk(folder) if "xmcjax-mesh-" in f])


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
@pytest.mark.parametrize("ended", ["Ctrl-C", "the command is killed", "the workers are killed"])
def test_processes_of_a_mesh_end_with_the_call(tmp_path, ended):
    run = endless(tmp_path)
    if ended == "Ctrl-C":
        os.killpg(run.pid, signal.SIGINT)
        assert run.communicate(timeout=60)[1].splitlines()[-1] == "KeyboardInterrupt"
    elif ended == "the command is killed":
        run.kill()
    else:
        for worker in dask_processes.children(run.pid):
            os.kill(worker, signal.SIGKILL)
    nothing_is_left(tmp_path)
    run.kill()
    run.communicate(timeout=60)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_processes_of_a_mesh_end_with_the_call_where_their_workers_stay(tmp_path):
    with dask_processes.cluster(tmp_path / "dask", 2) as cluster:
        with connected(cluster.address) as client:
            client.wait_for_workers(2, timeout=60)
        for number in (signal.SIGINT, signal.SIGKILL):
            run = endless(tmp_path, cluster.address)
            run.send_signal(number)
            run.communicate(timeout=60)
            nothing_is_left(tmp_path)
        with connected(cluster.address) as client:
            assert run_on_mesh(client, lambda mesh: mesh.size) == [2, 2]


def waiting(folder, killed=None):
    """Of each process of a mesh: it tells that it is there, and waits; one of them is killed first."""

    def wait(mesh):  # within a function, so that it is sent whole
        place = jax.process_index()
        if place == killed:
            os.kill(os.getpid(), signal.SIGKILL)
        (folder / f"begun{place}").touch()
        time.sleep(600)

    return wait


def processes(client):
    """The address and the number of each worker, in the order of the mesh."""
    client.wait_for_workers(2, timeout=60)
    return sorted(client.run(os.getpid).items())


@contextlib.contextmanager
def later(folder, action):
    """Calls this when both processes wait, beside what is done here."""

    def act():
        dask_processes.wait_until(lambda: len(list(folder.glob("begun*"))) == 2, seconds=120, pause=0.1)
        action()

    thread = threading.Thread(target=act)
    thread.start()
    yield
    thread.join(timeout=120)


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
@pytest.mark.parametrize(
    ("place", "number", "said"),
    [
        (0, signal.SIGKILL, "the worker died or has left the cluster"),
        (1, signal.SIGKILL, "the worker died or has left the cluster"),
        (1, signal.SIGSTOP, "nothing was heard of the worker for 15 seconds"),
    ],
)
def test_a_worker_that_is_killed_or_stopped_ends_the_call_and_is_named(
    tmp_path, monkeypatch, place, number, said
):
    monkeypatch.setattr(_mesh, "PATIENCE", 15)  # of a worker that is well something is heard in so long
    with dask_processes.cluster(tmp_path / "dask", 2) as cluster, connected(cluster.address) as client:
        worker, pid = processes(client)[place]
        with (
            pytest.raises(ClusterError, match=f"^process {place} beside {worker}: {said}$"),
            later(tmp_path, lambda: os.kill(pid, number)),
        ):
            run_on_mesh(client, waiting(tmp_path))
        os.kill(pid, signal.SIGKILL)
        nothing_is_left(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_worker_that_was_stopped_before_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(_mesh, "PATIENCE", 3)
    with dask_processes.cluster(tmp_path / "dask", 2) as cluster, connected(cluster.address) as client:
        worker, pid = processes(client)[0]
        os.kill(pid, signal.SIGSTOP)
        said = f"^process 0 beside {worker}: nothing was heard of the worker for 3 seconds$"
        with pytest.raises(ClusterError, match=said):
            run_on_mesh(client, waiting(tmp_path))


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
@pytest.mark.parametrize(
    ("number", "said"),
    [(signal.SIGKILL, "is gone, or was started anew"), (signal.SIGSTOP, "does not answer")],
)
def test_a_scheduler_that_is_killed_or_stopped_ends_the_call(tmp_path, monkeypatch, number, said):
    for name in "PATIENCE", "ANSWER":
        monkeypatch.setattr(_dispatch, name, 5)
    with dask_processes.cluster(tmp_path / "dask", 2) as cluster, connected(cluster.address) as client:
        client.wait_for_workers(2, timeout=60)
        with (
            pytest.raises(ClusterError, match=f"^the scheduler {cluster.address} {said}$"),
            later(tmp_path, lambda: cluster.scheduler.send_signal(number)),
        ):
            run_on_mesh(client, waiting(tmp_path))
        cluster.scheduler.kill()
        nothing_is_left(tmp_path)


def tasks_of(client: Any, workers):
    """How many each of these workers has."""
    return [len(client.processing()[worker]) for worker in workers]


def held(client, worker, folder):
    """A task that keeps a worker busy until there is a file "go" in a folder."""

    def hold():  # within a function, so that it is sent whole
        (folder / "held").touch()
        while not (folder / "go").exists():
            time.sleep(0.02)

    task = client.submit(hold, workers=[worker], pure=False)
    dask_processes.wait_until((folder / "held").exists)
    return task


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_processes_begin_when_all_workers_are_free(tmp_path):
    """No process begins beside a worker that waits for another one: it would give up after some time."""
    found = []
    with dask_processes.cluster(tmp_path / "dask", 2) as cluster, connected(cluster.address) as client:
        (first, _), (second, _) = processes(client)
        task = held(client, second, tmp_path)

        def call():
            with connected(cluster.address) as other:
                found.append(run_on_mesh(other, lambda mesh: mesh.size))

        def waiting(dask_worker):
            return list(importlib.import_module("xmcjax.cluster._rendezvous")._waiting)

        calls = [threading.Thread(target=call) for _ in range(2)]
        for thread in calls:
            thread.start()
        try:
            # one of each call; and that of the call which has taken the first worker, beside what is held
            dask_processes.wait_until(lambda: tasks_of(client, (first, second)) == [2, 2])
            asked = client.run(waiting, workers=[first])
            assert isinstance(asked, dict) and len(asked[first]) == 1
            assert not task.done() and not members(tmp_path)
        finally:
            (tmp_path / "go").touch()
        for thread in calls:
            thread.join(timeout=120)
        assert found == [[2, 2]] * 2
        nothing_is_left(tmp_path)


@pytest.mark.parametrize("killed", [0, 1])
def test_a_worker_that_dies_while_a_busy_one_is_waited_for_ends_the_call(tmp_path, killed):
    with dask_processes.cluster(tmp_path / "dask", 2) as cluster, connected(cluster.address) as client:
        workers = processes(client)
        task = held(client, workers[1][0], tmp_path)

        def kill():
            try:
                dask_processes.wait_until(lambda: tasks_of(client, [workers[1][0]]) == [2])
                os.kill(workers[killed][1], signal.SIGKILL)
            finally:
                (tmp_path / "go").touch()

        thread = threading.Thread(target=kill)
        thread.start()
        said = f"^process {killed} beside {workers[killed][0]}: the worker died or has left the cluster$"
        with pytest.raises(ClusterError, match=said):
            run_on_mesh(client, lambda mesh: mesh.size)
        thread.join(timeout=60)
        del task  # which held it


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_who_died_is_named_and_not_who_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(_mesh, "_OTHERS", 1)
    with local_cluster(workers=2) as client:
        worker, pid = processes(client)[1]
        with pytest.raises(ClusterError, match=f"^process 1 beside {worker}: it ended with status -9$"):
            run_on_mesh(client, waiting(tmp_path, killed=1))
        with (
            pytest.raises(ClusterError, match=f"^process 1 beside {worker}: the worker died"),
            later(tmp_path, lambda: os.kill(pid, signal.SIGKILL)),
        ):
            run_on_mesh(client, waiting(tmp_path))


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs /proc")
def test_a_client_that_is_closed_before_the_call_or_in_it_is_named(tmp_path):
    with dask_processes.cluster(tmp_path / "dask", 2) as cluster, connected(cluster.address) as client:
        client.wait_for_workers(2, timeout=60)
        for when in later(tmp_path, client.close), contextlib.nullcontext():
            with pytest.raises(ClusterError, match=r"^the client of the cluster was closed"), when:
                run_on_mesh(client, waiting(tmp_path))
        nothing_is_left(tmp_path)


# What a process says that JAX ends, without most of its stack.
ABORT = """W1130 14:05:10.1 1 a.cc:2] a warning
F1130 14:05:12.9 1 c.h:80] Terminating process because the JAX distributed service detected fatal errors
The tasks have crashed.
*** Check failure stack trace: ***
    @     0x7f4577340634  absl::lts_20260107::log_internal::LogMessage::SendToLog()
    @     0x7f45866a71f5  (unknown)
"""


@pytest.mark.parametrize(
    ("errors", "told"),
    [
        ("", ""),
        ("Traceback\n  a line\nValueError: no such thing\n", "ValueError: no such thing"),
        (ABORT, "Terminating process because the JAX distributed service detected fatal errors"),
        (ABORT + "PeerError: process 0 is gone\n", "PeerError: process 0 is gone"),
        ("a word\n" + "\n".join(ABORT.splitlines()[-3:]), "a word"),
    ],
)
def test_last_words_are_not_lines_of_a_stack(errors, told):
    assert _mesh._told(errors) == told


def test_a_process_that_tells_of_another_is_named_after_that():
    told = [(None, _mesh._told(ABORT)), (None, "PeerError: process 2 is gone"), (None, "out of memory")]

    class Ended:
        """A task that has ended."""

        status = "finished"

        def __init__(self, answer):
            self._answer = answer

        def add_done_callback(self, call):
            call(self)

        def cancelled(self):
            return False

        def result(self, timeout):
            return self._answer

    tasks = [Ended(answer) for answer in told]
    with pytest.raises(ClusterError, match=r"^process 2 beside c: out of memory$"):
        _mesh._answers(None, ["a", "b", "c"], tasks)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("127.0.0.1:1234",), "or none of them, found no processes"),
        (("127.0.0.1", 2, 0), "coordinator: expected HOST:PORT, got '127.0.0.1'"),
        ((":80", 2, 0), "expected HOST:PORT"),
        (("a:99999", 2, 0), "expected HOST:PORT"),
        (("127.0.0.1:1234", 2, 2), "process"),
        (("127.0.0.1:1234", 0, 0), "processes"),
    ],
)
def test_numbers_that_make_no_mesh_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        join_mesh(*arguments)


def test_without_numbers_and_without_an_environment_there_is_no_mesh():
    done = python("from xmcjax.cluster import join_mesh; join_mesh()")
    assert done.returncode == 1
    assert "or the environment of SLURM or Open MPI, found neither" in done.stderr.splitlines()[-1]


def test_a_process_that_has_used_jax_joins_no_mesh():
    program = (
        "import jax; jax.devices(); from xmcjax.cluster import join_mesh; join_mesh('127.0.0.1:1', 1, 0)"
    )
    done = python(program)
    assert "ClusterError: this process could not join the others of a mesh" in done.stderr.splitlines()[-1]
