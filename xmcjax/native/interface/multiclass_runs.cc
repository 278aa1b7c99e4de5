// The calls on a handle of multi-class dual ascent (native/_dual_point.py).
#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/interrupt.h"
#include "dual/multiclass.h"
#include "interface/runs.h"

namespace xmcjax {
namespace {

constexpr int64_t kRowTile = 64;

void expect(bool right, const char* what) {
  if (!right) throw BadArgument(std::string("expected ") + what);
}

// What a handle stands for.
struct Owned {
  std::shared_ptr<DualPoint> point;
  int64_t d, m;     // features and classes
  Classes classes;  // those whose weights it has
  bool wide;        // whether X is of double
};

// Handles are numbers that are never given twice: a handle that was let go of stays unknown for ever.
struct Handles {
  std::mutex mutex;
  std::unordered_map<int64_t, Owned> owned;
  int64_t last = 0;
};
Handles& handles() {
  static Handles& all = *new Handles;  // objects of Python may end after the objects of C++
  return all;
}

// What belongs to a handle, which lives until the call has ended.
Owned owned_by(int64_t handle) {
  Handles& all = handles();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.owned.find(handle);
  expect(found != all.owned.end(), "a handle of multiclass_new that nobody has let go of");
  return found->second;
}

// The object of a handle as the class that has the method.
template <class Kind>
struct As {
  Owned owned;
  Kind* kind;
  Kind* operator->() const { return kind; }
};
template <class Kind, class Args>
As<Kind> as(const Args& args) {
  const Owned owned = owned_by(args.handle);
  auto* kind = dynamic_cast<Kind*>(owned.point.get());
  expect(kind, "a handle of another method, for this formulation does not have this one");
  return {owned, kind};
}

bool aligned(const void* memory) { return reinterpret_cast<uintptr_t>(memory) % 64 == 0; }

// Checks that weights [rows, columns] of T have the type of X and all features and classes of a handle.
template <class T>
void check_weights(const Owned& owned, int64_t rows, int64_t columns) {
  expect(owned.wide == (sizeof(T) == sizeof(double)), "weights in the type of X");
  expect(rows == owned.d && columns == owned.classes.last - owned.classes.first,
         "weights of all features and classes");
}
void check_places(const int32_t* place, int64_t count, int64_t end, const char* what) {
  expect(std::all_of(place, place + count, [end](int32_t p) { return p >= 0 && p < end; }), what);
}

void put(const Assessment& from, double* found) {
  found[0] = from.primal, found[1] = from.dual, found[2] = from.violation;
}
void put(const Sweep& from, double* done) { done[0] = from.violation, done[1] = from.visited; }

bool is_separate(int32_t formulation) {
  return formulation == kOneVsRest || formulation == kOneVsRestSquared;
}

bool all_above_0(const double* weight, int64_t count) {
  return std::all_of(weight, weight + count, [](double w) { return w > 0 && std::isfinite(w); });
}

// `count` lists of numbers, of which none is twice in a list; they have `places` entries together.
void check_lists(const int64_t* offset, int64_t count, const int32_t* number, int64_t places,
                 const char* ends, const char* ascending) {
  const int64_t* end = offset + count;
  expect(offset[0] == 0 && *end == places && std::is_sorted(offset, end + 1), ends);
  for (; offset < end; ++offset)
    expect(std::adjacent_find(number + offset[0], number + offset[1], std::greater_equal<int32_t>()) ==
               number + offset[1],
           ascending);
}

// Whether the marked ones of `count` classes are whole panels on any processor. The last panel may be a part.
template <class T>
bool in_panels(const int8_t* marked, int64_t count) {
  constexpr int64_t kWhole = 64 / sizeof(T);
  for (int64_t c = 0; c < count; ++c)
    if ((marked[c] != 0) != (marked[c / kWhole * kWhole] != 0)) return false;
  return true;
}

// Keeps an object; returns the number that stands for it.
template <class T, class Args>
int64_t kept(std::shared_ptr<DualPoint> made, const Args& args) {
  Handles& all = handles();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.owned[all.last + 1] = {
      std::move(made), args.d, args.classes, {args.first, args.last}, sizeof(T) == sizeof(double)};
  return ++all.last;
}

}  // namespace

template <class T>
void run(MulticlassNewArgs<T>& args) {
  expect(args.method >= kAscent && args.method <= kSplitting, "a method from 0 to 3");
  expect(args.method == kProximal || !is_separate(args.formulation), "a method of the formulation");
  expect(args.method != kSplitting || args.formulation == kLeeLinWahba, "Lee-Lin-Wahba");
  expect(0 <= args.first && args.first < args.last && args.last <= args.classes,
         "classes below their number");
  const bool by_rows = args.formulation == kWestonWatkins || args.formulation == kCrammerSinger;
  expect(!args.listed || (by_rows && args.method == kAscent && args.listed == args.classes),
         "one place but for Weston-Watkins and Crammer-Singer, or whether it has each class");
  expect(in_panels<T>(args.moved, args.listed), "whole panels of classes whose weights a place moves");
  const bool shares = args.room != 0;
  expect(!shares || (by_rows && args.method == kAscent && args.room == shared_room<T>(args.d, args.classes) &&
                     aligned(args.shared)),
         "room for the weights of Weston-Watkins or Crammer-Singer, in whole lines of the cache");
  const bool weighs = (args.formulation == kLeeLinWahba && args.method == kCentred) ||
                      (args.formulation == kOneVsRest && args.method == kProximal);
  expect(
      !args.weighted || (weighs && args.weighted == args.X.n && all_above_0(args.cost, args.weighted)),
      "one C but for ascent over instances of Lee-Lin-Wahba and Newton's method of one against the rest, or "
      "finite ones above 0 of all rows");
  args.X.d = args.d;  // no array tells the columns
  if (!args.listed) args.rows = args.moved = nullptr;
  if (!shares) args.shared = nullptr;
  if (!args.weighted) args.cost = nullptr;
  std::shared_ptr<DualPoint> made;
  if (args.method == kProximal) {
    made.reset(kernels<T>().multiclass_proximal(args));
  } else if (args.method == kSplitting) {
    made.reset(kernels<T>().multiclass_splitting(args));
  } else {
    made.reset(kernels<T>().multiclass_ascent(args));
  }
  *args.handle = kept<T>(std::move(made), args);
}

template <class T>
void run(SeparateNewArgs<T>& args) {
  expect(is_separate(args.formulation), "one against the rest");
  expect(0 <= args.first && args.first < args.last && args.last <= args.classes,
         "classes below their number");
  expect(args.labels == args.last - args.first && args.ends == args.labels + 1, "the rows of each label");
  check_lists(args.offset, args.labels, args.row, args.places, "offsets that ascend to all rows",
              "rows that ascend in a label");
  expect(all_above_0(args.cost, args.X.n) && all_above_0(args.positive, args.labels) &&
             all_above_0(args.negative, args.labels),
         "weights that are finite and above 0");
  args.X.d = args.d;  // no array tells the columns
  *args.handle = kept<T>(std::shared_ptr<DualPoint>(kernels<T>().multiclass_separate(args)), args);
}

template <class T>
void run(RankingNewArgs<T>& args) {
  expect(args.first == 0 && args.last == args.classes && args.classes > 0, "all labels");
  expect(args.ends == args.X.n + 1, "the labels of each row");
  check_lists(args.offset, args.X.n, args.label, args.places, "offsets that ascend to all labels",
              "labels that ascend in a row");
  expect(std::all_of(args.cost, args.cost + args.X.n, [](double c) { return c >= 0 && std::isfinite(c); }),
         "weights that are finite and at least 0");
  args.X.d = args.d;  // no array tells the columns
  *args.handle = kept<T>(std::shared_ptr<DualPoint>(kernels<T>().multiclass_ranking(args)), args);
}

// This call has no handle: all that it works on are arrays.
template <class T>
void run(DenseSplittingArgs<T>& args) {
  expect(args.map >= kMapBox && args.map <= kMapTopK, "a map from 0 to 4");
  const bool single = args.map == kMapSigned || args.map == kMapSignedRay;  // a class may stand alone
  expect(args.k >= 1 && (single || args.k < args.classes), "k from 1 to one less than the classes");
  expect(args.lanes > 0 && args.lanes % kRowTile == 0, "rows side by side in a multiple of 64");
  const int64_t room = args.blocks * args.lanes;
  expect(args.instances > room - args.lanes && args.instances <= room,
         "blocks that the instances fill, but for the last");
  expect(args.radius > 0 && args.rho > 0 && args.count >= 0,
         "a radius and a rho above 0, and a count from 0");
  kernels<T>().dense_splitting(args);
}

template <class T>
void run(AlphaCountArgs<T>& args) {
  *args.count = owned_by(args.handle).point->alpha_count();
}
template <class T>
void run(GetAlphaArgs<T>& args) {
  const Owned owned = owned_by(args.handle);
  const DualPoint& point = *owned.point;
  expect(args.ends == point.rows() + 1 && args.entries == point.alpha_count(), "room for all dual variables");
  point.get_alpha(args.offset, args.index, args.value);
}
template <class T>
void run(SetAlphaArgs<T>& args) {
  const Owned owned = owned_by(args.handle);
  const int64_t* ends = args.offset + args.ends;
  expect(args.ends == owned.point->rows() + 1 && args.offset[0] == 0 && ends[-1] == args.entries &&
             std::is_sorted(args.offset, ends),
         "dual variables of all rows");
  const int64_t m = owned.m;
  expect(std::all_of(args.index, args.index + args.entries, [m](int32_t c) { return c >= 0 && c < m; }),
         "dual variables of classes below their number");
  owned.point->set_alpha(args.offset, args.index, args.value);
}
template <class T>
void run(WeightsArgs<T>& args) {
  const Owned owned = owned_by(args.handle);
  check_weights<T>(owned, args.d, args.columns);
  owned.point->get_weights(args.W);
}

template <class T>
void run(AssessArgs<T>& args) {
  put(as<MulticlassAscent>(args)->assess(args.tolerance), args.found);
}
template <class T>
void run(SweepArgs<T>& args) {
  put(as<MulticlassAscent>(args)->sweep(args.tolerance, args.shrink != 0), args.done);
}
template <class T>
void run(AdvanceArgs<T>& args) {
  const Advanced to = as<MulticlassAdvancing>(args)->advance(args.tolerance, args.passes, args.shrink != 0);
  put(to.at, args.found);
  args.found[3] = to.passes, args.found[4] = to.left_out, args.found[5] = double(to.running);
}
template <class T>
void run(EndedArgs<T>& args) {
  const auto separate = as<MulticlassSeparate>(args);
  expect(args.labels == separate->labels(), "room for all labels");
  separate->ended(args.primal, args.gap, args.passes);
}
template <class T>
void run(ProximalStepArgs<T>& args) {
  const auto proximal = as<MulticlassProximal>(args);
  expect(args.most > 0, "a Newton step at least");
  put(proximal->step(args.tolerance, args.most), args.found);
  args.counts[0] = proximal->newton_steps, args.counts[1] = proximal->failures;
}

template <class T>
void run(EliminateArgs<T>& args) {
  const auto splitting = as<MulticlassSplitting>(args);
  *args.dense = splitting->eliminate(args.most);
  *args.entries = splitting->factor_entries();
}
template <class T>
void run(ByRowsArgs<T>& args) {
  as<MulticlassSplitting>(args)->by_rows();
}
template <class T>
void run(FactorArgs<T>& args) {
  const auto splitting = as<MulticlassSplitting>(args);
  expect(splitting->factors() && args.size == splitting->size(), "the dense part of a factor");
  splitting->factor(args.rho, args.dense);
}
template <class T>
void run(BeginArgs<T>& args) {
  const Begun begun = as<MulticlassSplitting>(args)->begin();
  args.found[0] = begun.variables, args.found[1] = begun.scores;
}
// Checks the dense system, which has a column for each class.
template <class T>
void check_system(const As<MulticlassSplitting>& splitting, int64_t size, int64_t columns) {
  expect(splitting.owned.wide == (sizeof(T) == sizeof(double)), "a system in the type of X");
  expect(size == splitting->size() && columns == splitting.owned.m,
         "the size of the dense system, and all classes");
}
template <class T>
void run(LookArgs<T>& args) {
  const auto splitting = as<MulticlassSplitting>(args);
  check_system<T>(splitting, args.size, args.columns);
  const Looked at = splitting->look(args.rho, args.relaxed, args.keep != 0, args.right);
  const double found[] = {at.loss, at.gain, at.primal, at.dual, at.moved};
  std::copy(found, found + 5, args.found);
}
template <class T>
void run(MoveArgs<T>& args) {
  const auto splitting = as<MulticlassSplitting>(args);
  check_system<T>(splitting, args.size, args.columns);
  const Moved moved = splitting->move(args.rho, args.relaxed, args.solution);
  args.found[0] = moved.step, args.found[1] = moved.curved;
}
template <class T>
void run(KeepArgs<T>& args) {
  const auto splitting = as<MulticlassSplitting>(args);
  if (args.which) splitting->keep_alpha();
  else splitting->keep_weights();
}

template <class T>
void follow(const As<RowAscent>& point, const int32_t* row, const int32_t* label, const T* change,
            int64_t count) {
  check_places(row, count, point->rows(), "rows below their number");
  check_places(label, count, point.owned.m, "classes below their number");
  point->follow_moves(row, label, change, count);
}

template <class T>
void run(RowPartArgs<T>& args) {
  expect(args.number >= 0 && args.number < args.parts, "the number of a part");
  expect(args.caution >= 1 && std::isfinite(args.caution), "a caution of 1 at least");
  *args.violation = as<RowAscent>(args)->part(args.number, args.parts, args.tolerance, args.caution);
}
template <class T>
void run(SettleArgs<T>& args) {
  *args.share = as<RowAscent>(args)->settle(args.shrink != 0);
}
template <class T>
void run(CountMovesArgs<T>& args) {
  *args.count = as<RowAscent>(args)->moves();
}
template <class T>
void run(GetMovesArgs<T>& args) {
  const auto point = as<RowAscent>(args);
  expect(point.owned.wide == (sizeof(T) == sizeof(double)), "changes in the type of X");
  expect(args.moves == point->moves(), "room for the changes of the last part");
  point->get_moves(0, args.moves, args.row, args.label, args.change);
}
template <class T>
void run(FollowMovesArgs<T>& args) {
  const auto point = as<RowAscent>(args);
  expect(point.owned.wide == (sizeof(T) == sizeof(double)), "changes in the type of X");
  follow<T>(point, args.row, args.label, args.change, args.moves);
}

// Comes to a meeting, or goes on waiting for it; whether all have come.
bool met(Gate& gate, int64_t members, int64_t patience, int64_t* state) {
  if (!state[1]) state[1] = 1, gate.arrive(members);
  const Poll poll;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience);
  const bool all = gate.wait(uint64_t(state[0]), [&] {
    poll(Gate::kYield);
    return std::chrono::steady_clock::now() > end;
  });
  if (all) ++state[0], state[1] = 0;
  return all;
}
Gate& gate_of(int64_t* memory, int64_t members, const int64_t* state) {
  expect(members > 0 && aligned(memory) && state[0] >= 0,
         "members, a gate in whole lines of the cache, and meetings from 0");
  return *reinterpret_cast<Gate*>(memory);
}

