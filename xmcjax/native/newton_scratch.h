// The working memory of a Newton step.
#pragma once

#include <cstdint>
#include <vector>

#include "simd.h"

namespace xmcjax::XMCJAX_ISA {

template <class T>
struct Entry {  // an active row of one lane
  int32_t row;
  T slope, curvature;
};

// Buffers that live from call to call, one set a thread.
template <class T>
struct Scratch {
  std::vector<int8_t> signs;
  std::vector<T> w, z, direction;                 // a padded copy of a tile that is not full
  std::vector<T> step_margins;                    // [n, N]
  std::vector<int32_t> rows;                      // rows with an active lane
  std::vector<T> slopes, curvatures, products;    // [rows, N]
  std::vector<Entry<T>> entries[kLanes<T>];       // the same, lane by lane
  std::vector<T> gradient, delta, residual, search, image, diagonal;  // [N, padded d]
  std::vector<T> tile_in, tile_out;               // [d, N]
  static Scratch& local() {
    static thread_local Scratch scratch;
    return scratch;
  }
};

}  // namespace xmcjax::XMCJAX_ISA
