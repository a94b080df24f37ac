// allocations.h: the memory of hcccMemAlloc in this process, and what of it is freed and still in use.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct hcccComm;

namespace hccc::allocations {

// Allocates memory. Where there is no room, waits for calls that use freed memory, at most for
// HCCC_TIMEOUT. Throws Error.
void *take(size_t bytes);

// Frees memory at once, or when the calls that were made before have ended: nobody gets it sooner.
// Memory that a captured call uses is kept until its communicator ends. Throws Error where it is
// nothing that take() returned.
void give(void *pointer);

// The place of a communicator in the list of those whose calls may use memory.
class Enlisted {
 public:
  Enlisted();
  // Gives back what no other communicator uses.
  ~Enlisted();
  Enlisted(const Enlisted &) = delete;
  Enlisted &operator=(const Enlisted &) = delete;

  // Says that the communicator is made, and that it ends: it is asked about its calls in between.
  void open(hcccComm &comm);
  void close();

 private:
  void set(hcccComm *comm);

  const uint64_t number_;
};

}  // namespace hccc::allocations
