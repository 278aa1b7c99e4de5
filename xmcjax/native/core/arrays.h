// Sparse matrices and arrays that are broadcast, as the kernels take them.
#pragma once

#include <cstdint>

namespace xmcjax {

// A CSR matrix of n rows and d columns: row i holds the entries offset[i] .. offset[i+1]-1.
template <class T>
struct Csr {
  int64_t n, d;
  const T* value;
  const int32_t* column;
  const int64_t* offset;
};

// An array that may be constant along the rows, along the lanes, or both (stride 0).
template <class T>
struct Broadcast {
  const T* data;
  int64_t row_stride, lane_stride;
};

}  // namespace xmcjax
