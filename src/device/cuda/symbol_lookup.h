// Functions of libraries that are opened at run time. Any thread.
#pragma once

#include <cstring>

namespace sluice::cuda {

// Returns the address of a symbol, or null.
using SymbolLookup = void* (*)(void* library, const char* symbol);

// Functions are looked up as data pointers: POSIX gives both the same size.
template <class Function>
bool find_symbol(Function& function, SymbolLookup lookup, void* library, const char* symbol) {
  void* found = lookup(library, symbol);
  static_assert(sizeof(function) == sizeof(found));
  std::memcpy(static_cast<void*>(&function), static_cast<const void*>(&found), sizeof(found));
  return found != nullptr;
}

}  // namespace sluice::cuda
