"""Classes split over the devices of a mesh, in one process and in several; runs that were killed."""

from __future__ import annotations

import json
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from jax.sharding import Mesh

from tests.support import multinomial as helpers
from tests.support import processes
from tests.support.internals import multinomial_mesh
from xmcjax import linops
from xmcjax.solvers import multinomial
from xmcjax.solvers.multinomial import lc, lc_extrapolated

SETUP = """
import json, sys
import jax, numpy as np, scipy.sparse as sp
from jax.sharding import Mesh
from xmcjax import linops
from xmcjax.solvers import multinomial

folder = {folder!r}
X, y = sp.load_npz(folder + "/X.npz"), np.load(folder + "/y.npy")
problem = multinomial.multinomial_problem(linops.make(X), y, 1.0)
hp = multinomial.HParams(1e-6, 1000)

def mesh(count):
    return Mesh(np.array(jax.devices()[:count]), ("classes",))

def told(solution):
    whole = {{"value": solution.value, "bound": solution.bound, "steps": solution.history[-1].steps}}
    parts = [np.abs(np.asarray(part.data)) for part in solution.W.addressable_shards]
    shapes = [list(part.shape) for part in parts]
    return whole | {{"shapes": shapes, "weights": sum(float(part.sum()) for part in parts)}}
"""

METHODS_ON_EIGHT_DEVICES = """
from xmcjax.solvers.multinomial import auto

auto.MANY_WEIGHTS = 280  # as many as there are: on one device dual ascent would come first
found = {}
for method, count in (("lc", 3), ("newton", 8), ("auto", 8), ("dm", 8), ("admm", 8), ("lbfgs", 4)):
    found[method] = told(multinomial.run(problem, method, hp, mesh=mesh(count)))
explicit = (jax.sharding.AxisType.Explicit,)  # as jax.make_mesh has them
explicit = Mesh(np.array(jax.devices()[:4]), ("classes",), axis_types=explicit)
def over_explicit_axes(method, expected):
    again = multinomial.run(problem, method, hp, mesh=explicit)
    assert again.W.sharding.mesh == again.bias.sharding.mesh == explicit
    assert told(again) == expected, method

over_explicit_axes("lbfgs", found["lbfgs"])
newton = told(multinomial.run(problem, "newton", hp, mesh=mesh(4)))
with jax.set_mesh(explicit):
    over_explicit_axes("lbfgs", found["lbfgs"])
    over_explicit_axes("newton", newton)

from tests.support.process_internals import multinomial_mesh as inside
from xmcjax.solvers.multinomial import lbfgs

four = mesh(4)
arguments = inside.shared(problem, four), hp
W, bias = (inside.split_columns(np.zeros(shape), 7, four) for shape in ((40, 7), 7))
state = inside.initial(lbfgs, four, 7)(*arguments, W, bias)
compiled = inside.advance(lbfgs, four).lower(*arguments, state).compile()
found["gathered"] = compiled.as_text().count("all-gather")
print(json.dumps(found))
"""

ON_ALL_PROCESSES = """
found = {}
for method in ("lc_extrapolated", "lbfgs"):
    found[method] = told(multinomial.run(problem, method, hp, mesh=mesh(jax.device_count())))
print(json.dumps(found))
"""

STOPPED = """
import pathlib

class Stopped(Exception):
    pass

def stop(state, record):
    if record.steps == 5:
        raise Stopped

def run(observe=None):
    devices = mesh(jax.device_count())
    return multinomial.run(problem, "lc", hp, mesh=devices, checkpoint=folder + "/state", observe=observe)

try:
    run(stop)
    sys.exit("not stopped")
except Stopped:
    pass
if jax.process_index() == 1:
    (pathlib.Path(folder) / "state" / "state-1-1.npz").unlink()  # it had not come as far as the other
found = run()
print(json.dumps(told(found) | {"first": found.history[0].steps}))
"""

KILLED = """
import os, signal

plain, states = os.replace, []

def replace(temporary, target):
    states.append(target)
    if len(states) == 7:  # the state after six iterations is on disk, and not yet under its name
        os.kill(os.getpid(), signal.SIGKILL)
    plain(temporary, target)

os.replace = replace
multinomial.run(problem, METHOD, hp, W0=np.zeros((40, 7)), checkpoint=folder + "/state")
"""


