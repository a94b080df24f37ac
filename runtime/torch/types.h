// types.h: the types and reductions of torch as those of hccc, in one table.
#pragma once

#include <ATen/ATen.h>
#include <hccc_runtime.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/version.h>

#include <array>
#include <cstring>
#include <string_view>

namespace hccc_torch {

// Elements that are only moved: by their width.
inline hcccDataType_t moved(const at::Tensor &tensor) {
  switch (tensor.element_size()) {
    case 1: return hcccUint8;
    case 2: return hcccFloat16;
    case 4: return hcccUint32;
    case 8: return hcccUint64;
    case 16: return hcccComplex128;
  }
  C10_THROW_ERROR(TypeError, c10::str("hccc: no elements of ", tensor.element_size(), " bytes"));
}

// scalar: of hcccPreMulSum, the bits of a value of the type.
struct Reduction {
  hcccDataType_t type;
  hcccRedOp_t op;
  std::array<unsigned char, 8> scalar{};
};

// kind: b of bool, i of integers, f of floats, c of complex numbers.
struct TypeRow {
  at::ScalarType torch;
  hcccDataType_t type;
  char kind;
};
constexpr TypeRow TYPES[] = {
    {at::kChar, hcccInt8, 'i'},
    {at::kByte, hcccUint8, 'i'},
    {at::kShort, hcccInt16, 'i'},
    {at::kUInt16, hcccUint16, 'i'},
    {at::kInt, hcccInt32, 'i'},
    {at::kUInt32, hcccUint32, 'i'},
    {at::kLong, hcccInt64, 'i'},
    {at::kUInt64, hcccUint64, 'i'},
    {at::kHalf, hcccFloat16, 'f'},
    {at::kFloat, hcccFloat32, 'f'},
    {at::kDouble, hcccFloat64, 'f'},
    {at::kBFloat16, hcccBfloat16, 'f'},
    {at::kFloat8_e4m3fn, hcccFloat8e4m3, 'f'},
    {at::kFloat8_e5m2, hcccFloat8e5m2, 'f'},
    {at::kBool, hcccBool, 'b'},
    {at::kComplexFloat, hcccComplex64, 'c'},
    {at::kComplexDouble, hcccComplex128, 'c'},
};

// Finds torch's type of one of that table.
inline at::ScalarType torchs(hcccDataType_t type) {
  for (const TypeRow &row : TYPES)
    if (row.type == type) return row.torch;
  return at::ScalarType::Undefined;
}

// kinds: of the types that it reduces.
struct OpRow {
  c10d::ReduceOp::RedOpType torch;
  const char *name;
  hcccRedOp_t op;
  std::string_view kinds;
};
constexpr OpRow OPS[] = {
    {c10d::ReduceOp::SUM, "SUM", hcccSum, "bifc"},
    {c10d::ReduceOp::AVG, "AVG", hcccAvg, "ifc"},
    {c10d::ReduceOp::PRODUCT, "PRODUCT", hcccProd, "bifc"},
    {c10d::ReduceOp::MIN, "MIN", hcccMin, "bif"},
    {c10d::ReduceOp::MAX, "MAX", hcccMax, "bif"},
    {c10d::ReduceOp::BAND, "BAND", hcccBand, "bi"},
    {c10d::ReduceOp::BOR, "BOR", hcccBor, "bi"},
    {c10d::ReduceOp::BXOR, "BXOR", hcccBxor, "bi"},
    {c10d::ReduceOp::PREMUL_SUM, "PREMUL_SUM", hcccPreMulSum, "if"},
};

// What PREMUL_SUM multiplies by, under its name before PyTorch 2.13 and since.
#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
using Factor = c10d::NCCLPreMulSumSupplement;
#else
using Factor = c10d::PreMulSumSupplement;
#endif

// Returns the factor of PREMUL_SUM as a value of a type. Throws ValueError where it is none.
inline std::array<unsigned char, 8> scalar_of(at::ScalarType type, const c10d::ReduceOp &wanted) {
  const auto *by = static_cast<Factor *>(wanted.supplement_.get());
  if (!by) C10_THROW_ERROR(ValueError, "hccc: PREMUL_SUM without a factor");
  const at::Tensor given = by->tensor_factor.defined() ? by->tensor_factor.reshape({}).cpu()
                                                       : at::scalar_tensor(by->double_factor, at::kDouble);
  const at::Tensor made = given.to(type);
  if (c10::isIntegralType(type, false) && !made.to(given.scalar_type()).equal(given))
    C10_THROW_ERROR(ValueError, c10::str("hccc: PREMUL_SUM: ", given.item<double>(), " is no ", type));
  std::array<unsigned char, 8> bits{};
  memcpy(bits.data(), made.const_data_ptr(), made.nbytes());
  return bits;
}

// Finds what reduces a tensor. Throws TypeError, and ValueError for a factor that the type has not.
inline Reduction reduction_of(at::ScalarType type, const c10d::ReduceOp &wanted) {
  for (const OpRow &row : OPS) {
    if (row.torch != wanted.op_) continue;
    for (const TypeRow &of : TYPES)
      if (of.torch == type && row.kinds.find(of.kind) != row.kinds.npos) {
        Reduction found = {of.type, row.op};
        if (row.op == hcccPreMulSum) found.scalar = scalar_of(type, wanted);
        return found;
      }
    C10_THROW_ERROR(TypeError, c10::str("hccc: no ReduceOp.", row.name, " of ", type));
  }
  C10_THROW_ERROR(TypeError, "hccc: no such reduction");
}

}  // namespace hccc_torch
