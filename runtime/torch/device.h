// device.h: the collectives of a group on tensors of one device, in a stream of their own.
//
// Streams, events and allocations are those of PyTorch's device types (c10/core/impl), whatever the
// device: nothing here is of CUDA, and nothing is linked that is.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <array>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

#include "comm.h"

namespace hccc_torch {

// Makes an uninitialized tensor of bytes in memory of the host that the other ranks reach.
at::Tensor host_bytes(int64_t bytes);

// The platform of the device layer that a type of PyTorch's devices is of; null: none.
inline const char *&platform_of(c10::DeviceType type) {
  static std::array<const char *, c10::COMPILE_TIME_MAX_DEVICE_TYPES> all{};
  return all.at(static_cast<size_t>(type));
}

// Returns it. Throws ValueError for devices whose memory hccc does not know.
inline const char *known_platform(const at::Device &device) {
  const char *found = platform_of(device.type());
  if (!found) C10_THROW_ERROR(ValueError, c10::str("hccc: a tensor is on ", device, ", of which there are no groups"));
  return found;
}

// A collective that is in the stream of a device. It lets streams wait, rather than the host.
class DeviceWork : public c10d::Work {
 public:
  DeviceWork(int rank, c10d::OpType type, const char *title, const std::vector<at::Tensor> &inputs,
             std::vector<at::Tensor> results, std::shared_ptr<Comm> comm, c10::Stream stream)
      : Work(rank, type, title, inputs), results_(std::move(results)), comm_(std::move(comm)), stream_(stream),
        done_(stream.device_type()) {}

  bool isCompleted() override { return ended() || failed(); }
  bool isSuccess() const override { return ended() && !failed(); }
  std::exception_ptr exception() const override {
    failed();
    const std::lock_guard<std::mutex> lock(mutex_);
    return failed_;
  }
  std::vector<at::Tensor> result() override { return results_; }

  // Lets the current stream wait. With a time, or after an error, it is this thread that waits.
  bool wait(std::chrono::milliseconds timeout) override {
    const auto begun = std::chrono::steady_clock::now();
    while (timeout != kNoTimeout && !isCompleted()) {
      if (std::chrono::steady_clock::now() - begun > timeout)
        C10_THROW_ERROR(DistBackendError, c10::str("hccc: a work timed out after ", timeout.count(), " ms"));
      std::this_thread::sleep_for(PERIOD);
    }
    synchronize();
    return true;
  }
  void synchronize() override {
    if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
    done_.block(c10::impl::VirtualGuardImpl(stream_.device_type()).getStream(stream_.device()));
  }
  void blockCurrentStream() override { synchronize(); }

  // Returns what is completed with the tensors: now, as for any of PyTorch's devices. Who waits for it lets
  // its stream wait, and callbacks run in streams that do.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const std::exception_ptr error = exception();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (future_) return future_;
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                       std::vector<c10::Device>{stream_.device()});
    if (error) return future_->setError(error), future_;
    const c10::StreamGuard in(stream_);
    future_->markCompleted(c10::IValue(results_));
    return future_;
  }

  // Notes that all of it is in the stream.
  void put() {
    done_.record(stream_);
    finish(nullptr);  // for profilers
  }

 private:
  static constexpr std::chrono::microseconds PERIOD{50};

  // Returns whether the stream has passed it.
  bool ended() const { return done_.query(); }
  // Returns whether the communicator was lost before it was known to have succeeded.
  bool failed() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (succeeded_ || failed_) return failed_ != nullptr;
    const bool past = ended();  // before the communicator is looked at
    try {
      comm_->check_async();
    } catch (...) {
      failed_ = std::current_exception();
    }
    succeeded_ = past && !failed_;
    return failed_ != nullptr;
  }

  const std::vector<at::Tensor> results_;
  const std::shared_ptr<Comm> comm_;
  const c10::Stream stream_;
  c10::Event done_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  mutable std::exception_ptr failed_;
  mutable bool succeeded_ = false;
};

