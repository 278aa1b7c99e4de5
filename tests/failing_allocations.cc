// Preloaded: the allocation that is asked for fails, of those that the native library of xmcjax makes.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>
#include <new>

namespace {

std::atomic<uintptr_t> first{0}, last{0};
std::atomic<long> made{0}, failing{-1};

int find(dl_phdr_info* info, size_t, void*) {
  if (!strstr(info->dlpi_name, "libxmcjax_native")) return 0;
  for (int k = 0; k < info->dlpi_phnum; ++k) {
    if (info->dlpi_phdr[k].p_type != PT_LOAD || !(info->dlpi_phdr[k].p_flags & PF_X)) continue;
    first = info->dlpi_addr + info->dlpi_phdr[k].p_vaddr;
    last = first + info->dlpi_phdr[k].p_memsz;
  }
  return 1;
}

bool fails(void* caller) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(caller);
  return at >= first && at < last && made++ == failing;
}

template <class F>
F real(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

void* enough(void* p) {
  if (!p) throw std::bad_alloc();
  return p;
}

}  // namespace

#define CALLER __builtin_return_address(0)

extern "C" {

// Allocation number `which` from now on fails; none where it is below 0. Returns how many were made so far.
long fail_allocation(long which) {
  dl_iterate_phdr(find, nullptr);
  failing = which;
  return made.exchange(0);
}

void* realloc(void* p, size_t size) {
  static auto* const plain = real<void* (*)(void*, size_t)>("realloc");
  return fails(CALLER) ? nullptr : plain(p, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  static auto* const plain = real<void* (*)(size_t, size_t)>("aligned_alloc");
  return fails(CALLER) ? nullptr : plain(alignment, size);
}

}  // extern "C"

// To the operators that come next, those of a sanitizer where there is one: what they made, their own delete takes.
void* operator new(size_t size) {
  static auto* const plain = real<void* (*)(size_t)>("_Znwm");
  return enough(fails(CALLER) ? nullptr : plain(size));
}
void* operator new(size_t size, const std::nothrow_t& none) noexcept {
  static auto* const plain = real<void* (*)(size_t, const std::nothrow_t&)>("_ZnwmRKSt9nothrow_t");
  return fails(CALLER) ? nullptr : plain(size, none);
}
void* operator new(size_t size, std::align_val_t alignment) {
  static auto* const plain = real<void* (*)(size_t, std::align_val_t)>("_ZnwmSt11align_val_t");
  return enough(fails(CALLER) ? nullptr : plain(size, alignment));
}
