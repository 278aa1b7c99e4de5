// How a long native call is stopped: loops tell a Poll how much work they have done, and now and then it looks whether
// the call is to end. Three things can end it: a Python signal handler that raises (Ctrl-C), for calls made by Python's
// main thread; a flag of the thread that makes the call; and the flag of all calls made by XLA.
#pragma once

#include <atomic>
#include <cstdint>

namespace xmcjax {

// Thrown by a poll of a call that is to end.
struct Interrupted {};

enum class Caller { kPython, kXla };

// A native call under way: its threads find it through Watch. It belongs to the thread that made it.
class Call {
 public:
  explicit Call(Caller caller);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Whether the call is to end. `owner`: the thread that made the call asks, which alone may run signal handlers.
  bool stopped(bool owner);

 private:
  const std::atomic<int32_t>* flag_;
  const bool signals_;
  std::atomic<bool> stopped_{false};
  int64_t next_ = 0;  // when signals are looked at again, in nanoseconds
  Call* outer_;
  bool outer_owner_;
};

// What a thread knows of the call that it works for.
struct Watch {
  Call* call;
  bool owner;
  int64_t left;  // work until the next look
};
Watch& watch();

// A thread that works for the call of another one, for as long as this lives.
class Joined {
 public:
  explicit Joined(Call* call) { watch() = {call, false, 0}; }
  ~Joined() { watch() = {nullptr, false, 0}; }
};

// A loop calls poll(work) after work that takes as long as `work` products of an entry with a vector register.
class Poll {
 public:
  Poll() : watch_(watch()) {}
  void operator()(int64_t work) const {
    if ((watch_.left -= work) < 0) look();
  }
  // Looks at once, and does not throw.
  bool stopped() const { return watch_.call && watch_.call->stopped(watch_.owner); }
  void look() const;

 private:
  Watch& watch_;
};

}  // namespace xmcjax
