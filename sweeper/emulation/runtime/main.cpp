// The launcher: runs one kernel of one module once, and ends. `launcher REQUEST REPORT PARENT`: two
// descriptors, and the process to end with.
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "supervise.h"

namespace simt {

static const Module* load_module() {
  void* handle = dlopen(launch.request.module, RTLD_NOW | RTLD_LOCAL);
  if (!handle) fail({Kind::kModule}, "%s", dlerror());
  const auto* module = static_cast<const Module*>(dlsym(handle, "simt_module"));
  if (!module) fail({Kind::kModule}, "it exports no kernels");
  if (module->abi != kAbi)
    fail({Kind::kModule}, "it was built for version %u of the emulator, this is %u", module->abi, kAbi);
  if (launch.request.kernel >= module->kernel_count) {
    fail({Kind::kModule}, "it has %u kernels, number %u was asked for", module->kernel_count,
         launch.request.kernel);
  }
  if (module->checked != launch.request.checked)
    fail({Kind::kModule}, "it was built %s checks", module->checked ? "with" : "without");
  launch.kernel = module->kernels + launch.request.kernel;
  return module;
}

static const char* kind_name(char kind) {
  switch (kind) {
    case 'f': return "floating-point";
    case 'i': return "integer";
    case 'h': return "__half";
    case 'b': return "__nv_bfloat16";
    case 'p': return "pointer";
    default: return "structure";
  }
}

static const char* article(char kind) { return kind == 'i' ? "an" : "a"; }

// Reported with the argument's number as region: what the kernel takes and what was given.
[[noreturn]] static void bad_argument(size_t index, const Parameter& wanted, char given, size_t given_bytes) {
  fail({Kind::kArgument, Access::kUnknown, static_cast<int32_t>(index)},
       "the kernel takes %s %s of %u bytes, given is %s %s of %zu bytes", article(wanted.kind),
       kind_name(wanted.kind), wanted.bytes, article(given), kind_name(given), given_bytes);
}

static bool elements_agree(const Parameter& p, char kind, size_t bytes) {
  const bool any = p.pointee == 'v' || p.pointee == 's' || p.pointee == 'p' || p.pointee == 'c';
  return any || (p.pointee == kind && p.pointee_bytes == bytes);
}

static void check_argument(size_t index, const Parameter& p, const ArgumentRequest& a) {
  if (a.buffer < 0) {
    const bool same_kind = p.kind == a.kind || p.kind == 's' || a.kind == 's';
    if (p.kind == 'p' || !same_kind || p.bytes != a.bytes) bad_argument(index, p, a.kind, a.bytes);
    return;
  }
  const BufferRequest& buffer = launch.request.buffers[static_cast<size_t>(a.buffer)];
  if (p.kind != 'p') bad_argument(index, p, 'p', sizeof(void*));
  if (!elements_agree(p, a.kind, buffer.item_bytes)) {
    fail({Kind::kArgument, Access::kUnknown, static_cast<int32_t>(index)},
         "the kernel takes a pointer to %s elements of %u bytes, given is an array of %s elements of %zu "
         "bytes",
         kind_name(p.pointee), p.pointee_bytes, kind_name(a.kind), buffer.item_bytes);
  }
  if (a.is_output && p.constant) {
    fail({Kind::kArgument, Access::kUnknown, static_cast<int32_t>(index)},
         "it is an output, the kernel takes a pointer to constant elements");
  }
}

constexpr size_t kSlot = 128;

static size_t slot_bytes(const ArgumentRequest& a) {
  const size_t bytes = a.buffer >= 0 ? sizeof(void*) : a.bytes;
  return (bytes + kSlot - 1) / kSlot * kSlot;
}

static void prepare_arguments() {
  Request& request = launch.request;
  if (request.argument_count != launch.kernel->parameter_count) {
    fail({Kind::kArgument}, "the kernel takes %u arguments, given are %zu", launch.kernel->parameter_count,
         request.argument_count);
  }
  // One piece of memory: the addresses, then the values, each with room for any alignment.
  const size_t addresses = (request.argument_count * sizeof(void*) + kSlot - 1) / kSlot * kSlot + kSlot;
  size_t bytes = addresses;
  for (size_t i = 0; i < request.argument_count; ++i) bytes += slot_bytes(request.arguments[i]);
  char* all = static_cast<char*>(aligned_alloc(kSlot, bytes));
  launch.arguments = reinterpret_cast<void**>(all);
  if (launch.findings) check_maps_arguments(all, all + bytes);
  char* slot = all + addresses;
  for (size_t i = 0; i < request.argument_count; ++i) {
    ArgumentRequest& a = request.arguments[i];
    check_argument(i, launch.kernel->parameters[i], a);
    if (a.buffer >= 0) {
      memcpy(slot, &request.buffers[static_cast<size_t>(a.buffer)].data, sizeof(void*));
    } else {
      memcpy(slot, a.value, a.bytes);
    }
    launch.arguments[i] = slot;
    slot += slot_bytes(a);
  }
}

static void map_findings() {
  if (!launch.request.checked) return;
  constexpr int kAccess = PROT_READ | PROT_WRITE;
  void* pages = mmap(nullptr, sizeof(Findings), kAccess, MAP_SHARED, launch.request.findings, 0);
  if (pages == MAP_FAILED) fail({Kind::kInternal}, "no memory for findings");
  launch.findings = static_cast<Findings*>(pages);
}

static void* work(void* module) {
  watch_signals_of_this_thread();
  start_worker();
  map_shared(worker, static_cast<const Module*>(module));
  if (launch.findings) check_maps_shared(worker);
  for (;;) {
    const uint64_t ordinal = launch.next.add(1);
    if (ordinal >= launch.request.block_count || ordinal > launch.stop_after.load()) break;
    run_block(ordinal);
  }
  worker_ends();
}

static uint64_t cpu_ns() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

static void run_workers(const Module* module) {
  const uint64_t blocks = launch.request.block_count;
  const unsigned workers =
      launch.request.workers < blocks ? launch.request.workers : static_cast<unsigned>(blocks);
  for (unsigned i = 0; i < workers; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, work, const_cast<Module*>(module)) != 0) {
      fail({Kind::kInternal}, "worker %u of %u cannot be started", i + 1, workers);
    }
  }
  workers_wait(workers);
}

}  // namespace simt

int main(int count, char** values) {
  using namespace simt;
  if (count > 3 && strcmp(values[1], "--supervise") == 0) return supervise(atoi(values[2]), values + 3);
  if (count != 4) return 2;
  die_with_parent(atoi(values[3]), SIGKILL);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
  void* page = mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED, atoi(values[2]), 0);
  if (page == MAP_FAILED) return 2;
  launch.report = static_cast<Report*>(page);
  launch.report->version = kReportVersion;
  launch.stop_after.store(~uint64_t{0});
  watch_signals();
  read_request(atoi(values[1]), launch.request);
  map_buffers(launch.request);
  map_findings();
  const Module* module = load_module();
  if (launch.findings) check_maps_module(module);
  prepare_arguments();
  const uint64_t before = cpu_ns();
  run_workers(module);
  Report& report = *launch.report;
  report.cpu_ns = cpu_ns() - before;
  report.switches = launch.switches.load();
  if (report.state == State::kNothing) report.state = State::kFinished;
  _exit(0);
}
