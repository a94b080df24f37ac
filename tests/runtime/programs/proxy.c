/* proxy.h by itself, in strict C: 300 transfers that arrive late, with no more memory than the proxy
 * began with. The last word of the peer must be the last one's, and the counter must say so. */
#include <stdlib.h>

static void *no_memory(void *old, size_t bytes) { return (void)old, (void)bytes, (void *)0; }
#define realloc no_memory
#include "hccc/proxy.h"
#undef realloc
#include "hccc/layout.h"

enum { TRANSFERS = 300, LENGTH = 512 };

static unsigned flags[2][64], scratch[2][LENGTH], counters[3];
static hccc_transfer entries[LENGTH];

int main(void) {
  const int nic[2] = {0, 1};
  const hccc_wire wire = {0, 50, 2, nic, 1};
  const hccc_window window = HCCC_ALL_MEMORY;
  const hccc_rank ranks[2] = {{flags[0], scratch[0], &window, 1, 0},
                              {flags[1], scratch[1], &window, 1, 0}};
  hccc_proxy_ring rings[2] = {{sizeof(hccc_proxy_ring), sizeof(hccc_transfer), LENGTH, 0, entries,
                               &counters[0], &counters[1], &counters[2]}};
  hccc_proxy *proxy = hccc_proxy_new(2, ranks, rings, &wire);
  unsigned i, tries;
  if (!proxy || hccc_check_proxy_ring(rings)) return 1;
  if (hccc_check_proxy_ring(rings + 1) != HCCC_BAD_ABI) return 1;
  for (i = 0; i < TRANSFERS; ++i) {
    const hccc_transfer t = {0, 1, HCCC_WINDOW_SCRATCH, HCCC_WINDOW_SCRATCH, 4 * (long long)i, 0, 4,
                             128, 1, 0, 0, {0}};
    scratch[0][i] = i + 1;
    entries[i] = t;
    entries[i].value = i + 1;
    entries[i].turn = i + 1;
  }
  if (hccc_proxy_start(proxy, 0) || !hccc_proxy_start(proxy, 1)) return 2;
  for (tries = 0; tries < 1000 && __atomic_load_n(&counters[2], __ATOMIC_ACQUIRE) < TRANSFERS; ++tries) {
    const struct timespec nap = {0, 5000000};
    nanosleep(&nap, 0);
  }
  hccc_proxy_stop(proxy);
  hccc_proxy_free(proxy);
  if (counters[1] != TRANSFERS || counters[2] != TRANSFERS) return 3;
  return scratch[1][0] == TRANSFERS && flags[1][32] == TRANSFERS ? 0 : 4;
}
