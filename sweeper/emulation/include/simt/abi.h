// What a compiled kernel module and the launcher that runs it agree on. Both are built from this file,
// and its digest is part of either one's key.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "vector_types.h"

namespace simt {

constexpr uint32_t kAbi = 2;
constexpr unsigned kWarpSize = 32;
constexpr unsigned kMaxThreads = 1024;

// One CUDA thread as its own code sees it.
struct Thread {
  uint3 index;      // threadIdx
  unsigned linear;  // x fastest
  unsigned warp, lane;
};

// The block that the current OS thread runs.
struct Block {
  uint3 index, size, grid;  // blockIdx, blockDim, gridDim
};

// A warp-wide operation: called once, when the last lane of a mask has come, with every lane's payload
// (null for lanes outside `lanes`). It reads and writes the payloads, which live on the lanes' stacks.
using Combine = void (*)(void* const* payloads, unsigned lanes);

// A kernel's parameter. `kind` and `pointee`: 'p' pointer, 'f' floating, 'i' integer, 'h' __half,
// 'b' __nv_bfloat16, 'v' void, 'c' bytes, 's' anything else. The last two describe what a pointer points to.
struct Parameter {
  char kind, pointee;
  bool constant;
  uint32_t bytes, pointee_bytes;
};

struct Kernel {
  void (*run)(void* const* arguments);
  const Parameter* parameters;
  uint32_t parameter_count;
};

// A module's table of contents, under the one name it exports.
struct Module {
  uint32_t abi;
  uint32_t kernel_count;
  const Kernel* kernels;
  bool checked;  // compiled to tell of its accesses
};

}  // namespace simt

// The launcher's own variables and functions. They never take part in symbol interposition and are there
// before any module is loaded, which allows the shortest way to each.
#if defined(__clang__) && defined(__SWEEPER_CHECKED__)
// Two calls on two lines stay two.
#define SIMT_FUNCTION extern "C" __attribute__((visibility("default"), nomerge))
#elif defined(__clang__)
#define SIMT_FUNCTION extern "C" __attribute__((visibility("default")))
#else
#define SIMT_FUNCTION extern "C" __attribute__((visibility("default"), noplt))
#endif
#define SIMT_VARIABLE extern "C" __attribute__((visibility("default"), tls_model("initial-exec"))) __thread

SIMT_VARIABLE simt::Thread* simt_thread;
SIMT_VARIABLE simt::Block simt_block;
SIMT_VARIABLE char* simt_dynamic_shared;

SIMT_FUNCTION void simt_sync_block(int line);
SIMT_FUNCTION unsigned simt_sync_block_count(int line, int predicate, unsigned* arrived);
SIMT_FUNCTION void simt_sync_lanes(unsigned mask, void* payload, simt::Combine combine);
SIMT_FUNCTION void simt_gather_lanes(int line, unsigned* lanes);
SIMT_FUNCTION void simt_yield();
// What only checked modules say: that the caller is about to wait, and that a lane reads what no lane sends.
SIMT_FUNCTION void simt_here();
SIMT_FUNCTION void simt_reads_nobody(unsigned lane, unsigned source);
SIMT_FUNCTION void simt_copy_async(void* destination, const void* source, unsigned bytes,
                                   unsigned zero_bytes);
SIMT_FUNCTION void simt_copy_commit();
SIMT_FUNCTION void simt_copy_wait(unsigned groups_left);
SIMT_FUNCTION void simt_need_alignment(const void* address, unsigned bytes);
SIMT_FUNCTION int simt_print(const char* format, ...) __attribute__((format(printf, 1, 2)));
SIMT_FUNCTION void simt_trap(const char* what, const char* file, int line) __attribute__((noreturn, cold));
SIMT_FUNCTION long long simt_clock();
