// joined.cpp: ranks agree on a job, and load the libraries of their vendor clusters.
#include "joined.h"

#include <stdio.h>
#include <string.h>

#include <string>
#include <vector>

namespace hccc::job {
namespace {

// What a rank tells before it joins, and after.
struct Told {
  unsigned char digest[HCCC_JOB_DIGEST_BYTES];
  char vendor[32];
  char failed[480];  // why this rank cannot; "": it can
  char id[HCCC_VENDOR_ID_BYTES];
  bool can[hcccNumTypes * hcccNumOps];
  bool on_device;
};

template <size_t n>
void put(char (&at)[n], const std::string &text) {
  snprintf(at, n, "%s", text.c_str());
}

// Lets all ranks tell. Throws Error where one of them has failed.
std::vector<Told> told_by_all(hcccComm_t comm, const Told &own) {
  int n = 0, rank = 0;
  must(hcccCommCount(comm, &n));
  must(hcccCommUserRank(comm, &rank));
  std::vector<Told> all(static_cast<size_t>(n));
  all[static_cast<size_t>(rank)] = own;
  must(hcccCommGatherBytes(comm, all.data(), sizeof(Told)));
  for (int r = 0; r < n; ++r)
    if (const Told &one = all[static_cast<size_t>(r)]; one.failed[0])
      throw Error(hcccInvalidUsage, text_of("rank %d cannot run the job: ", r) + one.failed);
  return all;
}

// Loads the library of this rank's vendor cluster. Returns null, and why, where it cannot.
const hccc_vendor *loaded(const hccc_job_given &given, const Device *device, std::string &why) {
  const hccc_vendor *vendor = given.table;
  const bool several = given.n_members > 1;
  if (!vendor && hccc_vendor_load(several ? given.vendor : "own", given.library, &vendor) != hcccSuccess) {
    why = hccc_vendor_error();
    return nullptr;
  }
  const bool own = !strcmp(vendor->engine, "own"), streams = vendor->flags & HCCC_VENDOR_STREAM;
  if (!several) return vendor;
  if (device && own && given.calls >> HCCC_VENDOR_SEND & 1)
    why = std::string("hccc's own plans send no memory of ") + device->name() + " to one rank, as the job's steps do";
  else if (device && !own && !streams)
    why = std::string(vendor->name) + " works in memory of the host, and this rank's is " + device->name() + "'s";
  else if (!device && streams)
    why = std::string(vendor->name) + " works in memory of a device, and this rank's is the host's (HCCC_HEAP)";
  return why.empty() ? vendor : nullptr;
}

void check_alike(const std::vector<Told> &all, const hccc_job_given &given) {
  const auto at = [&](int r) -> const Told & { return all[static_cast<size_t>(r)]; };
  for (size_t r = 1; r < all.size(); ++r)
    if (memcmp(all[r].digest, all[0].digest, sizeof all[0].digest))
      throw Error(hcccInvalidUsage, text_of("rank %zu loads another job than rank 0", r));
  const int first = given.members[0];
  for (int k = 1; k < given.n_members; ++k)
    if (const int r = given.members[k]; strcmp(at(r).vendor, at(first).vendor))
      throw Error(hcccInvalidUsage, text_of("rank %d has the library of %s, and rank %d of its vendor cluster that of %s",
                                            r, at(r).vendor, first, at(first).vendor));
}

// Sets which types and reductions a library has in all calls that a job makes of it.
void set_can(Told &own, const hccc_job_given &given, const hccc_vendor &vendor) {
  for (int i = 0; i < hcccNumTypes * hcccNumOps; ++i) {
    own.can[i] = true;
    for (int call = 0; call < HCCC_VENDOR_NUM_CALLS && given.n_members > 1; ++call)
      if (given.calls >> call & 1)
        own.can[i] &= vendor.can(call, static_cast<hcccDataType_t>(i / hcccNumOps),
                                 static_cast<hcccRedOp_t>(i % hcccNumOps)) != 0;
  }
}

}  // namespace

void must(hcccResult_t result) {
  if (result != hcccSuccess) throw Error(result, hcccGetLastError(nullptr));
}

Joined::~Joined() {
  if (comm) vendor->destroy(comm);
  if (border) hcccCommDestroy(border);
}

void Joined::check(hcccDataType_t type, hcccRedOp_t op, bool known) const {
  if (known && can[static_cast<size_t>(type * hcccNumOps + op)]) return;
  const char *const name = name_of_type(type), *const reduction = name_of_op(op);
  const std::string what = reduces ? text_of("no %s of %s", reduction ? reduction : "such reduction", name ? name : "?")
                                   : text_of("no %s", name ? name : "such type");
  throw Error(hcccInvalidArgument, (known ? "a library of the job has " : "a job has ") + what);
}

Joined joined(hcccComm_t comm, const hccc_job_given &given) {
  Told own{};
  memcpy(own.digest, given.digest, sizeof own.digest);
  Joined made;
  constexpr uint32_t reducing = 1u << HCCC_VENDOR_ALL_REDUCE | 1u << HCCC_VENDOR_REDUCE | 1u << HCCC_VENDOR_REDUCE_SCATTER;
  made.reduces = given.calls & reducing;
  std::string why = given.failed;
  if (const Device *device = comm->of.device()) made.device = *device;
  std::optional<OnDevice> there;
  if (made.device) there.emplace(*made.device);
  if (why.empty()) made.vendor = loaded(given, comm->of.device(), why);
  own.on_device = made.device.has_value();
  put(own.vendor, given.vendor);
  const int first = given.members[0];
  const bool is_first = comm->of.rank() == first, several = given.n_members > 1;
  if (made.vendor && several && is_first) {
    const std::vector<int> members(given.members, given.members + given.n_members);
    hccc_unique_id id;
    hccc_bootstrap_error error{};
    if (comm->of.unique_id_among(members, &id, &error)) why = error.message;
    memcpy(own.id, &id, sizeof id);
  }
  put(own.failed, why);
  const std::vector<Told> all = told_by_all(comm, own);
  check_alike(all, given);
  for (const Told &one : all) made.in_pieces |= one.on_device;
  {
    const MemoryOn host{Device()};
    must(hcccCommSplit(comm, 0, comm->of.rank(), &made.border, nullptr));
  }
  if (several) {
    int me = 0;
    while (given.members[me] != comm->of.rank()) ++me;
    const char *const id = all[static_cast<size_t>(first)].id;
    if (made.vendor->init_rank(&made.comm, given.n_members, id, me, timeout_of_environment()) != hcccSuccess)
      put(own.failed, std::string(made.vendor->name) + ": " + made.vendor->last_error());
  }
  set_can(own, given, *made.vendor);
  made.can.set();
  for (const Told &one : told_by_all(comm, own))
    for (size_t i = 0; i < made.can.size(); ++i) made.can[i] = made.can[i] && one.can[i];
  return made;
}

}  // namespace hccc::job
