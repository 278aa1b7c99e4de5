"""Multi-class SVMs over several processes, on loopback."""

from __future__ import annotations

import json
import threading
import time

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from tests.support import processes
from tests.support.internals import cut
from tests.support.problems import needs_native, svm_problem
from xmcjax.solvers import multiclass_dual as md

pytestmark = needs_native

# more classes than fill a panel, so that bundles share panels, and a row of zeros
SIZE = dict(n=100, d=60, m=21, seed=3)
PROGRAM = """
import json, logging, os, signal
import jax, numpy as np
from jax.sharding import Mesh
from tests.support.problems import svm_problem
from tests.support.internals import wire
from xmcjax.solvers import multiclass_dual as md

X, y = svm_problem(**{size!r})
mesh = Mesh(np.array(jax.devices()), ("processes",))
found, said = {{}}, []
log = logging.getLogger("xmcjax.solvers.multiclass_dual")
log.setLevel(logging.INFO)
log.addHandler(type("Kept", (logging.Handler,), dict(emit=lambda self, record: said.append(record.args)))())
for formulation in {formulations!r}:
    s = md.run_over_mesh(X, y, mesh, formulation=formulation, C=0.2, tol=1e-5, threads={threads})
    W, a = s.W, s.alpha
    numbers = {{name: getattr(s, name) for name in ("primal", "dual", "gap", "violation")}}
    arrays = dict(W=W.tolist(), alpha=[a.indptr.tolist(), a.indices.tolist(), a.data.tolist()])
    found[formulation] = dict(status=s.status.name, **numbers, **arrays)
with open(f"{folder}/{{jax.process_index()}}.said", "w") as file:
    json.dump(said, file)
# a file, because a process must not wait for its output to be read while the others wait for it
with open(f"{folder}/{{jax.process_index()}}.json", "w") as file:
    json.dump(found, file)

sent, gather = [], wire.Wire.gather_parts

def dying(wire, part):
    sent.append(part)
    if wire.place == {victim} and len(sent) == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return gather(wire, part)

wire.Wire.gather_parts = dying
if {victim} >= 0:
    md.run_over_mesh(X, y, mesh, C=0.2, tol=1e-2)
"""


def run(count, formulations, folder, victim=-1, threads=1):
    folder.mkdir(exist_ok=True)
    given = dict(formulations=formulations, folder=folder, victim=victim, threads=threads)
    program = PROGRAM.format(size=SIZE, **given)
    return processes.run_distributed(program, count, shutdown=120 if victim < 0 else 10)


@pytest.mark.parametrize("count", [2, 4])
def test_the_optimum_is_that_of_one_process(count, tmp_path):
    formulations = ("ww", "llw", "ovr", "cs") if count == 2 else ("ww", "cs")
    done = run(count, formulations, tmp_path, victim=1 if count == 2 else -1)
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


def test_threads_of_processes_are_places(tmp_path):
    """Two processes of two threads are as four processes, or, without places, as two of one thread."""
    of_places, without = ("ww",), ("llw", "ovr", "cs")
    for folder, count, formulations, threads in (
        ("threads", 2, of_places + without, 2),
        ("processes", 4, of_places, 1),
        ("alone", 2, without, 1),
    ):
        done = run(count, formulations, tmp_path / folder, threads=threads)
        assert [one.returncode for one in done] == [0] * count, done[0].stderr[-3000:]

    def found(folder, place=0):
        return json.loads((tmp_path / folder / f"{place}.json").read_text())

    ours = found("threads")
    assert ours == found("threads", 1)
    for formulation in without:
        assert ours[formulation] == found("alone")[formulation]
    for formulation in of_places:
        mine, theirs = ours[formulation], found("processes")[formulation]
        assert mine["status"] == "CONVERGED" and mine["gap"] <= 1e-5
        for name in ("W", "primal", "dual"):
            np.testing.assert_allclose(mine[name], theirs[name], rtol=1e-9, atol=1e-9)
    # of four processes each has a message where the threads of two have one together
    messages = {
        folder: json.loads((tmp_path / folder / "0.said").read_text())[0][4]
        for folder in ("threads", "processes")
    }
    assert 0 < messages["threads"] <= 1.1 * messages["processes"]


@pytest.mark.parametrize("formulation", ["ww", "cs", "llw", "ovr"])
def test_threads_of_one_process(formulation):
    X, y = svm_problem(**SIZE)
    mesh = Mesh(np.array(jax.devices()[:1]), ("processes",))
    options = dict(formulation=formulation, C=0.7, tol=1e-5)
    reference = md.run(X, y, **options)
    for threads in (2, 50):  # of 21 classes ten places can be made
        ours = md.run_over_mesh(X, y, mesh, **options, threads=threads)
        assert ours.status.name == "CONVERGED" and ours.gap <= 1e-5
        np.testing.assert_allclose(ours.primal, reference.primal, rtol=3e-5)
        again = md.run_over_mesh(X, y, mesh, **options, threads=threads)
        assert np.asarray(ours.W).tobytes() == np.asarray(again.W).tobytes()


@pytest.mark.parametrize("error", [ValueError("of one thread"), KeyboardInterrupt()])
def test_what_one_thread_raises_ends_the_others(error, monkeypatch):
    from xmcjax.native import Ascent

    X, y = svm_problem(**SIZE)
    mesh = Mesh(np.array(jax.devices()[:1]), ("processes",))
    play, lock, calls = Ascent.play, threading.Lock(), []

    def failing(point, match, tolerance):
        with lock:
            calls.append(point)
        if len(calls) == 5:
            raise error
        return play(point, match, tolerance)

    monkeypatch.setattr(Ascent, "play", failing)
    with pytest.raises(type(error)):
        md.run_over_mesh(X, y, mesh, C=0.7, tol=1e-5, threads=3)
    assert not [
        thread for thread in threading.enumerate() if "xmcjax-place" in thread.name and _lives(thread)
    ]


def _lives(thread) -> bool:
    thread.join(20)
    return thread.is_alive()


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
