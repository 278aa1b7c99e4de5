// XLA FFI handlers of multinomial logistic regression on CSR features (solvers/multinomial).
#include <algorithm>
#include <cstring>
#include <limits>

#include "interface/ffi_support.h"

namespace xmcjax {
namespace {

bool has_shape(const ffi::AnyBuffer& b, ffi::DataType dtype, std::initializer_list<int64_t> shape) {
  if (b.element_type() != dtype || b.dimensions().size() != shape.size()) return false;
  size_t i = 0;
  for (int64_t length : shape)
    if (b.dimensions()[i++] != length) return false;
  return true;
}

bool within(const ffi::AnyBuffer& b, int64_t bound) {
  const int32_t* value = b.typed_data<int32_t>();
  for (size_t i = 0; i < b.element_count(); ++i)
    if (value[i] < 0 || value[i] >= bound) return false;
  return true;
}

ffi::Error pass(ffi::AnyBuffer value, ffi::AnyBuffer column, ffi::AnyBuffer offset, ffi::AnyBuffer y,
                ffi::AnyBuffer weight, ffi::AnyBuffer W, ffi::AnyBuffer bias, ffi::Result<ffi::AnyBuffer> loss,
                ffi::Result<ffi::AnyBuffer> gradient, ffi::Result<ffi::AnyBuffer> bias_gradient) {
  if (auto error = check_csr(value, column, offset); error.failure()) return error;
  const ffi::DataType real = value.element_type(), integer = ffi::DataType::S32;
  if (W.dimensions().size() != 2) return expected("weights [d, classes]");
  const int64_t n = offset.dimensions()[0] - 1, d = W.dimensions()[0], m = W.dimensions()[1];
  if (!has_shape(y, integer, {n}) || !has_shape(weight, real, {n}) || !has_shape(W, real, {d, m}) ||
      !has_shape(bias, real, {m}) || !has_shape(*loss, real, {}) || !has_shape(*gradient, real, {d, m}) ||
      !has_shape(*bias_gradient, real, {m}))
    return expected("instances and classes in the same number throughout, of one dtype");
  if (!within(y, m)) return expected("classes below " + std::to_string(m));
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    SoftmaxPassArgs<T> args{as_csr<T>(value, column, offset, n, d), m, y.typed_data<int32_t>(),
                            weight.typed_data<T>(), W.typed_data<T>(), bias.typed_data<T>(),
                            loss->typed_data<T>(), gradient->typed_data<T>(), bias_gradient->typed_data<T>()};
    kernels<T>().softmax_pass(args);
    return ffi::Error::Success();
  };
  if (real == ffi::DataType::F32) return run(float());
  if (real == ffi::DataType::F64) return run(double());
  return expected("float32 or float64 values");
}

ffi::Error round(ffi::AnyBuffer value, ffi::AnyBuffer column, ffi::AnyBuffer offset, ffi::AnyBuffer weight,
                 ffi::AnyBuffer squared_norms, ffi::AnyBuffer bias, ffi::AnyBuffer order, ffi::AnyBuffer l2,
                 ffi::AnyBuffer W, ffi::AnyBuffer log_p, ffi::Result<ffi::AnyBuffer> W_out,
                 ffi::Result<ffi::AnyBuffer> log_p_out, ffi::Result<ffi::AnyBuffer> counts_out) {
  if (auto error = check_csr(value, column, offset); error.failure()) return error;
  const ffi::DataType real = value.element_type(), integer = ffi::DataType::S32;
  if (W.dimensions().size() != 2) return expected("weights [d, classes]");
  const int64_t n = offset.dimensions()[0] - 1, d = W.dimensions()[0], m = W.dimensions()[1];
  if (!has_shape(weight, real, {n}) || !has_shape(squared_norms, real, {n}) || !has_shape(bias, real, {m}) ||
      !has_shape(order, integer, {n}) || !has_shape(l2, real, {}) || !has_shape(W, real, {d, m}) ||
      !has_shape(log_p, real, {n, m}) || !has_shape(*W_out, real, {d, m}) ||
      !has_shape(*log_p_out, real, {n, m}) || !has_shape(*counts_out, integer, {4}))
    return expected("instances and classes in the same number throughout, of one dtype");
  if (!within(order, n)) return expected("an order of the rows");
  // Results alias what the caller gave away; else they start as a copy of it.
  if (W_out->untyped_data() != W.untyped_data()) std::memcpy(W_out->untyped_data(), W.untyped_data(), W.size_bytes());
  if (log_p_out->untyped_data() != log_p.untyped_data())
    std::memcpy(log_p_out->untyped_data(), log_p.untyped_data(), log_p.size_bytes());
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    SoftmaxRoundCounts counts{};
    SoftmaxRoundArgs<T> args{as_csr<T>(value, column, offset, n, d), m, weight.typed_data<T>(),
                             squared_norms.typed_data<T>(), bias.typed_data<T>(), order.typed_data<int32_t>(),
                             *l2.typed_data<T>(), W_out->typed_data<T>(), log_p_out->typed_data<T>(), &counts};
    kernels<T>().softmax_round(args);
    int32_t* out = counts_out->typed_data<int32_t>();
    for (int64_t count : {counts.pairs, counts.active_epochs, counts.steps, counts.skipped})
      *out++ = int32_t(std::min<int64_t>(count, std::numeric_limits<int32_t>::max()));
    return ffi::Error::Success();
  };
  if (real == ffi::DataType::F32) return run(float());
  if (real == ffi::DataType::F64) return run(double());
  return expected("float32 or float64 values");
}

}  // namespace

XMCJAX_HANDLER(xmcjax_softmax_pass, pass,
               ffi::Ffi::Bind()
                   .Arg<ffi::AnyBuffer>()
                   .Arg<ffi::AnyBuffer>()
                   .Arg<ffi::AnyBuffer>()
                   .Arg<ffi::AnyBuffer>()
                   .Arg<ffi::AnyBuffer>()
                   .Arg<ffi::AnyBuffer>()
                   .Arg<ffi::AnyBuffer>()
                   .Ret<ffi::AnyBuffer>()
                   .Ret<ffi::AnyBuffer>()
                   .Ret<ffi::AnyBuffer>())
XMCJAX_HANDLER(xmcjax_softmax_round, round,
               ffi::Ffi::Bind()
                   .Arg<ffi::AnyBuffer>()
                   .Arg<ffi::AnyBuffer>()
                   .Arg<ffi::AnyBuffer>()
                   .Arg<ffi::AnyBuffer>()
                   .Arg<ffi::AnyBuffer>()
                   .Arg<ffi::AnyBuffer>()
                   .Arg<ffi::AnyBuffer>()
                   .Arg<ffi::AnyBuffer>()
                   .Arg<ffi::AnyBuffer>()
                   .Arg<ffi::AnyBuffer>()
                   .Ret<ffi::AnyBuffer>()
                   .Ret<ffi::AnyBuffer>()
                   .Ret<ffi::AnyBuffer>())

}  // namespace xmcjax
