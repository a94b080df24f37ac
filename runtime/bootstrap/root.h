// root.h: where the ranks of a job meet first.
#pragma once

#include <functional>

#include "id.h"

namespace hccc::bootstrap {

// Starts a root that listens at `listener`, in a thread that ends by itself: when all have met, or
// when all know that it failed, because one that came went before that, or because no more came for
// `patience_s` seconds (0: for ever). While nobody has come it waits: nobody is there to be told.
// `ended` is called once; where all have met, before anybody learns of it.
void start_root(Fd listener, const Identity &identity, double patience_s,
                std::function<void()> ended);

// HCCC_TIMEOUT, else longer than ranks wait by default: each has a deadline of its own.
double root_patience();

// Waits a moment for the end of a root that this process may have started; its ranks have met.
void wait_for_root(const Identity &identity);

// Ends a root of this process that an earlier job of the same address left.
void stop_root(const Identity &identity);

// What a root tells when all have met.
struct Met {
  Job job;
  Address hub;
};
std::string encode(const Met &met);
Met decode_met(const std::string &payload);  // throws

}  // namespace hccc::bootstrap
