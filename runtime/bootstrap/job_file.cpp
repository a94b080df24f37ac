// job_file.cpp: files with secrets: the job's, and HCCC_SECRET_FILE.
#include "job_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace hccc::bootstrap {
namespace {

const size_t kLeastSecret = 16, kMostSecret = 4096;
const double kLeft_s = 60;    // a dead root's file is removed when it is older
const double kTick_s = 0.02;  // precision of when a process was started

// A job file: the id, and the process that wrote it.
struct Record {
  hccc_unique_id id;
  int64_t pid, started;
};

// Returns when a process was started, in clock ticks since boot; -1: there is none.
int64_t start_of(int64_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/stat";
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char line[1024];
  const ssize_t n = fd ? read(fd.get(), line, sizeof line - 1) : 0;
  if (n <= 0) return -1;
  line[n] = '\0';
  const char *p = std::strrchr(line, ')');  // its name may have spaces
  for (int field = 2; p && field < 22; ++field) p = std::strchr(p + 1, ' ');
  return p ? std::atoll(p + 1) : -1;
}

double seconds_of(const timespec &t) {
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

double seconds_of(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return seconds_of(t);
}

// Returns the seconds since this process was started.
double own_age_s() {
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  return seconds_of(CLOCK_BOOTTIME) - static_cast<double>(start_of(getpid())) / ticks;
}

bool is_private(const struct stat &s, mode_t kind) {
  return (s.st_mode & S_IFMT) == kind && s.st_uid == geteuid() && !(s.st_mode & 077);
}

std::string directory() {
  struct stat s;
  const char *runtime = variable("XDG_RUNTIME_DIR");
  const bool usable =
      runtime && *runtime == '/' && lstat(runtime, &s) == 0 && is_private(s, S_IFDIR);
  const std::string made =
      usable ? std::string(runtime) + "/hccc" : "/tmp/hccc-" + std::to_string(geteuid());
  if (mkdir(made.c_str(), 0700) != 0 && errno != EEXIST) fail_errno("cannot make", made);
  if (lstat(made.c_str(), &s) != 0 || !is_private(s, S_IFDIR))
    fail(kSystem, -1, "%s is no directory that only this user can read", made.c_str());
  return made;
}

std::string path_of(const std::string &key) {
  const Digest sum = sha256(key.data(), key.size());
  std::string name;
  for (size_t i = 0; i < 16; ++i) name += text("%02x", sum[i]);
  return directory() + "/" + name + ".id";
}

enum class Writer { NONE, DEAD, ALIVE };

// Reads a file and returns the state of the process that wrote it. age_s: seconds since it did.
Writer read_record(const std::string &path, Record *record, double *age_s = nullptr) {
  const Fd fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat s;
  if (!fd || fstat(fd.get(), &s) != 0 || !is_private(s, S_IFREG)) return Writer::NONE;
  if (read(fd.get(), record, sizeof *record) != static_cast<ssize_t>(sizeof *record))
    return Writer::NONE;
  if (age_s) *age_s = seconds_of(CLOCK_REALTIME) - seconds_of(s.st_mtim);
  const bool alive = record->started >= 0 && start_of(record->pid) == record->started;
  return alive ? Writer::ALIVE : Writer::DEAD;
}

// Removes the files of jobs whose root was killed, once no rank can be on its way to it.
void remove_left_files(const std::string &place) {
  DIR *all = opendir(place.c_str());
  while (const dirent *one = all ? readdir(all) : nullptr) {
    const std::string path = place + "/" + one->d_name;
    Record record;
    double age_s = 0;
    if (read_record(path, &record, &age_s) == Writer::DEAD && age_s > kLeft_s) unlink(path.c_str());
  }
  if (all) closedir(all);
}

}  // namespace

std::string write_job_file(const std::string &key, const hccc_unique_id &id) {
  const std::string path = path_of(key), fresh = text("%s.%d", path.c_str(), getpid());
  Record record;
  if (read_record(path, &record) == Writer::ALIVE && record.pid != getpid())
    fail(kBadArgument, 0, "process %lld has made %s: another job has the same name; set "
         "HCCC_JOB to one of its own", static_cast<long long>(record.pid), path.c_str());
  remove_left_files(directory());
  record = {id, getpid(), start_of(getpid())};
  unlink(fresh.c_str());
  const Fd fd(open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd) fail_errno("cannot make", fresh);
  if (write(fd.get(), &record, sizeof record) != static_cast<ssize_t>(sizeof record) ||
      rename(fresh.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(fresh.c_str());
    errno = error;
    fail_errno("cannot write", path);
  }
  return path;
}

hccc_unique_id read_job_file(const std::string &key, const Deadline &deadline) {
  const std::string path = path_of(key);
  Record record;
  for (useconds_t pause = 2000;; pause = std::min(2 * pause, 50000u)) {
    double age_s = 0;
    const Writer writer = read_record(path, &record, &age_s);
    if (writer == Writer::ALIVE) return record.id;
    const bool dead = writer == Writer::DEAD;
    // An older file may be of an earlier job of this name, whose next rank 0 is still to come.
    const bool of_this_job = dead && age_s < own_age_s() - kTick_s;
    if (of_this_job || (dead && deadline.passed()))
      fail(of_this_job ? kLost : kTimedOut, 0, "rank 0 is gone: process %lld, which made %s, has ended",
           static_cast<long long>(record.pid), path.c_str());
    if (deadline.passed())
      fail(kTimedOut, 0, "rank 0 did not come: it has not made %s", path.c_str());
    usleep(pause);
  }
}

void remove_job_file(const std::string &path, const hccc_unique_id &id) {
  Record record;
  if (read_record(path, &record) == Writer::ALIVE && std::memcmp(&record.id, &id, sizeof id) == 0)
    unlink(path.c_str());
}

bool secret_from_environment(Secret *secret) {
  std::string text = "hccc secret\n";
  const size_t before = text.size();
  const char *name = "HCCC_SECRET", *value = variable(name);
  if (value) {
    text += value;
  } else {
    name = "HCCC_SECRET_FILE";
    value = variable(name);
    if (!value) return false;
    const Fd fd(open(value, O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    struct stat s;
    if (!fd || fstat(fd.get(), &s) != 0) fail_errno("cannot read HCCC_SECRET_FILE", value);
    if (!S_ISREG(s.st_mode) || s.st_mode & 077 || (s.st_uid != geteuid() && s.st_uid != 0))
      fail(kBadArgument, -1, "HCCC_SECRET_FILE %.120s can be read by others, or is no "
           "file of this user: chmod 600", value);
    char held[kMostSecret + 1];
    const ssize_t n = read(fd.get(), held, sizeof held);
    if (n < 0) fail_errno("cannot read HCCC_SECRET_FILE", value);
    text.append(held, static_cast<size_t>(n));
    wipe(held, sizeof held);
    while (text.size() > before && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  }
  const size_t bytes = text.size() - before;
  if (bytes < kLeastSecret || bytes > kMostSecret)
    fail(kBadArgument, -1, "%s has %zu characters: it must have %zu to %zu", name, bytes,
         kLeastSecret, kMostSecret);
  *secret = sha256(text.data(), text.size());
  wipe(&text[0], text.size());
  return true;
}

}  // namespace hccc::bootstrap
