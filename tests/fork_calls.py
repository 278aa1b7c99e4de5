"""What the public tables offer, called in a process that is forked after JAX has computed.

``main(limit)`` prints how each call ended there: "worked", "refused" with the sentence that names the reason,
"waited" where it was not back within the limit, or the error.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import select
import signal
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from xmcjax import kernels, linops, losses, metrics, penalties, projections, solvers
from xmcjax.solvers import instance_dual, kernel_multinomial, multiclass_dual, multinomial, newton_cg

REASON = "this process was forked from process"
# calls that wait after which the others are not tried: each takes its limit
ENOUGH = 8

_rng = np.random.default_rng(0)
X = _rng.normal(size=(12, 4)).astype(np.float32)
Y = np.arange(12) % 3
SIGNS = np.where(_rng.random((12, 2)) < 0.4, 1, -1)
SCORES = _rng.normal(size=(5, 4)).astype(np.float32)
LABELS = np.arange(5) % 4
W, C = X[:4, :2].copy(), X[:, :2].copy()

PROJECTED = {
    "simplex": (),
    "capped_simplex": (1.0, 0.5),
    "knapsack": (0.0, -1.0, 1.0),
    "topk_cone": (2,),
    "topk_simplex": (2,),
}
OF_LOSSES = {
    "scores": SCORES,
    "duals": SCORES,
    "labels": LABELS,
    "targets": np.sign(SCORES),
    "loss": losses.hinge,
    "k": 2,
    "gamma": 0.5,
    "log_a": np.ones(5, np.float32),
    "a": np.ones(5, np.float32),
}
PRODUCTS = {
    "matmat": (W,),
    "rmatmat": (C,),
    "gram_matmat": (C, C[:4]),
    "squared_rmatmat": (C,),
    "row_norms2": (),
    "mean": (),
    "take_rows": (np.arange(3),),
    "to_scipy": (),
    "in_jax": (),
}


def _simple() -> dict[str, Callable]:
    calls: dict[str, Callable] = {}
    for name, project in projections.PROJECTIONS.items():
        calls[f"projections.{name}"] = partial(project, SCORES, *PROJECTED[name])
    for name in losses.__all__:
        function = getattr(losses, name)
        if inspect.isfunction(function):
            needed = [p for p in inspect.signature(function).parameters if p in OF_LOSSES]
            calls[f"losses.{name}"] = partial(function, *(OF_LOSSES[p] for p in needed))
    for name, loss in losses.MARGIN_LOSSES.items():
        for method in ("value", "grad", "curv", "conjugate"):
            calls[f"{name}.{method}"] = partial(getattr(loss, method), np.ones(3))
    for name, loss in {**losses.MARGIN_LOSSES, "poisson": losses.poisson}.items():
        for method in ("score_value", "score_grad", "score_curv"):
            calls[f"{name}.{method}"] = partial(getattr(loss, method), np.ones(3), np.ones(3))
    for name, penalty in penalties.PENALTIES.items():
        for method, count in (("value", 1), ("violation", 3), ("minimiser", 3)):
            calls[f"penalties.{name}.{method}"] = partial(getattr(penalty(), method), *[np.ones(3)] * count)
    for name, metric in metrics.RANKING_METRICS.items():
        calls[f"metrics.{name}"] = partial(metric, sp.csr_matrix(np.eye(3)), np.eye(3), 1)
    return calls


def _operators() -> dict[str, Callable]:
    calls: dict[str, Callable] = {}
    sparse = sp.csr_matrix(X)
    for backend in ("dense", "jnp", "gpu", *(("native",) if linops.native_ready() else ())):
        given = X if backend == "dense" else sparse
        calls[f"linops.make({backend})"] = partial(linops.make, given, backend=backend)
        op = linops.make(given, backend=backend)
        for method, arguments in PRODUCTS.items():
            if hasattr(op, method):
                calls[f"{backend}.{method}"] = partial(getattr(op, method), *map(jnp.asarray, arguments))
    return calls


def _kernels() -> dict[str, Callable]:
    calls: dict[str, Callable] = {}
    products = X @ X.T
    pairs = kernels.Pairs(products, np.abs(products), 4.0)
    S = np.ones((12, 3, 2), np.float32)
    for name, kind in kernels.KERNELS.items():
        fields = [f.name for f in dataclasses.fields(kind) if f.default is dataclasses.MISSING]
        kernel = kind(**dict.fromkeys(fields, 0.7))
        calls[f"kernels.{name}.value"] = partial(kernel.value, pairs)
        points = kernels.points(X)
        calls[f"kernels.gram({name})"] = partial(kernels.gram, kernel, points)
        approximations = {"gram": kernels.gram(kernel, points)}
        if name == "rbf":
            approximations["tiles"] = kernels.gram(kernel, points, memory=0)
            for other in (kernels.low_rank, kernels.fourier):
                calls[f"kernels.{other.__name__}"] = partial(other, kernel, points, 4)
                approximations[other.__name__] = other(kernel, points, 4)
        for kind_of, gram in approximations.items():
            calls[f"{name}.{kind_of}.matmat"] = partial(gram.matmat, S[:, :1])
            calls[f"{name}.{kind_of}.matrices"] = gram.matrices
            calls[f"{name}.{kind_of}.cross"] = partial(gram.cross, points, S[:, :1])
            of_classes = kernels.class_kernels(gram, 1.5, 0.3, 3)
            calls[f"class_kernels({name}.{kind_of})"] = partial(kernels.class_kernels, gram, 1.5, 0.3, 3)
            calls[f"class_kernels({name}.{kind_of}).matmat"] = partial(of_classes.matmat, S)
            calls[f"class_kernels({name}.{kind_of}).cross"] = partial(of_classes.cross, points, S)
            calls[f"class_kernels({name}.{kind_of}).matrices"] = of_classes.matrices
    calls["kernels.points"] = partial(kernels.points, X)
    given = kernels.precomputed(products)
    calls["kernels.precomputed"] = partial(kernels.precomputed, products)
    calls["kernels.precomputed_test"] = partial(kernels.precomputed_test, products, given)
    return calls


def _solvers() -> dict[str, Callable]:
    table, calls = solvers.SOLVERS, {}
    op = linops.make(sp.csr_matrix(X))
    points = kernels.points(X)
    kernel = kernels.class_kernels(kernels.gram(kernels.RBF(0.4), points), 1.5, 0.3, 3)
    bound, key = np.array([[0.7], [1.4]]), jax.random.key(0)
    problems = {
        "newton_cg": partial(table["newton_cg"].problem, op, SIGNS, losses.logistic, tolerance=1e-3),
        "multiclass_dual": partial(table["multiclass_dual"].problem, X, Y),
        "instance_dual": partial(
            table["instance_dual"].problem, op, Y, set_name="topk_alpha", bound=bound, k=1
        ),
        "multinomial": partial(table["multinomial"].problem, op, Y, 0.6),
        "kernel_multinomial": partial(table["kernel_multinomial"].problem, kernel, Y),
    }
    made, states = {}, {}
    for name, solver in table.items():
        hp = solver.hparams()
        problem = made[name] = problems[name]()
        state = states[name] = solver.init(problem, hp)
        calls[f"{name}.problem"] = problems[name]
        calls[f"{name}.init"] = partial(solver.init, problem, hp)
        calls[f"{name}.step"] = partial(solver.step, problem, hp, state)
        calls[f"{name}.run"] = partial(solver.run, problem, hp)
    # what the modules have beside
    lanes, hp = made["newton_cg"], newton_cg.HParams()
    donated = [newton_cg.init(lanes)]
    calls["newton_cg.lane_problem"] = partial(newton_cg.lane_problem, op, SIGNS, losses.logistic)
    calls["newton_cg.module.init"] = partial(newton_cg.init, lanes)
    calls["newton_cg.module.step"] = partial(newton_cg.step, lanes, hp, states["newton_cg"])
    calls["newton_cg.advance"] = lambda: newton_cg.advance(lanes, hp, donated.pop())
    calls["newton_cg.module.run"] = partial(newton_cg.run, lanes, hp, states["newton_cg"])
    instances, hp_dual = made["instance_dual"], instance_dual.HParams()
    given = [instance_dual.init(instances, key) for _ in range(3)]
    calls["instance_dual.module.init"] = partial(instance_dual.init, instances, key)
    calls["instance_dual.module.step"] = partial(instance_dual.step, instances, hp_dual, given[0])
    calls["instance_dual.advance"] = lambda: instance_dual.advance(instances, hp_dual, given.pop(), 1)
    calls["instance_dual.module.run"] = lambda: instance_dual.run(instances, hp_dual, given.pop())
    calls["instance_dual.objectives"] = partial(instance_dual.objectives, instances, hp_dual, given[0])
    calls["instance_dual.proof"] = partial(instance_dual.proof, instances, given[0], 0, 1e-3)
    calls["instance_dual.dual_variables"] = partial(instance_dual.dual_variables, instances, given[0], 0)
    calls["instance_dual.weights"] = partial(instance_dual.weights, instances, given[0])
    calls["instance_dual.coefficients"] = partial(instance_dual.coefficients, instances, given[0])
    svm, hp_svm, start = made["multiclass_dual"], multiclass_dual.HParams(), states["multiclass_dual"]
    calls["multiclass_dual.module.init"] = partial(multiclass_dual.init, svm, key)
    calls["multiclass_dual.module.step"] = partial(multiclass_dual.step, svm, hp_svm, start)
    calls["multiclass_dual.run_epochs"] = partial(multiclass_dual.run_epochs, svm, hp_svm, start)
    calls["multiclass_dual.weights"] = partial(multiclass_dual.weights, svm, start.alpha)
    calls["multiclass_dual.certificate"] = partial(multiclass_dual.certificate, svm, start.W, start.alpha)
    calls["multiclass_dual.module.run"] = partial(multiclass_dual.run, sp.csr_matrix(X), Y)
    calls["multiclass_dual.module.run(dense)"] = partial(multiclass_dual.run, X, Y, backend="dense")
    logistic, hp_logistic = made["multinomial"], multinomial.HParams()
    zeros = np.zeros((4, 3), np.float32), np.zeros(3, np.float32)
    calls["multinomial.evaluate"] = partial(multinomial.evaluate, logistic, *map(jnp.asarray, zeros))
    calls["multinomial.initial"] = partial(
        multinomial.initial, logistic, hp_logistic, None, None, method="newton"
    )
    begun = [multinomial.initial(logistic, hp_logistic, None, None, method="newton")]
    calls["multinomial.advance"] = lambda: multinomial.advance(
        logistic, hp_logistic, begun.pop(), method="newton"
    )
    for name, method in multinomial.METHODS.items():
        calls[f"multinomial.{name}.init"] = partial(method.init, logistic, hp_logistic, None, None)
    calls["multinomial.module.run"] = partial(multinomial.run, logistic)
    mixed, at = made["kernel_multinomial"], states["kernel_multinomial"]
    hp_kernel = kernel_multinomial.HParams()
    allowed, folds = Y[:, None] != (np.arange(3) + 1) % 3, Y % 2
    transitions, lengths = np.zeros((3, 3)), np.array([6, 6])
    chained = kernel_multinomial.chain_problem(kernel, Y, lengths, transitions)
    calls["kernel_multinomial.module.init"] = partial(kernel_multinomial.init, mixed)
    calls["kernel_multinomial.module.step"] = partial(kernel_multinomial.step, mixed, hp_kernel, at)
    calls["kernel_multinomial.module.run"] = partial(kernel_multinomial.run, mixed, hp_kernel, at)
    calls["kernel_multinomial.fit"] = partial(kernel_multinomial.fit, mixed, hp_kernel)
    calls["kernel_multinomial.kernel_problem"] = partial(kernel_multinomial.kernel_problem, kernel, Y)
    calls["kernel_multinomial.fold_weights"] = partial(kernel_multinomial.fold_weights, folds, 2, np.float32)
    calls["kernel_multinomial.fit_uncertain"] = partial(
        kernel_multinomial.fit_uncertain, kernel, allowed, hp_kernel, max_iter=2
    )
    calls["kernel_multinomial.chain_problem"] = partial(
        kernel_multinomial.chain_problem, kernel, Y, lengths, transitions
    )
    calls["kernel_multinomial.fit_chains"] = partial(
        kernel_multinomial.fit_chains, chained, hp_kernel, 1.0, max_iter=2
    )
    calls["kernel_multinomial.most_likely"] = partial(
        kernel_multinomial.most_likely, SCORES[:, :3], np.array([5]), transitions
    )
    weight = kernel_multinomial.fold_weights(folds, 2, np.float32)
    judged = kernel_multinomial.kernel_problem(kernel, Y, weight)
    model = kernel_multinomial.KernelModel(points, 3, np.zeros(3, int))
    chosen = model.hyperparameters(1.5, kernels.RBF(0.4), 0.3)
    calls["KernelModel.hyperparameters"] = partial(model.hyperparameters, 1.5, kernels.RBF(0.4), 0.3)
    calls["KernelModel.kernels"] = partial(model.kernels, chosen)
    made_of = model, mixed.likelihood, folds, chosen
    calls["CvObjective"] = partial(kernel_multinomial.CvObjective, *made_of)
    objective = kernel_multinomial.CvObjective(*made_of)
    calls["CvObjective.call"] = partial(objective, objective.pack(chosen))
    calls["kernel_multinomial.tune"] = partial(kernel_multinomial.tune, objective, max_iter=1)
    calls["kernel_multinomial.cv_criterion"] = partial(
        kernel_multinomial.cv_criterion, judged, 1 - weight, hp_kernel
    )
    return calls


def all_calls() -> dict[str, Callable]:
    """Each by its name; JAX has computed when they are made."""
    return _simple() | _operators() | _kernels() | _solvers()


def _ended(call: Callable[[], Any]) -> str:
    try:
        jax.block_until_ready(call())
        return "worked"
    except RuntimeError as error:
        return "refused" if str(error).startswith(REASON) else repr(error)
    except Exception as error:
        return repr(error)


def _in_child(calls: dict[str, Callable], limit: float) -> dict[str, str]:
    """How the calls ended in one forked process, up to the first that did not end."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receive)
        try:
            for call in calls.values():
                os.write(send, f"{_ended(call)[:300]!r}\n".encode())
        finally:
            os._exit(0)
    os.close(send)
    ended, names = {}, iter(calls)
    with os.fdopen(receive, "rb", buffering=0) as lines:
        for name in names:
            if not select.select([lines], [], [], limit)[0]:
                ended[name] = "waited"
                break
            ended[name] = eval(lines.readline() or "'the process ended'")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return ended


def main(limit: float, enough: int = ENOUGH) -> None:
    """Prints how each call ended in a forked process, and then how it ended in this one."""
    warnings.simplefilter("ignore")  # JAX warns of every fork
    calls = all_calls()
    ended: dict[str, str] = {}
    while len(ended) < len(calls) and list(ended.values()).count("waited") < enough:
        ended |= _in_child({name: call for name, call in calls.items() if name not in ended}, limit)
    # what was compiled here before would have worked there, sometimes
    here = {name: _ended(call) for name, call in calls.items() if ended.get(name) != "waited"}
    sys.stdout.write(f"{ended, here}\n")
