// The kernels and the order in which they run. Compiled as C++ with XMCJAX_ON_HOST, the same on the CPU, one
// warp after the other.
#include "run.h"

namespace xmcjax::cuda {
namespace {

template <class F>
void over_panels(int32_t lanes, F&& f) {
  for (int32_t first = 0; first < lanes; first += kTiles * kWarp) {
    const int32_t left = (lanes - first + kWarp - 1) / kWarp;
    f(Panel{first, left < kTiles ? left : kTiles, lanes});
  }
}

template <class T>
Join<T> joined(const Rows<T>& rows, Sums<T> sums, const uint32_t* active, const Panel& panel) {
  const int32_t end = panel.first + panel.tiles * kWarp;
  return {rows, sums, active, panel.first, end < panel.lanes ? end : panel.lanes, panel.lanes};
}

template <class T, int TILES, bool WHOLE>
void columns_of(Launches& launch, const Rows<T>& rows, const T* c, const uint32_t* words, Sums<T> sums,
                const Panel& panel, bool square) {
  using Body = Columns<T, TILES, WHOLE>;
  launch(Body::warps(rows, panel), Body{rows, c, words, sums, panel, square});
}

// Aᵀ C of one panel, whose words are known.
template <bool WHOLE, class T>
void columns(Launches& launch, const Rows<T>& rows, const T* c, const uint32_t* words, Sums<T> sums,
             const Panel& panel, bool square) {
  // tiles of a warp, whose sums have to stay in registers
  constexpr int kSome = sizeof(T) == 4 ? 4 : 2, kMost = sizeof(T) == 4 ? 8 : 2;
  if (panel.tiles == 1) columns_of<T, 1, false>(launch, rows, c, words, sums, panel, square);
  else if (panel.tiles <= kSome) columns_of<T, kSome, WHOLE>(launch, rows, c, words, sums, panel, square);
  else columns_of<T, kMost, WHOLE>(launch, rows, c, words, sums, panel, square);
  const Join<T> join = joined(rows, sums, nullptr, panel);
  launch(Join<T>::warps(rows, join.end - join.first), join);
}

// X V of the rows that room.words has, times D where d is not null, into room.scores.
template <class T>
void scores_of(Launches& launch, const Rows<T>& rows, const T* v, const T* d, Room<T> room,
               const Panel& panel) {
  const int32_t parts = parts_of(rows.pieces);
  const int64_t warps = resident_warps();  // of the device of the stream
  launch(parts, Count{room.words, rows.row, room.counts, rows.pieces, panel.tiles});
  launch(1, Scan{room.counts, room.total, parts});
  launch(parts, List{room.words, rows.row, room.counts, room.list, rows.pieces, panel.tiles});
  launch(warps, Scores<T>{rows, v, d, room.scores, room.list, room.total, panel, warps});
  const Join<T> join = joined(rows, room.scores, room.words, panel);
  launch(Join<T>::warps(rows, join.end - join.first), join);
}

// Sums of 64 parts, and of 64 of these, until at most 64 are left; returns where they are, and how many.
struct Folded {
  double* at;
  int32_t count;
};

Folded folded(Launches& launch, double* in, int32_t count, int64_t width) {
  for (; count > kFold; count = (count + kFold - 1) / kFold) {
    double* out = in + count * width;
    launch(Fold::warps(count, width), Fold{in, out, count, width});
    in = out;
  }
  return {in, count};
}

// out[first + i] = Σ parts[k, i], times `times` where it is not null
template <class T>
void total(Launches& launch, double* parts, int32_t count, int32_t width, T* out, const T* times,
           int32_t first, int32_t lanes) {
  const Folded last = folded(launch, parts, count, width);
  launch(Total<T>::warps(width), Total<T>{last.at, out, times, last.count, width, first, lanes});
}

}  // namespace

template <class T>
std::string product(Stream stream, const Rows<T>& rows, const T* v, Sums<T> sums, int32_t lanes,
                    bool square) {
  constexpr int kWide = 16 / int(sizeof(T));
  Launches launch(stream);
  if (lanes >= kWarp * kWide && lanes % kWide == 0)
    launch(Product<T, kWide>::warps(rows, lanes), Product<T, kWide>{rows, v, sums, lanes, square});
  else if (lanes >= kWarp * kWide)
    launch(Product<T, kWide, true>::warps(rows, lanes),
           Product<T, kWide, true>{rows, v, sums, lanes, square});
  else launch(Product<T, 1>::warps(rows, lanes), Product<T, 1>{rows, v, sums, lanes, square});
  launch(Join<T>::warps(rows, lanes), Join<T>{rows, sums, nullptr, 0, lanes, lanes});
  return launch.fault;
}

template <class T>
std::string transposed(Stream stream, const Rows<T>& rows, const T* c, int32_t n, uint32_t* words,
                       Sums<T> sums, int32_t lanes, bool square) {
  Launches launch(stream);
  over_panels(lanes, [&](const Panel& panel) {
    launch(n, Mark<T>{c, nullptr, words, panel});
    columns<true>(launch, rows, c, words, sums, panel, square);
  });
  return launch.fault;
}

template <class T>
std::string gram(Stream stream, const Rows<T>& rows, const Rows<T>& transpose, const T* d, const T* v,
                 const uint8_t* alive, Room<T> room, Sums<T> sums, int32_t lanes) {
  Launches launch(stream);
  over_panels(lanes, [&](const Panel& panel) {
    launch(rows.m, Mark<T>{d, alive, room.words, panel});
    scores_of(launch, rows, v, d, room, panel);
    columns<false>(launch, transpose, (const T*)room.scores.out, room.words, sums, panel, false);
  });
  return launch.fault;
}

template <class T>
std::string centred(Stream stream, const Rows<T>& rows, const Rows<T>& transpose, const T* d, const T* v,
                    Centring<T> of, Room<T> room, Sums<T> sums, int32_t lanes) {
  Launches launch(stream);
  const int32_t n = rows.m, tiles = (lanes + kWarp - 1) / kWarp, parts = (n + kSummed - 1) / kSummed;
  over_panels(lanes, [&](const Panel& panel) {
    launch(Words::warps(n), Words{of.bits, of.open, room.words, panel, n, tiles});
    scores_of(launch, rows, v, (const T*)nullptr, room, panel);
    T* scores = room.scores.out;
    const int64_t warps = int64_t(parts) * panel.tiles;
    launch(warps, Centre<T, false>{scores, d, room.words, of.q, of.parts, panel, n});
    total(launch, of.parts, parts, panel.tiles * kWarp, of.q, of.of_bias, panel.first, lanes);
    launch(warps, Centre<T, true>{scores, d, room.words, of.q, of.parts, panel, n});
    total(launch, of.parts, parts, panel.tiles * kWarp, of.along, (const T*)nullptr, panel.first, lanes);
    columns<false>(launch, transpose, (const T*)scores, room.words, sums, panel, false);
  });
  return launch.fault;
}

template <class T>
std::string residual(Stream stream, T* r, const T* p, const T* product, Lanes<T> of, double* parts, T* sums,
                     int32_t d, int32_t lanes) {
  Launches launch(stream);
  const int32_t count = (d + kSummed - 1) / kSummed;
  launch(int64_t(count) * ((lanes + kWarp - 1) / kWarp), Residual<T>{r, p, product, of, parts, d, lanes});
  total(launch, parts, count, lanes, sums, (const T*)nullptr, 0, lanes);
  return launch.fault;
}

template <class T>
std::string direction(Stream stream, T* x, T* p, const T* r, Lanes<T> of, double* parts, T* sums, int32_t d,
                      int32_t lanes) {
  Launches launch(stream);
  const int32_t count = (d + kSummed - 1) / kSummed;
  launch(int64_t(count) * ((lanes + kWarp - 1) / kWarp), Direction<T>{x, p, r, of, parts, d, lanes});
  total(launch, parts, count, lanes, sums, (const T*)nullptr, 0, lanes);
  return launch.fault;
}

namespace {

template <class T, int LOSS>
std::string plane_sums_of(Stream stream, const PlaneArguments<T>& a) {
  Launches launch(stream);
  const int32_t count = (a.n + kRows - 1) / kRows, tiles = (a.lanes + kWarp - 1) / kWarp;
  const int32_t width = kSums * a.lanes;
  launch(
      int64_t(count) * tiles,
      PlaneSums<T, LOSS>{a.z,
                         a.m,
                         a.y,
                         {a.weight, a.weight_of_row ? (a.weight_of_lane ? a.lanes : 1) : 0, a.weight_of_lane},
                         {a.shift, a.shift_of_row ? (a.shift_of_lane ? a.lanes : 1) : 0, a.shift_of_lane},
                         a.t,
                         a.beta,
                         a.fresh,
                         a.parts,
                         T(a.parameter),
                         a.n,
                         a.lanes});
  total(launch, a.parts, count, width, a.out, (const T*)nullptr, 0, width);
  return launch.fault;
}

}  // namespace

template <class T>
std::string plane_sums(Stream stream, int64_t loss, const PlaneArguments<T>& a) {
  switch (loss) {
    case kSquaredHinge: return plane_sums_of<T, kSquaredHinge>(stream, a);
    case kLogistic: return plane_sums_of<T, kLogistic>(stream, a);
    case kHuberHinge: return plane_sums_of<T, kHuberHinge>(stream, a);
    case kPoisson: return plane_sums_of<T, kPoisson>(stream, a);
    default: return "no loss has the number " + std::to_string(loss);
  }
}

template <class T>
std::string pairs(Stream stream, const PairArguments<T>& a) {
  Launches launch(stream);
  launch(a.n, Pairs<T>{a});
  return launch.fault;
}

template <class K>
std::string topk(Stream stream, const LargestArguments<K>& a) {
  Launches launch(stream);
  const auto rows = [&](const K* in, const int32_t* names, K* out, int32_t* place, int32_t m, int32_t parts,
                        int32_t length) {
    if (m <= kShortRow) launch(a.n * parts, LargestOfRow<K, 1>{in, names, out, place, m, a.k, parts, length});
    else
      launch(a.n * parts, LargestOfRow<K, 16 / int(sizeof(K))>{in, names, out, place, m, a.k, parts, length});
  };
  if (a.parts == 1) {
    rows(a.in, nullptr, a.out, a.place, a.m, 1, a.m);
  } else {  // those of each part, then the largest of these, in which equal ones stand in the order of their places
    rows(a.in, nullptr, a.of_parts, a.place_of_parts, a.m, a.parts, a.length);
    const int32_t found = a.parts * a.k;
    rows(a.of_parts, a.place_of_parts, a.out, a.place, found, 1, found);
  }
  return launch.fault;
}

#define XMCJAX_OF(T)                                                                                         \
  template std::string product<T>(Stream, const Rows<T>&, const T*, Sums<T>, int32_t, bool);                 \
  template std::string transposed<T>(Stream, const Rows<T>&, const T*, int32_t, uint32_t*, Sums<T>, int32_t, \
                                     bool);                                                                  \
  template std::string gram<T>(Stream, const Rows<T>&, const Rows<T>&, const T*, const T*, const uint8_t*,   \
                               Room<T>, Sums<T>, int32_t);                                                   \
  template std::string centred<T>(Stream, const Rows<T>&, const Rows<T>&, const T*, const T*, Centring<T>,   \
                                  Room<T>, Sums<T>, int32_t);                                                \
  template std::string residual<T>(Stream, T*, const T*, const T*, Lanes<T>, double*, T*, int32_t, int32_t); \
  template std::string direction<T>(Stream, T*, T*, const T*, Lanes<T>, double*, T*, int32_t, int32_t);      \
  template std::string plane_sums<T>(Stream, int64_t, const PlaneArguments<T>&);                             \
  template std::string pairs<T>(Stream, const PairArguments<T>&);
XMCJAX_OF(float)
XMCJAX_OF(double)
template std::string topk<int32_t>(Stream, const LargestArguments<int32_t>&);
template std::string topk<int64_t>(Stream, const LargestArguments<int64_t>&);

#ifdef __CUDACC__

std::string unusable() {
  int driver = 0, runtime = 0, devices = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0) return "there is no driver of CUDA";
  if (driver < runtime)
    return "they need a driver for CUDA " + std::to_string(runtime / 1000) + "." +
           std::to_string(runtime % 1000 / 10) + ", and this one is for " + std::to_string(driver / 1000) +
           "." + std::to_string(driver % 1000 / 10);
  if (const cudaError_t error = cudaGetDeviceCount(&devices)) return said(error);
  for (int device = 0; device < devices; ++device) {
    int major = 0, minor = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (major * 10 + minor < 75)
      return "they need compute capability 7.5, and a GPU here has " + std::to_string(major) + "." +
             std::to_string(minor);
  }
  return devices == 0 ? "there is no GPU" : "";
}

#else

std::string unusable() { return "they were compiled for the CPU, to be tested"; }

#endif

}  // namespace xmcjax::cuda
