// The reader of a native call: it checks what the caller has given against the declaration of the call (calls.def), and
// fills the struct of its arguments.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/arrays.h"

namespace xmcjax {

// The kind of a number, 'f', 'i' or 'u' as in NumPy, and its bytes; 0 is any other.
using Type = int32_t;
template <class T>
constexpr Type kType = (std::is_floating_point_v<T> ? 'f'
                        : std::is_signed_v<T>       ? 'i'
                                                    : 'u')
                           << 8 |
                       int32_t(sizeof(T));

// A contiguous array of the caller.
struct Array {
  void* data;
  Type type;
  int32_t axes;
  const int64_t* length;  // of each axis
};

// "float32 [5, 2]", for sentences.
std::string described(const Array& array);

// What a caller has given: arrays that are read, in the order of the declaration; arrays that are written, likewise;
// and the options. A field that is changed in place is in both, with the same memory or with two memories.
struct Given {
  const char* call;
  const Array *in, *out;
  int64_t ins, outs;
  std::function<int64_t(const char* name)> option;

  // Whether the reals of this call are double.
  bool wide() const;
};

class Reader {
 public:
  explicit Reader(const Given& given) : given_(given) { size_.reserve(24); }

  // Keeps the sizes of these names, as in "lanes, k", in these variables.
  template <class... Size>
  void sizes(const char* names, Size&... size) {
    std::string_view rest = names;
    (keep(word(rest), size), ...);
  }
  template <class T>
  void csr(Csr<T>& X, const char* name, const char* rows, const char* columns) {
    keep(rows, X.n), keep(columns, X.d), keep("entries", entries_), keep("rows + 1", ends_);
    X.value = static_cast<const T*>(taken(kType<T>, name, "entries").data);
    X.column = static_cast<const int32_t*>(taken(kType<int32_t>, name, "entries").data);
    X.offset = csr_offset(name, X.n);
  }
  template <class T>
  void in(const T*& field, const char* name, const char* sizes) {
    field = static_cast<const T*>(taken(kType<T>, name, sizes).data);
  }
  void places(const int32_t*& field, const char* name, const char* bound, const char* sizes);
  template <class T>
  void each(Broadcast<T>& field, const char* name, const char* sizes) {
    const Array& array = taken(kType<T>, name, sizes, true);
    field = {static_cast<const T*>(array.data), array.length[0] == 1 ? 0 : array.length[1],
             array.length[1] == 1 ? 0 : 1};
  }
  template <class T>
  void number(T& field, const char* name) {
    field = *static_cast<const T*>(taken(kType<T>, name, "").data);
  }
  void option(int64_t& field, const char* name) {
    keep(name, field);
    field = given_.option(name);
  }
  void id(int32_t& field, const char* name, int32_t count, const char* list);
  template <class T>
  void inout(T*& field, const char* name, const char* sizes) {
    const Array& from = taken(kType<T>, name, sizes);
    field = static_cast<T*>(result(kType<T>, name, sizes).data);
    copy(from, field);
  }
  template <class T>
  void out(T*& field, const char* name, const char* sizes) {
    field = static_cast<T*>(result(kType<T>, name, sizes).data);
  }
  // Checks that all arrays have been read.
  void end();

 private:
  struct Size {
    std::string_view name;
    int64_t* value;  // -1: not known yet
  };

  // Takes the first word off a list, with what separates it from the next.
  static std::string_view word(std::string_view& list);
  void keep(std::string_view name, int64_t& size);
  bool is(std::string_view size, int64_t length, bool or_one);
  bool fits(const Array& array, std::string_view sizes, bool or_one);
  const Array& checked(bool there, const Array* array, Type type, const char* name, const char* sizes,
                       bool or_one);
  const Array& taken(Type type, const char* name, const char* sizes, bool or_one = false);
  const Array& result(Type type, const char* name, const char* sizes);
  const int64_t* csr_offset(const char* name, int64_t& rows);
  // A result starts as a copy of its argument, where the two have not the same memory.
  static void copy(const Array& from, void* to);
  std::string described(Type type, const char* sizes);
  [[noreturn]] void refuse(const std::string& what);

  const Given& given_;
  std::vector<Size> size_;
  int64_t in_ = 0, out_ = 0, entries_, ends_;
};

}  // namespace xmcjax
