// Products that leave out the rows of X whose entries in a tile of 32 lanes are all zero.
//
// A panel is at most 32 tiles, 1,024 lanes, so that a word of 32 bits tells for a row which tiles need it.
// Thread j of a warp counts for tile j.
#pragma once

#include "rows.h"

namespace xmcjax::cuda {

constexpr int kTiles = 32;  // of a panel at most
constexpr int kPart = 1024;  // pieces that one warp counts and lists
constexpr int kScanned = 8;  // counts that one thread adds up together
// Active entries of a tile whose loads are under way together.
constexpr int kAtOnce = 4;

// The lanes of a panel.
struct Panel {
  int32_t first;  // lane
  int32_t tiles;
  int32_t lanes;  // of the whole arrays
};

// words[i]: the tiles in which row i of C has an entry that is not 0, in a lane that is alive.
template <class T>
struct Mark {
  const T* c;  // [n, lanes]
  const uint8_t* alive;  // [lanes]; null for all
  uint32_t* words;  // [n]
  Panel panel;

  XMCJAX_BODY void operator()(int64_t row) const {
    uint32_t word = 0;
    for (int j = 0; j < panel.tiles; ++j) {
      Each<bool> there;
      EACH(t) {
        const int32_t lane = panel.first + j * kWarp + t;
        there[t] = lane < panel.lanes && load(c + row * panel.lanes + lane) != T(0) &&
                   (alive == nullptr || load(alive + lane) != 0);
      }
      word |= uint32_t(ballot(there) != 0) << j;
    }
    EACH(t) {
      if (t == 0) words[row] = word;
    }
  }
};

// The words of 32 pieces from `piece` on; 0 beyond the last one.
XMCJAX_BODY Each<uint32_t> words_of_pieces(const uint32_t* words, const int32_t* row, int32_t piece,
                                           int32_t pieces) {
  Each<uint32_t> word;
  EACH(t) { word[t] = piece + t < pieces ? words[load(row + piece + t)] : 0u; }
  return word;
}

XMCJAX_BODY uint32_t pieces_of_tile(Each<uint32_t>& word, int j) {
  Each<bool> there;
  EACH(t) { there[t] = (word[t] >> j & 1u) != 0; }
  return ballot(there);
}

// counts[part, j]: the active pieces of tile j among 1,024.
struct Count {
  const uint32_t* words;
  const int32_t* row;  // [pieces]
  int32_t* counts;  // [parts, 32]
  int32_t pieces;
  int32_t tiles;

  XMCJAX_BODY void operator()(int64_t part) const {
    Each<int32_t> count;
    EACH(t) { count[t] = 0; }
    const int32_t end = int32_t(part + 1) * kPart;
    for (int32_t piece = int32_t(part) * kPart; piece < end && piece < pieces; piece += kWarp) {
      Each<uint32_t> word = words_of_pieces(words, row, piece, pieces);
      for (int j = 0; j < tiles; ++j) {
        const int32_t here = count_bits(pieces_of_tile(word, j));
        EACH(t) {
          if (t == j) count[t] += here;
        }
      }
    }
    EACH(t) { counts[part * kTiles + t] = count[t]; }
  }
};

// counts[part, j] becomes the place of the first listed piece of the part in tile j, total[0] the number of
// all; one warp.
struct Scan {
  int32_t* counts;
  int32_t* total;  // [1]
  int32_t parts;

  XMCJAX_BODY void operator()(int64_t) const {
    Each<int32_t> sum, place;
    EACH(t) {
      int32_t all = 0;
      for (int32_t part = 0; part < parts; ++part) all += counts[int64_t(part) * kTiles + t];
      sum[t] = all;
      place[t] = 0;
    }
    // tile after tile
    int32_t before = 0;
    for (int j = 0; j < kTiles; ++j) {
      const int32_t of_tile = from(sum, j);
      EACH(t) {
        if (t == j) place[t] = before;
      }
      before += of_tile;
    }
    EACH(t) {
      if (t == 0) total[0] = before;
      int32_t at = place[t];
      for (int32_t part = 0; part < parts; part += kScanned) {
        // loaded together, before any is written
        int32_t of_part[kScanned];
        XMCJAX_UNROLL
        for (int i = 0; i < kScanned; ++i)
          of_part[i] = part + i < parts ? counts[int64_t(part + i) * kTiles + t] : 0;
        XMCJAX_UNROLL
        for (int i = 0; i < kScanned; ++i) {
          if (part + i < parts) counts[int64_t(part + i) * kTiles + t] = at;
          at += of_part[i];
        }
      }
    }
  }
};

struct Item {
  int32_t piece;
  int32_t tile;
};

// The active pieces of a part, in their order.
struct List {
  const uint32_t* words;
  const int32_t* row;
  const int32_t* places;  // [parts, 32], what Scan made
  Item* list;
  int32_t pieces;
  int32_t tiles;

