// engine: the discrete events of one simulated call, compiled where there is a C++ compiler.
//
// `engine.py` and the modules beside it (`agenda`, `fair`, `proxy`, `waiting`) are the same for
// numba, function by function: both give the same times to the last bit, so nothing here may be
// reordered or contracted, and a change of one is a change of the other. `state.py` says what the
// tables hold; tests/sim/test_compiled.py compares their layouts, and both engines.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace {

using std::int32_t;
using std::int64_t;

struct Primitive {
    int64_t wait, post, take, give, use, hand, whole;
    double fixed, fixed_last, fixed_none, amount, amount_last, cap, core_weight, memory_weight;
    int32_t core, memory;
};

struct Block {
    int32_t start, stop, prim, batch, window, doing, waker, via, other, uses;
    double left, since, cap, rate;
    int64_t first;
};

struct Resource {
    double capacity, contention, demand;
    int64_t head, seen, binds;
    double room, load, since, carried, active;
};

struct Use {
    double weight;
    int32_t resource, block, next, back;
};

struct Entry {
    double time;
    int32_t block;
};

struct Queue {
    int32_t sent, sending, taken, taking, far;
};

struct Instance {
    double begin, ready, end;
    int32_t cause, via;
};

struct Transfer {
    int32_t pair, kind, target, prim;
    int64_t whole;
    double amount, amount_last;
};

struct Pair {
    int64_t first, handed, begun, over, arrived, use, use_end;
    double alpha, cap;
};

struct Item {
    int32_t transfer, batch;
    double handed, begin, end, arrival;
};

// `State` of state.py: pointers to its arrays, and how many rows those have that are counted.
struct State {
    const Primitive* primitive;
    const int32_t *wait, *post, *take, *give, *use;
    const double* weight;
    Block* block;
    Resource* resource;
    Use* flow;
    Queue* queue;
    int32_t *flag, *waiting;
    Instance* instance;
    Entry* heap;
    int32_t* place;
    int64_t* seen;
    double* fresh;
    int32_t *lists, *length;
    const int64_t* shape;
    const Transfer* transfer;
    Pair* pair;
    Item* item;
    const int32_t* route;
    const double* route_weight;
    int64_t* work;
    int64_t flags, queues, pairs, width;

    int64_t batches() const { return shape[0]; }
    int64_t window() const { return shape[1]; }
    int64_t slots() const { return shape[2]; }
    int64_t blocks() const { return shape[3]; }  // of the plan
    int32_t* list(int which) const { return lists + which * width; }
};

// How far a run is: blocks of the plan that are not through, moments so far, µs.
struct Progress {
    int64_t left, stamp;
    double now;
};

// The bytes of a micro-batch of a primitive or transfer.
template <class T>
double amount_of(const T& x, int64_t batch) {
    return batch < x.whole ? x.amount : batch == x.whole ? x.amount_last : 0.0;
}

enum Doing { IDLE, FIXED, MOVING };
enum Kind { PUT, MESSAGE, CREDIT, FLAG };
enum List { TODO, DIRTY, NEW, RESOURCES, BLOCKS, GROWING, STOPPED, DUE, HEAP };

constexpr double SAME_TIME = 1e-10;
constexpr double TIGHT = 1 + 1e-9;
constexpr double GROWS = -1.0;
constexpr double INFINITE = std::numeric_limits<double>::infinity();

void append(State& s, List which, int64_t value) {
    s.list(which)[s.length[which]++] = static_cast<int32_t>(value);
}

// ---- agenda: when each thread block's current action ends: a binary heap, one entry a block ----

void set_entry(State& s, int64_t i, double time, int32_t b) {
    s.heap[i] = {time, b};
    s.place[b] = static_cast<int32_t>(i);
}

// Block b goes to entry i, or as far below it as others end before `time`.
void sink(State& s, int64_t i, int32_t b, double time) {
    const int64_t size = s.length[HEAP];
    while (2 * i + 1 < size) {
        int64_t child = 2 * i + 1;
        if (child + 1 < size && s.heap[child + 1].time < s.heap[child].time) ++child;
        const Entry below = s.heap[child];
        if (below.time >= time) break;
        set_entry(s, i, below.time, below.block);
        i = child;
    }
    set_entry(s, i, time, b);
}

