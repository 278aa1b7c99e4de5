#include "guard.h"

// What a loader asks first: the number that changes with every signature of this library.
#define XMCJAX_ABI 16

XMCJAX_EXPORT int xmcjax_abi() {
  return xmcjax::guarded_value(0, [] { return XMCJAX_ABI; });
}

// The hash of the C++ files it was built from, which CMakeLists.txt computes.
XMCJAX_EXPORT const char* xmcjax_sources() {
  return xmcjax::guarded_value<const char*>(nullptr, [] { return XMCJAX_SOURCES; });
}
