// job_file.h: the file by which the ranks of one host find their root, and the environment's
// secret.
#pragma once

#include "id.h"

namespace hccc::bootstrap {

// Writes the file of the job named `key`, mode 0600, in a directory that only this user can read.
std::string write_job_file(const std::string &key, const hccc_unique_id &id);  // its path
// Waits until rank 0, which must be alive, has written the file; throws TIMEOUT, and LOST where it
// has ended since this process was started.
hccc_unique_id read_job_file(const std::string &key, const Deadline &deadline);
// Removes the file if it still holds this id.
void remove_job_file(const std::string &path, const hccc_unique_id &id);

// Returns HCCC_SECRET, or the content of the file HCCC_SECRET_FILE, as 32 bytes. False: neither is
// set. Throws where others can read the file, or it is too short.
bool secret_from_environment(Secret *secret);

}  // namespace hccc::bootstrap
