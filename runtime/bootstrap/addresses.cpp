// addresses.cpp: addresses of names and of this machine's interfaces.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "sockets.h"

namespace hccc::bootstrap {
namespace {

const uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

std::shared_ptr<ifaddrs> interfaces() {
  ifaddrs *all = nullptr;
  if (getifaddrs(&all) != 0) fail_errno("cannot list the network interfaces");
  return {all, freeifaddrs};
}

// Returns whether an interface has a usable address. Link-local IPv6 addresses need the interface,
// too.
bool usable(const ifaddrs *i, Address *address) {
  if (!i->ifa_addr || !(i->ifa_flags & IFF_UP)) return false;
  const int family = i->ifa_addr->sa_family;
  if (family != AF_INET && family != AF_INET6) return false;
  sockaddr_storage copy = {};
  std::memcpy(&copy, i->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  *address = address_of(copy);
  return address->is_v4() || !(address->ip[0] == 0xfe && (address->ip[1] & 0xc0) == 0x80);
}

// Returns whether HCCC_SOCKET_IFNAME's words name an interface.
bool named(const std::string &name, const std::string &wanted) {
  const bool except = wanted[0] == '^';
  const bool whole = wanted[except] == '=';
  bool found = false;
  for (size_t at = size_t{except} + whole; at <= wanted.size();) {
    const size_t comma = std::min(wanted.find(',', at), wanted.size());
    const std::string word = wanted.substr(at, comma - at);
    if (!word.empty()) found |= whole ? name == word : name.compare(0, word.size(), word) == 0;
    at = comma + 1;
  }
  return found != except;
}

}  // namespace

bool Address::is_v4() const { return std::memcmp(ip, kMapped, sizeof kMapped) == 0; }

bool Address::is_loopback() const {
  static const uint8_t one[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return is_v4() ? ip[12] == 127 : std::memcmp(ip, one, 16) == 0;
}

bool Address::is_any() const {
  static const uint8_t none[16] = {};
  return std::memcmp(is_v4() ? ip + 12 : ip, none, is_v4() ? 4 : 16) == 0;
}

std::string Address::str() const {
  char number[INET6_ADDRSTRLEN] = "?";
  inet_ntop(is_v4() ? AF_INET : AF_INET6, is_v4() ? ip + 12 : ip, number, sizeof number);
  return is_v4() ? text("%s:%u", number, port) : text("[%s]:%u", number, port);
}

bool Address::operator==(const Address &other) const {
  return port == other.port && std::memcmp(ip, other.ip, 16) == 0;
}

Address loopback() {
  Address made = {};
  std::memcpy(made.ip, kMapped, sizeof kMapped);
  made.ip[12] = 127;
  made.ip[15] = 1;
  return made;
}

Address address_of(const sockaddr_storage &from) {
  Address made = {};
  if (from.ss_family == AF_INET) {
    auto *v4 = reinterpret_cast<const sockaddr_in *>(&from);
    std::memcpy(made.ip, kMapped, sizeof kMapped);
    std::memcpy(made.ip + 12, &v4->sin_addr, 4);
    made.port = ntohs(v4->sin_port);
  } else if (from.ss_family == AF_INET6) {
    auto *v6 = reinterpret_cast<const sockaddr_in6 *>(&from);
    std::memcpy(made.ip, &v6->sin6_addr, 16);
    made.port = ntohs(v6->sin6_port);
  }
  return made;
}

Address resolve(const std::string &host, int port, const Deadline &deadline) {
  addrinfo hints = {}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  int error;
  while ((error = getaddrinfo(host.c_str(), nullptr, &hints, &found)) == EAI_AGAIN &&
         !deadline.passed())
    usleep(200000);
  if (error)
    fail(kBadArgument, -1, "no address of `%.100s`: %s", host.c_str(),
         error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error));
  const std::shared_ptr<addrinfo> owner(found, freeaddrinfo);
  for (const addrinfo *a = found; a; a = a->ai_next) {
    if (a->ai_family != AF_INET && a->ai_family != AF_INET6) continue;
    sockaddr_storage copy = {};
    std::memcpy(&copy, a->ai_addr, a->ai_addrlen);
    Address made = address_of(copy);
    made.port = static_cast<uint16_t>(port);
    return made;
  }
  fail(kBadArgument, -1, "no address of `%.100s`", host.c_str());
}

bool is_local(const Address &address) {
  if (address.is_loopback()) return true;
  const auto all = interfaces();
  for (const ifaddrs *i = all.get(); i; i = i->ifa_next) {
    Address its;
    if (usable(i, &its) && std::memcmp(its.ip, address.ip, 16) == 0) return true;
  }
  return false;
}

std::string interface_of(const Address &address) {
  const auto all = interfaces();
  for (const ifaddrs *i = all.get(); i; i = i->ifa_next) {
    Address its;
    if (!usable(i, &its)) continue;
    const bool same = address.is_loopback() ? its.is_loopback() : std::memcmp(its.ip, address.ip, 16) == 0;
    const std::string name = i->ifa_name;
    if (same) return name.substr(0, name.find(':'));  // without the label of an address
  }
  return "";
}

Address interface_address(const char *wanted) {
  const auto all = interfaces();
  for (const bool v4 : {true, false})
    for (const ifaddrs *i = all.get(); i; i = i->ifa_next) {
      Address its;
      if (!usable(i, &its) || its.is_v4() != v4) continue;
      if (wanted ? named(i->ifa_name, wanted) : !its.is_loopback()) return its;
    }
  if (!wanted) return loopback();
  fail(kBadArgument, -1, "HCCC_SOCKET_IFNAME is `%.60s`: no interface with an address "
       "has such a name", wanted);
}

Binding choose_binding(const Address &otherwise) {
  const char *bind = variable("HCCC_BIND"), *names = variable("HCCC_SOCKET_IFNAME");
  Binding made = {otherwise, otherwise};
  if (names) made.bind = made.reachable = interface_address(names);
  if (bind) {
    made.bind = resolve(bind, 0, Deadline::in(0));
    if (!made.bind.is_any()) made.reachable = made.bind;
    else if (!names && otherwise.is_loopback()) made.reachable = interface_address(nullptr);
  }
  made.bind.port = made.reachable.port = 0;
  return made;
}

}  // namespace hccc::bootstrap
