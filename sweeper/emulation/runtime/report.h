// What a launch leaves behind for the process that asked for it: a page of memory that both map, so that it
// survives whatever happens to the launcher. report.py mirrors this layout.
#pragma once
#include <stdint.h>

namespace simt {

enum class Kind : uint32_t {
  kNone = 0,
  kIllegalAddress = 1,
  kMisaligned = 2,
  kArithmetic = 3,
  kIllegalInstruction = 4,
  kLocalMemory = 5,
  kTrap = 6,
  kAssertion = 7,
  kDeadlock = 8,
  kWarp = 9,
  kBarrier = 10,
  kArgument = 11,
  kModule = 12,
  kInternal = 13,
  kOverrun = 14,
};

enum class State : uint32_t { kNothing = 0, kFinished = 1, kFailed = 2 };
enum class Access : uint32_t { kUnknown = 0, kRead = 1, kWrite = 2 };

// Where an address lies, beside the index of a buffer.
constexpr int32_t kNowhere = -1;
constexpr int32_t kDynamicShared = -2;
constexpr int32_t kNull = -3;
constexpr int32_t kStaticShared = -4;
constexpr int32_t kNoMemory = -5;
constexpr int32_t kDevice = -6;  // __device__ variables, by their address in the module

constexpr uint32_t kTextBytes = 480;
constexpr uint32_t kPrintedBytes = 1 << 16;

// Something that works on current hardware but that CUDA does not promise.
struct Hazard {
  uint64_t ordinal;
  uint32_t found, line, other_line, exited;
  uint32_t block[3];
  uint32_t reserved;
};

struct Report {
  uint32_t version;
  State state;
  Kind kind;
  Access access;
  int32_t region;
  int32_t line;
  int64_t offset;    // bytes from the start of the region
  uint64_t ordinal;  // which of the launch's blocks
  uint32_t in_thread;
  uint32_t thread[3];
  uint32_t block[3];
  uint32_t printed;  // bytes of `output`
  uint64_t dropped;  // bytes printed beyond it
  uint64_t switches;
  uint64_t cpu_ns;
  Hazard hazard;
  char text[kTextBytes];
  char output[kPrintedBytes];
};

constexpr uint32_t kReportVersion = 1;

}  // namespace simt
