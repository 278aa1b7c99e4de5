// Sums over the rows of a block of lanes, and the change between lanes-last and lane-major layout.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/interrupt.h"
#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {

// The register from lane `first` on of a vector of all lanes, numbers or a mask.
template <class T, class V>
inline auto register_of(const V& v, int first) {
  using Numbers = Wide<T>;
  using Some = std::conditional_t<std::is_same_v<ElementOf<V>, T>, Numbers, typename MaskOf<Numbers>::type>;
  return load_as<Some>(LanesOf<V>(v).lane + first);
}

// A float sum over many rows: blocks in T, their totals in double.
template <class T>
class LaneSum {
 public:
  void add(Vec<T> x) { block_ += x; }
  void flush() {
    const LanesOf<Vec<T>> block(block_);
    for (int l = 0; l < kLanes<T>; ++l) total_[l] += block[l];
    block_ = Vec<T>{};
  }
  double operator[](int l) const { return total_[l]; }

 private:
  Vec<T> block_{};
  double total_[kLanes<T>] = {};
};

constexpr int64_t kPasses = 8;  // what a row costs, in products

// f(i) for every row, flush() after every 256 of them.
template <class F, class G>
inline void for_rows(int64_t n, F&& f, G&& flush) {
  const Poll poll;
  for (int64_t first = 0; first < n; first += 256) {
    const int64_t last = first + 256 < n ? first + 256 : n;
    for (int64_t i = first; i < last; ++i) f(i);
    flush();
    poll(kPasses * 256);
  }
}

// Dot product of two rows of a lane-major array (length a multiple of the tile, zero-padded).
template <class T>
T dot(const T* a, const T* b, int64_t length) {
  constexpr int N = kLanes<T>;
  Vec<T> even{}, odd{};
  int64_t j = 0;
  for (; j + 2 * N <= length; j += 2 * N) {
    even += load(a + j) * load(b + j);
    odd += load(a + j + N) * load(b + j + N);
  }
  if (j < length) even += load(a + j) * load(b + j);
  even += odd;
  return sum_of_lanes<T>(even);
}

// One butterfly stage of a transposition: exchanges blocks of H lanes between two registers that are H apart.
template <class T, int H, int... L>
inline void exchange(Wide<T>& a, Wide<T>& b, std::integer_sequence<int, L...>) {
  constexpr int N = kWide<T>;
  const Wide<T> low = a, high = b;
#if defined(__clang__)
  a = __builtin_shufflevector(low, high, ((L & H) ? N + L - H : L)...);
  b = __builtin_shufflevector(low, high, ((L & H) ? N + L : L + H)...);
#else  // GCC has __builtin_shufflevector only since version 12
  using Numbers = typename VectorOf<T, kRegister>::integer;
  a = __builtin_shuffle(low, high, Numbers{((L & H) ? N + L - H : L)...});
  b = __builtin_shuffle(low, high, Numbers{((L & H) ? N + L : L + H)...});
#endif
}
// Transposes a square of registers; the outermost call has half its size as H.
template <class T, int H = kWide<T> / 2>
inline void transpose_registers(Wide<T>* v) {
  for (int i = 0; i < kWide<T>; ++i)
    if (!(i & H)) exchange<T, H>(v[i], v[i + H], std::make_integer_sequence<int, kWide<T>>());
  if constexpr (H > 1) transpose_registers<T, H / 2>(v);
}
// lane_major[l][j] = scale · tile[j][l] for j < `padded`, 0 from d on; lane_major has rows of `row` elements.
template <class T>
void to_lanes(T scale, const T* tile, int64_t stride, int64_t d, T* lane_major, int64_t padded, int64_t row) {
  constexpr int W = kWide<T>;
  Wide<T> block[W];
  for (int64_t j = 0; j < padded; j += W)
    for (int l = 0; l < kLanes<T>; l += W) {
      for (int k = 0; k < W; ++k)
        block[k] = j + k < d ? scale * load_wide(tile + (j + k) * stride + l) : Wide<T>{};
      transpose_registers<T>(block);
      for (int k = 0; k < W; ++k) store_wide(lane_major + (l + k) * row + j, block[k]);
    }
}
template <class T>
void to_lanes(T scale, const T* tile, int64_t stride, int64_t d, T* lane_major, int64_t padded) {
  to_lanes(scale, tile, stride, d, lane_major, padded, padded);
}
template <class T>
void to_tile(const T* lane_major, int64_t padded, int64_t d, T* tile, int64_t stride) {
  constexpr int W = kWide<T>;
  Wide<T> block[W];
  for (int64_t j = 0; j < padded; j += W)
    for (int l = 0; l < kLanes<T>; l += W) {
      for (int k = 0; k < W; ++k) block[k] = load_wide(lane_major + (l + k) * padded + j);
      transpose_registers<T>(block);
      for (int k = 0; k < W && j + k < d; ++k) store_wide(tile + (j + k) * stride + l, block[k]);
    }
}

}  // namespace xmcjax::XMCJAX_ISA
