// liveness.cpp: beats, answers, and processes that are stopped.
#include "liveness.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>

#include "error.h"

namespace hccc {
namespace {

constexpr int NUMBER_BITS = 40;  // of what is shown of a call
constexpr uint64_t RUNS = uint64_t{1} << NUMBER_BITS, NUMBER = RUNS - 1;

// Returns whether a process of this host is stopped, by a signal or by a debugger.
bool stopped(int process) {
  char line[512];
  FILE *file = fopen(text_of("/proc/%d/stat", process).c_str(), "re");
  const size_t n = file ? fread(line, 1, sizeof line - 1, file) : 0;
  if (file) fclose(file);
  line[n] = '\0';
  const char *name_end = strrchr(line, ')');  // its name may have any characters
  return name_end && strlen(name_end) > 2 && strchr("Tt", name_end[2]);
}

}  // namespace

uint64_t shown(const Called &called, bool runs) {
  return called.signature << (NUMBER_BITS + 1) | (runs ? RUNS : 0) | (called.number & NUMBER);
}

std::string names_of(const std::vector<int> &ranks) {
  constexpr size_t MOST = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const size_t shown = std::min(ranks.size(), MOST);
  for (size_t k = 0; k < shown; ++k)
    text += (!k ? "" : k + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[k]);
  if (shown < ranks.size()) text += text_of(" and %zu more", ranks.size() - shown);
  return text;
}

Liveness::Liveness(hccc_bootstrap *bootstrap, const Host &host, int rank)
    : bootstrap_(bootstrap), host_(host), rank_(rank), signs_(static_cast<size_t>(host.n_ranks())) {}

void Liveness::beat() {
  host_.control(rank_).beat.fetch_add(1, std::memory_order_relaxed);
  const auto now = Clock::now();
  std::lock_guard<std::mutex> lock(mutex_);
  for (int r = 0; r < host_.n_ranks(); ++r) {
    Sign &sign = signs_[static_cast<size_t>(r)];
    const uint32_t beat = host_.near(r) ? host_.control(r).beat.load(std::memory_order_relaxed) : 0;
    if (beat != sign.beat) sign.beat = beat, sign.changed = now;
  }
}

void Liveness::ask() {
  const auto n = static_cast<size_t>(host_.n_ranks());
  std::vector<double> silent(n);
  std::vector<unsigned long long> calls(n);
  if (!hccc_bootstrap_signs(bootstrap_, silent.data(), calls.data())) return;
  std::lock_guard<std::mutex> lock(mutex_);
  for (size_t r = 0; r < n; ++r) signs_[r].silent_s = silent[r], signs_[r].call = calls[r];
}

void Liveness::forget(int rank) {
  std::lock_guard<std::mutex> lock(mutex_);
  signs_[static_cast<size_t>(rank)].left = true;
}

bool Liveness::left(int rank) const {
  if (signs_[static_cast<size_t>(rank)].left) return true;
  return host_.near(rank) && host_.control(rank).standing.load(std::memory_order_acquire) == Standing::LEFT;
}

uint64_t Liveness::far_call(int rank) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return signs_[static_cast<size_t>(rank)].call & NUMBER;
}

uint64_t Liveness::far_running(int rank) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t call = signs_[static_cast<size_t>(rank)].call;
  return call & RUNS ? call & NUMBER : 0;
}

bool Liveness::far_differs(int rank, const Called &own) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t call = signs_[static_cast<size_t>(rank)].call;
  return call && (call & NUMBER) == (own.number & NUMBER) && (call | RUNS) != shown(own, true);
}

// Keeps ranks that are silent for half as long as the longest: the others may be slow.
std::vector<int> Liveness::silent_near(double seconds, double *longest) const {
  std::vector<int> found;
  std::vector<double> silent(signs_.size());
  const auto now = Clock::now();
  for (size_t r = 0; r < signs_.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (!host_.near(rank) || rank == rank_ || left(rank)) continue;
    silent[r] = std::chrono::duration<double>(now - signs_[r].changed).count();
    *longest = std::max(*longest, silent[r]);
  }
  for (size_t r = 0; r < signs_.size(); ++r)
    if (silent[r] >= seconds && silent[r] >= *longest / 2) found.push_back(static_cast<int>(r));
  return found;
}

// Where rank 0 is silent nothing is known of others.
std::vector<int> Liveness::silent_far(double seconds, double *longest) const {
  std::vector<int> found;
  for (int r = 0; r < host_.n_ranks(); ++r) {
    const double silent = host_.near(r) || left(r) ? 0 : signs_[static_cast<size_t>(r)].silent_s;
    *longest = std::max(*longest, silent);
    if (silent < seconds) continue;
    found.push_back(r);
    if (r == 0) break;
  }
  return found;
}

std::string Liveness::describe_silent(double seconds) const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int> halted;
  for (int r = 0; r < host_.n_ranks(); ++r)
    if (host_.near(r) && host_.process(r) != getpid() && !left(r) && stopped(host_.process(r))) halted.push_back(r);
  if (!halted.empty())
    return names_of(halted) + (halted.size() == 1 ? " stands" : " stand") +
           text_of(" still: process %d is stopped", host_.process(halted[0]));
  double longest = 0;
  std::vector<int> silent = silent_near(seconds, &longest);
  if (!silent.empty())
    return names_of(silent) + (silent.size() == 1 ? " stands" : " stand") +
           text_of(" still: no sign of life of process %d for %.1f s", host_.process(silent[0]), longest);
  silent = silent_far(seconds, &longest);
  if (silent.empty()) return "";
  const bool one = silent.size() == 1;
  return names_of(silent) +
         text_of(" of another host %s not answered for %.1f s: %s, or %s cut off", one ? "has" : "have",
                 longest, one ? "it stands still" : "they stand still", one ? "its host is" : "their hosts are");
}

}  // namespace hccc
