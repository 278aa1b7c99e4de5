#include "core/largest.h"

#include <algorithm>
#include <functional>

namespace xmcjax {

template <class T>
void largest_first(T* values, int64_t rank, int64_t count) {
  std::nth_element(values, values + rank, values + count, std::greater<T>());
}

template void largest_first<float>(float*, int64_t, int64_t);
template void largest_first<double>(double*, int64_t, int64_t);
template void largest_first<int32_t>(int32_t*, int64_t, int64_t);

}  // namespace xmcjax