// Block b's action ends at `time`, whatever was known before.
void put(State& s, int64_t b, double time) {
    int64_t i = s.place[b];
    if (i < 0) i = s.length[HEAP]++;
    for (; i > 0; i = (i - 1) / 2) {
        const Entry above = s.heap[(i - 1) / 2];
        if (above.time <= time) break;
        set_entry(s, i, above.time, above.block);
    }
    sink(s, i, static_cast<int32_t>(b), time);
}

// The block whose action ends first; it leaves the agenda.
int32_t take(State& s) {
    const int32_t b = s.heap[0].block;
    const Entry last = s.heap[--s.length[HEAP]];
    s.place[b] = -1;
    if (last.block != b) sink(s, 0, last.block, last.time);
    return b;
}

// ---- waiting: lines of blocks that wait for a flag, a message or a free slot ----

// Block b is to be tried.
void push(State& s, int64_t b) { append(s, TODO, b); }

// Block b waits in a line.
bool stand(State& s, int64_t b, int64_t line) {
    s.block[b].other = s.waiting[line];
    s.waiting[line] = static_cast<int32_t>(b);
    return true;
}

// All blocks in a line may try again; `instance` let them, by transfer `via` (-1: memory).
void wake(State& s, int64_t line, int64_t instance, int64_t via) {
    int32_t b = s.waiting[line];
    s.waiting[line] = -1;
    for (; b >= 0; b = s.block[b].other) {
        s.block[b].waker = static_cast<int32_t>(instance);
        s.block[b].via = static_cast<int32_t>(via);
        push(s, b);
    }
}

// ---- fair: links and groups divided max-min fairly among the flows that use them ----

bool full(const State& s, int64_t r) {
    return s.resource[r].demand > s.resource[r].capacity * TIGHT;
}

// Block b has `amount` bytes to move at no more than `cap` bytes/µs; `join` says where.
void flow(State& s, int64_t b, double amount, double cap, double now) {
    Block& x = s.block[b];
    x.left = amount;
    x.since = now;
    x.cap = cap;
    x.rate = 0.0;
    append(s, NEW, b);
}

// Block b's flow uses resource r.
void join(State& s, int64_t b, int64_t r, double weight, double now) {
    Block& x = s.block[b];
    Resource& y = s.resource[r];
    const int64_t e = x.first + x.uses++;
    Use& u = s.flow[e];
    u.resource = static_cast<int32_t>(r);
    u.weight = weight;
    u.next = static_cast<int32_t>(y.head);
    u.back = -1;
    if (y.head >= 0)
        s.flow[y.head].back = static_cast<int32_t>(e);
    else
        y.since = now;
    y.head = e;
    y.demand += weight * x.cap;
}

// Block b's flow is over.
void leave(State& s, int64_t b, double now) {
    Block& x = s.block[b];
    for (int64_t e = x.first; e < x.first + x.uses; ++e) {
        const Use& u = s.flow[e];
        Resource& y = s.resource[u.resource];
        if (y.binds && full(s, u.resource)) append(s, DIRTY, u.resource);
        if (u.back >= 0)
            s.flow[u.back].next = u.next;
        else
            y.head = u.next;
        if (u.next >= 0) s.flow[u.next].back = u.back;
        y.demand -= u.weight * x.cap;
        if (y.head < 0) {
            y.demand = 0.0;
            y.active += now - y.since;
        }
    }
    x.uses = 0;
}

// What a change of rates reaches: so many entries of RESOURCES and of BLOCKS.
struct Component {
    int64_t resources, blocks, stamp;
};

void add_resource(State& s, Component& found, int32_t r) {
    s.resource[r].seen = found.stamp;
    s.list(RESOURCES)[found.resources++] = r;
}

// Block b belongs to the component, and the full resources it uses.
void reach(State& s, Component& found, int32_t b) {
    if (s.seen[b] == found.stamp) return;
    s.seen[b] = found.stamp;
    s.list(BLOCKS)[found.blocks++] = b;
    const Block& x = s.block[b];
    for (int64_t e = x.first; e < x.first + x.uses; ++e) {
        const int32_t r = s.flow[e].resource;
        if (s.resource[r].seen != found.stamp && full(s, r)) add_resource(s, found, r);
    }
}

