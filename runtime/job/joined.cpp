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
  bool beside;  // whether it shares another job's communicators
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

// Returns why a library cannot make a job's calls in this rank's memory; "": it can.
std::string objection(const hccc_job_given &given, const hccc_vendor &vendor, const Device *device) {
  const bool own = !strcmp(vendor.engine, "own"), streams = vendor.flags & HCCC_VENDOR_STREAM;
  if (given.n_members < 2) return "";
  if (device && own && given.calls >> HCCC_VENDOR_SEND & 1)
    return std::string("hccc's own plans send no memory of ") + device->name() + " to one rank, as the job's steps do";
  if (device && !own && !streams)
    return std::string(vendor.name) + " works in memory of the host, and this rank's is " + device->name() + "'s";
  if (!device && streams)
    return std::string(vendor.name) + " works in memory of a device, and this rank's is the host's (HCCC_HEAP)";
  return "";
}

// Loads the library of this rank's vendor cluster. Returns null, and why, where it cannot.
const hccc_vendor *loaded(const hccc_job_given &given, const Device *device, std::string &why) {
  const hccc_vendor *vendor = given.table;
  const bool several = given.n_members > 1;
  if (!vendor && hccc_vendor_load(several ? given.vendor : "own", given.library, &vendor) != hcccSuccess) {
    why = hccc_vendor_error();
    return nullptr;
  }
  why = objection(given, *vendor, device);
  return why.empty() ? vendor : nullptr;
}

void check_alike(const std::vector<Told> &all, const hccc_job_given &given) {
  const auto at = [&](int r) -> const Told & { return all[static_cast<size_t>(r)]; };
  for (size_t r = 1; r < all.size(); ++r)
    if (memcmp(all[r].digest, all[0].digest, sizeof all[0].digest))
      throw Error(hcccInvalidUsage, text_of("rank %zu loads another job than rank 0", r));
  for (size_t r = 1; r < all.size(); ++r)
    if (all[r].beside != all[0].beside)
      throw Error(hcccInvalidUsage, text_of("ranks 0 and %zu differ in whether the job shares another's communicators", r));
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

void Joined::set_timeout(double seconds) {
  if (seconds == timeout) return;
  must(hcccCommSetTimeout(border, seconds));
  if (comm && vendor->set_timeout(comm, seconds) != hcccSuccess)
    throw Error(hcccInvalidArgument, vendor->last_error());
  timeout = seconds;
}

void Able::check(hcccDataType_t type, hcccRedOp_t op, bool known) const {
  if (known && can[static_cast<size_t>(type * hcccNumOps + op)]) return;
  const char *const name = name_of_type(type), *const reduction = name_of_op(op);
  const std::string what = reduces ? text_of("no %s of %s", reduction ? reduction : "such reduction", name ? name : "?")
                                   : text_of("no %s", name ? name : "such type");
  throw Error(hcccInvalidArgument, (known ? "a library of the job has " : "a job has ") + what);
}

// Makes the communicators of a job. `own` gets what this rank tells, with why it cannot.
std::shared_ptr<Joined> communicators(hcccComm_t comm, const hccc_job_given &given, Told &own) {
  const auto made = std::make_shared<Joined>();
  std::string why = given.failed;
  if (const Device *device = comm->of.device()) made->device = *device;
  std::optional<OnDevice> there;
  if (made->device) there.emplace(*made->device);
  if (why.empty()) made->vendor = loaded(given, comm->of.device(), why);
  own.on_device = made->device.has_value();
  const int first = given.members[0];
  const bool is_first = comm->of.rank() == first, several = given.n_members > 1;
  if (made->vendor && several && is_first) {
    const std::vector<int> members(given.members, given.members + given.n_members);
    hccc_unique_id id;
    hccc_bootstrap_error error{};
    if (comm->of.unique_id_among(members, &id, &error)) why = error.message;
    memcpy(own.id, &id, sizeof id);
  }
  put(own.failed, why);
  const std::vector<Told> all = told_by_all(comm, own);
  check_alike(all, given);
  for (const Told &one : all) made->in_pieces |= one.on_device;
  {
    const MemoryOn host{Device()};
    must(hcccCommSplit(comm, 0, comm->of.rank(), &made->border, nullptr));
  }
  if (several) {
    const MemoryOn here(made->device.value_or(Device()));
    int me = 0;
    while (given.members[me] != comm->of.rank()) ++me;
    const char *const id = all[static_cast<size_t>(first)].id;
    if (made->vendor->init_rank(&made->comm, given.n_members, id, me, timeout_of_environment()) != hcccSuccess)
      put(own.failed, std::string(made->vendor->name) + ": " + made->vendor->last_error());
  }
  return made;
}

// Has all ranks agree on a job beside another, whose communicators it shares.
void agree(hcccComm_t comm, const hccc_job_given &given, const Joined &beside, Told &own) {
  std::string why = given.failed;
  if (why.empty()) why = objection(given, *beside.vendor, comm->of.device());
  put(own.failed, why);
  check_alike(told_by_all(comm, own), given);
}

std::pair<std::shared_ptr<Joined>, Able> joined(hcccComm_t comm, const hccc_job_given &given,
                                                const std::shared_ptr<Joined> &beside) {
  Told own{};
  memcpy(own.digest, given.digest, sizeof own.digest);
  own.beside = beside != nullptr;
  put(own.vendor, given.vendor);
  std::shared_ptr<Joined> made = beside;
  if (beside) agree(comm, given, *beside, own);
  else made = communicators(comm, given, own);
  constexpr uint32_t reducing = 1u << HCCC_VENDOR_ALL_REDUCE | 1u << HCCC_VENDOR_REDUCE | 1u << HCCC_VENDOR_REDUCE_SCATTER;
  Able able;
  able.reduces = given.calls & reducing;
  set_can(own, given, *made->vendor);
  able.can.set();
  for (const Told &one : told_by_all(comm, own))
    for (size_t i = 0; i < able.can.size(); ++i) able.can[i] = able.can[i] && one.can[i];
  return {made, able};
}

}  // namespace hccc::job
