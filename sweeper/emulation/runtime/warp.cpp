// Warp-wide operations: lanes with the same mask meet, the last to come combines, all go on.
#include <string.h>

#include "runtime.h"

namespace simt {

static void finish_meeting(Worker& w, Warp& warp, Meeting& meeting) {
  const unsigned lanes = meeting.arrived;
  if (launch.findings) check_lanes_met(static_cast<unsigned>(&warp - w.warps), lanes);
  if (meeting.combine) meeting.combine(warp.payload, lanes);
  for (unsigned left = lanes; left;) {
    const unsigned lane = launch.request.order == kReverse ? 31u - static_cast<unsigned>(__builtin_clz(left))
                                                           : static_cast<unsigned>(__builtin_ctz(left));
    left &= ~(1u << lane);
    w.ready[w.tail++ % kMaxThreads] = warp.waiter[lane];
    warp.payload[lane] = nullptr;
  }
  meeting = warp.meeting[--warp.meetings];
}

static __attribute__((noinline)) Meeting& open_meeting(Warp& warp, unsigned mask, Combine combine) {
  for (unsigned i = 0; i < warp.meetings; ++i) {
    if (warp.meeting[i].mask == mask) return warp.meeting[i];
  }
  return warp.meeting[warp.meetings++] = {mask, 0, combine};
}

extern "C" __attribute__((visibility("hidden"))) void* simt_policy_lanes(void* context, unsigned mask,
                                                                         void* payload, Combine combine) {
  Worker& w = worker;
  Thread* thread = simt_thread;
  Warp& warp = w.warps[thread->warp];
  const unsigned bit = 1u << thread->lane;
  if (unlikely(!(mask & bit))) {
    fail({Kind::kWarp}, "a warp-wide operation with mask 0x%08x in lane %u, which the mask leaves out", mask,
         thread->lane);
  }
  Meeting& meeting = likely(warp.meetings == 1 && warp.meeting[0].mask == mask)
                         ? warp.meeting[0]
                         : open_meeting(warp, mask, combine);
  if (unlikely(meeting.combine != combine)) {
    fail({Kind::kWarp}, "lanes of one warp meet at different warp-wide operations with mask 0x%08x", mask);
  }
  warp.waiter[thread->lane] = {context, thread};
  warp.payload[thread->lane] = payload;
  meeting.arrived |= bit;
  if (meeting.arrived == (mask & warp.live)) finish_meeting(w, warp, meeting);
  return next_context(w);
}

void leave_warp(Worker& w, Thread* thread) {
  Warp& warp = w.warps[thread->warp];
  warp.live &= ~(1u << thread->lane);
  for (unsigned i = 0; i < warp.meetings;) {
    if (warp.meeting[i].arrived == (warp.meeting[i].mask & warp.live)) {
      finish_meeting(w, warp, warp.meeting[i]);
    } else {
      ++i;
    }
  }
}

extern "C" __attribute__((visibility("hidden"))) void* simt_policy_gather(void* context, int line,
                                                                          unsigned* lanes) {
  Worker& w = worker;
  Warp& warp = w.warps[simt_thread->warp];
  const unsigned lane = simt_thread->lane;
  warp.waiter[lane] = {context, simt_thread};
  warp.payload[lane] = lanes;
  warp.gather_line[lane] = line;
  warp.gathering |= 1u << lane;
  ++w.gathering_count;
  return next_context(w);
}

void release_gathered(Worker& w) {
  for (unsigned i = 0; i * kWarpSize < w.size; ++i) {
    Warp& warp = w.warps[i];
    for (unsigned lane = 0; lane < kWarpSize; ++lane) {
      if (!(warp.gathering >> lane & 1)) continue;
      unsigned together = 0;
      for (unsigned other = 0; other < kWarpSize; ++other) {
        if (warp.gathering >> other & 1 && warp.gather_line[other] == warp.gather_line[lane])
          together |= 1u << other;
      }
      *static_cast<unsigned*>(warp.payload[lane]) = together;
      warp.payload[lane] = nullptr;
      w.ready[w.tail++ % kMaxThreads] = warp.waiter[lane];
    }
    warp.gathering = 0;
  }
  w.gathering_count = 0;
}

}  // namespace simt
