// A step of conjugate gradients for many lanes, of solvers/_lane_cg.py.
//
// The product of a step, with the bias eliminated: s = X p, q = Σ D s / h, e = s − q, then Xᵀ(D ∘ e) and Σ D e².
// The column u = XᵀD1 of the eliminated bias is not read. What is left of a step reads and writes r, p, the
// product and x in two passes, each of which sums what the next number of the step needs.
#pragma once

#include "active_rows.h"

namespace xmcjax::cuda {

constexpr int kSummed = 64;  // rows that one warp adds up in the type of the numbers; the rest in float64
constexpr int kUnder = 4;  // of these rows, whose loads are under way together

// The tiles of each row in which a lane that is open has D ≠ 0, from bits that were made once: bit t of
// bits[i, j] stands for lane 32 j + t.
struct Words {
  const uint32_t* bits;  // [n, tiles of all lanes]
  const uint8_t* open;  // [lanes]
  uint32_t* words;  // [n]
  Panel panel;
  int32_t n;
  int32_t tiles;  // of all lanes

  static int64_t warps(int32_t n) { return (int64_t(n) + kWarp - 1) / kWarp; }

  XMCJAX_BODY void operator()(int64_t warp) const {
    const int64_t row = warp * kWarp;
    const int32_t first_tile = panel.first / kWarp;
    Each<uint32_t> word;
    EACH(t) { word[t] = 0; }
    for (int j = 0; j < panel.tiles; ++j) {
      Each<bool> there;
      EACH(t) {
        const int32_t lane = panel.first + j * kWarp + t;
        there[t] = lane < panel.lanes && load(open + lane) != 0;
      }
      const uint32_t mask = ballot(there);
      if (mask == 0) continue;
      EACH(t) {
        if (row + t < n)
          word[t] |= uint32_t((load(bits + (row + t) * tiles + first_tile + j) & mask) != 0) << j;
      }
    }
    EACH(t) {
      if (row + t < n) words[row + t] = word[t];
    }
  }
};

// Over 64 rows and a tile, of the rows that `words` has there: Σ D s, or, with CENTRED, D e in the place of s
// and Σ D e².
template <class T, bool CENTRED>
struct Centre {
  T* scores;  // [n, lanes]
  const T* d;  // [n, lanes]
  const uint32_t* words;  // [n]
  const T* q;  // [lanes], what was found without CENTRED, times 1/h
  double* part;  // [parts, width of the panel]
  Panel panel;
  int32_t n;

  XMCJAX_BODY void operator()(int64_t warp) const {
    const int32_t parts = (n + kSummed - 1) / kSummed;
    const int64_t this_part = warp % parts;
    const int32_t tile = int32_t(warp / parts);
    Each<T> sum;
    EACH(t) { sum[t] = T(0); }
    for (int64_t first = this_part * kSummed; first < (this_part + 1) * kSummed && first < n;
         first += kWarp) {
      Each<bool> there;
      EACH(t) { there[t] = first + t < n && (words[first + t] >> tile & 1u) != 0; }
      for (uint32_t mask = ballot(there); mask != 0; mask &= mask - 1) {
        const int64_t row = first + lowest_bit(mask);
        EACH(t) {
          const int32_t lane = panel.first + tile * kWarp + t;
          if (lane < panel.lanes) {
            T* s = scores + row * panel.lanes + lane;
            const T curvature = load(d + row * panel.lanes + lane);
            if constexpr (CENTRED) {
              const T e = *s - load(q + lane), of_row = curvature * e;
              *s = of_row;
              sum[t] = multiply_add(of_row, e, sum[t]);
            } else {
              sum[t] = multiply_add(curvature, *s, sum[t]);
            }
          }
        }
      }
    }
    EACH(t) { part[(this_part * panel.tiles + tile) * kWarp + t] = double(sum[t]); }
  }
};

// out[lane] = the sum of the last parts, times `times` where that is not null.
template <class T>
struct Total {
  const double* in;  // [count, width]
  T* out;  // [lanes]
  const T* times;  // [lanes]; null for 1
  int32_t count;
  int32_t width;
  int32_t first;  // lane
  int32_t lanes;

  static int64_t warps(int32_t width) { return (width + kWarp - 1) / kWarp; }

