// A function that is looked up by its name, and the guard that its body goes through: no exception may cross into
// the caller, which knows nothing of C++.
#pragma once

#include <cstdint>
#include <exception>
#include <new>
#include <stdexcept>
#include <utility>

#include "core/interrupt.h"
#include "interface/ids.h"

#define XMCJAX_EXPORT extern "C" __attribute__((visibility("default")))

namespace xmcjax {

// How a call ended, by the numbers of native/_interrupts.py.
enum Ended : int32_t {
  kDone = 0,
  kNoMemory = 1,
  kInterrupted = 2,
  kFailed = 3,
  kUnknownId = 4,
  kBadArgument = 5
};

// An id that no line of its list in ids.def has: the caller has other numbers than this library.
struct UnknownId : std::invalid_argument {
  UnknownId(const char* list, int64_t id);
};

// A call that is given something else than its declaration says; the sentence says what.
struct BadArgument : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// Runs f() and says how it ended.
template <class F>
int32_t guarded(F&& f) noexcept {
  try {
    f();
    return kDone;
  } catch (const Interrupted&) {
    return kInterrupted;
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  } catch (const std::length_error&) {  // more than a container can hold
    return kNoMemory;
  } catch (const UnknownId&) {
    return kUnknownId;
  } catch (const BadArgument&) {
    return kBadArgument;
  } catch (...) {
    return kFailed;
  }
}

// guarded() for a call by Python that may take long: it can be interrupted.
template <class F>
int32_t guarded_call(F&& f) noexcept {
  return guarded([&] {
    Call call(Caller::kPython);
    f();
  });
}

// What f() returns, or `otherwise` where it failed.
template <class T, class F>
T guarded_value(T otherwise, F&& f) noexcept {
  guarded([&] { otherwise = f(); });
  return otherwise;
}

}  // namespace xmcjax
