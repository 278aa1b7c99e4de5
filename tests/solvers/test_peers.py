"""What goes wrong in one of several processes ends all of them, with a sentence that names the process."""

from __future__ import annotations

import json
import signal
import time

import pytest

from tests.support import processes
from tests.support.internals import peers
from tests.support.problems import needs_native

pytestmark = needs_native

SETUP = """
import json, os, signal, threading
import jax, numpy as np, scipy.sparse as sp
from jax.sharding import Mesh
from tests.support.problems import svm_problem
from xmcjax import linops
from tests.support.process_internals import peers, wire
from xmcjax.solvers import multiclass_dual, multinomial

me = jax.process_index()
mesh = Mesh(np.array(jax.devices()), ("processes",))
X, y = svm_problem(n=100, d=60, m=21, seed=3)

def svm(X=X, y=y, C=0.2, tol=1e-6):
    # whose processes tell each other something ten times in an epoch
    return multiclass_dual.run_over_mesh(X, y, mesh, formulation="llw", C=C, tol=tol)

def lc(X=X, y=y, lam=1.0, observe=None, **options):
    problem = multinomial.multinomial_problem(linops.make(sp.csr_array(X)), y, lam, classes=21)
    hp = multinomial.HParams(1e-9, 1000)
    return multinomial.run(problem, "lc", hp, mesh=mesh, observe=observe, **options)
"""

DISAGREE = """
def told(solve, **changes):
    try:
        solve(**(changes if me == 1 else {}))
    except ValueError as error:
        assert type(error) is peers.Disagreement, error
        return str(error)

other = X.copy()
other[3, 3] += 1
turned = np.roll(y, 1)
found = [
    told(svm, X=X[:-1], y=y[:-1]), told(svm, X=other), told(svm, y=turned), told(svm, C=0.3),
    told(lc, X=X[:-1], y=y[:-1]), told(lc, X=other), told(lc, y=turned), told(lc, lam=2.0),
    told(lc, W0=np.zeros((60, 21))), told(lc, checkpoint="state"), told(lc if me == 1 else svm),
]
assert multiclass_dual.run_over_mesh(X, y, mesh, C=0.2, tol=0.1).status == 1
# a thread that is left would abort the interpreter at its end, where it wakes up in time
assert threading.enumerate() == [threading.current_thread()]
print(json.dumps(found))
"""

STRUCK = """
peers._SILENT = 15.0  # so that the test is over sooner
calls, call = [], wire.Wire._call

def strike(*_):
    calls.append(0)
    if me != {struck} or len(calls) != 8:
        return
    open({mark!r}, "w").close()
    if {how!r} == "raise":
        raise ArithmeticError("eight are enough")
    os.kill(os.getpid(), getattr(signal, {how!r}))

def patched(wire, *arguments):
    strike()
    return call(wire, *arguments)

wire.Wire._call = patched
if {solver!r} == "svm":
    svm()
else:
    lc(observe=strike)
"""

INTERRUPTED = """
import time
peers._GRACE = 1.0  # so that the test is over sooner
signal.signal(signal.SIGINT, signal.default_int_handler)
calls, call = [], wire.Wire._call

def patched(wire, *arguments):
    calls.append(0)
    if len(calls) == 8 and me == 0:
        time.sleep(8)
    if len(calls) == 8 and me == 1:  # within the call that waits for the other process
        threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
    return call(wire, *arguments)

wire.Wire._call = patched
svm()
"""


def last_line(done) -> str:
    return done.stderr.strip().splitlines()[-1]


def test_processes_that_were_given_different_data_all_say_so():
    done = processes.run_distributed(SETUP + DISAGREE, 2)
    found, other = map(json.loads, processes.outputs(done))
    assert found == other
    names = ["X", "X", "y", "options", "features", "features", "y", "options", "starting weights"]
    for name, sentence in zip([*names, "options", "work"], found, strict=True):
        assert sentence.startswith(f"process 1 was given other {name} than process 0: ")
        assert sentence.endswith("; all have to be given the same")
    assert "[99, 60] of float64 with SHA-256 " in found[0] and "in place of [100, 60] of" in found[0]
    assert "other work than process 0: multinomial in place of multiclass_dual;" in found[-1]


RAISED = "process 1 of this run ended with ArithmeticError: eight are enough"
SILENT = "process 1 of this run has given no sign of life for {} s"


