#include "core/parallel.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/interrupt.h"

namespace xmcjax {
namespace {

// The threads that work for one call. What they throw is thrown again in the thread that made the call.
class Team {
 public:
  explicit Team(int64_t size) : call_(watch().call), failures_(size) { pool_.reserve(size); }
  ~Team() { join(); }

  // Begins f() on a new thread, as member t. False where no thread is to be had: f() was not begun.
  template <class F>
  bool begin(int64_t t, F&& f) {
    try {
      pool_.emplace_back([this, t, f = std::forward<F>(f)] {
        const Joined joined(call_);
        make(t, f);
        const std::lock_guard<std::mutex> lock(mutex_);
        ++ended_;
        one_ended_.notify_one();
      });
    } catch (const std::exception&) {  // no thread, or no memory for one
      return false;
    }
    return true;
  }

  // f() as member t, in this thread.
  template <class F>
  void make(int64_t t, F&& f) {
    try {
      f();
    } catch (...) {
      failures_[t] = std::current_exception();
    }
  }

  // Waits for all threads, and throws what the first member that failed threw. If the call is interrupted meanwhile,
  // its other threads leave it at their next poll.
  void end() {
    join();
    for (const std::exception_ptr& failure : failures_)
      if (failure) std::rethrow_exception(failure);
  }

 private:
  void join() {
    if (call_ && !pool_.empty()) {
      std::unique_lock<std::mutex> lock(mutex_);
      const Poll poll;
      while (
          !one_ended_.wait_for(lock, std::chrono::milliseconds(50), [&] { return ended_ == pool_.size(); })) {
        lock.unlock();
        poll.stopped();
        lock.lock();
      }
    }
    for (std::thread& thread : pool_) thread.join();
    pool_.clear();
  }

  Call* const call_;
  std::vector<std::exception_ptr> failures_;
  std::vector<std::thread> pool_;
  std::mutex mutex_;
  std::condition_variable one_ended_;
  size_t ended_ = 0;
};

}  // namespace

void parallel(int64_t count, int64_t grain, int64_t threads, Reference<int64_t, int64_t> f) {
  const int64_t pieces = (count + grain - 1) / grain;
  const int64_t workers = threads < pieces ? threads : pieces;
  if (workers <= 1) {
    if (count > 0) f(int64_t(0), count);
    return;
  }
  Team team(workers);
  for (int64_t t = 0; t < workers; ++t) {
    const int64_t first = pieces * t / workers * grain;
    const int64_t end = pieces * (t + 1) / workers * grain;
    const int64_t last = end < count ? end : count;
    const auto piece = [&f, first, last] { f(first, last); };
    // this thread takes the last piece, and every piece for which no other thread is to be had
    if (t + 1 == workers || !team.begin(t, piece)) team.make(t, piece);
  }
  team.end();
}

void Meeting::wait() {
  const uint64_t now = gate_.met.load(std::memory_order_acquire);
  gate_.arrive(threads_);
  const Poll poll;
  gate_.wait(now, [&] {
    if (abandoned_.load(std::memory_order_acquire)) throw Abandoned();
    poll(Gate::kYield);
    return false;
  });
}

void side_by_side(int64_t threads, Reference<int64_t, int64_t, Meeting&> f) {
  std::atomic<Meeting*> begun{nullptr};
  std::atomic<int64_t> count{1};
  const auto member = [&](int64_t t) {
    Meeting& meeting = *begun.load(std::memory_order_acquire);
    try {
      f(t, count.load(std::memory_order_relaxed), meeting);
    } catch (const Meeting::Abandoned&) {  // another thread has failed
    } catch (...) {
      meeting.abandon();
      throw;
    }
  };
  Team team(threads);
  int64_t members = 1;
  for (int64_t t = 1; t < threads; ++t, ++members) {
    const bool there = team.begin(t, [&, t] {
      while (!begun.load(std::memory_order_acquire)) std::this_thread::yield();
      member(t);
    });
    if (!there) break;  // the threads that have begun do the work
  }
  count.store(members, std::memory_order_relaxed);
  Meeting meeting(members);
  begun.store(&meeting, std::memory_order_release);
  team.make(0, [&] { member(0); });
  team.end();
}

}  // namespace xmcjax
