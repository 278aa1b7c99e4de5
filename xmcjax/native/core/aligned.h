// Working arrays of the kernels.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace xmcjax {

// A vector of a tile that began elsewhere would lie in two lines of the cache.
constexpr size_t kAlignment = 64;

template <class T>
struct AlignedAllocator {
  typedef T value_type;

  AlignedAllocator() = default;
  template <class U>
  AlignedAllocator(const AlignedAllocator<U>&) {}
  T* allocate(size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t(kAlignment)));
  }
  void deallocate(T* p, size_t) { ::operator delete(p, std::align_val_t(kAlignment)); }
  bool operator==(const AlignedAllocator&) const { return true; }
  bool operator!=(const AlignedAllocator&) const { return false; }
};
template <class T>
using Array = std::vector<T, AlignedAllocator<T>>;

// `count` zeros, aligned.
template <class T>
class Zeros {
 public:
  explicit Zeros(int64_t count = 0) {
    if (count <= 0) return;
    const size_t bytes = (size_t(count) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    data_.reset(static_cast<T*>(std::aligned_alloc(kAlignment, bytes)));
    if (!data_) throw std::bad_alloc();
    __builtin_memset(data_.get(), 0, bytes);
  }
  T* get() const { return data_.get(); }
  T& operator[](int64_t i) const { return data_.get()[i]; }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
};

}  // namespace xmcjax
