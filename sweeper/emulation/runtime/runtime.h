// The launcher's internals: one Worker for each OS thread, which runs one block at a time, one fiber for each
// CUDA thread of it that is suspended.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "report.h"
#include "simt/abi.h"

namespace simt {

// A suspended computation; switch.cpp knows what it is.
using Context = void*;

struct Waiter {
  Context context;
  Thread* thread;
};

// Lanes on their way into one warp-wide operation.
struct Meeting {
  unsigned mask, arrived;
  Combine combine;
};

struct Warp {
  unsigned live;  // lanes that have not exited
  unsigned meetings;
  Meeting meeting[kWarpSize];
  Waiter waiter[kWarpSize];
  void* payload[kWarpSize];
  unsigned gathering;  // lanes that wait to see who else comes, and where in the source
  int gather_line[kWarpSize];
};

struct Copy {
  void* destination;
  const void* source;
  unsigned bytes, zero_bytes;
  unsigned group;
};

// A thread's asynchronous copies in the order they were asked for; the first `done` have taken place.
struct Copies {
  Copy* items;
  unsigned count, capacity, done, groups;
};

// Everything about the block at hand. Plain data in the OS thread's static storage: reached without a guard
// or an indirection, zero at the start.
struct Worker {
  // Threads that can go on (a ring) and threads that wait at the block's barrier. Opening it swaps the two.
  Waiter* ready;
  Waiter* waiting;
  uint64_t head, tail;
  unsigned waiting_count;
  unsigned gathering_count;
  unsigned live;           // threads of the block that have not exited
  unsigned started, size;  // threads that have begun, threads of the block
  int barrier_line;
  unsigned predicates, last_predicates, last_arrived;
  uint64_t block_epoch;
  uint64_t switches;
  uint64_t ordinal;
  Context main;
  Context idle[kMaxThreads];  // fibers whose thread has exited
  unsigned idle_count;
  unsigned fibers;
  char* stacks;
  Waiter queue[2][kMaxThreads];
  uint16_t start_order[kMaxThreads];
  uint64_t random;
  Thread threads[kMaxThreads];
  Warp warps[kMaxThreads / kWarpSize];
  Copies* copies;
  char* static_shared;
  size_t static_shared_bytes;
  char *dynamic_begin, *dynamic_end;  // of the pages that hold dynamic shared memory
};

extern __thread Worker worker __attribute__((tls_model("local-exec")));

enum Order : unsigned { kForward = 0, kReverse = 1, kShuffled = 2 };

struct BufferRequest {
  int descriptor;
  size_t map_bytes, offset, bytes, item_bytes;
  size_t row_bytes, pitch_bytes;  // of rows with something between them that is nobody's; else 0
  bool writable, empty;  // `empty`: holds nothing that may be read before it is written
  char* data;
};

constexpr size_t kMaxArguments = 256;
constexpr size_t kMaxScalarBytes = 4096;  // what CUDA lets all parameters together take

struct ArgumentRequest {
  int buffer;  // or -1
  char kind;   // of a scalar, or of a buffer's elements
  bool is_output;
  size_t bytes;
  unsigned char* value;
};

// A variable in static shared memory, whose bytes are counted from its start.
struct VariableRequest {
  size_t offset, bytes;
  bool guard;  // the compiler's own
};

constexpr size_t kMaxVariables = 4096;

struct Request {
  char module[4096];
  unsigned kernel;
  unsigned grid[3], block[3];
  size_t dynamic_bytes, stack_bytes;
  unsigned order;
  uint64_t seed;
  unsigned workers;
  bool strict;
  BufferRequest buffers[kMaxArguments];
  size_t buffer_count;
  ArgumentRequest arguments[kMaxArguments];
  size_t argument_count;
  const uint64_t* blocks;  // linear indices, or null for all of them
  uint64_t block_count;
  int findings;  // descriptor of where a checked launch lists what it finds
  bool checked;
  VariableRequest* variables;
  size_t variable_count;
  VariableRequest* devices;  // __device__ variables, whose offsets are the module's
  size_t device_count;
};

// A variable of all workers. The launcher does without the C++ library, which would be loaded at every
// launch.
template <class T> struct Shared {
  T value;
  T load() const { return __atomic_load_n(&value, __ATOMIC_SEQ_CST); }
  T add(T amount) { return __atomic_fetch_add(&value, amount, __ATOMIC_SEQ_CST); }
  void store(T wanted) { __atomic_store_n(&value, wanted, __ATOMIC_SEQ_CST); }
  void lower(T bound) {
    T seen = load();
    while (bound < seen &&
           !__atomic_compare_exchange_n(&value, &seen, bound, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
  }
};

struct Findings;

struct Launch {
  Request request;
  Report* report;
  Findings* findings;  // of a checked launch, else null
  const Kernel* kernel;
  void** arguments;
  Shared<uint64_t> next;        // block to begin
  Shared<uint64_t> stop_after;  // the first block that failed, so far
  Shared<uint64_t> switches;
};

extern Launch launch;

// request.cpp
void read_request(int descriptor, Request& request);

// switch.cpp: the fibers' stacks and the jump from one to another
Context new_fiber(Worker& w);
void run_threads();   // until no thread of the block can go on
void retire_fiber();  // suspends a fiber whose thread has exited
bool in_stack_guard(const char* address);

// block.cpp
void start_worker();
void run_block(uint64_t ordinal);
[[noreturn]] void fiber_main();
void* next_context(Worker& w);

// warp.cpp
void release_gathered(Worker& w);  // once no other thread of the block can go on
void leave_warp(Worker& w, Thread* thread);

// copy.cpp
void finish_copies(Worker& w, Thread* thread);

// memory.cpp
void map_buffers(Request& request);
void map_shared(Worker& w, const Module* module);
void fill_shared(Worker& w);
void check_dynamic_shared(Worker& w);
int32_t locate(const char* address, int64_t* offset);

// faults.cpp
void watch_signals();
void watch_signals_of_this_thread();
struct Failure {
  Kind kind;
  Access access = Access::kUnknown;
  int32_t region = kNowhere;
  int64_t offset = 0;
  int line = 0;
  const char* file = "";
  const void* code = nullptr;  // where in the module, where that is known
  bool noted = false;          // among the findings already
};
[[noreturn]] void fail(const Failure& failure);
[[noreturn]] void fail(const Failure& failure, const char* format, ...) __attribute__((format(printf, 2, 3)));
void note_hazard(int line, int other_line, unsigned exited);
[[noreturn]] void worker_ends();
void workers_wait(unsigned count);

// check_*.cpp: called where `launch.findings` is not null
void check_maps_module(const Module* module);
void check_maps_arguments(const void* begin, const void* end);
void check_maps_shared(Worker& w);
void check_block_begins();
void check_thread_arrives(const Thread* thread, int line);
void check_barriers_differ(Worker& w);
void check_barrier_opens(Worker& w);
void check_thread_ends(const Thread* thread);
void check_lanes_met(unsigned warp, unsigned lanes);
void check_copy_begins(void* destination, const void* source, unsigned bytes, unsigned zero_bytes,
                       const void* code);
void check_copies_end(const Copy* copies, unsigned count);
void check_failure(const Failure& failure, const char* text);

inline bool likely(bool condition) { return __builtin_expect(condition, true); }
inline bool unlikely(bool condition) { return __builtin_expect(condition, false); }

}  // namespace simt
