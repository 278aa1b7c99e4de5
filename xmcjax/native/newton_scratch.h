// The working memory of a Newton step.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "aligned.h"
#include "lane_system.h"
#include "near_rows.h"
#include "simd.h"

namespace xmcjax::XMCJAX_ISA {

// What each of two tiles holds from its opening on, while the other is worked on.
template <class T>
struct TileScratch {
  Array<int8_t> signs;
  Array<T> w, z, direction;     // a padded copy of a tile that is not full
  Array<T> step_margins;        // [n, N]
  NearRows<T> near[kLanes<T>];
};

// Buffers that live from call to call.
template <class T>
struct Scratch {
  TileScratch<T> tile[2];
  Array<int32_t> rows;                            // active in a wide lane
  Array<T> slopes, curvatures, products;          // [rows, N]
  std::vector<Entry<T>> entries[kLanes<T>];       // the active rows, lane by lane
  LaneSystem<T> system;
  Array<T> gradient, ones, delta, residual, search, image, diagonal;  // [N, padded d]
  Array<T> tile_in, tile_out;                     // [d, N]
};

// A set of buffers for the time of a call. There are as many sets as calls ran at the same time:
// XLA calls from any of its threads, and a set for each of those would multiply the memory.
template <class T>
class ScratchLoan {
 public:
  ScratchLoan() {
    const std::lock_guard<std::mutex> lock(mutex());
    if (idle().empty()) {
      scratch_ = std::make_unique<Scratch<T>>();
    } else {
      scratch_ = std::move(idle().back());
      idle().pop_back();
    }
  }
  ~ScratchLoan() {
    const std::lock_guard<std::mutex> lock(mutex());
    idle().push_back(std::move(scratch_));
  }
  Scratch<T>& operator*() { return *scratch_; }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::vector<std::unique_ptr<Scratch<T>>>& idle() {
    static std::vector<std::unique_ptr<Scratch<T>>> sets;
    return sets;
  }
  std::unique_ptr<Scratch<T>> scratch_;
};

}  // namespace xmcjax::XMCJAX_ISA
