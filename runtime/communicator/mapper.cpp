// mapper.cpp: the thread that maps memory.
#include "mapper.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <system_error>
#include <utility>

#include "signals.h"

namespace hccc {

Mapper::Mapper(DeviceMemory &memory, std::function<void(const Error &)> failed)
    : memory_(memory), failed_(std::move(failed)), stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (stop_.get() < 0) throw system_error("no event descriptor");
  const SignalsBlocked blocked;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error &error) {
    throw Error(hcccSystemError, std::string("no thread to map memory: ") + error.what());
  }
}

Mapper::~Mapper() {
  const uint64_t one = 1;
  const ssize_t written = write(stop_.get(), &one, sizeof one);
  static_cast<void>(written);
  thread_.join();
}

void Mapper::forsake() { stop_ = Descriptor(); }

void Mapper::run() {
  for (;;) {
    pollfd files[] = {{stop_.get(), POLLIN, 0}, {memory_.mailbox().own(), POLLIN, 0}};
    poll(files, 2, -1);
    if (files[0].revents) return;
    try {
      memory_.map_shared_pieces();
    } catch (const Error &error) {
      failed_(error);
    }
  }
}

}  // namespace hccc
