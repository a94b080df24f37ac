// backend.h: a c10d::Backend over communicators of hccc: one for tensors in host memory, and one for each
// device that tensors are on.
#pragma once

#include <ATen/ThreadLocalState.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm.h"
#include "device.h"
#include "work.h"

#include <map>

namespace hccc_torch {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

// Makes an uninitialized tensor of bytes in memory that the other ranks reach.
at::Tensor registered_bytes(int64_t bytes, at::Device device);
// Has tensors of the CPU of at least so many bytes made in such memory, from now on; 0: none.
void use_allocator(size_t least);

class HcccBackend : public c10d::Backend {
 public:
  using Answer = c10::intrusive_ptr<c10d::Work>;

  struct Named : Options {  // the options that torch copies for groups made of this one
    explicit Named(Milliseconds timeout) : Options("hccc", timeout) {}
  };

  // store: for monitored barriers. comm: null for one rank; all ranks make the backend together.
  HcccBackend(c10::intrusive_ptr<c10d::Store> store, hcccComm_t comm, int rank, int size,
              Milliseconds timeout, std::shared_ptr<Finder> finder);
  ~HcccBackend() override;

  const std::string getBackendName() const override { return "hccc"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  void setTimeout(Milliseconds timeout) override { options_->timeout = timeout; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return made_; }
  c10d::ErrorType getError() override;
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store> &store,
                                    const std::vector<int> &ranks,
                                    const c10::intrusive_ptr<Options> &options) override;
  void abort() override;
  void shutdown() override;
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  at::Tensor allocateTensor(long elements, at::TensorOptions options) override;

  Answer allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override;
  Answer allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options) override;
  Answer allreduce_coalesced(Tensors &tensors,
                             const c10d::AllreduceCoalescedOptions &options) override;
  Answer broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override;
  Answer reduce(Tensors &tensors, const c10d::ReduceOptions &options) override;
  Answer allgather(TensorLists &outputs, Tensors &inputs,
                   const c10d::AllgatherOptions &options) override;
  Answer _allgather_base(at::Tensor &output, at::Tensor &input,
                         const c10d::AllgatherOptions &options) override;
  Answer allgather_coalesced(TensorLists &outputs, Tensors &inputs,
                             const c10d::AllgatherOptions &options) override;
  Answer allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                         const c10d::AllgatherOptions &options) override;
  Answer gather(TensorLists &outputs, Tensors &inputs,
                const c10d::GatherOptions &options) override;
  Answer scatter(Tensors &outputs, TensorLists &inputs,
                 const c10d::ScatterOptions &options) override;
  Answer reduce_scatter(Tensors &outputs, TensorLists &inputs,
                        const c10d::ReduceScatterOptions &options) override;
  Answer _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                              const c10d::ReduceScatterOptions &options) override;
  Answer reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                         const c10d::ReduceScatterOptions &options) override;
  Answer alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_splits,
                       std::vector<int64_t> &input_splits,
                       const c10d::AllToAllOptions &options) override;
  Answer alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) override;
  Answer send(Tensors &tensors, int peer, int tag) override;
  Answer recv(Tensors &tensors, int peer, int tag) override;
  Answer recvAnysource(Tensors &tensors, int tag) override { return recv(tensors, ANY_PEER, tag); }
  Answer barrier(const c10d::BarrierOptions &options) override;
  void monitoredBarrier(const c10d::BarrierOptions &options, bool wait_all_ranks) override;

 private:
  using Body = std::function<void(Comm &)>;
  // How a call is named: its kind, and its title in profiles.
  struct Kind {
    c10d::OpType type;
    const char *title;
  };

  // Tells profilers a call's parameters, as PyTorch's own backends do.
  void record(const Kind &kind, const Tensors &inputs, const Tensors &results, bool asynchronous) const;
  // Makes a call: now, or in the stream where it is asynchronous.
  Answer make(Kind kind, bool asynchronous, Milliseconds timeout, const Tensors &inputs,
              Tensors results, Body body);
  // Returns where tensors are. Throws ValueError where that is on several devices.
  at::Device place_of(const Tensors &inputs, const Tensors &results) const;
  // Returns what there is of a device; at its first tensor all ranks make that together.
  std::shared_ptr<DevicePart> part_of(const at::Device &device);
  std::vector<std::shared_ptr<DevicePart>> parts();
  Answer put(Kind kind, const at::Tensor &tensor, bool sends, int peer, int tag);
  void check_list(const char *what, const Tensors &list) const;

  const c10::intrusive_ptr<c10d::Store> store_;
  const c10::intrusive_ptr<Named> options_;
  // Sends and receives have a communicator of their own: no collective waits for one.
  const std::shared_ptr<Comm> comm_, messages_;
  const std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
  const std::shared_ptr<Queue> message_queue_;
  std::mutex parts_mutex_;
  std::map<at::DeviceIndex, std::shared_ptr<DevicePart>> parts_;  // of one type of devices
  c10::intrusive_ptr<c10d::Store> split_by_;  // of the last split: its store, and what was made
  c10::weak_intrusive_ptr<Backend> split_{c10::intrusive_ptr<Backend>()};
  std::atomic<uint64_t> made_{0};
  uint64_t barriers_ = 0;
};

}  // namespace hccc_torch
