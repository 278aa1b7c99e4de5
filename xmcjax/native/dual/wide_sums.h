// Tiles of a type whose sums are in double. Included by the simd_*.cc files only.
#pragma once

#include <cstring>

#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {

// As many numbers of T as a register has doubles.
template <class T>
using Some = typename VectorOf<T, int(sizeof(T)) * kWide<double>>::type;

// The numbers of a vector from `first` on, in double.
template <class T>
inline Vec<double> widened(const Vec<T>& v, int first) {
  alignas(64) double wide[kLanes<double>];
  for (int part = 0; part < kLanes<double>; part += kWide<double>) {
    Some<T> some;
    std::memcpy(&some, reinterpret_cast<const T*>(&v) + first + part, sizeof(some));
    store_wide(wide + part, __builtin_convertvector(some, Wide<double>));
  }
  return load(wide);
}
// kLanes<T> doubles as a vector of T.
template <class T>
inline Vec<T> narrow(const double* wide) {
  Vec<T> v;
  for (int first = 0; first < kLanes<T>; first += kWide<double>) {
    const auto some = __builtin_convertvector(load_wide(wide + first), Some<T>);
    std::memcpy(reinterpret_cast<T*>(&v) + first, &some, sizeof(some));
  }
  return v;
}

// The sum of `count` doubles, a multiple of those of a vector.
template <int count>
inline double sum_of(const double* wide) {
  Vec<double> sum{};
  for (int first = 0; first < count; first += kLanes<double>) sum += load(wide + first);
  return sum_of_lanes<double>(sum);
}
// The sum of a vector of T, by registers, which is faster than sum_of_lanes.
template <class T>
inline double total_of(const Vec<T>& v) {
  double sum = 0;
  for (int first = 0; first < kLanes<T>; first += kWide<T>) {
    Wide<T> some;
    std::memcpy(&some, reinterpret_cast<const T*>(&v) + first, sizeof(some));
    sum += double(total(some));
  }
  return sum;
}

}  // namespace xmcjax::XMCJAX_ISA
