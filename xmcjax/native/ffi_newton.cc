// XLA FFI handler of one Newton step of a block of lanes (solvers/newton_cg.py).
#include <cstring>

#include "ffi_support.h"

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
enum Number { kL2, kL2Bias, kLossParameter, kCgTolerance, kPreconditioner, kArmijo, kDecrement, kNumberCount };
enum Count { kMaxCg, kMaxSteps, kMaxBacktracks, kCountCount };

template <class T>
Broadcast<T> as_broadcast(const ffi::AnyBuffer& b) {
  const auto shape = b.dimensions();
  return {b.typed_data<T>(), shape[0] == 1 ? 0 : shape[1], shape[1] == 1 ? 0 : 1};
}

template <class T>
ffi::Error run(const std::vector<ffi::AnyBuffer>& in, std::vector<ffi::AnyBuffer>& out, int64_t loss) {
  const int64_t n = in[kOffset].dimensions()[0] - 1;
  const int64_t d = in[kState + kW].dimensions()[0];
  const int64_t lanes = in[kState + kW].dimensions()[1];
  for (int f = 0; f < kStateFields; ++f) {
    // Results alias the state where the caller gave it away; else they start as a copy of it.
    if (out[f].untyped_data() != in[kState + f].untyped_data())
      std::memcpy(out[f].untyped_data(), in[kState + f].untyped_data(), in[kState + f].size_bytes());
  }
  const T* numbers = in[kNumbers].typed_data<T>();
  const int32_t* counts = in[kCounts].typed_data<int32_t>();
  NewtonArgs<T> args;
  args.X = as_csr<T>(in[kValue], in[kColumn], in[kOffset], n, d);
  args.lanes = lanes;
  args.y = in[kTargets].typed_data<int8_t>();
  args.weight = as_broadcast<T>(in[kWeight]);
  args.shift = as_broadcast<T>(in[kShift]);
  // A single zero: no shift.
  if (in[kShift].element_count() == 1 && *args.shift.data == T(0)) args.shift.data = nullptr;
  args.loss = int32_t(loss);
  args.loss_parameter = numbers[kLossParameter];
  args.l2 = numbers[kL2];
  args.l2_bias = numbers[kL2Bias];
  args.cg_tolerance = numbers[kCgTolerance];
  args.preconditioner = numbers[kPreconditioner];
  args.armijo = numbers[kArmijo];
  args.decrement = numbers[kDecrement];
  args.max_cg = counts[kMaxCg];
  args.max_steps = counts[kMaxSteps];
  args.max_backtracks = counts[kMaxBacktracks];
  args.tolerance = in[kTolerance].typed_data<T>();
  args.w = out[kW].typed_data<T>();
  args.z = out[kZ].typed_data<T>();
  args.direction = out[kDirection].typed_data<T>();
  args.bias = out[kBias].typed_data<T>();
  args.direction_bias = out[kDirectionBias].typed_data<T>();
  args.slope = out[kSlope].typed_data<T>();
  args.value = out[kObjective].typed_data<T>();
  args.gradient_norm = out[kGradientNorm].typed_data<T>();
  args.multiplier = out[kMultiplier].typed_data<T>();
  args.status = out[kStatus].typed_data<int32_t>();
  args.steps = out[kSteps].typed_data<int32_t>();
  args.cg_steps = out[kCgSteps].typed_data<int32_t>();
  args.active = out[kActive].typed_data<int32_t>();
  kernels<T>().newton_step(args, 0, lanes);
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
  if (loss != kSquaredHinge && loss != kLogistic && loss != kHuberHinge)
    return expected("a loss of isa.h, got number " + std::to_string(loss));
  return guarded([&] {
    if (dtype == ffi::DataType::F32) return run<float>(in, out, loss);
    if (dtype == ffi::DataType::F64) return run<double>(in, out, loss);
    return expected("float32 or float64 values");
  });
}

}  // namespace

XMCJAX_HANDLER(xmcjax_newton_step, newton_step,
               ffi::Ffi::Bind().RemainingArgs().Attr<int64_t>("loss").RemainingRets())

}  // namespace xmcjax
