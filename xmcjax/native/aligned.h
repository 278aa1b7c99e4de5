// Working arrays of the kernels.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace xmcjax {

// `count` zeros, aligned to 64 bytes.
template <class T>
class Zeros {
 public:
  explicit Zeros(int64_t count = 0) {
    if (count <= 0) return;
    const size_t bytes = (size_t(count) * sizeof(T) + 63) / 64 * 64;
    data_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
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