@pytest.fixture
def setup(tmp_path):
    X, y = helpers.sparse_set()
    sp.save_npz(tmp_path / "X.npz", X)
    np.save(tmp_path / "y.npy", y)
    return SETUP.format(folder=str(tmp_path))


def alone(method):
    """The same run on one device."""
    X, y = helpers.sparse_set()
    hp = multinomial.HParams(1e-6, 1000)
    return multinomial.run(helpers.problem(X, y), method, hp, W0=np.zeros((40, 7)))


def same(found, expected):
    assert found["value"] == pytest.approx(expected.value, rel=1e-9)
    assert found["bound"] == pytest.approx(expected.bound, rel=1e-9)
    assert found["steps"] == expected.history[-1].steps


def test_eight_devices_find_what_one_finds(setup):
    found = json.loads(processes.run_program(setup + METHODS_ON_EIGHT_DEVICES, devices=8))
    for method in ("lc", "dm", "lbfgs"):
        expected = alone(method)
        same(found[method], expected)
        assert found[method]["weights"] == pytest.approx(np.abs(expected.W).sum(), rel=1e-6)
    assert found["gathered"] == 0  # no weights are sent
    best = helpers.minimum(*helpers.sparse_set(), 1.0)
    assert found["newton"]["value"] == pytest.approx(best, rel=1e-9)
    assert found["auto"] == found["newton"]
    assert found["admm"]["value"] == pytest.approx(best, rel=1e-6)
    # 7 classes: three devices have three columns each, eight have one
    assert found["lc"]["shapes"] == [[40, 3]] * 3
    assert found["admm"]["shapes"] == [[40, 1]] * 8


def test_four_processes_find_what_one_finds(setup):
    done = processes.run_distributed(setup + ON_ALL_PROCESSES, 4)
    expected = {method: alone(method) for method in ("lc_extrapolated", "lbfgs")}
    for one in map(json.loads, processes.outputs(done)):
        for method, found in one.items():
            same(found, expected[method])
            assert found["shapes"] == [[40, 2]]  # a process holds its own columns and no others


def test_two_processes_that_were_stopped_go_on_from_what_both_have(setup):
    done = processes.run_distributed(setup + STOPPED, 2)
    expected = alone("lc")
    for one in map(json.loads, processes.outputs(done)):
        assert one["first"] == 4
        same(one, expected)


def reductions(jaxpr, found, names=("psum",)):
    """Entries of every sum over the mesh, or of what has another name, but for those under a condition."""
    for equation in jaxpr.eqns:
        if equation.primitive.name.startswith(names):
            found += [int(np.prod(v.aval.shape)) for v in equation.invars]
        elif equation.primitive.name != "cond":
            for value in equation.params.values():
                inner = getattr(value, "jaxpr", value)
                if hasattr(inner, "eqns"):
                    reductions(inner, found, names)
    return found


@pytest.mark.parametrize(("method", "of_the_mean"), [(lc, 0), (lc_extrapolated, 40)])
def test_an_iteration_of_lc_sends_n_numbers_once(method, of_the_mean):
    X, y = helpers.sparse_set()
    mesh = Mesh(np.array(jax.devices()[:1]), ("classes",))
    problem = multinomial_mesh.shared(helpers.problem(X, y), mesh)
    hp = multinomial.HParams()
    state = jax.eval_shape(
        multinomial_mesh.initial(method, mesh, 7), problem, hp, jnp.zeros((40, 7)), jnp.zeros(7)
    )
    sizes = reductions(jax.make_jaxpr(multinomial_mesh.advance(method, mesh))(problem, hp, state).jaxpr, [])
    # ‖∇G‖², and with the n sums three numbers and, where W is centred, its d sums over the classes
    assert sorted(sizes) == [1, 90 + 3 + of_the_mean]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("intercept", [False, True])
