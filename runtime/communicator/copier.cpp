// copier.cpp: copies in two streams, one for each direction.
#include "copier.h"

#include "error.h"
#include "log.h"

namespace hccc {

Copier::Copier(const Device &device) : device_(device) {
  const OnDevice on(device_);
  for (hcccrtStream_t &one : streams_)
    check_device(hcccrtStreamCreateWithFlags(&one, hcccrtStreamNonBlocking), "a stream");
  functions_ = {this, begin, done, pin, unpin, nullptr};
}

Copier::~Copier() {
  try {
    const OnDevice on(device_);
    for (const hcccrtStream_t one : streams_) {
      hcccrtStreamSynchronize(one);
      hcccrtStreamDestroy(one);
    }
    for (const hcccrtEvent_t one : spare_) hcccrtEventDestroy(one);
  } catch (const Error &error) {
    HCCC_LOG(WARN, NET, -1, "%s", error.what());
  }
}

unsigned Copier::word(const unsigned *from) const {
  const OnDevice on(device_);
  unsigned found = 0;
  check_device(hcccrtMemcpyAsync(&found, from, sizeof found, hcccrtMemcpyDeviceToHost, streams_[0]), "reading a word");
  check_device(hcccrtStreamSynchronize(streams_[0]), "reading a word");
  return found;
}

void Copier::zero(unsigned *at) const {
  const OnDevice on(device_);
  check_device(hcccrtMemsetAsync(at, 0, sizeof *at, streams_[1]), "zeroing a word");
  check_device(hcccrtStreamSynchronize(streams_[1]), "zeroing a word");
}

// A copy of 4 aligned bytes is one store: a copy engine writes them at once.
int Copier::begin(void *self, void *to, const void *from, size_t bytes, int to_device, void **ticket) {
  auto &of = *static_cast<Copier *>(self);
  try {
    const OnDevice on(of.device_);
    const hcccrtStream_t stream = of.streams_[to_device != 0];
    const auto kind = to_device ? hcccrtMemcpyHostToDevice : hcccrtMemcpyDeviceToHost;
    hcccrtEvent_t made = nullptr;
    if (of.spare_.empty()) {
      check_device(hcccrtEventCreateWithFlags(&made, hcccrtEventDisableTiming), "an event");
      of.spare_.push_back(made);
    }
    made = of.spare_.back();
    check_device(hcccrtMemcpyAsync(to, from, bytes, kind, stream), "copying for the network");
    check_device(hcccrtEventRecord(made, stream), "an event");
    of.spare_.pop_back();
    *ticket = made;
    return 0;
  } catch (const std::exception &error) {
    HCCC_LOG(WARN, NET, -1, "%s", error.what());
    return -1;
  }
}

int Copier::done(void *self, void *ticket) {
  auto &of = *static_cast<Copier *>(self);
  try {
    const OnDevice on(of.device_);
    const auto event = static_cast<hcccrtEvent_t>(ticket);
    const hcccrtError_t state = hcccrtEventQuery(event);
    if (state == hcccrtErrorNotReady) return hcccrtGetLastError(), 0;
    of.spare_.push_back(event);
    check_device(state, "a copy for the network");
    return 1;
  } catch (const std::exception &error) {
    HCCC_LOG(WARN, NET, -1, "%s", error.what());
    return -1;
  }
}

int Copier::pin(void *self, void *memory, size_t bytes) {
  try {
    const OnDevice on(static_cast<Copier *>(self)->device_);
    const hcccrtError_t error = hcccrtHostRegister(memory, bytes, hcccrtHostRegisterPortable);
    if (error) hcccrtGetLastError();  // copies are slower
    return error ? -1 : 0;
  } catch (const Error &) {
    return -1;
  }
}

void Copier::unpin(void *self, void *memory) {
  try {
    const OnDevice on(static_cast<Copier *>(self)->device_);
    if (hcccrtHostUnregister(memory)) hcccrtGetLastError();
  } catch (const Error &error) {
    HCCC_LOG(WARN, NET, -1, "%s", error.what());
  }
}

}  // namespace hccc
