// accesses.h: instructions that access memory, and what becomes of them until a wait retires them.
#pragma once

#include "machine.h"

// Calls f(address, bytes, which) for each part of an access that lies in one line of memory.
template <class F>
inline bool for_parts(uint64_t at, int size, F f) {
  for (int done = 0; done < size;) {
    const int part = std::min<int>(size - done, int(LINE - (at + done) % LINE));
    if (!f(at + done, part, done)) return false;
    done += part;
  }
  return true;
}

inline uint64_t Machine::address(Wave& w, const Instruction& i, int lane) {
  const auto scalar = [&](int k) {
    return i.s[k] == CONSTANT ? uint32_t(i.k[k]) : w.words[i.s[k]];
  };
  const uint32_t* own = i.s[0] < 0 ? nullptr : w.words + i.s[0] + lane;
  const uint64_t low = own ? *own : 0;
  switch (i.space) {
    case SCRATCH: return uint32_t(low + (i.s[2] == -1 ? 0 : scalar(2)) + i.offset);
    case BUFFER: return uint32_t(low + (i.s[2] == -1 ? 0 : scalar(2) / LANES) + i.offset);
    case DS: return uint32_t(low + i.offset);
  }
  const uint64_t base = i.s[2] < 0 ? uint64_t(own[LANES]) << 32 : pair(w.words + i.s[2]);
  return base + low + i.offset;
}

// Returns where memory is that only the wave or its block accesses, or nothing changes.
inline uint8_t* Machine::plain(Wave& w, const Instruction& i, int lane, uint64_t at, int size) {
  const bool own = i.space == SCRATCH || i.space == BUFFER;
  if (own || (i.space == FLAT && at >> 32 == PRIVATE)) {
    at = uint32_t(at);
    if (at + size > uint64_t(settings.private_bytes)) return fail(w, i, WILD, at), nullptr;
    return w.scratch.data() + uint64_t(lane) * settings.private_bytes + at;
  }
  Block& b = *w.block;
  if (i.space == DS || (i.space == FLAT && at >> 32 == SHARED)) {
    at = uint32_t(at);
    if (i.space == FLAT) run_shared(w);
    if (at + size > shared_bytes) return fail(w, i, WILD, at), nullptr;
    return reinterpret_cast<uint8_t*>(b.shared.data()) + at;
  }
  const uint64_t kernarg = reinterpret_cast<uint64_t>(b.kernarg.data());
  if (at - kernarg < b.kernarg.size()) return reinterpret_cast<uint8_t*>(at);
  return nullptr;
}

inline bool Machine::read(Wave& w, const Instruction& i, uint64_t at, int size, bool strong,
                          uint8_t* out) {
  return for_parts(at, size, [&](uint64_t part, int bytes, int done) {
    Region* r = memory.find(part, bytes);
    if (!r) return fail(w, i, WILD, part);
    if (strong)
      memory.load_strong(w.who, r, part, bytes, out + done);
    else
      memory.load_weak(w.who, r, part, bytes, int(&i - code), out + done);
    return true;
  });
}

// Begins an access; one that the counters have no room for waits for the oldest.
inline Flight& Machine::fly(Wave& w, const Instruction& i, Flight::Kind kind, uint8_t counters) {
  if (counters & LOADS && w.loads.size() == MOST_LOADS) retire_first(w, w.loads, LOADS, 1);
  if (counters & OTHERS && w.others.size() == MOST_OTHERS) retire_first(w, w.others, OTHERS, 1);
  if (free_.empty()) {
    flights_.emplace_back(new Flight);
    free_.push_back(flights_.back().get());
  }
  Flight& f = *free_.back();
  free_.pop_back();
  f.kind = kind;
  f.i = &i;
  f.lanes = pair(w.words + EXEC);
  f.owed = counters;
  f.sampled = true;
  f.weak = false;
  if (counters & LOADS) w.loads.push_back(&f);
  if (counters & OTHERS) w.others.push_back(&f);
  return f;
}

// Says of the registers that an instruction writes that it has yet to, or that it has.
inline void Machine::mark(Wave& w, const Instruction& i, uint8_t counters, int by) {
  for (int k = i.first[0]; k < i.first[0] + i.counts[0]; ++k) {
    if (counters & LOADS) w.pending[0][k] += by;
    if (counters & OTHERS) w.pending[1][k] += by;
  }
}

