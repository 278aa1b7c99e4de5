// What the handlers ask for; kernels.cu makes it. Each returns "" or why a kernel could not be started.
#pragma once

#include <string>

#include "active_rows.h"
#include "box_rows.h"
#include "lane_cg.h"
#include "pairs.h"
#include "plane_sums.h"
#include "rows.h"
#include "topk.h"
#include "topk_rows.h"
#include "weighted_rows.h"

struct CUstream_st;  // what cudaStream_t points to

namespace xmcjax::cuda {

using Stream = struct ::CUstream_st*;

// parts_of(): parts of kPart pieces. Room: the working arrays of products with the active rows of X [n, d].
inline int32_t parts_of(int32_t pieces) { return (pieces + kPart - 1) / kPart; }

template <class T>
struct Room {
  Sums<T> scores;   // [n, lanes] and the further pieces of its rows
  uint32_t* words;  // [n]
  int32_t* counts;  // [parts, 32]
  Item* list;       // [pieces × the tiles of a panel]
  int32_t* total;   // [1]
};

// A V
template <class T>
std::string product(Stream, const Rows<T>& rows, const T* v, Sums<T> sums, int32_t lanes, bool square);

// Xᵀ C, of Xᵀ in rows and C [n, lanes]
template <class T>
std::string transposed(Stream, const Rows<T>& columns, const T* c, int32_t n, uint32_t* words, Sums<T> sums,
                       int32_t lanes, bool square);

// Xᵀ(D ∘ (X V)), without the lanes that are not alive
template <class T>
std::string gram(Stream, const Rows<T>& rows, const Rows<T>& columns, const T* d, const T* v,
                 const uint8_t* alive, Room<T> room, Sums<T> sums, int32_t lanes);

// Rows of float64 that sums of `count` parts take: the parts, sums of 64 of these, and so on.
inline int64_t room_of_parts(int64_t count) {
  int64_t all = count;
  while (count > kFold) all += count = (count + kFold - 1) / kFold;
  return all;
}

// What conjugate gradients ask for beside the arrays of `Room`.
template <class T>
struct Centring {
  const uint32_t* bits;  // [n, tiles]
  const uint8_t* open;  // [lanes]
  const T* of_bias;  // [lanes], 1/h, or 0 where no bias is eliminated
  double* parts;  // room_of_parts of 64 rows each, in the tiles of a panel
  T* q;  // [lanes], Σ D s / h
  T* along;  // [lanes], Σ D e²
};

// Xᵀ(D ∘ (X V − q))
template <class T>
std::string centred(Stream, const Rows<T>& rows, const Rows<T>& columns, const T* d, const T* v, Centring<T>,
                    Room<T> room, Sums<T> sums, int32_t lanes);

// r −= α (λ p + product) in place, [d, lanes], and the sums of r M⁻¹ r, [lanes]
template <class T>
std::string residual(Stream, T* r, const T* p, const T* product, Lanes<T>, double* parts, T* sums, int32_t d,
                     int32_t lanes);

// x += α p, p = M⁻¹ r + β p in place, and the sums of p²
template <class T>
std::string direction(Stream, T* x, T* p, const T* r, Lanes<T>, double* parts, T* sums, int32_t d,
                      int32_t lanes);

template <class T>
struct PlaneArguments {
  const T *z, *m;
  const int8_t* y;
  const T* weight;
  const T* shift;
  bool weight_of_row, weight_of_lane, shift_of_row, shift_of_lane;
  const T *t, *beta;
  const uint8_t* fresh;
  double* parts;  // room_of_parts of 128 rows each, six of every lane
  T* out;         // [6, lanes]
  double parameter;
  int32_t n, lanes;
};

// The sums of the search; "" too where there are no rows or lanes.
template <class T>
std::string plane_sums(Stream, int64_t loss, const PlaneArguments<T>&);

// The scores of sparse rows with sparse weights.
template <class T>
std::string pairs(Stream, const PairArguments<T>&);

// The k largest of each row, of int32 or int64 that are the bits of floating-point numbers.
template <class K>
std::string topk(Stream, const LargestArguments<K>&);
// Projections of vectors; projections.cu makes them.
template <class T>
std::string project_box(Stream, const BoxArguments<T>&);
template <class T>
std::string project_topk(Stream, const TopkArguments<T>&);
template <class T>
std::string project_weighted(Stream, const WeightedArguments<T>&);

// "" where this machine has a driver and a GPU for these kernels; else why not.
std::string unusable();

}  // namespace xmcjax::cuda
