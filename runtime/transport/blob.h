// blob.h: the address of a rank's worker and its windows, as bytes for its peers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace hccc::transport {

constexpr int MAX_WINDOWS = 1 << 16;
constexpr size_t MAX_ADDRESS = 1 << 20;

// A window of a peer, to refuse transfers that lie outside it.
struct RemoteWindow {
  uint64_t bytes;
  int memory;
  bool staged;  // the peer copies it through its pool
};

struct Blob {
  int rank, n_ranks;
  uint64_t key;  // in every header sent to that rank
  std::map<int, RemoteWindow> windows;
  std::vector<unsigned char> address;
};

std::vector<unsigned char> pack(const Blob &blob);

// Reads a blob. False, and why, for anything that `pack` did not make. Reads no byte beyond
// `bytes`.
bool unpack(const void *data, size_t bytes, Blob &blob, std::string &why);

}  // namespace hccc::transport
