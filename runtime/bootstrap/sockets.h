// sockets.h: addresses, listeners and connections.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "base.h"

namespace hccc::bootstrap {

// An IPv6 address, or an IPv4 address mapped into one (RFC 4291 §2.5.5.2), and a port.
struct Address {
  uint8_t ip[16];
  uint16_t port;

  bool is_v4() const;
  bool is_loopback() const;
  bool is_any() const;
  std::string str() const;
  bool operator==(const Address &other) const;
};

Address loopback();
Address address_of(const sockaddr_storage &from);

// Resolves a name or number; port 0 to 65535. Retries until the deadline where the name service is
// temporarily unavailable. Throws.
Address resolve(const std::string &host, int port, const Deadline &deadline);
// Returns whether one of this machine's interfaces has the address.
bool is_local(const Address &address);
// Returns the name of the interface that has the address; "": none has.
std::string interface_of(const Address &address);
// Returns the address of this machine by which it reaches another. Throws where there is no way.
Address address_towards(const Address &other);
// Returns the first address of an interface that `wanted` (HCCC_SOCKET_IFNAME) names: prefixes, `=`
// for whole names, `^` for all but these; null: any but loopback. Throws where there is none.
Address interface_address(const char *wanted);

struct Binding {
  Address bind;  // where to listen
  Address reachable;  // for other ranks to connect to
};
// Chooses by HCCC_BIND and HCCC_SOCKET_IFNAME, without either `otherwise`. Ports are 0.
Binding choose_binding(const Address &otherwise);

// Listen at an address or a name; throw. The sockets do not block.
Fd listen_tcp(const Address &at, Address *bound);
Fd listen_unix(const std::string &abstract_name);

// Connect, in one attempt; an empty Fd and errno where it fails. The sockets do not block.
Fd connect_tcp(const Address &to, const Deadline &deadline);
Fd connect_unix(const std::string &abstract_name, const Deadline &deadline);

// Sets the options of a job's connections; none for UNIX sockets.
void set_options(int fd);
Address local_address(int fd);
std::string peer_name(int fd);  // for messages

// Waits for `events`. False: the deadline passed.
bool wait_for(int fd, short events, const Deadline &deadline);

}  // namespace hccc::bootstrap
