// The table of the kernels of one instruction set.

#include "core/isa.h"
#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {

#define XMCJAX_KERNEL(name, result, parameters) \
  template <class T>                            \
  result name parameters;
#include "interface/kernels.def"

template <class T>
constexpr Kernels<T> table() {
  return {
      kLanes<T>,
#define XMCJAX_KERNEL(name, result, parameters) name<T>,
#include "interface/kernels.def"
  };
}

const Kernels<float>& kernels_float() {
  static constexpr Kernels<float> kernels = table<float>();
  return kernels;
}
const Kernels<double>& kernels_double() {
  static constexpr Kernels<double> kernels = table<double>();
  return kernels;
}

}  // namespace xmcjax::XMCJAX_ISA
