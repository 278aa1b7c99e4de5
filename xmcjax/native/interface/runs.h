// What the files that define run() of the calls have in common.
#pragma once

#include <cstdint>

#include "core/isa.h"
#include "core/parallel.h"
#include "interface/guard.h"

// A run() that is a kernel and nothing else.
#define XMCJAX_RUNS_KERNEL(Args, kernel) \
  template <class T>                     \
  void run(Args<T>& args) {              \
    kernels<T>().kernel(args);           \
  }                                      \
  XMCJAX_RUNS(Args)

namespace xmcjax {

constexpr int64_t kRows = 64;  // of a piece: rows are independent, and pieces keep the threads apart

// A kernel over pieces of n rows, or of n of what else its range counts.
template <class Args>
void over_rows(const Args& args, int64_t n, int64_t grain, void (*kernel)(const Args&, int64_t, int64_t)) {
  parallel(n, grain, args.threads, [&](int64_t first, int64_t last) { kernel(args, first, last); });
}

}  // namespace xmcjax
