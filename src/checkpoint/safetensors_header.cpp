// The header is read as a stream of JSON events: a document tree of a hostile 100 MB header would
// take gigabytes, and would hide names given twice.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "checkpoint/quote_text.h"
#include "checkpoint/safetensors.h"

namespace sluice {
namespace {

constexpr std::size_t kMaxTensors = 1'000'000;
constexpr std::size_t kMaxRank = 16;
constexpr std::size_t kMaxNameBytes = 4096;
constexpr std::uint64_t kLengthBytes = 8;

struct DTypeEntry {
  std::string_view name;
  StoredDType dtype;
  std::uint64_t bytes;
};
constexpr std::array kDTypes = {
    DTypeEntry{"BOOL", StoredDType::kBool, 1},      DTypeEntry{"U8", StoredDType::kU8, 1},
    DTypeEntry{"I8", StoredDType::kI8, 1},          DTypeEntry{"F8_E5M2", StoredDType::kF8E5M2, 1},
    DTypeEntry{"F8_E4M3", StoredDType::kF8E4M3, 1}, DTypeEntry{"I16", StoredDType::kI16, 2},
    DTypeEntry{"U16", StoredDType::kU16, 2},        DTypeEntry{"F16", StoredDType::kF16, 2},
    DTypeEntry{"BF16", StoredDType::kBF16, 2},      DTypeEntry{"I32", StoredDType::kI32, 4},
    DTypeEntry{"U32", StoredDType::kU32, 4},        DTypeEntry{"F32", StoredDType::kF32, 4},
    DTypeEntry{"F64", StoredDType::kF64, 8},        DTypeEntry{"I64", StoredDType::kI64, 8},
    DTypeEntry{"U64", StoredDType::kU64, 8},
};

const DTypeEntry& entry_of(StoredDType dtype) {
  return *std::find_if(kDTypes.begin(), kDTypes.end(),
                       [&](const DTypeEntry& e) { return e.dtype == dtype; });
}

// The number of bytes of shape x dtype; nothing if it exceeds 63 bits.
std::optional<std::uint64_t> byte_count(const TensorInfo& tensor) {
  std::int64_t bytes = static_cast<std::int64_t>(entry_of(tensor.dtype).bytes);
  bool zero = false;
  for (const std::int64_t dim : tensor.shape) {
    // A zero may follow dimensions whose product overflows; the tensor is empty nevertheless.
    if (dim == 0) zero = true;
  }
  if (zero) return 0;
  for (const std::int64_t dim : tensor.shape) {
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
  }
  return static_cast<std::uint64_t>(bytes);
}

// Collects tensors from JSON events. Every handler returns false to stop, with error_ set.
class HeaderHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderHandler(std::uint64_t data_start, std::uint64_t data_bytes, std::int32_t file_index)
      : data_start_(data_start), data_bytes_(data_bytes), file_index_(file_index) {}

  const std::string& error() const { return error_; }
  std::vector<TensorInfo> take() { return std::move(tensors_); }

  bool start_object(std::size_t /*elements*/) override {
    if (state_ == State::kStart) return enter(State::kTop);
    if (state_ == State::kTensorValue) {
      begin_tensor();
      return enter(State::kTensor);
    }
    if (state_ == State::kMetadataValue) return enter(State::kMetadata);
    return wrong_value("an object");
  }

  bool end_object() override {
    if (state_ == State::kMetadata) return enter(State::kTop);
    if (state_ == State::kTensor) return end_tensor() && enter(State::kTop);
    return enter(State::kEnd);
  }

  bool start_array(std::size_t /*elements*/) override {
    if (state_ == State::kShapeValue) return enter(State::kShape);
    if (state_ == State::kOffsetsValue) return enter(State::kOffsets);
    return wrong_value("an array");
  }

  bool end_array() override {
    if (state_ == State::kOffsets && num_offsets_ != 2) {
      return fail_tensor("data_offsets must be two numbers: begin and end");
    }
    return enter(State::kTensor);
  }

  bool key(std::string& name) override {
    if (state_ == State::kTop) return top_key(name);
    if (state_ == State::kMetadata) return true;
    if (name == "dtype") return field(has_dtype_, State::kDTypeValue, name);
    if (name == "shape") return field(has_shape_, State::kShapeValue, name);
    if (name == "data_offsets") return field(has_offsets_, State::kOffsetsValue, name);
    return fail_tensor(
        fmt::format("unknown field {}; expected dtype, shape and data_offsets", quote_text(name)));
  }

