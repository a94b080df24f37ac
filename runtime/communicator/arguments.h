// arguments.h: what a caller gives to a call, checked.
#pragma once

#include <hccc/library.h>

#include "control.h"
#include "libraries.h"
#include "staging.h"

namespace hccc {

// Ranks other than the root have one buffer and cannot know whether the root's two are one.
bool rooted(const char *collective);

// Type and reduction are some. Throws Error.
void check_words(const Wanted &wanted);
// The buffers as bytes: there, long enough to be addressed, aligned, apart or in place. Throws Error.
Buffers buffers_of(const Wanted &wanted, const hccc_library &library, int rank);
Called called_of(const Wanted &wanted, const hccc_library &library, bool in_place, uint64_t number);

}  // namespace hccc
