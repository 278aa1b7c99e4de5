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
PROGRAM = """
import json, logging, os, signal
import jax, numpy as np
from jax.sharding import Mesh
from tests.support.problems import svm_problem
from tests.support.internals import board, wire
from xmcjax import native
from xmcjax.solvers import multiclass_dual as md

{prepare}
X, y = svm_problem(**{size!r})
mesh = Mesh(np.array(jax.devices()), ("processes",))
found, said = {{}}, []
log = logging.getLogger("xmcjax.solvers.multiclass_dual")
log.setLevel(logging.INFO)
log.addHandler(type("Kept", (logging.Handler,), dict(emit=lambda self, record: said.append(record.args)))())
for formulation in {formulations!r}:
    s = md.run_over_mesh(X, y, mesh, formulation=formulation, C=0.2, tol=1e-5, threads={threads}, **{more})
    W, a = s.W, s.alpha
    numbers = {{name: getattr(s, name) for name in ("primal", "dual", "gap", "violation")}}
    arrays = dict(W=W.tolist(), alpha=[a.indptr.tolist(), a.indices.tolist(), a.data.tolist()])
    found[formulation] = dict(status=s.status.name, **numbers, **arrays)
with open(f"{folder}/{{jax.process_index()}}.said", "w") as file:
    json.dump(said, file)
# a file, because a process must not wait for its output to be read while the others wait for it
with open(f"{folder}/{{jax.process_index()}}.json", "w") as file:
    json.dump(found, file)

come = []

def dying(which):
    def called(*given):
        come.append(given)
        if jax.process_index() == {victim} and len(come) == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return which(*given)
    return called

wire.Wire.gather_parts, wire.Wire.total = dying(wire.Wire.gather_parts), dying(wire.Wire.total)
native.Gate.meet = dying(native.Gate.meet)
if {victim} >= 0:
    md.run_over_mesh(X, y, mesh, formulation={dies!r}, C=0.2, tol=1e-2)
"""


def run(count, formulations, folder, victim=-1, threads=1, size=SIZE, prepare="", dies="ww", **more):
    folder.mkdir(exist_ok=True)
    given = dict(formulations=formulations, folder=folder, victim=victim, dies=dies)
    given |= dict(threads=threads, prepare=prepare, more=more)
    program = PROGRAM.format(size=size, **given)
    return processes.run_distributed(program, count, shutdown=120 if victim < 0 else 10)


@pytest.mark.parametrize("count", [2, 4])
def test_the_optimum_is_that_of_one_process(count, tmp_path):
    formulations = ("ww", "llw", "ovr", "cs") if count == 2 else ("ww", "cs")
    done = run(count, formulations, tmp_path, victim=1 if count == 2 else -1, dies="llw")
    for one in done:
        # in the end one of the two dies, and the other stops with one clear line
        assert bool(one.returncode) == (count == 2), one.stderr[-3000:]
    ended = time.time()
    if count == 2:
        assert (
            done[1].returncode == -9 and "process 1 of this run has given no sign of life" in done[0].stderr
        )
        assert ended - max((tmp_path / f"{p}.json").stat().st_mtime for p in range(2)) < 60
    found, *others = [json.loads((tmp_path / f"{p}.json").read_text()) for p in range(count)]
    for other in others:
        assert other == found
    said = [json.loads((tmp_path / f"{p}.said").read_text()) for p in range(count)]
    for p, lines in enumerate(said):
        assert [line[:2] for line in lines] == [[p, count]] * len(formulations)
    if count == 2:
        for _, _, held, sent, messages, epochs in (lines[1] for lines in said):  # Lee-Lin-Wahba
            # ten sums of d float64 in an epoch, and a maximum of two; single numbers for the gap
            assert epochs * (10 * 60 * 8 + 16) < sent < 1.1 * epochs * (10 * 60 * 8 + 16)
            assert messages > 11 * epochs
            assert held > 60 * 10 * 8
    X, y = svm_problem(**SIZE)
    for formulation in formulations:
        one = md.run(X, y, formulation=formulation, C=0.2, tol=1e-4)
        many = found[formulation]
        assert many["status"] == "CONVERGED" and many["gap"] <= 1e-5
        assert 0 <= many["gap"] < 0.02
        # the optimum lies between the objectives of both
        assert many["dual"] <= one.primal and one.dual <= many["primal"] < 1.02 * one.primal
        # the numbers are those of W and α, put together from all processes
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


