// The numbers of ids.def as enums, and the error of a number that is in none of its lists.
#pragma once

#include <cstdint>

namespace xmcjax {

// k<Class> for each line of a list, and last how many they are.
#define XMCJAX_NUMBER(name, Class) k##Class,
enum LossId : int32_t {
#define XMCJAX_LOSS XMCJAX_NUMBER
#include "interface/ids.def"
  kLosses
};
enum PenaltyId : int32_t {
#define XMCJAX_PENALTY XMCJAX_NUMBER
#include "interface/ids.def"
  kPenalties
};
enum FormulationId : int32_t {
#define XMCJAX_FORMULATION XMCJAX_NUMBER
#include "interface/ids.def"
  kFormulations
};
enum SetId : int32_t {
#define XMCJAX_SET XMCJAX_NUMBER
#include "interface/ids.def"
  kSets
};
enum FeaturesId : int32_t {
#define XMCJAX_FEATURES XMCJAX_NUMBER
#include "interface/ids.def"
  kFeatures
};
#undef XMCJAX_NUMBER

// Throws UnknownId of guard.h.
[[noreturn]] void unknown_id(const char* list, int64_t id);

// `id` where a list of `count` lines has it; else throws.
inline int32_t known(int64_t id, int32_t count, const char* list) {
  if (id < 0 || id >= count) unknown_id(list, id);
  return int32_t(id);
}

}  // namespace xmcjax
