// Weights of many classes in panels of as many classes as fill a vector: the weights of class c and
// feature j stand at [c / N][j][c % N]. A panel stays in the cache while all rows of X pass by, and one
// non-zero of X touches one cache line of it. Included by the simd_*.cc files only.
#pragma once

#include <algorithm>

#include "core/aligned.h"
#include "core/csr_rows.h"
#include "core/parallel.h"
#include "dual/multiclass.h"

namespace xmcjax::XMCJAX_ISA {

template <class T>
class Panels {
 public:
  static constexpr int N = kLanes<T>;

  // In memory of the caller, with shared_room(d, m) zeros, or its own.
  Panels(int64_t d, int64_t m, T* shared = nullptr)
      : d_(d), m_(m), count_((m + N - 1) / N), own_(Zeros<T>::large(shared ? 0 : count_ * d * N)),
        W_(shared ? shared : own_.get()) {}

  int64_t count() const { return count_; }
  T* panel(int64_t q) const { return W_ + q * d_ * N; }
  // Lanes of the panel that are classes, as bits.
  unsigned lanes(int64_t q) const {
    return q + 1 < count_ || m_ % N == 0 ? (1u << N) - 1 : (1u << m_ % N) - 1;
  }

  void clear() { std::fill(W_, W_ + count_ * d_ * N, T(0)); }

  // The weights of class c, N apart.
  T* lane(int64_t c) const { return panel(c / N) + c % N; }

  // out[d, m]
  void get(T* out, int64_t threads) const {
    parallel(d_, kRows, threads, [&](int64_t first, int64_t end) {
      over_rows(first, end, [&](int64_t q, int64_t j, size_t bytes) {
        std::memcpy(out + j * m_ + q * N, panel(q) + j * N, bytes);
      });
    });
  }

 private:
  // copy(panel, feature, bytes of its classes) for features first .. end-1.
  template <class F>
  void over_rows(int64_t first, int64_t end, F copy) const {
    for (; first < end; first += kRows)
      for (int64_t q = 0; q < count_; ++q)
        for (int64_t j = first; j < std::min(first + kRows, end); ++j)
          copy(q, j, size_t(std::min<int64_t>(N, m_ - q * N)) * sizeof(T));
  }

  static constexpr int64_t kRows = 64;  // of W at a time, so that their lines stay in the cache

  int64_t d_, m_, count_;
  Zeros<T> own_;
  T* W_;
};

}  // namespace xmcjax::XMCJAX_ISA
