"""One timed training run in a process of its own, so that compilation counts.

``python -m experiments.bench._worker`` with a JSON object of options on standard input; prints
one JSON object; :func:`ask` does that. Timed is the whole of training: no reading, no writing, no import.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from experiments import _one_vs_all
from experiments._rehearsal import ONE_THREAD, REHEARSAL

ROOT = Path(__file__).resolve().parents[2]


def ask(run: str, folder: Path, processors: list[int], **options) -> dict:
    """The answer of a run of ``RUNS`` on the data in `folder`, in a process on these processors.

    In a rehearsal the run is made in this process, because imports would be most of a short run.
    """
    request = {"run": run, "data": str(folder), "processors": processors, **options}
    if REHEARSAL in os.environ:
        return json.loads(json.dumps(RUNS[run](request)))
    command = [sys.executable, "-m", "experiments.bench._worker"]
    environment = os.environ | ONE_THREAD
    printed = output(run, command, [], input=json.dumps(request), cwd=ROOT, env=environment)
    return json.loads(printed.splitlines()[-1])


def output(name: str, command: list[str], processors: list[int], **options) -> str:
    """The output of a program that runs on these processors; [] for all.

    Args:
        name: of the program, for the error.
        command: the command to run.
        processors: see :func:`pinned`.
        options: of ``subprocess.run``.

    Raises:
        RuntimeError: the program failed; the message has the last line of its errors.
    """
    with pinned(processors):
        done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode:
        raise RuntimeError(f"{name} failed: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


def usable_processors() -> list[int]:
    """The processors that this process may run on, ascending; [] where the system cannot say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