template <class T>
void run(RowSweepArgs<T>& args) {
  enum Phase : int64_t { kWork, kTell, kTold, kMoved };
  const auto point = as<RowAscent>(args);
  Gate& gate = gate_of(args.gate, args.members, args.state);
  auto& [number, phase, sent, more] = *reinterpret_cast<int64_t (*)[4]>(args.stage);
  expect(point.owned.wide == (sizeof(T) == sizeof(double)), "changes in the type of X");
  expect(args.own >= 0 && args.own < args.members && args.room > 0, "a place among the members, and room");
  expect(number >= 0 && number <= args.parts && phase >= kWork && phase <= kMoved && sent >= 0, "a stage");
  expect(args.caution >= 1 && std::isfinite(args.caution), "a caution of 1 at least");
  *args.held = 0;
  while (number < args.parts) {
    if (phase == kWork) {
      const double violation = point->part(number, args.parts, args.tolerance, args.caution);
      *args.violation = std::max(*args.violation, violation);
      sent = 0, phase = kTell;
    }
    if (phase == kTell) {
      const int64_t left = std::max<int64_t>(point->moves() - sent, 0), count = std::min(left, args.room);
      const int64_t at = args.own * args.room;
      if (count) point->get_moves(sent, count, args.row + at, args.label + at, args.change + at);
      args.counts[2 * args.own] = count, args.counts[2 * args.own + 1] = count < left;
      sent += count, phase = kTold;
    }
    if (phase == kTold) {
      if (!met(gate, args.members, args.patience, args.state)) return;
      more = 0;
      for (int64_t k = 0; k < args.members; ++k) {
        const int64_t count = args.counts[2 * k], at = k * args.room;
        expect(count >= 0 && count <= args.room, "as many moves as there is room for");
        follow<T>(point, args.row + at, args.label + at, args.change + at, count);
        more |= args.counts[2 * k + 1] != 0;
      }
      phase = kMoved;
    }
    if (!met(gate, args.members, args.patience, args.state)) return;
    phase = more ? kTell : kWork;
    if (!more) ++number;
  }
  number = 0, *args.held = 1;
}
template <class T>
void run(MeetArgs<T>& args) {
  *args.held = met(gate_of(args.gate, args.members, args.state), args.members, args.patience, args.state);
}

