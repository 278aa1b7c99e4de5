// A loop on several threads, and threads that go on together.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace xmcjax {

// A function of the caller, which outlives the call that is given it: what makes the call is compiled once for all.
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
  alignas(64) std::atomic<int64_t> arrived_{0};
  alignas(64) std::atomic<uint64_t> met_{0};
  std::atomic<bool> abandoned_{false};
};

// f(t, count, meeting) for t = 0 .. count - 1 at once, on as many threads as there are, at most `threads`. Where one
// throws, the others leave at their next meeting, and the caller gets what was thrown.
void side_by_side(int64_t threads, Reference<int64_t, int64_t, Meeting&> f);

}  // namespace xmcjax
