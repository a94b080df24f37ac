// id.h: the content of a hccc_unique_id.
#pragma once

#include "handshake.h"

namespace hccc::bootstrap {

struct Identity {
  Address address;
  Secret secret;
  bool listening = false;  // the root listened before the id was made
  bool at_rank_0 = false;  // the root is in rank 0's process
};

void write_id(const Identity &identity, hccc_unique_id *id);
Identity read_id(const hccc_unique_id &id);  // throws BAD_ARGUMENT

}  // namespace hccc::bootstrap
