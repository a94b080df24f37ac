// types.h: the types and reductions of torch as those of hccc, in one table.
#pragma once

#include <ATen/ATen.h>
#include <hccc_runtime.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace hccc_torch {

// A tensor's elements as hccc gets them: their type, how many of it an element of torch is, and the
// bytes of that.
struct Elements {
  hcccDataType_t type;
  int each = 1;
  size_t bytes = 0;
};

// Elements that are only moved: by their width.
inline Elements moved(const at::Tensor &tensor) {
  switch (tensor.element_size()) {
    case 1: return {hcccUint8, 1, 1};
    case 2: return {hcccFloat16, 1, 2};
    case 4: return {hcccUint32, 1, 4};
    case 8: return {hcccUint64, 1, 8};
    case 16: return {hcccUint64, 2, 16};
  }
  C10_THROW_ERROR(TypeError, c10::str("hccc: no elements of ", tensor.element_size(), " bytes"));
}

struct Reduction {
  Elements elements;
  hcccRedOp_t op;
};

// What hccc has no type for: `bool` is reduced as uint8 by max or min, complex numbers as pairs.
struct TypeRow {
  at::ScalarType torch;
  Elements elements;
  bool logical = false, pairs = false;
};
constexpr TypeRow TYPES[] = {
    {at::kChar, {hcccInt8}},
    {at::kByte, {hcccUint8}},
    {at::kInt, {hcccInt32}},
    {at::kUInt32, {hcccUint32}},
    {at::kLong, {hcccInt64}},
    {at::kUInt64, {hcccUint64}},
    {at::kHalf, {hcccFloat16}},
    {at::kFloat, {hcccFloat32}},
    {at::kDouble, {hcccFloat64}},
    {at::kBFloat16, {hcccBfloat16}},
    {at::kFloat8_e4m3fn, {hcccFloat8e4m3}},
    {at::kFloat8_e5m2, {hcccFloat8e5m2}},
    {at::kBool, {hcccUint8}, true, false},
    {at::kComplexFloat, {hcccFloat32, 2}, false, true},
    {at::kComplexDouble, {hcccFloat64, 2}, false, true},
};

struct OpRow {
  c10d::ReduceOp::RedOpType torch;
  const char *name;
  int op, of_bool;  // hcccRedOp_t; NONE: there is none
  bool of_pairs;
};
constexpr int NONE = -1;
constexpr OpRow OPS[] = {
    {c10d::ReduceOp::SUM, "SUM", hcccSum, hcccMax, true},
    {c10d::ReduceOp::AVG, "AVG", hcccAvg, NONE, true},
    {c10d::ReduceOp::PRODUCT, "PRODUCT", hcccProd, hcccMin, false},
    {c10d::ReduceOp::MIN, "MIN", hcccMin, hcccMin, false},
    {c10d::ReduceOp::MAX, "MAX", hcccMax, hcccMax, false},
    {c10d::ReduceOp::BAND, "BAND", NONE, hcccMin, false},
    {c10d::ReduceOp::BOR, "BOR", NONE, hcccMax, false},
    {c10d::ReduceOp::BXOR, "BXOR", NONE, NONE, false},
    {c10d::ReduceOp::PREMUL_SUM, "PREMUL_SUM", hcccSum, NONE, true},  // of multiplied values
};

// Finds what reduces a tensor. Throws TypeError.
inline Reduction reduction_of(at::ScalarType type, const c10d::ReduceOp &wanted) {
  for (const OpRow &row : OPS) {
    if (row.torch != wanted.op_) continue;
    for (const TypeRow &of : TYPES) {
      if (of.torch != type) continue;
      const int op = of.logical ? row.of_bool : of.pairs && !row.of_pairs ? NONE : row.op;
      const Elements elements = {of.elements.type, of.elements.each, c10::elementSize(type)};
      if (op != NONE) return {elements, static_cast<hcccRedOp_t>(op)};
    }
    C10_THROW_ERROR(TypeError, c10::str("hccc: no ReduceOp.", row.name, " of ", type));
  }
  C10_THROW_ERROR(TypeError, "hccc: no such reduction");
}

}  // namespace hccc_torch
