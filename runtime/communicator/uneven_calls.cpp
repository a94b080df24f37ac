// uneven_calls.cpp: uneven calls, whose blocks ranks compare before a byte moves.
#include <algorithm>

#include "arguments.h"
#include "communicator.h"

namespace hccc {

// Returns which buffers of an uneven call are copied, and where its blocks then are.
CopiedBlocks Communicator::copied_blocks(const Prepared &prepared, const OwnBlocks &own, const Called &called) const {
  const Buffers &buffers = prepared.buffers;
  const bool touched = prepared.library->description().touches_peers;
  const auto copies = [&](const char *at, size_t bytes) { return bytes && touched && !reaches(at, bytes); };
  const bool apart = buffers.send_bytes && prepared.apart;
  return {own, apart || copies(buffers.send, buffers.send_bytes), copies(buffers.receive, buffers.receive_bytes),
          bytes_of_type(called.type)};
}

// Tells all ranks the own blocks, where some are on other hosts, and hears theirs. Throws Error.
void Communicator::tell_hosts(const OwnBlocks &own, const Called &called, std::vector<int64_t> &told) {
  const size_t each = told_words(n_ranks_);
  const auto words_of = [&](int rank) { return &told[each * static_cast<size_t>(rank)]; };
  tell(words_of(rank_), n_ranks_, called.signature, own);
  std::vector<Message> messages;
  for (const bool sends : {true, false})
    for (int r = 0; r < n_ranks_; ++r) {
      if (r == rank_) continue;
      Message one;
      one.sends = sends, one.exact = true, one.tag = told_tag(called.number);
      one.at = reinterpret_cast<char *>(words_of(sends ? rank_ : r));
      one.count = each, one.bytes = each * sizeof(int64_t), one.type = hcccInt64, one.peer = r;
      messages.push_back(one);
    }
  Exchange exchange{messages.data(), messages.size(), timeout_};
  exchange.told = true;
  messages_->drop_told(called.number);
  make(exchange);
  bool alike = !exchange.withdrawn;
  for (int r = 0; alike && r < n_ranks_; ++r) alike = static_cast<uint64_t>(*words_of(r)) == called.signature;
  if (alike) return;
  monitor_->refuse(called.number);
  throw Error(hcccInvalidUsage, "");
}

// Checks the table that all ranks have made. Throws Error: at every rank, and nothing is lost.
void Communicator::check_table(const BlockTable &table, const Wanted &wanted, const hccc_library &library,
                               const Called &called, const Settings &settings) const {
  if (!table.disagreement().empty())
    throw RefusedCall(description(called) + ": " + table.disagreement());
  Wanted longest = wanted;
  longest.count = static_cast<size_t>(table.longest());
  check_plan(longest, library, false, settings);
}

void Communicator::perform_blocks(const Prepared &prepared, const CopiedBlocks &blocks, const BlockTable &table,
                                  const Called &called, void *stream) {
  Called hashed = called;
  hashed.signature = std::max<uint64_t>(1, called.signature ^ table.hash());
  const auto in = static_cast<hcccrtStream_t>(stream);
  const Staged staged = gpu_ ? gpu_->before(prepared.buffers, blocks, in)
                             : staging_.before(host_->heap(), prepared.buffers, blocks);
  if (prepared.library->description().touches_peers && host_->device_memory()) share_with_peers(staged.used, called);
  const long long *words = gpu_ ? gpu_->on_device(table.words(), in) : table.words().data();
  run(*prepared.library, hashed, staged, 0, static_cast<size_t>(table.longest()), stream, words);
  if (gpu_) gpu_->after(staged, blocks, called, in);
  else staging_.after(staged, blocks);
}

// Ends a call at its deadline, before its kernel is launched on a GPU.
void Communicator::fail_late(const Called &called) {
  fail(hcccTimeout, text_of("timed out after %g s: ", timeout_) + monitor_->describe_late(called) +
                        text_of("; rank %d calls ", rank_) + description(called));
}

}  // namespace hccc
