// How sums over instances are cut, which the threads do not change.
#pragma once

#include <cstdint>

namespace xmcjax {

constexpr int64_t kSumRows = 1024;  // of a sum, which is put together in the order of the rows

}  // namespace xmcjax
