#include "dual/multiclass.h"

namespace xmcjax {

const std::vector<DualEntry>& DualPointByRow::taken(int64_t i, std::vector<DualEntry>& row) const {
  row.clear();
  take_row(i, row);
  return row;
}

int64_t DualPointByRow::alpha_count() const {
  std::vector<DualEntry> row;
  int64_t count = 0;
  for (int64_t i = 0; i < n_; ++i) count += int64_t(taken(i, row).size());
  return count;
}

void DualPointByRow::get_alpha(int64_t* offset, int32_t* index, double* value) const {
  std::vector<DualEntry> row;
  int64_t at = offset[0] = 0;
  for (int64_t i = 0; i < n_; offset[++i] = at)
    for (const DualEntry& e : taken(i, row)) index[at] = e.c, value[at++] = e.value;
}

void DualPointByRow::set_alpha(const int64_t* offset, const int32_t* index, const double* value) {
  std::vector<DualEntry> row;
  clear();
  for (int64_t i = 0; i < n_; ++i) {
    row.clear();
    for (int64_t p = offset[i]; p < offset[i + 1]; ++p) row.push_back({index[p], value[p]});
    put_row(i, row);
  }
  settle_alpha();
}

}  // namespace xmcjax
