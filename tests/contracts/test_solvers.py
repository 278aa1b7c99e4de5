"""What every solver of ``SOLVERS`` keeps."""

from __future__ import annotations

import dataclasses
import inspect

import chex
import jax
import numpy as np
import pytest

from tests.support.solvers import CASES, SIGNS, N, X, Y, features
from xmcjax import linops
from xmcjax.losses import MARGIN_LOSSES
from xmcjax.solvers import SOLVERS, Solution, Status, multiclass_dual, multinomial

NAMES = list(SOLVERS)
PATHS = [f"{name}-{path}" for name, case in CASES.items() for path in case.paths]
PURE = [name for name in NAMES if SOLVERS[name].pure]


def solved(name, dtype=np.float64, path=None, hp=None) -> Solution:
    case = CASES[name]
    hp = hp or (case.tight if dtype == np.float64 else case.loose)
    return SOLVERS[name].run(case.problem(dtype, path or case.paths[0]), hp)


@pytest.mark.parametrize("name", NAMES)
def test_hyperparameters_are_of_one_kind(name):
    hp = SOLVERS[name].hparams()
    leaves, form = jax.tree.flatten(hp)
    assert leaves
    assert all(isinstance(leaf, (bool, int, float)) for leaf in leaves)
    assert jax.tree.unflatten(form, leaves) == hp
    limit = CASES[name].limit
    assert getattr(hp._replace(**{limit: 7}), limit) == 7
    with pytest.raises(AttributeError):
        setattr(hp, limit, 7)


@pytest.mark.parametrize("path", PATHS)
def test_every_path_reaches_the_value_of_the_oracle(path):
    name, path = path.split("-")
    found = solved(name, path=path)
    assert np.all(np.asarray(found.status) == Status.CONVERGED)
    np.testing.assert_allclose(np.asarray(found.value), CASES[name].optimum(), rtol=1e-6)


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_no_number_on_the_way(path):
    """With jax_debug_nans a program ends at the first NaN, wherever it goes."""
    name, path = path.split("-")
    with jax.debug_nans(True):
        found = solved(name, path=path, hp=CASES[name].loose)
    assert np.all(np.asarray(found.status) == Status.CONVERGED)


@pytest.mark.parametrize("name", NAMES)
def test_trees_of_other_arrays_are_the_same(name):
    """Problems that were fetched by `jax.device_get`, and numbers that a map over a tree made arrays of."""
    solver, case = SOLVERS[name], CASES[name]
    problem = case.problem(np.float32, case.paths[0])
    expected = solver.run(problem, case.loose)
    arrays = jax.tree.map(jax.numpy.asarray, case.loose)
    for one, hp in ((jax.device_get(problem), case.loose), (problem, arrays)):
        found = solver.run(one, hp)
        np.testing.assert_allclose(np.asarray(found.value), np.asarray(expected.value), rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_dtypes_agree(name):
    wide, narrow = solved(name), solved(name, np.float32)
    for leaf in jax.tree.leaves((narrow.weights, narrow.value)):
        assert leaf.dtype == np.float32
    assert np.all(np.asarray(narrow.status) == Status.CONVERGED)
    np.testing.assert_allclose(np.asarray(narrow.value), np.asarray(wide.value), rtol=1e-3)
    chex.assert_trees_all_equal_shapes(narrow.weights, wide.weights)


@pytest.mark.parametrize("path", PATHS)
def test_other_numbers_compile_nothing(path, compilations):
    name, path = path.split("-")
    solver, case = SOLVERS[name], CASES[name]
    problem = case.problem(np.float64, path)
    other = case.other(problem, case.tight)
    first = solver.run(problem, case.tight)
    later = []
    assert not compilations(lambda: later.append(solver.run(*other)))
    assert np.all(np.asarray(later[0].value) != np.asarray(first.value))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_step_keeps_shapes_and_dtypes(path, dtype):
    name, path = path.split("-")
    solver, problem = SOLVERS[name], CASES[name].problem(dtype, path)
    state = jax.eval_shape(solver.init, problem, CASES[name].loose)
    chex.assert_trees_all_equal_shapes_and_dtypes(
        jax.eval_shape(solver.step, problem, CASES[name].loose, state), state
    )


@pytest.mark.parametrize("name", NAMES)
def test_init_and_step_are_what_run_is_made_of(name, compilations):
    solver, case = SOLVERS[name], CASES[name]
    problem = case.problem(np.float64, case.paths[0])
    state = solver.init(problem, case.loose)
    states = [state, solver.step(problem, case.loose, state)]

    def steps():
        for _ in range(500):
            if np.all(np.asarray(states[-1].status) > Status.RUNNING):
                break
            states.append(solver.step(problem, case.loose, states[-1]))

    assert not compilations(steps)
    chex.assert_trees_all_equal_shapes_and_dtypes(*states)
    state = states[-1]
    assert np.all(np.asarray(state.status) == Status.CONVERGED)
    found = solver.run(problem, case.loose, state)
    assert np.all(np.asarray(found.status) == Status.CONVERGED)
    np.testing.assert_allclose(np.asarray(found.value), case.optimum(), rtol=1e-3)


def state_of(name, problem, kind):
    """A state of a run of this problem: one that has ended, the same as running, or one after three steps."""
    solver, hp = SOLVERS[name], CASES[name].tight
    if kind == "steps":
        state = solver.init(problem, hp)
        for _ in range(3):
            state = solver.step(problem, hp, state)
        return state
    state = solver.run(problem, hp).diagnostics
    return state if kind == "ended" else state._replace(status=state.status * 0 + Status.RUNNING)


def at_the_optimum(case, value, status):
    assert np.all(np.asarray(status) == Status.CONVERGED)
    np.testing.assert_allclose(np.asarray(value), case.optimum(), rtol=1e-6)


def goes_on(name, path, factor, kind):
    """Checks a run from a state of a problem whose numbers are `factor` times those of the problem."""
    solver, case = SOLVERS[name], CASES[name]
    problem = case.problem(np.float64, path)
    before = dataclasses.replace(problem, **{case.number: getattr(problem, case.number) * factor})
    found = solver.run(problem, case.tight, state_of(name, before, kind))
    at_the_optimum(case, found.value, found.status)


@pytest.mark.parametrize("kind", ["ended", "running", "steps"])
@pytest.mark.parametrize("factor", [1, 30, 1 / 30])
@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("multi")])
def test_a_state_of_a_problem_with_other_numbers_leads_to_the_optimum(name, factor, kind):
    goes_on(name, CASES[name].paths[0], factor, kind)


