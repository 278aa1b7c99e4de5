// The k largest of each row and where they stand, in XLA's total order of floating-point numbers:
//
//     −NaN < −∞ < … < −0 < +0 < … < ∞ < NaN, and of equal ones the first
//
// A warp reads a row, or a part of one, from the first entry to the last. Its threads hold the list of the best so
// far, one entry each. What is below `low` cannot be among the k largest any more: that is most of a row, and
// costs one comparison.
#pragma once

#include "warp.h"

namespace xmcjax::cuda {

constexpr int kMostBest = kWarp;  // of k
constexpr int kShortRow = 256;  // entries up to which a row is read entry by entry

// The bits of a number as an integer of the same order, and back: in negative numbers all bits but the sign are
// inverted. The least integer stands for no entry; Best::fill looks after the one NaN that has this integer as well.
template <class K>
struct Ordered {
  static constexpr K kMost = K(~(uint64_t(1) << 63) >> (64 - 8 * sizeof(K))), kNone = -kMost - 1;
  static constexpr K kBitsOfNone = -1;
  static XMCJAX_BODY K of(K bits) { return bits ^ ((bits >> (8 * sizeof(K) - 1)) & kMost); }
};

template <class K>
XMCJAX_BODY K larger(K a, K b) {
  return a > b ? a : b;
}

// The k-th largest of 32 numbers: all are sorted, falling, in a bitonic network.
template <class K>
XMCJAX_BODY K kth_of_warp(Each<K> x, int k) {
  XMCJAX_UNROLL
  for (int block = 2; block <= kWarp; block *= 2) {
    XMCJAX_UNROLL
    for (int step = block / 2; step > 0; step /= 2) {
      Each<K> other = across(x, step);
      EACH(t) {
        const bool wants_larger = ((t & step) == 0) == ((t & block) == 0);
        x[t] = (other[t] > x[t]) == wants_larger ? other[t] : x[t];
      }
    }
  }
  return from(x, k - 1);
}

template <class K>
struct Best {
  Each<K> key;  // falling from thread 0 on
  Each<int32_t> place;
  int filled = 0;
  K low = Ordered<K>::kNone + 1;

  // An entry that stands behind all entries of the list that equal it.
  XMCJAX_BODY void insert(K x, int32_t at, int k) {
    Each<bool> before;
    EACH(t) before[t] = t < filled && key[t] >= x;
    const int position = count_bits(ballot(before));
    if (position >= k) return;
    Each<K> moved_key = behind(key);
    Each<int32_t> moved_place = behind(place);
    EACH(t) {
      if (t == position) key[t] = x, place[t] = at;
      else if (t > position) key[t] = moved_key[t], place[t] = moved_place[t];
    }
    if (filled < k) ++filled;
    if (filled < k) return;
    const K last = from(key, k - 1);
    low = larger(low, last < Ordered<K>::kMost ? K(last + 1) : last);
  }

  // Offers W neighbouring entries of each thread, of which `most` is the largest: thread by thread, and of one
  // the largest first, so that equal ones come in their order.
  template <int W>
  XMCJAX_BODY void offer(Each<Pack<K, W>>& keys, Each<K>& most, int32_t start, int k) {
    for (;;) {
      Each<bool> good;
      EACH(t) good[t] = most[t] >= low;
      const uint32_t some = ballot(good);
      if (some == 0) return;
      const int source = lowest_bit(some);
      Each<int32_t> j;
      EACH(t) {
        j[t] = W - 1;
        XMCJAX_UNROLL
        for (int i = W - 2; i >= 0; --i) j[t] = keys[t].of[i] == most[t] ? i : j[t];
      }
      insert(from(most, source), start + source * W + from(j, source), k);
      EACH(t) if (t == source) {
        K left = Ordered<K>::kNone;
        XMCJAX_UNROLL
        for (int i = 0; i < W; ++i) {
          keys[t].of[i] = i == j[t] ? Ordered<K>::kNone : keys[t].of[i];
          left = larger(left, keys[t].of[i]);
        }
        most[t] = left;
      }
    }
  }

