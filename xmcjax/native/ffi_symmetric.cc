// XLA FFI handler of products with a symmetric matrix (kernels/_gram.py).
#include "ffi_support.h"

namespace xmcjax {
namespace {

ffi::Error matmat(ffi::AnyBuffer M, ffi::AnyBuffer S, ffi::Result<ffi::AnyBuffer> out) {
  const auto shape = M.dimensions(), columns = S.dimensions();
  if (shape.size() != 2 || shape[0] != shape[1] || columns.size() != 2 || columns[0] != shape[0] ||
      out->dimensions().size() != 2 || out->dimensions()[0] != columns[0] || out->dimensions()[1] != columns[1] ||
      S.element_type() != M.element_type() || out->element_type() != M.element_type())
    return expected("a matrix [n, n] and columns [n, k] of one dtype");
  return guarded([&] {
    const auto run = [&](auto zero) {
      using T = decltype(zero);
      kernels<T>().symmetric_matmat(M.typed_data<T>(), shape[0], S.typed_data<T>(), out->typed_data<T>(),
                                    columns[1]);
      return ffi::Error::Success();
    };
    if (M.element_type() == ffi::DataType::F32) return run(float());
    if (M.element_type() == ffi::DataType::F64) return run(double());
    return expected("float32 or float64 values");
  });
}

}  // namespace

XMCJAX_HANDLER(xmcjax_symmetric_matmat, matmat,
               ffi::Ffi::Bind().Arg<ffi::AnyBuffer>().Arg<ffi::AnyBuffer>().Ret<ffi::AnyBuffer>())

}  // namespace xmcjax
