// XLA FFI handlers of dual ascent over instances (solvers/instance_dual.py): epochs of visits, and the
// objectives as they are.
#include <cstring>
#include <initializer_list>

#include "interface/ffi_support.h"

namespace xmcjax {
namespace {

// The order of the arguments, as solvers/instance_dual.py passes them: the problem, the numbers of the
// method, then the state, which comes back as the results in the same order. `matrix` is X, the matrix of
// inner products or the values of a CSR matrix; column and offset are empty but for the last.
enum Argument { kMatrix, kColumn, kOffset, kClass, kSquaredNorms, kBound, kTopK, kTolerance, kCounts, kState };
enum Count { kMaxEpochs, kEpochCount, kEpochsPerCheck, kFirstCheck, kCountCount };
enum StateField {
  kWeights, kDual, kIndex, kSeed, kPrimal, kDualObjective, kGap, kEstimate, kRatio,
  kStatus, kEpochs, kChecks, kChanged, kSupport, kTruncated, kHistory, kStateFields
};

struct Options {
  int64_t features, set, classes, block, sweeps, threads;
};
using Buffers = std::vector<ffi::AnyBuffer>;

bool has_shape(const ffi::AnyBuffer& b, ffi::DataType dtype, std::initializer_list<int64_t> shape) {
  if (b.element_type() != dtype || b.dimensions().size() != shape.size()) return false;
  size_t i = 0;
  for (int64_t length : shape)
    if (b.dimensions()[i++] != length) return false;
  return true;
}

bool within(const ffi::AnyBuffer& b, int32_t low, int64_t high) {
  const int32_t* value = b.typed_data<int32_t>();
  for (size_t i = 0; i < b.element_count(); ++i)
    if (value[i] < low || value[i] >= high) return false;
  return true;
}

// Problem and weights; `state` starts with them.
ffi::Error check(const Buffers& in, const ffi::AnyBuffer* state, const Options& o) {
  known(o.features, kFeatures, "features");
  known(o.set, kSets, "sets");
  const ffi::DataType real = in[kMatrix].element_type(), integer = ffi::DataType::S32;
  if (in[kClass].dimensions().size() != 1 || in[kTopK].dimensions().size() != 1 ||
      state[kWeights].dimensions().size() != 3 || state[kIndex].dimensions().size() != 3)
    return expected("the arguments of solvers/instance_dual.py");
  const int64_t n = in[kClass].dimensions()[0], lanes = in[kTopK].dimensions()[0], m = o.classes;
  const int64_t d = state[kWeights].dimensions()[o.features == kCsrFeatures ? 1 : 2];
  const int64_t slots = state[kIndex].dimensions()[2];
  if (o.features == kCsrFeatures) {
    if (auto error = check_csr(in[kMatrix], in[kColumn], in[kOffset]); error.failure()) return error;
    if (in[kOffset].dimensions()[0] != n + 1) return expected("as many rows as classes");
    if (!has_shape(state[kWeights], real, {lanes, d, m})) return expected("weights [lanes, d, classes]");
  } else {
    if (!has_shape(in[kMatrix], real, {n, o.features == kGramFeatures ? n : d}))
      return expected("a matrix with a row for each instance");
    if (!has_shape(state[kWeights], real, {lanes, m, d})) return expected("weights [lanes, classes, d or n]");
  }
  if (!has_shape(in[kClass], integer, {n}) || !has_shape(in[kSquaredNorms], real, {n}) ||
      !has_shape(in[kBound], real, {lanes, n}) || !has_shape(in[kTopK], integer, {lanes}) ||
      !has_shape(state[kDual], real, {lanes, n, slots ? slots : m}) ||
      !has_shape(state[kIndex], integer, {lanes, n, slots}))
    return expected("instances, lanes and classes in the same number throughout, of one dtype");
  if (o.block < 1 || o.sweeps < 1) return expected("a block of at least one instance and at least one sweep");
  if (!within(in[kClass], 0, m) || !within(state[kIndex], 0, m))
    return expected("classes below " + std::to_string(m));
  if (!within(in[kTopK], 1, slots ? slots + 1 : m)) return expected("k from 1 to the number of classes less one");
  return ffi::Error::Success();
}

template <class T>
InstanceDualArgs<T> arguments(const Buffers& in, const ffi::AnyBuffer* state, const Options& o) {
  InstanceDualArgs<T> args{};
  args.features = int32_t(o.features);
  args.set = int32_t(o.set);
  args.n = in[kClass].dimensions()[0];
  args.m = o.classes;
  args.d = state[kWeights].dimensions()[o.features == kCsrFeatures ? 1 : 2];
  if (o.features == kCsrFeatures) {
    args.csr = as_csr<T>(in[kMatrix], in[kColumn], in[kOffset], args.n, args.d);
  } else {
    args.X = in[kMatrix].typed_data<T>();
  }
  args.y = in[kClass].typed_data<int32_t>();
  args.squared_norms = in[kSquaredNorms].typed_data<T>();
  args.bound = in[kBound].typed_data<T>();
  args.k = in[kTopK].typed_data<int32_t>();
  args.block = o.block;
  args.sweeps = o.sweeps;
  args.weights_size = args.d * args.m;
  args.slots = state[kIndex].dimensions()[2];
  args.weights = state[kWeights].typed_data<T>();
  args.dual = state[kDual].typed_data<T>();
  args.index = state[kIndex].typed_data<int32_t>();
  return args;
}

template <class T>
ffi::Error advance(const Buffers& in, const Buffers& out, const Options& o) {
  for (int f = 0; f < kStateFields; ++f) {
    // Results alias the state where the caller gave it away; else they start as a copy of it.
    const ffi::AnyBuffer& from = in[kState + f];
    if (out[f].untyped_data() != from.untyped_data() && from.size_bytes())
      std::memcpy(out[f].untyped_data(), from.untyped_data(), from.size_bytes());
  }
  InstanceDualArgs<T> args = arguments<T>(in, out.data(), o);
  const int32_t* counts = in[kCounts].typed_data<int32_t>();
  args.tolerance = *in[kTolerance].typed_data<T>();
  args.max_epochs = counts[kMaxEpochs];
  args.count = counts[kEpochCount];
  args.epochs_per_check = counts[kEpochsPerCheck];
  args.first_check = counts[kFirstCheck];
  args.seed = *out[kSeed].typed_data<uint32_t>();
  args.history_rows = out[kHistory].dimensions()[1];
  args.primal = out[kPrimal].typed_data<T>();
  args.dual_objective = out[kDualObjective].typed_data<T>();
  args.gap = out[kGap].typed_data<T>();
  args.estimate = out[kEstimate].typed_data<T>();
  args.ratio = out[kRatio].typed_data<T>();
  args.status = out[kStatus].typed_data<int32_t>();
  args.epochs = out[kEpochs].typed_data<int32_t>();
  args.checks = out[kChecks].typed_data<int32_t>();
  args.changed = out[kChanged].typed_data<int32_t>();
  args.support = out[kSupport].typed_data<int32_t>();
  args.truncated = out[kTruncated].typed_data<int32_t>();
  args.history = out[kHistory].typed_data<T>();
  parallel(in[kTopK].dimensions()[0], 1, o.threads, [&](int64_t first, int64_t last) {
    for (int64_t lane = first; lane < last; ++lane)
      if (args.status[lane] == kRunning) kernels<T>().instance_dual(args, lane);
  });
  return ffi::Error::Success();
}

enum GapResult { kPrimalResult, kDualResult, kGapResult, kSupportResult, kGapResults };

template <class T>
ffi::Error gap(const Buffers& in, const Buffers& out, const Options& o) {
  InstanceDualArgs<T> args = arguments<T>(in, in.data() + kState, o);
  args.primal = out[kPrimalResult].typed_data<T>();
  args.dual_objective = out[kDualResult].typed_data<T>();
  args.gap = out[kGapResult].typed_data<T>();
  args.support = out[kSupportResult].typed_data<int32_t>();
  parallel(in[kTopK].dimensions()[0], 1, o.threads, [&](int64_t first, int64_t last) {
    for (int64_t lane = first; lane < last; ++lane) kernels<T>().instance_gap(args, lane);
  });
  return ffi::Error::Success();
}

Buffers buffers(ffi::RemainingArgs& args) {
  Buffers all;
  for (size_t i = 0; i < args.size(); ++i) all.push_back(*args.get<ffi::AnyBuffer>(i));
  return all;
}
Buffers buffers(ffi::RemainingRets& rets) {
  Buffers all;
  for (size_t i = 0; i < rets.size(); ++i) all.push_back(**rets.get<ffi::AnyBuffer>(i));
  return all;
}

// f(float()) or f(double()), as the matrix is.
template <class F>
ffi::Error in_dtype(const ffi::AnyBuffer& matrix, F&& f) {
  if (matrix.element_type() == ffi::DataType::F32) return f(float());
  if (matrix.element_type() == ffi::DataType::F64) return f(double());
  return expected("float32 or float64 values");
}

ffi::Error instance_dual(ffi::RemainingArgs args, int64_t features, int64_t set, int64_t classes, int64_t block,
                         int64_t sweeps, int64_t threads, ffi::RemainingRets rets) {
  const Buffers in = buffers(args), out = buffers(rets);
  const Options options{features, set, classes, block, sweeps, threads};
  if (in.size() != size_t(kState + kStateFields) || out.size() != size_t(kStateFields))
    return expected("the arguments of _ffi.instance_dual");
  const ffi::AnyBuffer* state = in.data() + kState;
  if (auto error = check(in, state, options); error.failure()) return error;
  const ffi::DataType real = in[kMatrix].element_type();
  const int64_t lanes = in[kTopK].dimensions()[0];
  for (int f = 0; f < kStateFields; ++f) {
    if (out[f].element_type() != state[f].element_type() || out[f].element_count() != state[f].element_count())
      return expected("results like the state");
    if (f >= kPrimal && f < kHistory && !has_shape(state[f], f < kStatus ? real : ffi::DataType::S32, {lanes}))
      return expected("one number a lane");
  }
  if (in[kTolerance].element_count() != 1 || in[kTolerance].element_type() != real ||
      !has_shape(in[kCounts], ffi::DataType::S32, {kCountCount}) || state[kSeed].element_count() != 1 ||
      state[kSeed].element_type() != ffi::DataType::U32 || state[kHistory].dimensions().size() != 3 ||
      !has_shape(state[kHistory], real, {lanes, state[kHistory].dimensions()[1], 3}))
    return expected("a tolerance, counts, a seed and a history [lanes, checks, 3]");
  return in_dtype(in[kMatrix], [&](auto zero) { return advance<decltype(zero)>(in, out, options); });
}

ffi::Error instance_gap(ffi::RemainingArgs args, int64_t features, int64_t set, int64_t classes, int64_t block,
                        int64_t sweeps, int64_t threads, ffi::RemainingRets rets) {
  const Buffers in = buffers(args), out = buffers(rets);
  const Options options{features, set, classes, block, sweeps, threads};
  if (in.size() != size_t(kState + kIndex + 1) || out.size() != size_t(kGapResults))
    return expected("the arguments of _ffi.instance_gap");
  if (auto error = check(in, in.data() + kState, options); error.failure()) return error;
  for (const ffi::AnyBuffer& result : out)
    if (result.element_count() != in[kTopK].element_count()) return expected("one number a lane");
  return in_dtype(in[kMatrix], [&](auto zero) { return gap<decltype(zero)>(in, out, options); });
}

auto binding() {
  return ffi::Ffi::Bind()
      .RemainingArgs()
      .Attr<int64_t>("features")
      .Attr<int64_t>("set")
      .Attr<int64_t>("classes")
      .Attr<int64_t>("block")
      .Attr<int64_t>("sweeps")
      .Attr<int64_t>("threads")
      .RemainingRets();
}

}  // namespace

XMCJAX_HANDLER(xmcjax_instance_dual, instance_dual, binding())
XMCJAX_HANDLER(xmcjax_instance_gap, instance_gap, binding())

}  // namespace xmcjax
