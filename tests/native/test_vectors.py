"""Vectors of core/simd.h do the same on every instruction set, be they of one register or of several."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[2] / "xmcjax" / "native"
COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler"),
    pytest.mark.skipif(
        not NATIVE.is_dir(), reason="the package under test is installed without its C++ sources"
    ),
]

# The words of /proc/cpuinfo that the flags of the compiler ask for.
FLAGS = {
    "baseline": [],
    "avx2": ["avx2", "fma"],
    "avx512": ["avx2", "fma", "avx512f", "avx512dq", "avx512vl", "avx512bw"],
}

PROGRAM = r"""
#include <cmath>
#include <cstdio>
#include <limits>

#include "core/exponential.h"
#include "core/logarithm.h"
#include "newton/lane_arrays.h"

using namespace xmcjax::XMCJAX_ISA;

int wrong = 0;
#define EXPECT(what) \
  if (!(what)) ++wrong, std::printf("%s, %d-byte numbers, lane %d\n", #what, int(sizeof(T)), l)

template <class T>
void arithmetic() {
  constexpr int N = kLanes<T>;
  const T nan = std::numeric_limits<T>::quiet_NaN();
  T a[N + 1], b[N + 1];  // read from an address that is no multiple of a vector
  int8_t signs[N];
  for (int l = 0; l < N; ++l) {
    a[l + 1] = l % 5 == 3 ? nan : T(0.37 * (l - 4));
    b[l + 1] = l % 3 == 0 ? T(0) : T(1.5 - 0.25 * l);
    signs[l] = int8_t(l % 2 ? -1 - l : 100 + l);
  }
  const Vec<T> u = load(a + 1), v = load(b + 1), y = load_signs<T>(signs);
  Vec<T> w = u;
  w += v, w *= T(2), w -= u, w /= T(4);
  const LanesOf<Vec<T>> sum(u + v), quotient(T(2) / (v + T(9))), product(-(u * v)), together(w), sign(y);
  const LanesOf<Vec<T>> chosen(select(u < v, u, v)), either(select((u > T(0)) | (v == T(0)), u, v));
  const LanesOf<Vec<T>> both(select((u >= v) & (v != T(0)), u, v)), not_more(select(u <= v, v, u));
  const LanesOf<Vec<T>> most(maximum(u, v)), least(minimum(u, v)), positive(absolute(u));
  const unsigned below = lanes_where(u < v), there = nonzero_lanes(v), nonzero_or_nan = nonzero_lanes(u);
  const unsigned above = lanes_where(u > T(0.5));
  T largest = b[1], total = 0;
  const auto same = [](T one, T other) { return one == other || (one != one && other != other); };
  for (int l = 0; l < N; ++l) {
    const T p = a[l + 1], q = b[l + 1];
    EXPECT(same(u[l], p));
    EXPECT(same(sum[l], p + q));
    EXPECT(same(quotient[l], 2 / (q + 9)));
    EXPECT(same(product[l], -(p * q)));
    const T expected = ((p + q) * 2 - p) / 4;
    EXPECT(same(together[l], expected) || std::fabs(together[l] - expected) < T(1e-6));
    EXPECT(sign[l] == T(signs[l]));
    EXPECT(same(chosen[l], p < q ? p : q));
    EXPECT(same(either[l], p > 0 || q == 0 ? p : q));
    EXPECT(same(both[l], p >= q && q != 0 ? p : q));
    EXPECT(same(not_more[l], p <= q ? q : p));
    EXPECT(same(most[l], q > p ? q : p));
    EXPECT(same(least[l], q < p ? q : p));
    EXPECT(same(positive[l], std::fabs(p)));
    EXPECT((below >> l & 1) == unsigned(p < q));
    EXPECT((there >> l & 1) == unsigned(q != 0));
    EXPECT((nonzero_or_nan >> l & 1) == unsigned(p != 0));
    EXPECT((above >> l & 1) == unsigned(p > T(0.5)));
    largest = q > largest ? q : largest, total += q;
  }
  const int l = N;
  EXPECT(below >> (N - 1) < 2 && there >> (N - 1) < 2);
  EXPECT(largest_lane(v) == largest);
  EXPECT(sum_of_lanes<T>(v) == total);
  w[N - 1] = 7;
  EXPECT(w[N - 1] == 7 && sum_of_lanes<T>(select(w == T(7), w, Vec<T>{})) == 7);
}

template <class T>
void exponentials() {
  constexpr int N = kLanes<T>;
  T x[N];
  for (int l = 0; l < N; ++l) x[l] = l == 0 ? -std::numeric_limits<T>::infinity() : T(1 - 3.7 * l * l);
  const LanesOf<Vec<T>> powers(exponential(load(x)));
  for (int l = 0; l < N; ++l) {
    const T exact = std::exp(x[l]);
    EXPECT(std::fabs(powers[l] - exact) <= 4 * std::numeric_limits<T>::epsilon() * exact || exact < T(1e-37));
  }
}

template <class T>
void logarithms() {
  constexpr int N = kWide<T>, kSteps = 4096;
  constexpr T kEps = std::numeric_limits<T>::epsilon(), kTiny = std::numeric_limits<T>::min();
  for (int step = -kSteps; step <= kSteps; ++step) {
    T x[N];
    // of every size, and near 1, where the logarithm is small and has all its digits
    for (int l = 0; l < N; ++l) {
      const T part = T(step) / kSteps;
      x[l] = l % 2 ? std::pow(T(10), T(sizeof(T) == 4 ? 37 : 307) * part) : 1 + part * part * part * T(0.9);
    }
    const Wide<T> found = logarithm(load_wide(x));
    for (int l = 0; l < N; ++l) {
      const T exact = T(std::log((long double)(x[l])));
      EXPECT(std::fabs(found[l] - exact) <= 2 * kEps * std::fabs(exact));
    }
  }
  const Wide<T> of_none = logarithm(Wide<T>{}), of_least = logarithm(wide(kTiny / 8));
  for (int l = 0; l < N; ++l) {
    EXPECT(std::isfinite(of_none[l]) && of_none[l] < std::log(kTiny) - 0.5);
    EXPECT(std::isfinite(of_least[l]) && of_least[l] < std::log(kTiny));
  }
}

// From lanes last to lanes first and back; the last rows of the tile are padding.
template <class T>
void transpositions() {
  constexpr int N = kLanes<T>, kRows = 3 * N - 5, kPadded = 3 * N, kStride = 2 * N;
  alignas(64) static T tile[kRows * kStride], lanes[N * kPadded], back[kRows * kStride];
  for (int k = 0; k < kRows * kStride; ++k) tile[k] = T(k), back[k] = -1;
  to_lanes(T(2), tile, kStride, kRows, lanes, kPadded);
  to_tile(lanes, kPadded, kRows, back, kStride);
  for (int l = 0; l < N; ++l)
    for (int j = 0; j < kPadded; ++j) {
      EXPECT(lanes[l * kPadded + j] == (j < kRows ? 2 * tile[j * kStride + l] : 0));
      if (j >= kRows) continue;
      EXPECT(back[j * kStride + l] == 2 * tile[j * kStride + l]);
      EXPECT(back[j * kStride + N + l] == -1);
    }
}

int main() {
  arithmetic<float>(), arithmetic<double>();
  exponentials<float>(), exponentials<double>();
  logarithms<float>(), logarithms<double>();
  transpositions<float>(), transpositions<double>();
  return wrong != 0;
}
"""


def has(flags: list[str]) -> bool:
    """Whether this processor has what the flags ask for."""
    known = Path("/proc/cpuinfo")
    return not flags or (known.exists() and set(flags) <= set(known.read_text().split()))


@pytest.mark.parametrize("isa", FLAGS)
def test_each_lane_is_what_a_number_would_be(tmp_path, isa):
    if not has(FLAGS[isa]):
        pytest.skip(f"this processor has no {isa}")
    (tmp_path / "main.cc").write_text(PROGRAM)
    command = [COMPILER, "-std=gnu++17", "-O1", "-Wno-psabi", f"-I{NATIVE}", f"-DXMCJAX_ISA={isa}"]
    command += [f"-m{flag}" for flag in FLAGS[isa]] + [
        str(tmp_path / "main.cc"),
        "-o",
        str(tmp_path / "main"),
    ]
    subprocess.run(command, check=True, timeout=300)
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, env=os.environ, timeout=60)
    assert done.stdout == ""
    assert done.returncode == 0
