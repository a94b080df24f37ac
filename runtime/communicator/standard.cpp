// standard.cpp: finds and makes libraries of standard collectives.
#include "standard.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <mutex>
#include <sstream>

#include "descriptor.h"
#include "error.h"
#include "forks.h"
#include "log.h"

extern char **environ;

namespace hccc {
namespace {

constexpr size_t MOST_TEXT = 8192;  // of what the command says
// What builds this library says which headers kernels are compiled with: runtime_library.py, CMakeLists.txt.
#ifndef HCCC_HEADERS
#define HCCC_HEADERS ""
#endif
constexpr char PROGRESS[] = "hccc: ";  // how a line begins that says how far it is
constexpr int LOOK_MS = 100;
constexpr size_t MOST_HOSTS_TEXT = 100;  // in the name of a file

std::vector<std::string> &maker() {
  static auto *words = new std::vector<std::string>;
  return *words;
}

uint64_t hash_of(const std::string &text, uint64_t hash = 0xcbf29ce484222325ULL) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;  // FNV-1a
  return hash;
}

std::string variable(const char *name) {
  const char *found = getenv(name);
  return found ? found : "";
}

std::string content_of(const std::string &path) {
  std::string text;
  char part[4096];
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  for (ssize_t n; file.get() >= 0 && (n = read(file.get(), part, sizeof part)) > 0;)
    text.append(part, static_cast<size_t>(n));
  return text;
}

// Returns the line of /proc/cpuinfo that says what the processor can do.
const std::string &processor() {
  static const std::string found = [] {
    std::istringstream lines(content_of("/proc/cpuinfo"));
    for (std::string line; std::getline(lines, line);)
      if (line.rfind("flags", 0) == 0 || line.rfind("Features", 0) == 0) return line;
    return std::string();
  }();
  return found;
}

// Returns whether the processor has what compilers call x86-64-v3.
bool is_newer() {
  for (const char *one : {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"})
    if ((processor() + " ").find(std::string(" ") + one + " ") == std::string::npos) return false;
  return true;
}

bool only_ours(const std::string &path, mode_t kind) {
  struct stat status;
  return !lstat(path.c_str(), &status) && (status.st_mode & S_IFMT) == kind && status.st_uid == getuid() &&
         !(status.st_mode & (S_IWGRP | S_IWOTH));
}

// Returns the directory that this library lies in; "" where nothing says so.
std::string own_directory() {
  Dl_info found;
  if (!dladdr(reinterpret_cast<void *>(&own_directory), &found) || !found.dli_fname) return "";
  const std::string path = found.dli_fname;
  return path[0] == '/' ? path.substr(0, path.rfind('/')) : "";
}

// Returns whether a path is of a kind, and can be changed only by those who can change `package`.
bool is_of(const struct stat &package, const std::string &path, mode_t kind) {
  struct stat status;
  return !lstat(path.c_str(), &status) && (status.st_mode & S_IFMT) == kind && status.st_uid == package.st_uid &&
         !(status.st_mode & ~package.st_mode & (S_IWGRP | S_IWOTH));
}

// Returns the library of a name that has come with this one, the best for this processor, or "".
std::string packaged(const std::string &name) {
  const std::string own = own_directory(), place = own + "/standard";
  struct stat package;
  if (own.empty() || variable("HCCC_PREBUILT") == "0" || stat(own.c_str(), &package)) return "";
  if (!is_of(package, place, S_IFDIR)) return "";
  const std::string newer = place + "/x86-64-v3";
  if (is_newer() && is_of(package, newer, S_IFDIR) && is_of(package, newer + "/" + name, S_IFREG))
    return newer + "/" + name;
  return is_of(package, place + "/" + name, S_IFREG) ? place + "/" + name : "";
}

// Writes the ranks of each host as `hccc standard --ranks` takes them: how many, "2+2", or, where they
// are not in a row, which, "0,2+1,3". host_of: of each rank, numbered in the order of their lowest ranks.
std::string hosts_text(const std::vector<int> &host_of) {
  const bool in_a_row = std::is_sorted(host_of.begin(), host_of.end());
  std::string made;
  for (int host = 0; host <= *std::max_element(host_of.begin(), host_of.end()); ++host) {
    std::string ranks;
    for (size_t r = 0; r < host_of.size(); ++r)
      if (host_of[r] == host) ranks += (ranks.empty() ? "" : ",") + std::to_string(r);
    if (in_a_row) ranks = std::to_string(std::count(host_of.begin(), host_of.end(), host));
    made += (host ? "+" : "") + ranks;
  }
  return made;
}

// Makes a directory that only this user can write to, unless it exists.
bool is_private(const std::string &path) {
  mkdir(path.c_str(), 0700);
  return only_ours(path, S_IFDIR);
}

// Returns a directory of this user's cache; as `user_directory` in base/building/places.py.
std::string directory(const std::string &name) {
  const std::string cache = variable("XDG_CACHE_HOME"), home = variable("HOME"), temporary = variable("TMPDIR");
  std::vector<std::string> bases;
  for (const std::string &base : {cache, home.empty() ? home : home + "/.cache"})
    if (!base.empty() && base[0] == '/') {
      mkdir(base.c_str(), 0777);
      bases.push_back(base + "/hccc");
    }
  bases.push_back((temporary.empty() ? "/tmp" : temporary) + "/hccc-" + std::to_string(getuid()));
  for (const std::string &base : bases)
    if (is_private(base) && is_private(base + "/standard") && is_private(base + "/standard/" + name))
      return base + "/standard/" + name;
  throw Error(hcccSystemError, "nowhere can libraries of standard collectives be kept: set XDG_CACHE_HOME to a "
                               "directory of your own");
}

// Returns the first error that the command has printed, with its help.
std::string first_error(const std::string &said) {
  std::istringstream lines(said);
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    const size_t error = line.find("error"), help = line.find("help: ");
    if (found.empty() && error == 0) found = line;
    else if (!found.empty() && help != std::string::npos) return found + " (" + line.substr(help + 6) + ")";
  }
  return found;
}

bool tells_progress() { return variable("HCCC_PROGRESS") != "off"; }

// Runs a command and returns its exit status; said: what it prints as errors. Lines of progress are passed on.
int run(const std::vector<std::string> &words, const std::function<bool()> &stopped, std::string &said) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC)) throw system_error("no pipe");
  const Descriptor read_end(ends[0]);
  Descriptor write_end(ends[1]);
  std::vector<char *> arguments;
  for (const std::string &word : words) arguments.push_back(const_cast<char *>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), 2);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed) throw Error(hcccSystemError, text_of("%s cannot be run: %s", words[0].c_str(), strerror(failed)));
  write_end = Descriptor();
  std::string line;
  for (bool open = true; open;) {
    pollfd one = {read_end.get(), POLLIN, 0};
    if (stopped()) kill(child, SIGKILL);
    if (poll(&one, 1, LOOK_MS) <= 0) continue;
    char part[1024];
    const ssize_t n = read(read_end.get(), part, sizeof part);
    open = n > 0;
    if (open && said.size() < MOST_TEXT) said.append(part, static_cast<size_t>(n));
    for (ssize_t k = 0; k < n; ++k) {
      if (line.size() < sizeof part) line += part[k];
      if (part[k] != '\n') continue;
      if (line.compare(0, strlen(PROGRESS), PROGRESS) == 0 && tells_progress()) fputs(line.c_str(), stderr);
      line.clear();
    }
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

void set_maker(std::vector<std::string> words) {
  std::lock_guard<std::mutex> lock(process_mutex());
  maker() = std::move(words);
}

bool StandardLibrary::serves(const char *collective) {
  for (const char *one : {"Allreduce", "Allgather", "Reducescatter", "Alltoall", "Broadcast", "Reduce", "Gather",
                          "Scatter", "Allgatherv", "Reducescatterv", "Alltoallv", "Gatherv", "Scatterv", "Combine"})
    if (!strcmp(one, collective)) return variable("HCCC_STANDARD") != "0";
  return false;
}

StandardLibrary::StandardLibrary(const Wanted &wanted, const std::vector<int> &host_of, const std::string &target,
                                 const std::string &arch)
    : collective_(wanted.collective), hosts_(hosts_text(host_of)), target_(target), root_(wanted.root),
      n_ranks_(static_cast<int>(host_of.size())), of_type_(wanted.type), of_op_(wanted.op) {
  for (char &c : collective_) c = static_cast<char>(tolower(c));
  const bool reduces = collective_ == "allreduce" || collective_ == "reducescatter" ||
                       collective_ == "reducescatterv" || collective_ == "reduce" || collective_ == "combine";
  type_ = reduces ? name_of_type(wanted.type) : name_of_moved(bytes_of_type(wanted.type));
  op_ = reduces ? name_of_op(wanted.op) : "";
  const std::string cluster = variable("HCCC_CLUSTER");
  const uint64_t figures = cluster.empty() ? 0 : hash_of(content_of(cluster), hash_of(cluster));
  std::string name = hosts_ + "-" + collective_;
  if (hosts_.size() > MOST_HOSTS_TEXT)
    name = text_of("%d-%016llx-%s", n_ranks_, static_cast<unsigned long long>(hash_of(hosts_)), collective_.c_str());
  if (root_ >= 0) name += "-" + std::to_string(root_);
  if (target_ != "cpu") name = target_ + "-" + name;
  else if (!figures && hosts_.find('+') == std::string::npos) packaged_ = packaged(name + ".so");
  name += "-" + type_ + (reduces ? "-" + op_ : "");
  if (figures) name += text_of("-%08x", static_cast<unsigned>(figures >> 32));
  identity_ = hash_of(name);
  const std::string version = text_of("%d-%d-%s-%016llx", HCCC_RUNTIME_VERSION, HCCC_ABI, HCCC_HEADERS,
                                      static_cast<unsigned long long>(hash_of(target_ == "cpu" ? processor() : arch)));
  file_ = directory(version) + "/" + name + ".so";
}

std::string StandardLibrary::text() const {
  if (collective_ == "combine") return "a reduction of two arrays of " + type_ + ", " + op_ + ", on " + target_;
  std::string made = collective_ + " of " + type_;
  if (!op_.empty()) made += ", " + op_;
  if (root_ >= 0) made += ", root " + std::to_string(root_);
  if (hosts_.find(',') != std::string::npos) return made + ", for hosts of ranks " + hosts_;
  if (hosts_.find('+') != std::string::npos) return made + ", for hosts of " + hosts_ + " ranks";
  made += ", for " + hosts_ + (n_ranks_ == 1 ? " rank" : " ranks");
  return target_ == "cpu" ? made : made + " on " + target_;
}

bool StandardLibrary::in_cache() const { return only_ours(file_, S_IFREG); }

int StandardLibrary::places() const {
  int found = in_cache() ? CACHE : NOWHERE;
  if (!packaged_.empty()) try {
      if (Library(packaged_, n_ranks_, "cpu", true).built_for(of_type_, of_op_)) found |= PACKAGE;
    } catch (const Error &) {  // it cannot be loaded: as if it were not there
    }
  return found;
}

std::vector<std::string> StandardLibrary::command() const {
  std::vector<std::string> words;
  {
    std::lock_guard<std::mutex> lock(process_mutex());
    words = maker();
  }
  if (const std::string own = variable("HCCC_COMMAND"); !own.empty()) {
    std::istringstream parts(own);
    words.clear();
    for (std::string word; parts >> word;) words.push_back(word);
  }
  if (words.empty()) words = {"hccc"};
  for (const std::string &word : {std::string("standard"), std::string("--ranks"), hosts_,
                                  std::string("--collective"), collective_, std::string("--dtype"), type_,
                                  std::string("-o"), file_})
    words.push_back(word);
  if (!op_.empty()) words.insert(words.end(), {"--op", op_});
  if (root_ >= 0) words.insert(words.end(), {"--root", std::to_string(root_)});
  if (target_ != "cpu") words.insert(words.end(), {"--platform", target_});
  return words;
}

void StandardLibrary::make(const std::function<bool()> &stopped) const {
  if (tells_progress())
    fprintf(stderr, "hccc: making %s, once; it is kept in %s\n", text().c_str(), file_.c_str());
  std::string said, why;
  try {
    const int status = run(command(), stopped, said);
    if (!status && in_cache()) return;
    why = first_error(said);
    if (why.empty()) why = text_of("%s ended with %d: %s", command()[0].c_str(), status, said.substr(0, 200).c_str());
  } catch (const Error &error) {
    why = error.what();
  }
  throw Error(hcccInvalidUsage, "no library is loaded that does " + text() + ", and none could be made: " + why);
}

}  // namespace hccc
