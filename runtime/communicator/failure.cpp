// failure.cpp: the first failure, and descriptions of faults and calls.
#include "failure.h"

#include <inttypes.h>
#include <string.h>

#include <utility>

#include "libraries.h"

namespace hccc {
namespace {

constexpr std::chrono::milliseconds SUSPICION(500);

}  // namespace

bool Failure::set(hcccResult_t code, const std::string &text) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (code_.load(std::memory_order_relaxed) != hcccSuccess) return false;
    text_ = text;
    code_.store(code, std::memory_order_release);
  }
  end_launches();
  return true;
}

void Failure::end_launches() {
  unsigned none = 0;
  __atomic_compare_exchange_n(&fault_->claimed, &none, static_cast<unsigned>(HCCC_ABORT_REQUEST), false,
                              __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

bool Failure::refuse() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (refused() || code_.load(std::memory_order_relaxed) != hcccSuccess) return false;
  refused_.store(true, std::memory_order_seq_cst);
  return true;
}

// A failure that came meanwhile stays, and so does its fault.
void Failure::resume(const std::string &text) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (code_.load(std::memory_order_relaxed) != hcccSuccess) return;
  refusal_ = last_refusal_ = text;
  shown_ = false;
  has_refusal_.store(true, std::memory_order_release);
  hccc_reset_fault(fault_);
  refusals_.fetch_add(1, std::memory_order_release);
  refused_.store(false, std::memory_order_seq_cst);
}

std::string Failure::show_refusal() {
  if (!has_refusal() && !has_later_.load(std::memory_order_acquire)) return "";
  std::lock_guard<std::mutex> lock(mutex_);
  if (has_later_.exchange(false)) return std::exchange(later_, "");
  shown_ = true;
  return refusal_;
}

std::string Failure::last_refusal() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return last_refusal_;
}

void Failure::tell_later(const std::string &text) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (has_later_.load(std::memory_order_relaxed)) return;
  later_ = text;
  has_later_.store(true, std::memory_order_release);
}

std::string Failure::end_refusal() {
  std::lock_guard<std::mutex> lock(mutex_);
  has_refusal_.store(false, std::memory_order_release);
  const std::string text = std::exchange(refusal_, "");
  return shown_ ? "" : text;
}

void Failure::suspect(hcccResult_t code, const std::string &text) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (suspected_.load(std::memory_order_relaxed)) return;
  suspected_code_ = code, suspected_text_ = text, suspected_at_ = std::chrono::steady_clock::now();
  suspected_.store(true, std::memory_order_release);
}

void Failure::confirm() {
  if (!suspected_.load(std::memory_order_acquire)) return;
  if (std::chrono::steady_clock::now() - suspected_at_ < SUSPICION) return;
  set(suspected_code_, suspected_text_);
}

std::string Failure::text() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return text_;
}

hccc_fault Failure::place() const {
  return __atomic_load_n(&fault_->claimed, __ATOMIC_ACQUIRE) == 1 ? *fault_ : hccc_fault{};
}

namespace {

std::string waited_for(const hccc_fault &fault) {
  switch (fault.kind) {
    case HCCC_WAIT_FLAG: return text_of("flag %d of an earlier primitive", fault.flag);
    case HCCC_WAIT_MESSAGE: return text_of("a message (flag %d)", fault.flag);
    case HCCC_WAIT_CREDIT: return text_of("a free slot in a queue (flag %d)", fault.flag);
    case HCCC_WAIT_READY: return text_of("rank %d to start the call", fault.flag);
    case HCCC_WAIT_GO: return "its rank's first thread block to let it start";
    case HCCC_WAIT_FINISHED: return text_of("block %d of its rank to finish", fault.flag);
    case HCCC_WAIT_DONE: return text_of("rank %d to finish the call", fault.flag);
    case HCCC_WAIT_PACKET: return text_of("packets of rank %d", fault.flag);
    case HCCC_WAIT_PROXY: return text_of("its proxy to carry what is for rank %d", fault.flag);
    default: return "nothing";
  }
}

}  // namespace

std::string description(const hccc_fault &fault) {
  std::string place = text_of("rank %d, thread block %d, channel %d", fault.rank, fault.thread_block,
                              fault.channel);
  if (fault.primitive >= 0)
    place += text_of(", primitive %d, %s %u", fault.primitive,
                     fault.kind == HCCC_WAIT_PACKET ? "packet slot" : "micro-batch",
                     fault.micro_batch);
  switch (fault.kind) {
    case HCCC_NOT_IN_WINDOW: return place + " has a buffer that peers touch and cannot reach";
    case HCCC_OTHER_CALL: return place + text_of(" meets rank %d, which makes another call", fault.flag);
    case HCCC_UNMAPPED: return place + text_of(" shares no memory with rank %d", fault.flag);
    case HCCC_NO_PROXY: return place + text_of(" reaches rank %d over a network only", fault.flag);
    default: break;
  }
  return place + " waited for " + waited_for(fault) +
         text_of(": want %u, have %u", fault.want, fault.have);
}

std::string description(const Called &called) {
  if (!called.number) return "nothing yet";
  if (called.type < 0) return text_of("%s, call %" PRIu64, called.collective, called.number);
  const char *type = name_of_type(called.type), *op = name_of_op(called.op);
  const std::string count = called.count < 0 ? "" : text_of("%" PRId64 " ", called.count);
  std::string text = text_of("%s of %s%s", called.collective, count.c_str(), type ? type : "?");
  if (!called.library[0]) {
    const std::string peer = called.root == HCCC_ANY_SOURCE ? "any rank" : text_of("rank %d", called.root);
    const std::string tag = called.op == HCCC_ANY_TAG ? " with any tag" : called.op ? text_of(" with tag %d", called.op) : "";
    return text + (strcmp(called.collective, SEND) ? " from " : " to ") + peer + tag + text_of(", call %" PRIu64, called.number);
  }
  if (called.op >= 0) text += text_of(" (%s)", op ? op : "?");
  if (called.root >= 0) text += text_of(" with root %d", called.root);
  if (called.in_place) text += " in place";
  return text + text_of(" by %s, call %" PRIu64, called.library, called.number);
}

}  // namespace hccc