// All that new flows and changed resources may reach; `load` of each resource, its flows' weight.
Component component(State& s, int64_t stamp) {
    Component found{0, 0, stamp};
    for (int64_t i = 0; i < s.length[DIRTY]; ++i) {
        const int32_t r = s.list(DIRTY)[i];
        if (s.resource[r].seen != stamp) add_resource(s, found, r);
    }
    for (int64_t i = 0; i < s.length[NEW]; ++i) reach(s, found, s.list(NEW)[i]);
    for (int64_t at = 0; at < found.resources; ++at) {
        Resource& y = s.resource[s.list(RESOURCES)[at]];
        y.load = 0.0;
        for (int64_t e = y.head; e >= 0; e = s.flow[e].next) {
            y.load += s.flow[e].weight;
            reach(s, found, s.flow[e].block);
        }
    }
    return found;
}

// The rate that growing flows reach next; `least`: no growing flow has a lower cap. Of `resources`
// those stay that still hold a growing flow, and those are marked that are full at that rate.
double next_level(State& s, int64_t& resources, double least) {
    double level = least;
    int64_t kept = 0;
    s.work[0] += resources;
    for (int64_t i = 0; i < resources; ++i) {
        const int32_t r = s.list(RESOURCES)[i];
        const Resource& y = s.resource[r];
        if (y.load > 0) {
            level = std::min(level, y.room / y.load);
            s.list(RESOURCES)[kept++] = r;
        }
    }
    resources = kept;
    for (int64_t i = 0; i < resources; ++i) {
        Resource& y = s.resource[s.list(RESOURCES)[i]];
        y.binds = y.room <= level * y.load * TIGHT;
    }
    return level;
}

// Flows stop that go no faster than `level`; how many. `growing`: how many stay in the list of
// those that grow, and `least`: their least cap.
int64_t stop_at_caps(State& s, int64_t& growing, double& least, double level) {
    int64_t kept = 0, stopped = 0;
    least = INFINITE;
    s.work[0] += growing;
    for (int64_t i = 0; i < growing; ++i) {
        const int32_t b = s.list(GROWING)[i];
        const Block& x = s.block[b];
        if (s.fresh[b] != GROWS) continue;  // a resource stopped it
        if (x.cap <= level * TIGHT) {
            s.fresh[b] = std::min(level, x.cap);
            s.list(STOPPED)[stopped++] = b;
        } else {
            least = std::min(least, x.cap);
            s.list(GROWING)[kept++] = b;
        }
    }
    growing = kept;
    return stopped;
}

// Whether a resource of the component that block b's flow uses is full.
bool stops(const State& s, int32_t b, int64_t stamp) {
    const Block& x = s.block[b];
    for (int64_t e = x.first; e < x.first + x.uses; ++e) {
        const Resource& y = s.resource[s.flow[e].resource];
        if (y.seen == stamp && y.binds) return true;
    }
    return false;
}

// Stops all growing flows if each uses a resource that is full at `level`: then nothing is left to
// share out, and it does not matter in which order they stop, as it does otherwise.
bool all_stop(State& s, int64_t growing, double level, int64_t stamp) {
    const int32_t* list = s.list(GROWING);
    for (int64_t i = 0; i < growing; ++i)
        if (s.fresh[list[i]] == GROWS && !stops(s, list[i], stamp)) return false;
    for (int64_t i = 0; i < growing; ++i)
        if (s.fresh[list[i]] == GROWS) s.fresh[list[i]] = std::min(level, s.block[list[i]].cap);
    return true;
}

// Flows stop whose resources are full at `level`; how many did, with the `stopped` before.
int64_t stop_at_resources(State& s, int64_t resources, int64_t stopped, double level) {
    for (int64_t i = 0; i < resources; ++i) {
        Resource& y = s.resource[s.list(RESOURCES)[i]];
        if (!y.binds) continue;
        y.load = 0.0;
        for (int64_t e = y.head; e >= 0; e = s.flow[e].next) {
            const int32_t b = s.flow[e].block;
            if (s.fresh[b] == GROWS) {
                s.fresh[b] = std::min(level, s.block[b].cap);
                s.list(STOPPED)[stopped++] = b;
            }
        }
    }
    return stopped;
}

// What block b's flow takes is no longer to be shared out.
void settle(State& s, int32_t b, int64_t stamp) {
    const Block& x = s.block[b];
    for (int64_t e = x.first; e < x.first + x.uses; ++e) {
        const Use& u = s.flow[e];
        Resource& y = s.resource[u.resource];
        if (y.seen != stamp || y.load <= 0) continue;
        y.room = std::max(0.0, y.room - u.weight * s.fresh[b]);
        y.load -= u.weight;
        if (y.load < 1e-9) y.load = 0.0;
    }
}

