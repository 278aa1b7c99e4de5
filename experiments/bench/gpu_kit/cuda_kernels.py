"""The kernels of xmcjax-cuda on a GPU: first against float64, twice, then beside those for Triton."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import scipy.sparse as sp

from experiments.bench.gpu_kit._kit import Kit, copy_bandwidth, seconds_of
from experiments.bench.gpu_kit._training import direction_bytes
from experiments.bench.gpu_kit.products import TOLERANCE, WORKS, relative

LANES = 512
ACTIVE = 0.015  # the probability that an entry of D is active, independently of the others


def run(kit: Kit) -> None:
    """Takes all figures; where there is no GPU for the kernels, a single figure that says so."""
    from xmcjax import native

    if not native.cuda_available():
        packed = any((kit.folder / "wheels").glob("xmcjax_cuda-*"))
        why = _absence(native)
        # if there is a GPU and the kit has the wheel, missing kernels are a fault
        wrong = {"right": False} if packed and why != NO_GPU else {}
        kit.figure("CUDA kernels", not_run=why, **wrong)
        return
    _correct(kit)
    _directions(kit)
    limit = copy_bandwidth(kit)
    _search(kit, limit)
    _largest(kit, limit)
    _times(kit, limit)


NO_GPU = "the default device is no GPU: nothing of this stage was run"


def _absence(native) -> str:
    import jax

    return NO_GPU if jax.default_backend() != "gpu" else native.cuda_absence()


def _correct(kit: Kit) -> None:
    """Checks the four products: rows of several pieces; lanes that are a partial tile, few, or two panels."""
    import jax
    import jax.numpy as jnp

    from xmcjax import linops

    stored = kit.references()
    X = sp.csr_matrix(stored["products/X"])
    A, D, V = X.astype(np.float64), stored["products/D"], stored["products/V"]
    op: Any = linops.make(X, np.float32, backend="gpu")
    for lanes in (1, 33, D.shape[1], 1100):
        copies = -(-lanes // D.shape[1])
        of_d, of_v = (np.tile(a, copies)[:, :lanes] for a in (D, V))
        d, v = of_d.astype(np.float64), of_v.astype(np.float64)
        exact = {
            "matmat": A @ v,
            "rmatmat": A.T @ d,
            "gram_matmat": A.T @ (d * (A @ v)),
            "squared_rmatmat": A.power(2).T @ d,
        }
        for name, work in WORKS.items():
            with kit.attempt(f"{name}, CUDA, {lanes} lanes"):
                program = jax.jit(work)
                first, again = (np.asarray(program(op, jnp.asarray(of_d), jnp.asarray(of_v))) for _ in "ab")
                error, same = relative(first, exact[name]), first.tobytes() == again.tobytes()
                right = error <= TOLERANCE and same
                kit.figure(f"{name}, CUDA, {lanes} lanes", error=error, same_bits=same, right=right)


def _solve(op: Any, D, gradient, of_bias, hp):
    """Newton directions with λ = 1 and λ_b = ½, and the steps of CG."""
    import jax.numpy as jnp

    from xmcjax.solvers import newton_cg

    lanes, zero = jnp.ones(D.shape[1], bool), jnp.zeros(D.shape[1], D.dtype)
    l2, l2_bias = D.dtype.type(1), D.dtype.type(0.5)
    found = newton_cg.newton_direction(op, D, gradient, of_bias, l2, l2_bias, lanes, lanes, zero, hp)
    return found[0], found[2]


def _directions(kit: Kit) -> None:
    """Checks Newton directions by CG against systems solved in float64."""
    import jax
    import jax.numpy as jnp

    from xmcjax import linops
    from xmcjax.solvers import newton_cg

    stored = kit.references()
    X = sp.csr_matrix(stored["products/X"])
    op: Any = linops.make(X, np.float32, backend="gpu")
    rng, hp = np.random.default_rng(0), newton_cg.HParams(cg_progress=0.0, cg_tolerance=1e-6)
    lanes = 70
    D = abs(np.resize(stored["products/D"], (X.shape[0], lanes))) * (rng.random((X.shape[0], lanes)) < 0.1)
    gradient, of_bias = rng.normal(size=(X.shape[1], lanes)), rng.normal(size=lanes)
    on_device = [jnp.asarray(a, jnp.float32) for a in (D, gradient, of_bias)]
    with kit.attempt("Newton directions, CUDA"):
        program = jax.jit(_solve)
        first, again = (np.asarray(program(op, *on_device, hp)[0]) for _ in "ab")
        A = np.column_stack([X.toarray().astype(np.float64), np.ones(X.shape[0])])
        few = (0, 31, 32, lanes - 1)
        diagonal = np.diag([1.0] * X.shape[1] + [0.5])
        exact = [
            np.linalg.solve(A.T @ (D[:, [j]] * A) + diagonal, -np.append(gradient[:, j], of_bias[j]))[:-1]
            for j in few
        ]
        error, same = relative(first[:, few], np.stack(exact, axis=1)), first.tobytes() == again.tobytes()
        right = error <= 1e-4 and same
        kit.figure("Newton directions, CUDA", error=error, same_bits=same, right=right)


def _search(kit: Kit, limit: float) -> None:
    """The sums of the search along a direction, and their part of the bandwidth."""
    import jax
    import jax.numpy as jnp

    from xmcjax import losses, native

    rng = np.random.default_rng(0)
    n = kit.size(100_000, 2_000)
    z, m = (rng.normal(size=(n, LANES)).astype(np.float32) for _ in "zm")
    y = np.where(rng.random((n, LANES)) < 0.1, np.int8(1), np.int8(-1))
    one, none = np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)
    t, beta = rng.random((2, LANES)).astype(np.float32)
    fresh = rng.random(LANES) < 0.5
    on_device = [jnp.asarray(a) for a in (z, m, y, one, none, t, beta, fresh)]
    few = slice(0, 8)  # lanes that the host computes
    at = z[:, few].astype(np.float64) * ~fresh[few] + t[few] * m[:, few].astype(np.float64) + beta[few]
    gap = np.maximum(1 - y[:, few] * at, 0)
    old = np.maximum(1 - y[:, few] * z[:, few].astype(np.float64), 0) ** 2 * ~fresh[few]
    slope, curvature, along = -2 * y[:, few] * gap, 2.0 * (gap > 0), m[:, few].astype(np.float64)
    terms = (gap**2 - old, slope, slope * along, curvature, curvature * along, curvature * along**2)
    exact = np.stack([term.sum(axis=0) for term in terms])
    for loss in (losses.squared_hinge, losses.logistic):
        with kit.attempt(f"search, CUDA, {loss.name}"):
            program = jax.jit(lambda *a, loss=loss: native.cuda_plane_sums(loss.native, loss.parameter, *a))
            first, again = (np.asarray(program(*on_device)) for _ in "ab")
            values: dict = {"same_bits": first.tobytes() == again.tobytes()}
            values["right"] = values["same_bits"] and bool(np.isfinite(first).all())
            if loss is losses.squared_hinge:
                values["error"] = relative(first[:, few], exact)
                values["right"] &= values["error"] <= 1e-4  # rounding moves rows across the kink
            seconds = seconds_of(lambda program=program: program(*on_device), 7)[1]
            share = 9 * n * LANES / limit / seconds
            kit.figure(f"search, CUDA, {loss.name}", seconds=seconds, share_once=share, **values)


def _largest(kit: Kit, limit: float) -> None:
    """The k largest of each row, to the bit, beside XLA's way and with their part of the bandwidth."""
    import jax
    import jax.numpy as jnp

    from xmcjax import native

    short, long = (
        (kit.size(1_000_000, 2_000), kit.size(1_000, 300)),
        (kit.size(2_000, 3), kit.size(131_072, 9_000)),
    )
    few = kit.size(16_400, 50), 101
    cases = {"random": (short, 5), "rising": (short, 5), "constant": (short, 5), "32 of": (short, 32)}
    for name, ((n, m), k) in (cases | {"of labels": (long, 5), "of few": (few, 6)}).items():
        with kit.attempt(f"top-k, {name}"):
            a = jax.random.normal(jax.random.key(0), (n, m), np.float32)
            if name == "rising":
                a = jnp.sort(a, axis=1)
            elif name == "constant":
                a = jnp.zeros_like(a)
            program = jax.jit(functools.partial(native.topk, k=k))
            values, places = (np.asarray(found[:100]) for found in program(a))
            some = np.asarray(a[:100])
            expected = np.argsort(-some, axis=1, kind="stable")[:, :k]
            right = bool((places == expected).all())
            right &= values.tobytes() == np.take_along_axis(some, expected, axis=1).tobytes()
            seconds = seconds_of(functools.partial(program, a), 7)[1]
            with native.twins():  # compiles the program anew
                of_xla = seconds_of(functools.partial(program, a), 3)[1]
            kit.figure(
                f"top-k, {name}",
                rows=n,
                entries=m,
                k=k,
                by_kernel=native.topk_by_kernel(a, k),
                seconds=seconds,
                seconds_of_xla=of_xla,
                share_once=a.nbytes / limit / seconds,
                right=right,
            )


