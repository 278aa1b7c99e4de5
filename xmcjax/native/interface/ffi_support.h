// What the XLA FFI handlers share: reading a CSR matrix from three buffers.
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

// The offsets come as int32 [n+1, 2], the halves of 64-bit numbers: JAX has no int64 by default.
template <class T>
Csr<T> as_csr(const ffi::AnyBuffer& value, const ffi::AnyBuffer& column, const ffi::AnyBuffer& offset,
              int64_t n, int64_t d) {
  return {n, d, value.typed_data<T>(), column.typed_data<int32_t>(),
          reinterpret_cast<const int64_t*>(offset.typed_data<int32_t>())};
}

inline ffi::Error check_csr(const ffi::AnyBuffer& value, const ffi::AnyBuffer& column,
                            const ffi::AnyBuffer& offset) {
  if (column.element_type() != ffi::DataType::S32) return expected("int32 column indices");
  if (offset.element_type() != ffi::DataType::S32 || offset.dimensions().size() != 2 ||
      offset.dimensions()[1] != 2 || offset.dimensions()[0] < 1)
    return expected("row offsets as int32 [n+1, 2]");
  if (value.element_count() != column.element_count()) return expected("as many values as column indices");
  const auto* last = reinterpret_cast<const int64_t*>(offset.typed_data<int32_t>()) + offset.dimensions()[0] - 1;
  if (*last != int64_t(value.element_count())) return expected("row offsets that end at the number of entries");
  return ffi::Error::Success();
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