// What each resource of the component has to share out.
void open_resources(State& s, const Component& found) {
    for (int64_t i = 0; i < found.resources; ++i) {
        Resource& y = s.resource[s.list(RESOURCES)[i]];
        const double excess = y.demand / y.capacity - 1.0;  // more offered than it takes
        y.room = y.capacity / (1.0 + y.contention * std::max(0.0, excess));
        y.binds = 0;
    }
}

// Whether a resource of the component holds block b's flow back.
bool held(const State& s, const Block& x, int64_t stamp) {
    for (int64_t e = x.first; e < x.first + x.uses; ++e)
        if (s.resource[s.flow[e].resource].seen == stamp) return true;
    return false;
}

// Max-min fair rates of the component, into `fresh`.
void fill(State& s, const Component& found) {
    open_resources(s, found);
    int64_t left = 0, resources = found.resources;
    double least = INFINITE;
    for (int64_t i = 0; i < found.blocks; ++i) {
        const int32_t b = s.list(BLOCKS)[i];
        const Block& x = s.block[b];
        s.fresh[b] = x.cap;
        if (held(s, x, found.stamp)) {
            s.fresh[b] = GROWS;
            s.list(GROWING)[left++] = b;
            least = std::min(least, x.cap);
        }
    }
    int64_t growing = left;
    while (left > 0) {
        const double level = next_level(s, resources, least);
        int64_t stopped = 0;
        if (least <= level * TIGHT) stopped = stop_at_caps(s, growing, least, level);
        if (all_stop(s, growing, level, found.stamp)) return;
        stopped = stop_at_resources(s, resources, stopped, level);
        left -= stopped;
        for (int64_t i = 0; i < stopped; ++i) settle(s, s.list(STOPPED)[i], found.stamp);
    }
}

// New rates for all that the changes at `now` reach, and when they will be through.
void rebalance(State& s, double now, int64_t stamp) {
    const Component found = component(s, stamp);
    s.length[DIRTY] = s.length[NEW] = 0;
    fill(s, found);
    for (int64_t i = 0; i < found.blocks; ++i) {
        const int32_t b = s.list(BLOCKS)[i];
        Block& x = s.block[b];
        if (std::abs(s.fresh[b] - x.rate) > 1e-12 * x.rate) {
            x.left -= x.rate * (now - x.since);
            x.since = now;
            x.rate = s.fresh[b];
            put(s, b, now + std::max(x.left, 0.0) / x.rate);
        }
    }
}

// ---- proxy: carries what is handed over, pair by pair, and raises counters at the peer ----
//
// Pair c is rows T + c of blocks, whose flow is the bytes of one transfer after the other, and
// T + C + c, the way there.

// The bytes of a transfer are on their way.
void over(State& s, int64_t c, double now) {
    Pair& y = s.pair[c];
    Item& item = s.item[y.first + y.over];
    item.end = now;
    item.arrival = now + y.alpha;
    if (y.arrived == y.over) put(s, s.blocks() + s.pairs + c, item.arrival);
    ++y.over;
}

// A pair's next bytes begin. Where others have just ended, they go on at the same rate: the pair has
// the same way and rate alone for all its bytes, so nothing is to be shared out anew.
void carry(State& s, int64_t c, double amount, double now) {
    const Pair& y = s.pair[c];
    const int64_t b = s.blocks() + c;
    Block& x = s.block[b];
    if (x.uses > 0) {
        x.left = amount;
        x.since = now;
        put(s, b, now + amount / x.rate);
    } else {
        flow(s, b, amount, y.cap, now);
        for (int64_t k = y.use; k < y.use_end; ++k) join(s, b, s.route[k], s.route_weight[k], now);
    }
    for (int64_t k = y.use; k < y.use_end; ++k)
        s.resource[s.route[k]].carried += amount * s.route_weight[k];
}

// The next transfer that has bytes begins; those without are over at once.
void begin_transfer(State& s, int64_t c, double now) {
    Pair& y = s.pair[c];
    while (y.begun < y.handed) {
        Item& item = s.item[y.first + y.begun];
        const Transfer& x = s.transfer[item.transfer];
        const double amount = amount_of(x, item.batch);
        item.begin = now;
        ++y.begun;
        if (amount > 0) return carry(s, c, amount, now);
        over(s, c, now);
    }
    leave(s, s.blocks() + c, now);
}

