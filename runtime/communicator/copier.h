// copier.h: copies between memory of a device and the transport's pool, where UCX reaches no memory of
// the device.
#pragma once

#include <vector>

#include "../transport/include/hccc_transport.h"
#include "device.h"

namespace hccc {

class Copier {
 public:
  // Throws Error.
  explicit Copier(const Device &device);
  ~Copier();
  Copier(const Copier &) = delete;
  Copier &operator=(const Copier &) = delete;

  // Return a word of memory of the device, and zero one, by any thread. Throw Error.
  unsigned word(const unsigned *from) const;
  void zero(unsigned *at) const;
  // Returns the functions that a transport calls, as long as this lives.
  const hccc_transport_copier *functions() const { return &functions_; }

 private:
  static int begin(void *self, void *to, const void *from, size_t bytes, int to_device, void **ticket);
  static int done(void *self, void *ticket);
  static int pin(void *self, void *memory, size_t bytes);
  static void unpin(void *self, void *memory);

  const Device device_;
  hcccrtStream_t streams_[2] = {};  // from the device, to it: none waits for a kernel
  std::vector<hcccrtEvent_t> spare_;
  hccc_transport_copier functions_{};
};

}  // namespace hccc
