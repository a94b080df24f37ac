// root.h: the root, where the ranks of a job register.
#pragma once

#include <functional>

#include "id.h"

namespace hccc::bootstrap {

// Starts a root that listens at `listener`, in a thread that ends by itself: when all ranks have
// met, or when all know of a failure: a registered rank ended, or none registered for `timeout_s`
// seconds (0: for ever). It waits for the first rank without a limit, as there is no rank to report
// to. `ended` is called once; where all ranks have met, before any of them learns of it.
void start_root(Fd listener, const Identity &identity, double timeout_s,
                std::function<void()> ended);

// Returns HCCC_TIMEOUT, else a longer time than the ranks' default: each has a deadline of its own.
double root_timeout();

// Waits a moment for the end of a root that this process may have started; its ranks have met.
void wait_for_root(const Identity &identity);

// Waits a moment until a root that this process may have started has told all ranks what failed: its
// process may end next.
void wait_for_report(const Identity &identity);

// Ends a root that an earlier job with the same address left in this process.
void stop_root(const Identity &identity);

// The root's report when all ranks have met.
struct Met {
  Job job;
  Address hub;
};
std::string encode(const Met &met);
Met decode_met(const std::string &payload);  // throws

}  // namespace hccc::bootstrap
