"""Multi-class SVMs over several processes, on loopback."""

from __future__ import annotations

import json
import time

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from tests.support import processes
from tests.support.internals import board, cut
from tests.support.problems import needs_native, svm_problem
from xmcjax.solvers import multiclass_dual as md

pytestmark = needs_native

# too few classes for Weston-Watkins and Crammer-Singer to be shared, and a row of zeros
SIZE = dict(n=100, d=60, m=21, seed=3)
# enough classes and rows for four places
LARGE = dict(n=300, d=60, m=140, seed=5)
# just enough of both, where weights are told by messages
FEWER = dict(n=170, d=20, m=70, seed=5)
PROGRAM = """
import contextlib, json, logging, os, signal
from unittest import mock
import jax, numpy as np
from jax.sharding import Mesh
from tests.support.problems import svm_problem
from tests.support.process_internals import board, wire
from xmcjax import native
from xmcjax.solvers import multiclass_dual as md

mesh = Mesh(np.array(jax.devices()), ("processes",))
found, said = {{}}, []
log = logging.getLogger("xmcjax.solvers.multiclass_dual")
log.setLevel(logging.INFO)
log.addHandler(type("Kept", (logging.Handler,), dict(emit=lambda self, record: said.append(record.args)))())

def none(*given):
    raise OSError(28, "full")

def solve(size, formulation, tol=1e-5, within="contextlib.nullcontext()", **options):
    with eval(within):
        X, y = svm_problem(**size)
        return md.run_over_mesh(X, y, mesh, formulation=formulation, C=0.2, tol=tol, **options)

for name, case in {cases!r}.items():
    s = solve(**case)
    W, a = s.W, s.alpha
    numbers = {{key: getattr(s, key) for key in ("primal", "dual", "gap", "violation")}}
    arrays = dict(W=W.tolist(), alpha=[a.indptr.tolist(), a.indices.tolist(), a.data.tolist()])
    found[name] = dict(status=s.status.name, **numbers, **arrays)
assert len(said) == len(found)  # a line for each
# files, because a process must not wait for its output to be read while the others wait for it
for name, content in (("said", dict(zip(found, said))), ("json", found)):
    with open(f"{folder}/{{jax.process_index()}}.{{name}}", "w") as file:
        json.dump(content, file)

come = []

def dying(which):
    def called(*given):
        come.append(given)
        if jax.process_index() == 1 and len(come) == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return which(*given)
    return called

wire.Wire.gather_parts, wire.Wire.total = dying(wire.Wire.gather_parts), dying(wire.Wire.total)
native.Gate.meet = dying(native.Gate.meet)
if {dies!r} is not None:
    solve(**{dies!r}, tol=1e-2)
"""


def run(count, folder, cases, dies=None, prepare=""):
    """Solves of these names and arguments, one after the other, and one in which process 1 is killed."""
    folder.mkdir(exist_ok=True)
    program = prepare + PROGRAM.format(cases=cases, folder=folder, dies=dies)
    return processes.run_distributed(program, count, shutdown=120 if dies is None else 10)


def results(count, folder) -> tuple[dict, list[dict]]:
    """What all processes found, which is the same, and what each of them logged."""
    found, *others = [json.loads((folder / f"{p}.json").read_text()) for p in range(count)]
    for other in others:
        assert other == found
    return found, [json.loads((folder / f"{p}.said").read_text()) for p in range(count)]


def check_the_optimum(many, size, formulation, tol=1e-5, **_):
    """It is that of one process, and its numbers are those of W and α, put together from all processes."""
    X, y = svm_problem(**size)
    one = md.run(X, y, formulation=formulation, C=0.2, tol=1e-4)
    assert many["status"] == "CONVERGED" and 0 <= many["gap"] <= tol
    # the optimum lies between the objectives of both
    assert many["dual"] <= one.primal and one.dual <= many["primal"] < 1.001 * one.primal
    indptr, indices, values = many["alpha"]
    alpha = np.zeros(one.alpha.shape)
    alpha[np.repeat(np.arange(len(y)), np.diff(indptr)), indices] = values
    problem = md.multiclass_problem(X, y, formulation=formulation, C=0.2)
    np.testing.assert_allclose(md.weights(problem, alpha), many["W"], atol=1e-10)
    certificate = md.certificate(problem, np.asarray(many["W"]), alpha)
    np.testing.assert_allclose(certificate.primal, many["primal"], rtol=1e-10)
    np.testing.assert_allclose(certificate.dual, many["dual"], rtol=1e-10)
    np.testing.assert_allclose(certificate.violation.max(), many["violation"], atol=1e-9)
    if formulation == "llw":
        np.testing.assert_allclose(np.sum(many["W"], axis=1), 0, atol=1e-10)


