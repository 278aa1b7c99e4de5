// How kernels are started, for the files that nvcc compiles; with XMCJAX_ON_HOST they run on the CPU, one warp
// or block after the other.
#pragma once

#include <type_traits>

#include "launch.h"

namespace xmcjax::cuda {
namespace {

constexpr int kThreads = 256;  // of a block
constexpr int kWarps = kThreads / kWarp;

#ifdef __CUDACC__

// Blocks that a multiprocessor is to hold at least: 0 leaves it to the compiler, which spares registers for the sake
// of more blocks; 1 is for a body whose numbers are to stay in registers, which may be many.
template <class Body, class = void>
struct LeastBlocks : std::integral_constant<int, 0> {};
template <class Body>
struct LeastBlocks<Body, std::enable_if_t<Body::kInRegisters>> : std::integral_constant<int, 1> {};

template <class Body>
__global__ void __launch_bounds__(kThreads, LeastBlocks<Body>::value)
    xmcjax_kernel(const Body body, const int64_t warps) {
  const int64_t warp = int64_t(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (warp < warps) body(warp);
}

inline std::string said(cudaError_t error) { return error == cudaSuccess ? "" : cudaGetErrorString(error); }

// Makes the device of a stream the current one while this lives, and forgets errors that others made before.
class OnDeviceOf {
 public:
  explicit OnDeviceOf(Stream stream) {
    cudaGetLastError();
    int device = 0;
    cudaGetDevice(&before_);
    if (cudaStreamGetDevice(stream, &device) == cudaSuccess && device != before_) {
      changed_ = true;
      cudaSetDevice(device);
    }
  }
  ~OnDeviceOf() {
    if (changed_) cudaSetDevice(before_);
  }
  OnDeviceOf(const OnDeviceOf&) = delete;
  OnDeviceOf& operator=(const OnDeviceOf&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

template <class Body>
std::string run(Stream stream, int64_t warps, const Body& body) {
  if (warps == 0) return "";
  const int64_t blocks = (warps + kWarps - 1) / kWarps;
  if (blocks > 0x7fffffff) return "there are more than 2^31 - 1 blocks of threads";
  xmcjax_kernel<<<unsigned(blocks), kThreads, 0, stream>>>(body, warps);
  return said(cudaGetLastError());
}

// For a body whose team is a block: with 128 registers for a thread, as far as there are as many.
template <class Body>
__global__ void __launch_bounds__(Body::kThreads, Body::kThreads < 512 ? 512 / Body::kThreads : 1)
    xmcjax_block(const Body body) {
  body(int64_t(blockIdx.x));
}

template <class Body>
std::string run_blocks(Stream stream, int64_t blocks, const Body& body) {
  if (blocks == 0) return "";
  if (blocks > 0x7fffffff) return "there are more than 2^31 - 1 vectors";
  xmcjax_block<<<unsigned(blocks), Body::kThreads, 0, stream>>>(body);
  return said(cudaGetLastError());
}

// Warps that the current GPU holds at once, for kernels that take one piece after another.
inline int64_t resident_warps() {
  int device = 0, processors = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
    processors = 64;
  return int64_t(processors) * 64;
}

#else

struct OnDeviceOf {
  explicit OnDeviceOf(Stream) {}
};

template <class Body>
std::string run(Stream, int64_t warps, const Body& body) {
  for (int64_t warp = 0; warp < warps; ++warp) body(warp);
  return "";
}

template <class Body>
std::string run_blocks(Stream, int64_t blocks, const Body& body) {
  for (int64_t block = 0; block < blocks; ++block) body(block);
  return "";
}

inline int64_t resident_warps() { return 7; }

#endif

// One launch after the other on a stream, until one fails.
class Launches {
 public:
  explicit Launches(Stream stream) : stream_(stream), on_device_(stream) {}
  template <class Body>
  void operator()(int64_t warps, const Body& body) {
    if (fault.empty()) fault = run(stream_, warps, body);
  }
  // by blocks of Body::kThreads
  template <class Body>
  void by_blocks(int64_t blocks, const Body& body) {
    if (fault.empty()) fault = run_blocks(stream_, blocks, body);
  }
  std::string fault;  // of the one that failed

 private:
  Stream stream_;
  OnDeviceOf on_device_;
};

}  // namespace
}  // namespace xmcjax::cuda
