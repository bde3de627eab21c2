// Check mode: what a module compiled with -fsanitize=thread and parts of -fsanitize=undefined tells of each
// of its accesses, held against what is known of the memory and of the order between threads.
//
// One worker runs a checked launch, so nothing here is shared between OS threads, and the same launch gives
// the same findings.
#pragma once
#include "runtime.h"

namespace simt {

// found.py mirrors these numbers, and the layout of Finding and Findings.
enum class Wrong : uint32_t {
  kOutOfBounds = 1,
  kMisaligned = 2,
  kReadOnly = 3,
  kRaceShared = 4,
  kRaceGlobal = 5,
  kUninitialised = 6,
  kPendingCopy = 7,
  kBarrierDivergence = 8,
  kBarrierAfterExit = 9,
  kDeadlock = 10,
  kWarpMask = 11,
  kIndexRange = 12,
  kOverflow = 13,
  kAssert = 14,
  kTrap = 15,
};

enum class Doing : uint32_t {
  kNothing = 0,
  kRead = 1,
  kWrite = 2,
  kCopy = 3,
  kUpdate = 4,
  kStrongRead = 5,
  kStrongWrite = 6,
  kLeaves = 7,
};

inline bool reads(Doing d) { return d == Doing::kRead || d == Doing::kUpdate || d == Doing::kStrongRead; }
inline bool writes(Doing d) { return !reads(d) || d == Doing::kUpdate; }
// Atomic operations, and accesses through volatile to global memory: no race among themselves.
inline bool is_strong(Doing d) { return d >= Doing::kUpdate && d <= Doing::kStrongWrite; }

constexpr uint32_t kNobody = ~0u;

// Someone at a place in the code. `code` counts from the start of the module's image; 0 is unknown.
struct Party {
  uint64_t code;
  uint64_t block;
  uint32_t thread;
  Doing doing;
};

struct Finding {
  Wrong wrong;
  int32_t region;
  int64_t offset;  // in bytes
  uint32_t bytes;
  uint32_t line;  // of `file`, where that is not empty: the compiler's own word for where `first` is
  Party first, second;
  uint64_t count;
  char file[128];
  char text[160];
};

constexpr unsigned kMaxFindings = 2048;

struct Findings {
  uint32_t count;
  uint32_t reserved;
  uint64_t dropped;
  Finding items[kMaxFindings];
};

// Who accessed a byte or word, when and where: time (32 bits), code (20: a module of up to 1 MiB), flags (2),
// thread (10). 0 is nobody.
using Record = uint64_t;
constexpr Record kStrongFlag = 1u << 10, kPendingFlag = 1u << 11;
constexpr unsigned kThreadBits = 10, kCodeShift = 12, kCodeBits = 20, kTimeShift = 32;

inline uint32_t time_of(Record r) { return static_cast<uint32_t>(r >> kTimeShift); }
inline uint32_t thread_of(Record r) { return static_cast<uint32_t>(r & ((1u << kThreadBits) - 1)); }
inline uint64_t code_of(Record r) { return r >> kCodeShift & ((1u << kCodeBits) - 1); }

// The last write, and up to two reads since that no later one makes superfluous.
struct Cell {
  Record write, read[2];
};

// Memory whose accesses are followed. Every four bytes have a cell; where they were not accessed together,
// `write` is kSplit and each byte has one of its own.
struct Area {
  char* begin;
  size_t bytes;
  Cell* words;
  Cell* split;
  int32_t region;
  bool writable, shared;
  size_t row_bytes, pitch_bytes;  // as in BufferRequest, and so is `empty`
  bool empty;
};

constexpr Record kSplit = ~Record{0};

// check_time.cpp: which accesses come before which. Time passes whenever threads wait for each other.
extern uint32_t now, block_began, barrier_opened;
void time_passes();
void time_passes_for_block();
void time_passes_for_launch();
bool warp_ordered(const Thread* thread, Record record);
uint64_t ordinal_at(uint32_t time);
uint64_t block_at(uint32_t time);

// check_fences.cpp
void fences_begin_block();
void fence_passed();
void flag_touched(const char* address, bool reads, bool writes);
bool handed_over(const Thread* thread, Record record);

inline bool same_block(Record record) { return time_of(record) >= block_began; }

// Whether what `record` tells of came before anything that `thread` does now; `record` is of this block.
inline bool ordered(const Thread* thread, Record record) {
  return time_of(record) < barrier_opened || thread_of(record) == thread->linear ||
         (thread_of(record) / kWarpSize == thread->warp && warp_ordered(thread, record));
}

// check_memory.cpp
void* reserve(size_t bytes);           // zero when first touched, and costing nothing before
Area* find_area(const char* address);  // null for an address in no array
struct Spot {
  int32_t region;
  int64_t offset;
};
Spot spot_of(const char* address);
Spot in_area(const Area& area, const char* address);
bool is_guard(const Area& area, const char* address);
bool is_private(const char* address);
bool is_mapped_shared(const char* address);
bool covers(const Area& area, const char* address, size_t bytes);
bool make_accessible(const char* address, size_t bytes);

// check_races.cpp
void follow(Area& area, const char* address, size_t bytes, Doing doing, uint64_t code);
void settle_copy(Area& area, const char* address, size_t bytes);

// check_events.cpp
void check_function_ends(uint64_t code);

// check_access.cpp
void check_access(const void* address, size_t bytes, Doing doing, uint64_t code);
void check_volatile(const void* address, size_t bytes, Doing doing, uint64_t code);

// check_findings.cpp
uint64_t code_at(const void* return_address);
void set_module_base(const char* base);
Party party(Doing doing, uint64_t code);
Party party_of(Record record, Doing doing);
bool already_noted(Wrong wrong);  // by the current thread, and since it last waited
void add_finding(const Finding& finding);
void note(Wrong wrong, Spot spot, size_t bytes, const Party& first, const Party& second, const char* text);

}  // namespace simt