template <class T>
void run(PartsArgs<T>& args) {
  *args.count = as<SharedAscent>(args)->parts();
}
template <class T>
void run(PartArgs<T>& args) {
  const auto point = as<SharedAscent>(args);
  expect(args.number >= 0 && args.number < point->parts(), "the number of a part");
  put(point->part(args.number, args.tolerance, args.shrink != 0), args.done);
}
template <class T>
void run(MeanChangeArgs<T>& args) {
  const auto point = as<SharedAscent>(args);
  expect(args.d == point.owned.d && point.owned.wide == (sizeof(T) == sizeof(double)),
         "the mean of all features");
  point->get_mean_change(args.change);
}
template <class T>
void run(MoveMeanArgs<T>& args) {
  const auto point = as<SharedAscent>(args);
  expect(args.d == point.owned.d && point.owned.wide == (sizeof(T) == sizeof(double)),
         "the mean of all features");
  point->move_mean(args.change);
}

#define XMCJAX_CALL(name, Args)
#define XMCJAX_METHOD(name, Args) XMCJAX_RUNS(Args)
#include "interface/calls.def"

}  // namespace xmcjax

XMCJAX_EXPORT int32_t xmcjax_multiclass_free(int64_t handle) {
  return xmcjax::guarded_call([&] {
    xmcjax::Handles& all = xmcjax::handles();
    xmcjax::Owned let_go;  // is destroyed after the lock
    const std::lock_guard<std::mutex> lock(all.mutex);
    const auto found = all.owned.find(handle);
    if (found == all.owned.end()) return;
    let_go = std::move(found->second);
    all.owned.erase(found);
  });
}
