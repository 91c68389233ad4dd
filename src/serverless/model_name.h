// Names that clients may give as `model`, and the resolver that turns one into a function.
// A name is 1 to 128 letters, digits and ".-_/"; OpenAI's form of a fine-tune's name,
// "ft:BACKBONE:TENANT:NAME", names the same function. A name that does not exist and one that
// belongs to another tenant give the same error, so that nothing can be learned from it.
// Immutable after construction; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice {

struct FunctionsFile;

inline constexpr std::size_t kMaxModelName = 128;

// `extra`: characters that are allowed beside letters, digits and ".-_".
bool is_model_name(std::string_view name, std::string_view extra);

class ModelNames {
 public:
  // Copies what it needs.
  explicit ModelNames(const FunctionsFile& file);

  // The index of the function that `tenant` calls `name`. kNotFound: there is none.
  Result<std::int32_t> resolve(std::int32_t tenant, std::string_view name) const;
  // The functions of a tenant, in order of names.
  std::vector<std::int32_t> functions_of(std::int32_t tenant) const;
  // "ft:BACKBONE:TENANT:NAME" of a function with an adapter; the backbone's name of one without.
  std::string full_name(std::int32_t function) const;

 private:
  struct Entry {
    std::int32_t tenant = 0;
    std::string name;
    std::int32_t function = 0;
  };
  struct Alias {
    std::string name;
    std::string target;
  };
  const Entry* find(std::int32_t tenant, std::string_view name) const;
  const Entry* find_fine_tune(std::int32_t tenant, std::string_view name) const;

  std::vector<Entry> entries_;           // by tenant, then name
  std::vector<Alias> aliases_;           // by name
  std::vector<std::string> tenants_;     // names
  std::vector<std::string> full_names_;  // of functions
};

}  // namespace sluice