// Transfer x of a micro-batch is the last of its pair; the thread block goes on.
void hand_over(State& s, int64_t x, int32_t batch, double now) {
    const int64_t c = s.transfer[x].pair;
    Pair& y = s.pair[c];
    Item& item = s.item[y.first + y.handed];
    item.transfer = static_cast<int32_t>(x);
    item.batch = batch;
    item.handed = now;
    ++y.handed;
    if (y.begun == y.over) begin_transfer(s, c, now);
}

// What a transfer does at the peer besides its bytes.
void count(State& s, int32_t number, int32_t batch) {
    const Transfer& x = s.transfer[number];
    const int64_t instance = x.prim * s.batches() + batch;
    if (x.kind == MESSAGE) {
        ++s.queue[x.target].sent;
        wake(s, s.flags + x.target, instance, number);
    } else if (x.kind == CREDIT) {
        ++s.queue[x.target].taken;
        wake(s, s.flags + s.queues + x.target, instance, number);
    } else if (x.kind == FLAG) {
        s.flag[x.target] = batch + 1;
        wake(s, x.target, instance, number);
    }
}

// What has arrived counts, in order; then the next is waited for.
void arrive_transfers(State& s, int64_t c, double now) {
    Pair& y = s.pair[c];
    const double limit = now * (1 + SAME_TIME) + SAME_TIME;
    while (y.arrived < y.over && s.item[y.first + y.arrived].arrival <= limit) {
        Item& item = s.item[y.first + y.arrived];
        item.arrival = now;
        ++y.arrived;
        count(s, item.transfer, item.batch);
    }
    if (y.arrived < y.over)
        put(s, s.blocks() + s.pairs + c, s.item[y.first + y.arrived].arrival);
}

// An action of row b is over, which belongs to a pair.
void end_of_pair(State& s, int64_t b, double now) {
    const int64_t c = b - s.blocks();
    if (c < s.pairs) {
        over(s, c, now);
        begin_transfer(s, c, now);
    } else {
        arrive_transfers(s, c - s.pairs, now);
    }
}

// ---- engine: thread blocks in order, waits, queues, and what is in flight ----

// Block b has got to its next instance, and is to try it.
void arrive(State& s, int64_t b, double now) {
    Block& x = s.block[b];
    s.instance[x.prim * s.batches() + x.batch].begin = now;
    x.waker = x.via = -1;
    push(s, b);
}

// The loop nest: window → primitive → micro-batch.
void advance(State& s, int64_t b, double now) {
    Block& x = s.block[b];
    ++x.batch;
    if (x.batch >= std::min(x.window + s.window(), s.batches())) {
        ++x.prim;
        if (x.prim == x.stop && x.window + s.window() < s.batches()) {
            x.prim = x.start;
            x.window = static_cast<int32_t>(x.window + s.window());
        }
        x.batch = x.window;
    }
    if (x.prim < x.stop)
        arrive(s, b, now);
    else
        push(s, b);
}

// Block b's instance is done: flags, messages, and on to the next.
void finish(State& s, int64_t b, double now) {
    Block& x = s.block[b];
    const Primitive &here = s.primitive[x.prim], &after = s.primitive[x.prim + 1];
    const int64_t i = x.prim * s.batches() + x.batch;
    s.instance[i].end = now;
    x.doing = IDLE;
    for (int64_t k = here.post; k < after.post; ++k) {
        s.flag[s.post[k]] = x.batch + 1;
        wake(s, s.post[k], i, -1);
    }
    for (int64_t k = here.give; k < after.give; ++k) {
        Queue& queue = s.queue[s.give[k]];
        if (queue.far) continue;
        ++queue.sent;
        wake(s, s.flags + s.give[k], i, -1);
    }
    for (int64_t k = here.take; k < after.take; ++k) {
        Queue& queue = s.queue[s.take[k]];
        if (queue.far) continue;
        ++queue.taken;
        wake(s, s.flags + s.queues + s.take[k], i, -1);
    }
    for (int64_t k = here.hand; k < after.hand; ++k) hand_over(s, k, x.batch, now);
    advance(s, b, now);
}

// How often queue q is among rows from `begin` to before `end`: messages of the same primitive.
int64_t ahead(const int32_t* rows, int64_t begin, int64_t end) {
    return std::count(rows + begin, rows + end, rows[end]);
}

