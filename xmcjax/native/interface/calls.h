// The arguments of the native calls, a struct of each call of calls.def, and the function that makes the call.
#pragma once

#include <cstdint>

#include "core/arrays.h"

namespace xmcjax {

class Reader;

#define XMCJAX_CALL(name, Args) \
  template <class real>         \
  struct Args {                 \
    void read(Reader& reader);
#define XMCJAX_SIZES(...) int64_t __VA_ARGS__;
#define XMCJAX_CSR(name, rows, columns) Csr<real> name;
#define XMCJAX_IN(type, name, ...) const type* name;
#define XMCJAX_PLACES(name, bound, ...) const int32_t* name;
#define XMCJAX_EACH(name, ...) Broadcast<real> name;
#define XMCJAX_NUMBER(type, name) type name;
#define XMCJAX_OPTION(name) int64_t name;
#define XMCJAX_ID(name, count, list) int32_t name;
#define XMCJAX_INOUT(type, name, ...) type* name;
#define XMCJAX_OUT(type, name, ...) type* name;
#define XMCJAX_END() \
  }                  \
  ;
#include "interface/calls.def"

#define XMCJAX_CALL(name, Args) \
  template <class T>            \
  void run(Args<T>& args);
#include "interface/calls.def"

// What a file that defines run() of a call ends with.
#define XMCJAX_RUNS(Args)          \
  template void run(Args<float>&); \
  template void run(Args<double>&);

}  // namespace xmcjax
