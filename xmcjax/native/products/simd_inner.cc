// Inner products of some rows of a sparse matrix X with all rows of another one, Y (kernels/_points.py).
//
// As many rows of X as fill two tiles stand side by side in a table. It has a row for each column in which one of them
// has an entry, and a first row of zeros for all other columns; an array over all columns holds only the number of
// each column's row in the table. The rows of Y go through the table, so that the sums have the terms and the order,
// and the bits, of sums with an array of the values of all columns.
#include <algorithm>
#include <vector>

#include "core/csr_rows.h"

namespace xmcjax::XMCJAX_ISA {

namespace {

template <class T>
class Table {
 public:
  static constexpr int kWidth = 2 * kLanes<T>;

  explicit Table(int64_t features) : row_(Zeros<int32_t>::large(features)) {}

  // Takes the rows of X at `count` places.
  void fill(const Csr<T>& X, const int32_t* place, int64_t count) {
    for (const int32_t j : columns_) row_[j] = 0;
    columns_.clear();
    for (int64_t p = 0; p < count; ++p)
      for (int64_t k = X.offset[place[p]]; k < X.offset[place[p] + 1]; ++k) {
        int32_t& row = row_[X.column[k]];
        if (row) continue;
        columns_.push_back(X.column[k]);
        row = int32_t(columns_.size());
      }
    value_.assign((columns_.size() + 1) * kWidth, T(0));
    for (int64_t p = 0; p < count; ++p)
      for (int64_t k = X.offset[place[p]]; k < X.offset[place[p] + 1]; ++k)
        value_[row_[X.column[k]] * int64_t(kWidth) + p] += X.value[k];
  }

  // sum[0:kWidth] = inner products of these rows with row i of Y
  void products(const Csr<T>& Y, int64_t i, T* sum) {
    const int64_t first = Y.offset[i], offset[2] = {0, Y.offset[i + 1] - first};
    found_.resize(offset[1]);
    for (int64_t k = 0; k < offset[1]; ++k) found_[k] = row_[Y.column[first + k]];
    const Csr<T> found{1, int64_t(columns_.size()) + 1, Y.value + first, found_.data(), offset};
    row_dots<kWidth>(found, 0, value_.data(), kWidth, sum);
  }

 private:
  Zeros<int32_t> row_;  // of each column in the table
  std::vector<int32_t> columns_, found_;
  Array<T> value_;
};

}  // namespace

template <class T>
void inner(const InnerArgs<T>& a, int64_t first, int64_t last) {
  constexpr int kWidth = Table<T>::kWidth;
  Table<T> table(a.features);
  alignas(64) T sum[kWidth];
  const Poll poll;
  for (int64_t p = 0; p < a.places; p += kWidth) {
    const int64_t count = std::min<int64_t>(kWidth, a.places - p);
    table.fill(a.X, a.place + p, count);
    for (int64_t i = first; i < last; poll(2 * entries(a.Y, i++))) {
      table.products(a.Y, i, sum);
      for (int64_t r = 0; r < count; ++r) a.out[(p + r) * a.Y.n + i] = sum[r];
    }
  }
}

template void inner(const InnerArgs<float>&, int64_t, int64_t);
template void inner(const InnerArgs<double>&, int64_t, int64_t);

}  // namespace xmcjax::XMCJAX_ISA
