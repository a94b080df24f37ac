// forks.h: tells a process from the children that are forked of it, and the mutex of what all
// communicators of a process share.
#pragma once

#include <atomic>
#include <mutex>

namespace hccc {

// Counts the forks between the first process and this one.
unsigned generation();

// The process that an object was made in. It asks the system nothing, so that calls can check it.
class Process {
 public:
  // Returns whether this process is that one, rather than a child of it.
  bool is_this() const { return generation_ == generation(); }

 private:
  unsigned generation_ = generation();
};

// Guards what all communicators of a process share. No thread holds it while the process forks, so
// that children find it free.
std::mutex &process_mutex();

}  // namespace hccc
