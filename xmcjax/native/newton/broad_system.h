// The Newton systems of the lanes of a block whose active rows are many, solved together by conjugate
// gradients: the lanes that still need a product lie side by side, whichever of the two tiles they are from,
// in vectors as narrow as can hold them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "core/aligned.h"
#include "core/csr_rows.h"
#include "core/isa.h"
#include "core/simd.h"
#include "newton/conjugate_gradients.h"
#include "newton/lane_arrays.h"

namespace xmcjax::XMCJAX_ISA {

// Rows that are active in some lane of a tile, ascending.
template <class T>
struct ActiveRows {
  size_t count = 0;
  Array<int32_t> row;
  Array<T> curvatures;  // [count, N], of all lanes
};

#if defined(__AVX512F__)
// The elements with these numbers of two vectors, counted through the first and on through the second.
inline Vec<float> pick(Vec<float> first, Vec<float> second, IntVec<float> numbers) {
  Vec<float> v;
  reinterpret_cast<__m512&>(v) =
      _mm512_permutex2var_ps(reinterpret_cast<__m512&>(first), reinterpret_cast<__m512i&>(numbers),
                             reinterpret_cast<__m512&>(second));
  return v;
}
inline Vec<double> pick(Vec<double> first, Vec<double> second, IntVec<double> numbers) {
  Vec<double> v;
  reinterpret_cast<__m512d&>(v) =
      _mm512_permutex2var_pd(reinterpret_cast<__m512d&>(first), reinterpret_cast<__m512i&>(numbers),
                             reinterpret_cast<__m512d&>(second));
  return v;
}
#endif

template <class T>
class BroadSystem {
  static constexpr int N = kLanes<T>;
  using V = Vec<T>;

 public:
  struct Lane {
    int number;                  // among the lanes of both tiles
    size_t active;               // rows
    double gradient_bias;        // g_b
    T h;                         // λ_b + 1ᵀ D 1; 0: no bias
    CgEnd end;
    T* vector;                   // g, and δ when it is solved; d elements and zeros up to `padded`
    double slope = 0, bias = 0;  // gᵀδ, and δ_b
    int32_t cg_steps = 0;
    bool settled = false;  // of CG
  };

  // CG on S δ = −g + u g_b / h for each lane, with the bias eliminated:
  //   S = λ I + Xᵀ D X − u uᵀ / h,  u = Xᵀ D 1,  δ_b = −(g_b + uᵀ δ) / h
  void solve(const Csr<T>& X, const ActiveRows<T>& one, const ActiveRows<T>& other, int64_t padded,
             std::vector<Lane>& lanes, const NewtonArgs<T>& a) {
    X_ = &X, tiles_[0] = &one, tiles_[1] = &other, padded_ = padded, l2_ = a.l2;
    const bool preconditioned = a.preconditioner > 0;
    for (auto* v : {&ones_, &solution_, &residual_, &search_, &image_}) v->resize(lanes.size() * padded);
    if (preconditioned) inverse_.resize(lanes.size() * padded);
    systems_.clear(), going_.clear();
    for (Lane& lane : lanes) {
      const int64_t at = int64_t(systems_.size()) * padded;
      going_.push_back(int(systems_.size()));
      T *search = search_.data() + at, *image = image_.data() + at;
      T* inverse = preconditioned ? inverse_.data() + at : nullptr;
      systems_.push_back(
          {&lane,
           ones_.data() + at,
           search,
           image,
           inverse,
           {solution_.data() + at, residual_.data() + at, search, image, inverse, padded, lane.end}});
    }
    pack();
    for (size_t k = 0; k < pack_count_; ++k) take_sums(packs_[k], a.preconditioner);
    for (System& s : systems_) {
      // The step of the bias left little of g_b: u g_b / h is small beside g unless features are large.
      const T share = s.lane->h > 0 ? T(s.lane->gradient_bias) / s.lane->h : T(0);
      for (int64_t j = 0; j < padded; j += N)
        store(s.cg.residual + j, share * load(s.ones + j) - load(s.lane->vector + j));
      s.cg.start();
    }
    while (!going_.empty()) {
      if (room(going_.size()) < room_) pack();
      for (size_t k = 0; k < pack_count_; ++k) multiply(packs_[k]);
      size_t left = 0;
      for (const int k : going_)
        if (step(systems_[k], a)) going_[left++] = k;
      going_.resize(left);
    }
    for (System& s : systems_) {
      Lane& lane = *s.lane;
      lane.slope = dot(lane.vector, s.cg.solution, padded);
      lane.settled = s.cg.settled;
      lane.bias = lane.h > 0 ? -(lane.gradient_bias + dot(s.ones, s.cg.solution, padded)) / lane.h : 0;
      std::memcpy(lane.vector, s.cg.solution, padded * sizeof(T));
    }
  }

