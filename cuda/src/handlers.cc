// The kernels as targets of XLA, xmcjax_cuda_*, for the stream that XLA computes on. xmcjax/native/_cuda.py
// says what the arrays are. With XMCJAX_ON_HOST they are targets for the CPU, which tests call.
#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "launch.h"
#include "xla/ffi/api/ffi.h"

// Raised with ABI in xmcjax/native/_cuda.py whenever the arrays of a target change.
#define XMCJAX_CUDA_ABI 5
#define XMCJAX_EXPORT extern "C" __attribute__((visibility("default")))

namespace ffi = xla::ffi;

namespace xmcjax::cuda {
struct NoStream {};
}  // namespace xmcjax::cuda

#ifdef XMCJAX_ON_HOST
using StreamOfXla = xmcjax::cuda::NoStream;
template <>
struct xla::ffi::CtxDecoding<xmcjax::cuda::NoStream> {
  using Type = xmcjax::cuda::Stream;
  static std::optional<Type> Decode(const XLA_FFI_Api*, XLA_FFI_ExecutionContext*, DiagnosticEngine&) {
    return nullptr;
  }
};
#else
using StreamOfXla = ffi::PlatformStream<xmcjax::cuda::Stream>;
#endif

namespace xmcjax::cuda {
namespace {

constexpr int kOfRows = 7;  // arrays that a sparse matrix is made of

struct Unfit {
  std::string why;
};

// The arrays of a call, by their places; Unfit where one is missing or not as expected.
class Arrays {
 public:
  Arrays(ffi::RemainingArgs in, ffi::RemainingRets out) : in_(in), out_(out) {}

  ffi::AnyBuffer in(size_t i) const {
    auto buffer = in_.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) throw Unfit{"argument " + std::to_string(i) + " is missing"};
    return *buffer;
  }
  ffi::AnyBuffer out(size_t i) const {
    auto buffer = out_.get<ffi::AnyBuffer>(i);
    if (!buffer.has_value()) throw Unfit{"result " + std::to_string(i) + " is missing"};
    return **buffer;
  }

  template <class T>
  const T* given(size_t i, std::initializer_list<int64_t> shape) const {
    return checked<T>(in(i), shape, "argument ", i);
  }

  template <class T>
  T* made(size_t i, std::initializer_list<int64_t> shape) const {
    return checked<T>(out(i), shape, "result ", i);
  }

  // `count` numbers, with any axes.
  template <class T>
  const T* numbers(size_t i, int64_t count) const {
    return counted<T>(in(i), count, "argument ", i);
  }
  template <class T>
  T* made_numbers(size_t i, int64_t count) const {
    return counted<T>(out(i), count, "result ", i);
  }

  // An argument that the call changes in place: XLA gives its result the same memory.
  template <class T>
  T* changed(size_t argument, size_t result, std::initializer_list<int64_t> shape) const {
    T* to = made<T>(result, shape);
    if (given<T>(argument, shape) != to)
      throw Unfit{"argument " + std::to_string(argument) + " is not changed in place"};
    return to;
  }

  // `least` numbers at least.
  template <class T>
  T* room(size_t i, int64_t least) const {
    if (out(i).size_bytes() < size_t(least) * sizeof(T))
      throw Unfit{"result " + std::to_string(i) + " is too small"};
    return reinterpret_cast<T*>(out(i).untyped_data());
  }

  int64_t size(size_t i, size_t axis) const {
    const auto dimensions = in(i).dimensions();
    if (axis >= dimensions.size()) throw Unfit{"argument " + std::to_string(i) + " has too few axes"};
    return dimensions[axis];
  }

  // The matrix whose kOfRows arrays begin at `first`; sums_of() sets the number of its rows.
  template <class T>
  Rows<T> rows(size_t first) const {
    Rows<T> rows;
    const int64_t groups = size(first, 0), pieces = size(first + 2, 0), longs = size(first + 5, 0);
    rows.value = given<T>(first, {groups, kGroup});
    rows.index = given<int32_t>(first + 1, {groups, kGroup});
    rows.start = given<int32_t>(first + 2, {pieces});
    rows.stop = given<int32_t>(first + 3, {pieces});
    rows.row = given<int32_t>(first + 4, {pieces});
    rows.longs = given<int32_t>(first + 5, {longs});
    rows.more = given<int32_t>(first + 6, {longs + 1});
    rows.pieces = int32_t(pieces), rows.long_rows = int32_t(longs), rows.m = 0;
    return rows;
  }

