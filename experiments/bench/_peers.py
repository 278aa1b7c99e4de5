"""Programs of peers.

Programs in Python run in the interpreter of the peer, whose versions of numpy and scipy differ from ours.
Each reads a JSON object from standard input and prints one: seconds of training on one thread,
and what is needed to judge the result. Programs in C++ are compiled against libsdca's headers.
"""

from __future__ import annotations

import datetime
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

_LOAD = """
import json, sys, time
import numpy as np, scipy.sparse as sp
options = json.load(sys.stdin)
def load(name):
    return sp.csr_matrix(sp.load_npz(options["data"] + "/" + name + ".npz").astype(np.float32))
X, Y, X_test, Y_test = load("X"), load("Y"), load("X_test"), load("Y_test")
labels = int((Y.getnnz(axis=0) > 0).sum())
def precision(best):  # best[i]: the five best labels of row i
    truth = [set(Y_test.indices[a:b].tolist()) for a, b in zip(Y_test.indptr[:-1], Y_test.indptr[1:])]
    hits = np.zeros(5)
    for row, own in zip(best, truth):
        for place, label in enumerate(row[:5]):
            hits[place] += label in own
    return [100 * float(hits[:k].sum()) / k / len(best) for k in (1, 3, 5)]
"""

# PECOS without a tree: dual coordinate descent for every label.
PECOS = (
    _LOAD
    + """
from pecos.xmc.base import MLModel, MLProblem
begin = time.perf_counter()
parameters = MLModel.TrainParams(
    solver_type="L2R_L2LOSS_SVC_DUAL", eps=0.1, newton_eps=0.1, max_iter=100, threshold=0.0,
    bias=1.0, threads=1, Cp=1.0, Cn=1.0,
)
model = MLModel.train(MLProblem(X, sp.csc_matrix(Y), threads=1), train_params=parameters)
seconds = time.perf_counter() - begin
np.save(options["weights"], np.asarray(model.W.T.todense(), np.float32))
print(json.dumps({"seconds": seconds, "labels": labels}))
"""
)

# PECOS XR-Linear with its defaults: a tree over label embeddings.
PECOS_TREE = (
    _LOAD
    + """
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel
begin = time.perf_counter()
chain = Indexer.gen(LabelEmbeddingFactory.create(Y, X, method="pifa"))
model = XLinearModel.train(X, Y, C=chain, threads=1)
seconds = time.perf_counter() - begin
begin = time.perf_counter()
P = model.predict(X_test, only_topk=5, beam_size=10, threads=1)
prediction = time.perf_counter() - begin
best = []
for a, b in zip(P.indptr[:-1], P.indptr[1:]):
    best.append(P.indices[a:b][np.argsort(-P.data[a:b], kind="stable")].tolist())
print(json.dumps({"seconds": seconds, "labels": labels, "precision": precision(best),
                  "prediction_ms": 1e3 * prediction / len(best)}))
"""
)

# Omikuji with its defaults, three trees; it reads the text file itself (a small part of the time).
OMIKUJI = (
    _LOAD
    + """
import omikuji
begin = time.perf_counter()
model = omikuji.Model.train_on_data(options["data"] + "/train.txt", n_threads=1)
seconds = time.perf_counter() - begin
rows = [
    list(zip(X_test.indices[a:b].tolist(), X_test.data[a:b].tolist()))
    for a, b in zip(X_test.indptr[:-1], X_test.indptr[1:])
]
begin = time.perf_counter()
best = [[label for label, _ in model.predict(row, top_k=5)] for row in rows]
prediction = time.perf_counter() - begin
print(json.dumps({"seconds": seconds, "labels": labels, "precision": precision(best),
                  "prediction_ms": 1e3 * prediction / len(best)}))
"""
)

