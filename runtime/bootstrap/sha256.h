// sha256.h: SHA-256 (FIPS 180-4) and HMAC-SHA-256 (RFC 2104).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace hccc::bootstrap {

using Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  void update(const void *data, size_t bytes);
  Digest finish();

 private:
  void block(const uint8_t *p);

  uint32_t h_[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint8_t partial_[64];
  uint64_t total_ = 0;
};

Digest sha256(const void *data, size_t bytes);
Digest hmac(const void *key, size_t key_bytes, const void *data, size_t bytes);

// Compares in a time that does not depend on the bytes.
bool same(const void *a, const void *b, size_t bytes);
// Overwrites a secret; the compiler cannot omit it.
void wipe(void *data, size_t bytes);

}  // namespace hccc::bootstrap
