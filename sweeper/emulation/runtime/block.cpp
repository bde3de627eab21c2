// Running a block: who goes on next, the block's barrier, the beginning and the end of a thread.
//
// Threads run one after another until each has come to a barrier or to its end. Nothing is preempted, so an
// order of threads (forward, reverse, shuffled) together with the code decides everything that happens.
#include <string.h>

#include "runtime.h"

__thread simt::Thread* simt_thread = nullptr;
__thread simt::Block simt_block;
__thread char* simt_dynamic_shared = nullptr;

namespace simt {

__thread Worker worker;
Launch launch;

template <class T> static void exchange(T& a, T& b) {
  const T kept = a;
  a = b;
  b = kept;
}

static uint64_t random_below(Worker& w, uint64_t bound) {
  // splitmix64 (Steele, Lea, Flood 2014).
  uint64_t z = w.random += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return (z ^ z >> 31) % bound;
}

static void begin_next_thread(Worker& w) { simt_thread = &w.threads[w.start_order[w.started++]]; }

static __attribute__((noinline)) void* begin_or_end(Worker& w) {
  if (w.started == w.size) {
    if (!w.gathering_count) return w.main;
    release_gathered(w);
    return next_context(w);
  }
  begin_next_thread(w);
  return w.idle_count ? w.idle[--w.idle_count] : new_fiber(w);
}

static inline void* next(Worker& w) {
  if (unlikely(w.head == w.tail)) return begin_or_end(w);
  const Waiter chosen = w.ready[w.head++ % kMaxThreads];
  simt_thread = chosen.thread;
  return chosen.context;
}

void* next_context(Worker& w) { return next(w); }

// All threads that have not exited are waiting, so nobody is ready.
static __attribute__((noinline)) void open_barrier(Worker& w) {
  if (unlikely(launch.findings != nullptr)) check_barrier_opens(w);
  if (w.live != w.size) note_hazard(w.barrier_line, 0, w.size - w.live);
  if (launch.request.order == kShuffled) {
    for (unsigned i = w.waiting_count; i > 1; --i) exchange(w.waiting[i - 1], w.waiting[random_below(w, i)]);
  }
  exchange(w.ready, w.waiting);
  w.switches += w.head;
  w.head = 0;
  w.tail = w.waiting_count;
  w.last_arrived = w.waiting_count;
  w.last_predicates = w.predicates;
  w.waiting_count = 0;
  w.predicates = 0;
  w.barrier_line = 0;
  ++w.block_epoch;
}

static __attribute__((noinline, cold)) void arrive_elsewhere(Worker& w, int line) {
  if (w.waiting_count && launch.findings) check_barriers_differ(w);
  if (w.waiting_count) note_hazard(line, w.barrier_line, 0);
  w.barrier_line = line;
}

extern "C" __attribute__((visibility("hidden"))) void* simt_policy_block(void* context, int line) {
  Worker& w = worker;
  if (unlikely(launch.findings != nullptr)) check_thread_arrives(simt_thread, line);
  if (unlikely(line != w.barrier_line)) arrive_elsewhere(w, line);
  w.waiting[w.waiting_count++] = {context, simt_thread};
  if (unlikely(w.waiting_count == w.live)) open_barrier(w);
  return next(w);
}

static void end_thread(Worker& w) {
  Thread* thread = simt_thread;
  if (launch.findings) check_thread_ends(thread);
  if (w.copies) finish_copies(w, thread);
  --w.live;
  leave_warp(w, thread);
  if (w.waiting_count && w.waiting_count == w.live) open_barrier(w);
}

void fiber_main() {
  for (;;) {
    launch.kernel->run(launch.arguments);
    Worker& w = worker;
    end_thread(w);
    if (w.head == w.tail && w.started < w.size) {
      begin_next_thread(w);
    } else {
      retire_fiber();
    }
  }
}

void start_worker() {
  Worker& w = worker;
  const unsigned* b = launch.request.block;
  simt_block.size = {b[0], b[1], b[2]};
  simt_block.grid = {launch.request.grid[0], launch.request.grid[1], launch.request.grid[2]};
  w.size = b[0] * b[1] * b[2];
  w.ready = w.queue[0];
  w.waiting = w.queue[1];
  for (unsigned i = 0; i < w.size; ++i) {
    w.threads[i] = {{i % b[0], i / b[0] % b[1], i / (b[0] * b[1])}, i, i / kWarpSize, i % kWarpSize};
    w.start_order[i] = static_cast<uint16_t>(launch.request.order == kReverse ? w.size - 1 - i : i);
  }
}

[[noreturn]] static void report_deadlock(Worker& w) {
  unsigned in_meetings = 0, mask = 0;
  Thread* stuck = w.waiting_count ? w.waiting[0].thread : nullptr;
  for (unsigned i = 0; i * kWarpSize < w.size; ++i) {
    for (unsigned m = 0; m < w.warps[i].meetings; ++m) {
      const Meeting& meeting = w.warps[i].meeting[m];
      in_meetings += static_cast<unsigned>(__builtin_popcount(meeting.arrived));
      if (!mask) mask = meeting.mask;
      if (!stuck) stuck = w.warps[i].waiter[__builtin_ctz(meeting.arrived)].thread;
    }
  }
  simt_thread = stuck;
  const Failure failure{Kind::kDeadlock, Access::kUnknown, kNowhere, 0, w.barrier_line};
  if (!in_meetings) fail(failure, "%u of %u threads wait for ever", w.live, w.size);
  if (!w.waiting_count) {
    fail(failure,
         "%u threads wait at a warp-wide operation with mask 0x%08x, which other lanes of the mask never "
         "reach",
         in_meetings, mask);
  }
  fail(failure,
       "%u threads wait at __syncthreads() in line %d, while %u wait at a warp-wide operation with mask "
       "0x%08x",
       w.waiting_count, w.barrier_line, in_meetings, mask);
}

void run_block(uint64_t ordinal) {
  Worker& w = worker;
  const unsigned* g = launch.request.grid;
  const uint64_t index = launch.request.blocks ? launch.request.blocks[ordinal] : ordinal;
  simt_block.index = {static_cast<unsigned>(index % g[0]), static_cast<unsigned>(index / g[0] % g[1]),
                      static_cast<unsigned>(index / g[0] / g[1])};
  w.ordinal = ordinal;
  w.live = w.size;
  w.started = 0;
  w.barrier_line = 0;
  fill_shared(w);
  if (launch.findings) check_block_begins();
  for (unsigned i = 0; i * kWarpSize < w.size; ++i) {
    const unsigned lanes = w.size - i * kWarpSize;
    w.warps[i].live = lanes >= kWarpSize ? ~0u : (1u << lanes) - 1;
    w.warps[i].meetings = 0;
    w.warps[i].gathering = 0;
  }
  if (launch.request.order == kShuffled) {
    w.random = launch.request.seed * 0x9e3779b97f4a7c15u + index;
    for (unsigned i = w.size; i > 1; --i) exchange(w.start_order[i - 1], w.start_order[random_below(w, i)]);
  }
  run_threads();
  if (w.live) report_deadlock(w);
  w.switches += w.head;
  w.head = w.tail = 0;
  simt_thread = nullptr;
  if (!launch.findings) check_dynamic_shared(w);
}

}  // namespace simt

extern "C" unsigned simt_sync_block_count(int line, int predicate, unsigned* arrived) {
  simt::worker.predicates += predicate != 0;
  simt_sync_block(line);
  // The next barrier cannot open before this thread has come to it, so both still belong to this one.
  *arrived = simt::worker.last_arrived;
  return simt::worker.last_predicates;
}
