#include "tokenizer/test_tokenizers.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "tokenizer/byte_letters.h"

namespace sluice {

nlohmann::json added_token(int id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

std::string byte_letter(unsigned char byte) {
  std::string text;
  append_byte_letters(std::string(1, static_cast<char>(byte)), text);
  return text;
}

nlohmann::json byte_level_json() {
  nlohmann::json vocab = nlohmann::json::object();
  for (int b = 0; b < 256; ++b) vocab[byte_letter(static_cast<unsigned char>(b))] = b;
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"h", "e"},          {"l", "l"},       {"he", "ll"},        {"hell", "o"},
      {"\u0120", "w"},     {"\u0120w", "o"}, {"r", "l"},          {"\u0120wo", "rl"},
      {"\u0120worl", "d"}, {"1", "2"},       {"\u0120", "\u0120"}};
  nlohmann::json merge_list = nlohmann::json::array();
  int id = 256;
  for (const auto& [left, right] : merges) {
    vocab[left + right] = id++;
    merge_list.push_back(left + " " + right);
  }
  return {
      {"version", "1.0"},
      {"added_tokens", {added_token(id, "<|bos|>"), added_token(id + 1, "<|end|>")}},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merge_list}}}};
}

nlohmann::json sentencepiece_json() {
  const std::string mark = "\u2581";
  nlohmann::json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  const std::string digits = "0123456789ABCDEF";
  int id = 3;
  for (std::size_t b = 0; b < 256; ++b) {
    vocab[std::string("<0x") + digits[b / 16] + digits[b % 16] + ">"] = id++;
  }
  vocab[mark] = id++;
  for (char c = 'a'; c <= 'z'; ++c) vocab[std::string(1, c)] = id++;
  nlohmann::json merges = nlohmann::json::array();
  for (const auto& [left, right] : std::vector<std::pair<std::string, std::string>>{
           {mark, "t"}, {"h", "e"}, {mark + "t", "he"}, {"a", "b"}, {mark, mark}}) {
    vocab[left + right] = id++;
    merges.push_back({left, right});
  }
  const auto sequence_a = nlohmann::json{{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const auto bos = nlohmann::json{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  return {
      {"version", "1.0"},
      {"added_tokens", {added_token(0, "<unk>"), added_token(1, "<s>"), added_token(2, "</s>")}},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         {{{"type", "Prepend"}, {"prepend", mark}},
          {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", mark}}}}}},
      {"pre_tokenizer", nullptr},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", {bos, sequence_a}},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "Replace"}, {"pattern", {{"String", mark}}}, {"content", " "}},
          {{"type", "ByteFallback"}},
          {{"type", "Fuse"}},
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"vocab", vocab},
        {"merges", merges}}}};
}

}  // namespace sluice