inline bool Machine::load(Wave& w, const Instruction& i) {
  const uint8_t counters = i.space == FLAT ? LOADS | OTHERS : LOADS;
  Flight& f = fly(w, i, Flight::LOAD, counters);
  mark(w, i, counters, 1);
  ++w.loading;
  const bool later = i.strong && memory.rng.chance(512);
  f.weak = !i.strong;
  f.sampled = !later;
  bool same = false;
  for_lanes(f.lanes, [&](int l) {
    f.at[l] = address(w, i, l);
    if (i.strong && !later)
      for (const Flight* other : w.loads) same |= !other->sampled && other->at[l] == f.at[l];
  });
  if (same) sample_before(w);
  if (!later) sample(w, f);
  if (i.strong) w.unpolled = 0;
  return !stopped && (!i.strong || memory.rng.chance(512));
}

// Reads what a load gets.
inline void Machine::sample(Wave& w, Flight& f) {
  const Instruction& i = *f.i;
  f.sampled = true;
  for_lanes(f.lanes, [&](int l) {
    if (stopped) return;
    if (const uint8_t* here = plain(w, i, l, f.at[l], i.size))
      memcpy(f.bytes[l], here, i.size);
    else if (!stopped)
      read(w, i, f.at[l], i.size, i.strong, f.bytes[l]);
  });
}

// Lets loads get what they get now: an access of the same wave after them may be of the same place.
inline void Machine::sample_before(Wave& w) {
  for (Flight* f : w.loads)
    if (!f->sampled) sample(w, *f);
}

inline bool Machine::store(Wave& w, const Instruction& i) {
  Flight& f = fly(w, i, Flight::STORE, i.space == FLAT ? LOADS | OTHERS : LOADS);
  sample_before(w);
  const bool high = i.extend == HIGH;
  for_lanes(f.lanes, [&](int l) {
    if (stopped) return;
    uint32_t data[4];
    for (int k = 0; k < (i.size + 3) / 4; ++k) data[k] = w.words[i.s[1] + LANES * k + l];
    if (high) data[0] >>= 16;
    const uint8_t* bytes = reinterpret_cast<const uint8_t*>(data);
    const uint64_t at = address(w, i, l);
    if (uint8_t* here = plain(w, i, l, at, i.size)) {
      memcpy(here, bytes, i.size);
      return;
    }
    if (stopped) return;
    for_parts(at, i.size, [&](uint64_t part, int size, int done) {
      Region* r = memory.find(part, size);
      if (!r) return fail(w, i, WILD, part);
      memory.store_weak(w.who, r, part, size, int(&i - code), bytes + done, f.stores, i.strong);
      return true;
    });
  });
  return !stopped && (!i.strong || memory.rng.chance(512));
}

template <class T, class F>
bool Machine::atomic(Wave& w, const Instruction& i, F change) {
  const uint8_t counters = i.space == DS ? OTHERS : i.space == FLAT ? LOADS | OTHERS : LOADS;
  Flight& f = fly(w, i, i.returns ? Flight::LOAD : Flight::STORE, counters);
  if (i.returns) mark(w, i, counters, 1), ++w.loading;
  sample_before(w);
  if (i.space == DS) run_shared(w);
  for_lanes(f.lanes, [&](int l) {
    if (stopped) return;
    const uint64_t at = f.at[l] = address(w, i, l);
    T data[2] = {}, old;
    const int words = i.counts[3];
    uint32_t given[4] = {};
    for (int k = 0; k < words; ++k) given[k] = w.words[i.s[1] + LANES * k + l];
    memcpy(data, given, std::min<size_t>(sizeof data, 4 * words));
    if (at % sizeof(T)) return void(fail(w, i, MISALIGNED, at));
    if (uint8_t* here = plain(w, i, l, at, sizeof(T))) {
      memcpy(&old, here, sizeof old);
      const T now = change(old, data[0], data[1]);
      memcpy(here, &now, sizeof now);
    } else if (!stopped) {
      Region* r = memory.find(at, sizeof(T));
      if (!r) return void(fail(w, i, WILD, at));
      memory.load_strong(w.who, r, at, sizeof old, reinterpret_cast<uint8_t*>(&old));
      const T now = change(old, data[0], data[1]);
      memory.store_strong(w.who, r, at, sizeof now, int(&i - code),
                          reinterpret_cast<const uint8_t*>(&now));
    } else {
      return;
    }
    memcpy(f.bytes[l], &old, sizeof old);
  });
  w.unpolled = 0;
  return !stopped && memory.rng.chance(512);
}