  bool string(std::string& value) override {
    if (state_ == State::kMetadata) return true;
    if (state_ != State::kDTypeValue) return wrong_value("a string");
    const auto* found = std::find_if(kDTypes.begin(), kDTypes.end(),
                                     [&](const DTypeEntry& e) { return e.name == value; });
    if (found == kDTypes.end()) {
      return fail_tensor(
          fmt::format("unknown dtype {}; expected F32, F16, BF16 or F8_E4M3", quote_text(value)));
    }
    tensors_.back().dtype = found->dtype;
    return enter(State::kTensor);
  }

  bool number_unsigned(std::uint64_t value) override {
    if (state_ == State::kShape) {
      auto& shape = tensors_.back().shape;
      if (shape.size() == kMaxRank) {
        return fail_tensor(fmt::format("more than {} dimensions", kMaxRank));
      }
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return fail_tensor("a dimension is beyond 63 bits");
      }
      shape.push_back(static_cast<std::int64_t>(value));
      return true;
    }
    if (state_ == State::kOffsets) {
      if (num_offsets_ == 2) return fail_tensor("data_offsets has more than two numbers");
      offsets_[num_offsets_++] = value;
      return true;
    }
    return wrong_value("a number");
  }

  bool number_integer(std::int64_t value) override {
    if (state_ == State::kShape || state_ == State::kOffsets) {
      return fail_tensor(fmt::format("negative number {}", value));
    }
    return wrong_value("a number");
  }
  bool number_float(double /*value*/, const std::string& text) override {
    if (state_ == State::kShape || state_ == State::kOffsets) {
      return fail_tensor(
          fmt::format("{} where a whole number below 2^63 belongs", quote_text(text)));
    }
    return wrong_value("a number");
  }
  bool null() override { return wrong_value("null"); }
  bool boolean(bool /*value*/) override { return wrong_value("a boolean"); }
  bool binary(nlohmann::json::binary_t& /*value*/) override { return wrong_value("binary"); }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*exception*/) override {
    return fail(fmt::format("header is not valid JSON at byte {}", position));
  }

 private:
  enum class State : std::uint8_t {
    kStart,
    kTop,
    kMetadataValue,
    kMetadata,
    kTensorValue,
    kTensor,
    kDTypeValue,
    kShapeValue,
    kShape,
    kOffsetsValue,
    kOffsets,
    kEnd,
  };

  bool enter(State state) {
    state_ = state;
    return true;
  }

  bool fail(std::string message) {
    error_ = std::move(message);
    return false;
  }
  bool fail_tensor(std::string_view message) {
    return fail(fmt::format("tensor {}: {}", quote_text(name_), message));
  }

  bool wrong_value(std::string_view found) {
    switch (state_) {
      case State::kStart: return fail(fmt::format("header is {}; expected an object", found));
      case State::kMetadataValue:
      case State::kMetadata:
        return fail(fmt::format("__metadata__ holds {}; expected an object of strings", found));
      case State::kTensorValue: return fail_tensor(fmt::format("is {}; expected an object", found));
      case State::kDTypeValue:
        return fail_tensor(fmt::format("dtype is {}; expected a name such as \"BF16\"", found));
      case State::kShapeValue:
      case State::kShape:
        return fail_tensor(fmt::format("shape holds {}; expected an array of sizes", found));
      default:
        return fail_tensor(
            fmt::format("data_offsets holds {}; expected two numbers: begin and end", found));
    }
  }

  bool top_key(std::string& name) {
    if (name == "__metadata__") {
      if (has_metadata_) return fail("__metadata__ is given twice");
      has_metadata_ = true;
      return enter(State::kMetadataValue);
    }
    if (name.empty()) return fail("a tensor has an empty name");
    if (name.size() > kMaxNameBytes) {
      return fail(
          fmt::format("tensor {}: name longer than {} bytes", quote_text(name), kMaxNameBytes));
    }
    if (tensors_.size() == kMaxTensors) {
      return fail(fmt::format("more than {} tensors", kMaxTensors));
    }
    name_ = name;
    return enter(State::kTensorValue);
  }

  bool field(bool& seen, State next, std::string_view name) {
    if (seen) return fail_tensor(fmt::format("{} is given twice", name));
    seen = true;
    return enter(next);
  }

  void begin_tensor() {
    tensors_.emplace_back();
    tensors_.back().name = name_;
    tensors_.back().file = file_index_;
    num_offsets_ = 0;
    has_dtype_ = has_shape_ = has_offsets_ = false;
  }

  bool end_tensor() {
    if (!has_dtype_) return fail_tensor("dtype is missing");
    if (!has_shape_) return fail_tensor("shape is missing");
    if (!has_offsets_) return fail_tensor("data_offsets is missing");
    TensorInfo& tensor = tensors_.back();
    const auto [begin, end] = std::pair(offsets_[0], offsets_[1]);
    if (begin > end || end > data_bytes_) {
      return fail_tensor(
          fmt::format("data_offsets [{}, {}] lie outside the {} bytes of data{}", begin, end,
                      data_bytes_, begin <= end ? "; was the file or its download cut off?" : ""));
    }
    const auto expected = byte_count(tensor);
    if (!expected || *expected != end - begin) {
      return fail_tensor(fmt::format("data_offsets span {} bytes, but shape {} of {} takes {}",
                                     end - begin, shape_text(tensor.shape),
                                     stored_dtype_name(tensor.dtype),
                                     expected ? std::to_string(*expected) : "more than 2^63"));
    }
    tensor.offset = data_start_ + begin;
    tensor.bytes = end - begin;
    return true;
  }

  const std::uint64_t data_start_;
  const std::uint64_t data_bytes_;
  const std::int32_t file_index_;
  State state_ = State::kStart;
  std::string error_;
  std::vector<TensorInfo> tensors_;
  std::string name_;  // of the tensor being read
  std::array<std::uint64_t, 2> offsets_{};
  std::size_t num_offsets_ = 0;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  bool has_metadata_ = false;
};

