// The calls on a handle of multi-class dual ascent (native/_multiclass.py).
#include <string>

#include "dual/multiclass.h"
#include "interface/guard.h"

namespace xmcjax {
namespace {

enum Method : int64_t { kAscent = 0, kProximal = 1, kCentred = 2 };

DualPoint* point_of(int64_t handle) { return reinterpret_cast<DualPoint*>(handle); }

// The object of a handle as the class that has the method.
template <class Kind, class Args>
Kind& as(const Args& args) {
  if (auto* kind = dynamic_cast<Kind*>(point_of(args.handle))) return *kind;
  throw BadArgument("expected a handle of another method, for this formulation does not have this one");
}

void put(const Assessment& from, double* found) {
  found[0] = from.primal, found[1] = from.dual, found[2] = from.violation;
}
void put(const Sweep& from, double* done) { done[0] = from.violation, done[1] = from.visited; }

Match match_of(const int64_t* m) { return {{m[0], m[1]}, {m[2], m[3]}, m[4] != 0}; }

void expect(bool right, const char* what) {
  if (!right) throw BadArgument(std::string("expected ") + what);
}

}  // namespace

template <class T>
void run(MulticlassNewArgs<T>& args) {
  const Csr<T> X{args.X.n, args.d, args.X.value, args.X.column, args.X.offset};  // no array tells the columns
  const MulticlassArgs<T> given{X, args.y, args.classes, {args.first, args.last}, args.formulation, args.C,
                                uint64_t(args.seed), args.threads, args.method == kCentred};
  DualPoint* made;
  if (args.method == kProximal) {
    made = kernels<T>().multiclass_proximal(given);
  } else {
    made = kernels<T>().multiclass_ascent(given);
  }
  *args.handle = reinterpret_cast<int64_t>(made);
}

template <class T>
void run(AlphaCountArgs<T>& args) {
  *args.count = point_of(args.handle)->alpha_count();
}
template <class T>
void run(GetAlphaArgs<T>& args) {
  const DualPoint& point = *point_of(args.handle);
  expect(args.ends == point.rows() + 1 && args.entries == point.alpha_count(), "room for all dual variables");
  point.get_alpha(args.offset, args.index, args.value);
}
template <class T>
void run(SetAlphaArgs<T>& args) {
  DualPoint& point = *point_of(args.handle);
  expect(args.ends == point.rows() + 1 && args.offset[point.rows()] == args.entries, "dual variables of all rows");
  point.set_alpha(args.offset, args.index, args.value);
}
template <class T>
void run(WeightsArgs<T>& args) {
  point_of(args.handle)->get_weights(args.W);
}

template <class T>
void run(AssessArgs<T>& args) {
  put(as<MulticlassAscent>(args).assess(args.tolerance), args.found);
}
template <class T>
void run(SweepArgs<T>& args) {
  put(as<MulticlassAscent>(args).sweep(args.tolerance, args.shrink != 0), args.done);
}
template <class T>
void run(ProximalStepArgs<T>& args) {
  auto& proximal = as<MulticlassProximal>(args);
  put(proximal.step(args.tolerance), args.found);
  args.counts[0] = proximal.newton_steps, args.counts[1] = proximal.failures;
}

template <class T>
void run(BeginEpochArgs<T>& args) {
  as<MatchAscent>(args).begin_epoch(args.violation);
}
template <class T>
void run(ExamineArgs<T>& args) {
  put(as<MatchAscent>(args).examine(match_of(args.match), args.tolerance), args.found);
}
template <class T>
void run(PlayArgs<T>& args) {
  *args.violation = as<MatchAscent>(args).play(match_of(args.match), args.tolerance);
}
template <class T>
void run(SettleArgs<T>& args) {
  *args.share = as<MatchAscent>(args).settle(args.shrink != 0);
}
template <class T>
void run(NonzeroRowsArgs<T>& args) {
  *args.count = as<MatchAscent>(args).nonzero_rows({args.first, args.last}, args.row);
}
template <class T>
void run(GetRowsArgs<T>& args) {
  const Classes classes{args.first, args.first + args.columns};
  as<MatchAscent>(args).get_rows(classes, args.row, args.rows, args.value);
}
template <class T>
void run(SetRowsArgs<T>& args) {
  const Classes classes{args.first, args.first + args.columns};
  as<MatchAscent>(args).set_rows(classes, args.row, args.rows, args.value);
}

template <class T>
void run(PartsArgs<T>& args) {
  *args.count = as<SharedAscent>(args).parts();
}
template <class T>
void run(PartArgs<T>& args) {
  put(as<SharedAscent>(args).part(args.number, args.tolerance, args.shrink != 0), args.done);
}
template <class T>
void run(MeanChangeArgs<T>& args) {
  as<SharedAscent>(args).get_mean_change(args.change);
}
template <class T>
void run(MoveMeanArgs<T>& args) {
  as<SharedAscent>(args).move_mean(args.change);
}

#define XMCJAX_CALL(name, Args)
#define XMCJAX_METHOD(name, Args) XMCJAX_RUNS(Args)
#include "interface/calls.def"

}  // namespace xmcjax

XMCJAX_EXPORT int32_t xmcjax_multiclass_free(int64_t handle) {
  return xmcjax::guarded_call([&] { delete xmcjax::point_of(handle); });
}