// Whether block b must wait; it then stands in line for what it waits for first.
bool blocked(State& s, int64_t b) {
    const int32_t p = s.block[b].prim, m = s.block[b].batch;
    const Primitive &here = s.primitive[p], &after = s.primitive[p + 1];
    for (int64_t k = here.wait; k < after.wait; ++k)
        if (s.flag[s.wait[k]] <= m) return stand(s, b, s.wait[k]);
    for (int64_t k = here.take; k < after.take; ++k) {
        const Queue& queue = s.queue[s.take[k]];
        if (queue.sent <= queue.taking + ahead(s.take, here.take, k))
            return stand(s, b, s.flags + s.take[k]);
    }
    for (int64_t k = here.give; k < after.give; ++k) {
        const Queue& queue = s.queue[s.give[k]];
        if (queue.sending + ahead(s.give, here.give, k) - queue.taken >= s.slots())
            return stand(s, b, s.flags + s.queues + s.give[k]);
    }
    return false;
}

// Block b's waits are over: the fixed part begins.
void start(State& s, int64_t b, double channels, double now) {
    Block& x = s.block[b];
    const Primitive &here = s.primitive[x.prim], &after = s.primitive[x.prim + 1];
    Instance& instance = s.instance[x.prim * s.batches() + x.batch];
    instance.ready = now;
    instance.cause = x.waker;
    instance.via = x.via;
    for (int64_t k = here.take; k < after.take; ++k) ++s.queue[s.take[k]].taking;
    for (int64_t k = here.give; k < after.give; ++k) ++s.queue[s.give[k]].sending;
    const double rest = x.batch == here.whole ? here.fixed_last : here.fixed_none;
    const double fixed = x.batch < here.whole ? here.fixed : rest;
    x.doing = FIXED;
    if (fixed <= 0) {
        push(s, b);
    } else if (here.core >= 0) {
        flow(s, b, fixed, 1.0, now);
        join(s, b, here.core, channels, now);
    } else {
        put(s, b, now + fixed);
    }
}

// Block b's bytes begin to move.
void move(State& s, int64_t b, double now) {
    Block& x = s.block[b];
    const Primitive &here = s.primitive[x.prim], &after = s.primitive[x.prim + 1];
    const double amount = amount_of(here, x.batch);
    x.doing = MOVING;
    if (amount <= 0) return finish(s, b, now);
    flow(s, b, amount, here.cap, now);
    for (int64_t k = here.use; k < after.use; ++k) {
        join(s, b, s.use[k], s.weight[k], now);
        s.resource[s.use[k]].carried += amount * s.weight[k];
    }
    if (here.core >= 0) join(s, b, here.core, here.core_weight, now);
    if (here.memory >= 0) join(s, b, here.memory, here.memory_weight, now);
}

// Every block that may be free tries its instance; how many blocks are through.
int64_t try_all(State& s, double channels, double now) {
    int64_t finished = 0;
    while (s.length[TODO] > 0) {
        const int32_t b = s.list(TODO)[--s.length[TODO]];
        if (s.block[b].prim == s.block[b].stop)
            ++finished;
        else if (s.block[b].doing == FIXED)
            move(s, b, now);
        else if (!blocked(s, b))
            start(s, b, channels, now);
    }
    return finished;
}

// Block b's action is over.
void end(State& s, int64_t b, double now) {
    if (b >= s.blocks()) return end_of_pair(s, b, now);
    leave(s, b, now);
    if (s.block[b].doing == FIXED)
        push(s, b);
    else
        finish(s, b, now);
}

}  // namespace

extern "C" {

// Every block arrives; how many have anything to do.
int64_t hccc_sim_begin(State* state) {
    State& s = *state;
    int64_t left = s.blocks();
    for (int64_t b = 0; b < s.blocks(); ++b) {
        if (s.block[b].prim == s.block[b].stop)
            --left;
        else
            arrive(s, b, 0.0);
    }
    return left;
}

// So many moments more, or all there are until `latest` µs.
void hccc_sim_go_on(State* state, Progress* progress, double channels, double latest,
                    int64_t moments) {
    State& s = *state;
    double& now = progress->now;
    for (int64_t moment = 0; moment < moments; ++moment) {
        progress->left -= try_all(s, channels, now);
        rebalance(s, now, progress->stamp + moment);
        if (s.length[HEAP] == 0 || s.work[0] > s.work[1]) break;
        now = s.heap[0].time;
        if (now > latest) break;
        const double limit = now * (1 + SAME_TIME) + SAME_TIME;
        int64_t due = 0;
        while (s.length[HEAP] > 0 && s.heap[0].time <= limit) s.list(DUE)[due++] = take(s);
        for (int64_t i = 0; i < due; ++i) end(s, s.list(DUE)[i], now);
    }
    progress->stamp += moments;
}
}
