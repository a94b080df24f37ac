// joined.cpp: ranks agree on a job, and load the libraries of their vendor clusters.
#include "joined.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace hccc::job {
namespace {

// What a rank tells before it joins, and after.
struct Told {
  unsigned char digest[16];
  char vendor[32];
  char failed[480];  // why this rank cannot; "": it can
  char id[HCCC_VENDOR_ID_BYTES];
  bool can[hcccNumTypes * hcccNumOps];
  bool on_device;
  bool beside;  // whether it shares another job's communicators
  bool by_library;
};

template <size_t n>
void put(char (&at)[n], const std::string &text) {
  snprintf(at, n, "%s", text.c_str());
}

// Lets all ranks tell. Throws Error where one of them has failed.
std::vector<Told> told_by_all(hcccComm_t comm, const Told &own, const TimeLeft &left) {
  std::vector<Told> all(static_cast<size_t>(comm->of.n_ranks()));
  all[static_cast<size_t>(comm->of.rank())] = own;
  comm->of.allgather("hcccCommLoad", all.data(), sizeof(Told), left.seconds());
  for (size_t r = 0; r < all.size(); ++r)
    if (const Told &one = all[r]; one.failed[0])
      throw Error(hcccInvalidUsage, text_of("rank %zu cannot run the job: ", r) + one.failed);
  return all;
}

// Returns why a library cannot make a job's calls in this rank's memory; "": it can.
std::string objection(const Brought &brought, const std::vector<int> &members, const hccc_vendor &vendor, const Device *device) {
  const bool own = !strcmp(vendor.engine, OWN), streams = vendor.flags & HCCC_VENDOR_STREAM;
  if (members.size() < 2) return "";
  if (device && own && brought.calls >> HCCC_VENDOR_SEND & 1)
    return std::string("hccc's own plans send no memory of ") + device->name() + " to one rank, as the job's steps do";
  if (device && !own && !streams)
    return std::string(vendor.name) + " works in memory of the host, and this rank's is " + device->name() + "'s";
  if (!device && streams)
    return std::string(vendor.name) + " works in memory of a device, and this rank's is the host's (HCCC_HEAP)";
  return "";
}

// Loads the library of this rank's vendor cluster. Returns null, and why, where it cannot.
const hccc_vendor *loaded(const Brought &brought, const std::vector<int> &members, const Device *device, std::string &why) {
  const hccc_vendor *vendor = brought.functions;
  const char *const name = members.size() > 1 ? brought.vendor.c_str() : OWN;
  if (!vendor && hccc_vendor_load(name, brought.library, &vendor) != hcccSuccess) {
    why = hccc_vendor_error();
    return nullptr;
  }
  why = objection(brought, members, *vendor, device);
  return why.empty() ? vendor : nullptr;
}

void check_alike(const std::vector<Told> &all, const std::vector<int> &members) {
  const auto at = [&](int r) -> const Told & { return all[static_cast<size_t>(r)]; };
  for (size_t r = 1; r < all.size(); ++r)
    if (memcmp(all[r].digest, all[0].digest, sizeof all[0].digest))
      throw Error(hcccInvalidUsage, text_of("rank %zu loads another job than rank 0", r));
  for (size_t r = 1; r < all.size(); ++r)
    if (all[r].beside != all[0].beside)
      throw Error(hcccInvalidUsage, text_of("ranks 0 and %zu differ in whether the job shares another's communicators", r));
  for (const int r : members)
    if (strcmp(at(r).vendor, at(members[0]).vendor))
      throw Error(hcccInvalidUsage, text_of("rank %d has the library of %s, and rank %d of its vendor cluster that of %s",
                                            r, at(r).vendor, members[0], at(members[0]).vendor));
}

// Sets which types and reductions a library has in all calls that a job makes of it.
void set_can(Told &own, const Brought &brought, bool several, const hccc_vendor &vendor) {
  for (int i = 0; i < hcccNumTypes * hcccNumOps; ++i) {
    own.can[i] = true;
    for (int call = 0; call < HCCC_VENDOR_NUM_CALLS && several; ++call)
      if (brought.calls >> call & 1)
        own.can[i] &= vendor.can(call, static_cast<hcccDataType_t>(i / hcccNumOps),
                                 static_cast<hcccRedOp_t>(i % hcccNumOps)) != 0;
  }
}

}  // namespace

void must(hcccResult_t result) {
  if (result != hcccSuccess) throw Error(result, hcccGetLastError(nullptr));
}

Joined::~Joined() {
  for (hccc_vendor_comm *const pair : pairs)
    if (pair) vendor->destroy(pair);
  if (comm) vendor->destroy(comm);
  if (border) hcccCommDestroy(border);
}

void Joined::set_timeout(double seconds) {
  if (seconds == timeout) return;
  must(hcccCommSetTimeout(border, seconds));
  for (hccc_vendor_comm *const one : {comm, pairs[0], pairs[1]})
    if (one && vendor->set_timeout(one, seconds) != hcccSuccess) throw Error(hcccInvalidArgument, vendor->last_error());
  timeout = seconds;
}

void Joined::make_pairs() {
  if (std::exchange(paired, true)) return;
  int n = 0, member = 0;
  vendor->count(comm, &n), vendor->user_rank(comm, &member);
  const auto split = [&](int color, hccc_vendor_comm *&made) {
    if (const hcccResult_t result = vendor->split(comm, color, member, &made))
      throw Error(result, std::string(vendor->name) + ", a communicator of two ranks: " + vendor->last_error());
  };
  split((member | 1) < n ? member / 2 : HCCC_SPLIT_NOCOLOR, pairs[0]);
  if (n % 2) split(member >= n - 2 ? 0 : HCCC_SPLIT_NOCOLOR, pairs[1]);
}

