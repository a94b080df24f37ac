// id.h: what a hccc_unique_id holds.
#pragma once

#include "handshake.h"

namespace hccc::bootstrap {

struct Identity {
  Address address;
  Secret secret;
  bool there = false;  // whether the root listened before the id was made
};

void write_id(const Identity &identity, hccc_unique_id *id);
Identity read_id(const hccc_unique_id &id);  // throws BAD_ARGUMENT

}  // namespace hccc::bootstrap
