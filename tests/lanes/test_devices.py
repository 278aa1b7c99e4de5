"""Several devices take labels from one queue and make the model of one; how many lanes fit on one."""

from __future__ import annotations

import json
import types

import numpy as np
import pytest

from tests.support import cuda_builds
from tests.support.lanes import small, train
from tests.support.processes import outputs, run_all, start
from xmcjax import inits, linops, losses
from xmcjax.lanes import lanes_that_fit

WORK = """
import hashlib, threading
import jax
import numpy as np
from tests.support.lanes import small, train
from xmcjax import inits

from tests.support.internals import queues
options["init"] = inits.INITS[options["init"]]()
X, Y = small(n=100, d=50)
if not options["init"].tree:  # each device takes labels once before any takes more
    begun, together, take = set(), threading.Barrier(len(jax.devices()), timeout=120), queues.LabelQueue.take

    def first_together(self, idle):
        if threading.get_ident() not in begun:
            begun.add(threading.get_ident())
            together.wait()
        return take(self, idle)

    queues.LabelQueue.take = first_together
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
    done = run_all([start(program, devices=count) for count in devices])
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


@pytest.mark.parametrize("loss", [losses.squared_hinge, losses.logistic], ids=lambda loss: loss.name)
def test_the_kernels_in_cuda_train_the_same_model(loss, monkeypatch):
    """Compiled for the CPU: products, gradients and the search along directions."""
    cuda_builds.register()
    X, Y = small(n=80, d=60, labels=8)
    options = dict(init=inits.INITS["mean_separating"](), tol=1e-4, block_size=5, loss=loss, clip=0.0)
    theirs, _ = train(X, Y, backend="jnp", **options)
    monkeypatch.setattr(linops, "_kernels", lambda: "cuda")
    op = linops.make(X, backend="gpu")
    assert isinstance(op, linops.Grouped) and op.kernels == "cuda"
    ours, _ = train(X, Y, backend="gpu", **options)
    again, _ = train(X, Y, backend="gpu", **options)
    assert ours.keys() == theirs.keys()
    for label, result in theirs.items():
        assert ours[label].status == result.status
        assert ours[label].values.tobytes() == again[label].values.tobytes()
        np.testing.assert_allclose(ours[label].value, result.value, rtol=1e-5)


class _Gpu:
    """What is asked of a device: its statistics, or None where the platform does not tell."""

    platform = "gpu"

    def __init__(self, free, used=1000):
        self._statistics = None if free is None else dict(bytes_limit=int(free) + used, bytes_in_use=used)

    def memory_stats(self):
        return self._statistics


@pytest.mark.parametrize(
    ("shape", "gigabytes", "lanes"),
    [
        ((490_449, 135_909), 75, 512),  # Amazon-670K on 80 GB
        ((3_000_000, 337_067), 75, 512),
        ((3_000_000, 337_067), 40, 256),
        ((3_000_000, 337_067), 16, 128),  # features that hardly fit
        ((10, 10), 0, 16),
    ],
)
def test_lanes_fill_the_free_memory(shape, gigabytes, lanes):
    op = types.SimpleNamespace(shape=shape, dtype=np.float32)
    assert lanes_that_fit(op, _Gpu(gigabytes * 2**30)) == lanes
    assert lanes_that_fit(linops.make(small()[0])) == 32


def test_a_device_that_tells_no_memory_is_said():
    with pytest.warns(RuntimeWarning, match="does not tell how much memory it has: 16 lanes are taken"):
        assert lanes_that_fit(linops.make(small()[0]), _Gpu(None)) == 16
