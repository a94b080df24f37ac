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

// By name or number; port 0 to 65535. Throws; tries again until the deadline where the name service
// says that it may know later.
Address resolve(const std::string &host, int port, const Deadline &deadline);
// Whether one of this machine's interfaces has it.
bool is_local(const Address &address);
// The first address of an interface that HCCC_SOCKET_IFNAME's `wanted` names: prefixes, `=` for
// whole names, `^` for all but these; throws where there is none. null: any that is no loopback.
Address interface_address(const char *wanted);

struct Binding {
  Address bind;  // where to listen
  Address told;  // what others connect to
};
// HCCC_BIND and HCCC_SOCKET_IFNAME, without either `otherwise`. Ports are 0.
Binding choose_binding(const Address &otherwise);

// Both throw. Nothing blocks on what they return.
Fd listen_tcp(const Address &at, Address *bound);
Fd listen_unix(const std::string &abstract_name);

// One attempt; an empty Fd and errno where it fails. Nothing blocks on it.
Fd connect_tcp(const Address &to, const Deadline &deadline);
Fd connect_unix(const std::string &abstract_name, const Deadline &deadline);

// What connections of a job need; nothing for UNIX sockets.
void set_options(int fd);
Address local_address(int fd);
std::string peer_name(int fd);  // for messages

// Waits for `events`. False: the deadline passed.
bool wait_for(int fd, short events, const Deadline &deadline);

}  // namespace hccc::bootstrap
