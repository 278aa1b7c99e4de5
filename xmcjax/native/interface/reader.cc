#include "interface/reader.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>

#include "interface/guard.h"
#include "interface/ids.h"

namespace xmcjax {

UnknownId::UnknownId(const char* list, int64_t id)
    : std::invalid_argument(std::string("a number of the ") + list + " of ids.def, got " +
                            std::to_string(id)) {}

void unknown_id(const char* list, int64_t id) { throw UnknownId(list, id); }

namespace {

int64_t count(const Array& array) {
  int64_t product = 1;
  for (int32_t axis = 0; axis < array.axes; ++axis) product *= array.length[axis];
  return product;
}

std::string name_of(Type type) {
  const char* kind = type >> 8 == 'f'   ? "float"
                     : type >> 8 == 'i' ? "int"
                     : type >> 8 == 'u' ? "uint"
                                        : nullptr;
  return kind ? kind + std::to_string(8 * (type & 255)) : "numbers of another kind";
}

}  // namespace

std::string described(const Array& array) {
  std::string text = name_of(array.type) + " [";
  for (int32_t axis = 0; axis < array.axes; ++axis)
    text += (axis ? ", " : "") + std::to_string(array.length[axis]);
  return text + "]";
}

bool Given::wide() const {
  const auto is_real = [](const Array& array) { return array.type >> 8 == 'f'; };
  const Array* read = std::find_if(in, in + ins, is_real);
  if (read != in + ins) return read->type == kType<double>;
  const Array* written = std::find_if(out, out + outs, is_real);
  return written != out + outs && written->type == kType<double>;
}

std::string_view Reader::word(std::string_view& list) {
  const std::string_view first = list.substr(0, list.find(','));
  list.remove_prefix(first.size());
  while (!list.empty() && (list[0] == ',' || list[0] == ' ')) list.remove_prefix(1);
  return first;
}

void Reader::keep(std::string_view name, int64_t& size) {
  size = -1;
  size_.push_back({name, &size});
}

bool Reader::is(std::string_view size, int64_t length, bool or_one) {
  if (or_one && length == 1) return true;
  if (size[0] >= '0' && size[0] <= '9') {
    int64_t number = -1;
    std::from_chars(size.data(), size.data() + size.size(), number);
    return length == number;
  }
  for (const Size& known : size_)
    if (known.name == size) {
      if (*known.value < 0) *known.value = length;
      return *known.value == length;
    }
  return false;
}

bool Reader::fits(const Array& array, std::string_view sizes, bool or_one) {
  int32_t words = 0, axis = 0;
  for (std::string_view rest = sizes; !rest.empty(); ++words) word(rest);
  for (; !sizes.empty(); --words) {
    const std::string_view size = word(sizes);
    if (size == "batch") {
      int64_t product = 1;
      while (array.axes - axis > words - 1) product *= array.length[axis++];
      if (!is(size, product, false)) return false;
    } else if (axis == array.axes || !is(size, array.length[axis++], or_one)) {
      return false;
    }
  }
  return axis == array.axes;
}

// "float32 [n, lanes] = [5, 2]", with the sizes that are known.
std::string Reader::described(Type type, const char* sizes) {
  std::string lengths;
  for (std::string_view rest = sizes; !rest.empty();) {
    std::string_view size = word(rest);
    std::string length(size);
    for (const Size& known : size_)
      if (known.name == size && *known.value >= 0) length = std::to_string(*known.value);
    lengths += (lengths.empty() ? "" : ", ") + length;
  }
  std::string text = name_of(type) + " [" + sizes + "]";
  return lengths == sizes ? text : text + " = [" + lengths + "]";
}

void Reader::refuse(const std::string& what) {
  throw BadArgument(std::string(given_.call) + ": expected " + what);
}

const Array& Reader::checked(bool there, const Array* array, Type type, const char* name, const char* sizes,
                             bool or_one) {
  if (!there) refuse(std::string("a field ") + name + ", got none");
  if (array->type != type || !fits(*array, sizes, or_one))
    refuse(std::string(name) + " as " + described(type, sizes) + (or_one ? " or with axes of length 1" : "") +
           ", got " + xmcjax::described(*array));
  return *array;
}

const Array& Reader::taken(Type type, const char* name, const char* sizes, bool or_one) {
  const int64_t i = in_++;
  return checked(i < given_.ins, given_.in + i, type, name, sizes, or_one);
}

const Array& Reader::result(Type type, const char* name, const char* sizes) {
  const int64_t i = out_++;
  return checked(i < given_.outs, given_.out + i, type, name, sizes, false);
}

void Reader::places(const int32_t*& field, const char* name, const char* bound, const char* sizes) {
  const Array& array = taken(kType<int32_t>, name, sizes);
  field = static_cast<const int32_t*>(array.data);
  int64_t last = -1;
  for (const Size& known : size_)
    if (known.name == bound) last = *known.value - 1;
  for (int64_t i = 0; i < count(array); ++i)
    if (field[i] < 0 || field[i] > last)
      refuse(std::string(name) + " from 0 to " + std::to_string(last) + ", got " + std::to_string(field[i]));
}

void Reader::id(int32_t& field, const char* name, int32_t count, const char* list) {
  field = known(given_.option(name), count, list);
}

// The offsets come as int32 [rows + 1, 2], the halves of 64-bit numbers: JAX has no int64 by default.
const int64_t* Reader::csr_offset(const char* name, int64_t& rows) {
  const auto* offset = static_cast<const int64_t*>(taken(kType<int32_t>, name, "rows + 1, 2").data);
  rows = ends_ - 1;
  if (rows < 0 || offset[rows] != entries_)
    refuse(std::string("offsets of ") + name + " that end at " + std::to_string(entries_) +
           ", the number of entries");
  return offset;
}

void Reader::copy(const Array& from, void* to) {
  const size_t bytes = size_t(count(from)) * size_t(from.type & 255);
  if (to != from.data && bytes) std::memcpy(to, from.data, bytes);
}

void Reader::end() {
  if (in_ != given_.ins || out_ != given_.outs)
    refuse(std::to_string(in_) + " arrays and " + std::to_string(out_) + " results, got " +
           std::to_string(given_.ins) + " and " + std::to_string(given_.outs));
}

}  // namespace xmcjax
