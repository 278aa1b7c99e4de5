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
#include "dual/multiclass.h"

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
  unsigned lanes(int64_t q) const {
    return q + 1 < count_ || m_ % N == 0 ? (1u << N) - 1 : (1u << m_ % N) - 1;
  }

  void clear() { std::memset(W_.get(), 0, size_t(count_ * d_ * N) * sizeof(T)); }

  // The weights of class c, N apart.
  T* lane(int64_t c) const { return panel(c / N) + c % N; }

  // Weights of some classes that are not zero. Feature j of class c has the place j * width + c - first, for `width`
  // classes; they come in no order that matters.
  int64_t count_entries(Classes classes) const {
    int64_t count = 0;
    over_entries(classes, [&](int64_t, int64_t, unsigned found) { count += __builtin_popcount(found); });
    return count;
  }
  void get_entries(Classes classes, int64_t* place, T* value) const {
    const int64_t width = classes.last - classes.first;
    over_entries(classes, [&](int64_t q, int64_t j, unsigned found) {
      for (; found; found &= found - 1) {
        const int64_t l = __builtin_ctz(found);
        *place++ = j * width + q * N + l - classes.first;
        *value++ = panel(q)[j * N + l];
      }
    });
  }
  // The others become 0 in these classes.
  void set_entries(Classes classes, const int64_t* place, int64_t count, const T* value) {
    over_entries(classes, [&](int64_t q, int64_t j, unsigned found) {
      for (; found; found &= found - 1) panel(q)[j * N + __builtin_ctz(found)] = 0;
    });
    const int64_t width = classes.last - classes.first;
    for (int64_t k = 0; k < count; ++k) {
      const int64_t c = classes.first + place[k] % width;
      lane(c)[place[k] / width * N] = value[k];
    }
  }

  // out[d, m]
  void get(T* out, int64_t threads) const {
    parallel(d_, kRows, threads, [&](int64_t first, int64_t end) {
      for (; first < end; first += kRows)
        for (int64_t q = 0; q < count_; ++q)
          for (int64_t j = first; j < std::min(first + kRows, end); ++j)
            std::memcpy(out + j * m_ + q * N, panel(q) + j * N,
                        size_t(std::min<int64_t>(N, m_ - q * N)) * sizeof(T));
    });
  }

 private:
  // visit(panel, feature, lanes that are classes of these and not zero, as bits), where there are any.
  template <class F>
  void over_entries(Classes classes, F visit) const {
    if (classes.first == classes.last) return;
    for (int64_t q = classes.first / N; q * N < classes.last; ++q) {
      unsigned of_these = 0;
      for (int64_t l = 0; l < N; ++l) of_these |= unsigned(classes.has(q * N + l)) << l;
      for (int64_t j = 0; j < d_; ++j)
        if (const unsigned found = nonzero_lanes(load(panel(q) + j * N)) & of_these) visit(q, j, found);
    }
  }

  static constexpr int64_t kRows = 64;  // of W at a time, so that their lines stay in the cache

  int64_t d_, m_, count_;
  LargeZeros<T> W_;
};

}  // namespace xmcjax::XMCJAX_ISA
