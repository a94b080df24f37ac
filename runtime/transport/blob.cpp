#include "blob.h"

#include <cstring>

namespace hccc::transport {
namespace {

struct Head {
  char magic[8];
  uint32_t version, order;
  uint64_t bytes, sum;  // of the whole blob; of the bytes after the head
  uint64_t key;
  int32_t rank, n_ranks;
  uint32_t n_windows, address_bytes;
};
struct Entry {
  uint64_t bytes;
  int32_t window;
  uint16_t memory, staged;
};
constexpr char MAGIC[8] = {'h', 'c', 'c', 'c', 'u', 'c', 'x', '\n'};
constexpr uint32_t VERSION = 1, ORDER = 0x01020304;

// Computes FNV-1a, against damage, not against attacks: the rendezvous authenticates.
uint64_t sum_of(const unsigned char *data, size_t bytes) {
  uint64_t sum = 14695981039346656037ull;
  for (size_t i = 0; i < bytes; ++i) sum = (sum ^ data[i]) * 1099511628211ull;
  return sum;
}

uint64_t sum_of(Head head, const unsigned char *rest, size_t bytes) {
  head.sum = 0;
  unsigned char raw[sizeof head];
  std::memcpy(raw, &head, sizeof head);
  return sum_of(raw, sizeof raw) ^ (sum_of(rest, bytes) * 31);
}

// Returns whether the head fits the length.
bool check(const Head &head, size_t bytes, std::string &why) {
  if (std::memcmp(head.magic, MAGIC, sizeof MAGIC)) why = "it is no transport's";
  else if (head.order != ORDER) why = "it is of a machine with another byte order";
  else if (head.version != VERSION) why = "it is of another version of hccc";
  else if (head.bytes != bytes) why = "it is not whole";
  else if (head.n_windows > unsigned(MAX_WINDOWS) || head.address_bytes > MAX_ADDRESS ||
           head.address_bytes == 0 ||
           bytes != sizeof(Head) + head.n_windows * sizeof(Entry) + head.address_bytes)
    why = "its lengths do not fit";
  else if (head.n_ranks < 1 || head.rank < 0 || head.rank >= head.n_ranks)
    why = "its rank is none";
  else return true;
  return false;
}

bool add(Blob &blob, const Entry &entry, std::string &why) {
  const bool plain = entry.window >= 0 && entry.window < MAX_WINDOWS && entry.memory < 3 &&
                     entry.staged < 2 && entry.bytes < (1ull << 62);
  if (plain && blob.windows
                   .emplace(entry.window, RemoteWindow{entry.bytes, entry.memory, entry.staged != 0})
                   .second)
    return true;
  why = "a window in it is wrong";
  return false;
}

}  // namespace

std::vector<unsigned char> pack(const Blob &blob) {
  Head head{};
  std::memcpy(head.magic, MAGIC, sizeof MAGIC);
  head.version = VERSION, head.order = ORDER;
  head.key = blob.key, head.rank = blob.rank, head.n_ranks = blob.n_ranks;
  head.n_windows = unsigned(blob.windows.size());
  head.address_bytes = unsigned(blob.address.size());
  const size_t rest = head.n_windows * sizeof(Entry) + head.address_bytes;
  head.bytes = sizeof head + rest;
  std::vector<unsigned char> out(head.bytes);
  unsigned char *at = out.data() + sizeof head;
  for (const auto &[window, one] : blob.windows) {
    const Entry entry{one.bytes, window, uint16_t(one.memory), uint16_t(one.staged)};
    std::memcpy(at, &entry, sizeof entry);
    at += sizeof entry;
  }
  std::memcpy(at, blob.address.data(), blob.address.size());
  head.sum = sum_of(head, out.data() + sizeof head, rest);
  std::memcpy(out.data(), &head, sizeof head);
  return out;
}

bool unpack(const void *data, size_t bytes, Blob &blob, std::string &why) {
  const auto *raw = static_cast<const unsigned char *>(data);
  Head head{};
  if (!raw || bytes < sizeof head) return why = "it is too short", false;
  std::memcpy(&head, raw, sizeof head);
  if (!check(head, bytes, why)) return false;
  const unsigned char *at = raw + sizeof head;
  if (sum_of(head, at, bytes - sizeof head) != head.sum) return why = "it is damaged", false;
  blob = Blob{head.rank, head.n_ranks, head.key, {}, {}};
  for (unsigned i = 0; i < head.n_windows; ++i, at += sizeof(Entry)) {
    Entry entry;
    std::memcpy(&entry, at, sizeof entry);
    if (!add(blob, entry, why)) return false;
  }
  blob.address.assign(at, at + head.address_bytes);
  return true;
}

}  // namespace hccc::transport
