// One Newton step of a block of lanes (solvers/newton_cg.py): its XLA FFI handler, and the same step
// on arrays of the caller, changed in place, for ctypes (native/_newton.py).
#include <cstring>

#include "core/flush_denormals.h"
#include "interface/ffi_support.h"

namespace xmcjax {
namespace {

// The order of the arguments, as native/_ffi.py passes them: the problem, the hyperparameters,
// then the state, which comes back as the results in the same order.
enum Argument {
  kValue, kColumn, kOffset, kTargets, kWeight, kShift, kTolerance, kNumbers, kCounts, kState
};
enum StateField {
  kW, kZ, kDirection, kBias, kDirectionBias, kSlope, kObjective, kGradientNorm, kMultiplier,
  kStatus, kSteps, kCgSteps, kActive, kStateFields
};
enum Number { kL2, kL2Bias, kLossParameter, kCgTolerance, kCgProgress, kPreconditioner, kArmijo, kDecrement,
              kPenaltyParameter, kNumberCount };
enum Count { kMaxCg, kMaxSteps, kMaxBacktracks, kPenalty, kCountCount };

// The sizes that the arrays do not tell by themselves; weight and shift are [1 or n, 1 or lanes].
enum Size { kRows, kColumns, kLaneCount, kWeightRows, kWeightLanes, kShiftRows, kShiftLanes, kSizes };

template <class T>
Broadcast<T> as_broadcast(const void* data, int64_t rows, int64_t lanes) {
  return {static_cast<const T*>(data), rows == 1 ? 0 : lanes, lanes == 1 ? 0 : 1};
}

// `problem` in the order of Argument, `state` in that of StateField, changed in place.
template <class T>
void step(const int64_t* size, const void* const* problem, void* const* state, int64_t loss) {
  const auto in = [&](int a) { return static_cast<const T*>(problem[a]); };
  const auto field = [&](int f) { return static_cast<T*>(state[f]); };
  const auto count = [&](int f) { return static_cast<int32_t*>(state[f]); };
  const T* numbers = in(kNumbers);
  const int32_t* counts = static_cast<const int32_t*>(problem[kCounts]);
  NewtonArgs<T> args;
  args.X = {size[kRows], size[kColumns], in(kValue), static_cast<const int32_t*>(problem[kColumn]),
            static_cast<const int64_t*>(problem[kOffset])};
  args.lanes = size[kLaneCount];
  args.y = static_cast<const int8_t*>(problem[kTargets]);
  args.weight = as_broadcast<T>(problem[kWeight], size[kWeightRows], size[kWeightLanes]);
  args.shift = as_broadcast<T>(problem[kShift], size[kShiftRows], size[kShiftLanes]);
  // A single zero: no shift.
  if (size[kShiftRows] == 1 && size[kShiftLanes] == 1 && *args.shift.data == T(0)) args.shift.data = nullptr;
  args.loss = known(loss, kLosses, "losses");
  args.loss_parameter = numbers[kLossParameter];
  args.penalty = known(counts[kPenalty], kPenalties, "penalties");
  args.penalty_parameter = numbers[kPenaltyParameter];
  args.l2 = numbers[kL2];
  args.l2_bias = numbers[kL2Bias];
  args.cg_tolerance = numbers[kCgTolerance];
  args.cg_progress = numbers[kCgProgress];
  args.preconditioner = numbers[kPreconditioner];
  args.armijo = numbers[kArmijo];
  args.decrement = numbers[kDecrement];
  args.max_cg = counts[kMaxCg];
  args.max_steps = counts[kMaxSteps];
  args.max_backtracks = counts[kMaxBacktracks];
  args.tolerance = in(kTolerance);
  args.w = field(kW);
  args.z = field(kZ);
  args.direction = field(kDirection);
  args.bias = field(kBias);
  args.direction_bias = field(kDirectionBias);
  args.slope = field(kSlope);
  args.value = field(kObjective);
  args.gradient_norm = field(kGradientNorm);
  args.multiplier = field(kMultiplier);
  args.status = count(kStatus);
  args.steps = count(kSteps);
  args.cg_steps = count(kCgSteps);
  args.active = count(kActive);
  const auto step_of = args.penalty == kL2Penalty ? kernels<T>().newton_step : kernels<T>().penalised_step;
  step_of(args, 0, args.lanes);
}

template <class T>
ffi::Error run(const std::vector<ffi::AnyBuffer>& in, std::vector<ffi::AnyBuffer>& out, int64_t loss) {
  const void* problem[kState];
  void* state[kStateFields];
  for (int a = 0; a < kState; ++a) problem[a] = in[a].untyped_data();
  for (int f = 0; f < kStateFields; ++f) {
    state[f] = out[f].untyped_data();
    // Results alias the state where the caller gave it away; else they start as a copy of it.
    if (state[f] != in[kState + f].untyped_data())
      std::memcpy(state[f], in[kState + f].untyped_data(), in[kState + f].size_bytes());
  }
  const auto w = in[kState + kW].dimensions(), weight = in[kWeight].dimensions(), shift = in[kShift].dimensions();
  const int64_t size[kSizes] = {int64_t(in[kOffset].dimensions()[0]) - 1, w[0], w[1], weight[0], weight[1],
                                shift[0], shift[1]};
  step<T>(size, problem, state, loss);
  return ffi::Error::Success();
}

bool has_shape(const ffi::AnyBuffer& b, int64_t rows, int64_t columns) {
  const auto s = b.dimensions();
  return s.size() == 2 && s[0] == rows && s[1] == columns;
}
bool broadcasts(const ffi::AnyBuffer& b, int64_t rows, int64_t columns) {
  const auto s = b.dimensions();
  return s.size() == 2 && (s[0] == 1 || s[0] == rows) && (s[1] == 1 || s[1] == columns);
}

ffi::Error newton_step(ffi::RemainingArgs args, int64_t loss, ffi::RemainingRets rets) {
  std::vector<ffi::AnyBuffer> in, out;
  for (size_t i = 0; i < args.size(); ++i) in.push_back(*args.get<ffi::AnyBuffer>(i));
  for (size_t i = 0; i < rets.size(); ++i) out.push_back(**rets.get<ffi::AnyBuffer>(i));
  if (in.size() != size_t(kState + kStateFields) || out.size() != size_t(kStateFields))
    return expected("the arguments of _ffi.newton_step");
  if (auto error = check_csr(in[kValue], in[kColumn], in[kOffset]); error.failure()) return error;
  const ffi::DataType dtype = in[kValue].element_type();
  const int64_t n = in[kOffset].dimensions()[0] - 1;
  if (in[kState + kW].dimensions().size() != 2) return expected("weights [d, lanes]");
  const int64_t d = in[kState + kW].dimensions()[0], lanes = in[kState + kW].dimensions()[1];
  if (in[kTargets].element_type() != ffi::DataType::S8 || !has_shape(in[kTargets], n, lanes))
    return expected("targets as int8 [n, lanes]");
  if (!broadcasts(in[kWeight], n, lanes) || !broadcasts(in[kShift], n, lanes))
    return expected("weights and offsets that broadcast to [n, lanes]");
  if (!has_shape(in[kState + kZ], n, lanes) || !has_shape(in[kState + kDirection], d, lanes))
    return expected("margins [n, lanes] and a direction [d, lanes]");
  for (int f : {int(kWeight), int(kShift), int(kTolerance), int(kNumbers)})
    if (in[f].element_type() != dtype) return expected("one dtype throughout");
  if (in[kTolerance].element_count() != size_t(lanes) || in[kNumbers].element_count() != size_t(kNumberCount) ||
      in[kCounts].element_count() != size_t(kCountCount) || in[kCounts].element_type() != ffi::DataType::S32)
    return expected("a tolerance a lane and the hyperparameters");
  for (int f = 0; f < kStateFields; ++f) {
    const auto& field = in[kState + f];
    if (field.element_type() != (f >= kStatus ? ffi::DataType::S32 : dtype) ||
        (f >= kBias && field.element_count() != size_t(lanes)) ||
        out[f].element_type() != field.element_type() || out[f].element_count() != field.element_count())
      return expected("a state whose fields have one number a lane and the dtype of the matrix");
  }
  if (dtype == ffi::DataType::F32) return run<float>(in, out, loss);
  if (dtype == ffi::DataType::F64) return run<double>(in, out, loss);
  return expected("float32 or float64 values");
}

}  // namespace

XMCJAX_HANDLER(xmcjax_newton_step, newton_step,
               ffi::Ffi::Bind().RemainingArgs().Attr<int64_t>("loss").RemainingRets())

}  // namespace xmcjax

// Returns how it ended, of guard.h. The caller has checked dtypes and shapes.
XMCJAX_EXPORT int32_t xmcjax_newton_step_in_place(
    int32_t float64, const int64_t* size, const void* const* problem, void* const* state, int64_t loss) {
  return xmcjax::guarded_call([&] {
    const xmcjax::FlushDenormals flush;
    (float64 ? xmcjax::step<double> : xmcjax::step<float>)(size, problem, state, loss);
  });
}