def check_that_the_other_stopped(done, ended, folder, seconds):
    """Process 1 was killed in the end; process 0 has one clear line, in time."""
    assert done[1].returncode == -9 and done[0].returncode != 0
    sentence = f"process 1 of this run has given no sign of life for {seconds} s"
    last = done[0].stderr.strip().splitlines()[-1]
    assert last.startswith(f"xmcjax.solvers._peers.PeerError: {sentence}")
    assert ended - max(path.stat().st_mtime for path in folder.glob("*.json")) < 60


def patched(name, value):
    return f"mock.patch.object({name}, {value})"


# Each thread is a place; two processes of two are as four of one.
PLACES = {f"{name} of places": dict(size=LARGE, formulation=name, threads=2) for name in ("ww", "cs")}
# where weights are told by messages, of which there are thousands
FEW = dict(size=FEWER, formulation="ww", threads=1, tol=1e-3)


def check_messages(said, names):
    """Of each process those of its own place; one in each part of a sweep where weights are told."""
    for p, lines in enumerate(said):
        assert all(line[:2] == [p, len(said)] for line in lines.values())
        for name in names:
            *_, sent, messages, sweeps = lines[name]
            assert sent > 0 and messages > 2 * sweeps


def test_two_processes(tmp_path):
    """The optimum, of processes and their threads, with weights in memory of the machine and by messages."""
    alone = {name: dict(size=SIZE, formulation=name, threads=1) for name in ("ww", "llw", "ovr", "cs")}
    # without places two threads of a process are as one
    threads = {f"{name} of threads": alone[name] | dict(threads=2) for name in ("llw", "ovr")}
    no_memory = patched("board", "'_machine', lambda: b''")  # no machine has such memory
    no_room = patched("os", "'posix_fallocate', none")
    two = {
        "together": FEW,
        "apart": FEW | dict(threads=2, share_weights=False),
        "no such memory": FEW | dict(within=no_memory),
        "no room": FEW | dict(within=no_room),
    }
    options = dict(cases=alone | threads | PLACES | two, dies=dict(size=SIZE, formulation="llw"))
    done = run(2, tmp_path, **options)
    check_that_the_other_stopped(done, time.time(), tmp_path, 10)  # whose connection is lost

    found, said = results(2, tmp_path)
    for name, case in (alone | PLACES | two).items():
        check_the_optimum(found[name], **case)
    for name in threads:
        assert found[name] == found[name.split()[0]]
    for _, _, held, sent, messages, epochs in (lines["llw"] for lines in said):
        # ten sums of d float64 in an epoch, and a maximum of two; single numbers for the gap
        assert epochs * (10 * 60 * 8 + 16) < sent < 1.1 * epochs * (10 * 60 * 8 + 16)
        assert messages > 11 * epochs
        assert held > 60 * 10 * 8
    # with others of the same machine no message in a sweep
    for lines in said:
        for name in ("together", "ww of places"):
            assert lines[name][3] > 0 and lines[name][4] < 20
    check_messages(said, two.keys() - {"together"})


@pytest.mark.slow
def test_four_processes(tmp_path):
    """They find what two of two threads find, and the optimum where one has no memory with the others."""
    small = {name: dict(size=SIZE, formulation=name, threads=1) for name in ("ww", "cs")}
    large = {name: place | dict(threads=1) for name, place in PLACES.items()}
    two_machines = patched("board", "'_machine', lambda: b'machine %d' % (jax.process_index() // 2)")
    four = {
        "one cannot": FEW | dict(within=patched("board", "'_opened', lambda *given: None")),
        "two machines": FEW | dict(within=two_machines),
    }
    for count, cases in ((2, PLACES), (4, small | large | four)):
        done = run(count, tmp_path / str(count), cases)
        assert [one.returncode for one in done] == [0] * count, done[0].stderr[-3000:]
    found, _ = results(2, tmp_path / "2")
    others, said = results(4, tmp_path / "4")
    for name, case in (small | four).items():
        check_the_optimum(others[name], **case)
    for name in PLACES:
        assert found[name] == others[name]
    check_messages(said, four)


def test_a_process_is_killed_where_all_meet_at_the_weights(tmp_path):
    done = run(2, tmp_path, {}, dies=dict(size=LARGE, formulation="ww"))
    check_that_the_other_stopped(done, time.time(), tmp_path, 30)


