"""The block on the host makes the very steps of the block on the device."""

from __future__ import annotations

import numpy as np
import pytest
from lane_helpers import native, small

from xmcjax import linops, losses
from xmcjax.lanes import Job, _blocks
from xmcjax.native._newton import InPlaceStep
from xmcjax.penalties import L2
from xmcjax.solvers import newton_cg

pytestmark = native


def jobs(Y, count, d, dtype, seed):
    rng = np.random.default_rng(seed)
    made = []
    for label in range(count):
        indices = rng.choice(d, 5, replace=False)
        base = rng.normal(size=d) if label % 2 else None
        positives = Y.tocsc()[:, [label]].indices
        made.append(Job(label, positives, 1e-3, base, 0.1, indices, rng.normal(size=5).astype(dtype), -0.5))
    return made


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", [losses.squared_hinge, losses.logistic, losses.huber_hinge])
@pytest.mark.parametrize("size", [3, 16])
def test_same_bits(dtype, loss, size):
    X, Y = small(dtype=dtype)
    op = linops.make(X, backend="native")
    hp = newton_cg.HParams(l2_bias=0.0, preconditioner=0.01)
    weight = np.linspace(0.5, 2, X.shape[0])
    host = _blocks.HostBlock(op, loss, weight, hp, size, False, L2())
    device = _blocks.DeviceBlock(op, loss, weight, hp, size, False, L2())
    todo = jobs(Y, 9, X.shape[1], dtype, size)
    for steps, lanes in ((4, range(min(size, 5))), (3, (1,)), (9, (0, 2))):
        for block in (host, device):
            block.start([(lane, todo[lane + steps % 4]) for lane in lanes])
        for _ in range(steps):
            ours, theirs = host.step(), device.step()
            for name in _blocks.NUMBERS:
                np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
        for lane in range(size):
            np.testing.assert_array_equal(host.weights(lane), device.weights(lane))
    assert ours["steps"].max() >= 3


def test_numbers_are_copies():
    X, Y = small()
    op = linops.make(X, backend="native")
    block = _blocks.make_block(op, losses.squared_hinge, np.ones(1), newton_cg.HParams(), 2)
    assert isinstance(block, _blocks.HostBlock)
    block.start([(0, jobs(Y, 1, X.shape[1], np.float32, 0)[0])])
    first = block.step()
    value, w = first["value"][0], block.weights(0)
    before = w.copy()
    block.step()
    assert first["value"][0] == value
    np.testing.assert_array_equal(w, before)


@pytest.mark.parametrize("place", range(13))
def test_arrays_of_another_kind_are_refused(place):
    n, d, lanes = 4, 3, 2
    real, whole = np.float32, np.int32
    problem = [
        np.ones(2, real),
        np.zeros(2, whole),
        np.zeros((n + 1, 2), whole),
        np.ones((n, lanes), np.int8),
        np.ones((1, 1), real),
        np.zeros((1, 1), real),
        np.zeros(lanes, real),
        np.zeros(8, real),
        np.zeros(4, whole),
    ]
    state = [np.zeros((d, lanes), real), np.zeros((n, lanes), real), np.zeros((d, lanes), real)]
    state += [np.zeros(lanes, real) for _ in range(6)] + [np.zeros(lanes, whole) for _ in range(4)]
    InPlaceStep(problem, state, d=d, loss=0)
    arrays = problem + state
    if place in (4, 5):
        arrays[place] = np.ones((3, 1), real)
    else:
        arrays[place] = np.zeros((*arrays[place].shape, 1), arrays[place].dtype)
    with pytest.raises(ValueError, match="expected"):
        InPlaceStep(arrays[:9], arrays[9:], d=d, loss=0)
