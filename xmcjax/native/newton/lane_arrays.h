// Sums over the rows of a block of lanes, and the change between lanes-last and lane-major layout.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "core/interrupt.h"
#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {

// A float sum over many rows: blocks in T, their totals in double.
template <class T>
class LaneSum {
 public:
  void add(Vec<T> x) { block_ += x; }
  void flush() {
    for (int l = 0; l < kLanes<T>; ++l) total_[l] += block_[l];
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

// One butterfly stage of a transposition: of two registers h apart, exchanges the blocks of h.
template <class T, int H, int... L>
inline void exchange(Wide<T>& a, Wide<T>& b, std::integer_sequence<int, L...>) {
  constexpr int N = kWide<T>;
  const Wide<T> low = a, high = b;
#if defined(__clang__)
  a = __builtin_shufflevector(low, high, ((L & H) ? N + L - H : L)...);
  b = __builtin_shufflevector(low, high, ((L & H) ? N + L : L + H)...);
#else  // GCC has the other only since version 12
  using Numbers = typename VectorOf<T, kRegister>::integer;
  a = __builtin_shuffle(low, high, Numbers{((L & H) ? N + L - H : L)...});
  b = __builtin_shuffle(low, high, Numbers{((L & H) ? N + L : L + H)...});
#endif
}
template <class T, int H>
inline void transpose_registers(Wide<T>* v) {
  for (int i = 0; i < kWide<T>; ++i)
    if (!(i & H)) exchange<T, H>(v[i], v[i + H], std::make_integer_sequence<int, kWide<T>>());
  if constexpr (H > 1) transpose_registers<T, H / 2>(v);
}
// A square of N vectors, in squares of registers: of the shuffles of wider vectors GCC makes moves of single elements.
template <class T>
inline void transpose_block(Vec<T>* v) {
  constexpr int N = kLanes<T>, W = kWide<T>;
  if constexpr (N == W) return transpose_registers<T, W / 2>(v);
  alignas(64) T from[N * N];
  std::memcpy(from, v, sizeof(from));
  for (int row = 0; row < N; row += W)
    for (int column = 0; column < N; column += W) {
      Wide<T> block[W];
      for (int k = 0; k < W; ++k) block[k] = load_wide(from + (row + k) * N + column);
      transpose_registers<T, W / 2>(block);
      for (int k = 0; k < W; ++k)
        std::memcpy(reinterpret_cast<char*>(v + column + k) + row * sizeof(T), &block[k], sizeof(block[k]));
    }
}

// lane_major[l][j] = scale · tile[j][l]; lane_major has rows of `padded` elements.
template <class T>
void to_lanes(T scale, const T* tile, int64_t stride, int64_t d, T* lane_major, int64_t padded) {
  constexpr int N = kLanes<T>;
  Vec<T> block[N];
  for (int64_t j = 0; j < padded; j += N) {
    for (int k = 0; k < N; ++k) block[k] = j + k < d ? scale * load(tile + (j + k) * stride) : Vec<T>{};
    transpose_block<T>(block);
    for (int l = 0; l < N; ++l) store(lane_major + l * padded + j, block[l]);
  }
}
template <class T>
void to_tile(const T* lane_major, int64_t padded, int64_t d, T* tile, int64_t stride) {
  constexpr int N = kLanes<T>;
  Vec<T> block[N];
  for (int64_t j = 0; j < padded; j += N) {
    for (int l = 0; l < N; ++l) block[l] = load(lane_major + l * padded + j);
    transpose_block<T>(block);
    for (int k = 0; k < N && j + k < d; ++k) store(tile + (j + k) * stride, block[k]);
  }
}

}  // namespace xmcjax::XMCJAX_ISA
