// The functions by which Python has its signals looked at (native/_interrupts.py).
#include "core/interrupt.h"

#include <pthread.h>

#include <chrono>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

#include "interface/guard.h"

namespace xmcjax {
namespace {

// Work of a thread between two looks, in the unit of Poll: it takes a millisecond or a few.
constexpr int64_t kWork = 1 << 20;
constexpr int64_t kBetweenSignals = 50'000'000;  // nanoseconds between two looks at Python's signals

// PyGILState_Ensure, PyErr_CheckSignals, PyErr_Fetch and PyGILState_Release, and Python's main thread.
struct Python {
  int (*ensure)() = nullptr;
  int (*check)() = nullptr;
  void (*fetch)(void**, void**, void**) = nullptr;
  void (*release)(int) = nullptr;
  uint64_t main_thread = 0;
} python;

void* raised[3] = {};     // type, value, traceback of what a signal handler of the main thread raised
bool awaits_xla = false;  // whether the main thread takes what a handler raised in a call by XLA
std::atomic<int32_t> xla_flag{0};
thread_local const std::atomic<int32_t>* thread_flag = nullptr;

bool is_main_thread() { return python.check && uint64_t(pthread_self()) == python.main_thread; }

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Runs Python's handlers of signals that have come; true where one raised.
bool handlers_raise() {
  const int state = python.ensure();
  const bool failed = python.check() != 0;
  if (failed) python.fetch(raised, raised + 1, raised + 2);
  python.release(state);
  return failed;
}

#ifdef __SANITIZE_THREAD__
// XLA and NumPy order calls by means that ThreadSanitizer does not see. So it is told that a call sees the writes of
// all calls that ended before it began; calls that overlap are not ordered by this.
char ended_calls;
void after_ended_calls() { __tsan_acquire(&ended_calls); }
void before_later_calls() { __tsan_release(&ended_calls); }
#else
void after_ended_calls() {}
void before_later_calls() {}
#endif

}  // namespace

Watch& watch() {
  thread_local Watch own{nullptr, false, 0};
  return own;
}

Call::Call(Caller caller)
    : flag_(caller == Caller::kXla ? &xla_flag : thread_flag),
      signals_(is_main_thread() && (caller == Caller::kPython || awaits_xla)), next_(now() + kBetweenSignals),
      outer_(watch().call), outer_owner_(watch().owner) {
  watch() = {this, true, kWork};
  after_ended_calls();
}

Call::~Call() {
  before_later_calls();
  watch() = {outer_, outer_owner_, kWork};
}

bool Call::stopped(bool owner) {
  if (stopped_.load(std::memory_order_relaxed)) return true;
  bool stop = flag_ && flag_->load(std::memory_order_relaxed) != 0;
  if (!stop && owner && signals_) {
    const int64_t time = now();
    if (time >= next_) {
      stop = handlers_raise();
      next_ = now() + kBetweenSignals;
    }
  }
  if (stop) stopped_.store(true, std::memory_order_relaxed);
  return stop;
}

void Poll::look() const {
  watch_.left = kWork;
  if (stopped()) throw Interrupted();
}

}  // namespace xmcjax

XMCJAX_EXPORT void xmcjax_python(int (*ensure)(), int (*check)(), void (*fetch)(void**, void**, void**),
                                 void (*release)(int), uint64_t main_thread) {
  xmcjax::guarded([&] { xmcjax::python = {ensure, check, fetch, release, main_thread}; });
}

// What a signal handler raised in the last call that was interrupted, or null; the caller owns it from then on.
XMCJAX_EXPORT void xmcjax_take_raised(void** out) {
  xmcjax::guarded([&] {
    for (int i = 0; i < 3; ++i) out[i] = xmcjax::raised[i], xmcjax::raised[i] = nullptr;
  });
}

// Whether the main thread waits for a call by XLA and will ask for what a handler raised in it.
XMCJAX_EXPORT void xmcjax_await_xla(int32_t awaits) {
  xmcjax::guarded([&] { xmcjax::awaits_xla = awaits != 0; });
}

// Whether calls by XLA are to end, those under way and later ones; this holds until the next call of this function.
XMCJAX_EXPORT void xmcjax_stop_xla(int32_t stop) {
  xmcjax::guarded([&] { xmcjax::xla_flag.store(stop); });
}

// Sets the flag of this thread, whose calls end where it is not 0; null for no flag.
XMCJAX_EXPORT void xmcjax_stop_flag(const int32_t* flag) {
  xmcjax::guarded([&] {
    static_assert(sizeof(std::atomic<int32_t>) == sizeof(int32_t));
    xmcjax::thread_flag = reinterpret_cast<const std::atomic<int32_t>*>(flag);
  });
}
