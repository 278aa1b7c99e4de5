// XLA FFI handlers of the three products of linops/csr.py.
#include "interface/ffi_support.h"

namespace xmcjax {
namespace {

enum class Product { kMatmat, kRmatmat, kGram };

template <class T>
void run(Product product, const Csr<T>& X, const T* D, const T* V, T* out, int64_t lanes, int64_t threads) {
  const Kernels<T>& k = kernels<T>();
  if (product == Product::kMatmat) {
    // Rows are independent; pieces of 64 rows keep the threads apart.
    parallel(X.n, 64, threads, [&](int64_t first, int64_t last) { k.matmat(X, V, out, lanes, first, last); });
  } else {
    parallel(lanes, k.lane_tile, threads, [&](int64_t first, int64_t last) {
      if (product == Product::kRmatmat) {
        k.rmatmat(X, V, out, lanes, first, last);
      } else {
        k.gram_matmat(X, D, V, out, lanes, first, last);
      }
    });
  }
}

ffi::Error call(Product product, const ffi::AnyBuffer& value, const ffi::AnyBuffer& column,
                const ffi::AnyBuffer& offset, const ffi::AnyBuffer* D, const ffi::AnyBuffer& V, int64_t threads,
                ffi::Result<ffi::AnyBuffer>& out) {
  if (auto error = check_csr(value, column, offset); error.failure()) return error;
  if (V.dimensions().size() != 2 || out->dimensions().size() != 2) return expected("matrices");
  const int64_t n = offset.dimensions()[0] - 1;
  const int64_t lanes = V.dimensions()[1];
  const int64_t d = product == Product::kMatmat ? V.dimensions()[0] : out->dimensions()[0];
  const int64_t rows_in = product == Product::kRmatmat ? n : d;
  const int64_t rows_out = product == Product::kMatmat ? n : d;
  if (V.dimensions()[0] != rows_in || out->dimensions()[0] != rows_out || out->dimensions()[1] != lanes ||
      V.element_type() != value.element_type() || out->element_type() != value.element_type() ||
      (D && (D->dimensions().size() != 2 || D->dimensions()[0] != n || D->dimensions()[1] != lanes ||
             D->element_type() != value.element_type())))
    return expected("arguments of one dtype whose shapes match the matrix");
  if (value.element_type() == ffi::DataType::F32) {
    run<float>(product, as_csr<float>(value, column, offset, n, d), D ? D->typed_data<float>() : nullptr,
               V.typed_data<float>(), out->typed_data<float>(), lanes, threads);
  } else if (value.element_type() == ffi::DataType::F64) {
    run<double>(product, as_csr<double>(value, column, offset, n, d), D ? D->typed_data<double>() : nullptr,
                V.typed_data<double>(), out->typed_data<double>(), lanes, threads);
  } else {
    return expected("float32 or float64 values");
  }
  return ffi::Error::Success();
}

ffi::Error matmat(ffi::AnyBuffer value, ffi::AnyBuffer column, ffi::AnyBuffer offset, ffi::AnyBuffer V,
                  int64_t threads, ffi::Result<ffi::AnyBuffer> out) {
  return call(Product::kMatmat, value, column, offset, nullptr, V, threads, out);
}
ffi::Error rmatmat(ffi::AnyBuffer value, ffi::AnyBuffer column, ffi::AnyBuffer offset, ffi::AnyBuffer C,
                   int64_t threads, ffi::Result<ffi::AnyBuffer> out) {
  return call(Product::kRmatmat, value, column, offset, nullptr, C, threads, out);
}
ffi::Error gram_matmat(ffi::AnyBuffer value, ffi::AnyBuffer column, ffi::AnyBuffer offset, ffi::AnyBuffer D,
                       ffi::AnyBuffer V, int64_t threads, ffi::Result<ffi::AnyBuffer> out) {
  return call(Product::kGram, value, column, offset, &D, V, threads, out);
}

}  // namespace

XMCJAX_HANDLER(xmcjax_csr_matmat, matmat, buffers_and_threads<4>())
XMCJAX_HANDLER(xmcjax_csr_rmatmat, rmatmat, buffers_and_threads<4>())
XMCJAX_HANDLER(xmcjax_csr_gram_matmat, gram_matmat, buffers_and_threads<5>())

}  // namespace xmcjax
