// The largest of some numbers.
#pragma once

#include <cstdint>

namespace xmcjax {

// Puts element `rank` where it is in descending order, and none that is smaller before it.
template <class T>
void largest_first(T* values, int64_t rank, int64_t count);

}  // namespace xmcjax
