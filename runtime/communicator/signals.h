// signals.h: threads that take no signals.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace hccc {

// Blocks all signals of the calling thread while it lives. Threads that are started meanwhile keep
// them blocked: signals are for the program's threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked &) = delete;
  SignalsBlocked &operator=(const SignalsBlocked &) = delete;

 private:
  sigset_t before_;
};

}  // namespace hccc