@pytest.mark.parametrize(
    ("solver", "how", "sentence"),
    [
        ("svm", "raise", RAISED),
        ("svm", "SIGSTOP", SILENT.format(15)),  # SIGKILL is in test_multiclass_processes.py
        # what is common to the solvers, in another of them
        pytest.param("lc", "SIGKILL", SILENT.format(10), marks=pytest.mark.slow),
        pytest.param("lc", "raise", RAISED, marks=pytest.mark.slow),
        pytest.param("lc", "SIGSTOP", SILENT.format(15), marks=pytest.mark.slow),
    ],
)
def test_what_ends_one_ends_the_other_which_names_it(solver, how, sentence, tmp_path):
    program = SETUP + STRUCK.format(how=how, solver=solver, struck=1, mark=str(tmp_path / "mark"))
    # JAX alone would have the other one wait for five minutes at its exit
    options = dict(shutdown=300, stopped=1 if how == "SIGSTOP" else None)
    done = processes.run_distributed(program, 2, **options)
    took = time.time() - (tmp_path / "mark").stat().st_mtime
    assert took < 60
    assert done[0].returncode == 1
    expected = f"xmcjax.solvers._peers.PeerError: {sentence}"
    assert last_line(done[0]).startswith(expected) and last_line(done[0]).endswith(peers._HINT)
    if how == "raise":
        assert done[1].returncode == 1 and last_line(done[1]) == "ArithmeticError: eight are enough"


@pytest.mark.parametrize("solver", ["svm", pytest.param("lc", marks=pytest.mark.slow)])
def test_where_process_0_is_killed_the_abort_of_jax_names_it(solver, tmp_path):
    program = SETUP + STRUCK.format(how="SIGKILL", solver=solver, struck=0, mark=str(tmp_path / "mark"))
    done = processes.run_distributed(program, 2, shutdown=300)
    assert time.time() - (tmp_path / "mark").stat().st_mtime < 60
    assert [one.returncode for one in done] == [-signal.SIGKILL, -signal.SIGABRT]
    sentence = f"xmcjax.solvers._peers.PeerError: {peers._STORE_GONE}{peers._HINT}"
    assert last_line(done[1]) == sentence


def test_ctrl_c_while_a_thread_waits_for_the_other_process_does_not_abort():
    """The thread comes back when the other process ends, while this one ends as well."""
    done = processes.run_distributed(SETUP + INTERRUPTED, 2, shutdown=300)
    assert [one.returncode for one in done] == [1, -signal.SIGINT], done[1].stderr[-3000:]
    assert last_line(done[1]) == "KeyboardInterrupt"
    assert "process 1 of this run ended with KeyboardInterrupt" in last_line(done[0])


ABORT = """
import os, socket
from xmcjax.native import noted_at_abort

with socket.create_server(("127.0.0.1", 0)) as server:
    address = f"127.0.0.1:{{server.getsockname()[1]}}"
    if not {answered}:
        server.close()
    with noted_at_abort("nobody is there", address):
        if {within}:
            os.abort()
    os.abort()
"""


@pytest.mark.parametrize(
    ("answered", "within", "said"),
    [(False, True, "nobody is there\n"), (True, True, ""), (False, False, "")],
)
def test_an_abort_for_another_reason_says_nothing(answered, within, said):
    program = ABORT.format(answered=answered, within=within)
    (done,) = processes.run_all([processes.start(program)])
    assert done.returncode == -signal.SIGABRT and done.stderr == said


@pytest.mark.parametrize("solver", ["svm", pytest.param("lc", marks=pytest.mark.slow)])
def test_one_that_ends_before_the_solve_is_named(solver):
    before = 'if me == 1:\n    raise OSError("no such disk")\n'
    done = processes.run_distributed(f"{SETUP}{before}{solver}()\n", 2, shutdown=300)
    assert [one.returncode for one in done] == [1, 1]
    sentence = "process 1 of this run ended with OSError: no such disk"
    assert last_line(done[0]) == f"xmcjax.solvers._peers.PeerError: {sentence}{peers._HINT}"


def test_an_argument_that_one_process_refuses_ends_the_other():
    done = processes.run_distributed(f"{SETUP}svm(C=-1.0 if me else 1.0)\n", 2)
    assert [one.returncode for one in done] == [1, 1]
    assert "process 1 of this run ended with ValueError: C: expected a finite number" in last_line(done[0])
