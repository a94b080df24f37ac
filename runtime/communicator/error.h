// error.h: what goes wrong, as an exception until the C interface turns it into a result.
#pragma once

#include <stdexcept>
#include <string>

#include "include/hccc_runtime.h"

namespace hccc {

struct Error : std::runtime_error {
  Error(hcccResult_t code, const std::string &text) : std::runtime_error(text), code(code) {}
  hcccResult_t code;
};

// The message of errno after `what`.
Error system_error(const std::string &what);
std::string text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

// What the last call of this thread that has no communicator said.
std::string &thread_error();

}  // namespace hccc
