// Projections of vectors, by the teams that their length asks for: a warp up to 1,024 numbers of float32 in
// registers, a block beyond, and where a block's registers do not hold a vector, one that reads it in each pass.
#include "run.h"

namespace xmcjax::cuda {
namespace {

// Rows [n, m] by Body<T, numbers of a thread, threads of a team>.
template <template <class, int, int> class Body, class T, int N, class Arguments>
std::string by_warps(Launches& launch, const Arguments& of) {
  launch(of.n, Body<T, N, kWarp>{of});
  return launch.fault;
}
template <template <class, int, int> class Body, class T, int N, int THREADS, class Arguments>
std::string by_blocks(Launches& launch, const Arguments& of) {
  launch.by_blocks(of.n, Body<T, N, THREADS>{of});
  return launch.fault;
}

template <class T>
constexpr int kOfLong = sizeof(T) == 8 ? 512 : 1024;  // threads that a multiprocessor has registers for

template <template <class, int, int> class Body, class T, class Arguments>
std::string of_one_array(Stream stream, const Arguments& of) {
  constexpr int kMost = 128 / int(sizeof(T));  // numbers of a thread: 128 bytes
  Launches launch(stream);
  if (of.m <= kWarp) return by_warps<Body, T, 1>(launch, of);
  if (of.m <= 4 * kWarp) return by_warps<Body, T, 4>(launch, of);
  if (of.m <= 8 * kWarp) return by_warps<Body, T, 8>(launch, of);
  if (of.m <= 16 * kWarp) return by_warps<Body, T, 16>(launch, of);
  if (of.m <= kMost * kWarp) return by_warps<Body, T, kMost>(launch, of);
  if (of.m <= kMost * 256) return by_blocks<Body, T, kMost, 256>(launch, of);
  return by_blocks<Body, T, 0, kOfLong<T>>(launch, of);
}

}  // namespace

template <class T>
std::string project_box(Stream stream, const BoxArguments<T>& of) {
  return of_one_array<BoxRows, T>(stream, of);
}

template <class T>
std::string project_topk(Stream stream, const TopkArguments<T>& of) {
  return of_one_array<TopkRows, T>(stream, of);
}

// An entry has four numbers. A warp that holds more entries makes fewer steps for each, as far as the registers allow.
template <class T>
std::string project_weighted(Stream stream, const WeightedArguments<T>& of) {
  constexpr bool kNarrow = sizeof(T) == 4;
  constexpr int kSome = kNarrow ? 8 : 4, kMost = kNarrow ? 16 : 4, kThreadsOfMost = kNarrow ? 64 : 128;
  Launches launch(stream);
  if (of.m <= kWarp) return by_warps<WeightedRows, T, 1>(launch, of);
  if (of.m <= kSome * kWarp) return by_warps<WeightedRows, T, kSome>(launch, of);
  if (of.m <= kMost * kThreadsOfMost) return by_blocks<WeightedRows, T, kMost, kThreadsOfMost>(launch, of);
  if (of.m <= kMost * 512) return by_blocks<WeightedRows, T, kMost, 512>(launch, of);
  return by_blocks<WeightedRows, T, 0, kOfLong<T>>(launch, of);
}

#define XMCJAX_OF(T)                                                     \
  template std::string project_box<T>(Stream, const BoxArguments<T>&);   \
  template std::string project_topk<T>(Stream, const TopkArguments<T>&); \
  template std::string project_weighted<T>(Stream, const WeightedArguments<T>&);
XMCJAX_OF(float)
XMCJAX_OF(double)

}  // namespace xmcjax::cuda
