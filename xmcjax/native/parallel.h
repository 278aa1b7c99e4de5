// A loop on several threads.
#pragma once

#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace xmcjax {

// f(first, last) over [0, count) cut at multiples of `grain`, on at most `threads` threads.
template <class F>
void parallel(int64_t count, int64_t grain, int64_t threads, F&& f) {
  const int64_t pieces = (count + grain - 1) / grain;
  const int64_t workers = threads < pieces ? threads : pieces;
  if (workers <= 1) {
    if (count > 0) f(int64_t(0), count);
    return;
  }
  std::vector<std::exception_ptr> failures(workers);
  const auto piece = [&](int64_t t, int64_t first, int64_t last) {
    try {
      f(first, last);
    } catch (...) {
      failures[t] = std::current_exception();
    }
  };
  std::vector<std::thread> pool;
  pool.reserve(workers);
  for (int64_t t = 0; t < workers; ++t) {
    const int64_t first = pieces * t / workers * grain;
    const int64_t end = pieces * (t + 1) / workers * grain;
    const int64_t last = end < count ? end : count;
    if (t + 1 == workers) {
      piece(t, first, last);
      continue;
    }
    try {
      pool.emplace_back([&piece, t, first, last] { piece(t, first, last); });
    } catch (const std::system_error&) {  // no more threads: this one does the work
      piece(t, first, last);
    }
  }
  for (std::thread& thread : pool) thread.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace xmcjax
