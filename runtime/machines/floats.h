// floats.h: floats of 16 and 8 bits as bits.
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#include <algorithm>
#include <cmath>

// A float of `exponent` and `mantissa` bits, rounded to nearest even. finite: there are no
// infinities, and what is too large becomes the largest.
template <int exponent, int mantissa, bool finite>
uint32_t narrow(float x, uint32_t nan, uint32_t largest) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  const uint32_t sign = bits >> 31 << (exponent + mantissa);
  if (x != x) return nan;
  const double a = fabs(double(x));
  const int bias = (1 << (exponent - 1)) - 1;
  int e = a == 0 ? 1 - bias : std::max(ilogb(a), 1 - bias);
  double units = nearbyint(ldexp(a, mantissa - e));  // of the last place
  if (units >= ldexp(1.0, mantissa + 1)) units /= 2, ++e;
  const uint32_t r = units < ldexp(1.0, mantissa)
                    ? uint32_t(units)
                    : (uint32_t(e + bias) << mantissa) + (uint32_t(units) - (uint32_t(1) << mantissa));
  const bool over = std::isinf(x) || e > bias + (finite && exponent == 4) || r > largest;
  if (over) return sign | (finite ? largest : ((uint32_t(1) << exponent) - 1) << mantissa);
  return sign | r;
}
template <int exponent, int mantissa>
float widen(uint32_t bits) {
  const int bias = (1 << (exponent - 1)) - 1, e = bits >> mantissa & ((1 << exponent) - 1);
  const uint32_t m = bits & ((1 << mantissa) - 1);
  const bool negative = bits >> (exponent + mantissa) & 1;
  double a;
  if (exponent == 4 && e == 15 && m == 7)
    a = NAN;
  else if (exponent != 4 && e == (1 << exponent) - 1)
    a = m ? double(NAN) : double(INFINITY);
  else
    a = e ? ldexp(double(m | 1u << mantissa), e - bias - mantissa)
          : ldexp(double(m), 1 - bias - mantissa);
  return float(negative ? -a : a);
}
