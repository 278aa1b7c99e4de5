// Dual ascent of a multi-class SVM as functions of a handle (native/_multiclass.py).
#include <stdexcept>

#include "dual/multiclass.h"
#include "interface/guard.h"

namespace {

using xmcjax::Assessment;
using xmcjax::DualPoint;
using xmcjax::guarded_call;
using xmcjax::MatchAscent;
using xmcjax::MulticlassAscent;
using xmcjax::MulticlassProximal;
using xmcjax::SharedAscent;

// Ascent, Proximal and CentredAscent of native/_multiclass.py
enum Method : int32_t { kAscent = 0, kProximal = 1, kCentred = 2 };

template <class T>
DualPoint* make(int32_t method, const int64_t* size, double C, const void* const* array) {
  xmcjax::MulticlassArgs<T> args;
  args.X = {size[0], size[1], static_cast<const T*>(array[0]), static_cast<const int32_t*>(array[1]),
            static_cast<const int64_t*>(array[2])};
  args.y = static_cast<const int32_t*>(array[3]);
  args.m = size[2];
  args.classes = {size[6], size[7]};
  args.formulation = xmcjax::known(size[3], xmcjax::kFormulations, "formulations");
  args.C = C;
  args.seed = uint64_t(size[4]);
  args.threads = size[5];
  args.by_instance = method == kCentred;
  const auto& kernels = xmcjax::kernels<T>();
  if (method == kProximal) return kernels.multiclass_proximal(args);
  return kernels.multiclass_ascent(args);
}

// The handle as what has the function that is asked for.
template <class Kind>
Kind& as(void* handle) {
  if (auto* kind = dynamic_cast<Kind*>(static_cast<DualPoint*>(handle))) return *kind;
  throw std::logic_error("expected a handle of another method, for this formulation does not have this function");
}

void put(const Assessment& found, double* out) {
  out[0] = found.primal, out[1] = found.dual, out[2] = found.violation;
}

}  // namespace

// All of these return how they ended, of guard.h.

// The handle of a method. size: n, d, m, formulation, seed, threads, first class of this process, last;
// array: value, column, offset, y, which must outlive it.
XMCJAX_EXPORT int32_t xmcjax_multiclass_new(int32_t method, int32_t float64, const int64_t* size, double C,
                                            const void* const* array, void** handle) {
  return guarded_call([&] {
    *handle = float64 ? make<double>(method, size, C, array) : make<float>(method, size, C, array);
  });
}
XMCJAX_EXPORT int32_t xmcjax_multiclass_free(void* handle) {
  return guarded_call([&] { delete static_cast<DualPoint*>(handle); });
}

XMCJAX_EXPORT int32_t xmcjax_multiclass_alpha_count(void* handle, int64_t* count) {
  return guarded_call([&] { *count = static_cast<DualPoint*>(handle)->alpha_count(); });
}
XMCJAX_EXPORT int32_t xmcjax_multiclass_get_alpha(void* handle, int64_t* offset, int32_t* index, double* value) {
  return guarded_call([&] { static_cast<DualPoint*>(handle)->get_alpha(offset, index, value); });
}
XMCJAX_EXPORT int32_t xmcjax_multiclass_set_alpha(void* handle, const int64_t* offset, const int32_t* index,
                                                  const double* value) {
  return guarded_call([&] { static_cast<DualPoint*>(handle)->set_alpha(offset, index, value); });
}
XMCJAX_EXPORT int32_t xmcjax_multiclass_weights(void* handle, void* W) {
  return guarded_call([&] { static_cast<DualPoint*>(handle)->get_weights(W); });
}