# libsdca's projections of float32 vectors: FILE rows length k radius -> seconds of CPU time and the worst
# error of a sum.
LIBSDCA_PROX = r"""
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>
#include "sdca/prox.h"

template <class Project>
void timed(const char* name, const std::vector<float>& b, long rows, long m, float r, bool last,
           Project project) {
  std::vector<float> x(b.size()), scratch(m);
  const std::clock_t begin = std::clock();
  for (long i = 0; i < rows; ++i) {
    std::copy(&b[i * m], &b[i * m] + m, &x[i * m]);
    project(&x[i * m], &x[i * m] + m, scratch.data());
  }
  const double seconds = double(std::clock() - begin) / CLOCKS_PER_SEC;
  double worst = 0;
  for (long i = 0; i < rows; ++i) {
    double sum = 0;
    for (long j = 0; j < m; ++j) sum += x[i * m + j];
    worst = std::max(worst, std::abs(sum - r));
  }
  const char* end = last ? "" : ", ";
  std::printf("\"%s\": {\"seconds\": %.9f, \"sum_error\": %.9g}%s", name, seconds, worst, end);
}

int main(int, char** argument) {
  using namespace sdca;
  const long rows = std::atol(argument[2]), m = std::atol(argument[3]), k = std::atol(argument[4]);
  const float r = float(std::atof(argument[5])), zero = 0, one = 1;
  std::vector<float> b(rows * m);
  std::FILE* file = std::fopen(argument[1], "rb");
  if (!file || std::fread(b.data(), sizeof(float), b.size(), file) != b.size()) return 2;
  std::fclose(file);
  std::printf("{");
  typedef float* P;
  timed("simplex", b, rows, m, r, false, [=](P f, P l, P s) { prox_knapsack_eq(f, l, s, zero, r, r); });
  timed("knapsack", b, rows, m, r, false,
        [=](P f, P l, P s) { prox_knapsack_eq(f, l, s, zero, 2 * r / k, r); });
  timed("topk_cone", b, rows, m, r, false, [=](P f, P l, P s) { prox_topk_cone<float>(f, l, s, k); });
  timed("topk_simplex", b, rows, m, r, false, [=](P f, P l, P s) { prox_topk_simplex(f, l, s, k, r); });
  timed("topk_simplex_biased", b, rows, m, r, false,
        [=](P f, P l, P s) { prox_topk_simplex_biased(f, l, s, k, r, one); });
  timed("topk_simplex_beta", b, rows, m, r, true,
        [=](P f, P l, P s) { prox_knapsack_le_biased(f, l, s, zero, r / k, r, one); });
  std::printf("}\n");
}
"""

# libsdca's top-k SVM of float32 features: X.bin y.bin n d m k C alpha|beta tol -> its own clocks and
# objectives. The gap is computed after every epoch, so that training stops at the first small enough gap.
LIBSDCA_SOLVE = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#include "sdca/solver.h"
#include "sdca/utility/logging.cpp"

template <class T>
std::vector<T> read(const char* path, size_t count) {
  std::vector<T> all(count);
  std::FILE* file = std::fopen(path, "rb");
  if (!file || std::fread(all.data(), sizeof(T), count, file) != count) std::exit(2);
  std::fclose(file);
  return all;
}

template <class Objective>
void solve(char** argument, Objective objective) {
  using namespace sdca;
  const size_type n = std::atol(argument[3]), d = std::atol(argument[4]), m = std::atol(argument[5]);
  std::vector<float> X = read<float>(argument[1], n * d), W(d * m), A(m * n);
  std::vector<size_type> y = read<size_type>(argument[2], n);
  auto context = make_context(make_input_feature(d, n, &X[0]), make_output_multiclass(y.begin(), y.end()),
                              std::move(objective), &A[0], &W[0]);
  context.criteria.epsilon = std::atof(argument[9]);
  context.criteria.eval_epoch = 1;
  context.criteria.max_epoch = 100000;
  auto solver = make_solver(context);
  solver.solve();
  const auto& last = context.train.evals.back();
  std::printf("{\"seconds\": %.9f, \"check_seconds\": %.9f, ", context.solve_time.cpu.elapsed,
              context.eval_time.cpu.elapsed);
  std::printf("\"epochs\": %zu, \"primal\": %.9g, \"dual\": %.9g}\n", size_t(context.epoch),
              double(last.primal), double(last.dual));
}

int main(int, char** argument) {
  const long k = std::atol(argument[6]);
  const float C = float(std::atof(argument[7]));
  if (!std::strcmp(argument[8], "alpha"))
    solve(argument, sdca::make_objective_l2_hinge_topk<float, float>(C, k));
  else
    solve(argument, sdca::make_objective_l2_topk_hinge<float, float>(C, k));
}
"""


def dismecpp_clock(printed: str, *events: str) -> list[tuple[str, float]]:
    """(event, seconds of the clock) for each event of dismecpp's log that begins with one of `events`."""
    stamp = rf"(?m)^\[(\S+ \S+)\] \[\w+\] ({'|'.join(events)})"
    found = re.findall(stamp, printed)
    return [
        (event, datetime.datetime.strptime(time, "%Y-%m-%d %H:%M:%S.%f").timestamp()) for time, event in found
    ]


def compile_libsdca(
    source: str, folder: Path, *, checkout: str, compiler: str, flags: Sequence[str] = ()
) -> str:
    """The path of a program compiled against libsdca's headers, with -Ofast -march=native, in `folder`."""
    text, program = folder / "libsdca.cc", folder / "libsdca"
    text.write_text(source)
    usual = ("-std=gnu++11", "-Ofast", "-march=native", "-DNDEBUG", "-w", f"-I{checkout}/include")
    command = [compiler, *usual, str(text), "-o", str(program), *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"libsdca does not compile: {done.stderr.strip()}")
    return str(program)
