// The working memory of a Newton step.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "core/aligned.h"
#include "core/simd.h"
#include "newton/all_rows.h"
#include "newton/broad_system.h"
#include "newton/lane_system.h"
#include "newton/near_rows.h"

namespace xmcjax::XMCJAX_ISA {

// What each of two tiles holds from its opening on, while the other is worked on.
template <class T>
struct TileScratch {
  Array<int8_t> signs;
  Array<T> w, z, direction;     // a padded copy of a tile that is not full
  Array<T> step_margins;        // [n, N]
  NearRows<T> near[kLanes<T>];
  ActiveRows<T> active;         // of the wide lanes
  Array<T> gradient;            // [N, padded d], and the next directions
};

// Buffers that live from call to call.
template <class T>
struct Scratch {
  TileScratch<T> tile[2];
  std::vector<Entry<T>> entries[kLanes<T>];  // the active rows, lane by lane
  LaneSystem<T> system;
  LoneLane<T> lone;
  Array<T> before;                           // [n, N], losses that a search over all rows compares with
  Array<T> slopes;                           // [n, N], those of TileScratch::active
  Array<T> sums;                             // [d, N]
  BroadSystem<T> broad;
  std::vector<typename BroadSystem<T>::Lane> broad_lanes;
};

// A set of buffers for the time of a call. There are as many sets as calls ran at the same time:
// XLA calls from any of its threads, and a set for each of those would multiply the memory. A call that ends by an
// exception leaves its set in any state: that one is not kept.
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
    if (std::uncaught_exceptions() > exceptions_) return;
    try {
      const std::lock_guard<std::mutex> lock(mutex());
      idle().push_back(std::move(scratch_));
    } catch (const std::bad_alloc&) {  // a set for which there is no place is not kept either
    }
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
  const int exceptions_ = std::uncaught_exceptions();
  std::unique_ptr<Scratch<T>> scratch_;
};

}  // namespace xmcjax::XMCJAX_ISA
