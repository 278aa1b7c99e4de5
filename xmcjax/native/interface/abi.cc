#include "interface/guard.h"

// What a loader asks first: the number that changes with every signature of this library.
#define XMCJAX_ABI 32

XMCJAX_EXPORT int xmcjax_abi() {
  return xmcjax::guarded_value(0, [] { return XMCJAX_ABI; });
}

// The hash of the C++ files it was built from, which CMakeLists.txt computes.
XMCJAX_EXPORT const char* xmcjax_sources() {
  return xmcjax::guarded_value<const char*>(nullptr, [] { return XMCJAX_SOURCES; });
}

// The lists of ids.def, as native/_ids.py reads them: "loss squared_hinge", a line each.
XMCJAX_EXPORT const char* xmcjax_ids() {
  return xmcjax::guarded_value<const char*>(nullptr, [] {
    return ""
#define XMCJAX_LOSS(name, Class) "loss " #name "\n"
#define XMCJAX_PENALTY(name, Class) "penalty " #name "\n"
#define XMCJAX_FORMULATION(name, Class) "formulation " #name "\n"
#define XMCJAX_SET(name, Class) "set " #name "\n"
#define XMCJAX_FEATURES(name, Class) "features " #name "\n"
#include "interface/ids.def"
        ;
  });
}

// The calls of calls.def, as native/_calls.py reads them: "IN real V d, lanes", a line per field.
XMCJAX_EXPORT const char* xmcjax_calls() {
  return xmcjax::guarded_value<const char*>(nullptr, [] {
    return ""
#define XMCJAX_CALL(name, Args) "CALL " #name "\n"
#define XMCJAX_METHOD(name, Args) "METHOD " #name "\n"
#define XMCJAX_CSR(name, ...) "CSR real " #name " " #__VA_ARGS__ "\n"
#define XMCJAX_IN(type, name, ...) "IN " #type " " #name " " #__VA_ARGS__ "\n"
#define XMCJAX_PLACES(name, bound, ...) "PLACES int32_t " #name " " #__VA_ARGS__ "\n"
#define XMCJAX_EACH(name, ...) "EACH real " #name " " #__VA_ARGS__ "\n"
#define XMCJAX_NUMBER(type, name) "NUMBER " #type " " #name " \n"
#define XMCJAX_OPTION(name) "OPTION int64_t " #name " \n"
#define XMCJAX_ID(name, count, list) "ID int64_t " #name " \n"
#define XMCJAX_INOUT(type, name, ...) "INOUT " #type " " #name " " #__VA_ARGS__ "\n"
#define XMCJAX_OUT(type, name, ...) "OUT " #type " " #name " " #__VA_ARGS__ "\n"
#include "interface/calls.def"
        ;
  });
}
