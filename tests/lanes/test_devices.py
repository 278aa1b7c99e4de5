"""Several devices take labels from one queue and make the model of one; how many lanes fit on one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from tests.support.lanes import small, train
from tests.support.processes import outputs, run_all, start
from xmcjax import inits, linops, losses
from xmcjax.lanes import _device_block, _devices
from xmcjax.penalties import L1, L2
from xmcjax.solvers import newton_cg

WORK = """
import hashlib, threading
import jax
import numpy as np
from tests.support.lanes import small, train
from xmcjax import inits
from xmcjax.lanes._queue import LabelQueue

options["init"] = inits.INITS[options["init"]]()
X, Y = small()
if not options["init"].tree:  # each device takes labels once before any takes more
    begun, together, take = set(), threading.Barrier(len(jax.devices()), timeout=120), LabelQueue.take

    def first_together(self, idle):
        if threading.get_ident() not in begun:
            begun.add(threading.get_ident())
            together.wait()
        return take(self, idle)

    LabelQueue.take = first_together
busy = set()
results, _ = train(X, Y, observe=lambda record: busy.add(threading.current_thread().name), **options)
digest = hashlib.sha256()
for label, r in sorted(results.items()):
    numbers = np.float64([label, r.bias, r.status, r.newton_steps, r.cg_steps, r.value, r.gradient_norm])
    for part in (r.indices, r.values, numbers):
        digest.update(np.ascontiguousarray(part).tobytes())
print(json.dumps([len(jax.devices()), len(busy), len(results), digest.hexdigest()]))
"""


def in_processes(devices: list[int], **options):
    """Of a training in a process with so many devices: how many, threads at work, labels, hash of all."""
    program = f"import json\n\noptions = json.loads({json.dumps(options)!r})\n{WORK}"
    done = run_all([start(program, devices=count, path=[Path(__file__).parent]) for count in devices])
    return [json.loads(text.splitlines()[-1]) for text in outputs(done)]


@pytest.mark.parametrize(
    ("devices", "options"),
    [
        (4, dict(backend="jnp", init="mean_separating", block_size=3)),
        (2, dict(backend="dense", init="ova_primal_pp", block_size=2)),
    ],
    ids=["sparse", "dense_tree"],
)
def test_devices_make_the_model_of_one(devices, options):
    (many, workers, labels, ours), alone = in_processes([devices, 1], **options)
    assert many == devices and labels == 30
    # a tree hands out labels as their parents are solved, perhaps to fewer at a time
    assert workers == devices or "pp" in options["init"]
    assert alone == [1, 1, 30, ours]


@pytest.mark.parametrize("init", ["mean_separating", "ova_primal_pp"])
def test_the_kernels_of_a_gpu_train_the_same_model(init):
    """Interpreted: the objective of every label is that of plain JAX."""
    X, Y = small(n=80, d=60, labels=8)
    options = dict(init=inits.INITS[init](), tol=1e-4, block_size=5, loss=losses.logistic, clip=0.0)
    ours, _ = train(X, Y, backend="gpu", **options)
    theirs, _ = train(X, Y, backend="jnp", **options)
    assert ours.keys() == theirs.keys()
    for label, result in theirs.items():
        assert ours[label].status == result.status
        if result.newton_steps:
            np.testing.assert_allclose(ours[label].value, result.value, rtol=1e-5)


@pytest.mark.parametrize("backend", ["gpu", "dense"])
@pytest.mark.parametrize("penalty", [L2(), L1()], ids=["l2", "l1"])
def test_what_training_runs_lowers_for_a_gpu(backend, penalty):
    op = linops.make(small()[0], backend=backend)
    if isinstance(op, linops.Grouped):
        op = dataclasses.replace(op, interpret=False)
    block = _device_block.DeviceBlock(
        op, losses.squared_hinge, np.ones(1), newton_cg.HParams(), 256, False, penalty
    )
    step = newton_cg.advance.__wrapped__.trace(block._problem, block._hp, block._state)
    text = step.lower(lowering_platforms=("cuda",)).as_text()
    # the product with δ, the gradient, and CG's: two products with the bias that it eliminates
    assert (text.count("xla.gpu.triton") >= 4) == (backend == "gpu")
    assert "tensor<200x256xf32>" in text


def test_lanes_fill_the_memory():
    assert _devices.lanes_that_fit(linops.make(small()[0])) == 32
    gib = 2**30
    # Amazon-670K on 80 GB, three million rows, and features that hardly fit
    assert _devices.lanes_in(75 * gib, 490_449, 135_909, 4) == 512
    assert _devices.lanes_in(75 * gib, 3_000_000, 337_067, 4) == 384
    assert _devices.lanes_in(16 * gib, 3_000_000, 337_067, 4) == 64
    assert _devices.lanes_in(0, 10, 10, 4) == 16


class _Gpu:
    """What is asked of a device."""

    platform = "gpu"

    def __init__(self, statistics):
        self._statistics = statistics

    def memory_stats(self):
        return self._statistics


def test_lanes_of_a_gpu_are_those_of_its_free_memory():
    op = linops.make(small()[0], backend="jnp")
    need = 4 * (_devices.OF_ROWS * 200 + _devices.OF_COLUMNS * 100) / _devices.PART
    taken = dict(bytes_limit=int(1000 + 300 * need), bytes_in_use=1000)
    assert _devices.lanes_that_fit(op, _Gpu(taken)) == 256
    assert _devices.lanes_that_fit(op, _Gpu(None)) == 16  # a platform that does not tell
