// log.cpp: lines as NCCL's users know them, `host:process:thread [rank] HCCC INFO ...`.
#include "log.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

namespace hccc::log {
namespace {

constexpr const char *LEVELS[] = {"NONE", "VERSION", "WARN", "INFO", "TRACE"};
constexpr const char *SUBSYSTEMS[] = {"INIT", "COLL", "MEM", "NET"};
constexpr unsigned ALL = INIT | COLL | MEM | NET;

struct Settings {
  Level level = NONE;
  unsigned subsystems = ALL;
  int file = STDERR_FILENO;
};

Level level_of(const char *word) {
  for (int k = VERSION; word && k <= TRACE; ++k)
    if (!strcasecmp(word, LEVELS[k])) return static_cast<Level>(k);
  return NONE;
}

// Parses a comma list; unknown words are ignored. A leading ^ means all but these.
unsigned subsystems_of(const char *words) {
  if (!words || !*words) return ALL;
  const bool but = *words == '^';
  unsigned found = 0;
  std::string rest = words + but;
  for (char *at = strtok(rest.data(), ","), *next; at; at = next) {
    next = strtok(nullptr, ",");
    for (unsigned k = 0; k < 4; ++k)
      if (!strcasecmp(at, SUBSYSTEMS[k])) found |= 1u << k;
    if (!strcasecmp(at, "ALL")) found = ALL;
  }
  return but ? ALL & ~found : found;
}

std::string host() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string filled_in(const char *pattern) {
  std::string name;
  for (const char *at = pattern; *at; ++at) {
    const char after = *at == '%' ? at[1] : '\0';
    if (after == 'h' || after == 'p') {
      name += after == 'h' ? host() : std::to_string(getpid());
      ++at;
    } else {
      name += *at;
    }
  }
  return name;
}

Settings read() {
  Settings found;
  found.level = level_of(getenv("HCCC_DEBUG"));
  found.subsystems = subsystems_of(getenv("HCCC_DEBUG_SUBSYS"));
  const char *pattern = getenv("HCCC_DEBUG_FILE");
  if (found.level == NONE || !pattern || !*pattern) return found;
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
  const int file = open(filled_in(pattern).c_str(), flags, 0600);
  if (file >= 0) found.file = file;
  return found;
}

const Settings &settings() {
  static const Settings found = read();
  return found;
}

}  // namespace

bool enabled(Level level, Subsystem subsystem) {
  const Settings &now = settings();
  return level <= now.level && (level <= WARN || (now.subsystems & subsystem));
}

// Writes a line at once: several processes may share the file.
void write(Level level, int rank, const char *format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const std::string of = rank < 0 ? "" : "[" + std::to_string(rank) + "] ";
  const std::string line = host() + ":" + std::to_string(getpid()) + ":" +
                           std::to_string(syscall(SYS_gettid)) + " " + of + "HCCC " +
                           LEVELS[level] + " " + text + "\n";
  const ssize_t written = ::write(settings().file, line.data(), line.size());
  static_cast<void>(written);
}

}  // namespace hccc::log
