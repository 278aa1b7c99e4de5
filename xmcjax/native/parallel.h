// A loop on several threads, and threads that go on together.
#pragma once

#include <atomic>
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

// Where a fixed number of threads wait for each other. They meet within microseconds as a rule, so that they look
// again and again, and let others run where it takes longer.
class Meeting {
 public:
  explicit Meeting(int64_t threads) : threads_(threads) {}
  void wait() {
    const uint64_t now = met_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      met_.store(now + 1, std::memory_order_release);
      return;
    }
    for (int look = 0; met_.load(std::memory_order_acquire) == now; ++look)
      if (look >= kLooks) std::this_thread::yield();
  }

 private:
  static constexpr int kLooks = 10000;
  const int64_t threads_;
  alignas(64) std::atomic<int64_t> arrived_{0};
  alignas(64) std::atomic<uint64_t> met_{0};
};

// f(t, count, meeting) for t = 0 .. count - 1 at once, on as many threads as there are, at most `threads`; f must
// not throw.
template <class F>
void side_by_side(int64_t threads, F&& f) {
  std::atomic<Meeting*> begun{nullptr};
  std::atomic<int64_t> count{1};
  std::vector<std::thread> pool;
  try {
    pool.reserve(threads - 1);
    for (int64_t t = 1; t < threads; ++t)
      pool.emplace_back([&, t] {
        while (!begun.load(std::memory_order_acquire)) std::this_thread::yield();
        f(t, count.load(std::memory_order_relaxed), *begun.load(std::memory_order_relaxed));
      });
  } catch (const std::system_error&) {  // no more threads: those that there are do the work
  }
  count.store(int64_t(pool.size()) + 1, std::memory_order_relaxed);
  Meeting meeting(int64_t(pool.size()) + 1);
  begun.store(&meeting, std::memory_order_release);
  f(int64_t(0), int64_t(pool.size()) + 1, meeting);
  for (std::thread& thread : pool) thread.join();
}

}  // namespace xmcjax
