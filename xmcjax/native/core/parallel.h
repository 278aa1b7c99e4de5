// A loop on several threads, and threads that wait for each other.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace xmcjax {

// A reference to a function of the caller, which outlives the call that is given it: the code that makes the call
// is compiled once, not once for each function.
template <class... Arguments>
class Reference {
 public:
  template <class F, class = std::enable_if_t<!std::is_same_v<std::decay_t<F>, Reference>>>
  Reference(F&& f)
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, Arguments... arguments) {
          (*static_cast<std::remove_reference_t<F>*>(object))(arguments...);
        }) {}
  void operator()(Arguments... arguments) const { call_(object_, arguments...); }

 private:
  void* object_;
  void (*call_)(void* object, Arguments...);
};

// f(first, last) over [0, count) cut at multiples of `grain`, on at most `threads` threads.
void parallel(int64_t count, int64_t grain, int64_t threads, Reference<int64_t, int64_t> f);

// Where threads meet; they may belong to several processes that share the memory of the gate. It is zeros at first.
struct Gate {
  alignas(64) std::atomic<int64_t> arrived{0};
  alignas(64) std::atomic<uint64_t> met{0};

  // Comes to a meeting of `members` threads; the last one to come lets all go on.
  void arrive(int64_t members) {
    if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 < members) return;
    arrived.store(0, std::memory_order_relaxed);
    met.fetch_add(1, std::memory_order_release);
  }
  // Waits until there were more than `before` meetings, and returns true, or until enough() is true, and returns
  // false. A meeting takes microseconds as a rule: the first kLooks looks follow each other without a pause; between
  // later ones enough() is asked, and other threads may run.
  template <class F>
  bool wait(uint64_t before, F enough) const {
    for (int look = 0; met.load(std::memory_order_acquire) == before; ++look) {
      if (look < kLooks) continue;
      if (enough()) return false;
      sched_yield();
    }
    return true;
  }
  static constexpr int kLooks = 10000;
  static constexpr int64_t kYield = 1 << 8;  // work, in the unit of Poll, that takes as long as a yield
};
static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

// Where a fixed number of threads wait for each other.
class Meeting {
 public:
  explicit Meeting(int64_t threads) : threads_(threads) {}

  // Thrown by a wait for a thread that will not come.
  struct Abandoned {};

  void wait();
  // A thread has failed and will not come again.
  void abandon() { abandoned_.store(true, std::memory_order_release); }

 private:
  const int64_t threads_;
  Gate gate_;
  std::atomic<bool> abandoned_{false};
};

// f(t, count, meeting) for t = 0 .. count - 1 at once, on as many threads as are to be had, at most `threads`. Where
// one throws, the others leave at their next meeting, and the caller gets what was thrown.
void side_by_side(int64_t threads, Reference<int64_t, int64_t, Meeting&> f);

}  // namespace xmcjax
