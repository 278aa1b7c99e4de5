// The largest of some numbers.
#pragma once

#include <cstdint>

namespace xmcjax {

// Reorders the values: element `rank` is then the one that stands there in descending order, and no element
// before it is smaller.
template <class T>
void largest_first(T* values, int64_t rank, int64_t count);

}  // namespace xmcjax
