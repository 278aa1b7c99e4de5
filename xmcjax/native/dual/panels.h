// Weights of many classes in panels of as many classes as fill a vector: the weights of class c and
// feature j stand at [c / N][j][c % N]. A panel stays in the cache while all rows of X pass by, and one
// non-zero of X touches one cache line of it. Included by the simd_*.cc files only.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "core/aligned.h"
#include "core/csr_rows.h"
#include "core/parallel.h"

namespace xmcjax::XMCJAX_ISA {

// `count` zeros, in large pages where the system has them: a pass over rows in random order reads lines from all over.
template <class T>
class LargeZeros {
 public:
  explicit LargeZeros(int64_t count) {
    const size_t bytes = size_t(count) * sizeof(T), grain = bytes < kPage ? kLine : kPage;
    const size_t room = std::max((bytes + grain - 1) / grain, size_t(1)) * grain;
    data_.reset(static_cast<T*>(std::aligned_alloc(grain, room)));
    if (!data_) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
    if (grain == kPage) madvise(data_.get(), room, MADV_HUGEPAGE);
#endif
    std::memset(data_.get(), 0, bytes);
  }
  T* get() const { return data_.get(); }

 private:
  static constexpr size_t kLine = 64, kPage = 1 << 21;
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
};

template <class T>
class Panels {
 public:
  static constexpr int N = kLanes<T>;

  Panels(int64_t d, int64_t m) : d_(d), m_(m), count_((m + N - 1) / N), W_(count_ * d * N) {}

  int64_t count() const { return count_; }
  T* panel(int64_t q) const { return W_.get() + q * d_ * N; }
  // Lanes of the panel that are classes, as bits.
  unsigned lanes(int64_t q) const { return q + 1 < count_ || m_ % N == 0 ? (1u << N) - 1 : (1u << m_ % N) - 1; }

  void clear() { std::memset(W_.get(), 0, size_t(count_ * d_ * N) * sizeof(T)); }

  // out[d, m]
  void get(T* out, int64_t threads) const {
    parallel(d_, kRows, threads, [&](int64_t first, int64_t end) {
      for (; first < end; first += kRows)
        for (int64_t q = 0; q < count_; ++q)
          for (int64_t j = first; j < std::min(first + kRows, end); ++j)
            std::memcpy(out + j * m_ + q * N, panel(q) + j * N, size_t(std::min<int64_t>(N, m_ - q * N)) * sizeof(T));
    });
  }

 private:
  static constexpr int64_t kRows = 64;  // of W at a time, so that their lines stay in the cache

  int64_t d_, m_, count_;
  LargeZeros<T> W_;
};

// Bit l: lane l of v is above `bound`.
template <class T>
inline unsigned lanes_above(Vec<T> v, T bound) {
  return nonzero_lanes(v > bound ? broadcast(T(1)) : Vec<T>{});
}

// A sequence that depends on the seed alone: xorshift64* (Vigna 2016).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du) {
    if (!state_) state_ = 1;
    for (int i = 0; i < 8; ++i) next();
  }
  uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1du;
  }
  // Below `count`, which is no more than 2^32.
  int64_t below(int64_t count) { return int64_t(((next() >> 32) * uint64_t(count)) >> 32); }

  template <class Container>
  void shuffle(Container& items) {
    for (int64_t i = int64_t(items.size()) - 1; i > 0; --i) std::swap(items[i], items[below(i + 1)]);
  }

 private:
  uint64_t state_;
};

}  // namespace xmcjax::XMCJAX_ISA
