// control.cpp: publishes and reads the current call of a rank.
#include "control.h"

#include <string.h>

namespace hccc {

void store(CalledWords &words, const Called &called) {
  uint64_t plain[CALLED_WORDS];
  memcpy(plain, &called, sizeof called);
  for (size_t k = 0; k < CALLED_WORDS; ++k) words[k].store(plain[k], std::memory_order_relaxed);
}

Called load(const CalledWords &words) {
  uint64_t plain[CALLED_WORDS];
  for (size_t k = 0; k < CALLED_WORDS; ++k) plain[k] = words[k].load(std::memory_order_relaxed);
  Called found;
  memcpy(&found, plain, sizeof found);
  found.collective[sizeof found.collective - 1] = found.library[sizeof found.library - 1] = '\0';
  return found;
}

namespace {

template <class Store>
void publish(Control &control, uint64_t number, uint64_t signature, const Store &store_words) {
  const uint32_t turn = control.turn.load(std::memory_order_relaxed);
  control.signatures[number % RECENT].store(signature, std::memory_order_relaxed);
  control.turn.store(turn + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  store_words();
  control.turn.store(turn + 2, std::memory_order_release);
}

}  // namespace

void publish(Control &control, const Called &called) {
  publish(control, called.number, called.signature, [&] { store(control.called, called); });
}

void publish(Control &control, uint64_t number, uint64_t signature) {
  static_assert(offsetof(Called, number) == 0 && offsetof(Called, signature) == sizeof(uint64_t), "its first words");
  publish(control, number, signature, [&] {
    control.called[0].store(number, std::memory_order_relaxed);
    control.called[1].store(signature, std::memory_order_relaxed);
  });
}

Called called_by(const Control &control) {
  Called found;
  for (int tries = 0; tries < 1000; ++tries) {
    const uint32_t before = control.turn.load(std::memory_order_acquire);
    found = load(control.called);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (before % 2 == 0 && control.turn.load(std::memory_order_relaxed) == before) break;
  }
  return found;
}

}  // namespace hccc