// Accesses the block's shared memory: in order, but perhaps only when it is waited for. each: bytes
// of one of two accesses, or 0.
inline bool Machine::ds(Wave& w, const Instruction& i, bool loads) {
  Flight& f = fly(w, i, loads ? Flight::LOAD : Flight::STORE, OTHERS);
  if (loads) mark(w, i, OTHERS, 1), ++w.loading;
  f.sampled = false;
  const int second = i.s[3] >= 0 ? i.s[3] : i.s[1] + LANES * ((i.size + 3) / 4);
  for_lanes(f.lanes, [&](int l) {
    f.at[l] = address(w, i, l);
    if (loads) return;
    uint32_t data[4];
    const int words = (i.size + 3) / 4;
    for (int k = 0; k < words; ++k) data[k] = w.words[i.s[1] + LANES * k + l];
    if (i.extend == HIGH) data[0] >>= 16;
    memcpy(f.bytes[l], data, i.size);
    if (!i.returns) return;  // one access
    for (int k = 0; k < words; ++k) data[k] = w.words[second + LANES * k + l];
    memcpy(f.bytes[l] + i.size, data, i.size);
  });
  if (memory.rng.chance(512)) run_shared(w);
  return !stopped;
}

inline void Machine::run_shared(Wave& w) {
  for (Flight* f : w.others)
    if (f->i->space == DS && !f->sampled) access_shared(w, *f);
}

inline void Machine::access_shared(Wave& w, Flight& f) {
  const Instruction& i = *f.i;
  f.sampled = true;
  for_lanes(f.lanes, [&](int l) {
    for (int k = 0; k <= i.returns; ++k) {
      const uint64_t more = i.returns ? i.k[k] : 0;
      uint8_t* here = stopped ? nullptr : plain(w, i, l, f.at[l] + more, i.size);
      if (!here) return;
      if (f.kind == Flight::LOAD)
        memcpy(f.bytes[l] + k * i.size, here, i.size);
      else
        memcpy(here, f.bytes[l] + k * i.size, i.size);
    }
  });
}

// Loads to scalar registers, or reads the clock.
inline bool Machine::load_scalar(Wave& w, const Instruction& i, int words) {
  Flight& f = fly(w, i, Flight::SCALAR, OTHERS);
  mark(w, i, OTHERS, 1);
  ++w.loading;
  f.lanes = words;
  const uint64_t more = i.s[1] == -1 ? 0 : i.s[1] == CONSTANT ? i.k[1] : w.words[i.s[1]];
  const uint64_t at = (pair(w.words + i.s[0]) + more + i.offset) & ~uint64_t(3);
  if (const uint8_t* here = plain(w, i, 0, at, 4 * words)) {
    memcpy(f.bytes, here, 4 * words);
    return true;
  }
  return !stopped && read(w, i, at, 4 * words, false, f.bytes[0]);
}

inline bool Machine::clock(Wave& w, const Instruction& i) {
  Flight& f = fly(w, i, Flight::SCALAR, OTHERS);
  mark(w, i, OTHERS, 1);
  ++w.loading;
  f.lanes = 2;
  const uint64_t now = time();
  memcpy(f.bytes, &now, sizeof now);
  return true;
}

inline bool Machine::write_back(Wave& w, const Instruction& i) {
  fly(w, i, Flight::WRITE_BACK, LOADS).since = entered_;
  return true;
}

inline bool Machine::invalidate(Wave& w, const Instruction& i) {
  if (!i.strong) return true;  // the cache of a unit, which a block shares
  w.who.acquired = settings.one_cache ? w.emptied : memory.now;
  return true;
}
inline bool Machine::invalidate_device(Wave& w) {
  w.emptied = memory.now;
  return true;
}

// ---- what waits retire ----

// Returns whether a store that others could have noticed, or a write-back has been waited for.
inline bool Machine::wait_for(Wave& w, size_t loads, size_t others) {
  const auto matters = [](const Flight* f) {
    const bool own = f->i->space == SCRATCH || f->i->space == BUFFER;
    return f->kind == Flight::WRITE_BACK || (f->kind == Flight::STORE && !own);
  };
  bool waited = false;
  if (w.loads.size() > loads) {
    const size_t n = w.loads.size() - loads;
    waited = std::any_of(w.loads.begin(), w.loads.begin() + n, matters);
    retire_first(w, w.loads, LOADS, n);
  }
  if (w.others.size() <= others) return waited;
  bool in_order = true;  // those of shared memory alone are
  for (const Flight* f : w.others) in_order &= f->i->space == DS && f->kind != Flight::SCALAR;
  if (others && !in_order) return waited;
  const size_t n = w.others.size() - others;
  waited |= std::any_of(w.others.begin(), w.others.begin() + n, matters);
  retire_first(w, w.others, OTHERS, n);
  return waited;
}

