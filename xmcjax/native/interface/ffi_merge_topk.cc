// XLA FFI handler of prediction: models/_block_scores.py.
#include "interface/ffi_support.h"

namespace xmcjax {
namespace {

template <class T>
void run(const ffi::AnyBuffer& value, const ffi::AnyBuffer& column, const ffi::AnyBuffer& offset,
         const ffi::AnyBuffer& W, const ffi::AnyBuffer& b, const ffi::AnyBuffer& first_label, int64_t threads,
         ffi::AnyBuffer& scores, ffi::AnyBuffer& labels) {
  const int64_t n = scores.dimensions()[0];
  const MergeTopkArgs<T> args{as_csr<T>(value, column, offset, n, W.dimensions()[0]),
                              W.typed_data<T>(),
                              b.typed_data<T>(),
                              W.dimensions()[1],
                              *first_label.typed_data<int32_t>(),
                              scores.dimensions()[1],
                              scores.typed_data<T>(),
                              labels.typed_data<int32_t>()};
  // Rows are independent; pieces of 64 rows keep the threads apart.
  parallel(n, 64, threads, [&](int64_t first, int64_t last) { kernels<T>().merge_topk(args, first, last); });
}

ffi::Error call(const ffi::AnyBuffer& value, const ffi::AnyBuffer& column, const ffi::AnyBuffer& offset,
                const ffi::AnyBuffer& W, const ffi::AnyBuffer& b, const ffi::AnyBuffer& first_label,
                int64_t threads, ffi::AnyBuffer& scores, ffi::AnyBuffer& labels) {
  if (auto error = check_csr(value, column, offset); error.failure()) return error;
  const auto type = value.element_type();
  if (type != ffi::DataType::F32 && type != ffi::DataType::F64) return expected("float32 or float64 values");
  const int64_t n = offset.dimensions()[0] - 1;
  const int64_t tile = type == ffi::DataType::F32 ? kernels<float>().lane_tile : kernels<double>().lane_tile;
  if (W.dimensions().size() != 2 || W.dimensions()[1] % tile || W.element_type() != type)
    return expected("weights [d, lanes] with lanes a multiple of " + std::to_string(tile));
  if (b.dimensions().size() != 1 || b.dimensions()[0] != W.dimensions()[1] || b.element_type() != type)
    return expected("as many biases as lanes");
  if (first_label.element_type() != ffi::DataType::S32 || first_label.element_count() != 1)
    return expected("the first label as int32");
  for (const auto* best : {&scores, &labels})
    if (best->dimensions().size() != 2 || best->dimensions()[0] != n || best->dimensions()[1] < 1 ||
        best->dimensions()[1] != scores.dimensions()[1])
      return expected("the best so far as [n, k]");
  if (scores.element_type() != type || labels.element_type() != ffi::DataType::S32)
    return expected("scores of the dtype of the values and int32 labels");
  if (type == ffi::DataType::F32) {
    run<float>(value, column, offset, W, b, first_label, threads, scores, labels);
  } else {
    run<double>(value, column, offset, W, b, first_label, threads, scores, labels);
  }
  return ffi::Error::Success();
}

// The best so far come in as arguments and are changed in place: XLA gives the results their memory.
ffi::Error merge_topk(ffi::AnyBuffer value, ffi::AnyBuffer column, ffi::AnyBuffer offset, ffi::AnyBuffer W,
                      ffi::AnyBuffer b, ffi::AnyBuffer first_label, ffi::AnyBuffer, ffi::AnyBuffer,
                      int64_t threads, ffi::Result<ffi::AnyBuffer> scores, ffi::Result<ffi::AnyBuffer> labels) {
  return call(value, column, offset, W, b, first_label, threads, *scores, *labels);
}

auto binding() {
  return ffi::Ffi::Bind()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Attr<int64_t>("threads")
      .Ret<ffi::AnyBuffer>()
      .Ret<ffi::AnyBuffer>();
}

}  // namespace

XMCJAX_HANDLER(xmcjax_merge_topk, merge_topk, binding())

}  // namespace xmcjax