Status check_names_and_ranges(std::vector<TensorInfo>& tensors) {
  std::vector<const TensorInfo*> by_offset;
  by_offset.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) {
    if (tensor.bytes > 0) by_offset.push_back(&tensor);
  }
  std::sort(by_offset.begin(), by_offset.end(),
            [](const TensorInfo* a, const TensorInfo* b) { return a->offset < b->offset; });
  for (std::size_t i = 1; i < by_offset.size(); ++i) {
    const TensorInfo& previous = *by_offset[i - 1];
    const TensorInfo& tensor = *by_offset[i];
    if (tensor.offset < previous.offset + previous.bytes) {
      return invalid_argument(fmt::format("tensor {}: its bytes overlap those of tensor {}",
                                          quote_text(tensor.name), quote_text(previous.name)));
    }
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  const auto twice =
      std::adjacent_find(tensors.begin(), tensors.end(),
                         [](const TensorInfo& a, const TensorInfo& b) { return a.name == b.name; });
  if (twice != tensors.end()) {
    return invalid_argument(fmt::format("tensor {}: is given twice", quote_text(twice->name)));
  }
  return {};
}

}  // namespace

std::string_view stored_dtype_name(StoredDType dtype) {
  switch (dtype) {
    case StoredDType::kQ4_0: return "Q4_0";
    case StoredDType::kQ4_1: return "Q4_1";
    case StoredDType::kQ5_0: return "Q5_0";
    case StoredDType::kQ5_1: return "Q5_1";
    case StoredDType::kQ8_0: return "Q8_0";
    case StoredDType::kQ2K: return "Q2_K";
    case StoredDType::kQ3K: return "Q3_K";
    case StoredDType::kQ4K: return "Q4_K";
    case StoredDType::kQ5K: return "Q5_K";
    case StoredDType::kQ6K: return "Q6_K";
    case StoredDType::kIq4Nl: return "IQ4_NL";
    case StoredDType::kIq4Xs: return "IQ4_XS";
    case StoredDType::kU4G32: return "U4G32";
    case StoredDType::kU4G128: return "U4G128";
    case StoredDType::kU8G128: return "U8G128";
    default: return entry_of(dtype).name;
  }
}

Result<std::vector<TensorInfo>> parse_safetensors_header(std::string_view header,
                                                         std::uint64_t file_size,
                                                         std::int32_t file_index) {
  const std::uint64_t data_start = kLengthBytes + header.size();
  if (data_start > file_size) return invalid_argument("header reaches beyond the end of the file");
  // The JSON reader takes a NUL as the end and would ignore the rest.
  if (header.find('\0') != std::string_view::npos) {
    return invalid_argument("header holds a NUL byte; expected JSON");
  }
  HeaderHandler handler(data_start, file_size - data_start, file_index);
  if (!nlohmann::json::sax_parse(header.begin(), header.end(), &handler)) {
    return invalid_argument(handler.error().empty() ? "header is not valid JSON" : handler.error());
  }
  std::vector<TensorInfo> tensors = handler.take();
  RETURN_IF_ERROR(check_names_and_ranges(tensors));
  return tensors;
}

}  // namespace sluice
