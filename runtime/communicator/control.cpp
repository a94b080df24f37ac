// control.cpp: publishes and reads the current call of a rank.
#include "control.h"

#include <string.h>

namespace hccc {

void publish(Control &control, const Called &called) {
  const uint32_t turn = control.turn.load(std::memory_order_relaxed);
  control.turn.store(turn + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  uint64_t words[CALLED_WORDS];
  memcpy(words, &called, sizeof called);
  for (size_t k = 0; k < CALLED_WORDS; ++k) control.called[k].store(words[k], std::memory_order_relaxed);
  control.turn.store(turn + 2, std::memory_order_release);
}

Called called_by(const Control &control) {
  Called found;
  for (int tries = 0; tries < 1000; ++tries) {
    const uint32_t before = control.turn.load(std::memory_order_acquire);
    uint64_t words[CALLED_WORDS];
    for (size_t k = 0; k < CALLED_WORDS; ++k) words[k] = control.called[k].load(std::memory_order_relaxed);
    memcpy(&found, words, sizeof found);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && control.turn.load(std::memory_order_relaxed) == before) break;
  }
  found.collective[sizeof found.collective - 1] = found.library[sizeof found.library - 1] = '\0';
  return found;
}

}  // namespace hccc