 private:
  struct System {
    Lane* lane;
    T *ones, *search, *image, *inverse;  // u; M⁻¹ or null
    ConjugateGradients<T> cg;
  };
  // Lanes side by side in `width` numbers, and the rows that are active in any of them.
  struct Pack {
    int width = 0, count = 0;
    int system[N];
    size_t rows = 0;
    Array<int32_t> row;
    Array<T> curvatures;  // [rows, width]
  };

  bool step(System& s, const NewtonArgs<T>& a) {
    const T h = s.lane->h, mean = h > 0 ? T(dot(s.ones, s.search, padded_)) / h : T(0);
    for (int64_t j = 0; j < padded_; j += N) store(s.image + j, load(s.image + j) - mean * load(s.ones + j));
    return s.cg.step() & (++s.lane->cg_steps < a.max_cg);
  }

  // width(): the width of a vector that holds so many lanes: N, or a half, a quarter or a single number. room(): the
  // numbers that hold any count of lanes: whole vectors, and such a width for the rest.
  static int width(size_t lanes) { return lanes > N / 2 ? N : lanes > N / 4 ? N / 2 : lanes > 1 ? N / 4 : 1; }
  static int room(size_t lanes) { return int(lanes / N * N) + (lanes % N ? width(lanes % N) : 0); }

  // Puts the lanes that are still going side by side.
  void pack() {
    room_ = room(going_.size());
    pack_count_ = 0;
    for (size_t first = 0; first < going_.size(); first += N, ++pack_count_) {
      if (pack_count_ == packs_.size()) packs_.emplace_back();
      fill(packs_[pack_count_], going_.data() + first, int(std::min<size_t>(N, going_.size() - first)));
    }
  }

  void fill(Pack& p, const int* system, int count) {
    p.count = count, p.width = width(count), p.rows = 0;
    std::memcpy(p.system, system, count * sizeof(int));
    int32_t numbers[N] = {};
    size_t active = 0;
    for (int k = 0; k < count; ++k) {
      const Lane& lane = *systems_[system[k]].lane;
      numbers[k] = lane.number;
      active += lane.active;
    }
    const ActiveRows<T>&one = *tiles_[0], &other = *tiles_[1];
    // One more row may be written than is kept, and each is written as a whole vector.
    const size_t most = 1 + std::min(active, one.count + other.count);
    p.row.resize(most);
    p.curvatures.resize(most * p.width + N);
    const Picked picked(numbers, count, p.width);
    constexpr int32_t kNone = std::numeric_limits<int32_t>::max();
    static constexpr T kZeros[N] = {};
    for (size_t u = 0, v = 0; u < one.count || v < other.count;) {
      const int32_t a = u < one.count ? one.row[u] : kNone, b = v < other.count ? other.row[v] : kNone;
      const T* first = a <= b ? &one.curvatures[u * N] : kZeros;
      const T* second = b <= a ? &other.curvatures[v * N] : kZeros;
      u += a <= b, v += b <= a;
      p.row[p.rows] = a <= b ? a : b;
      p.rows += picked(first, second, &p.curvatures[p.rows * p.width]);
    }
  }

  // Picks from the curvatures of both tiles in a row those of the lanes of a pack, with zeros up to its width.
  class Picked {
   public:
#if defined(__AVX512F__)
    Picked(const int32_t* numbers, int count, int) {
      for (int k = 0; k < count; ++k) numbers_[k] = numbers[k], taken_[k] = -1;
    }
    // Writes them to `out`; whether any is not zero.
    bool operator()(const T* first, const T* second, T* out) const {
      const V curvatures = select(taken_, pick(load(first), load(second), numbers_), V{});
      store(out, curvatures);
      return nonzero_lanes(curvatures) != 0;
    }

   private:
    IntVec<T> numbers_{}, taken_{};
#else
    Picked(const int32_t* numbers, int count, int width) : count_(count), width_(width) {
      std::memcpy(numbers_, numbers, sizeof(numbers_));
    }
    bool operator()(const T* first, const T* second, T* out) const {
      const T* const tiles[2] = {first, second};
      bool any = false;
      for (int k = 0; k < count_; ++k) {
        out[k] = tiles[numbers_[k] / N][numbers_[k] % N];
        any |= out[k] != 0;
      }
      for (int k = count_; k < width_; ++k) out[k] = 0;
      return any;
    }

   private:
    int32_t numbers_[N];
    int count_, width_;
#endif
  };

  // f with the width of the pack as a constant
  template <class F>
  static void of_width(const Pack& p, F&& f) {
    switch (p.width) {
      case N: return f(std::integral_constant<int, N>());
      case N / 2: return f(std::integral_constant<int, N / 2>());
      case N / 4: return f(std::integral_constant<int, N / 4>());
      default: return f(std::integral_constant<int, 1>());
    }
  }

