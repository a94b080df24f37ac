// log.h: the lines that HCCC_DEBUG asks for.
#pragma once

#include <string>

namespace hccc::log {

enum Level { NONE, VERSION, WARN, INFO, TRACE };
enum Subsystem : unsigned { INIT = 1, COLL = 2, MEM = 4, NET = 8 };

bool enabled(Level level, Subsystem subsystem);
// Writes a line. rank: -1 for none.
void write(Level level, int rank, const char *format, ...) __attribute__((format(printf, 3, 4)));

}  // namespace hccc::log

// Logs a line; its arguments are evaluated only where it is written.
#define HCCC_LOG(level, subsystem, ...)                                                 \
  do {                                                                                  \
    if (::hccc::log::enabled(::hccc::log::level, ::hccc::log::subsystem))               \
      ::hccc::log::write(::hccc::log::level, __VA_ARGS__);                              \
  } while (0)
