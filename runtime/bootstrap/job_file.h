// job_file.h: a file by which the ranks of one host find their root.
#pragma once

#include "id.h"

namespace hccc::bootstrap {

// Both by a name that the job's ranks share; the file is in a directory of this user's own, mode
// 0600.
std::string write_job_file(const std::string &key, const hccc_unique_id &id);  // its path
// Waits until rank 0, which must be alive, has written it; throws TIMEOUT.
hccc_unique_id read_job_file(const std::string &key, const Deadline &deadline);
// If it still holds this id.
void remove_job_file(const std::string &path, const hccc_unique_id &id);

// HCCC_SECRET, or what the file HCCC_SECRET_FILE holds, as 32 bytes. False: neither is set. Throws
// where others could read the file, or it is too short.
bool secret_from_environment(Secret *secret);

}  // namespace hccc::bootstrap
