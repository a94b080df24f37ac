// moved_calls.cpp: long calls whose bytes only move, of buffers that peers do not reach.
#include <string.h>

#include <algorithm>

#include "arguments.h"
#include "communicator.h"
#include "log.h"

namespace hccc {
namespace {

// Bytes of the largest buffer; below, slices are quicker. One rank's blocks of a Scatter or Gather are copied by that rank alone.
constexpr size_t LEAST_MOVED = 64 << 10, LEAST_OF_ONE = 32 << 10;
constexpr size_t MOST_STREAMED = 4 << 20;  // of a Broadcast between ranks that share cores: two copies take less than the system's one

// Which blocks of the buffers a rank sends to another, and receives of it; -1: none.
struct Route {
  int sent, received;
};

Route route_of(const std::string &collective, int rank, int peer, int root) {
  if (collective == "Alltoall") return {peer, peer};
  if (collective == "Allgather") return {0, peer};
  const bool is_root = rank == root, to_root = peer == root;
  if (collective == "Broadcast") return {is_root ? 0 : -1, to_root ? 0 : -1};
  if (collective == "Gather") return {to_root ? 0 : -1, is_root ? peer : -1};
  return {is_root ? peer : -1, to_root ? 0 : -1};  // Scatter
}

}  // namespace

// Returns whether a call goes as messages: all ranks say the same. What a user has loaded runs as it was written.
bool Communicator::goes_as_messages(const Prepared &prepared, const Agreed &agreed, const Called &called) const {
  const hccc_library &library = prepared.library->description();
  if (!agreed.copied || !agreed.reads || !prepared.library->standard()) return false;
  const double bytes = static_cast<double>(called.count) * bytes_of_type(called.type) * most_blocks(library);
  const std::string collective = library.collective;
  if (collective == "Scatter" || collective == "Gather") return bytes >= LEAST_OF_ONE;
  const bool moves = collective == "Allgather" || collective == "Broadcast" || collective == "Alltoall";
  return moves && bytes >= LEAST_MOVED;
}

// Returns whether any rank shares a core with others: all say the same once they have agreed on a call.
bool Communicator::shares_cores() const {
  for (int r = 0; r < n_ranks_; ++r)
    if (host_->control(r).shares_cores.load(std::memory_order_relaxed)) return true;
  return false;
}

// Sends the blocks as messages: a rank reads what another sends where that lies, and nothing is copied in between.
void Communicator::perform_messages(const Prepared &prepared, const Called &called) {
  const hccc_library &library = prepared.library->description();
  const size_t bytes = static_cast<size_t>(called.count) * static_cast<size_t>(bytes_of_type(called.type));
  if (!strcmp(library.collective, "Broadcast") && bytes <= MOST_STREAMED && shares_cores()) {
    HCCC_LOG(INFO, MEM, rank_, "%s: it goes through its root's ring", library.name);
    return broadcast(prepared.buffers, called);
  }
  HCCC_LOG(INFO, MEM, rank_, "%s: blocks are sent as messages", library.name);
  const int root = library.root < 0 ? -1 : (library.root + turn_) % n_ranks_;
  Buffers buffers = prepared.buffers;
  const bool changes = !strcmp(library.collective, "Alltoall") && (buffers.in_place || prepared.apart);
  if (changes) buffers = staging_.apart(host_->heap(), buffers);
  std::vector<Message> messages;
  const auto add = [&](bool sends, int peer, int block, const char *buffer) {
    if (block < 0) return;
    Message one;
    one.sends = sends, one.exact = true, one.tag = MOVED_TAG, one.peer = peer, one.type = called.type;
    one.at = const_cast<char *>(buffer) + static_cast<size_t>(block) * bytes;
    one.count = static_cast<size_t>(called.count), one.bytes = bytes;
    messages.push_back(one);
  };
  for (int k = 1; k < n_ranks_; ++k) {  // at any time each rank is read by few
    const int to = (rank_ + k) % n_ranks_, from = (rank_ - k + n_ranks_) % n_ranks_;
    add(true, to, route_of(library.collective, rank_, to, root).sent, buffers.send);
    add(false, from, route_of(library.collective, rank_, from, root).received, buffers.receive);
  }
  Exchange exchange{messages.data(), messages.size(), timeout_};
  make(exchange);
  const Route own = route_of(library.collective, rank_, rank_, root);
  if (own.sent < 0 || own.received < 0) return;
  const char *from = buffers.send + static_cast<size_t>(own.sent) * bytes;
  char *to = buffers.receive + static_cast<size_t>(own.received) * bytes;
  if (from != to) copy(to, from, bytes);
}

}  // namespace hccc
