#include "adapter/adapter_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "checkpoint/quote_text.h"

namespace sluice {

std::vector<MixPart> parse_mix(std::string_view text) {
  std::vector<MixPart> parts;
  while (true) {
    const std::size_t plus = std::min(text.find('+'), text.size());
    const std::string_view part = text.substr(0, plus);
    const std::size_t colon = part.find(':');
    if (colon == 0 || colon == std::string_view::npos) return {};
    MixPart made{std::string(part.substr(0, colon))};
    const char* end = part.data() + part.size();
    const auto [at, problem] = std::from_chars(part.data() + colon + 1, end, made.weight);
    if (problem != std::errc() || at != end || !std::isfinite(made.weight)) return {};
    parts.push_back(std::move(made));
    if (plus == text.size()) return parts;
    text.remove_prefix(plus + 1);
  }
}

Result<std::pair<std::string, std::string>> parse_adapter_option(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string_view::npos || equals + 1 == text.size()) {
    return invalid_argument(fmt::format(
        "--adapter must be NAME=DIRECTORY or NAME=POET:0.7+PIRATE:0.3; got {}", quote_text(text)));
  }
  return std::pair(std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)));
}

Result<SealedAdapter> AdapterStore::prepare(const std::string& source,
                                            const StopCheck& stop) const {
  const std::vector<MixPart> mix = parse_mix(source);
  std::vector<std::string> directories;
  for (const MixPart& part : mix) {
    const auto adapter = find(part.name);
    if (adapter == nullptr || !parse_mix(adapter->source).empty()) {
      return invalid_argument(fmt::format(
          "the mix {} names {}, which is not an adapter that was loaded from a directory",
          quote_text(source), quote_text(part.name)));
    }
    directories.push_back(adapter->source);
  }
  if (mix.empty()) directories.push_back(source);
  std::vector<AdapterTensors> tensors;
  for (const std::string& directory : directories) {
    ASSIGN_OR_RETURN(AdapterTensors opened, AdapterTensors::open(directory, config_));
    tensors.push_back(std::move(opened));
    if (stop) RETURN_IF_ERROR(stop());
  }
  std::vector<WeightedAdapter> parts;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    parts.push_back({&tensors[i], mix.empty() ? 1.0F : mix[i].weight});
  }
  ASSIGN_OR_RETURN(const std::vector<ModuleGains> gains, gains_of(tensors, !mix.empty(), stop));
  SealedAdapter prepared;
  ASSIGN_OR_RETURN(prepared.image, make_adapter_image(parts, config_, format_, gains, stop));
  if (place_ == AdapterPlace::kSealed) return seal_adapter(prepared.image, format_.dtype, stop);
  return prepared;
}

// Empty if no adapter has magnitudes. A mix adds products up, and a gain is no product.
Result<std::vector<ModuleGains>> AdapterStore::gains_of(const std::vector<AdapterTensors>& tensors,
                                                        bool mix, const StopCheck& stop) const {
  for (const AdapterTensors& one : tensors) {
    if (!one.has_magnitudes()) continue;
    if (mix) {
      return unsupported(one.file().path() +
                         ": an adapter with DoRA (use_dora) cannot be part of a mix");
    }
    if (!format_.gains) {
      return unsupported(one.file().path() +
                         ": DoRA (use_dora) needs gains, and this engine's slots have no room for "
                         "them; start it again with this adapter");
    }
    return dora_gains(one, config_, model_, stop);
  }
  return std::vector<ModuleGains>();
}

Result<SharedContent> AdapterStore::share(SealedAdapter prepared) {
  auto& known = by_digest_[prepared.image.digest];
  if (auto content = known.lock()) return content;
  if (contents_.size() >= static_cast<std::size_t>(kMaxContents)) {
    return resource_exhausted(
        fmt::format("{} different adapters were loaded since the start, which is the limit; "
                    "restart the server",
                    kMaxContents));
  }
  // Shared with the requests that will hold it.
  auto content = std::make_shared<const AdapterContent>(
      AdapterContent{static_cast<std::int32_t>(contents_.size()), std::move(prepared.image),
                     std::move(prepared.memory)});
  contents_.push_back(content);
  known = content;
  return content;
}

Result<SharedAdapter> AdapterStore::load(const std::string& name, const std::string& source,
                                         const StopCheck& stop) {
  const bool printable = std::all_of(name.begin(), name.end(), [](char c) {
    return static_cast<unsigned char>(c) > ' ' && c != '\x7f';
  });
  if (name.empty() || name.size() > kMaxNameBytes || !printable) {
    return invalid_argument(
        fmt::format("the adapter's name {} must have 1 to {} characters, without spaces",
                    quote_text(name), kMaxNameBytes));
  }
  auto prepared = prepare(source, stop);
  if (!prepared) {
    return with_context(fmt::format("adapter {}", quote_text(name)), std::move(prepared).error());
  }
  return add(name, source, *std::move(prepared));
}

Result<SharedAdapter> AdapterStore::add(const std::string& name, const std::string& source,
                                        SealedAdapter prepared) {
  SharedAdapter replaced;  // its memory is freed without the lock
  const std::lock_guard lock(mutex_);
  std::erase_if(by_digest_, [](const auto& entry) { return entry.second.expired(); });
  ASSIGN_OR_RETURN(auto content, share(std::move(prepared)));
  // Shared with the calls that will find it.
  auto adapter = std::make_shared<const Adapter>(Adapter{name, source, std::move(content)});
  replaced = std::exchange(adapters_[name], adapter);
  return adapter;
}

bool AdapterStore::remove(std::string_view name) {
  SharedAdapter removed;  // its memory is freed without the lock
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(name);
  if (found == adapters_.end()) return false;
  removed = std::move(found->second);
  adapters_.erase(found);
  return true;
}

SharedAdapter AdapterStore::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(name);
  return found == adapters_.end() ? nullptr : found->second;
}

std::vector<SharedAdapter> AdapterStore::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<SharedAdapter> all;
  for (const auto& [name, adapter] : adapters_) all.push_back(adapter);
  return all;
}

std::int32_t AdapterStore::num_contents() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int32_t>(contents_.size());
}

SharedContent AdapterStore::content(std::int32_t index) const {
  const std::lock_guard lock(mutex_);
  CHECK(index >= 0 && static_cast<std::size_t>(index) < contents_.size());
  return contents_[static_cast<std::size_t>(index)].lock();
}

}  // namespace sluice
