#include "tests/golden/golden_case.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "base/json.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "tensor/float8.h"
#include "tensor/half.h"

namespace sluice {
namespace {

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path.string() + ": cannot be read");
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

std::uint64_t fnv1a64(const std::string& text) {
  std::uint64_t value = 0xCBF29CE484222325ULL;
  for (const char c : text) {
    value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  }
  return value;
}

template <class T>
void append(std::string& bytes, T value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));  // little-endian machines only, as safetensors files are
  bytes.append(raw, sizeof(T));
}

std::string encode(const std::vector<float>& values, const std::string& dtype) {
  std::string bytes;
  for (const float value : values) {
    if (dtype == "f32") {
      append(bytes, value);
    } else {
      append(bytes, dtype == "f16" ? float_to_f16(value) : float_to_bf16(value));
    }
  }
  return bytes;
}

// Rows and columns of an FP8 matrix that share a scale, from config.json.
std::array<std::int64_t, 2> block_of(const nlohmann::json& quantization,
                                     const std::vector<std::int64_t>& shape) {
  if (quantization.at("quant_method") == "fp8") {
    const auto& block = quantization.at("weight_block_size");
    return {std::min(block.at(0).get<std::int64_t>(), shape[0]),
            std::min(block.at(1).get<std::int64_t>(), shape[1])};
  }
  const bool rows =
      quantization.at("config_groups").at("group_0").at("weights").at("strategy") == "channel";
  return {rows ? 1 : shape[0], shape[1]};
}

struct EncodedFp8 {
  std::vector<std::int64_t> scales_shape;
  std::string codes;
  std::string scales;
};

// The largest value of a block becomes 448, the largest E4M3 value.
EncodedFp8 encode_fp8(const std::vector<float>& values, const std::vector<std::int64_t>& shape,
                      const std::array<std::int64_t, 2>& block) {
  const std::int64_t across = (shape[1] + block[1] - 1) / block[1];
  const std::int64_t down = (shape[0] + block[0] - 1) / block[0];
  std::vector<float> scales(static_cast<std::size_t>(across * down));
  const auto scale_of = [&](std::size_t i) -> float& {
    const auto row = static_cast<std::int64_t>(i) / shape[1];
    const auto col = static_cast<std::int64_t>(i) % shape[1];
    return scales[static_cast<std::size_t>(row / block[0] * across + col / block[1])];
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    scale_of(i) = std::max(scale_of(i), std::abs(values[i]));
  }
  for (float& scale : scales) scale /= kLargestE4M3;
  EncodedFp8 encoded;
  encoded.scales_shape = {down, across};
  for (std::size_t i = 0; i < values.size(); ++i) {
    append(encoded.codes, float_to_e4m3(values[i] / scale_of(i)));
  }
  for (const float scale : scales) append(encoded.scales, scale);
  return encoded;
}

}  // namespace

std::vector<std::string> golden_case_names(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

GoldenCase read_golden_case(const std::string& directory, const std::string& name) {
  const auto folder = std::filesystem::path(directory) / name;
  const auto json = parse_json(read_text(folder / "case.json"));
  GoldenCase golden;
  golden.name = name;
  golden.config = read_text(folder / "config.json");
  golden.seed = json.at("seed").get<std::uint64_t>();
  golden.dtype = json.at("dtype").get<std::string>();
  golden.weights_sha256 = json.at("weights_sha256").get<std::string>();
  for (const auto& tensor : json.at("tensors")) {
    golden.tensors.push_back({tensor.at(0).get<std::string>(),
                              tensor.at(1).get<std::vector<std::int64_t>>(),
                              static_cast<float>(tensor.at(2).get<double>()),
                              static_cast<float>(tensor.at(3).get<double>())});
  }
  for (const auto& prompt : json.at("prompts")) {
    golden.prompts.push_back({prompt.at("ids").get<std::vector<TokenId>>(),
                              prompt.at("positions").get<std::vector<std::int32_t>>(),
                              prompt.at("logits").get<std::vector<std::vector<double>>>(),
                              prompt.at("greedy").get<std::vector<TokenId>>(),
                              prompt.at("smallest_margin").get<double>()});
  }
  for (const auto& [dtype, error] : json.at("torch_error").items()) {
    golden.torch_error[dtype] = {error.at("max").get<double>(), error.at("rms").get<double>()};
  }
  return golden;
}

std::vector<float> golden_values(const GoldenTensor& tensor, std::uint64_t seed) {
  std::int64_t elements = 1;
  for (const std::int64_t dim : tensor.shape) elements *= dim;
  SplitMix64 rng(seed + fnv1a64(tensor.name));
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (float& value : values) {
    const auto k = static_cast<std::int32_t>(rng() >> 40) - (1 << 23);
    const float scaled = static_cast<float>(k) * tensor.scale;
    value = tensor.offset + scaled;
  }
  return values;
}

void write_golden_checkpoint(const GoldenCase& golden, const std::string& directory) {
  const std::string type = golden.dtype == "f32" ? "F32" : golden.dtype == "f16" ? "F16" : "BF16";
  const auto config = parse_json(golden.config);
  nlohmann::json header;
  std::string data;
  const auto add = [&](const std::string& name, const std::string& dtype,
                       const std::vector<std::int64_t>& shape, const std::string& bytes) {
    header[name] = {{"dtype", dtype},
                    {"shape", shape},
                    {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  };
  for (const GoldenTensor& tensor : golden.tensors) {
    const std::vector<float> values = golden_values(tensor, golden.seed);
    if (!config.contains("quantization_config") || !tensor.name.ends_with("_proj.weight")) {
      add(tensor.name, type, tensor.shape, encode(values, golden.dtype));
      continue;
    }
    const auto& quantization = config.at("quantization_config");
    const EncodedFp8 fp8 = encode_fp8(values, tensor.shape, block_of(quantization, tensor.shape));
    const bool inverse = quantization.at("quant_method") == "fp8";
    add(tensor.name, "F8_E4M3", tensor.shape, fp8.codes);
    add(tensor.name + (inverse ? "_scale_inv" : "_scale"), "F32", fp8.scales_shape, fp8.scales);
  }
  if (!golden.weights_sha256.empty() && to_hex(sha256(data)) != golden.weights_sha256) {
    throw std::runtime_error(golden.name + ": the recipe gives other weights than case.json says");
  }
  std::string text = dump_json(header);
  text.append((64 - (text.size() + 8) % 64) % 64, ' ');
  std::string length;
  append(length, static_cast<std::uint64_t>(text.size()));
  const auto folder = std::filesystem::path(directory);
  std::ofstream(folder / "config.json", std::ios::binary) << golden.config;
  std::ofstream out(folder / "model.safetensors", std::ios::binary);
  out << length << text << data;
  if (!out) throw std::runtime_error(directory + ": cannot be written");
}

}  // namespace sluice