  XMCJAX_BODY void operator()(int64_t part) const {
    Each<int32_t> place;
    EACH(t) { place[t] = places[part * kTiles + t]; }
    const int32_t end = int32_t(part + 1) * kPart;
    for (int32_t piece = int32_t(part) * kPart; piece < end && piece < pieces; piece += kWarp) {
      Each<uint32_t> word = words_of_pieces(words, row, piece, pieces);
      for (int j = 0; j < tiles; ++j) {
        const uint32_t here = pieces_of_tile(word, j);
        const int32_t at = from(place, j);
        EACH(t) {
          if (here >> t & 1u) list[at + count_bits(here & bits_below(t))] = Item{piece + t, j};
          if (t == j) place[t] += count_bits(here);
        }
      }
    }
  }
};

// D ∘ (X V) of the listed pieces, or X V where D is null: as many warps as the GPU holds take one piece after the
// other.
template <class T>
struct Scores {
  Rows<T> rows;
  const T* v;  // [p, lanes]
  const T* d;  // [m, lanes] or null
  Sums<T> sums;
  const Item* list;
  const int32_t* total;
  Panel panel;
  int64_t warps;

  XMCJAX_BODY void operator()(int64_t warp) const {
    const int64_t count = load(total);
    for (int64_t k = warp; k < count; k += warps) {
      const Item item = list[k];
      const int32_t start = load(rows.start + item.piece), stop = load(rows.stop + item.piece);
      const int64_t row = int64_t(load(rows.row + item.piece)) * panel.lanes;
      T* to = sums.of(item.piece, rows.m, panel.lanes);
      EACH(t) {
        const int32_t lane = panel.first + item.tile * kWarp + t;
        if (lane < panel.lanes) {
          Pack<T, 1> total_of_lane = {{T(0)}};
          for (int32_t g = start; g < stop; ++g)
            add_group<1>(rows, g, v, panel.lanes, false, lane, total_of_lane);
          const T scores = total_of_lane.of[0];
          to[lane] = d == nullptr ? scores : load(d + row + lane) * scores;
        }
      }
    }
  }
};

// Aᵀ C for one piece of Aᵀ, `rows`, and TILES tiles, of each of which a thread has one lane: rows of C that
// `words` leaves out in a tile are not loaded there. 32 entries at once are asked which tiles need them.
//
// WHOLE: C may be dense, so that entries that all tiles need have a function of their own, add_to_all.
template <class T, int TILES, bool WHOLE>
struct Columns {
  static constexpr bool kInRegisters = WHOLE;
  Rows<T> rows;
  const T* c;  // [p, lanes]
  const uint32_t* words;  // [p]
  Sums<T> sums;
  Panel panel;
  bool square;

  static int64_t warps(const Rows<T>& rows, const Panel& panel) {
    return int64_t(rows.pieces) * ((panel.tiles + TILES - 1) / TILES);
  }

  XMCJAX_BODY void operator()(int64_t warp) const {
    const int32_t piece = int32_t(warp % rows.pieces), first_tile = int32_t(warp / rows.pieces) * TILES;
    const int32_t start = load(rows.start + piece), count = (load(rows.stop + piece) - start) * kGroup;
    const int32_t* index = rows.index + int64_t(start) * kGroup;
    const T* value = rows.value + int64_t(start) * kGroup;
    Each<T> total[TILES];
    XMCJAX_UNROLL
    for (int j = 0; j < TILES; ++j) EACH(t) {
        total[j][t] = T(0);
      }
    for (int32_t done = 0; done < count; done += kWarp) {
      Entries now = entries(index, value, done, count);
      Each<uint32_t> word = words_of(now, first_tile);
      if (square) EACH(t) {
          now.x[t] = now.x[t] * now.x[t];
        }
      if (WHOLE && TILES > 1 && by_all(now, word, first_tile)) {
        add_to_all(now, first_tile * kWarp, total);
      } else {
        XMCJAX_UNROLL
        for (int j = 0; j < TILES; ++j) {
          uint32_t mask = pieces_of_tile(word, j);
          const int32_t lane = (first_tile + j) * kWarp;
          while (mask != 0) add<kAtOnce>(mask, now, lane, total[j]);
        }
      }
    }
    T* to = sums.of(piece, rows.m, panel.lanes);
    XMCJAX_UNROLL
    for (int j = 0; j < TILES; ++j) EACH(t) {
        const int32_t lane = panel.first + (first_tile + j) * kWarp + t;
        if (lane < panel.lanes) to[lane] = total[j][t];
      }
  }

