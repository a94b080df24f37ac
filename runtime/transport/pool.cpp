#include "pool.h"

#include <sys/mman.h>

namespace hccc::transport {

bool Pool::make(ucp::Context context, const hccc_transport_copier &copier, size_t slot_bytes,
                int slots, std::string &why) {
  bytes_ = slot_bytes * size_t(slots), slot_bytes_ = slot_bytes;
  void *memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return why = "no memory for a pool of staging slots", false;
  memory_ = static_cast<char *>(memory);
  ucp::MapParams params{};
  params.mask = ucp::MAP_ADDRESS | ucp::MAP_LENGTH;
  params.address = memory_, params.length = bytes_;
  const ucp::Status status = ucx().ucp_mem_map(context, &params, &registered_);
  if (status != ucp::OK) {
    why = "the pool of staging slots cannot be registered: " + ucx().meaning(status);
    registered_ = nullptr;
    free(context, copier);
    return false;
  }
  pinned_ = copier.pin && copier.pin(copier.context, memory_, bytes_) == 0;
  for (int slot = slots; slot-- > 0;) free_.push_back(slot);
  return true;
}

void Pool::free(ucp::Context context, const hccc_transport_copier &copier) {
  if (!memory_) return;
  if (pinned_ && copier.unpin) copier.unpin(copier.context, memory_);
  if (registered_) ucx().ucp_mem_unmap(context, registered_);
  munmap(memory_, bytes_);
  *this = Pool();
}

int Pool::take() {
  if (free_.empty()) return -1;
  const int slot = free_.back();
  free_.pop_back();
  return slot;
}

bool Cells::store(const hccc_transport_copier &copier, void *to, uint32_t value) {
  pending_.push_back({value, nullptr});
  Cell &cell = pending_.back();
  if (copier.begin(copier.context, to, &cell.value, sizeof cell.value, 1, &cell.ticket) == 0)
    return true;
  pending_.pop_back();
  return false;
}

int Cells::finish(const hccc_transport_copier &copier) {
  int n = 0;
  for (; !pending_.empty(); ++n) {
    const int done = copier.done(copier.context, pending_.front().ticket);
    if (done < 0) return pending_.pop_front(), -1;
    if (done == 0) return n;
    pending_.pop_front();
  }
  return n;
}

}  // namespace hccc::transport
