// split.cpp: hcccCommSplit, which makes communicators of some of a communicator's ranks, and what it
// needs for that: hcccCommGatherBytes.
#include <algorithm>
#include <utility>
#include <vector>

#include "comm.h"

namespace hccc {
namespace {

// A rank's request, and, from the first rank of each color, the id of the new communicator.
struct Asked {
  int32_t color, key, code;
  hccc_unique_id id;
};

// Lists the ranks of a color, by key and rank.
std::vector<int> ranks_of(const std::vector<Asked> &all, int color) {
  std::vector<int> ranks;
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r].color == color) ranks.push_back(static_cast<int>(r));
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return all[static_cast<size_t>(a)].key < all[static_cast<size_t>(b)].key;
  });
  return ranks;
}

// what: the call; null: it has begun.
void exchange(Communicator &of, const char *what, std::vector<Asked> &all, const TimeLeft &left) {
  of.allgather(what, all.data(), sizeof(Asked), left.seconds());
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r].code)
      throw Error(static_cast<int>(r) == of.rank() ? static_cast<hcccResult_t>(all[r].code) : hcccRemoteError,
                  text_of("rank %zu cannot split: color %d", r, all[r].color));
}

}  // namespace

hcccComm_t split(Communicator &of, int color, int key, const Device &device, const TimeLeft &left) {
  std::vector<Asked> all(static_cast<size_t>(of.n_ranks()));
  Asked &own = all[static_cast<size_t>(of.rank())];
  own.color = color, own.key = key;
  own.code = color >= 0 || color == HCCC_SPLIT_NOCOLOR ? hcccSuccess : hcccInvalidArgument;
  exchange(of, "hcccCommSplit", all, left);
  const std::vector<int> ranks = ranks_of(all, color);
  const bool first = color >= 0 && ranks.front() == of.rank();
  hccc_bootstrap_error error{};
  if (first && of.unique_id_among(ranks, &own.id, &error)) own.code = hcccSystemError;
  exchange(of, nullptr, all, left);
  if (color < 0) return nullptr;
  const auto at = std::find(ranks.begin(), ranks.end(), of.rank()) - ranks.begin();
  return hcccComm::on(device, all[static_cast<size_t>(ranks.front())].id, static_cast<int>(ranks.size()),
                      static_cast<int>(at), of.family(ranks), left);
}

}  // namespace hccc

HCCC_API hcccResult_t hcccCommSplit(hcccComm_t comm, int color, int key, hcccComm_t *made,
                                    const hcccConfig_t *config) {
  return hccc::caught(comm, [&] {
    hccc::check(comm);
    hccc::check(made, "made");
    *made = nullptr;
    if (config)
      throw hccc::Error(hcccInvalidArgument, "there are no settings of communicators: pass null");
    hccc::Device device;
    if (const std::optional<hccc::Device> told = hccc::told_memory()) device = *told;
    else if (comm->of.device()) device = *comm->of.device();
    else device.number = comm->device;
    hccc::in_turn(comm, [=](const hccc::Settings &settings) {
      *made = hccc::split(comm->of, color, key, device, hccc::TimeLeft(settings.timeout_s));
    });
  });
}

HCCC_API hcccResult_t hcccCommGatherBytes(hcccComm_t comm, void *data, size_t bytes_each) {
  return hccc::caught(comm, [&] {
    hccc::check(comm);
    hccc::check(data, "data");
    hccc::in_turn(comm, [=](const hccc::Settings &settings) {
      comm->of.allgather("hcccCommGatherBytes", data, bytes_each, settings.timeout_s);
    });
  });
}
