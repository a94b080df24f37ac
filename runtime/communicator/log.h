// log.h: what HCCC_DEBUG asks to be told.
#pragma once

#include <string>

namespace hccc::log {

enum Level { NONE, VERSION, WARN, INFO, TRACE };
enum Subsystem : unsigned { INIT = 1, COLL = 2, MEM = 4, NET = 8 };

bool enabled(Level level, Subsystem subsystem);
// rank: -1 for none.
void write(Level level, int rank, const char *format, ...) __attribute__((format(printf, 3, 4)));

}  // namespace hccc::log

// Formats its arguments only where somebody reads them.
#define HCCC_LOG(level, subsystem, ...)                                                 \
  do {                                                                                  \
    if (::hccc::log::enabled(::hccc::log::level, ::hccc::log::subsystem))               \
      ::hccc::log::write(::hccc::log::level, __VA_ARGS__);                              \
  } while (0)
