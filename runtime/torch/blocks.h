// blocks.h: tensors as one buffer, one behind another.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace hccc_torch {

// The tensors' own memory, where they are contiguous and follow one another; else a copy.
class Blocks {
 public:
  enum Use { READ, WRITE, BOTH };

  Blocks(std::vector<at::Tensor> tensors, Use use) : tensors_(std::move(tensors)), use_(use) {
    if (together()) return;
    int64_t elements = 0;
    for (const at::Tensor &t : tensors_) elements += t.numel();
    copy_ = at::empty({elements}, tensors_[0].options().memory_format(std::nullopt));
    data_ = copy_.data_ptr();
    if (use != WRITE) each([](at::Tensor part, const at::Tensor &of) { part.copy_(of); });
  }
  Blocks(const at::Tensor &tensor, Use use) : Blocks(std::vector<at::Tensor>{tensor}, use) {}

  void *data() const { return data_; }

  // Copies to the tensors what was received.
  void finish() const {
    if (copy_.defined() && use_ != READ)
      each([](const at::Tensor &part, at::Tensor of) { of.copy_(part); });
  }

 private:
  // Returns whether the tensors follow one another in one allocation, those of no elements aside.
  bool together() {
    const char *next = nullptr;
    const c10::StorageImpl *in = nullptr;
    for (const at::Tensor &t : tensors_) {
      if (!t.numel()) continue;
      if (!t.is_contiguous()) return false;
      char *at = static_cast<char *>(t.data_ptr());
      const c10::StorageImpl *of = t.storage().unsafeGetStorageImpl();
      if (next && (at != next || of != in)) return false;
      if (!next) data_ = at, in = of;
      next = at + t.nbytes();
    }
    return true;
  }
  template <class Copy>
  void each(const Copy &copy) const {
    int64_t at = 0;
    for (const at::Tensor &t : tensors_) {
      copy(copy_.narrow(0, at, t.numel()).view(t.sizes()), t);
      at += t.numel();
    }
  }

  std::vector<at::Tensor> tensors_;
  Use use_;
  at::Tensor copy_;
  void *data_ = nullptr;
};

}  // namespace hccc_torch
