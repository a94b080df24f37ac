// combine.cpp: a function for each type and reduction that a job can do at a border.
#include "combine.h"

#define HCCC_RANKS 1
#include <hccc/types.h>

#include "../communicator/include/hccc_runtime.h"

namespace hccc::job {
namespace {

template <class D, class Op>
void combine(void *to, const void *a, const void *b, size_t count) {
  using T = typename D::stored;
  auto *out = static_cast<T *>(to);
  const auto *x = static_cast<const T *>(a), *y = static_cast<const T *>(b);
  for (size_t i = 0; i < count; ++i) out[i] = D::down(Op::apply(D::up(x[i]), D::up(y[i])));
}

template <class D>
void divide(void *at, size_t count, int n) {
  auto *x = static_cast<typename D::stored *>(at);
  for (size_t i = 0; i < count; ++i) x[i] = D::down(D::divide(D::up(x[i]), n));
}

// A product is rounded by itself.
template <class D>
void scale(void *to, const void *from, size_t count, unsigned long long bits) {
  using T = typename D::stored;
  const auto by = D::up(hccc_of_bits<T>(bits));
  auto *out = static_cast<T *>(to);
  const auto *x = static_cast<const T *>(from);
  for (size_t i = 0; i < count; ++i) out[i] = D::down(hccc_op_premul_sum<D>::scaled(D::up(x[i]), by));
}

template <class D>
Combine with(int op) {
  constexpr char kind = D::kind;
  if (op == hcccSum || (op == hcccAvg && kind != 'b')) return combine<D, hccc_op_sum<D>>;
  if (op == hcccPreMulSum && hccc_op_premul_sum<D>::takes(kind)) return combine<D, hccc_op_sum<D>>;
  if (op == hcccProd) return combine<D, hccc_op_prod<D>>;
  if constexpr (kind != 'c') {
    if (op == hcccMax) return combine<D, hccc_op_max<D>>;
    if (op == hcccMin) return combine<D, hccc_op_min<D>>;
  }
  if constexpr (kind == 'i' || kind == 'u' || kind == 'b') {
    if (op == hcccBand) return combine<D, hccc_op_band<D>>;
    if (op == hcccBor) return combine<D, hccc_op_bor<D>>;
    if (op == hcccBxor) return combine<D, hccc_op_bxor<D>>;
    if (op == hcccLand) return combine<D, hccc_op_land<D>>;
    if (op == hcccLor) return combine<D, hccc_op_lor<D>>;
  }
  return nullptr;
}

template <class D>
Divide division() {
  if constexpr (D::kind == 'b') return nullptr;
  else return divide<D>;
}

template <class D>
Scale scaling() {
  if constexpr (hccc_op_premul_sum<D>::takes(D::kind)) return scale<D>;
  else return nullptr;
}

// Calls a function with a value of each type's arithmetic.
template <class Result, class Of>
Result of_type(int type, const Of &of) {
  switch (type) {
    case hcccInt8: return of(hccc_dtype_int8{});
    case hcccUint8: return of(hccc_dtype_uint8{});
    case hcccInt32: return of(hccc_dtype_int32{});
    case hcccUint32: return of(hccc_dtype_uint32{});
    case hcccInt64: return of(hccc_dtype_int64{});
    case hcccUint64: return of(hccc_dtype_uint64{});
    case hcccFloat16: return of(hccc_dtype_float16{});
    case hcccFloat32: return of(hccc_dtype_float32{});
    case hcccFloat64: return of(hccc_dtype_float64{});
    case hcccBfloat16: return of(hccc_dtype_bfloat16{});
    case hcccFloat8e4m3: return of(hccc_dtype_float8e4m3{});
    case hcccFloat8e5m2: return of(hccc_dtype_float8e5m2{});
    case hcccInt16: return of(hccc_dtype_int16{});
    case hcccUint16: return of(hccc_dtype_uint16{});
    case hcccBool: return of(hccc_dtype_bool{});
    case hcccComplex64: return of(hccc_dtype_complex64{});
    case hcccComplex128: return of(hccc_dtype_complex128{});
    default: return nullptr;
  }
}

}  // namespace

Combine combine_of(int type, int op) {
  return of_type<Combine>(type, [op](auto d) { return with<decltype(d)>(op); });
}

Divide divide_of(int type) {
  return of_type<Divide>(type, [](auto d) { return division<decltype(d)>(); });
}

Scale scale_of(int type) {
  return of_type<Scale>(type, [](auto d) { return scaling<decltype(d)>(); });
}

}  // namespace hccc::job
