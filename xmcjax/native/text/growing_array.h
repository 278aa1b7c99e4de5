// An array for what a text is read into.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>

namespace {

// An array that grows through realloc: large blocks move by remapping pages, so that the peak is
// the array itself and not the two or three copies of it that a std::vector makes. The caller
// reserves for a whole row at once; push() does not check.
template <class T>
class Column {
 public:
  ~Column() { std::free(data_); }
  Column() = default;
  Column(const Column&) = delete;
  Column& operator=(const Column&) = delete;

  bool reserve(size_t extra) {
    size_t needed = size + extra;
    if (needed <= capacity_) return true;
    size_t capacity = std::max(needed, capacity_ + capacity_ / 2);
    T* moved = static_cast<T*>(std::realloc(data_, capacity * sizeof(T)));
    if (moved == nullptr) return false;
    data_ = moved;
    capacity_ = capacity;
    return true;
  }
  void push(T value) { data_[size++] = value; }
  T& operator[](size_t i) { return data_[i]; }

  // Hands the block over, cut to its length; the new owner frees it with xmcjax_text_free.
  T* release() {
    T* block = data_;
    if (size > 0) {
      T* cut = static_cast<T*>(std::realloc(block, size * sizeof(T)));
      if (cut != nullptr) block = cut;
    }
    data_ = nullptr;
    size = capacity_ = 0;
    return block;
  }

  size_t size = 0;

 private:
  T* data_ = nullptr;
  size_t capacity_ = 0;
};

}  // namespace
