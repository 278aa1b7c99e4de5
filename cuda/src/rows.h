// A sparse matrix A [m, p] in the form of xmcjax/linops/_grouped.py: rows are filled up to groups of 8
// entries, and a row of more groups than a piece has is summed in pieces.
#pragma once

#include "warp.h"

namespace xmcjax::cuda {

constexpr int kGroup = 8;
constexpr int kJoined = 8;  // pieces of a long row that are loaded together

template <class T>
struct Rows {
  const T* value;  // [groups, 8], filled up with zeros
  const int32_t* index;  // [groups, 8], the columns
  const int32_t* start;  // [pieces], the first group of a piece; piece i < m begins row i
  const int32_t* stop;  // [pieces]
  const int32_t* row;  // [pieces]; null where nothing asks for it
  const int32_t* longs;  // [long], the rows of several pieces
  const int32_t* more;  // [long + 1], where the further pieces of each begin, counted from m
  int32_t m;
  int32_t pieces;
  int32_t long_rows;
};

// Where the sums of a piece go: those of the first one of a row into the result, those of further ones
// beside it.
template <class T>
struct Sums {
  T* out;  // [m, lanes]
  T* further;  // [pieces − m, lanes]
  XMCJAX_BODY T* of(int32_t piece, int32_t m, int32_t lanes) const {
    return piece < m ? out + int64_t(piece) * lanes : further + int64_t(piece - m) * lanes;
  }
};

// W numbers of a row from `lane` on: neighbours, or, APART, every 32nd one as far as there are lanes. That is for rows
// that are not aligned for neighbours to be loaded in one piece.
template <int W, bool APART, class T>
XMCJAX_BODY Pack<T, W> load_lanes(const T* row, int32_t lane, int32_t lanes) {
  if constexpr (!APART) return load_pack<W>(row + lane);
  Pack<T, W> pack;
  XMCJAX_UNROLL
  for (int i = 0; i < W; ++i) pack.of[i] = lane + i * kWarp < lanes ? load(row + lane + i * kWarp) : T(0);
  return pack;
}

// total += Σ x V[at] over the entries of one group, from the first to the last; the zeros that fill a group up load
// nothing.
template <int W, bool APART = false, class T>
XMCJAX_BODY void add_group(const Rows<T>& rows, int64_t group, const T* v, int32_t lanes, bool square,
                           int32_t lane, Pack<T, W>& total) {
  constexpr int kOnce = 16 / int(sizeof(T));  // numbers of a load of 16 bytes
  int32_t at[kGroup];
  T x[kGroup];
  XMCJAX_UNROLL
  for (int k = 0; k < kGroup; k += 4) {
    const Pack<int32_t, 4> four = load_pack<4>(rows.index + group * kGroup + k);
    for (int i = 0; i < 4; ++i) at[k + i] = four.of[i];
  }
  XMCJAX_UNROLL
  for (int k = 0; k < kGroup; k += kOnce) {
    const Pack<T, kOnce> some = load_pack<kOnce>(rows.value + group * kGroup + k);
    for (int i = 0; i < kOnce; ++i) x[k + i] = some.of[i];
  }
  Pack<T, W> there[kGroup];
  XMCJAX_UNROLL
  for (int k = 0; k < kGroup; ++k) {
    if (x[k] != T(0)) {
      there[k] = load_lanes<W, APART>(v + int64_t(at[k]) * lanes, lane, lanes);
    } else {
      for (int i = 0; i < W; ++i) there[k].of[i] = T(0);
    }
  }
  XMCJAX_UNROLL
  for (int k = 0; k < kGroup; ++k) {
    const T factor = square ? x[k] * x[k] : x[k];
    for (int i = 0; i < W; ++i) total.of[i] = multiply_add(factor, there[k].of[i], total.of[i]);
  }
}

// A V for one piece and 32 W lanes, a thread for W of them: neighbours, or those that are 32 APART.
template <class T, int W, bool APART = false>
struct Product {
  Rows<T> rows;
  const T* v;  // [p, lanes]
  Sums<T> sums;
  int32_t lanes;
  bool square;

  static int64_t warps(const Rows<T>& rows, int32_t lanes) {
    return int64_t(rows.pieces) * ((lanes + kWarp * W - 1) / (kWarp * W));
  }

  XMCJAX_BODY void operator()(int64_t warp) const {
    // one warp after another takes the next piece and the same lanes: these lanes of V stay in the cache
    const int32_t piece = int32_t(warp % rows.pieces), first = int32_t(warp / rows.pieces) * kWarp * W;
    const int32_t start = load(rows.start + piece), stop = load(rows.stop + piece);
    T* to = sums.of(piece, rows.m, lanes);
    EACH(t) {
      const int32_t lane = first + (APART ? t : t * W);
      if (lane < lanes) {
        Pack<T, W> total;
        for (int i = 0; i < W; ++i) total.of[i] = T(0);
        for (int32_t g = start; g < stop; ++g) add_group<W, APART>(rows, g, v, lanes, square, lane, total);
        if constexpr (!APART) store_pack<W>(to + lane, total);
        else {
          for (int i = 0; i < W; ++i)
            if (lane + i * kWarp < lanes) to[lane + i * kWarp] = total.of[i];
        }
      }
    }
  }
};

// The pieces of a long row are added to its first one, from the second to the last. Rows that `active`
// leaves out stay.
template <class T>
struct Join {
  Rows<T> rows;
  Sums<T> sums;
  const uint32_t* active;  // [m], see active_rows.h; null for all rows
  int32_t first;  // lanes from here, where these bits begin
  int32_t end;  // to there
  int32_t lanes;

  static int64_t warps(const Rows<T>& rows, int32_t width) {
    return int64_t(rows.long_rows) * ((width + kWarp - 1) / kWarp);
  }

  XMCJAX_BODY void operator()(int64_t warp) const {
    const int32_t k = int32_t(warp % rows.long_rows), tile = int32_t(warp / rows.long_rows);
    const int32_t row = load(rows.longs + k), begin = load(rows.more + k), stop = load(rows.more + k + 1);
    if (begin == stop) return;  // an entry that fills the list up
    if (active != nullptr && (active[row] >> tile & 1u) == 0) return;
    EACH(t) {
      const int32_t lane = first + tile * kWarp + t;
      if (lane < end) {
        T* to = sums.out + int64_t(row) * lanes + lane;
        const T* next = sums.further + int64_t(begin) * lanes + lane;
        T total = *to;
        for (int32_t q = begin; q < stop; q += kJoined, next += int64_t(kJoined) * lanes) {
          T some[kJoined];  // whose loads are under way together
          XMCJAX_UNROLL
          for (int i = 0; i < kJoined; ++i) some[i] = q + i < stop ? next[int64_t(i) * lanes] : T(0);
          XMCJAX_UNROLL
          for (int i = 0; i < kJoined; ++i)
            if (q + i < stop) total += some[i];
        }
        *to = total;
      }
    }
  }
};

}  // namespace xmcjax::cuda
