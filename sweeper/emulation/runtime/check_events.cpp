// What the rest of the launcher tells check mode: where threads wait, copies, failures that end the launch.
#include <stdio.h>
#include <string.h>

#include "check.h"

namespace simt {

// Of each thread of the block: where it last began to wait, at which line's barrier, and where it ended.
struct Whereabouts {
  uint64_t waits, ended;
  int line;
  bool exited;
};

static Whereabouts whereabouts[kMaxThreads];

// Where a thread waits, or where it left the kernel.
static Party whereabouts_of(const Thread* thread) {
  const Whereabouts& here = whereabouts[thread->linear];
  Party p = here.exited ? party(Doing::kLeaves, here.ended) : party(Doing::kNothing, here.waits);
  p.thread = thread->linear;
  return p;
}

void check_function_ends(uint64_t code) {
  if (simt_thread) whereabouts[simt_thread->linear].ended = code;
}

void check_thread_ends(const Thread* thread) { whereabouts[thread->linear].exited = true; }

void check_thread_arrives(const Thread* thread, int line) { whereabouts[thread->linear].line = line; }

// The current thread comes to another barrier than those that wait.
void check_barriers_differ(Worker& w) {
  Party other{};
  for (unsigned i = w.waiting_count; i-- > 0;) {
    const Thread* thread = w.waiting[i].thread;
    if (whereabouts[thread->linear].line != w.barrier_line) continue;
    other = whereabouts_of(thread);
    break;
  }
  note(Wrong::kBarrierDivergence, {kNoMemory, 0}, 0, whereabouts_of(simt_thread), other,
       "threads of one block meet at different barriers");
}

void check_barrier_opens(Worker& w) {
  time_passes_for_block();
  if (w.live == w.size) return;
  Party gone{};
  for (unsigned i = 0; i < w.size && !gone.code; ++i) {
    if (!whereabouts[i].exited) continue;
    gone = whereabouts_of(&w.threads[i]);
  }
  char text[160];
  snprintf(text, sizeof text, "a barrier after %u of the block's %u threads have exited", w.size - w.live,
           w.size);
  note(Wrong::kBarrierAfterExit, {kNoMemory, 0}, 0, whereabouts_of(w.waiting[0].thread), gone, text);
}

void check_block_begins() {
  memset(whereabouts, 0, worker.size * sizeof *whereabouts);
  time_passes_for_launch();
}

void check_copy_begins(void* destination, const void* source, unsigned bytes, unsigned zero_bytes,
                       const void* caller) {
  const uint64_t code = code_at(caller);
  check_access(source, bytes - zero_bytes, Doing::kRead, code);
  check_access(destination, bytes, Doing::kCopy, code);
}

void check_copies_end(const Copy* copies, unsigned count) {
  if (count) time_passes();
  for (unsigned i = 0; i < count; ++i) {
    const char* destination = static_cast<const char*>(copies[i].destination);
    Area* area = find_area(destination);
    if (area && area->writable && covers(*area, destination, copies[i].bytes))
      settle_copy(*area, destination, copies[i].bytes);
  }
}

// Two threads that wait at different places, or one that waits and one that has ended.
static void note_deadlock(const Worker& w, const char* text) {
  const Thread* first = simt_thread;
  const Thread* second = nullptr;
  for (unsigned i = 0; i < w.size && !second; ++i) {
    const Whereabouts& here = whereabouts[i];
    if (here.exited || here.waits != whereabouts[first->linear].waits) second = &w.threads[i];
  }
  Party other{};
  if (second) other = whereabouts_of(second);
  note(Wrong::kDeadlock, {kNoMemory, 0}, 0, whereabouts_of(first), other, text);
}

// A lane reads from one that takes no part in the operation: outside its mask, gone, or never there.
void check_reads_nobody(Worker& w, unsigned lane, unsigned source) {
  const unsigned first = simt_thread->warp * kWarpSize;
  Party other{};
  char text[160];
  if (source >= kWarpSize || first + source >= w.size) {
    snprintf(text, sizeof text, "lane %u reads from lane %u, which the block does not have", lane, source);
  } else {
    const Thread& thread = w.threads[first + source];
    const Whereabouts& there = whereabouts[thread.linear];
    other = whereabouts_of(&thread);
    snprintf(text, sizeof text, "lane %u reads from lane %u, which %s", lane, source,
             there.exited ? "has exited" : "takes no part");
  }
  note(Wrong::kWarpMask, {kNoMemory, 0}, 0, whereabouts_of(&w.threads[first + lane]), other, text);
}

static bool wrong_of(Kind kind, Wrong& wrong) {
  switch (kind) {
    case Kind::kIllegalAddress:
      return wrong = Wrong::kOutOfBounds, true;
    case Kind::kOverrun:
      return wrong = Wrong::kOutOfBounds, true;
    case Kind::kMisaligned:
      return wrong = Wrong::kMisaligned, true;
    case Kind::kArithmetic:
      return wrong = Wrong::kOverflow, true;
    case Kind::kTrap:
      return wrong = Wrong::kTrap, true;
    case Kind::kAssertion:
      return wrong = Wrong::kAssert, true;
    case Kind::kWarp:
      return wrong = Wrong::kWarpMask, true;
    default:
      return false;
  }
}

void check_failure(const Failure& failure, const char* text) {
  if (failure.kind == Kind::kDeadlock) {
    note_deadlock(worker, text);
    return;
  }
  Finding finding{};
  if (!wrong_of(failure.kind, finding.wrong) || already_noted(finding.wrong)) return;
  const bool has_memory = failure.region != kNowhere || failure.offset;
  finding.region = has_memory ? failure.region : kNoMemory;
  finding.offset = failure.offset;
  finding.line = failure.file[0] ? static_cast<uint32_t>(failure.line) : 0;
  finding.first = party(failure.access == Access::kWrite ? Doing::kWrite : Doing::kRead,
                        failure.code ? code_at(failure.code) : 0);
  if (!failure.code && simt_thread && failure.kind == Kind::kWarp)
    finding.first.code = whereabouts[simt_thread->linear].waits;
  strncpy(finding.file, failure.file, sizeof finding.file - 1);
  strncpy(finding.text, text, sizeof finding.text - 1);
  add_finding(finding);
}

}  // namespace simt

extern "C" void simt_reads_nobody(unsigned lane, unsigned source) {
  simt::check_reads_nobody(simt::worker, lane, source);
}

extern "C" void simt_here() {
  simt::whereabouts[simt_thread->linear].waits = simt::code_at(__builtin_return_address(0));
}
