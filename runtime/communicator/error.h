// error.h: errors are exceptions, until the C interface turns them into results.
#pragma once

#include <stdexcept>
#include <string>

#include "include/hccc_runtime.h"

namespace hccc {

struct Error : std::runtime_error {
  Error(hcccResult_t code, const std::string &text) : std::runtime_error(text), code(code) {}
  hcccResult_t code;
};

// The error of a call that all ranks get: none makes it, and the communicator goes on.
struct RefusedCall : Error {
  explicit RefusedCall(const std::string &text, hcccResult_t code = hcccInvalidUsage) : Error(code, text) {}
};

// Makes an error of `what` and errno's message.
Error system_error(const std::string &what);
std::string text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Holds the error of this thread's last failed call without a communicator.
std::string &thread_error();

}  // namespace hccc