 private:
  template <class T>
  static T* checked(ffi::AnyBuffer buffer, std::initializer_list<int64_t> shape, const char* what, size_t i) {
    const auto dimensions = buffer.dimensions();
    const bool fits = std::equal(dimensions.begin(), dimensions.end(), shape.begin(), shape.end());
    if (!fits || buffer.size_bytes() != buffer.element_count() * sizeof(T))
      throw Unfit{what + std::to_string(i) + " has another shape or type than expected"};
    return reinterpret_cast<T*>(buffer.untyped_data());
  }

  template <class T>
  static T* counted(ffi::AnyBuffer buffer, int64_t count, const char* what, size_t i) {
    if (int64_t(buffer.element_count()) != count || buffer.size_bytes() != size_t(count) * sizeof(T))
      throw Unfit{what + std::to_string(i) + " has another shape or type than expected"};
    return reinterpret_cast<T*>(buffer.untyped_data());
  }

  ffi::RemainingArgs in_;
  ffi::RemainingRets out_;
};

int64_t tiles_of(int64_t lanes) { return (lanes + kWarp - 1) / kWarp; }
int64_t tiles_of_panel(int64_t lanes) { return std::min<int64_t>(tiles_of(lanes), kTiles); }

template <class T>
Sums<T> sums_of(const Arrays& arrays, size_t first, Rows<T>& rows, int64_t m, int64_t lanes) {
  if (m > rows.pieces) throw Unfit{"there are fewer pieces than rows"};
  rows.m = int32_t(m);
  return {arrays.made<T>(first, {m, lanes}), arrays.made<T>(first + 1, {rows.pieces - m, lanes})};
}

// What products of active rows work with, in the results from `first` on.
template <class T>
Room<T> room_of(const Arrays& arrays, size_t first, Rows<T>& rows, int64_t n, int64_t lanes) {
  Room<T> room;
  room.scores = sums_of(arrays, first, rows, n, lanes);
  room.words = arrays.made<uint32_t>(first + 2, {n});
  room.counts = arrays.room<int32_t>(first + 3, int64_t(parts_of(rows.pieces)) * kTiles);
  const int64_t items = rows.pieces * tiles_of_panel(lanes);
  if (items > INT32_MAX)
    throw Unfit{"there are more than 2^31 - 1 pieces of rows in the tiles of 1024 lanes"};
  room.list = arrays.room<Item>(first + 4, items);
  room.total = arrays.room<int32_t>(first + 5, 1);
  return room;
}

// f(T()) for the type of the numbers of argument `place`.
template <class F>
ffi::Error typed(const Arrays& arrays, size_t place, F&& f) {
  std::string fault;
  try {
    switch (arrays.in(place).element_type()) {
      case ffi::F32: fault = f(float()); break;
      case ffi::F64: fault = f(double()); break;
      default: return ffi::Error::InvalidArgument("xmcjax_cuda: expected numbers of float32 or float64");
    }
  } catch (const Unfit& unfit) {
    return ffi::Error::InvalidArgument("xmcjax_cuda: " + unfit.why);
  }
  return fault.empty() ? ffi::Error::Success() : ffi::Error::Internal("xmcjax_cuda: " + fault);
}

// A, V -> A V, its further pieces
ffi::Error product_call(Stream stream, ffi::RemainingArgs in, ffi::RemainingRets out, int64_t m,
                        bool square) {
  const Arrays arrays(in, out);
  return typed(arrays, 0, [&](auto zero) {
    using T = decltype(zero);
    Rows<T> rows = arrays.rows<T>(0);
    const int64_t lanes = arrays.size(kOfRows, 1);
    const T* v = arrays.given<T>(kOfRows, {arrays.size(kOfRows, 0), lanes});
    const Sums<T> sums = sums_of(arrays, 0, rows, m, lanes);
    return product(stream, rows, v, sums, int32_t(lanes), square);
  });
}

// Xᵀ as rows, C -> Xᵀ C, its further pieces, words
ffi::Error transposed_call(Stream stream, ffi::RemainingArgs in, ffi::RemainingRets out, int64_t d,
                           bool square) {
  const Arrays arrays(in, out);
  return typed(arrays, 0, [&](auto zero) {
    using T = decltype(zero);
    Rows<T> columns = arrays.rows<T>(0);
    const int64_t n = arrays.size(kOfRows, 0), lanes = arrays.size(kOfRows, 1);
    const T* c = arrays.given<T>(kOfRows, {n, lanes});
    const Sums<T> sums = sums_of(arrays, 0, columns, d, lanes);
    return transposed(stream, columns, c, int32_t(n), arrays.made<uint32_t>(2, {n}), sums, int32_t(lanes),
                      square);
  });
}

// X, Xᵀ as rows, D, V, alive -> Xᵀ(D ∘ (X V)), its further pieces; scores, further pieces, words, counts,
// list, total
ffi::Error gram_call(Stream stream, ffi::RemainingArgs in, ffi::RemainingRets out) {
  const Arrays arrays(in, out);
  return typed(arrays, 0, [&](auto zero) {
    using T = decltype(zero);
    Rows<T> rows = arrays.rows<T>(0), columns = arrays.rows<T>(kOfRows);
    constexpr size_t kD = 2 * kOfRows, kV = kD + 1, kAlive = kD + 2;
    const int64_t n = arrays.size(kD, 0), lanes = arrays.size(kD, 1), d = arrays.size(kV, 0);
    const T* curvature = arrays.given<T>(kD, {n, lanes});
    const T* v = arrays.given<T>(kV, {d, lanes});
    const uint8_t* alive = arrays.given<uint8_t>(kAlive, {lanes});
    const Sums<T> sums = sums_of(arrays, 0, columns, d, lanes);
    const Room<T> room = room_of<T>(arrays, 2, rows, n, lanes);
    return gram(stream, rows, columns, curvature, v, alive, room, sums, int32_t(lanes));
  });
}

// X, Xᵀ as rows, D, bits, V, open, 1/h -> Xᵀ(D ∘ (X V − q)), its further pieces; scores, further pieces, words,
// counts, list, total; q, Σ D e², parts of them
ffi::Error cg_product_call(Stream stream, ffi::RemainingArgs in, ffi::RemainingRets out) {
  const Arrays arrays(in, out);
  return typed(arrays, 0, [&](auto zero) {
    using T = decltype(zero);
    Rows<T> rows = arrays.rows<T>(0), columns = arrays.rows<T>(kOfRows);
    constexpr size_t kD = 2 * kOfRows, kBits = kD + 1, kV = kD + 2, kOpen = kD + 3, kOfBias = kD + 4;
    const int64_t n = arrays.size(kD, 0), lanes = arrays.size(kD, 1), d = arrays.size(kV, 0);
    const T* curvature = arrays.given<T>(kD, {n, lanes});
    const T* v = arrays.given<T>(kV, {d, lanes});
    const Sums<T> sums = sums_of(arrays, 0, columns, d, lanes);
    const Room<T> room = room_of<T>(arrays, 2, rows, n, lanes);
    Centring<T> of;
    of.bits = arrays.given<uint32_t>(kBits, {n, tiles_of(lanes)});
    of.open = arrays.given<uint8_t>(kOpen, {lanes}), of.of_bias = arrays.given<T>(kOfBias, {lanes});
    of.q = arrays.made<T>(8, {lanes}), of.along = arrays.made<T>(9, {lanes});
    const int64_t width = tiles_of_panel(lanes) * kWarp;
    of.parts = arrays.room<double>(10, room_of_parts((n + kSummed - 1) / kSummed) * width);
    return centred(stream, rows, columns, curvature, v, of, room, sums, int32_t(lanes));
  });
}

// r, p, product, M⁻¹, α, λ, whether there is M -> r in place, sums, parts of them
ffi::Error cg_residual_call(Stream stream, ffi::RemainingArgs in, ffi::RemainingRets out) {
  const Arrays arrays(in, out);
  return typed(arrays, 0, [&](auto zero) {
    using T = decltype(zero);
    const int64_t d = arrays.size(0, 0), lanes = arrays.size(0, 1);
    Lanes<T> of{};
    of.inverse = arrays.given<T>(3, {d, lanes}), of.alpha = arrays.given<T>(4, {lanes});
    of.l2 = arrays.given<T>(5, {1}), of.preconditioned = arrays.given<T>(6, {1});
    return residual(stream, arrays.changed<T>(0, 0, {d, lanes}), arrays.given<T>(1, {d, lanes}),
                    arrays.given<T>(2, {d, lanes}), of,
                    arrays.room<double>(2, room_of_parts((d + kSummed - 1) / kSummed) * lanes),
                    arrays.made<T>(1, {lanes}), int32_t(d), int32_t(lanes));
  });
}

// x, p, r, M⁻¹, α, β, open, whether there is M -> x and p in place, sums, parts of them
ffi::Error cg_direction_call(Stream stream, ffi::RemainingArgs in, ffi::RemainingRets out) {
  const Arrays arrays(in, out);
  return typed(arrays, 0, [&](auto zero) {
    using T = decltype(zero);
    const int64_t d = arrays.size(0, 0), lanes = arrays.size(0, 1);
    Lanes<T> of{};
    of.inverse = arrays.given<T>(3, {d, lanes}), of.alpha = arrays.given<T>(4, {lanes});
    of.beta = arrays.given<T>(5, {lanes}), of.open = arrays.given<uint8_t>(6, {lanes});
    of.preconditioned = arrays.given<T>(7, {1});
    return direction(stream, arrays.changed<T>(0, 0, {d, lanes}), arrays.changed<T>(1, 1, {d, lanes}),
                     arrays.given<T>(2, {d, lanes}), of,
                     arrays.room<double>(3, room_of_parts((d + kSummed - 1) / kSummed) * lanes),
                     arrays.made<T>(2, {lanes}), int32_t(d), int32_t(lanes));
  });
}

// z, m, y, c, o, t, β, fresh -> the six sums of each lane, parts of them
ffi::Error plane_sums_call(Stream stream, ffi::RemainingArgs in, ffi::RemainingRets out, int64_t loss,
                           double parameter) {
  const Arrays arrays(in, out);
  return typed(arrays, 0, [&](auto zero) {
    using T = decltype(zero);
    const int64_t n = arrays.size(0, 0), lanes = arrays.size(0, 1);
    PlaneArguments<T> a;
    a.z = arrays.given<T>(0, {n, lanes}), a.m = arrays.given<T>(1, {n, lanes});
    a.y = arrays.given<int8_t>(2, {n, lanes});
    const int64_t of_c[] = {arrays.size(3, 0), arrays.size(3, 1)},
                  of_o[] = {arrays.size(4, 0), arrays.size(4, 1)};
    for (const auto& shape : {of_c, of_o})
      if ((shape[0] != 1 && shape[0] != n) || (shape[1] != 1 && shape[1] != lanes))
        throw Unfit{"weights or shifts have another shape than expected"};
    a.weight = arrays.given<T>(3, {of_c[0], of_c[1]}), a.shift = arrays.given<T>(4, {of_o[0], of_o[1]});
    a.weight_of_row = of_c[0] > 1, a.weight_of_lane = of_c[1] > 1;
    a.shift_of_row = of_o[0] > 1, a.shift_of_lane = of_o[1] > 1;
    a.t = arrays.given<T>(5, {lanes}), a.beta = arrays.given<T>(6, {lanes});
    a.fresh = arrays.given<uint8_t>(7, {lanes});
    a.out = arrays.made<T>(0, {6, lanes});
    a.parts = arrays.room<double>(1, room_of_parts((n + kRows - 1) / kRows) * kSums * lanes);
    a.parameter = parameter, a.n = int32_t(n), a.lanes = int32_t(lanes);
    return plane_sums(stream, loss, a);
  });
}

// x, feature, indptr of rows, value, label, begin of weights by feature -> scores
ffi::Error pairs_call(Stream stream, ffi::RemainingArgs in, ffi::RemainingRets out, int64_t labels) {
  const Arrays arrays(in, out);
  return typed(arrays, 0, [&](auto zero) {
    using T = decltype(zero);
    const int64_t entries = arrays.size(0, 0), rows = arrays.size(2, 0), weights = arrays.size(3, 0);
    if (rows < 1) throw Unfit{"the rows begin nowhere"};
    PairArguments<T> a;
    a.x = arrays.given<T>(0, {entries}), a.feature = arrays.given<int32_t>(1, {entries});
    a.indptr = arrays.given<int32_t>(2, {rows});
    a.value = arrays.given<T>(3, {weights}), a.label = arrays.given<int32_t>(4, {weights});
    a.begin = arrays.given<int32_t>(5, {arrays.size(5, 0)});
    a.out = arrays.made<T>(0, {rows - 1, labels});
    a.n = int32_t(rows - 1), a.labels = int32_t(labels);
    return pairs(stream, a);
  });
}

// a [..., m] -> the k largest of each row, their places; both of each part, empty where there is one
ffi::Error topk_call(Stream stream, ffi::RemainingArgs in, ffi::RemainingRets out, int64_t k, int64_t parts,
                     int64_t length) {
  const Arrays arrays(in, out);
  return typed(arrays, 0, [&](auto zero) {
    using K = std::conditional_t<sizeof(zero) == 4, int32_t, int64_t>;
    const auto numbers = arrays.in(0);
    const auto dimensions = numbers.dimensions();
    if (dimensions.size() == 0) throw Unfit{"argument 0 has too few axes"};
    const int64_t m = dimensions.back(), count = int64_t(numbers.element_count());
    if (k < 1 || k > kMostBest || k > m || m > (1 << 30) || parts < 1 || length < 1 ||
        (parts - 1) * length + k > m || m > parts * length)
      throw Unfit{"k or the parts of a row do not fit to its entries"};
    LargestArguments<K> a;
    a.n = count / m, a.m = int32_t(m), a.k = int32_t(k), a.parts = int32_t(parts), a.length = int32_t(length);
    a.in = static_cast<const K*>(numbers.untyped_data());
    a.out = arrays.room<K>(0, a.n * k), a.place = arrays.room<int32_t>(1, a.n * k);
    const int64_t of_parts = parts > 1 ? a.n * parts * k : 0;
    a.of_parts = arrays.room<K>(2, of_parts), a.place_of_parts = arrays.room<int32_t>(3, of_parts);
    return topk(stream, a);
  });
}

// Vectors [..., m] of argument 0: how many, m, and whether all given arrays can be read by 16 bytes.
struct Shape {
  int64_t n, m;
  Shape(const Arrays& arrays) {
    const auto dimensions = arrays.in(0).dimensions();
    if (dimensions.size() == 0 || dimensions.back() < 1) throw Unfit{"there is no vector"};
    m = dimensions.back(), n = int64_t(arrays.in(0).element_count()) / m;
  }
  template <class T>
  bool packed(std::initializer_list<const T*> given) const {
    return m * sizeof(T) % 16 == 0 && std::all_of(given.begin(), given.end(), [](const T* a) {
             return reinterpret_cast<uintptr_t>(a) % 16 == 0;
           });
  }
};

// b, r, l, u, ρ, k -> x, whether the sum is r
ffi::Error project_box_call(Stream stream, ffi::RemainingArgs in, ffi::RemainingRets out, bool at_most,
                            bool by_k) {
  const Arrays arrays(in, out);
  return typed(arrays, 0, [&](auto zero) {
    using T = decltype(zero);
    const Shape shape(arrays);
    if (by_k && !at_most) throw Unfit{"by_k is of at_most alone"};
    BoxArguments<T> a;
    a.n = shape.n, a.m = shape.m, a.at_most = at_most, a.by_k = by_k;
    a.b = arrays.numbers<T>(0, a.n * a.m), a.radius = arrays.numbers<T>(1, a.n);
    a.lower = arrays.numbers<T>(2, a.n), a.upper = arrays.numbers<T>(3, a.n);
    a.rho = arrays.numbers<T>(4, a.n), a.k = arrays.numbers<T>(5, a.n);
    a.x = arrays.made_numbers<T>(0, a.n * a.m), a.tight = arrays.made_numbers<T>(1, a.n);
    a.packed = shape.packed<T>({a.b, a.x});
    return project_box(stream, a);
  });
}

// b, r, ρ -> x, u, whether the sum is r
ffi::Error project_topk_call(Stream stream, ffi::RemainingArgs in, ffi::RemainingRets out, int64_t k) {
  const Arrays arrays(in, out);
  return typed(arrays, 0, [&](auto zero) {
    using T = decltype(zero);
    const Shape shape(arrays);
    if (k < 1 || k > shape.m) throw Unfit{"k is not between 1 and the length of the vectors"};
    TopkArguments<T> a;
    a.n = shape.n, a.m = shape.m, a.k = k;
    a.b = arrays.numbers<T>(0, a.n * a.m), a.radius = arrays.numbers<T>(1, a.n);
    a.rho = arrays.numbers<T>(2, a.n);
    a.x = arrays.made_numbers<T>(0, a.n * a.m), a.u = arrays.made_numbers<T>(1, a.n);
    a.tight = arrays.made_numbers<T>(2, a.n);
    a.packed = shape.packed<T>({a.b, a.x});
    return project_topk(stream, a);
  });
}

// b, r, l, u, w -> x, t
ffi::Error project_weighted_call(Stream stream, ffi::RemainingArgs in, ffi::RemainingRets out) {
  const Arrays arrays(in, out);
  return typed(arrays, 0, [&](auto zero) {
    using T = decltype(zero);
    const Shape shape(arrays);
    WeightedArguments<T> a;
    a.n = shape.n, a.m = shape.m;
    const int64_t all = a.n * a.m;
    a.b = arrays.numbers<T>(0, all), a.radius = arrays.numbers<T>(1, a.n);
    a.lower = arrays.numbers<T>(2, all), a.upper = arrays.numbers<T>(3, all);
    a.weights = arrays.numbers<T>(4, all);
    a.x = arrays.made_numbers<T>(0, all), a.t = arrays.made_numbers<T>(1, a.n);
    a.packed = shape.packed<T>({a.b, a.lower, a.upper, a.weights, a.x});
    return project_weighted(stream, a);
  });
}

}  // namespace
}  // namespace xmcjax::cuda

