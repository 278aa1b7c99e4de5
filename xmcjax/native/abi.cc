#include "export.h"

// What a loader asks first: the number that changes with every signature of this library.
#define XMCJAX_ABI 13

XMCJAX_EXPORT int xmcjax_abi() { return XMCJAX_ABI; }
