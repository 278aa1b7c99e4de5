// Rows of text, "labels index:value index:value ...", to the arrays of two CSR matrices.
//
// Python (xmcjax/data/_text.py) reads the file in chunks of whole lines, handles the header and
// words the errors; this file turns digits into numbers. Its twin is xmcjax/data/_text_python.py:
// same arrays, same first fault, at the same byte.
//
//   row    = [labels] { blank index ":" value } [blank] [comment] ["\r"] "\n"
//   labels = label { "," label }    or, where a row has one class, [blank] integer
//   blank  = one or more spaces or tabs
// With kPassedOver a first item without a colon is passed over, whatever it is. Where comments may be, there may also
// be a blank and "qid:" digits behind the labels.
//
// A value is the double nearest to its decimal text, then rounded to the matrix's type.
#include <algorithm>
#include <charconv>
#include <clocale>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#if defined(__APPLE__)
#include <xlocale.h>
#endif

#include "interface/guard.h"
#include "text/growing_array.h"

namespace {

// The numbers are those of xmcjax/data/_text_format.py (Kind).
enum Fault : int32_t {
  kNone = 0,
  kLabel = 1,
  kLabelTwice = 2,
  kClass = 3,
  kPair = 4,
  kIndex = 5,
  kIndexTwice = 6,
  kValue = 7,
  kRows = 8,
  kMemory = 9,
};

// What stands before the features of a row. The numbers are those of _text_format.py (Head).
enum Head : int32_t { kLabels = 0, kOneClass = 1, kPassedOver = 2 };

struct Format {
  int32_t head;
  bool comments;  // "#" ends a line
  uint64_t first_feature;  // the file's number of column 0
  uint64_t n_features;
  uint64_t first_label;
  uint64_t n_labels;
  uint64_t n_rows;
};

inline bool is_digit(char c) { return static_cast<unsigned char>(c - '0') <= 9; }
inline bool is_blank(char c) { return c == ' ' || c == '\t'; }

constexpr int kSafeDigits = 18;  // any integer of so many digits fits an int64

// The digits at p as a number; more than 18 of them, leading zeros apart, give 10^18, which no
// bound admits. The buffer ends in a byte that is no digit, so the loop needs no end.
inline uint64_t read_digits(const char*& p) {
  const char* first = p;
  uint64_t number = 0;
  while (is_digit(*p)) number = number * 10 + static_cast<uint64_t>(*p++ - '0');
  if (p - first <= kSafeDigits) return number;
  while (*first == '0') ++first;
  if (p - first > kSafeDigits) return 1000000000000000000ull;
  for (number = 0; first < p; ++first) number = number * 10 + static_cast<uint64_t>(*first - '0');
  return number;
}

// The double nearest to the unsigned decimal [p, end), which the caller has checked for grammar.
double nearest_double(const char* p, const char* end) {
#if defined(__cpp_lib_to_chars)
  double value = 0;
  auto result = std::from_chars(p, end, value);
  if (result.ec == std::errc() && result.ptr == end) return value;
#endif
  // For numbers outside the range of double, of which from_chars gives no value, and for a library without from_chars.
  static const locale_t c_locale = newlocale(LC_ALL_MASK, "C", static_cast<locale_t>(nullptr));
  return strtod_l(std::string(p, end).c_str(), nullptr, c_locale);
}

// [+-] (digits [. digits] | . digits) [(e|E) [+-] digits], the whole of [p, end).
bool read_number(const char* p, const char* end, double* out) {
  bool negative = p < end && *p == '-';
  if (p < end && (*p == '-' || *p == '+')) ++p;
  const char* first = p;
  const char* mark = p;
  while (p < end && is_digit(*p)) ++p;
  auto digits = p - mark;
  if (p < end && *p == '.') {
    mark = ++p;
    while (p < end && is_digit(*p)) ++p;
    digits += p - mark;
  }
  if (digits == 0) return false;
  if (p < end && (*p == 'e' || *p == 'E')) {
    ++p;
    if (p < end && (*p == '-' || *p == '+')) ++p;
    mark = p;
    while (p < end && is_digit(*p)) ++p;
    if (p == mark) return false;
  }
  if (p != end) return false;
  double value = nearest_double(first, end);
  *out = negative ? -value : value;
  return true;
}

constexpr double kPowersOfTen[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

struct Reader {
  Reader(const Format& f, bool wide_values) : format(f), wide(wide_values) {}

  Format format;
  bool wide;  // values in double
  Column<int64_t> indptr, label_indptr, classes;
  Column<int32_t> indices, label_indices;
  Column<float> values32;
  Column<double> values64;
  std::vector<std::pair<int32_t, double>> scratch;
  std::vector<std::pair<uint64_t, const char*>> seen;
  uint64_t rows = 0;
  int64_t lines = 0;
  int64_t max_feature = -1, max_label = -1;
  const char* fault_at = nullptr;

  bool ends_token(const char* p, const char* end) const {
    return p == end || is_blank(*p) || (format.comments && *p == '#');
  }
  const char* token_end(const char* p, const char* end) const {
    while (!ends_token(p, end)) ++p;
    return p;
  }
  Fault fail(Fault fault, const char* at) {
    fault_at = at;
    return fault;
  }

  template <class T>
  Column<T>& values();

  // Of all items in `seen`, the first one in the text whose number an earlier item has.
  const char* first_repeat() {
    std::sort(seen.begin(), seen.end());
    const char* first = nullptr;
    for (size_t i = 1; i < seen.size(); ++i)
      if (seen[i].first == seen[i - 1].first && (first == nullptr || seen[i].second < first))
        first = seen[i].second;
    return first;
  }

  // Label list at p; leaves p behind it.
  Fault read_labels(const char*& p, const char* end) {
    const size_t begin = label_indices.size;
    const char* first = p;
    bool sorted = true;
    int64_t last = -1;
    if (!ends_token(p, end)) {
      for (;;) {
        const char* item = p;
        uint64_t label = read_digits(p) - format.first_label;
        if (p == item || label >= format.n_labels || !(ends_token(p, end) || *p == ','))
          return fail(kLabel, item);
        sorted &= static_cast<int64_t>(label) > last;
        last = static_cast<int64_t>(label);
        label_indices.push(static_cast<int32_t>(label));
        if (p == end || *p != ',') break;
        ++p;
      }
    }
    if (!sorted) {
      int32_t* from = &label_indices[begin];
      int32_t* to = from + (label_indices.size - begin);
      std::sort(from, to);
      if (std::adjacent_find(from, to) != to) {
        seen.clear();
        for (const char* q = first; q < p; ++q) {
          const char* item = q;
          seen.emplace_back(read_digits(q), item);
        }
        return fail(kLabelTwice, first_repeat());
      }
      last = to[-1];
    }
    max_label = std::max(max_label, last);
    label_indptr.push(static_cast<int64_t>(label_indices.size));
    return kNone;
  }

  // One class at p, an integer also where it is written with a point ("2.0").
  Fault read_class(const char*& p, const char* end) {
    while (is_blank(*p)) ++p;
    const char* item = p;
    const char* stop = token_end(p, end);
    bool negative = *p == '-';
    if (p < stop && (*p == '-' || *p == '+')) ++p;
    const char* digits = p;
    uint64_t magnitude = read_digits(p);
    int64_t number = 0;
    if (p == stop && p > digits) {
      if (magnitude >= 1000000000000000000ull) return fail(kClass, item);
      number = negative ? -static_cast<int64_t>(magnitude) : static_cast<int64_t>(magnitude);
    } else {
      double value = 0;
      if (!read_number(item, stop, &value) || value != std::floor(value) ||
          std::fabs(value) > 9007199254740992.0)
        return fail(kClass, item);
      number = static_cast<int64_t>(value);
    }
    p = stop;
    classes.push(number);
    return kNone;
  }

  // What stands at p before the features.
  Fault read_head(const char*& p, const char* end) {
    if (format.head == kLabels) return read_labels(p, end);
    if (format.head == kOneClass) return read_class(p, end);
    const char* item = p;
    while (is_blank(*item)) ++item;
    const char* stop = token_end(item, end);
    if (std::memchr(item, ':', static_cast<size_t>(stop - item)) == nullptr) p = stop;
    return kNone;
  }

  // What follows the query id at p, svmlight's "qid:7"; p where there is none.
  const char* after_query(const char* p, const char* end) const {
    const char* item = p;
    while (is_blank(*item)) ++item;
    if (item == p || end - item < 5 || std::memcmp(item, "qid:", 4) != 0) return p;
    item += 4;
    const char* stop = token_end(item, end);
    return std::all_of(item, stop, is_digit) && stop > item ? stop : p;
  }

  // What is wrong with the pair that starts at `token`, when its index could not be used.
  Fault index_fault(const char* token, const char* end) {
    const char* stop = token_end(token, end);
    bool pair = std::memchr(token, ':', static_cast<size_t>(stop - token)) != nullptr;
    return fail(pair ? kIndex : kPair, token);
  }

  // Value at p, up to the end of its token; false where it is no finite number of type T.
  template <class T>
  bool read_value(const char*& p, const char* end, T* out) {
    const char* item = p;
    bool negative = *p == '-';
    p += negative;
    const char* first = p;
    uint64_t mantissa = 0;
    while (is_digit(*p)) mantissa = mantissa * 10 + static_cast<uint64_t>(*p++ - '0');
    int64_t digits = p - first;
    int64_t decimals = 0;
    if (*p == '.') {
      const char* point = p++;
      while (is_digit(*p)) mantissa = mantissa * 10 + static_cast<uint64_t>(*p++ - '0');
      decimals = p - point - 1;
      digits += decimals;
    }
    double value = 0;
    // Both numbers are exact doubles, so one division rounds correctly (Clinger 1990).
    if (digits > 0 && digits <= kSafeDigits && mantissa <= (1ull << 53) && ends_token(p, end)) {
      value = static_cast<double>(mantissa) / kPowersOfTen[decimals];
      if (negative) value = -value;
    } else {
      p = token_end(item, end);
      if (!read_number(item, p, &value)) return false;
    }
    *out = static_cast<T>(value);
    return std::isfinite(*out);
  }

  template <class T>
  Fault read_features(const char* p, const char* end) {
    Column<T>& vals = values<T>();
    const size_t begin = indices.size;
    const char* row = p;
    bool sorted = true, zeros = false;
    int64_t last = -1;
    for (;;) {
      while (is_blank(*p)) ++p;
      if (ends_token(p, end)) break;
      const char* token = p;
      uint64_t index = read_digits(p) - format.first_feature;
      if (p == token || *p != ':' || index >= format.n_features) return index_fault(token, end);
      const char* item = ++p;
      T value;
      if (!read_value(p, end, &value)) return fail(kValue, item);
      sorted &= static_cast<int64_t>(index) > last;
      zeros |= value == T(0);
      last = static_cast<int64_t>(index);
      indices.push(static_cast<int32_t>(index));
      vals.push(value);
    }
    size_t stop = indices.size;
    if (!sorted) {
      if (!sort_row(begin, vals)) {
        seen.clear();
        for (const char* q = row; !ends_token(q, end) || is_blank(*q);) {
          while (is_blank(*q)) ++q;
          if (ends_token(q, end)) break;
          const char* token = q;
          seen.emplace_back(read_digits(q), token);
          q = token_end(q, end);
        }
        return fail(kIndexTwice, first_repeat());
      }
      last = indices[stop - 1];
    }
    max_feature = std::max(max_feature, last);
    if (zeros) {
      size_t kept = begin;
      for (size_t i = begin; i < stop; ++i) {
        if (vals[i] == T(0)) continue;
        indices[kept] = indices[i];
        vals[kept++] = vals[i];
      }
      indices.size = vals.size = kept;
    }
    indptr.push(static_cast<int64_t>(indices.size));
    return kNone;
  }

  // Sorts the row that starts at `begin` by index; false where an index comes twice.
  template <class T>
  bool sort_row(size_t begin, Column<T>& vals) {
    scratch.clear();
    for (size_t i = begin; i < indices.size; ++i)
      scratch.emplace_back(indices[i], static_cast<double>(vals[i]));
    std::sort(scratch.begin(), scratch.end(), [](auto& a, auto& b) { return a.first < b.first; });
    for (size_t i = 0; i < scratch.size(); ++i) {
      if (i > 0 && scratch[i].first == scratch[i - 1].first) return false;
      indices[begin + i] = scratch[i].first;
      vals[begin + i] = static_cast<T>(scratch[i].second);
    }
    return true;
  }

  // Room for all that a row of this many bytes can hold: a pair takes four, a label two.
  template <class T>
  bool reserve(size_t bytes) {
    return indices.reserve(bytes / 4 + 1) && values<T>().reserve(bytes / 4 + 1) && indptr.reserve(1) &&
           (format.head != kOneClass || classes.reserve(1)) &&
           (format.head != kLabels || (label_indices.reserve(bytes / 2 + 1) && label_indptr.reserve(1)));
  }

  template <class T>
  Fault feed(const char* p, const char* buffer_end) {
    while (p < buffer_end) {
      auto newline = static_cast<const char*>(std::memchr(p, '\n', static_cast<size_t>(buffer_end - p)));
      const char* next = newline == nullptr ? buffer_end : newline + 1;
      const char* end = newline == nullptr ? buffer_end : newline;
      if (end > p && end[-1] == '\r') --end;
      if (!(format.comments && p < end && *p == '#')) {
        if (rows == format.n_rows) return fail(kRows, p);
        if (!reserve<T>(static_cast<size_t>(end - p) + 1)) return fail(kMemory, p);
        Fault fault = read_head(p, end);
        if (fault == kNone && format.comments) p = after_query(p, end);
        if (fault == kNone) fault = read_features<T>(p, end);
        if (fault != kNone) return fault;
        ++rows;
      }
      ++lines;
      p = next;
    }
    return kNone;
  }
};

template <>
Column<float>& Reader::values<float>() {
  return values32;
}
template <>
Column<double>& Reader::values<double>() {
  return values64;
}

}  // namespace

// A reader, or null without memory. A bound that is not known is passed as the largest allowed.
XMCJAX_EXPORT void* xmcjax_text_new(int32_t head, int32_t comments, int64_t first_feature, int64_t n_features,
                                    int64_t first_label, int64_t n_labels, int64_t n_rows, int64_t lines,
                                    int32_t wide) {
  Format format{head,
                comments != 0,
                static_cast<uint64_t>(first_feature),
                static_cast<uint64_t>(n_features),
                static_cast<uint64_t>(first_label),
                static_cast<uint64_t>(n_labels),
                static_cast<uint64_t>(n_rows)};
  return xmcjax::guarded_value<void*>(nullptr, [&]() -> void* {
    auto reader = std::make_unique<Reader>(format, wide != 0);
    reader->lines = lines;
    // Row 0 starts at entry 0.
    if (!reader->indptr.reserve(1) || !reader->label_indptr.reserve(1)) return nullptr;
    reader->indptr.push(0);
    reader->label_indptr.push(0);
    return reader.release();
  });
}

// Reads the lines of buffer[start, length); buffer[length] must be readable and no digit (a
// Python bytes object ends in a zero byte). Returns a Fault; where[0] is then its byte in the
// buffer and where[1] the lines before it.
XMCJAX_EXPORT int32_t xmcjax_text_feed(void* handle, const char* buffer, int64_t start, int64_t length,
                                       int64_t* where) {
  auto* reader = static_cast<Reader*>(handle);
  Fault fault = kMemory;
  reader->fault_at = buffer + start;
  xmcjax::guarded([&] {
    fault = reader->wide ? reader->feed<double>(buffer + start, buffer + length)
                         : reader->feed<float>(buffer + start, buffer + length);
  });
  where[0] = reader->fault_at - buffer;
  where[1] = reader->lines;
  return fault;
}

// Rows read, and the largest column and label met (-1: none).
XMCJAX_EXPORT void xmcjax_text_counts(void* handle, int64_t* counts) {
  xmcjax::guarded([&] {
    auto* reader = static_cast<Reader*>(handle);
    counts[0] = static_cast<int64_t>(reader->rows);
    counts[1] = reader->max_feature;
    counts[2] = reader->max_label;
  });
}

// Hands one array over (0 indptr, 1 indices, 2 values, 3 label indptr, 4 label indices,
// 5 classes); returns its number of entries.
XMCJAX_EXPORT int64_t xmcjax_text_take(void* handle, int32_t which, void** block) {
  *block = nullptr;
  return xmcjax::guarded_value<int64_t>(-1, [&]() -> int64_t {
    auto* reader = static_cast<Reader*>(handle);
    auto take = [block](auto& column) {
      auto size = static_cast<int64_t>(column.size);
      *block = column.release();
      return size;
    };
    switch (which) {
      case 0: return take(reader->indptr);
      case 1: return take(reader->indices);
      case 2: return reader->wide ? take(reader->values64) : take(reader->values32);
      case 3: return take(reader->label_indptr);
      case 4: return take(reader->label_indices);
      case 5: return take(reader->classes);
      default: return -1;
    }
  });
}

XMCJAX_EXPORT void xmcjax_text_free(void* block) {
  xmcjax::guarded([&] { std::free(block); });
}

XMCJAX_EXPORT void xmcjax_text_delete(void* handle) {
  xmcjax::guarded([&] { delete static_cast<Reader*>(handle); });
}
