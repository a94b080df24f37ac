// error.cpp: texts of errors.
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

namespace hccc {

Error system_error(const std::string &what) {
  const int number = errno;
  return Error(hcccSystemError, what + ": " + strerror(number));
}

std::string text_of(const char *format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

std::string &thread_error() {
  static thread_local std::string text;
  return text;
}

}  // namespace hccc