def _times(kit: Kit, limit: float) -> None:
    """Times of the products of one block by both kinds of kernels, which decide which kind is kept.

    Newton directions by the CUDA kernels, as in training, are given with their part of the bandwidth.
    """
    import importlib.util

    import jax
    import jax.numpy as jnp

    from experiments import _data
    from xmcjax import linops
    from xmcjax.solvers import newton_cg

    X = kit.made("small")[0] if kit.small else _data.load_split("stackexchange_tags").X
    op: Any = linops.make(X, np.float32, backend="gpu")
    rng = np.random.default_rng(0)
    V = jnp.asarray(rng.normal(size=(X.shape[1], LANES)).astype(np.float32))
    active = rng.random((X.shape[0], LANES), np.float32) < ACTIVE
    D = jnp.asarray(active.astype(np.float32))
    kinds = ["cuda", "triton"]
    if importlib.util.find_spec("jax.experimental.pallas.triton") is None:
        kinds.pop()
    gradient, hp = jnp.asarray(rng.normal(size=V.shape).astype(np.float32)), newton_cg.HParams()
    for kernels in kinds:
        of_kind = dataclasses.replace(op, kernels=kernels)
        with kit.attempt(f"Newton directions, {kernels}, {LANES} lanes"):
            solve = functools.partial(jax.jit(_solve), of_kind, D, gradient, jnp.zeros(LANES, np.float32), hp)
            of_lanes = np.asarray(solve()[1])
            steps, seconds = int(of_lanes.max()), seconds_of(solve, 3)[1]
            shares = {}
            if kernels == "cuda":
                counted = direction_bytes(X.astype(np.float32), active, of_lanes, hp.max_cg)
                once, fetched = (moved / limit / seconds for moved in counted)
                shares = dict(share_once=once, share_fetched=fetched, copy_gb_s=limit / 1e9)
            kit.figure(
                f"Newton directions, {kernels}, {LANES} lanes",
                seconds=seconds,
                cg_steps=steps,
                mean_cg_steps=float(of_lanes.mean()),
                seconds_per_step=seconds / steps,
                **shares,
            )
        for name in ("matmat", "rmatmat", "gram_matmat"):
            with kit.attempt(f"{name}, {kernels}, {LANES} lanes"):
                program = jax.jit(WORKS[name])
                seconds = seconds_of(functools.partial(program, of_kind, D, V), 7)[1]
                kit.figure(f"{name}, {kernels}, {LANES} lanes", seconds=seconds)
