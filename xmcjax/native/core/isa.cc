#include "core/isa.h"

#include <cstdlib>
#include <cstring>

#include "interface/guard.h"

namespace xmcjax {
namespace {

enum class Isa { kBaseline, kAvx2, kAvx512 };

bool runs(Isa isa) {
  switch (isa) {
#ifdef XMCJAX_HAS_avx512
    case Isa::kAvx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
#endif
#ifdef XMCJAX_HAS_avx2
    case Isa::kAvx2: return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    case Isa::kBaseline: return true;
    default: return false;
  }
}

Isa choose() {
  const char* wanted = std::getenv("XMCJAX_ISA");
  if (wanted && !std::strcmp(wanted, "baseline")) return Isa::kBaseline;
  if (wanted && !std::strcmp(wanted, "avx2") && runs(Isa::kAvx2)) return Isa::kAvx2;
  if (runs(Isa::kAvx512)) return Isa::kAvx512;
  if (runs(Isa::kAvx2)) return Isa::kAvx2;
  return Isa::kBaseline;
}

Isa chosen() {
  static const Isa isa = choose();
  return isa;
}

}  // namespace

const char* isa_name() {
  switch (chosen()) {
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx2: return "avx2";
    default: return "baseline";
  }
}

#ifdef XMCJAX_HAS_avx512
#define XMCJAX_AVX512(function) \
  case Isa::kAvx512: return avx512::function();
#else
#define XMCJAX_AVX512(function)
#endif
#ifdef XMCJAX_HAS_avx2
#define XMCJAX_AVX2(function) \
  case Isa::kAvx2: return avx2::function();
#else
#define XMCJAX_AVX2(function)
#endif
#define XMCJAX_PICK(function)             \
  switch (chosen()) {                     \
    XMCJAX_AVX512(function)               \
    XMCJAX_AVX2(function)                 \
    default: return baseline::function(); \
  }

template <>
const Kernels<float>& kernels<float>() {
  XMCJAX_PICK(kernels_float)
}
template <>
const Kernels<double>& kernels<double>() {
  XMCJAX_PICK(kernels_double)
}

}  // namespace xmcjax

XMCJAX_EXPORT const char* xmcjax_isa() {
  return xmcjax::guarded_value<const char*>(nullptr, [] { return xmcjax::isa_name(); });
}
