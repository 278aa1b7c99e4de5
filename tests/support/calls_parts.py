"""Valid calls of what takes what others make: an operator, a kernel, a problem, a state."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from tests.support.calls import CLASSES, FEATURES, SIGNS, Call, D, K, M, N, Table, X, by_signature
from xmcjax import kernels, linops, losses, penalties, solvers
from xmcjax.solvers import kernel_multinomial as km

W, C = np.ones((D, K), np.float32), np.ones((N, K), np.float32)
PRODUCTS = {
    "matmat": (W,),
    "rmatmat": (C,),
    "gram_matmat": (C, W),
    "squared_rmatmat": (C,),
    "row_norms2": (),
    "mean": (),
    "take_rows": (np.arange(3),),
    "to_scipy": (),
    "in_jax": (),
}
# Functions of the modules of SOLVERS that take a problem, a state or an operator.
STEPS = {
    "admm": "init step advance proof dual_variables weights",
    "newton_cg": "init step",
    "multiclass_dual": "init step run_epochs weights certificate",
    "instance_dual": "init step objectives proof dual_variables weights coefficients",
    "multinomial": "initial evaluate",
    "kernel_multinomial": "init step run fit",
}
DONATED = ("newton_cg", "instance_dual", "multinomial")


def add(table: Table) -> None:
    """All of them; each without arguments, as none of them is anything that a caller may get wrong."""
    parts = _formulas() | _operators() | _kernels() | _solvers() | _searches()
    assert not parts.keys() & table.keys()
    table |= parts


def _part(function: Callable, *arguments, **named) -> Call:
    return Call(functools.partial(function, *arguments, **named), {})


def _taking(function: Callable, fresh: list, arguments: dict):
    return function(**arguments | ({"state": fresh.pop()} if "state" in arguments else {}))


def _formulas() -> dict[str, Call]:
    found, ones = {}, np.ones(3)
    for loss in (*losses.MARGIN_LOSSES.values(), losses.poisson):
        for method in ("score_value", "score_grad", "score_curv"):
            name = f"xmcjax.losses.{type(loss).__name__}.{method}"
            found[name] = _part(getattr(loss, method), ones, ones)
    for kind in penalties.PENALTIES.values():
        for method in ("violation", "minimiser"):
            name = f"xmcjax.penalties.{kind.__name__}.{method}"
            found[name] = _part(getattr(kind(), method), ones, ones, ones)
        found[f"xmcjax.penalties.{kind.__name__}.conjugate"] = _part(kind().conjugate, ones, ones)
    return found


def _operators() -> dict[str, Call]:
    found = {}
    for backend in ("dense", "jnp", "gpu", *(("native",) if linops.native_ready() else ())):
        op = linops.make(X if backend == "dense" else FEATURES, backend=backend)
        for method, arguments in PRODUCTS.items():
            if hasattr(op, method):
                name = f"xmcjax.linops.{type(op).__name__}.{method}({backend!r})"
                found[name] = _part(getattr(op, method), *map(jnp.asarray, arguments))
        name = f"xmcjax.linops.{type(op).__name__}.inner({backend!r})"
        found[name] = _part(op.inner, jnp.int32([2, 0]), op)
    return found


def _kernels() -> dict[str, Call]:
    found = {}
    products, points, S = X @ X.T, kernels.points(X), np.ones((N, M, K), np.float32)
    pairs = kernels.Pairs(products, np.abs(products), 4.0)
    for kind in kernels.KERNELS.values():
        fields = [f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING]
        kernel = kind(**dict.fromkeys(fields, 0.7))
        found[f"xmcjax.kernels.{kind.__name__}.value"] = _part(kernel.value, pairs)
        grams = [kernels.gram(kernel, points)]
        if kind is kernels.RBF:
            grams.append(kernels.gram(kernel, points, memory=0))
            grams += [approximate(kernel, points, 4) for approximate in (kernels.low_rank, kernels.fourier)]
        for place, gram in enumerate(grams):
            of_classes = kernels.class_kernels(gram, 1.5, 0.3, M)
            for made, right in ((gram, S[:, :1]), (of_classes, S)):
                begin, end = f"xmcjax.kernels.{type(made).__name__}", f"({kind.__name__}, {place})"
                found[f"{begin}.matmat{end}"] = _part(made.matmat, right)
                found[f"{begin}.matrices{end}"] = _part(made.matrices)
                found[f"{begin}.cross{end}"] = _part(made.cross, points, right)
    return found


def _solvers() -> dict[str, Call]:
    """Those of the table of solvers, and what their modules have beside."""
    found, op = {}, linops.make(FEATURES)
    kernel = kernels.class_kernels(kernels.gram(kernels.RBF(0.4), kernels.points(X)), 1.5, 0.3, M)
    values = dict(op=op, kernel=kernel, X=FEATURES, y=CLASSES, loss=losses.logistic, tolerance=1e-3, lam=0.6)
    values |= dict(set_name="topk_alpha", bound=np.array([[0.7], [1.4]]), k=1, lane=0, tol=1e-3)
    values |= dict(key=jax.random.key(0), method="newton", count=1)
    for name, solver in solvers.SOLVERS.items():
        given = values | dict(y=SIGNS) if name == "newton_cg" else dict(values)
        arguments = by_signature(solver.problem, given)
        problem, hp = solver.problem(**arguments), solver.hparams()
        state = solver.init(problem, hp)
        first, module = f"xmcjax.solvers.{name}", importlib.import_module(f"xmcjax.solvers.{name}")
        found[f"xmcjax.solvers.Solver.problem({name!r})"] = _part(solver.problem, **arguments)
        found[f"xmcjax.solvers.Solver.init({name!r})"] = _part(solver.init, problem, hp)
        found[f"xmcjax.solvers.Solver.step({name!r})"] = _part(solver.step, problem, hp, state)
        found[f"xmcjax.solvers.Solver.run({name!r})"] = _part(solver.run, problem, hp)
        given |= dict(problem=problem, hp=hp, state=state)
        if name == "multiclass_dual":
            given |= dict(W=state.W, alpha=state.alpha)
        if name == "multinomial":
            given |= dict(W=jnp.zeros((D, M), jnp.float32), bias=jnp.zeros(M, jnp.float32), W0=None, b0=None)
        for step in STEPS[name].split():
            function = getattr(module, step)
            found[f"{first}.{step}()"] = _part(function, **by_signature(function, given))
        # these take the memory of their state, and so can be called once in a process
        for step in {"advance", "run"} & set(dir(module)) if name in DONATED else ():
            begin = module.initial if name == "multinomial" else module.init
            fresh, function = [begin(**by_signature(begin, given))], getattr(module, step)
            more = by_signature(function, given | dict(count=1))
            found[f"{first}.{step}()"] = Call(functools.partial(_taking, function, fresh, more), {})
    return found


def _searches() -> dict[str, Call]:
    """Of the hyperparameters of a kernel."""
    points, folds = kernels.points(X), CLASSES % 2
    kernel = kernels.class_kernels(kernels.gram(kernels.RBF(0.4), points), 1.5, 0.3, M)
    weight = km.fold_weights(folds, 2, np.float32)
    model = km.KernelModel(points, M, np.zeros(M, int))
    at = model.hyperparameters(1.5, kernels.RBF(0.4), 0.3)
    objective = km.CvObjective(model, km.kernel_problem(kernel, CLASSES).likelihood, folds, at)
    judged = km.kernel_problem(kernel, CLASSES, weight)
    first = "xmcjax.solvers.kernel_multinomial"
    return {
        f"{first}.KernelModel.hyperparameters": _part(model.hyperparameters, 1.5, kernels.RBF(0.4), 0.3),
        f"{first}.KernelModel.kernels": _part(model.kernels, at),
        f"{first}.CvObjective.value": _part(objective, objective.pack(at)),
        f"{first}.tune": _part(km.tune, objective, max_iter=1),
        f"{first}.cv_criterion": _part(km.cv_criterion, judged, 1 - weight, km.HParams()),
    }
