// host.cpp: the identity of this process's host.
#include "host.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base.h"
#include "sha256.h"

namespace hccc::bootstrap {
namespace {

std::string first_bytes(const char *path) {
  const Fd fd(open(path, O_RDONLY | O_CLOEXEC));
  char made[128];
  const ssize_t n = fd ? read(fd.get(), made, sizeof made) : 0;
  return std::string(made, static_cast<size_t>(n > 0 ? n : 0));
}

std::string link_text(const std::string &path) {
  char made[128];
  const ssize_t n = readlink(path.c_str(), made, sizeof made);
  return std::string(made, static_cast<size_t>(n > 0 ? n : 0));
}

std::string described() {
  if (const char *id = variable("HCCC_HOST_ID")) return std::string("said ") + id;
  utsname name = {};
  uname(&name);
  // Machines that were copied from one another may have the same boot number, but not the same
  // name.
  std::string made = first_bytes("/proc/sys/kernel/random/boot_id") + name.nodename;
  for (const char *kind : {"pid", "ipc", "net", "user"})
    made += ' ' + link_text(std::string("/proc/self/ns/") + kind);
  return made;
}

}  // namespace

std::string host_identity() {
  const std::string text = described();
  const Digest sum = sha256(text.data(), text.size());
  return std::string(sum.begin(), sum.end());
}

}  // namespace hccc::bootstrap
