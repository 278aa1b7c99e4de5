// Probabilities of classes that are nearly 1. 1 - p is then as small as the probabilities of the other classes
// together, and would be nothing but rounding: the `rest` of an instance, the sum of the others, stands for it.
// Included by the simd_*.cc files only.
#pragma once

#include "core/isa.h"
#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {

// 1 - p, of vectors and of numbers
template <class V>
XMCJAX_INLINE V lacking(V p, V rest) {
  return select(p > 0.5f, rest, V(1 - p));
}

}  // namespace xmcjax::XMCJAX_ISA