  // Copies between the vectors of the lanes and an array [padded, W].
  template <int W, class F>
  void to_pack(const Pack& p, F&& vector, T* out) {
    constexpr int R = kWide<T>;
    Wide<T> block[R];
    for (int64_t j = 0; j < padded_; j += R)
      for (int first = 0; first < W; first += R) {
        for (int k = 0; k < R; ++k)
          block[k] = first + k < p.count ? load_wide(vector(systems_[p.system[first + k]]) + j) : Wide<T>{};
        transpose_registers<T>(block);
        for (int k = 0; k < R; ++k)
          std::memcpy(out + (j + k) * W + first, &block[k], std::min(W, R) * sizeof(T));
      }
  }
  template <int W, class F>
  void from_pack(const Pack& p, const T* in, F&& vector) {
    constexpr int R = kWide<T>;
    Wide<T> block[R];
    for (int64_t j = 0; j < padded_; j += R)
      for (int first = 0; first < p.count; first += R) {
        for (int k = 0; k < R; ++k) {
          block[k] = Wide<T>{};
          std::memcpy(&block[k], in + (j + k) * W + first, std::min(W, R) * sizeof(T));
        }
        transpose_registers<T>(block);
        for (int k = 0; k < R && first + k < p.count; ++k)
          store_wide(vector(systems_[p.system[first + k]]) + j, block[k]);
      }
  }

  // u = Xᵀ D 1, and the preconditioner of LIBLINEAR, 1 / ((1−α) + α (λ + Σ_i D_i x_i²))
  void take_sums(const Pack& p, T alpha) {
    of_width(p, [&](auto constant) {
      constexpr int W = constant;
      out_.assign(padded_ * W, T(0));
      const Poll poll;
      for (size_t u = 0; u < p.rows; poll(entries(*X_, p.row[u++])))
        row_adds<W>(*X_, p.row[u], &p.curvatures[u * W], out_.data(), W);
      from_pack<W>(p, out_.data(), [](const System& s) { return s.ones; });
      if (!(alpha > 0)) return;
      out_.assign(padded_ * W, l2_);
      for (size_t u = 0; u < p.rows; ++u)
        for (int64_t k = X_->offset[p.row[u]]; k < X_->offset[p.row[u] + 1]; ++k)
          for (int l = 0; l < W; ++l)
            out_[int64_t(X_->column[k]) * W + l] += X_->value[k] * X_->value[k] * p.curvatures[u * W + l];
      for (T& one : out_) one = T(1) / ((1 - alpha) + alpha * one);
      from_pack<W>(p, out_.data(), [](const System& s) { return s.inverse; });
    });
  }

  // image = (λ I + Xᵀ D X) search
  void multiply(const Pack& p) {
    of_width(p, [&](auto constant) {
      constexpr int W = constant;
      const System& first = systems_[p.system[0]];
      const T* in = first.search;
      T* out = first.image;
      if constexpr (W > 1) {
        in_.resize(padded_ * W), out_.resize(padded_ * W);
        to_pack<W>(p, [](const System& s) { return s.search; }, in_.data());
        in = in_.data(), out = out_.data();
      }
      for (int64_t j = 0; j < padded_ * W; j += N) store(out + j, l2_ * load(in + j));
      const Poll poll;
      if (X_->d * W <= kFewWeights) {
        for (size_t u = 0; u < p.rows; poll(2 * entries(*X_, p.row[u++])))
          row_grams<W>(*X_, p.row[u], in, &p.curvatures[u * W], out, W);
      } else {
        products_.resize(p.rows * W);
        for (size_t u = 0; u < p.rows; poll(entries(*X_, p.row[u++]))) {
          row_dots<W>(*X_, p.row[u], in, W, &products_[u * W]);
          times<W>(&p.curvatures[u * W], &products_[u * W]);
        }
        for (size_t u = 0; u < p.rows; poll(entries(*X_, p.row[u++])))
          row_adds<W>(*X_, p.row[u], &products_[u * W], out, W);
      }
      if constexpr (W > 1) from_pack<W>(p, out, [](const System& s) { return s.image; });
    });
  }

  // Two arrays of up to so many numbers lie in the cache beside a core: X v and Xᵀ v are then made together, row by
  // row, and else one after the other.
  static constexpr int64_t kFewWeights = (1 << 18) / sizeof(T);

  const Csr<T>* X_ = nullptr;
  const ActiveRows<T>* tiles_[2] = {};
  int64_t padded_ = 0;
  T l2_ = 0;
  int room_ = 0;
  std::vector<System> systems_;
  std::vector<int> going_;  // systems that need another step
  std::vector<Pack> packs_;
  size_t pack_count_ = 0;
  Array<T> ones_, solution_, residual_, search_, image_, inverse_;  // [systems, padded]
  Array<T> in_, out_, products_;
};

}  // namespace xmcjax::XMCJAX_ISA
