// The tables of kernels, one per instruction set, and the choice among them at run time.
#pragma once

#include <cstdint>

#include "core/parallel.h"
#include "interface/calls.h"
#include "interface/ids.h"

namespace xmcjax {

// Codes of solvers/_base.py::Status.
enum Status : int32_t {
  kFresh = -1,
  kRunning = 0,
  kConverged = 1,
  kMaxSteps = 2,
  kLineSearchFailed = 3,
  kNonFinite = 4,
};

// Codes of solvers/_admm_blocks.py::_MAPS.
enum RowMap : int64_t { kMapBox = 0, kMapSigned = 1, kMapSignedRay = 2, kMapCapped = 3, kMapTopK = 4 };

// Dual ascent of a multi-class SVM; see multiclass.h.
class MulticlassAdvancing;
class MulticlassAscent;
class MulticlassProximal;
class MulticlassSeparate;
class MulticlassSplitting;

template <class T>
struct Kernels {
  int lane_tile;  // lanes that fill a vector of 64 bytes
#define XMCJAX_KERNEL(name, result, parameters) result(*name) parameters;
#include "interface/kernels.def"
};

#define XMCJAX_DECLARE_ISA(name)           \
  namespace name {                         \
  const Kernels<float>& kernels_float();   \
  const Kernels<double>& kernels_double(); \
  }
XMCJAX_DECLARE_ISA(baseline)
XMCJAX_DECLARE_ISA(avx2)
XMCJAX_DECLARE_ISA(avx512)
#undef XMCJAX_DECLARE_ISA

// "avx512", "avx2" or "baseline": the best this processor runs, or what the environment
// variable XMCJAX_ISA names where the processor runs that.
const char* isa_name();

template <class T>
const Kernels<T>& kernels();
template <>
const Kernels<float>& kernels<float>();
template <>
const Kernels<double>& kernels<double>();

}  // namespace xmcjax