@contextlib.contextmanager
def pinned(processors: list[int]) -> Iterator[None]:
    """A context in which programs that this thread starts run on these processors, where the system can."""
    if not processors or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def memory_mb(of: str = "VmHWM") -> float:
    """Peak resident memory of this process, or with "VmRSS" the memory now.

    The peak that getrusage gives is at least that of the parent process, on Linux.
    """
    import resource

    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(rf"^{of}:\s+(\d+) kB", status.read_text(), re.MULTILINE)
        if found:
            return int(found[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def forget_peak() -> None:
    """Resets the peak of the memory, where the system can."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def load(folder: str) -> tuple:
    """The training part stored in a folder: features, CSR or dense, and labels."""
    return _one_vs_all.stored(folder, "X"), _one_vs_all.stored(folder, "Y")


def xmcjax(options: dict) -> dict:
    """Our training of all labels, or of a sample: seconds, and what the steps did, by Newton step.

    Options: data, init, threads, clip. Optional: solver and loss (see experiments._one_vs_all), eps, sample
    (the most labels), weights (a file for dense weights, the bias last), observe, evaluate (on the test
    part), again (does the same work once more, with nothing left to start or to compile: "again_seconds").
    """
    from xmcjax.lanes import train_one_vs_all

    X, Y = load(options["data"])
    solver = options.get("solver", "xmcjax")
    X = _one_vs_all.features(X, solver)
    names = {"loss": "loss", "eps": "tol", "threads": "n_jobs", "clip": "clip"}
    asked = {new: options[name] for name, new in names.items() if name in options}
    how = _one_vs_all.method(solver, options["init"], **asked)
    labels = _one_vs_all.sample(Y, options.get("sample", 0))
    by_step = _one_vs_all.ByStep(X.shape[0])
    collected = _one_vs_all.Collected(Y.shape[1], X.shape[1])
    keep = options.get("weights") or options.get("evaluate")

    def train(sink=lambda result: None, observe=None):
        return train_one_vs_all(
            X, Y, how, sink, labels=labels if options.get("sample") else None, observe=observe
        )

    forget_peak()
    memory = memory_mb("VmRSS")
    begin, cpu_begin = time.perf_counter(), time.process_time()
    summary = train(*((collected,) if keep else ()), observe=by_step if options.get("observe") else None)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    peak = memory_mb()
    if options.get("weights"):
        np.save(
            options["weights"], np.column_stack([collected.weights().toarray(), collected.trained_bias()])
        )
    result = {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "first_step_seconds": summary.first_step_seconds,
        "labels": len(labels),
        "statuses": {status.name: count for status, count in summary.statuses.items()},
        "newton_steps": summary.newton_steps / len(labels),
        "cg_steps": summary.cg_steps / len(labels),
        "active": summary.active / max(summary.steps, 1) / X.shape[0],
        "memory_mb": peak - memory,
        "peak_mb": peak,
        "by_step": by_step.table(),
    }
    if options.get("again"):
        begin = time.perf_counter()
        train()
        result["again_seconds"] = time.perf_counter() - begin
    if options.get("evaluate"):
        X_test = _one_vs_all.features(_one_vs_all.stored(options["data"], "X_test"), solver)
        Y_test = _one_vs_all.stored(options["data"], "Y_test")
        result |= _one_vs_all.quality(collected.weights(), collected.bias, X_test, Y_test)
    return result


def one_vs_all_trace(options: dict) -> dict:
    """A trace of every step of a sample of the labels; options data, solver, init, loss, eps and sample."""
    X, Y = load(options["data"])
    X = _one_vs_all.features(X, options["solver"])
    how = _one_vs_all.method(options["solver"], options["init"], loss=options["loss"], tol=options["eps"])
    trace = _one_vs_all.trace(X, Y, how, _one_vs_all.sample(Y, options["sample"]))
    return _one_vs_all.summarise(trace)


def linear_svc(options: dict) -> dict:
    """A loop of LinearSVC (primal) over a seeded sample of the labels, on [X, 1]."""
    X, Y = load(options["data"])
    labels = _one_vs_all.sample(Y, options["sample"])
    features, Y = _one_vs_all.features(X, "published"), Y.tocsc()
    begin = time.perf_counter()
    W = fitted_linear_svc(features, Y, labels)
    seconds = time.perf_counter() - begin
    np.save(options["weights"], W)
    return {"seconds": seconds, "labels": len(labels), "sample": labels.tolist()}


def fitted_linear_svc(features, Y, labels: np.ndarray) -> np.ndarray:
    """Weights of LinearSVC (primal) for some labels, [labels, d]; Y is CSC."""
    from sklearn.svm import LinearSVC

    W = np.zeros((len(labels), features.shape[1]))
    for k, label in enumerate(labels):
        y = np.full(features.shape[0], -1)
        y[Y.indices[Y.indptr[label] : Y.indptr[label + 1]]] = 1
        svc = LinearSVC(
            loss="squared_hinge", dual=False, C=1.0, fit_intercept=False, tol=1e-4, max_iter=10000
        )
        W[k] = svc.fit(features, y).coef_[0]
    return W


def scipy_product(options: dict) -> dict:
    """scipy's CSR @ dense with 16 columns, plain work with which the gain by threads is compared."""
    X, _ = load(options["data"])
    V = np.random.default_rng(0).normal(size=(X.shape[1], 16)).astype(X.dtype)
    _ = X @ V
    begin = time.perf_counter()
    for _ in range(options["products"]):
        _ = X @ V
    return {"seconds": time.perf_counter() - begin, "labels": 0}


def prediction(options: dict) -> dict:
    """Seconds to predict the best labels of test.npz with model, both in `data`: first call, second call."""
    from xmcjax.data import load_npz
    from xmcjax.models import LinearModel, predict_topk

    folder = Path(options["data"])
    X, _ = load_npz(folder / "test.npz")
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        predict_topk(LinearModel.load(folder / "model"), X, options["top"])
        seconds.append(time.perf_counter() - begin)
    return {"first_call": seconds[0], "prediction": seconds[1]}


def load_classes(folder: str) -> tuple[np.ndarray, np.ndarray]:
    """Features [n, d] of float32 and classes [n]."""
    return np.load(f"{folder}/X.npy"), np.load(f"{folder}/y.npy")


def topk_svm(options: dict) -> dict:
    """Our top-k SVM: CPU time of training twice, the second time without compilation, and of its gaps."""
    import jax

    from xmcjax import linops
    from xmcjax.solvers import Status, topk_sdca

    X, y = load_classes(options["data"])
    hp = topk_sdca.HParams(tol=options["tol"], max_epochs=100_000)

    def train():
        begin = time.process_time()
        problem = topk_sdca.problem(linops.make(X), y, options["k"], options["C"], variant=options["variant"])
        state = topk_sdca.run(problem, hp, topk_sdca.init(problem, jax.random.key(0)))
        jax.block_until_ready(state)
        return time.process_time() - begin, problem, state

    first, *_ = train()
    seconds, problem, state = train()
    jax.block_until_ready(topk_sdca.objectives(problem, hp, state))
    checks = []
    for _ in range(5):
        begin = time.process_time()
        jax.block_until_ready(topk_sdca.objectives(problem, hp, state))
        checks.append(time.process_time() - begin)
    check_seconds = float(np.median(checks)) * int(state.checks[0])
    np.save(options["weights"], topk_sdca.weights(problem, state)[0])
    return {
        "first_call_seconds": first,
        "seconds": seconds - check_seconds,
        "check_seconds": check_seconds,
        "epochs": int(state.epochs[0]),
        "status": Status(int(state.status[0])).name,
        "primal": float(state.primal[0]),
        "dual": float(state.dual_objective[0]),
    }


def crammer_singer(options: dict) -> dict:
    """CPU time of LinearSVC on the problem with k = 1; it stops by projected gradients."""
    from sklearn.svm import LinearSVC

    X, y = load_classes(options["data"])
    svc = LinearSVC(
        multi_class="crammer_singer", C=options["C"], tol=options["tol"], fit_intercept=False, random_state=0
    )
    begin = time.process_time()
    svc.fit(X, y)
    seconds = time.process_time() - begin
    np.save(options["weights"], svc.coef_)
    return {"seconds": seconds, "epochs": int(svc.n_iter_)}


RUNS = {
    "xmcjax": xmcjax,
    "one_vs_all_trace": one_vs_all_trace,
    "linear_svc": linear_svc,
    "prediction": prediction,
    "scipy_product": scipy_product,
    "topk_svm": topk_svm,
    "crammer_singer": crammer_singer,
}

if __name__ == "__main__":
    options = json.load(sys.stdin)
    if hasattr(os, "sched_setaffinity") and options.get("processors"):
        os.sched_setaffinity(0, options["processors"])
    print(json.dumps(RUNS[options["run"]](options)))
