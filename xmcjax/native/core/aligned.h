// Working arrays of the kernels.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace xmcjax {

// Bytes of a line of the cache, at which arrays begin: a vector of a tile that began elsewhere would lie in two lines.
constexpr size_t kAlignment = 64;
constexpr size_t kLargePage = 1 << 21;  // bytes

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
  explicit Zeros(int64_t count = 0, size_t grain = kAlignment) {
    if (count <= 0) return;
    const size_t bytes = (size_t(count) * sizeof(T) + grain - 1) / grain * grain;
    data_.reset(static_cast<T*>(std::aligned_alloc(grain, bytes)));
    if (!data_) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
    if (grain == kLargePage) madvise(data_.get(), bytes, MADV_HUGEPAGE);
#endif
    __builtin_memset(data_.get(), 0, bytes);
  }
  // `count` zeros in large pages, where the system has them: passes over rows in random order read lines all over.
  static Zeros large(int64_t count) {
    return Zeros(count, size_t(count) * sizeof(T) < kLargePage ? kAlignment : kLargePage);
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
