// context.h: switches between stacks. Own code for x86-64 and AArch64 (the callee-saved registers
// of their ELF ABIs and nothing else, about 2 ns); ucontext elsewhere (two system calls).
#pragma once

#if defined(__x86_64__) || defined(__aarch64__)

struct hccc_context {
  void* stack;  // everything else is saved on it
};

// Weak and hidden: the translation units of one library share one copy.
extern "C" void hccc_switch(hccc_context* from, hccc_context* to)
    __attribute__((visibility("hidden")));
extern "C" void hccc_start() __attribute__((visibility("hidden")));

#if defined(__x86_64__)

asm(R"(
.text
.weak hccc_switch
.hidden hccc_switch
.type hccc_switch, @function
hccc_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq (%rsi), %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size hccc_switch, .-hccc_switch
.weak hccc_start
.hidden hccc_start
.type hccc_start, @function
hccc_start:
  movq %rbx, %rdi
  callq *%rbp
.size hccc_start, .-hccc_start
)");

// Prepares a stack: the first switch pops these six registers and returns into hccc_start, which
// calls main.
static inline void hccc_prepare(hccc_context* c, char* top, void (*main)(void*), void* argument) {
  void** slot = reinterpret_cast<void**>(top) - 9;  // leaves the stack aligned for the call
  for (int i = 0; i < 9; ++i) slot[i] = nullptr;
  slot[4] = argument;                             // rbx
  slot[5] = reinterpret_cast<void*>(main);        // rbp
  slot[6] = reinterpret_cast<void*>(hccc_start);  // return address
  c->stack = slot;
}

#else

asm(R"(
.text
.weak hccc_switch
.hidden hccc_switch
.type hccc_switch, %function
hccc_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  ldr x9, [x1]
  mov sp, x9
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size hccc_switch, .-hccc_switch
.weak hccc_start
.hidden hccc_start
.type hccc_start, %function
hccc_start:
  mov x0, x19
  blr x20
.size hccc_start, .-hccc_start
)");

// Prepares a stack: the first switch loads x19, x20 and returns into hccc_start, which calls main.
static inline void hccc_prepare(hccc_context* c, char* top, void (*main)(void*), void* argument) {
  void** slot = reinterpret_cast<void**>(top) - 20;
  for (int i = 0; i < 20; ++i) slot[i] = nullptr;
  slot[0] = argument;                              // x19
  slot[1] = reinterpret_cast<void*>(main);         // x20
  slot[11] = reinterpret_cast<void*>(hccc_start);  // x30
  c->stack = slot;
}

#endif

static inline void hccc_bind_stack(hccc_context*, char*, long) {}

#else
#include <ucontext.h>

struct hccc_context {
  ucontext_t saved;
  void (*main)(void*);
  void* argument;
};

static inline void hccc_switch(hccc_context* from, hccc_context* to) {
  swapcontext(&from->saved, &to->saved);
}

// Starts a context. makecontext passes ints only: two halves of a pointer.
static void hccc_start(unsigned high, unsigned low) {
  const unsigned long bits = static_cast<unsigned long>(high) << 16 << 16 | low;
  hccc_context* c = reinterpret_cast<hccc_context*>(bits);
  c->main(c->argument);
}

static inline void hccc_bind_stack(hccc_context* c, char* bottom, long bytes) {
  getcontext(&c->saved);
  c->saved.uc_stack.ss_sp = bottom;
  c->saved.uc_stack.ss_size = static_cast<unsigned long>(bytes);
}

static inline void hccc_prepare(hccc_context* c, char*, void (*main)(void*), void* argument) {
  const unsigned long bits = reinterpret_cast<unsigned long>(c);
  c->main = main;
  c->argument = argument;
  makecontext(&c->saved, reinterpret_cast<void (*)()>(hccc_start), 2,
              static_cast<unsigned>(bits >> 16 >> 16), static_cast<unsigned>(bits));
}

#endif