inline void Machine::retire_first(Wave& w, std::vector<Flight*>& of, Counter counter, size_t n) {
  for (size_t k = 0; k < n; ++k) retire(w, *of[k], counter);
  of.erase(of.begin(), of.begin() + n);
}

inline void Machine::retire(Wave& w, Flight& f, Counter counter) {
  f.owed &= ~counter;
  const bool writes = f.kind == Flight::LOAD || f.kind == Flight::SCALAR;
  if (writes) mark(w, *f.i, counter, -1);
  if (f.kind == Flight::STORE && counter == LOADS) enter(w, f.stores, f.i->strong);
  if (f.kind == Flight::STORE && f.i->space == DS && !f.sampled) access_shared(w, f);
  if (f.kind == Flight::WRITE_BACK) finish(w, f);
  if (f.owed) return;
  if (writes) land(w, f);
  free_.push_back(&f);
}

// Writes the registers of a load.
inline void Machine::land(Wave& w, Flight& f) {
  const Instruction& i = *f.i;
  --w.loading;
  if (stopped) return;
  if (f.kind == Flight::SCALAR) {
    memcpy(w.words + i.d[0], f.bytes, 4 * f.lanes);
    return;
  }
  if (!f.sampled && i.space == DS) access_shared(w, f);
  if (!f.sampled) sample(w, f);
  if (f.weak) check(w, f);
  const int words = i.counts[0];
  for_lanes(f.lanes, [&](int l) {
    uint32_t* const to = w.words + i.d[0] + l;
    uint32_t data[4];
    memcpy(data, f.bytes[l], sizeof data);
    if (i.size == 1)
      data[0] = i.extend == SIGNED || i.extend >= SIGNED_LOW ? int8_t(data[0]) : uint8_t(data[0]);
    if (i.size == 2)
      data[0] = i.extend == SIGNED ? int16_t(data[0]) : uint16_t(data[0]);
    if (i.extend == LOW || i.extend == SIGNED_LOW)
      data[0] = (*to & 0xffff0000) | (data[0] & 0xffff);
    if (i.extend == HIGH || i.extend == SIGNED_HIGH) data[0] = (*to & 0xffff) | data[0] << 16;
    for (int k = 0; k < words; ++k) to[LANES * k] = data[k];
  });
}

// Tells where another has written what a load has got, and nothing has kept that from being sooner.
inline void Machine::check(Wave& w, Flight& f) {
  const Instruction& i = *f.i;
  if (i.space != FLAT && i.space != GLOBAL) return;
  for_lanes(f.lanes, [&](int l) {
    for_parts(f.at[l], i.size, [&](uint64_t part, int size, int done) {
      if (Region* r = memory.find(part, size))
        memory.check_loaded(w.who, r, part, size, int(&i - code), f.bytes[l] + done);
      return true;
    });
  });
}

// Lets stores leave their wave: to memory, or to the cache of its block or GPU.
inline void Machine::enter(Wave& w, std::vector<Store*>& stores, bool strong) {
  if (strong) return memory.publish(stores);
  ++entered_;
  for (Store* s : stores) s->entered = entered_;
  Block& b = *w.block;
  if (settings.one_cache)
    memory.raise(stores, ON_GPU, b.grid->stores);
  else
    memory.raise(stores, HANDED, b.stores);
}

// Publishes what was in the cache when a write-back began, and what its wave had stored before.
inline void Machine::finish(Wave& w, const Flight& f) {
  Block& b = *w.block;
  std::vector<Store*>& cache = settings.one_cache ? b.grid->stores : b.stores;
  const auto kept = std::stable_partition(cache.begin(), cache.end(), [&](const Store* s) {
    const bool own = s->block == w.who.block && s->thread == w.who.thread;
    return s->entered > f.since && !own;
  });
  std::vector<Store*> out(kept, cache.end());
  cache.erase(kept, cache.end());
  if (f.i->wide)
    memory.publish(out);
  else
    memory.raise(out, ON_GPU, b.grid->stores);
}

// Lets some of what is in flight happen.
inline void Machine::stir(Wave& w) {
  for (Flight* f : w.loads) {
    if (f->kind == Flight::LOAD && !f->sampled && memory.rng.chance(256)) sample(w, *f);
    if (f->kind != Flight::STORE || !f->i->strong) continue;
    for (Store* s : f->stores)
      if (!s->published && memory.rng.chance(256)) memory.publish_early(s);
  }
  if (!w.others.empty() && memory.rng.chance(256)) run_shared(w);
  // Where nothing says which stores are flags, those that come last are let out first.
  if (settings.one_cache && memory.rng.chance(128)) memory.publish_last();
}
