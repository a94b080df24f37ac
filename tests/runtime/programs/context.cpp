// context.cpp: a context that gives back control again and again, for the test of context.h.
#include <stdint.h>

#include "context.h"

static hccc_context home, other;
alignas(16) static char stack[1 << 16];

struct report {
  long sum;
  int misplaced;  // frames that are not on the stack, or not aligned as the ABI has it
};

static void body(void* argument) {
  report* own = static_cast<report*>(argument);
  for (long k = 1;; ++k) {
    const char* frame = static_cast<char*>(__builtin_frame_address(0));
    const bool inside = frame > stack && frame < stack + sizeof stack;
    own->misplaced += !inside || reinterpret_cast<uintptr_t>(frame) % 16;
    own->sum += k;
    hccc_switch(&other, &home);
  }
}

// Switches n times; returns the sum of 1 to n, or -1.
extern "C" long sum_to(int n) {
  report* made = new report{};
  double kept = n;
  for (char& c : stack) c = 0x55;  // nothing that a context needs is there before
  hccc_bind_stack(&other, stack, sizeof stack);
  hccc_prepare(&other, stack + sizeof stack, body, made);
  for (int k = 0; k < n; ++k) hccc_switch(&home, &other), kept += k;
  const bool right = !made->misplaced && kept == n + n * (n - 1) / 2;
  const long sum = right ? made->sum : -1;
  delete made;
  return sum;
}