// What a group has of one device. comm: in memory of the device.
class DevicePart {
 public:
  DevicePart(const at::Device &device, std::shared_ptr<Comm> comm)
      : device_(device), comm_(std::move(comm)), guard_(device.type()), stream_(guard_.getStreamFromGlobalPool(device)) {}

  const std::shared_ptr<Comm> &comm() const { return comm_; }
  c10::Stream current() const { return guard_.getStream(device_); }

  // Puts a call into the stream, behind what the current stream has: as the device does one, the host goes on.
  c10::intrusive_ptr<c10d::Work> put(int rank, c10d::OpType type, const char *title, Milliseconds limit,
                                     const std::vector<at::Tensor> &inputs, std::vector<at::Tensor> results,
                                     const std::function<void(Comm &)> &body) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (comm_->ended()) C10_THROW_ERROR(DistBackendError, "hccc: the process group has ended");
    reached()->block(stream_);
    for (const auto *tensors : {&inputs, &const_cast<const std::vector<at::Tensor> &>(results)})
      for (const at::Tensor &t : *tensors) guard_.recordDataPtrOnStream(t.storage().data_ptr(), stream_);
    auto work = c10::make_intrusive<DeviceWork>(rank, type, title, inputs, std::move(results), comm_, stream_);
    run(limit, body);
    work->put();
    return work;
  }

  // Returns what the current stream will have reached.
  std::shared_ptr<c10::Event> reached() const {
    const auto made = std::make_shared<c10::Event>(device_.type());
    made->record(current());
    return made;
  }

  // Makes a call of a job, which the host carries out: returns when it is done. after: what its tensors wait for.
  void make(Milliseconds limit, const c10::Event &after, const std::function<void(Comm &)> &body) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (comm_->ended()) C10_THROW_ERROR(DistBackendError, "hccc: the process group has ended");
    after.block(stream_);
    run(limit, body);
    guard_.synchronizeStream(stream_);
  }

  // Waits until all calls have ended. Throws DistBackendError where one failed.
  void finish() {
    guard_.synchronizeStream(stream_);
    comm_->check_async();
  }

 private:
  void run(Milliseconds limit, const std::function<void(Comm &)> &body) {
    const c10::StreamGuard in(stream_);
    const at::AutoDispatchBelowAutograd plain;
    comm_->set_timeout(limit);
    comm_->set_stream(stream_.native_handle());
    body(*comm_);
  }

  const at::Device device_;
  const std::shared_ptr<Comm> comm_;
  const c10::impl::VirtualGuardImpl guard_;
  const c10::Stream stream_;
  std::mutex mutex_;
};

// A tensor of a device, and memory of the host that its message is carried from or to.
class Staged {
 public:
  // A stream of its own waits for what the current one has.
  explicit Staged(const at::Tensor &tensor)
      : tensor_(tensor), host_(host_bytes(static_cast<int64_t>(tensor.nbytes())).view(tensor.scalar_type()).view(tensor.sizes())),
        guard_(tensor.device().type()), stream_(guard_.getStreamFromGlobalPool(tensor.device())) {
    known_platform(tensor.device());
    c10::Event before(tensor.device().type());
    before.record(guard_.getStream(tensor.device()));
    before.block(stream_);
  }

  const at::Tensor &host() const { return host_; }
  // Copy between the two, and wait for it.
  void fetch() const { copy(host_, tensor_); }
  void put_back() const { copy(tensor_, host_); }

 private:
  void copy(at::Tensor to, const at::Tensor &from) const {
    const c10::StreamGuard in(stream_);
    const at::AutoDispatchBelowAutograd plain;
    to.copy_(from);
    guard_.synchronizeStream(stream_);
  }

  const at::Tensor tensor_, host_;
  const c10::impl::VirtualGuardImpl guard_;
  const c10::Stream stream_;
};

}  // namespace hccc_torch
