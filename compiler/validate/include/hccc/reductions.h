// reductions.h: records the reductions of one's own that a text defines, character by character:
// name, kinds, and the expression with operations after what they take. compiler/validate/tables.py
// writes a plan's the same way.
#pragma once

#include "recorder.h"

// A value of an expression, as what was done to get it. What does not fit is cut.
struct hccc_term {
  char text[8192];
  int length;

  void add(const char* word) {
    for (; *word && length < static_cast<int>(sizeof text); ++word) text[length++] = *word;
  }
  void add(const hccc_term& other) {
    for (int i = 0; i < other.length && length < static_cast<int>(sizeof text); ++i)
      text[length++] = other.text[i];
  }
};

template <class... Parts>
static hccc_term hccc_operation(const char* name, const Parts&... part) {
  hccc_term made{};
  (made.add(part), ...);
  made.add(name), made.add(" ");
  return made;
}

// The bits of a number, of which integers and others have different ones.
static hccc_term hccc_number_of(const char* kind, unsigned long long bits) {
  hccc_term made{};
  made.add(kind);
  for (int at = 60; at >= 0; at -= 4) {
    const char digit[] = {"0123456789abcdef"[bits >> at & 15], 0};
    made.add(digit);
  }
  made.add(" ");
  return made;
}

#define HCCC_TERM(name)                         \
  template <class... Parts>                     \
  static hccc_term name(const Parts&... part) { \
    return hccc_operation(#name, part...);      \
  }

// The functions of hccc_terms (runtime/include/hccc/types.h).
struct hccc_recorded_terms {
  static hccc_term number(long long n) { return hccc_number_of("i", static_cast<unsigned long long>(n)); }
  static hccc_term number(double n) { return hccc_number_of("f", __builtin_bit_cast(unsigned long long, n)); }
  HCCC_TERM(add)
  HCCC_TERM(subtract)
  HCCC_TERM(multiply)
  HCCC_TERM(divide)
  HCCC_TERM(negate)
  HCCC_TERM(magnitude)
  HCCC_TERM(smaller)
  HCCC_TERM(larger)
  HCCC_TERM(both)
  HCCC_TERM(either)
  HCCC_TERM(differ)
  HCCC_TERM(flip)
  HCCC_TERM(equal)
  HCCC_TERM(unequal)
  HCCC_TERM(less)
  HCCC_TERM(more)
  HCCC_TERM(most)
  HCCC_TERM(least)
  HCCC_TERM(any)
  HCCC_TERM(every)
  HCCC_TERM(deny)
  HCCC_TERM(pick)
};

static void hccc_record_own(const char* name, const char* kinds, const hccc_term& value) {
  hccc_term all{};
  all.add(name), all.add(" "), all.add(kinds), all.add(" "), all.add(value), all.add(";");
  for (int i = 0; i < all.length; ++i) hccc_put_row(HCCC_REDUCTION_TEXTS, all.text[i]);
}

#define HCCC_OWN(name, of, ...) hccc_record_own(#name, of, __VA_ARGS__);

static void hccc_record_reductions() {
#ifdef HCCC_REDUCTIONS
  using t = hccc_recorded_terms;
  const hccc_term a = hccc_operation("a"), b = hccc_operation("b");
  HCCC_REDUCTIONS
#endif
}