  // The entries first … stop − 1 of a row in ONCE packs of each thread, all of which are under way at once; what
  // is beyond is not read. A pack begins where it can be loaded in one piece, and none ends beyond `stop`.
  template <int W, int ONCE>
  XMCJAX_BODY void read(const K* row, int32_t first, int32_t stop, int k) {
    Each<Pack<K, W>> keys[ONCE];
    Each<K> most[ONCE], top;
    EACH(t) {
      XMCJAX_UNROLL
      for (int i = 0; i < ONCE; ++i) {
        const int32_t at = first + (i * kWarp + t) * W;
        Pack<K, W> pack;
        XMCJAX_UNROLL
        for (int j = 0; j < W; ++j) pack.of[j] = Ordered<K>::kBitsOfNone;
        if (at < stop) pack = load_pack<W>(row + at);
        XMCJAX_UNROLL
        for (int j = 0; j < W; ++j) keys[i][t].of[j] = pack.of[j];
      }
      top[t] = Ordered<K>::kNone;
      XMCJAX_UNROLL
      for (int i = 0; i < ONCE; ++i) {
        most[i][t] = Ordered<K>::kNone;
        XMCJAX_UNROLL
        for (int j = 0; j < W; ++j) {
          keys[i][t].of[j] = Ordered<K>::of(keys[i][t].of[j]);
          most[i][t] = larger(most[i][t], keys[i][t].of[j]);
        }
        top[t] = larger(top[t], most[i][t]);
      }
    }
    Each<bool> good;
    EACH(t) good[t] = top[t] >= low;
    const uint32_t some = ballot(good);
    if (some == 0) return;
    // k threads have an entry each that is at least the k-th largest of their largest: rows that rise, and the
    // first entries of any row, offer few more than k
    if (count_bits(some) >= k) low = larger(low, kth_of_warp(top, k));
    XMCJAX_UNROLL
    for (int i = 0; i < ONCE; ++i) offer<W>(keys[i], most[i], first + i * kWarp * W, k);
  }

  // The entries first … stop − 1, at most one for each thread.
  XMCJAX_BODY void read_few(const K* row, int32_t first, int32_t stop, int k) {
    if (first < stop) read<1, 1>(row, first, stop, k);
  }

  // Where fewer than k have been found, the others are NaN of the least key.
  XMCJAX_BODY void fill(const K* row, int32_t first, int32_t stop, int k) {
    for (; filled < k && first < stop; ++first) {
      if (load(row + first) != Ordered<K>::kBitsOfNone) continue;
      EACH(t) if (t == filled) key[t] = Ordered<K>::kNone, place[t] = first;
      ++filled;
    }
  }
};

// W = 1: rows of few entries; else packs of 16 bytes.
template <class K, int W>
struct LargestOfRow {
  const K* in;  // [n, m], the bits of the numbers
  const int32_t* names;  // [n, m], or null: what stands in `place` instead of the place in the row
  K* out;  // [n, parts, k]
  int32_t* place;  // the same
  int32_t m, k, parts, length;  // a row has m entries, in parts of `length` but for the last

  XMCJAX_BODY void operator()(int64_t warp) const {
    constexpr int kOnce = W == 1 || sizeof(K) == 4 ? 8 : 5, kEntries = kOnce * kWarp * W;
    const int64_t n = parts == 1 ? warp : warp / parts;  // a division takes as long as the sorting of a warp
    const K* row = in + n * m;
    const int32_t begin = int32_t(warp - n * parts) * length;
    const int32_t stop = m - begin < length ? m : begin + length;
    Best<K> best;
    int32_t first = begin, whole = stop;
    if constexpr (W > 1) {
      const int beyond = int(uintptr_t(row + begin) / sizeof(K) % W);
      const int32_t aligned = begin + (beyond == 0 ? 0 : W - beyond);
      first = aligned < stop ? aligned : stop;
      whole = first + (stop - first) / W * W;
      best.read_few(row, begin, first, k);
    }
    for (; first < whole; first += kEntries) best.template read<W, kOnce>(row, first, whole, k);
    if constexpr (W > 1) best.read_few(row, whole, stop, k);
    best.fill(row, begin, stop, k);
    EACH(t) if (t < k) {
      out[warp * k + t] = Ordered<K>::of(best.key[t]);
      place[warp * k + t] = names == nullptr ? best.place[t] : load(names + n * m + best.place[t]);
    }
  }
};

template <class K>
struct LargestArguments {
  const K* in;  // [n, m]
  K* out;  // [n, k]
  int32_t* place;  // [n, k]
  K* of_parts;  // [n, parts, k], where parts > 1
  int32_t* place_of_parts;  // the same
  int64_t n;
  int32_t m, k, parts, length;  // (parts − 1) length + k <= m <= parts length
};

}  // namespace xmcjax::cuda