// A target of XLA that the library exports; `binding` is what it is bound to besides the stream, arguments and results.
#define XMCJAX_TARGET(name, function, binding)                              \
  XMCJAX_EXPORT XLA_FFI_Error* xmcjax_cuda_##name(XLA_FFI_CallFrame*);      \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(xmcjax_cuda_##name, xmcjax::cuda::function, \
                                ffi::Ffi::Bind().Ctx<StreamOfXla>().RemainingArgs().RemainingRets() binding)

XMCJAX_TARGET(matmat, product_call, .Attr<int64_t>("rows").Attr<bool>("square"));
XMCJAX_TARGET(rmatmat, transposed_call, .Attr<int64_t>("rows").Attr<bool>("square"));
XMCJAX_TARGET(gram_matmat, gram_call, );
XMCJAX_TARGET(cg_product, cg_product_call, );
XMCJAX_TARGET(cg_residual, cg_residual_call, );
XMCJAX_TARGET(cg_direction, cg_direction_call, );
XMCJAX_TARGET(plane_sums, plane_sums_call, .Attr<int64_t>("loss").Attr<double>("parameter"));
XMCJAX_TARGET(pairs, pairs_call, .Attr<int64_t>("labels"));
XMCJAX_TARGET(topk, topk_call, .Attr<int64_t>("k").Attr<int64_t>("parts").Attr<int64_t>("length"));
XMCJAX_TARGET(project_box, project_box_call, .Attr<bool>("at_most").Attr<bool>("by_k"));
XMCJAX_TARGET(project_topk, project_topk_call, .Attr<int64_t>("k"));
XMCJAX_TARGET(project_weighted, project_weighted_call, );

XMCJAX_EXPORT int xmcjax_cuda_abi() { return XMCJAX_CUDA_ABI; }

// "" where the kernels run on this machine, else why they do not.
XMCJAX_EXPORT const char* xmcjax_cuda_unusable() {
  static const std::string why = xmcjax::cuda::unusable();
  return why.c_str();
}
