// share.h: shares descriptors between the ranks of a host.
#pragma once

#include "client.h"

namespace hccc::bootstrap {

void share(Client *client, const int *own_fds, int n_own, int *fds, const Deadline &deadline);

}  // namespace hccc::bootstrap
