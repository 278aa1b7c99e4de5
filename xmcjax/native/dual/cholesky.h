// Cholesky factors of dense symmetric matrices in double. Included by the simd_*.cc files only.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/interrupt.h"
#include "core/simd.h"

namespace xmcjax::XMCJAX_ISA {

// A = L Lᵀ of the lower triangle of A [size, stride], in place. False where A is not positive definite.
class Cholesky {
  static constexpr int N = kWide<double>;
  static constexpr int64_t kBlock = 32;

 public:
  static bool factor(double* A, int64_t size, int64_t stride) {
    std::vector<double> turned;
    for (int64_t k = 0; k < size; k += kBlock) {
      const int64_t end = std::min(k + kBlock, size);
      if (!diagonal(A, k, end, stride)) return false;
      // The rows below: L_ik = A_ik L_kk^-T
      for (int64_t i = end; i < size; ++i) {
        double* row = A + i * stride;
        for (int64_t j = k; j < end; ++j) {
          double sum = row[j];
          for (int64_t p = k; p < j; ++p) sum -= row[p] * A[j * stride + p];
          row[j] = sum / A[j * stride + j];
        }
      }
      update(A, k, end, size, stride, turned);
    }
    return true;
  }

  // x = A^-1 x
  static void solve(const double* L, int64_t size, int64_t stride, double* x) {
    Poll()(size * size);
    for (int64_t i = 0; i < size; ++i) {
      double sum = x[i];
      for (int64_t j = 0; j < i; ++j) sum -= L[i * stride + j] * x[j];
      x[i] = sum / L[i * stride + i];
    }
    for (int64_t i = size - 1; i >= 0; --i) {
      x[i] /= L[i * stride + i];
      for (int64_t j = 0; j < i; ++j) x[j] -= L[i * stride + j] * x[i];
    }
  }

 private:
  static bool diagonal(double* A, int64_t k, int64_t end, int64_t stride) {
    for (int64_t i = k; i < end; ++i) {
      double* row = A + i * stride;
      for (int64_t j = k; j <= i; ++j) {
        double sum = row[j];
        for (int64_t p = k; p < j; ++p) sum -= row[p] * A[j * stride + p];
        if (j < i) {
          row[j] = sum / A[j * stride + j];
        } else if (sum > 0) {
          row[i] = std::sqrt(sum);
        } else {
          return false;
        }
      }
    }
    return true;
  }

  // A_ij -= Σ_p L_ip L_jp for end <= j <= i, four rows and two registers of columns at a time.
  static void update(double* A, int64_t k, int64_t end, int64_t size, int64_t stride,
                     std::vector<double>& turned) {
    const int64_t depth = end - k, rest = size - end, width = (rest + 2 * N - 1) / (2 * N) * 2 * N;
    turned.assign(depth * width, 0);
    for (int64_t j = 0; j < rest; ++j)
      for (int64_t p = 0; p < depth; ++p) turned[p * width + j] = A[(end + j) * stride + k + p];
    const Poll poll;
    for (int64_t i = 0; i < rest; i += 4) {
      poll(4 * depth * (i + 4) / N);
      const int64_t rows = std::min<int64_t>(4, rest - i);
      const double* left[4];
      for (int64_t r = 0; r < 4; ++r) left[r] = A + (end + i + std::min(r, rows - 1)) * stride + k;
      for (int64_t j = 0; j < i + rows; j += 2 * N) {
        Wide<double> sum[4][2] = {};
        for (int64_t p = 0; p < depth; ++p) {
          const double* column = turned.data() + p * width + j;
          const Wide<double> a = load_wide(column), b = load_wide(column + N);
          for (int r = 0; r < 4; ++r) sum[r][0] += left[r][p] * a, sum[r][1] += left[r][p] * b;
        }
        for (int64_t r = 0; r < rows; ++r) {
          double* out = A + (end + i + r) * stride + end + j;
          const int64_t columns = std::min<int64_t>(2 * N, i + r + 1 - j);
          for (int64_t l = 0; l < columns; ++l) out[l] -= sum[r][l / N][l % N];
        }
      }
    }
  }
};

}  // namespace xmcjax::XMCJAX_ISA