@pytest.mark.parametrize("path", [path for path in PATHS if not path.startswith("multi")])
def test_a_state_that_has_ended_is_judged_anew_on_every_path(path):
    name, backend = path.split("-")
    goes_on(name, backend, 3, "ended")  # 30 times is that of the first path above: dual ascent takes seconds


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("multi")])
def test_a_state_of_other_features_leads_to_the_optimum(name):
    solver, case = SOLVERS[name], CASES[name]
    problem = case.problem(np.float64, case.paths[0])
    rows = np.arange(N)[::-1]
    reordered = dict(op=linops.make(X[rows])) if name != "kernel_multinomial" else {}
    if name == "admm":
        parts = SOLVERS["admm"].problem(linops.make(3 * X[rows]), Y, formulation="cs")
        reordered = {part: getattr(parts, part) for part in ("op", "features", "eigenvalue", "rotation")}
    if name == "instance_dual":
        reordered["squared_norms"] = problem.squared_norms[rows]
    if name == "kernel_multinomial":
        reordered["kernel"] = dataclasses.replace(problem.kernel, v=50 * problem.kernel.v)
    for kind in ("ended", "running", "steps"):
        state = state_of(name, dataclasses.replace(problem, **reordered), kind)
        found = solver.run(problem, case.tight, state)
        at_the_optimum(case, found.value, found.status)


@pytest.mark.parametrize("name", PURE)
def test_a_state_of_a_problem_with_other_numbers_under_jit(name):
    solver, case = SOLVERS[name], CASES[name]
    problem = case.problem(np.float64, case.paths[0])
    before = dataclasses.replace(problem, **{case.number: getattr(problem, case.number) / 30})
    state = solver.run(before, case.tight).diagnostics
    value, status = jax.jit(lambda *given: solver.run(given[0], case.tight, given[1])[1:3])(problem, state)
    at_the_optimum(case, value, status)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_reached_its_limit_goes_on_with_a_higher_one(name):
    solver, case = SOLVERS[name], CASES[name]
    problem = case.problem(np.float64, case.paths[0])
    limited = solver.run(problem, case.limited)
    assert np.all(np.asarray(limited.status) == Status.MAX_STEPS)
    found = solver.run(problem, case.tight, limited.diagnostics)
    at_the_optimum(case, found.value, found.status)


@pytest.mark.parametrize("name", NAMES)
def test_a_state_that_is_none_of_the_problem_is_refused(name):
    solver, case = SOLVERS[name], CASES[name]
    problem = case.problem(np.float64, case.paths[0])
    with pytest.raises(TypeError, match=r"^state: expected a State of xmcjax\.solvers.*, got dict$"):
        solver.run(problem, case.loose, {})


@pytest.mark.parametrize("name", NAMES)
def test_hyperparameters_of_another_solver_are_refused(name):
    solver, case = SOLVERS[name], CASES[name]
    problem = case.problem(np.float64, case.paths[0])
    other = next(SOLVERS[n].hparams for n in NAMES if SOLVERS[n].hparams is not solver.hparams)
    for hp, found in ((other(), r"HParams of xmcjax\.solvers.*"), (3, "int")):
        with pytest.raises(TypeError, match=rf"^hp: expected HParams of xmcjax\.solvers.*, got {found}$"):
            solver.run(problem, hp)