# enough classes and rows for four places
LARGE = dict(n=300, d=60, m=140, seed=5)
TWO_MACHINES = "board._machine = lambda: b'machine %d' % (jax.process_index() // 2)"
ONE_CANNOT = "board._opened = lambda *given: None"
NO_ROOM = "def none(*given): raise OSError(28, 'full')\nos.posix_fallocate = none"


def test_threads_of_processes_are_places(tmp_path):
    """Two processes of two threads are as four processes, or, without places, as two of one thread."""
    without, having = ("llw", "ovr"), ("ww", "cs")
    for folder, count, formulations, threads, size in (
        ("places", 2, having, 2, LARGE),
        ("processes", 4, having, 1, LARGE),
        ("threads", 2, without, 2, SIZE),
        ("alone", 2, without, 1, SIZE),
    ):
        done = run(count, formulations, tmp_path / folder, threads=threads, size=size)
        assert [one.returncode for one in done] == [0] * count, done[0].stderr[-3000:]

    def found(folder, place=0):
        return json.loads((tmp_path / folder / f"{place}.json").read_text())

    for folder, formulations in (("places", having), ("threads", without)):
        assert found(folder) == found(folder, 1)
        other = found("processes" if folder == "places" else "alone")
        assert {name: found(folder)[name] for name in formulations} == other
    for name in having:
        assert found("places")[name]["status"] == "CONVERGED" and found("places")[name]["gap"] <= 1e-5


@pytest.mark.parametrize(
    ("count", "threads", "share", "prepare", "together"),
    [
        (2, 1, True, "", True),
        (2, 2, True, "", True),
        (2, 2, False, "", False),
        (2, 1, True, "board._machine = lambda: b''", False),  # no machine has such memory
        (3, 1, True, ONE_CANNOT, False),
        (2, 1, True, NO_ROOM, False),
        (4, 1, True, TWO_MACHINES, False),
    ],
)
def test_processes_of_one_machine_have_the_weights_together(
    count, threads, share, prepare, together, tmp_path
):
    victim = 1 if together and threads == 1 else -1
    options = dict(threads=threads, size=LARGE, prepare=prepare, victim=victim, share_weights=share)
    done = run(count, ("ww",), tmp_path, **options)
    for one in done:
        assert bool(one.returncode) == (victim >= 0), one.stderr[-3000:]
    if victim >= 0:  # in the end, where all meet
        assert "process 1 of this run has given no sign of life" in done[0].stderr
        assert time.time() - max(p.stat().st_mtime for p in tmp_path.glob("*.json")) < 60
    found, *others = [json.loads((tmp_path / f"{p}.json").read_text())["ww"] for p in range(count)]
    for other in others:
        assert other == found
    assert found["status"] == "CONVERGED" and found["gap"] <= 1e-5
    X, y = svm_problem(**LARGE)
    one = md.run(X, y, formulation="ww", C=0.2, tol=1e-4)
    assert found["dual"] <= one.primal and one.dual <= found["primal"] < 1.001 * one.primal
    for p in range(count):
        ((_, _, _, sent, messages, sweeps),) = json.loads((tmp_path / f"{p}.said").read_text())
        # with others of the same machine no message in a sweep, else one of each part
        assert messages < 20 if together else messages > 2 * sweeps
        assert sent > 0


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


@pytest.mark.parametrize("error", ["ValueError('of one thread')", "KeyboardInterrupt('of one thread')"])
def test_what_one_thread_raises_ends_all(error, tmp_path):
    prepare = f"""
calls, sweep = [], native.Ascent.row_sweep
def failing(*given, **more):
    calls.append(given)
    if jax.process_index() == 1 and len(calls) == 5:
        raise {error}
    return sweep(*given, **more)
native.Ascent.row_sweep = failing
"""
    done = run(2, ("ww",), tmp_path, threads=2, size=LARGE, prepare=prepare)
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
        (dict(formulation="topk"), "^formulation: expected one of .*ww.*, got 'topk'$"),
        (dict(tol=0.0), "^tol: expected a finite number above 0, got 0.0$"),
        (dict(max_epochs=-1), "^max_epochs: expected at least 1, got -1$"),
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