void Able::check(hcccDataType_t type, hcccRedOp_t op, bool known) const {
  if (known && can[static_cast<size_t>(type * hcccNumOps + op)]) return;
  const char *const name = name_of_type(type), *const reduction = name_of_op(op);
  const std::string what = reduces ? text_of("no %s of %s", reduction ? reduction : "such reduction", name ? name : "?")
                                   : text_of("no %s", name ? name : "such type");
  throw Error(hcccInvalidArgument, (known ? "a library of the job has " : "a job has ") + what);
}

// Makes the communicators of a job. `own` gets what this rank tells, with why it cannot.
std::shared_ptr<Joined> communicators(hcccComm_t comm, const Brought &brought, Told &own, const TimeLeft &left) {
  const auto made = std::make_shared<Joined>();
  const int rank = comm->of.rank();
  const std::vector<int> members = brought.job ? brought.members(rank) : std::vector<int>{rank};
  const bool several = members.size() > 1;
  std::string why = brought.failed;
  if (const Device *device = comm->of.device()) made->device = *device;
  std::optional<OnDevice> there;
  if (made->device) there.emplace(*made->device);
  if (why.empty()) made->vendor = loaded(brought, members, comm->of.device(), why);
  own.on_device = made->device.has_value();
  if (made->vendor && several && rank == members[0]) {
    hccc_unique_id id;
    hccc_bootstrap_error error{};
    if (comm->of.unique_id_among(members, &id, &error)) why = error.message;
    memcpy(own.id, &id, sizeof id);
  }
  put(own.failed, why);
  const std::vector<Told> all = told_by_all(comm, own, left);
  check_alike(all, members);
  for (const Told &one : all) made->in_pieces |= one.on_device, made->any_own |= !strcmp(one.vendor, OWN);
  made->own = made->vendor && !strcmp(made->vendor->engine, OWN);
  made->border = split(comm->of, 0, rank, Device(), left);
  if (several) {
    const MemoryOn here(made->device.value_or(Device()));
    const auto me = std::find(members.begin(), members.end(), rank) - members.begin();
    const char *const id = all[static_cast<size_t>(members[0])].id;
    if (made->vendor->init_rank(&made->comm, static_cast<int>(members.size()), id, static_cast<int>(me), left.seconds()) !=
        hcccSuccess)
      put(own.failed, std::string(made->vendor->name) + ": " + made->vendor->last_error());
  }
  return made;
}

// Has all ranks agree on a job beside another, whose communicators it shares.
void agree(hcccComm_t comm, const Brought &brought, Told &own, const TimeLeft &left) {
  const bool known = brought.failed.empty();
  const std::vector<int> members = known ? brought.members(comm->of.rank()) : std::vector<int>{comm->of.rank()};
  put(own.failed, known ? objection(brought, members, *brought.beside->vendor, comm->of.device()) : brought.failed);
  check_alike(told_by_all(comm, own, left), members);
}

AllBlocks told_blocks(hcccComm_t border, const Collective &of, uint64_t signature, const OwnBlocks &own) {
  const int n = of.n_ranks(), rank = border->of.rank();
  const size_t each = told_words(n);
  std::vector<int64_t> told(each * static_cast<size_t>(n));
  const auto words_of = [&](int r) { return &told[each * static_cast<size_t>(r)]; };
  tell(words_of(rank), n, signature, own);
  std::vector<Message> messages;
  for (const bool sends : {true, false})
    for (int r = 0; r < n; ++r) {
      if (r == rank) continue;
      Message one;
      one.sends = sends, one.exact = true, one.at = reinterpret_cast<char *>(words_of(sends ? rank : r));
      one.count = each, one.bytes = each * sizeof(int64_t), one.type = hcccInt64, one.peer = r;
      messages.push_back(one);
    }
  border->calls->exchange(messages.data(), messages.size());
  for (int r = 1; r < n; ++r)
    if (*words_of(r) != *words_of(0))
      throw RefusedCall(text_of("%s: ranks 0 and %d call it with different types or reductions", of.name(), r));
  const BlockTable table(of.name(), n, told);
  if (!table.disagreement().empty()) throw RefusedCall(std::string(of.name()) + ": " + table.disagreement());
  return {table.words(), static_cast<size_t>(table.longest())};
}

std::pair<std::shared_ptr<Joined>, Able> joined(hcccComm_t comm, const Brought &brought, double timeout_s) {
  const TimeLeft left(timeout_s);
  Told own{};
  if (brought.job) memcpy(own.digest, brought.job->digest.data(), sizeof own.digest);
  own.beside = brought.beside != nullptr, own.by_library = brought.by_library;
  put(own.vendor, brought.vendor);
  std::shared_ptr<Joined> made = brought.beside;
  if (made) agree(comm, brought, own, left);
  else made = communicators(comm, brought, own, left);
  constexpr uint32_t reducing = 1u << HCCC_VENDOR_ALL_REDUCE | 1u << HCCC_VENDOR_REDUCE | 1u << HCCC_VENDOR_REDUCE_SCATTER;
  Able able;
  able.reduces = brought.calls & reducing;
  set_can(own, brought, brought.members(comm->of.rank()).size() > 1, *made->vendor);
  able.can.set(), able.agrees = made->in_pieces;
  for (const Told &one : told_by_all(comm, own, left)) {
    able.agrees |= one.by_library;
    for (size_t i = 0; i < able.can.size(); ++i) able.can[i] = able.can[i] && one.can[i];
  }
  return {made, able};
}

}  // namespace hccc::job
