// sha256.cpp: SHA-256 and HMAC, plainly.
#include "sha256.h"

#include <cstring>

namespace hccc::bootstrap {
namespace {

const uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

uint32_t big_endian(const uint8_t *p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | p[3];
}

}  // namespace

void Sha256::block(const uint8_t *p) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i) w[i] = big_endian(p + 4 * i);
  for (int i = 16; i < 64; ++i) {
    const uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  uint32_t v[8];
  std::memcpy(v, h_, sizeof v);
  for (int i = 0; i < 64; ++i) {
    const uint32_t s1 = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25);
    const uint32_t choice = (v[4] & v[5]) ^ (~v[4] & v[6]);
    const uint32_t t1 = v[7] + s1 + choice + kRound[i] + w[i];
    const uint32_t s0 = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22);
    const uint32_t majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
    std::memmove(v + 1, v, 7 * sizeof v[0]);
    v[4] += t1;
    v[0] = t1 + s0 + majority;
  }
  for (int i = 0; i < 8; ++i) h_[i] += v[i];
}

void Sha256::update(const void *data, size_t bytes) {
  auto p = static_cast<const uint8_t *>(data);
  while (bytes) {
    const size_t at = total_ % 64, n = bytes < 64 - at ? bytes : 64 - at;
    std::memcpy(partial_ + at, p, n);
    total_ += n;
    p += n;
    bytes -= n;
    if (total_ % 64 == 0) block(partial_);
  }
}

Digest Sha256::finish() {
  const uint64_t bits = total_ * 8;
  const uint8_t one = 0x80, zero = 0;
  update(&one, 1);
  while (total_ % 64 != 56) update(&zero, 1);
  uint8_t length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
  update(length, 8);
  Digest made;
  for (int i = 0; i < 32; ++i) made[i] = static_cast<uint8_t>(h_[i / 4] >> (24 - 8 * (i % 4)));
  wipe(partial_, sizeof partial_);
  return made;
}

Digest sha256(const void *data, size_t bytes) {
  Sha256 state;
  state.update(data, bytes);
  return state.finish();
}

Digest hmac(const void *key, size_t key_bytes, const void *data, size_t bytes) {
  uint8_t pad[64] = {};
  if (key_bytes > sizeof pad) {
    const Digest shorter = sha256(key, key_bytes);
    std::memcpy(pad, shorter.data(), shorter.size());
  } else if (key_bytes) {
    std::memcpy(pad, key, key_bytes);
  }
  Sha256 inner, outer;
  for (uint8_t &x : pad) x ^= 0x36;
  inner.update(pad, sizeof pad);
  inner.update(data, bytes);
  const Digest first = inner.finish();
  for (uint8_t &x : pad) x ^= 0x36 ^ 0x5c;
  outer.update(pad, sizeof pad);
  outer.update(first.data(), first.size());
  wipe(pad, sizeof pad);
  return outer.finish();
}

bool same(const void *a, const void *b, size_t bytes) {
  auto p = static_cast<const volatile uint8_t *>(a), q = static_cast<const volatile uint8_t *>(b);
  uint8_t differs = 0;
  for (size_t i = 0; i < bytes; ++i) differs = static_cast<uint8_t>(differs | (p[i] ^ q[i]));
  return !differs;
}

void wipe(void *data, size_t bytes) { explicit_bzero(data, bytes); }

}  // namespace hccc::bootstrap
