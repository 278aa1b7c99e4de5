"""A process that is forked after a fit works or says at once why it cannot; it never waits for ever."""

from __future__ import annotations

import os

import pytest

from tests.support.problems import needs_native
from tests.support.processes import outputs, run_all, start
from xmcjax import linops

PROGRAM = """
import os, signal, warnings
warnings.simplefilter("ignore")  # JAX warns of every fork
import numpy as np
import scipy.sparse as sp
from xmcjax import estimators

rng = np.random.default_rng(0)
dense, y = rng.normal(size=(100, 10)).astype(np.float32), rng.integers(0, 3, 100)
sparse = sp.csr_matrix(dense)
made = {
    "OneVsAllClassifier": sparse, "MulticlassSVC": sparse, "MultinomialLogisticRegression": sparse,
    "TopKSVC": sparse, "KernelLogisticClassifier": dense,
}
fitted = {name: getattr(estimators, name)().fit(X, y) for name, X in made.items()}
ended = {}
for name, X in made.items():
    for method in ("fit", "predict", "predict_topk"):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(60)
            try:
                more = {"fit": (y,), "predict_topk": (2,)}.get(method, ())
                getattr(fitted[name], method)(X, *more)
                os._exit(0)
            except RuntimeError as error:
                os._exit(1 if "this process was forked from process" in str(error) else 2)
            finally:
                os._exit(3)
        ended[f"{name}.{method}"] = os.waitpid(child, 0)[1]
print(ended)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_never_waits_for_ever():
    ended = eval(outputs(run_all([start(PROGRAM)], timeout=240))[0])
    assert len(ended) == 15
    assert set(ended.values()) <= {0, 256}, ended  # it worked, or the sentence
    assert ended["MulticlassSVC.fit"] == ended["OneVsAllClassifier.predict"] == 0
    assert ended["OneVsAllClassifier.predict_topk"] == 0
    assert ended["MultinomialLogisticRegression.fit"] == 256


FIRST_FITS = """
import os, signal, warnings
warnings.simplefilter("ignore")  # JAX warns of every fork
import jax
import numpy as np
import scipy.sparse as sp
from xmcjax.estimators import OneVsAllClassifier

jax.block_until_ready(jax.numpy.ones(3) + 1)
rng = np.random.default_rng(0)
X = sp.csr_array(sp.random(16_000, 300, 0.05, "csr", np.float32, random_state=0))
y = rng.integers(0, 3, X.shape[0])
ended = []
# labels that the certificate looks at, and features that JAX would copy in its threads
for fit in (dict(C=100.0), dict(C=100.0, loss="logistic"), dict(C=1e-7)):
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        OneVsAllClassifier(**fit).fit(X, y)
        os._exit(0)
    ended.append(os.waitpid(child, 0)[1])
print(ended)
"""


@needs_native
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_first_fit_of_all_may_be_in_a_forked_process():
    assert eval(outputs(run_all([start(FIRST_FITS)], timeout=240))[0]) == [0, 0, 0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_all_that_is_public_works_or_refuses_at_once_in_a_forked_process(monkeypatch):
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    program = start("from tests.support import forked; forked.main(limit=20)")
    there, here = eval(outputs(run_all([program], timeout=500))[0])
    assert {name: end for name, end in there.items() if end not in ("worked", "refused")} == {}
    # a call that is wrong in itself would tell nothing
    assert len(here) > 200 and {name: end for name, end in here.items() if end != "worked"} == {}
    # what asks JAX for nothing goes on to work
    solvers = "xmcjax.solvers."
    works = {"xmcjax.metrics.precision_at_k", f"{solvers}kernel_multinomial.most_likely"}
    works.add(f"{solvers}instance_dual.weights()")
    if linops.native_ready():
        works |= {"xmcjax.linops.Csr.to_scipy('native')", f"{solvers}multiclass_dual.run('ww')"}
    assert {name for name in works if there[name] != "worked"} == set()
    assert list(there.values()).count("refused") > 150
    # with few rows it would work as well, and with many it would wait
    assert there["xmcjax.kernels.points of sparse rows"] == "refused"


READING = """
import os, signal, tempfile, threading
import numpy as np
import scipy.sparse as sp
from xmcjax.models import ArrayModel, Calibration, LinearModel, Predictor, ShardWriter
from xmcjax.models import _linear, _predictor, _weights

folder, x = tempfile.mkdtemp() + "/model", np.ones((1, 2), np.float32)
meta = {"n_features": 2, "n_labels": 1, "dtype": "float32", "calibration": {"method": "sigmoid"}}
with ShardWriter(folder, meta, calibration=Calibration.identity(1)) as writer:
    writer.add(0, [0], np.ones(1, np.float32))
reading, go_on = threading.Event(), threading.Event()

def held(module, name):
    real = getattr(module, name)
    def slow(*args):
        reading.set()
        go_on.wait(60)
        return real(*args)
    setattr(module, name, slow)
    return lambda: setattr(module, name, real)

def dense(made):
    return made.decision_function(sp.csr_array(x))

def probabilities(made):
    return made.predict_topk(x, 1, probabilities=True)

ended = []
for module, name, make, read in (
    (_linear, "decode", lambda: LinearModel.load(folder), lambda made: made.weights(0, 1)),
    (_predictor, "weights_of", lambda: Predictor(folder), probabilities),
    (_linear, "decode_calibration", lambda: Predictor(folder), probabilities),
    (_weights.np, "ascontiguousarray", lambda: Predictor(ArrayModel(x, x[0, :1])), dense),
):
    made, back = make(), held(module, name)
    reading.clear(), go_on.clear()
    thread = threading.Thread(target=read, args=(made,))
    thread.start()
    assert reading.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        back()
        read(made), read(make())
        os._exit(0)
    ended.append(os.waitpid(child, 0)[1])
    go_on.set()
    thread.join(60)
    back()
print(ended)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_that_is_forked_while_a_thread_reads_a_model_does_not_wait_for_that_thread():
    assert eval(outputs(run_all([start(READING)], timeout=120))[0]) == [0, 0, 0, 0]


WRITING = """
import os, signal, tempfile, threading
import numpy as np
from xmcjax.models import LinearModel, ShardWriter

folder, weights = tempfile.mkdtemp() + "/model", np.ones(1, np.float32)
writer = ShardWriter(folder, {"n_features": 2, "n_labels": 9, "dtype": "float32"}, shard_size=1)
writer._naming = 0.01  # a pause of 0.1 s begins with the next shard
writing, go_on, write = threading.Event(), threading.Event(), writer._write

def slow(*args):
    writing.set()
    go_on.wait(60)
    write(*args)

writer._write = slow
writer.add(0, [0], weights)
assert writing.wait(60)  # the manifest, by the thread of the pause
child = os.fork()
if child == 0:
    signal.alarm(30)
    writer._write = write
    writer.add(1, [0], weights)
    writer.close()
    os._exit(LinearModel.load(folder, partial=True).missing() != [(2, 9)])
print(os.waitpid(child, 0)[1])
go_on.set()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_that_is_forked_while_a_thread_writes_a_manifest_does_not_wait_for_that_thread():
    assert outputs(run_all([start(WRITING)], timeout=120))[0].strip() == "0"