def test_a_value_and_a_gradient_in_two_parts_are_those_of_one_pass(dtype, intercept):
    X, y = helpers.sparse_set()
    rng = np.random.default_rng(3)
    weight, W, bias = rng.uniform(0, 2, len(y)), 3 * rng.normal(size=(40, 7)), rng.normal(size=7)
    weight[::5] = 0
    problem = multinomial.multinomial_problem(
        linops.make(X.astype(dtype)), y, 0.3, weight=weight, intercept=intercept
    )
    mesh = Mesh(np.array(jax.devices()[:1]), ("classes",))
    one = multinomial.evaluate(problem, W.astype(dtype), bias.astype(dtype))
    # two columns more, which are no classes, as where another device has them
    wide = np.pad(W, [(0, 0), (0, 2)]).astype(dtype), np.pad(bias, (0, 2)).astype(dtype)
    two = multinomial_mesh.split(mesh).evaluate(
        multinomial_mesh.shared(problem, mesh), wide[0][None], wide[1]
    )
    exact = 1e-5 if dtype == np.float32 else 1e-13
    np.testing.assert_allclose(two.value, one.value, rtol=exact)
    np.testing.assert_allclose(two.norm, one.norm, rtol=exact)
    for name in ("gradient", "bias_gradient"):
        found, expected = np.asarray(getattr(two, name)), np.asarray(getattr(one, name))
        found = found.reshape(*expected.shape[:-1], 9)
        np.testing.assert_allclose(found[..., :7], expected, atol=exact * np.abs(expected).max() + 1e-30)
        assert not np.any(found[..., 7:])


def test_a_value_and_a_gradient_send_three_numbers_per_row():
    X, y = helpers.sparse_set()
    mesh = Mesh(np.array(jax.devices()[:1]), ("classes",))
    problem = multinomial_mesh.shared(helpers.problem(X, y), mesh)
    weights = jnp.zeros((1, 40, 7)), jnp.zeros(7)
    traced = jax.make_jaxpr(multinomial_mesh.split(mesh).evaluate)(problem, *weights)
    assert sorted(reductions(traced.jaxpr, [], ("psum", "pmax"))) == [2, 90, 2 * 90]


@pytest.mark.parametrize("method", ["lc_extrapolated", "dm"])
def test_a_killed_run_goes_on_where_it_was(method, setup, tmp_path):
    program = f"{setup}\nMETHOD = {method!r}\n{KILLED}"
    killed = processes.run_all([processes.start(program)])[0]
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    X, y = helpers.sparse_set()
    problem, hp = helpers.problem(X, y), multinomial.HParams(1e-6, 1000)
    assert list((tmp_path / "state").glob(".state-0-0.npz.*.tmp"))

    def run(problem, method):
        return multinomial.run(problem, method, hp, W0=np.zeros((40, 7)), checkpoint=tmp_path / "state")

    found, expected = run(problem, method), alone(method)
    assert found.history[0].steps == 5
    assert not list((tmp_path / "state").glob(".*.tmp"))
    assert (found.value, found.bound) == (expected.value, expected.bound)
    assert found.history[-1].steps == expected.history[-1].steps
    np.testing.assert_array_equal(found.W, expected.W)
    # what has ended is not done again, and no other problem goes on with it
    assert len(run(problem, method).history) == 1
    with pytest.raises(ValueError, match="found the state of another run: give an empty folder"):
        run(helpers.problem(X, y, 2.0), method)
    with pytest.raises(ValueError, match="found the state of another run"):
        run(problem, "lc")


def test_bad_meshes_get_one_clear_error():
    X, y = helpers.sparse_set()
    mesh = Mesh(np.array(jax.devices()[:1]), ("classes",))
    with pytest.raises(ValueError, match="dual cannot be split over a mesh: take lc"):
        multinomial.run(helpers.problem(X, y), "dual", mesh=mesh)
    with pytest.raises(ValueError, match="expected a mesh of one axis, got a, b"):
        both = Mesh(np.array(jax.devices()[:1]).reshape(1, 1), ("a", "b"))
        multinomial.run(helpers.problem(X, y), "lc", mesh=both)
    with pytest.raises(ValueError, match="expected 7 columns, one for each class, got 6"):
        multinomial.run(helpers.problem(X, y), "lc", mesh=mesh, W0=np.zeros((40, 6)))
