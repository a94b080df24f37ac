/* proxy.h as functions of a library, for runtime/network.py. */
#include "hccc/proxy.h"

extern "C" {

hccc_proxy *hccc_network_new(int n_ranks, const hccc_rank *ranks, const hccc_proxy_ring *rings,
                             const hccc_wire *wire) {
  return hccc_proxy_new(n_ranks, ranks, rings, wire);
}

int hccc_network_start(hccc_proxy *proxy, int threads) { return hccc_proxy_start(proxy, threads); }

void hccc_network_stop(hccc_proxy *proxy) { hccc_proxy_stop(proxy); }

void hccc_network_reset(hccc_proxy *proxy) { hccc_proxy_reset(proxy); }

void hccc_network_free(hccc_proxy *proxy) { hccc_proxy_free(proxy); }

}