@pytest.mark.parametrize("path", [path for path in PATHS if not path.startswith("multi")])
def test_a_state_of_other_shapes_is_refused(path):
    name, path = path.split("-")
    solver, case = SOLVERS[name], CASES[name]
    problem = case.problem(np.float64, path)
    state = solver.init(problem, case.loose)
    lane = {"newton_cg": -1, "kernel_multinomial": -1}
    for field in ("w", "alpha", "dual"):
        if hasattr(state, field):
            array = getattr(state, field)
            axis = array.ndim - 1 if name in lane else array.ndim - 2
            one = jax.numpy.take(array, jax.numpy.arange(1), axis=axis)
            state = state._replace(**{field: one})
    with pytest.raises(ValueError, match=r"^state: expected \w+ \[.*\] for this problem, got \[.*\]$"):
        solver.run(problem, case.loose, state)


@pytest.mark.parametrize("name", NAMES)
def test_status_and_remedy(name):
    case = CASES[name]
    assert solved(name).remedy == ""
    few = solved(name, hp=case.limited)
    assert np.all(np.asarray(few.status) == Status.MAX_STEPS)
    lanes = np.size(few.status)
    assert few.remedy.startswith(f"{lanes} of {lanes}: MAX_STEPS: allow more steps or a looser tolerance")
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in jax.tree.leaves((few.weights, few.value)))


@pytest.mark.parametrize("name", PURE)
def test_jit_and_vmap(name, compilations):
    solver, case = SOLVERS[name], CASES[name]
    problem = case.problem(np.float64, case.paths[0])
    other, _ = case.other(problem, case.tight)

    def run(problem):
        found = solver.run(problem, case.tight)
        return found.weights, found.value, found.status

    jitted = jax.jit(run)
    apart = [jitted(problem)]
    assert not compilations(lambda: apart.append(jitted(other)))
    chex.assert_trees_all_close(apart[0], run(problem), rtol=1e-9, atol=1e-9)
    both = jax.vmap(run)(jax.tree.map(lambda a, b: np.stack([a, b]), problem, other))
    for place, found in enumerate(apart):
        chex.assert_trees_all_close(jax.tree.map(lambda a, k=place: a[k], both), found, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in PURE])
def test_a_solver_of_the_host_is_not_for_jit(name):
    solver, case = SOLVERS[name], CASES[name]
    problem = case.problem(np.float64, case.paths[0])
    with pytest.raises(TypeError, match="outside jit and vmap"):
        jax.jit(lambda problem: solver.run(problem, case.tight).value)(problem)


def test_numbers_out_of_range_are_refused():
    """A sentence that begins with the name, and has the number as it was given."""
    for name, solver in SOLVERS.items():
        problem, hp = CASES[name].problem(np.float64, CASES[name].paths[0]), solver.hparams()
        for field, parameter in inspect.signature(solver.hparams).parameters.items():
            default = parameter.default
            if default is None or isinstance(default, bool) or field in ("l2_bias", "sweeps", "threads"):
                continue
            whole = isinstance(default, int)
            for wrong in (-1, 2.5) if whole else (-1.0, np.nan):
                found = rf"^{field}: expected .*, got {wrong}$"
                with pytest.raises((TypeError, ValueError), match=found):
                    solver.run(problem, hp._replace(**{field: wrong}))


def test_a_run_does_not_depend_on_rank_promotion():
    solver, case = SOLVERS["newton_cg"], CASES["newton_cg"]
    problem = case.problem(np.float64, case.paths[0])

    def value(l2):
        found = solver.run(problem, case.loose._replace(l2=l2))
        return found.value.sum() + (found.weights.w**2).sum()

    with jax.numpy_rank_promotion("raise"):
        found = jax.value_and_grad(value)(0.5)
    chex.assert_trees_all_close(found, jax.value_and_grad(value)(0.5), rtol=1e-6)


def test_no_lane_converges_with_numbers_out_of_range_that_are_traced():
    solver = SOLVERS["newton_cg"]

    @jax.jit
    def status(op, l2, weight, y):
        problem = solver.problem(op, y, MARGIN_LOSSES["logistic"], weight=weight, tolerance=1e-3)
        return solver.run(problem, solver.hparams(l2=l2)).status

    for path in CASES["newton_cg"].paths:
        op, y = features(np.float64, path), SIGNS.astype(np.float64)
        assert np.all(status(op, 1.0, 1.0, y) == Status.CONVERGED)
        assert np.all(status(op, -1.0, 1.0, y) == Status.NONFINITE)
        assert np.all(status(op, 1.0, -1.0, y) == Status.NONFINITE)
        y[0, 1] = 0
        of_lane = np.where(np.arange(y.shape[1]) == 1, Status.NONFINITE, Status.CONVERGED)
        np.testing.assert_array_equal(status(op, 1.0, 1.0, y), of_lane)


@pytest.mark.parametrize("module", [multiclass_dual, multinomial])
def test_solve_is_called_run(module):
    with pytest.raises(AttributeError, match="solve is called run now, with the same arguments"):
        module.solve  # noqa: B018 – it is the access that is refused
    with pytest.raises(AttributeError, match="has no attribute 'solved'"):
        module.solved  # noqa: B018
