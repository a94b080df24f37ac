// id.cpp: a hccc_unique_id has magic, version, address, port, secret, checksum, whether the
// root listened before it was made, and whether it is in rank 0's process.
#include "id.h"

#include <cstring>

namespace hccc::bootstrap {
namespace {

const char kMagic[9] = "hccc-id1";
const size_t kContent = 8 + 4 + 16 + 2 + 32, kChecksum = 8;

}  // namespace

void write_id(const Identity &identity, hccc_unique_id *id) {
  std::string made = kMagic;
  put(&made, kVersion);
  made.append(reinterpret_cast<const char *>(identity.address.ip), 16);
  put(&made, identity.address.port);
  made.append(reinterpret_cast<const char *>(identity.secret.data()), identity.secret.size());
  const Digest sum = sha256(made.data(), made.size());
  made.append(reinterpret_cast<const char *>(sum.data()), kChecksum);
  made.push_back(static_cast<char>(identity.listening | identity.at_rank_0 << 1));
  made.resize(sizeof id->internal);
  std::memcpy(id->internal, made.data(), made.size());
  wipe(&made[0], made.size());
}

Identity read_id(const hccc_unique_id &id) {
  const char *p = id.internal;
  const Digest sum = sha256(p, kContent);
  if (std::memcmp(p, kMagic, 8) != 0 || std::memcmp(p + kContent, sum.data(), kChecksum) != 0)
    fail(kBadArgument, -1, "this is no unique id, or one that was damaged");
  if (get<uint32_t>(p + 8) != kVersion)
    fail(kRefused, -1, "the unique id is of version %u, this is version %u",
         get<uint32_t>(p + 8), kVersion);
  Identity made;
  std::memcpy(made.address.ip, p + 12, 16);
  made.address.port = get<uint16_t>(p + 28);
  std::memcpy(made.secret.data(), p + 30, made.secret.size());
  made.listening = p[kContent + kChecksum] & 1;
  made.at_rank_0 = p[kContent + kChecksum] & 2;
  return made;
}

}  // namespace hccc::bootstrap
