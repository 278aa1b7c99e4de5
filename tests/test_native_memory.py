"""Memory that runs out within native code ends the call with an error that says so, never the process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import processes
from xmcjax import linops

COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
pytestmark = pytest.mark.skipif(
    not linops.native_ready() or COMPILER is None or not sys.platform.startswith("linux"),
    reason="needs the native kernels, Linux and a C++ compiler",
)

PROGRAM = """
import collections, ctypes, itertools, json, warnings
import numpy as np, scipy.sparse as sp
from xmcjax import data, estimators
from xmcjax.native import load_library

warnings.simplefilter("ignore")  # a fit of a few steps warns that it has not converged
assert load_library() is not None
fail_allocation = ctypes.CDLL(None).fail_allocation
fail_allocation.restype, fail_allocation.argtypes = ctypes.c_long, [ctypes.c_long]
rng = np.random.default_rng(0)
y = np.arange(60) % 5
dense = rng.normal(size=(60, 30)).astype(np.float32) + np.eye(5, 30, dtype=np.float32)[y]
X = sp.csr_matrix(np.where(rng.random(dense.shape) < 0.3, dense, 0))

sizes = itertools.count(30)

def fit(name, **options):
    return lambda: getattr(estimators, name)(random_state=0, **options).fit(X, y).predict(X).tolist()

def one_vs_all():
    # working arrays are kept for the next call, so that only larger features need new ones
    wider = sp.csr_matrix((X.data, X.indices, X.indptr), shape=(60, 16 * next(sizes)))
    return estimators.OneVsAllClassifier().fit(wider, y).predict(wider).tolist()

cases = {{
    "one-vs-all": one_vs_all,
    "SVM": fit("MulticlassSVC", C=0.1, n_jobs=2),
    "SVM, Lee-Lin-Wahba": fit("MulticlassSVC", formulation="llw", C=0.1),
    "SVM, one against the rest": fit("MulticlassSVC", formulation="ovr", C=0.1),
    "top-k SVM": fit("TopKSVC", k=2, C=0.1),
    "text": lambda: data.load_xmc({file!r})[0].toarray().tolist(),
}}
found = {{}}
for name, case in cases.items():
    right = case()
    fail_allocation(-1)
    assert case() == right, name
    count = fail_allocation(-1)
    ended = collections.Counter()
    for which in sorted(set(np.linspace(0, count - 1, 12).astype(int).tolist())) if count else ():
        fail_allocation(which)
        try:
            ended["done" if case() == right else "another result"] += 1
        except MemoryError:
            ended["MemoryError"] += 1
        fail_allocation(-1)
    assert case() == right, name
    found[name] = [count, ended]
print(json.dumps(found))
"""


def test_every_allocation_may_fail(tmp_path, monkeypatch):
    library, source = tmp_path / "failing.so", Path(__file__).parent / "failing_allocations.cc"
    build = [COMPILER, "-std=c++17", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"]
    subprocess.run(build, check=True, timeout=120)
    file = tmp_path / "rows.txt"
    file.write_text("200 10 5\n" + "".join(f"{i % 5} {i % 10}:1.5\n" for i in range(200)))
    monkeypatch.setenv("LD_PRELOAD", str(library), prepend=" ")  # before the runtime of a sanitizer
    found = json.loads(processes.run_program(PROGRAM.format(file=str(file))))
    for name, (count, ended) in found.items():
        assert count > 0, name
        assert set(ended) <= {"done", "MemoryError"} and ended["MemoryError"] > 0, (name, ended)
