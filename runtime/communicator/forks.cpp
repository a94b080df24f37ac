// forks.cpp: what happens when a process forks.
#include "forks.h"

#include <pthread.h>

namespace hccc {
namespace {

std::atomic<unsigned> forks{0};

void before() { process_mutex().lock(); }
void in_parent() { process_mutex().unlock(); }
void in_child() {
  forks.fetch_add(1, std::memory_order_relaxed);
  process_mutex().unlock();
}

const int watched = pthread_atfork(before, in_parent, in_child);

}  // namespace

unsigned generation() { return forks.load(std::memory_order_relaxed); }

std::mutex &process_mutex() {
  static auto *mutex = new std::mutex;  // outlives every thread
  return *mutex;
}

}  // namespace hccc
