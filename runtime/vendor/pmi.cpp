// pmi.cpp: see pmi.h. A line of the protocol is `cmd=put kvsname=N key=K value=V`.
#include "pmi.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <sstream>
#include <thread>
#include <utility>

#include "../communicator/error.h"

namespace hccc::vendor {
namespace {

// Returns a word of a line, `name=`; the value of a key goes to the end.
std::string word(const std::string &line, const std::string &name) {
  const size_t at = (" " + line).find(" " + name + "=");
  if (at == std::string::npos) return "";
  const size_t begin = at + name.size() + 1;
  return line.substr(begin, name == "value" ? std::string::npos : line.find(' ', begin) - begin);
}

// Returns the nodes of ranks as MPICH reads them: (first node, nodes, ranks of each) of each row of ranks.
std::string mapping(const Meeting &meeting) {
  std::string made = "(vector";
  for (int r = 0, end; r < meeting.n_ranks(); r = end) {
    for (end = r; end < meeting.n_ranks() && meeting.host(end) == meeting.host(r);) ++end;
    made += text_of(",(%d,1,%d)", meeting.host(r), end - r);
  }
  return made + ")";
}

}  // namespace

Pmi::Pmi(std::shared_ptr<Meeting> meeting, std::string name, double timeout)
    : meeting_(std::move(meeting)), name_(std::move(name)), timeout_(timeout) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) throw system_error("no socket for PMI");
  own_end_ = ends[0], mpis_end_ = ends[1];
  all_["PMI_process_mapping"] = mapping(*meeting_);
}

std::shared_ptr<Pmi> Pmi::start(std::shared_ptr<Meeting> meeting, const std::string &name, double timeout) {
  const std::shared_ptr<Pmi> made(new Pmi(std::move(meeting), name, timeout));
  setenv("PMI_FD", std::to_string(made->mpis_end_).c_str(), 1);
  setenv("PMI_RANK", std::to_string(made->meeting_->rank()).c_str(), 1);
  setenv("PMI_SIZE", std::to_string(made->meeting_->n_ranks()).c_str(), 1);
  std::thread([made] { made->serve(); }).detach();
  return made;
}

std::string Pmi::wrong() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return wrong_;
}

void Pmi::serve() {
  std::string read_so_far;
  char part[2048];
  for (ssize_t n; (n = read(own_end_, part, sizeof part)) > 0;) {
    read_so_far.append(part, static_cast<size_t>(n));
    for (size_t end; (end = read_so_far.find('\n')) != std::string::npos; read_so_far.erase(0, end + 1)) {
      std::string said;
      try {
        said = answer(read_so_far.substr(0, end)) + "\n";
      } catch (const std::exception &error) {  // MPI gets no answer, and is left where it waits for one
        std::lock_guard<std::mutex> lock(mutex_);
        wrong_ = error.what();
        return;
      }
      if (send(own_end_, said.data(), said.size(), MSG_NOSIGNAL) < 0) return;
    }
  }
}

std::string Pmi::answer(const std::string &line) {
  const std::string command = word(line, "cmd");
  if (command == "init") return "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
  if (command == "get_maxes") return "cmd=maxes kvsname_max=256 keylen_max=256 vallen_max=1024 rc=0";
  if (command == "get_appnum") return "cmd=appnum appnum=0 rc=0";
  if (command == "get_my_kvsname") return "cmd=my_kvsname kvsname=" + name_ + " rc=0";
  if (command == "get_universe_size") return "cmd=universe_size size=" + std::to_string(meeting_->n_ranks()) + " rc=0";
  if (command == "finalize") return "cmd=finalize_ack rc=0";
  if (command == "barrier_in") return exchange();
  if (command == "put") {
    put_[word(line, "key")] = word(line, "value");
    return "cmd=put_result rc=0 msg=success";
  }
  if (command == "get") {
    const auto found = all_.find(word(line, "key"));
    if (found == all_.end()) return "cmd=get_result rc=-1 msg=key_not_found value=unknown";
    return "cmd=get_result rc=0 msg=success value=" + found->second;
  }
  return "cmd=" + command + "_result rc=-1";
}

std::string Pmi::exchange() {
  std::string own;
  for (const auto &[key, value] : put_) own += key + "=" + value + "\n";
  put_.clear();
  for (const std::string &one : meeting_->gather(own, TimeLeft(timeout_))) {
    std::istringstream lines(one);
    for (std::string line; std::getline(lines, line);)
      all_[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
  }
  return "cmd=barrier_out rc=0";
}

}  // namespace hccc::vendor
