// Everything that can go wrong while a kernel runs, and how it reaches the report. A worker that fails stops;
// the others go on with blocks before the failed one, so that the first failure in block order is reported
// whatever the number of workers.
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "runtime.h"

namespace simt {

static bool report_lock;
static sem_t ended;
static __thread bool failing;

static void lock_report() {
  while (__atomic_test_and_set(&report_lock, __ATOMIC_ACQUIRE)) {
  }
}
static void unlock_report() { __atomic_clear(&report_lock, __ATOMIC_RELEASE); }

void worker_ends() {
  launch.switches.add(worker.switches + worker.head);
  sem_post(&ended);
  for (;;) pause();
}

void workers_wait(unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    while (sem_wait(&ended) != 0) {
    }
  }
}

void fail(const Failure& failure, const char* format, ...) {
  if (failing) _exit(1);  // a fault while reporting one
  failing = true;
  Report& report = *launch.report;
  const uint64_t ordinal = worker.ordinal;
  va_list arguments;
  va_start(arguments, format);
  char text[kTextBytes];
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (launch.findings && !failure.noted) check_failure(failure, text);
  lock_report();
  if (report.state != State::kFailed || ordinal < report.ordinal) {
    report.state = State::kFailed;
    report.kind = failure.kind;
    report.access = failure.access;
    report.region = failure.region;
    report.offset = failure.offset;
    report.line = failure.line;
    report.ordinal = ordinal;
    report.in_thread = simt_thread != nullptr;
    if (simt_thread) {
      const uint3 t = simt_thread->index;
      report.thread[0] = t.x, report.thread[1] = t.y, report.thread[2] = t.z;
    }
    const uint3 b = simt_block.index;
    report.block[0] = b.x, report.block[1] = b.y, report.block[2] = b.z;
    memcpy(report.text, text, sizeof text);
  }
  unlock_report();
  launch.stop_after.lower(ordinal);
  if (!simt_block.size.x) _exit(0);  // before any worker began
  worker_ends();
}

void fail(const Failure& failure) { fail(failure, "%s", ""); }

void note_hazard(int line, int other_line, unsigned exited) {
  if (launch.request.strict && !launch.findings) {
    const Failure failure{Kind::kBarrier, Access::kUnknown, kNowhere, 0, line};
    if (exited)
      fail(failure, "__syncthreads() in line %d after %u threads of the block have exited", line, exited);
    fail(failure, "threads of the block meet at different barriers, in lines %d and %d", other_line, line);
  }
  Hazard& hazard = launch.report->hazard;
  lock_report();
  if (!hazard.found || worker.ordinal < hazard.ordinal) {
    const uint3 b = simt_block.index;
    hazard = {worker.ordinal,  1, static_cast<uint32_t>(line), static_cast<uint32_t>(other_line), exited,
              {b.x, b.y, b.z}, 0};
  }
  unlock_report();
}

static Access access_of(const ucontext_t* context) {
#if defined(__x86_64__)
  constexpr greg_t kPageFault = 14, kWriteBit = 2;
  if (context->uc_mcontext.gregs[REG_TRAPNO] != kPageFault) return Access::kUnknown;
  return context->uc_mcontext.gregs[REG_ERR] & kWriteBit ? Access::kWrite : Access::kRead;
#else
  (void)context;
  return Access::kUnknown;
#endif
}

// Just behind the instruction that was interrupted, as a return address would be.
static const void* code_of(const ucontext_t* context) {
#if defined(__x86_64__)
  return reinterpret_cast<const char*>(context->uc_mcontext.gregs[REG_RIP]) + 1;
#elif defined(__aarch64__)
  return reinterpret_cast<const char*>(context->uc_mcontext.pc) + 1;
#else
  (void)context;
  return nullptr;
#endif
}

[[noreturn]] static void fail_at(Failure failure, const void* code, const char* text = "") {
  failure.code = code;
  fail(failure, "%s", text);
}

static void on_signal(int signal, siginfo_t* info, void* context) {
  if (!simt_thread) fail({Kind::kInternal}, "signal %d outside the kernel", signal);
  const void* code = code_of(static_cast<ucontext_t*>(context));
  if (signal == SIGFPE) fail_at({Kind::kArithmetic}, code);
  if (signal == SIGILL) fail({Kind::kIllegalInstruction});
  if (signal == SIGTRAP) fail_at({Kind::kTrap}, code, "a trap instruction");
  if (signal == SIGABRT)
    fail({Kind::kInternal}, "the C library ended the kernel: memory of the process is damaged");
  const char* address = static_cast<const char*>(info->si_addr);
  // No address means a general protection fault: on x86-64 an aligned vector access that is not, or an
  // address outside what the processor can form.
  if (signal == SIGSEGV && info->si_code == SI_KERNEL) fail_at({Kind::kMisaligned}, code);
  if (in_stack_guard(address)) fail({Kind::kLocalMemory}, "%zu", launch.request.stack_bytes);
  Failure failure{Kind::kIllegalAddress, access_of(static_cast<ucontext_t*>(context))};
  failure.region = locate(address, &failure.offset);
  if (signal == SIGBUS) fail_at({Kind::kMisaligned}, code);
  fail_at(failure, code);
}

void watch_signals_of_this_thread() {
  constexpr size_t kBytes = 64 << 10;
  stack_t stack{};
  stack.ss_sp = malloc(kBytes);
  stack.ss_size = kBytes;
  sigaltstack(&stack, nullptr);
}

void watch_signals() {
  sem_init(&ended, 0, 0);
  struct sigaction action{};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  const int watched[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
  for (const int signal : watched) sigaction(signal, &action, nullptr);
  watch_signals_of_this_thread();
}

static const char* base_name(const char* file) {
  const char* slash = strrchr(file, '/');
  return slash ? slash + 1 : file;
}

}  // namespace simt

extern "C" void simt_trap(const char* what, const char* file, int line) {
  simt::fail({simt::Kind::kTrap, simt::Access::kUnknown, simt::kNowhere, 0, line, file}, "%s at %s:%d", what,
             simt::base_name(file), line);
}

// What the C library's assert() calls; the launcher's own takes precedence over it.
extern "C" __attribute__((visibility("default"), noreturn)) void __assert_fail(const char* condition,
                                                                               const char* file,
                                                                               unsigned line,
                                                                               const char*) noexcept {
  const int number = static_cast<int>(line);
  simt::fail({simt::Kind::kAssertion, simt::Access::kUnknown, simt::kNowhere, 0, number, file}, "%s at %s:%u",
             condition, simt::base_name(file), line);
}

extern "C" int simt_print(const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  int bytes = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (bytes < 0) return bytes;
  size_t kept = static_cast<size_t>(bytes) < sizeof text ? static_cast<size_t>(bytes) : sizeof text - 1;
  simt::Report& report = *simt::launch.report;
  simt::lock_report();
  const size_t room = simt::kPrintedBytes - report.printed;
  if (kept > room) kept = room;
  memcpy(report.output + report.printed, text, kept);
  report.printed += static_cast<uint32_t>(kept);
  report.dropped += static_cast<size_t>(bytes) - kept;
  simt::unlock_report();
  return bytes;
}

extern "C" long long simt_clock() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}
