// Rows of a product with a CSR matrix for many classes at once: their sums stay in registers while the row is read once.
// Rows of few entries, such as those of short texts, would else be read for each tile of the classes anew.
// Included by the simd_*.cc files only.
#pragma once

#include <algorithm>
#include <type_traits>

#include "core/csr_rows.h"
#include "core/isa.h"
#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {

constexpr int kMostRegisters = 12;  // of sums; an entry and what it is multiplied by take others
// Classes from which on the sums of a product are made so. With fewer, RowProducts has several sums of a class, which
// do not wait for each other.
template <class T>
constexpr int64_t kManyClasses = 4 * kLanes<T>;
// Registers of a part at least: kManyClasses fill them, and classes that fill more than kMostRegisters are divided into
// parts of equal size.
template <class T>
constexpr int kFewestRegisters = std::min(int(kManyClasses<T>) / kWide<T>, kMostRegisters / 2);

// Stores R registers of sums: those of the classes from 0, N, 2 N, … on, and the last one from `end` on.
template <class T>
struct Stored {
  T* out;
  template <int R>
  XMCJAX_INLINE void operator()(const Wide<T> (&sum)[R], int64_t end) const {
#pragma GCC unroll 12
    for (int r = 0; r < R - 1; ++r) store_wide(out + r * kWide<T>, sum[r]);
    store_wide(out + end, sum[R - 1]);
  }
};

// Σ term(e)(j) over the entries first .. last-1, a register of classes at each j = 0, N, 2 N, … and at `end`.
template <int R, class T, class Term, class Use>
void register_sums(int64_t first, int64_t last, int64_t end, const Term& term, const Use& use) {
  constexpr int N = kWide<T>;
  Wide<T> sum[R] = {};
  for (int64_t e = first; e < last; ++e) {
    const auto of = term(e);
#pragma GCC unroll 12
    for (int r = 0; r < R - 1; ++r) sum[r] += of(r * N);
    sum[R - 1] += of(end);
  }
  use(sum, end);
}

template <int R, class T, class Term, class Use>
void registers_of(int64_t count, int64_t first, int64_t last, int64_t end, const Term& term, const Use& use) {
  if (count == R) {
    register_sums<R, T>(first, last, end, term, use);
  } else if constexpr (R > kFewestRegisters<T>) {
    registers_of<R - 1, T>(count, first, last, end, term, use);
  }
}

// The same for m classes, kManyClasses at least. Where the classes do not fill the last register, it overlaps the one
// before it and works out the shared sums once more. term(e, k)(j) is for the classes from k + j on.
template <class T, class Term>
void class_sums(int64_t first, int64_t last, int64_t m, const Term& term, T* out) {
  constexpr int64_t N = kWide<T>;
  const int64_t registers = (m + N - 1) / N, parts = (registers + kMostRegisters - 1) / kMostRegisters;
  for (int64_t part = 0, begin = 0; part < parts; ++part) {
    const int64_t next = registers * (part + 1) / parts, k = begin * N;
    registers_of<kMostRegisters, T>(
        next - begin, first, last, std::min(next * N, m) - N - k, [&](int64_t e) { return term(e, k); },
        Stored<T>{out + k});
    begin = next;
  }
}

// The rows of X V for V [X.d, m].
template <class T>
class ClassRows {
 public:
  ClassRows(const T* V, int64_t rows, int64_t m) : V_(V), m_(m), few_(V, rows, m) {}

  // Whether all sums of a row stay in registers at once.
  bool at_once() const { return m_ >= kManyClasses<T> && m_ <= kMostRegisters * kWide<T>; }

  // use(sums, end), as of Stored, with the registers of Σ_k value[k] V[column[k]] of row i; only where at_once().
  template <class Use>
  void operator()(const Csr<T>& X, int64_t i, const Use& use) const {
    constexpr int64_t N = kWide<T>;
    registers_of<kMostRegisters, T>((m_ + N - 1) / N, X.offset[i], X.offset[i + 1], m_ - N, term(X, 0), use);
  }

  // out[0:m] = Σ_k value[k] V[column[k]] of row i
  void operator()(const Csr<T>& X, int64_t i, T* out) const {
    if (m_ < kManyClasses<T>) return few_(X, i, out);
    class_sums(X.offset[i], X.offset[i + 1], m_, [&](int64_t e, int64_t k) { return term(X, k)(e); }, out);
  }

 private:
  // What entry e adds to the classes k + j.
  auto term(const Csr<T>& X, int64_t k) const {
    return [value = X.value, column = X.column, V = V_ + k, m = m_](int64_t e) {
      return [x = value[e], v = V + column[e] * m](int64_t j) { return x * load_wide(v + j); };
    };
  }

  const T* V_;
  int64_t m_;
  RowProducts<T> few_;
};

}  // namespace xmcjax::XMCJAX_ISA