  XMCJAX_BODY void operator()(int64_t warp) const {
    EACH(t) {
      const int64_t i = warp * kWarp + t;
      if (i < width && first + i < lanes) {
        double total = 0;
        for (int32_t k = 0; k < count; ++k) total += in[int64_t(k) * width + i];
        out[first + i] = T(times == nullptr ? total : total * double(load(times + first + i)));
      }
    }
  }
};

// Numbers of the lanes in a step. The vectors of a lane are read and written only where its α is not 0, or, for the
// next direction, where it is open.
template <class T>
struct Lanes {
  const T* alpha;  // [lanes], the length of the step; 0 in a lane that is closed
  const T* beta;  // [lanes], of the next direction
  const uint8_t* open;  // [lanes], whether there is a next direction
  const T* inverse;  // [d, lanes], M⁻¹, which is read where `preconditioned` is not 0
  const T* preconditioned;  // [1]
  const T* l2;  // [1], λ
};

// r −= α (λ p + A p), in place, and Σ r M⁻¹ r.
template <class T>
struct Residual {
  T* r;  // [d, lanes]
  const T* p;
  const T* product;  // Xᵀ(D ∘ e)
  Lanes<T> of;
  double* part;  // [parts, lanes]
  int32_t d;
  int32_t lanes;

  XMCJAX_BODY void operator()(int64_t warp) const {
    const int32_t parts = (d + kSummed - 1) / kSummed;
    const int64_t this_part = warp % parts;
    const int32_t lane_of_tile = int32_t(warp / parts) * kWarp;
    const T l2 = load(of.l2);
    const bool whole = load(of.preconditioned) == T(0);
    EACH(t) {
      const int32_t lane = lane_of_tile + t;
      if (lane < lanes) {
        const T alpha = load(of.alpha + lane);
        const int64_t end = (this_part + 1) * kSummed < d ? (this_part + 1) * kSummed : d;
        T sum = T(0);
        if (alpha != T(0)) {
          for (int64_t i = this_part * kSummed; i < end; i += kUnder) {
            T residual[kUnder], direction[kUnder], of_product[kUnder], inverse[kUnder];
            XMCJAX_UNROLL
            for (int k = 0; k < kUnder; ++k) {
              const int64_t at = (i + k < end ? i + k : end - 1) * lanes + lane;
              residual[k] = r[at], direction[k] = load(p + at), of_product[k] = load(product + at);
              inverse[k] = whole ? T(1) : load(of.inverse + at);
            }
            XMCJAX_UNROLL
            for (int k = 0; k < kUnder; ++k) {
              if (i + k < end) {
                const T change = multiply_add(l2, direction[k], of_product[k]);
                const T next = multiply_add(-alpha, change, residual[k]);
                r[(i + k) * lanes + lane] = next;
                sum = multiply_add(next, inverse[k] * next, sum);
              }
            }
          }
        }
        part[this_part * lanes + lane] = double(sum);
      }
    }
  }
};

// x += α p and p = M⁻¹ r + β p, in place, and Σ p²; a lane that is not open any more keeps its p.
template <class T>
struct Direction {
  T* x;  // [d, lanes]
  T* p;
  const T* r;
  Lanes<T> of;
  double* part;  // [parts, lanes]
  int32_t d;
  int32_t lanes;

  XMCJAX_BODY void operator()(int64_t warp) const {
    const int32_t parts = (d + kSummed - 1) / kSummed;
    const int64_t this_part = warp % parts;
    const int32_t lane_of_tile = int32_t(warp / parts) * kWarp;
    const bool whole = load(of.preconditioned) == T(0);
    EACH(t) {
      const int32_t lane = lane_of_tile + t;
      if (lane < lanes) {
        const T alpha = load(of.alpha + lane), beta = load(of.beta + lane);
        const bool open = load(of.open + lane) != 0;
        const int64_t end = (this_part + 1) * kSummed < d ? (this_part + 1) * kSummed : d;
        T sum = T(0);
        if (alpha != T(0) || open) {
          for (int64_t i = this_part * kSummed; i < end; i += kUnder) {
            T solved[kUnder], direction[kUnder], residual[kUnder], inverse[kUnder];
            XMCJAX_UNROLL
            for (int k = 0; k < kUnder; ++k) {
              const int64_t at = (i + k < end ? i + k : end - 1) * lanes + lane;
              solved[k] = x[at], direction[k] = p[at];
              residual[k] = open ? load(r + at) : T(0);
              inverse[k] = whole || !open ? T(1) : load(of.inverse + at);
            }
            XMCJAX_UNROLL
            for (int k = 0; k < kUnder; ++k) {
              if (i + k < end) {
                const int64_t at = (i + k) * lanes + lane;
                x[at] = multiply_add(alpha, direction[k], solved[k]);
                if (open) {
                  const T next = multiply_add(beta, direction[k], inverse[k] * residual[k]);
                  p[at] = next;
                  sum = multiply_add(next, next, sum);
                }
              }
            }
          }
        }
        part[this_part * lanes + lane] = double(sum);
      }
    }
  }
};

}  // namespace xmcjax::cuda
