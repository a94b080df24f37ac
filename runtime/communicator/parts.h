// parts.h: the bytes of long messages, copied in parts by one rank or by both.
#pragma once

#include <vector>

#include "host.h"
#include "registration.h"
#include "rings.h"

namespace hccc {

// This rank's end of a transfer.
struct Sender {
  Transfer *record = nullptr;
  const char *from = nullptr;
  size_t bytes = 0;
  char *slots = nullptr;
};
struct Receiver {
  Transfer *record = nullptr;
  char *to = nullptr;
  size_t bytes = 0;
  int source = -1;
};

class Parts {
 public:
  Parts(const Host &host, const Registrations &registrations, int rank);
  ~Parts();
  Parts(const Parts &) = delete;
  Parts &operator=(const Parts &) = delete;

  // Returns whether the environment lets ranks read each other's memory, and the system has refused none so far.
  bool reads_memory() const;
  // Makes the record of a transfer to a peer and returns where it is in this rank's heap. Throws
  // Error.
  uint64_t begin(Sender &sender, int peer);
  // Joins a transfer of a source. False: it was withdrawn.
  bool join(Receiver &receiver, uint64_t record);
  // Return whether the receiver has not joined; the second ends such a transfer, and its record is free.
  static bool waits(const Sender &sender) { return sender.record->stage.load(std::memory_order_acquire) == Stage::OFFERED; }
  bool withdraw(Sender &sender);
  // Copy a part. Return whether there was one; `ended`: the transfer is over, and its record free.
  bool move(Sender &sender, int peer, bool *ended);
  bool move(Receiver &receiver, bool *ended);

 private:
  Buffer place_of(const char *at, size_t bytes, int other) const;
  char *found(const Buffer &buffer, int owner) const;
  bool copy_part(Transfer &record, char *to, const char *from, size_t bytes);
  bool reads_memory_of(const Receiver &receiver);
  bool read_part(Receiver &receiver);
  bool fill_slot(Sender &sender);
  bool empty_slot(Receiver &receiver);
  Transfer *take_record();
  char *take_slots();
  void end(Sender &sender);

  const Host &host_;
  const Registrations &registrations_;
  const int rank_;
  std::vector<bool> here_;         // ranks of this process
  enum class Reads { UNKNOWN, YES, NO };
  std::vector<Reads> reads_;  // whether the system lets this rank read memory of each other
  uint64_t secret_ = 0;
  std::vector<void *> taken_;      // all that was taken from the heap
  std::vector<Transfer *> records_;  // free ones
  std::vector<char *> slots_;        // free ones
};

}  // namespace hccc