// out: primal, dual, violation
XMCJAX_EXPORT int32_t xmcjax_multiclass_assess(void* handle, double tolerance, double* out) {
  return guarded_call([&] { put(as<MulticlassAscent>(handle).assess(tolerance), out); });
}
XMCJAX_EXPORT int32_t xmcjax_multiclass_sweep(void* handle, double tolerance, int32_t shrink, double* violation,
                                              double* visited) {
  return guarded_call([&] {
    const xmcjax::Sweep done = as<MulticlassAscent>(handle).sweep(tolerance, shrink != 0);
    *violation = done.violation, *visited = done.visited;
  });
}

// Several processes. A match is five numbers: the two bundles of classes, first and last of each, and whether each
// plays against itself as well.
static xmcjax::Match match_of(const int64_t* m) { return {{m[0], m[1]}, {m[2], m[3]}, m[4] != 0}; }
XMCJAX_EXPORT int32_t xmcjax_multiclass_examine(void* handle, const int64_t* match, double tolerance, double* out) {
  return guarded_call([&] { put(as<MatchAscent>(handle).examine(match_of(match), tolerance), out); });
}
XMCJAX_EXPORT int32_t xmcjax_multiclass_play(void* handle, const int64_t* match, double tolerance, double* violation) {
  return guarded_call([&] { *violation = as<MatchAscent>(handle).play(match_of(match), tolerance); });
}
XMCJAX_EXPORT int32_t xmcjax_multiclass_settle(void* handle, int32_t shrink, double* share) {
  return guarded_call([&] { *share = as<MatchAscent>(handle).settle(shrink != 0); });
}
XMCJAX_EXPORT int32_t xmcjax_multiclass_begin_epoch(void* handle, double violation) {
  return guarded_call([&] { as<MatchAscent>(handle).begin_epoch(violation); });
}
// row: [d]; of which *count are meant
XMCJAX_EXPORT int32_t xmcjax_multiclass_nonzero_rows(void* handle, int64_t first, int64_t last, int32_t* row,
                                                     int64_t* count) {
  return guarded_call([&] { *count = as<MatchAscent>(handle).nonzero_rows({first, last}, row); });
}
XMCJAX_EXPORT int32_t xmcjax_multiclass_get_rows(void* handle, int64_t first, int64_t last, const int32_t* row,
                                                 int64_t rows, void* value) {
  return guarded_call([&] { as<MatchAscent>(handle).get_rows({first, last}, row, rows, value); });
}
XMCJAX_EXPORT int32_t xmcjax_multiclass_set_rows(void* handle, int64_t first, int64_t last, const int32_t* row,
                                                 int64_t rows, const void* value) {
  return guarded_call([&] { as<MatchAscent>(handle).set_rows({first, last}, row, rows, value); });
}
XMCJAX_EXPORT int32_t xmcjax_multiclass_parts(void* handle, int64_t* count) {
  return guarded_call([&] { *count = as<SharedAscent>(handle).parts(); });
}
XMCJAX_EXPORT int32_t xmcjax_multiclass_part(void* handle, int64_t number, double tolerance, int32_t shrink,
                                             double* violation, double* visited) {
  return guarded_call([&] {
    const xmcjax::Sweep done = as<SharedAscent>(handle).part(number, tolerance, shrink != 0);
    *violation = done.violation, *visited = done.visited;
  });
}
XMCJAX_EXPORT int32_t xmcjax_multiclass_mean_change(void* handle, void* change) {
  return guarded_call([&] { as<SharedAscent>(handle).get_mean_change(change); });
}
XMCJAX_EXPORT int32_t xmcjax_multiclass_move_mean(void* handle, const void* change) {
  return guarded_call([&] { as<SharedAscent>(handle).move_mean(change); });
}

// count: Newton steps made so far, steps in a row that brought nothing
XMCJAX_EXPORT int32_t xmcjax_multiclass_proximal_step(void* handle, double tolerance, double* out, int64_t* count) {
  return guarded_call([&] {
    auto& proximal = as<MulticlassProximal>(handle);
    put(proximal.step(tolerance), out);
    count[0] = proximal.newton_steps, count[1] = proximal.failures;
  });
}
