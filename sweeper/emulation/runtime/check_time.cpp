// Time in a checked launch, and which accesses come before which.
//
// Time is a counter that moves on when a block begins, when a barrier opens and when lanes have met. A
// barrier puts everything before it before everything after it. A meeting does so for its lanes: what lane i
// knows of lane j's doings is a time, and lanes that meet pool what they know.
#include <string.h>

#include "check.h"

namespace simt {

uint32_t now, block_began, barrier_opened;

struct WarpOrder {
  uint32_t all_met;                      // everything before came before every lane
  uint32_t last_partial;                 // when some lanes last met without the others
  uint32_t known[kWarpSize][kWarpSize];  // lane i comes after everything that lane j did before
};

static WarpOrder warps[kMaxThreads / kWarpSize];
static uint32_t* began;  // when each block began, in the order they ran
static uint64_t began_count;

bool warp_ordered(const Thread* thread, Record record) {
  const WarpOrder& warp = warps[thread->warp];
  const uint32_t time = time_of(record);
  if (time < warp.all_met) return true;
  return warp.last_partial >= barrier_opened &&
         time < warp.known[thread->lane][thread_of(record) % kWarpSize];
}

void time_passes() { ++now; }

void time_passes_for_launch() {
  if (!began) began = static_cast<uint32_t*>(reserve(launch.request.block_count * sizeof *began));
  block_began = barrier_opened = ++now;
  began[began_count++] = now;
  fences_begin_block();
}

void time_passes_for_block() { barrier_opened = ++now; }

// Lanes that have exited did not come, whatever the mask says.
void check_lanes_met(unsigned number, unsigned lanes) {
  WarpOrder& warp = warps[number];
  const unsigned after = worker.size - number * kWarpSize;
  ++now;
  if (lanes == (after >= kWarpSize ? ~0u : (1u << after) - 1)) {
    warp.all_met = now;
    return;
  }
  if (warp.last_partial < barrier_opened) memset(warp.known, 0, sizeof warp.known);
  uint32_t pooled[kWarpSize] = {};
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    for (unsigned of = 0; of < kWarpSize; ++of) {
      if (warp.known[lane][of] > pooled[of]) pooled[of] = warp.known[lane][of];
    }
  }
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if (lanes >> lane & 1) pooled[lane] = now;
  }
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if (lanes >> lane & 1) memcpy(warp.known[lane], pooled, sizeof pooled);
  }
  warp.last_partial = now;
}

// Which of the launch's blocks ran at `time`.
uint64_t ordinal_at(uint32_t time) {
  uint64_t low = 0, high = began_count;
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    (began[middle] <= time ? low : high) = middle;
  }
  return low;
}

// The same as an index in the grid.
uint64_t block_at(uint32_t time) {
  const uint64_t ordinal = ordinal_at(time);
  return launch.request.blocks ? launch.request.blocks[ordinal] : ordinal;
}

}  // namespace simt
