// From one suspended thread to another. A suspending call saves what the ABI says a function keeps, asks its
// policy who goes on, and continues there; a context is the stack pointer below what was saved.
//
// Going on is an indirect jump and not a return: the return-address predictor would expect to go back to the
// call that was just made, while the jump's own history tells almost always where the next thread stands.
#include <sys/mman.h>
#include <unistd.h>

#include "runtime.h"

#if !defined(__x86_64__) && !defined(SIMT_PORTABLE_SWITCH)
#define SIMT_PORTABLE_SWITCH
#endif

namespace simt {

constexpr size_t kPage = 4096;

// Stacks lie one power of two apart; staggered tops keep them from meeting in the same sets of the cache.
// Nine lines is odd, so that neighbours walk through all sets.
constexpr size_t kStagger = 9 * 64, kStaggerSpan = 64 * kStagger;

extern "C" {
__attribute__((visibility("hidden"))) void* simt_policy_begin(void* context);
__attribute__((visibility("hidden"))) void* simt_policy_retire(void* context);
__attribute__((visibility("hidden"))) void* simt_policy_block(void* context, int line);
__attribute__((visibility("hidden"))) void* simt_policy_lanes(void* context, unsigned mask, void* payload,
                                                              Combine combine);
__attribute__((visibility("hidden"))) void* simt_policy_gather(void* context, int line, unsigned* lanes);
__attribute__((visibility("hidden"))) void* simt_policy_yield(void* context);
}

void* simt_policy_begin(void* context) {
  worker.main = context;
  return next_context(worker);
}

void* simt_policy_retire(void* context) {
  worker.idle[worker.idle_count++] = context;
  return next_context(worker);
}

void* simt_policy_yield(void* context) {
  Worker& w = worker;
  if (w.head == w.tail && w.started == w.size) {
    if (!w.gathering_count) return context;
    release_gathered(w);
  }
  w.ready[w.tail++ % kMaxThreads] = {context, simt_thread};
  return next_context(w);
}

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

// Linux 6.13 can make a page inaccessible without splitting the mapping, which costs a third.
static void guard(char* page) {
#ifndef SIMT_PORTABLE_SWITCH
  static Shared<bool> refused;
  if (!refused.load() && madvise(page, kPage, MADV_GUARD_INSTALL) == 0) return;
  refused.store(true);
#endif
  mprotect(page, kPage, PROT_NONE);
}

// One inaccessible page, then the stack, growing down towards it.
static char* stack_bottom(Worker& w, unsigned index) {
  const size_t spacing = launch.request.stack_bytes;
  if (!w.stacks) {
    void* all = mmap(nullptr, spacing * w.size, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (all == MAP_FAILED) fail({Kind::kInternal}, "no memory for the stacks of %u threads", w.size);
    w.stacks = static_cast<char*>(all);
  }
  guard(w.stacks + spacing * index);
  return w.stacks + spacing * index;
}

static size_t stack_bytes(unsigned index) {
  return launch.request.stack_bytes - index * kStagger % kStaggerSpan;
}

bool in_stack_guard(const char* address) {
  const Worker& w = worker;
  if (!w.stacks || address < w.stacks || address >= w.stacks + launch.request.stack_bytes * w.size)
    return false;
  return static_cast<size_t>(address - w.stacks) % launch.request.stack_bytes < kPage;
}

}  // namespace simt

#ifndef SIMT_PORTABLE_SWITCH

extern "C" void simt_begin();
extern "C" void simt_retire();

__asm__(R"(
.macro SUSPENDING name, policy
  .globl \name
  .type \name, @function
  .p2align 4
\name:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  subq $8, %rsp
  movq %rdx, %rcx
  movq %rsi, %rdx
  movq %rdi, %rsi
  movq %rsp, %rdi
  call \policy
  movq %rax, %rsp
  addq $8, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  popq %rcx
  jmp *%rcx
  .size \name, . - \name
.endm
.text
SUSPENDING simt_sync_block, simt_policy_block
SUSPENDING simt_sync_lanes, simt_policy_lanes
SUSPENDING simt_gather_lanes, simt_policy_gather
SUSPENDING simt_yield, simt_policy_yield
SUSPENDING simt_begin, simt_policy_begin
SUSPENDING simt_retire, simt_policy_retire
)");

namespace simt {

// A new fiber looks as if it had been suspended just before fiber_main: a gap, six registers, where to go on,
// and a return address that nobody uses. The odd multiple of 8 leaves the stack aligned as after a call.
Context new_fiber(Worker& w) {
  char* top = stack_bottom(w, w.fibers) + stack_bytes(w.fibers);
  ++w.fibers;
  void** frame = reinterpret_cast<void**>(top - 136);
  for (int i = 0; i < 9; ++i) frame[i] = nullptr;
  frame[7] = reinterpret_cast<void*>(&fiber_main);
  return frame;
}

void run_threads() { simt_begin(); }
void retire_fiber() { simt_retire(); }

}  // namespace simt

#else

#include <setjmp.h>
#include <stdlib.h>
#include <ucontext.h>

namespace simt {

// The C library's own ways, for processors without a version above: ucontext to begin on a new stack, setjmp
// from then on, because it leaves the signal mask alone and so needs no system call.
struct Portable {
  jmp_buf place;
  ucontext_t* fresh;
};

static void go_on(void* context) {
  auto* to = static_cast<Portable*>(context);
  if (to->fresh) setcontext(to->fresh);
  _longjmp(to->place, 1);
}

template <class Policy> static void suspend(Policy policy) {
  Portable here;
  here.fresh = nullptr;
  if (_setjmp(here.place) == 0) go_on(policy(&here));
}

void run_threads() { suspend(simt_policy_begin); }
void retire_fiber() { suspend(simt_policy_retire); }

Context new_fiber(Worker& w) {
  char* bottom = stack_bottom(w, w.fibers);
  const size_t bytes = stack_bytes(w.fibers);
  ++w.fibers;
  auto* context = static_cast<ucontext_t*>(calloc(1, sizeof(ucontext_t)));
  getcontext(context);
  context->uc_link = nullptr;
  context->uc_stack.ss_sp = bottom + kPage;
  context->uc_stack.ss_size = bytes - kPage;
  makecontext(context, &fiber_main, 0);
  auto* fiber = static_cast<Portable*>(calloc(1, sizeof(Portable)));
  fiber->fresh = context;
  return fiber;
}

}  // namespace simt

extern "C" void simt_sync_block(int line) {
  simt::suspend([=](void* c) { return simt::simt_policy_block(c, line); });
}
extern "C" void simt_sync_lanes(unsigned mask, void* payload, simt::Combine combine) {
  simt::suspend([=](void* c) { return simt::simt_policy_lanes(c, mask, payload, combine); });
}
extern "C" void simt_gather_lanes(int line, unsigned* lanes) {
  simt::suspend([=](void* c) { return simt::simt_policy_gather(c, line, lanes); });
}
extern "C" void simt_yield() { simt::suspend(simt::simt_policy_yield); }

#endif
