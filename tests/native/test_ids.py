"""The numbers of ids.def: each is the same thing in C++ and in Python, and no other number is anything."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.internals import ids, label_math, schema
from tests.support.problems import needs_native
from xmcjax import linops, losses, penalties
from xmcjax.losses import LaneLoss, SquaredHinge
from xmcjax.native import InPlace, load_library, twins
from xmcjax.penalties import L2, Penalty
from xmcjax.solvers import instance_dual, multiclass_dual, newton_cg

LOSSES = {
    loss.name: loss for loss in (*losses.MARGIN_LOSSES.values(), losses.poisson) if loss.native is not None
}
#: of each number, one that has it
PENALTIES = {
    "l2": penalties.L2(),
    "elastic_net": penalties.ElasticNet(0.7),
    "huber": penalties.HuberPenalty(0.3),
}
OTHER = 99


def rows(dtype=np.float64):
    rng = np.random.default_rng(0)
    X = sp.csr_array(rng.normal(size=(30, 6)) * (rng.random((30, 6)) < 0.5), dtype=dtype)
    return X, rng.integers(0, 4, 30)


def lanes(loss, backend, penalty=None):
    X, y = rows()
    targets = np.where(y[:, None] == np.arange(3), 1, -1).astype(np.int8)
    op = linops.make(X, backend=backend)
    return newton_cg.lane_problem(op, targets, loss, tolerance=1e-9, penalty=penalty or L2())


def steps(problem, count=3):
    state = newton_cg.init(problem, None, 0.0)
    return newton_cg.advance(problem, newton_cg.HParams(l2=0.5), state, count=count)


def test_every_number_belongs_to_something_in_python():
    assert set(ids.LISTS) == {"loss", "penalty", "formulation", "set", "features"}
    assert {name: loss.native for name, loss in LOSSES.items()} == ids.LISTS["loss"]
    assert {name: penalty.native for name, penalty in PENALTIES.items()} == ids.LISTS["penalty"]
    assert {kind.native for kind in penalties.PENALTIES.values()} - {None} == set(
        ids.LISTS["penalty"].values()
    )
    assert set(multiclass_dual.FORMULATIONS) == set(ids.LISTS["formulation"])


@needs_native
def test_the_library_has_the_lists_of_python():
    library = load_library()
    assert library is not None
    for told, ours in ((library.xmcjax_ids, ids), (library.xmcjax_calls, schema)):
        told.restype = ctypes.c_char_p
        assert told().decode() == ours.text()


@needs_native
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in ("loss", "penalty") for name in ids.LISTS[kind]]
)
def test_a_loss_and_a_penalty_are_their_twins(kind, name):
    of = (LOSSES[name],) if kind == "loss" else (losses.squared_hinge, PENALTIES[name])
    ours, twin = (
        steps(lanes(of[0], backend, *of[1:]), 3 if kind == "loss" else 20) for backend in ("native", "jnp")
    )
    np.testing.assert_allclose(ours.value, twin.value, rtol=1e-12 if kind == "loss" else 1e-7)
    if kind == "loss":
        np.testing.assert_allclose(ours.w, twin.w, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["loss", "penalty"])
def test_what_is_not_listed_is_an_error_at_its_definition(kind):
    sentence = rf"ids.def: expected a line for the {kind} 'never_listed', found "
    with pytest.raises(ImportError, match=sentence):
        if kind == "loss":

            class Modified(LaneLoss, native=True):
                name: ClassVar[str] = "never_listed"

        else:

            class Of(Penalty, native="never_listed"):
                name: ClassVar[str] = "of"


@needs_native
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", sorted(set(LOSSES) & set(losses.MARGIN_LOSSES)))
def test_losses_of_a_certificate_are_those_of_jax(name, dtype):
    rng = np.random.default_rng(0)
    ends = [0, 1, -1, 0.5, -0.5, 1e30, -1e30, 80, -80, np.inf, -np.inf]
    z = np.concatenate([rng.normal(size=500), 40 * rng.normal(size=500), ends]).astype(dtype)
    y = np.where(rng.random(len(z)) < 0.5, 1, -1).astype(dtype)
    with jax.enable_x64(dtype == np.float64):
        made = label_math.derivatives(LOSSES[name], z, y)
        with twins():
            expected = label_math.derivatives(LOSSES[name], z, y)
        for ours, theirs in zip(made, expected, strict=True):
            assert ours.dtype == theirs.dtype == dtype
            np.testing.assert_allclose(ours, theirs, rtol=10 * np.finfo(dtype).eps)
    unknown = label_math.derivatives(LOSSES[name], np.full(3, np.nan, dtype), np.ones(3, dtype))
    assert all(np.isnan(part).all() for part in unknown)


def test_what_is_derived_from_a_native_class_is_not_native():
    @dataclasses.dataclass(frozen=True)
    class Doubled(SquaredHinge):
        def value(self, m):
            return 2 * jnp.square(jnp.maximum(1 - m, 0))

    assert Doubled().native is None and SquaredHinge().native == ids.number("loss", "squared_hinge")


@needs_native
@pytest.mark.parametrize("number", [-1, OTHER])
@pytest.mark.parametrize("kind", ["loss", "penalty"])
@pytest.mark.parametrize("entry", ["xla", "in place"])
def test_an_unknown_number_of_a_newton_step(kind, number, entry):
    class Loss(SquaredHinge, native=True):
        pass

    class Norm(L2, native="l2"):
        pass

    if kind == "loss":
        Loss.native = number
    else:
        Norm.native = number
    problem = lanes(Loss(), "native", Norm())
    list_of = {"loss": "losses", "penalty": "penalties"}[kind]
    if entry == "xla":
        with pytest.raises(Exception, match=f"expected a number of the {list_of} of ids.def, got {number}"):
            steps(problem).w.block_until_ready()
        return
    arrays = {name: getattr(problem, name) for name in ("y", "weight", "shift", "tolerance")}
    arrays |= newton_cg.init(problem, None, 0.0)._asdict()
    fields = newton_cg.native_numbers(newton_cg.HParams(), problem.loss, problem.penalty)
    fields |= {name: np.array(a) for name, a in arrays.items()}
    assert isinstance(problem.op, linops.Csr)
    with pytest.raises(RuntimeError, match=r"other numbers than its modules \(native/interface/ids.def\)"):
        InPlace("newton_step", X=tuple(map(np.array, problem.op.arrays)), **fields)


@needs_native
@pytest.mark.parametrize("number", [-1, OTHER])
def test_an_unknown_number_of_a_formulation(number, monkeypatch):
    monkeypatch.setitem(ids.LISTS["formulation"], "ww", number)
    X, y = rows()
    with pytest.raises(RuntimeError, match=r"other numbers than its modules \(native/interface/ids.def\)"):
        multiclass_dual.run(X, y, formulation="ww", C=1.0)


@needs_native
@pytest.mark.parametrize("number", [-1, OTHER])
@pytest.mark.parametrize("kind", ["set", "features"])
def test_an_unknown_number_of_dual_ascent_over_instances(kind, number, monkeypatch):
    X, y = rows()
    problem = instance_dual.problem(linops.make(X), y, set_name="topk_alpha", bound=np.asarray(1.0), k=1)
    monkeypatch.setitem(ids.LISTS[kind], {"set": "topk_alpha", "features": "csr"}[kind], number)
    list_of = {"set": "sets", "features": "features"}[kind]
    jax.clear_caches()  # a step that is compiled has the numbers of its day
    with pytest.raises(Exception, match=f"expected a number of the {list_of} of ids.def, got {number}"):
        instance_dual.step(problem, instance_dual.HParams(), instance_dual.init(problem, jax.random.key(0)))
    jax.clear_caches()