def test_memory_of_another_process_is_known_by_its_token(tmp_path):
    import os

    token, size = b"0123456789abcdef", 4096
    file = os.memfd_create(board._NAME)
    try:
        os.posix_fallocate(file, 0, size)
        os.pwrite(file, token, 0)
        told = f"{os.getpid()} {file}"
        opened = board._opened(token, told, size)
        assert opened is not None and opened[:16] == token and len(opened) == size
        opened[100] = 7
        assert os.pread(file, 1, 100) == b"\7"
        assert board._opened(token[::-1], told, size) is None
        assert board._opened(token, "", size) is None
        assert board._opened(token, f"{os.getpid()} 100000", size) is None
    finally:
        os.close(file)
    with open(tmp_path / "plain", "w+b") as plain:  # nothing but such memory is opened
        plain.write(token.ljust(size))
        plain.flush()
        assert board._opened(token, f"{os.getpid()} {plain.fileno()}", size) is None


@pytest.mark.parametrize("formulation", ["ww", "cs", "llw", "ovr"])
def test_threads_of_one_process(formulation):
    size = dict(n=200, d=30, m=70, seed=4) if formulation == "ww" else SIZE
    X, y = svm_problem(**size)
    mesh = Mesh(np.array(jax.devices()[:1]), ("processes",))
    options = dict(formulation=formulation, C=0.7, tol=1e-5)
    reference = md.run(X, y, **options)
    for threads in (2, 50):
        ours = md.run_over_mesh(X, y, mesh, **options, threads=threads)
        assert ours.status.name == "CONVERGED" and ours.gap <= 1e-5
        np.testing.assert_allclose(ours.primal, reference.primal, rtol=3e-5)
        again = md.run_over_mesh(X, y, mesh, **options, threads=threads)
        assert np.asarray(ours.W).tobytes() == np.asarray(again.W).tobytes()


def test_what_one_thread_raises_ends_all(tmp_path):
    """An interrupt, which is no Exception."""
    prepare = """
import jax
from xmcjax import native
calls, sweep = [], native.Ascent.row_sweep
def failing(*given, **more):
    calls.append(given)
    if jax.process_index() == 1 and len(calls) == 5:
        raise KeyboardInterrupt("of one thread")
    return sweep(*given, **more)
native.Ascent.row_sweep = failing
"""
    cases = {"ww": dict(size=LARGE, formulation="ww", threads=2)}
    done = run(2, tmp_path, cases, prepare=prepare)
    assert all(one.returncode for one in done)
    assert "of one thread" in done[1].stderr.splitlines()[-1]
    assert "process 1 of this run ended with" in done[0].stderr and "of one thread" in done[0].stderr


def test_one_process_is_a_mesh_too():
    X, y = svm_problem(**SIZE)
    mesh = Mesh(np.array(jax.devices()[:1]), ("processes",))
    for formulation in ("ww", "llw", "ovr_squared", "cs"):
        options = dict(formulation=formulation, C=0.7, tol=1e-4)
        ours, theirs = md.run_over_mesh(X, y, mesh, **options), md.run(X, y, **options)
        np.testing.assert_allclose(ours.primal, theirs.primal, rtol=1e-4)
        np.testing.assert_allclose(ours.W, theirs.W, atol=5e-2)


def test_bundles_have_about_as_many_instances():
    assert cut(np.array([1, 1, 1, 1]), 2) == [(0, 2), (2, 4)]
    assert cut(np.array([100, 1, 1, 1]), 4) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert cut(np.array([1, 1, 1, 100]), 4) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    sizes = np.random.default_rng(0).integers(1, 50, 200)
    bundles = cut(sizes, 8)
    counts = [sizes[a:b].sum() for a, b in bundles]
    assert sum(counts) == sizes.sum() and max(counts) < 1.3 * sizes.sum() / 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (dict(C=-1.0), "^C: expected a finite number above 0, got -1.0$"),
        (dict(threads=0), "^threads: expected at least 1, got 0$"),
    ],
)
def test_what_is_wrong_is_said(change, message):
    X, y = svm_problem()
    with pytest.raises(ValueError, match=message):
        md.run_over_mesh(X, y, Mesh(np.array(jax.devices()[:1]), ("processes",)), **change)


def test_a_mesh_has_one_axis():
    X, y = svm_problem()
    with pytest.raises(ValueError, match=r"^expected a mesh of one axis with one device of each"):
        md.run_over_mesh(X, y, Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("a", "b")))
    with pytest.raises(ValueError, match=r"^expected at least 2 classes for this many processes, got 1$"):
        cut(np.array([5]), 2)
