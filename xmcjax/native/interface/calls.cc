// The calls of calls.def as targets of XLA and as functions for ctypes (native/_calls.py): one reader serves both.
#include "interface/calls.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/flush_denormals.h"
#include "interface/guard.h"
#include "interface/reader.h"
#include "xla/ffi/api/ffi.h"

namespace xmcjax {

namespace ffi = xla::ffi;

// PyArrayInterface of NumPy's array interface protocol: what an array says of itself.
struct OfNumPy {
  int two, axes;
  char kind;
  int bytes, flags;
  intptr_t *length, *stride;
  void *data, *fields;
};

#define XMCJAX_CALL(name, Args) \
  template <class real>         \
  void Args<real>::read(Reader& reader) {
#define XMCJAX_SIZES(...) reader.sizes(#__VA_ARGS__, __VA_ARGS__);
#define XMCJAX_CSR(name, rows, columns) reader.csr(name, #name, #rows, #columns);
#define XMCJAX_IN(type, name, ...) reader.in(name, #name, #__VA_ARGS__);
#define XMCJAX_PLACES(name, bound, ...) reader.places(name, #name, #bound, #__VA_ARGS__);
#define XMCJAX_EACH(name, ...) reader.each(name, #name, #__VA_ARGS__);
#define XMCJAX_NUMBER(type, name) reader.number(name, #name);
#define XMCJAX_OPTION(name) reader.option(name, #name);
#define XMCJAX_ID(name, count, list) reader.id(name, #name, count, list);
#define XMCJAX_INOUT(type, name, ...) reader.inout(name, #name, #__VA_ARGS__);
#define XMCJAX_OUT(type, name, ...) reader.out(name, #name, #__VA_ARGS__);
#define XMCJAX_END() \
  reader.end();      \
  }
#include "interface/calls.def"

namespace {

template <class Args>
void read_and_run(const Given& given, bool runs) {
  Args args;
  Reader reader(given);
  args.read(reader);
  if (runs) run(args);
}

template <template <class> class Args>
void call(const Given& given, bool runs) {
  (given.wide() ? read_and_run<Args<double>> : read_and_run<Args<float>>)(given, runs);
}

struct Named {
  const char* name;
  void (*call)(const Given& given, bool runs);
};
constexpr Named kCalls[] = {
#define XMCJAX_CALL(name, Args) {#name, call<Args>},
#include "interface/calls.def"
};

Array array_of(const ffi::AnyBuffer& buffer) {
  const auto length = buffer.dimensions();
  const auto type = [&]() -> Type {
    switch (buffer.element_type()) {
      case ffi::DataType::F32: return kType<float>;
      case ffi::DataType::F64: return kType<double>;
      case ffi::DataType::S8: return kType<int8_t>;
      case ffi::DataType::S32: return kType<int32_t>;
      case ffi::DataType::U32: return kType<uint32_t>;
      default: return 0;
    }
  };
  return {buffer.untyped_data(), type(), int32_t(length.size()), length.begin()};
}

// The bits of OfNumPy::flags.
constexpr int kContiguous = 0x1, kAligned = 0x100, kNotSwapped = 0x200, kWriteable = 0x400;

Array array_of(const char* call, const OfNumPy& array, bool written) {
  static_assert(sizeof(intptr_t) == sizeof(int64_t));
  const Array found{array.data, array.bytes < 256 ? array.kind << 8 | array.bytes : 0, array.axes,
                    reinterpret_cast<const int64_t*>(array.length)};
  const auto refuse = [&](const char* what, const char* got) {
    throw BadArgument(std::string(call) + ": expected " + what + ", got " + got + described(found));
  };
  const char* native = "contiguous arrays of numbers of this machine";
  if (!(array.flags & kNotSwapped)) refuse(native, "swapped bytes of ");
  if (!(array.flags & kContiguous && array.flags & kAligned)) refuse(native, "");
  if (written && !(array.flags & kWriteable)) refuse("arrays that may be changed", "a read-only ");
  return found;
}

ffi::Error expected(const char* what) {
  return ffi::Error(ffi::ErrorCode::kInvalidArgument, std::string("xmcjax: expected ") + what);
}

// A call that XLA makes. Its exceptions do not cross into XLA: they become an error.
ffi::Error handle(const Named& named, ffi::RemainingArgs args, ffi::RemainingRets results,
                  ffi::Dictionary options) noexcept {
  ffi::Error result = ffi::Error::Success();
  const int32_t ended = guarded([&] {
    Call call(Caller::kXla);
    try {
      std::vector<Array> in, out;
      for (size_t i = 0; i < args.size(); ++i) in.push_back(array_of(*args.get<ffi::AnyBuffer>(i)));
      for (size_t i = 0; i < results.size(); ++i) out.push_back(array_of(**results.get<ffi::AnyBuffer>(i)));
      const auto option = [&](const char* wanted) {
        const auto found = options.get<int64_t>(wanted);
        if (!found.has_value()) throw BadArgument(std::string(named.name) + ": expected an option " + wanted);
        return *found;
      };
      named.call({named.name, in.data(), out.data(), int64_t(in.size()), int64_t(out.size()), option}, true);
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

using Implementation = ffi::Error (*)(ffi::RemainingArgs, ffi::RemainingRets, ffi::Dictionary);
ffi::Ffi* handler_of(Implementation implementation) {
  return ffi::Ffi::Bind().RemainingArgs().RemainingRets().Attrs().To(implementation).release();
}

}  // namespace

#define XMCJAX_METHOD(name, Args)
#define XMCJAX_CALL(name, Args)                                                                       \
  XMCJAX_EXPORT XLA_FFI_Error* xmcjax_##name(XLA_FFI_CallFrame* frame) {                              \
    static ffi::Ffi* handler =                                                                        \
        handler_of([](ffi::RemainingArgs args, ffi::RemainingRets results, ffi::Dictionary options) { \
          return handle({#name, call<Args>}, args, results, options);                                 \
        });                                                                                           \
    return handler->Call(frame);                                                                      \
  }
#include "interface/calls.def"

}  // namespace xmcjax

// A call on arrays of the caller, which are changed in place. arrays: the `ins` that are read, then the `outs` that
// are written; where `runs` is 0, they are checked and nothing else. options: in the order of the declaration.
// Returns an Ended of guard.h; for kBadArgument `message`, of `room` bytes, says what is wrong.
XMCJAX_EXPORT int32_t xmcjax_in_place(const char* name, int32_t runs, const xmcjax::OfNumPy* const* arrays,
                                      int64_t ins, int64_t outs, const int64_t* options, char* message,
                                      int64_t room) {
  return xmcjax::guarded_call([&] {
    const auto call = std::find_if(std::begin(xmcjax::kCalls), std::end(xmcjax::kCalls),
                                   [&](const auto& one) { return !std::strcmp(one.name, name); });
    const xmcjax::FlushDenormals flush;
    try {
      if (call == std::end(xmcjax::kCalls))
        throw xmcjax::BadArgument(std::string("there is no call ") + name);
      std::vector<xmcjax::Array> given;
      for (int64_t i = 0; i < ins + outs; ++i) given.push_back(xmcjax::array_of(name, *arrays[i], i >= ins));
      call->call({name, given.data(), given.data() + ins, ins, outs, [&](const char*) { return *options++; }},
                 runs != 0);
    } catch (const xmcjax::BadArgument& error) {
      std::strncpy(message, error.what(), size_t(room - 1));
      throw;
    }
  });
}
