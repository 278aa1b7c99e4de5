// Random orders of visits. Included by the simd_*.cc files only.
#pragma once

#include <cstdint>
#include <utility>

namespace xmcjax::XMCJAX_ISA {

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
