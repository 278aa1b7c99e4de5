// Places of scores, best first and equal ones by their place. They are sorted by the leading 32 bits of each score,
// which are all bits of a float32, and then, where doubles have these in common, by the other bits.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/aligned.h"

namespace xmcjax::XMCJAX_ISA {

template <class T>
class SortedScores {
 public:
  // Takes a score, which is not NaN, and its place, which is above those of the scores before.
  void push(T score, uint32_t place) { keys_.push_back(key(falling(score) >> (kBits - 32), place)); }
  void reserve(size_t count) { keys_.reserve(count); }
  void clear() { keys_.clear(); }
  int64_t size() const { return int64_t(keys_.size()); }
  // After sort().
  uint32_t place(int64_t rank) const { return uint32_t(keys_[size_t(rank)]); }

  // Puts the k best first, or all where there are fewer. z: the scores by place.
  void sort(const T* z, int64_t k) {
    uint64_t *first = keys_.data(), *const end = first + size(), *const best = first + std::min(k, size());
    sort(first, end);
    if constexpr (kBits == 32) return;
    for (uint64_t* last; first < best; first = last) {
      last = std::find_if(first + 1, end, [&](uint64_t next) { return next >> 32 != *first >> 32; });
      if (last - first == 1) continue;
      std::transform(first, last, first,
                     [z](uint64_t old) { return key(falling(z[uint32_t(old)]), uint32_t(old)); });
      sort(first, last);
    }
  }

 private:
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  static constexpr int kBits = 8 * sizeof(T);
  static constexpr int kDigit = 8, kDigits = 32 / kDigit, kValues = 1 << kDigit;
  // With fewer keys than this, counting digits takes longer than comparisons.
  static constexpr int64_t kFew = 64;

  // A key: the last 32 bits of a number, then the place, which tells equal numbers apart.
  static uint64_t key(Bits number, uint32_t place) { return uint64_t(number) << 32 | place; }

  // A number that falls where the score rises.
  static Bits falling(T score) {
    constexpr Bits kSize = Bits(-1) >> 1;  // all but the sign
    score += T(0);  // 0 of −0, and of what the processor takes for 0
    Bits bits;
    std::memcpy(&bits, &score, sizeof(bits));
    bits ^= kSize & -(bits >> (kBits - 1));  // of two negative numbers the one with the larger size is less
    return kSize - bits;
  }

  // Sorts keys whose places rise, by a pass for each digit from the last one, which leaves equal ones in their order.
  void sort(uint64_t* first, uint64_t* end) {
    if (end - first < kFew) return std::sort(first, end);
    std::array<std::array<uint32_t, kValues>, kDigits> counts{};
    const auto digit = [](uint64_t k, size_t d) { return k >> (32 + d * kDigit) & (kValues - 1); };
    for (const uint64_t* k = first; k < end; ++k)
      for (size_t d = 0; d < kDigits; ++d) ++counts[d][digit(*k, d)];
    const int64_t count = end - first;
    spare_.resize(std::max(spare_.size(), size_t(count)));
    uint64_t *from = first, *to = spare_.data();
    for (size_t d = 0; d < kDigits; ++d) {
      if (counts[d][digit(*from, d)] == count) continue;
      uint32_t begin = 0;
      for (uint32_t& each : counts[d]) begin += std::exchange(each, begin);
      for (int64_t i = 0; i < count; ++i) to[counts[d][digit(from[i], d)]++] = from[i];
      std::swap(from, to);
    }
    if (from != first) std::copy_n(from, count, first);
  }

  Array<uint64_t> keys_, spare_;
};

}  // namespace xmcjax::XMCJAX_ISA
