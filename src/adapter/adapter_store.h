// AdapterStore: the adapters that requests may name. A name maps to content (an image) with an
// index in the engine's adapter table. Loading under a name that exists replaces its content for
// later requests. Requests that hold the old content keep it, because content lives as long as a
// request or a name shares it. Adapters of equal content share one index, and thus slot and prefix
// blocks. An index is never used again for other content.
// A store for function processes keeps each content in sealed memory (sealed_adapter.h).
// Limits: AdapterStore::kMaxContents different contents in the life of a process.
// Threads: any; one lock, never held while files are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/adapter_image.h"
#include "adapter/sealed_adapter.h"
#include "base/result.h"
#include "base/stop_check.h"
#include "model/model_config.h"

namespace sluice {

// Where the images of a store lie.
enum class AdapterPlace : std::uint8_t {
  kPrivate,  // in this process alone; engines copy them into slots
  kSealed,   // in sealed shared memory; engines compute on them there
};

struct AdapterContent {
  std::int32_t index = -1;  // in the engine's adapter table
  AdapterImage image;
  FileDescriptor memory;  // sealed, read-only; none with AdapterPlace::kPrivate
};

// Shared by names, requests and loads into slots, whichever ends last.
using SharedContent = std::shared_ptr<const AdapterContent>;

struct Adapter {
  std::string name;    // as clients call it
  std::string source;  // directory, or the text of a mix
  SharedContent content;
};

// Shared by the store and by calls that have found the adapter before it was unloaded.
using SharedAdapter = std::shared_ptr<const Adapter>;

class AdapterStore {
 public:
  static constexpr std::int32_t kMaxContents = 1 << 16;
  static constexpr std::size_t kMaxNameBytes = 256;

  // `model`: directory or file of the base model, which adapters with gains need; empty: it cannot
  // be read. REQUIRES: kSealed only for devices that compute on the host's memory.
  AdapterStore(ModelConfig config, const AdapterFormat& format,
               AdapterPlace place = AdapterPlace::kPrivate, std::string model = {})
      : config_(std::move(config)), format_(format), place_(place), model_(std::move(model)) {}

  // Reads and prepares an adapter, then makes it `name`'s. `source`: a directory, or a mix of
  // adapters that are loaded from directories, as "poet:0.7+pirate:0.3". Takes milliseconds to
  // seconds, and calls `stop` after each part of about a millisecond. On an error nothing changes.
  Result<SharedAdapter> load(const std::string& name, const std::string& source,
                             const StopCheck& stop = {});
  // Makes prepared content `name`'s. REQUIRES: of the store's format.
  Result<SharedAdapter> add(const std::string& name, const std::string& source,
                            SealedAdapter prepared);
  // False if there is none. Requests that hold the adapter go on.
  bool remove(std::string_view name);

  // Null if there is none.
  SharedAdapter find(std::string_view name) const;
  std::vector<SharedAdapter> list() const;  // by name
  std::int32_t num_contents() const;        // indices given so far
  // The content of an index; null once no name and no request holds it.
  SharedContent content(std::int32_t index) const;

  const ModelConfig& config() const { return config_; }
  const AdapterFormat& format() const { return format_; }
  AdapterPlace place() const { return place_; }

 private:
  Result<SealedAdapter> prepare(const std::string& source, const StopCheck& stop) const;
  Result<std::vector<ModuleGains>> gains_of(const std::vector<AdapterTensors>& tensors, bool mix,
                                            const StopCheck& stop) const;
  Result<SharedContent> share(SealedAdapter prepared);

  const ModelConfig config_;
  const AdapterFormat format_;
  const AdapterPlace place_;
  const std::string model_;
  mutable std::mutex mutex_;
  std::map<std::string, SharedAdapter, std::less<>> adapters_;
  std::vector<std::weak_ptr<const AdapterContent>> contents_;  // by index
  std::map<std::string, std::weak_ptr<const AdapterContent>, std::less<>> by_digest_;
};

// Shared by the engine, which loads contents into slots, and the front, which finds names.
using SharedAdapters = std::shared_ptr<AdapterStore>;

// A part of a mix, as written.
struct MixPart {
  std::string name;
  float weight = 1.0F;
};
// The parts of "poet:0.7+pirate:0.3"; empty if the text is not a mix.
std::vector<MixPart> parse_mix(std::string_view text);

// NAME=SOURCE of a command line. kInvalidArgument if it is not.
Result<std::pair<std::string, std::string>> parse_adapter_option(std::string_view text);

}  // namespace sluice
