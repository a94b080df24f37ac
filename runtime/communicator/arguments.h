// arguments.h: checks of a call's arguments.
#pragma once

#include <hccc/library.h>

#include "control.h"
#include "libraries.h"
#include "messages.h"
#include "staging.h"

namespace hccc {

// Returns whether a collective has a root. Other ranks have one buffer and cannot know whether the
// root's call is in place.
bool rooted(const char *collective);

// Checks type, reduction and root. Throws Error.
void check_words(const Wanted &wanted, int n_ranks);
// Returns the buffers after checks: not null, addressable, aligned, and apart or in place. Throws
// Error.
Buffers buffers_of(const Wanted &wanted, const hccc_library &library, int rank);
Buffers buffers_of(const Wanted &wanted, const char *collective, int input_blocks, int output_blocks, int rank);
// The same of an uneven call, without the question whether it is in place.
Buffers buffers_of_blocks(const Wanted &wanted);
// Checks the arguments of a send or receive among so many ranks. Throws Error.
void check_message(const Message &message, int n_ranks);
// Describe a call to other ranks; without a library: one that has none yet.
Called called_of(const Wanted &wanted, uint64_t number);
Called called_of(const Wanted &wanted, const hccc_library &library, bool in_place, uint64_t number);
// The same of what is no collective: a load, a split.
Called called_of(const char *name, size_t count, uint64_t number);
Called called_of(const Message &message, uint64_t number);

}  // namespace hccc
