#include "model/model_files.h"

#include <utility>

#include "base/file.h"
#include "checkpoint/gguf.h"
#include "model/gguf_checkpoint.h"
#include "model/gguf_config.h"
#include "model/gguf_tokenizer.h"

namespace sluice {
namespace {

Result<std::string> translate(const GgufModel& model, const std::string& name) {
  if (name == "config.json") return gguf_config_json(model);
  if (name == "tokenizer.json") return gguf_tokenizer_json(model.metadata());
  if (name == "tokenizer_config.json") return gguf_tokenizer_config_json(model.metadata());
  return not_found("a GGUF file has no " + name);
}

}  // namespace

Result<std::string> read_model_text(const std::string& model, const std::string& name,
                                    std::uint64_t max_bytes) {
  if (!is_gguf_path(model)) return read_file(model + "/" + name, max_bytes);
  ASSIGN_OR_RETURN(const GgufModel gguf, GgufModel::open(model));
  auto text = translate(gguf, name);
  if (!text) return with_context(model, text.error());
  return text;
}

bool is_gguf_model(const std::string& model) { return is_gguf_path(model); }

Result<Checkpoint> open_checkpoint(const std::string& model) {
  return is_gguf_path(model) ? open_gguf_checkpoint(model) : Checkpoint::open(model);
}

}  // namespace sluice
