// XLA FFI handlers of the projections (projections/_knapsack.py and _topk.py): any number of leading
// axes, which are rows here.
#include "interface/ffi_support.h"

namespace xmcjax {
namespace {

// The numbers of a row, one for each vector of b.
bool per_row(const ffi::AnyBuffer& b, const ffi::AnyBuffer& numbers) {
  return numbers.element_type() == b.element_type() &&
         numbers.element_count() * size_t(b.dimensions().back()) == b.element_count();
}

ffi::Error check(const ffi::AnyBuffer& b, std::initializer_list<const ffi::AnyBuffer*> numbers,
                 ffi::Result<ffi::AnyBuffer>& x) {
  if (b.dimensions().size() == 0 || b.dimensions().back() < 1) return expected("vectors on the last axis");
  if (b.element_type() != ffi::DataType::F32 && b.element_type() != ffi::DataType::F64)
    return expected("float32 or float64 vectors");
  if (x->element_count() != b.element_count() || x->element_type() != b.element_type())
    return expected("a result like the vectors");
  for (const ffi::AnyBuffer* one : numbers)
    if (!per_row(b, *one)) return expected("one number of the same dtype for each vector");
  return ffi::Error::Success();
}

template <class T>
ProjectionArgs<T> arguments(const ffi::AnyBuffer& b, const ffi::AnyBuffer& radius, const ffi::AnyBuffer& rho,
                            ffi::Result<ffi::AnyBuffer>& x, ffi::Result<ffi::AnyBuffer>& tight) {
  ProjectionArgs<T> args{};
  args.m = b.dimensions().back();
  args.rows = int64_t(b.element_count()) / args.m;
  args.b = b.typed_data<T>();
  args.radius = radius.typed_data<T>();
  args.rho = rho.typed_data<T>();
  args.x = x->typed_data<T>();
  args.tight = tight->typed_data<T>();
  return args;
}

template <class T>
void box(const ffi::AnyBuffer& b, const ffi::AnyBuffer& radius, const ffi::AnyBuffer& lower,
         const ffi::AnyBuffer& upper, const ffi::AnyBuffer& rho, bool at_most, ffi::Result<ffi::AnyBuffer>& x,
         ffi::Result<ffi::AnyBuffer>& tight) {
  ProjectionArgs<T> args = arguments<T>(b, radius, rho, x, tight);
  args.lower = lower.typed_data<T>();
  args.upper = upper.typed_data<T>();
  args.at_most = at_most;
  kernels<T>().project_box(args, 0, args.rows);
}

ffi::Error project_box(ffi::AnyBuffer b, ffi::AnyBuffer radius, ffi::AnyBuffer lower, ffi::AnyBuffer upper,
                       ffi::AnyBuffer rho, int64_t at_most, ffi::Result<ffi::AnyBuffer> x,
                       ffi::Result<ffi::AnyBuffer> tight) {
  if (auto error = check(b, {&radius, &lower, &upper, &rho, &*tight}, x); error.failure()) return error;
  if (b.element_type() == ffi::DataType::F32) {
    box<float>(b, radius, lower, upper, rho, at_most != 0, x, tight);
  } else {
    box<double>(b, radius, lower, upper, rho, at_most != 0, x, tight);
  }
  return ffi::Error::Success();
}

template <class T>
void topk(const ffi::AnyBuffer& b, const ffi::AnyBuffer& radius, const ffi::AnyBuffer& rho, int64_t k,
          ffi::Result<ffi::AnyBuffer>& x, ffi::Result<ffi::AnyBuffer>& width, ffi::Result<ffi::AnyBuffer>& tight) {
  ProjectionArgs<T> args = arguments<T>(b, radius, rho, x, tight);
  args.k = k;
  args.width = width->typed_data<T>();
  kernels<T>().project_topk(args, 0, args.rows);
}

ffi::Error project_topk(ffi::AnyBuffer b, ffi::AnyBuffer radius, ffi::AnyBuffer rho, int64_t k,
                        ffi::Result<ffi::AnyBuffer> x, ffi::Result<ffi::AnyBuffer> width,
                        ffi::Result<ffi::AnyBuffer> tight) {
  if (auto error = check(b, {&radius, &rho, &*width, &*tight}, x); error.failure()) return error;
  if (k < 1 || k > b.dimensions().back()) return expected("1 <= k <= the length of the vectors");
  if (b.element_type() == ffi::DataType::F32) {
    topk<float>(b, radius, rho, k, x, width, tight);
  } else {
    topk<double>(b, radius, rho, k, x, width, tight);
  }
  return ffi::Error::Success();
}

auto box_binding() {
  return ffi::Ffi::Bind()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Attr<int64_t>("at_most")
      .Ret<ffi::AnyBuffer>()
      .Ret<ffi::AnyBuffer>();
}
auto topk_binding() {
  return ffi::Ffi::Bind()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Arg<ffi::AnyBuffer>()
      .Attr<int64_t>("k")
      .Ret<ffi::AnyBuffer>()
      .Ret<ffi::AnyBuffer>()
      .Ret<ffi::AnyBuffer>();
}

}  // namespace

XMCJAX_HANDLER(xmcjax_project_box, project_box, box_binding())
XMCJAX_HANDLER(xmcjax_project_topk, project_topk, topk_binding())

}  // namespace xmcjax
