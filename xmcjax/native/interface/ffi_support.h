// What the XLA FFI handlers share: how their exceptions become errors of XLA.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/isa.h"
#include "core/parallel.h"
#include "interface/guard.h"
#include "xla/ffi/api/ffi.h"

namespace xmcjax {

namespace ffi = xla::ffi;

inline ffi::Error expected(const std::string& what) {
  return ffi::Error(ffi::ErrorCode::kInvalidArgument, "xmcjax: expected " + what);
}

// An implementation of a handler whose exceptions do not cross into XLA: they become an error.
template <auto implementation>
struct Guarded;
template <class... Arguments, ffi::Error (*implementation)(Arguments...)>
struct Guarded<implementation> {
  static ffi::Error call(Arguments... arguments) noexcept {
    ffi::Error result = ffi::Error::Success();
    const int32_t ended = guarded([&] {
      Call call(Caller::kXla);
      try {
        result = implementation(std::move(arguments)...);
      } catch (const BadArgument& error) {
        result = ffi::Error(ffi::ErrorCode::kInvalidArgument, std::string("xmcjax: ") + error.what());
      } catch (const UnknownId& error) {
        result = expected(error.what());
      }
    });
    if (ended == kNoMemory) return ffi::Error(ffi::ErrorCode::kResourceExhausted, "xmcjax: not enough memory");
    if (ended == kInterrupted) return ffi::Error(ffi::ErrorCode::kCancelled, "xmcjax: interrupted");
    if (ended == kFailed) return ffi::Error(ffi::ErrorCode::kInternal, "xmcjax: a native kernel failed");
    return result;
  }
};

#define XMCJAX_HANDLER(name, implementation, binding)                                      \
  XMCJAX_EXPORT XLA_FFI_Error* name(XLA_FFI_CallFrame* frame) {                            \
    static auto* handler = (binding).To(xmcjax::Guarded<&implementation>::call).release(); \
    return handler->Call(frame);                                                           \
  }

}  // namespace xmcjax
