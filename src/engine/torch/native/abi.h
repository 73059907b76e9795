// What every file of the native part shares: how errors leave C++.
//
// No C++ exception crosses into Rust. Each entry point returns null, or a
// message that the caller gives back to parity_native_free_string.
#pragma once

#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

namespace parity {

using Error = char*;

inline Error copy_message(const std::string& text) noexcept {
  auto* out = static_cast<char*>(std::malloc(text.size() + 1));
  if (out != nullptr) {
    std::memcpy(out, text.c_str(), text.size() + 1);
  }
  return out;
}

template <class Work>
Error guarded(Work&& work) noexcept {
  try {
    std::forward<Work>(work)();
    return nullptr;
  } catch (const c10::Error& error) {
    return copy_message(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return copy_message(error.what());
  } catch (...) {
    return copy_message("a C++ exception of unknown type");
  }
}

} // namespace parity