 private:
  struct Entries {
    Each<int32_t> at;
    Each<T> x;
  };

  // 32 entries of a piece; zeros beyond its end.
  XMCJAX_BODY static Entries entries(const int32_t* index, const T* value, int32_t first, int32_t count) {
    Entries some;
    EACH(t) {
      const bool there = first + t < count;
      some.at[t] = there ? load(index + first + t) : 0;
      some.x[t] = there ? load(value + first + t) : T(0);
    }
    return some;
  }

  // Which tiles need each entry; no tile needs the zeros that fill a group up.
  XMCJAX_BODY Each<uint32_t> words_of(Entries& some, int32_t first_tile) const {
    Each<uint32_t> word;
    EACH(t) { word[t] = some.x[t] != T(0) ? load(words + some.at[t]) >> first_tile : 0u; }
    return word;
  }

  // Whether all tiles of the warp need all of the entries.
  XMCJAX_BODY bool by_all(Entries& some, Each<uint32_t>& word, int32_t first_tile) const {
    const int32_t tiles = panel.tiles - first_tile < TILES ? panel.tiles - first_tile : TILES;
    const uint32_t all = bits_below(tiles);
    Each<bool> needed;
    EACH(t) { needed[t] = some.x[t] == T(0) || (word[t] & all) == all; }
    return ballot(needed) == 0xffffffffu;
  }

  // Adds all entries, in their order; the loads of an entry for all tiles are under way together.
  XMCJAX_BODY void add_to_all(Entries& some, int32_t first_lane, Each<T> (&total)[TILES]) const {
    Each<bool> there;
    EACH(t) { there[t] = some.x[t] != T(0); }
    for (uint32_t left = ballot(there); left != 0; left &= left - 1) {
      const int i = lowest_bit(left);
      const int64_t row = int64_t(from(some.at, i)) * panel.lanes;
      const T factor = from(some.x, i);
      EACH(t) {
        const int32_t lane = panel.first + first_lane + t;
        T loaded[TILES];
        XMCJAX_UNROLL
        for (int j = 0; j < TILES; ++j)
          loaded[j] = lane + j * kWarp < panel.lanes ? load(c + row + lane + j * kWarp) : T(0);
        XMCJAX_UNROLL
        for (int j = 0; j < TILES; ++j) total[j][t] = multiply_add(factor, loaded[j], total[j][t]);
      }
    }
  }

  // Adds the next ENTRIES entries of a mask, in their order, and clears their bits.
  template <int ENTRIES>
  XMCJAX_BODY void add(uint32_t& mask, Entries& some, int32_t lane_of_tile, Each<T>& total) const {
    const int count = count_bits(mask);  // of those that are left
    Each<T> loaded[ENTRIES];
    uint32_t left = mask;
    XMCJAX_UNROLL
    for (int u = 0; u < ENTRIES; ++u, left &= left - 1) {
      const int32_t row = from(some.at, u < count ? lowest_bit(left) : 0);
      EACH(t) {
        const int32_t lane = panel.first + lane_of_tile + t;
        loaded[u][t] = u < count && lane < panel.lanes ? load(c + int64_t(row) * panel.lanes + lane) : T(0);
      }
    }
    XMCJAX_UNROLL
    for (int u = 0; u < ENTRIES; ++u, mask &= mask - 1) {
      const T factor = from(some.x, u < count ? lowest_bit(mask) : 0);
      EACH(t) {
        if (u < count) total[t] = multiply_add(factor, loaded[u][t], total[t]);
      }
    }
  }
};

}  // namespace xmcjax::cuda
