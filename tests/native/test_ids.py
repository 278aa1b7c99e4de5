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

from xmcjax import linops, losses, penalties
from xmcjax.losses import LaneLoss, SquaredHinge
from xmcjax.native import InPlace, _ids, _schema, available, load_library
from xmcjax.penalties import L2, Penalty
from xmcjax.solvers import instance_dual, multiclass_dual, newton_cg
from xmcjax.solvers._formulations import SETS

native = pytest.mark.skipif(not available(), reason="no native kernels")
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
    assert set(_ids.LISTS) == {"loss", "penalty", "formulation", "set", "features"}
    assert {name: loss.native for name, loss in LOSSES.items()} == _ids.LISTS["loss"]
    assert {name: penalty.native for name, penalty in PENALTIES.items()} == _ids.LISTS["penalty"]
    assert {kind.native for kind in penalties.PENALTIES.values()} - {None} == set(
        _ids.LISTS["penalty"].values()
    )
    assert set(multiclass_dual.FORMULATIONS) == set(_ids.LISTS["formulation"])
    assert set(SETS) == set(_ids.LISTS["set"])


@native
def test_the_library_has_the_lists_of_python():
    library = load_library()
    assert library is not None
    for told, ours in ((library.xmcjax_ids, _ids), (library.xmcjax_calls, _schema)):
        told.restype = ctypes.c_char_p
        assert told().decode() == ours.text()


@native
@pytest.mark.parametrize("name", _ids.LISTS["loss"])
def test_a_loss_is_its_twin(name):
    ours, twin = (steps(lanes(LOSSES[name], backend)) for backend in ("native", "jnp"))
    np.testing.assert_allclose(ours.w, twin.w, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours.value, twin.value, rtol=1e-12)


@native
@pytest.mark.parametrize("name", _ids.LISTS["penalty"])
def test_a_penalty_is_its_twin(name):
    ours, twin = (
        steps(lanes(losses.squared_hinge, backend, PENALTIES[name]), 20) for backend in ("native", "jnp")
    )
    np.testing.assert_allclose(ours.value, twin.value, rtol=1e-7)


@native
@pytest.mark.parametrize("name", _ids.LISTS["formulation"])
def test_a_formulation_is_its_twin(name):
    X, y = rows()
    found = [
        multiclass_dual.run(X, y, formulation=name, C=0.5, tol=1e-8, backend=backend)
        for backend in ("native", "jnp")
    ]
    assert found[0].primal == pytest.approx(found[1].primal, rel=1e-7)


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


def test_what_is_derived_from_a_native_class_is_not_native():
    @dataclasses.dataclass(frozen=True)
    class Doubled(SquaredHinge):
        def value(self, m):
            return 2 * jnp.square(jnp.maximum(1 - m, 0))

    assert Doubled().native is None and SquaredHinge().native == _ids.number("loss", "squared_hinge")


@native
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


@native
@pytest.mark.parametrize("number", [-1, OTHER])
def test_an_unknown_number_of_a_formulation(number, monkeypatch):
    monkeypatch.setitem(_ids.LISTS["formulation"], "ww", number)
    X, y = rows()
    with pytest.raises(RuntimeError, match=r"other numbers than its modules \(native/interface/ids.def\)"):
        multiclass_dual.run(X, y, formulation="ww", C=1.0)


@native
@pytest.mark.parametrize("number", [-1, OTHER])
@pytest.mark.parametrize("kind", ["set", "features"])
def test_an_unknown_number_of_dual_ascent_over_instances(kind, number, monkeypatch):
    X, y = rows()
    problem = instance_dual.problem(linops.make(X), y, set_name="topk_alpha", bound=np.asarray(1.0), k=1)
    monkeypatch.setitem(_ids.LISTS[kind], {"set": "topk_alpha", "features": "csr"}[kind], number)
    list_of = {"set": "sets", "features": "features"}[kind]
    with pytest.raises(Exception, match=f"expected a number of the {list_of} of ids.def, got {number}"):
        instance_dual.step(problem, instance_dual.HParams(), instance_dual.init(problem, jax.random.key(0)))
