// Asynchronous copies (cp.async): kept until the wait that covers them.
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

namespace simt {

static Copies& copies_of(Thread* thread) {
  Worker& w = worker;
  if (!w.copies) w.copies = static_cast<Copies*>(calloc(kMaxThreads, sizeof(Copies)));
  return w.copies[thread->linear];
}

static inline void perform(const Copy& copy) {
  if (copy.zero_bytes == 0 && copy.bytes == 16) {
    memcpy(copy.destination, copy.source, 16);
    return;
  }
  const unsigned kept = copy.bytes - copy.zero_bytes;
  memcpy(copy.destination, copy.source, kept);
  memset(static_cast<char*>(copy.destination) + kept, 0, copy.zero_bytes);
}

static void perform_until(Copies& copies, unsigned group, bool waited = true) {
  const unsigned first = copies.done;
  while (copies.done < copies.count && copies.items[copies.done].group < group)
    perform(copies.items[copies.done++]);
  if (launch.findings && waited) check_copies_end(copies.items + first, copies.done - first);
  if (copies.done == copies.count) copies.done = copies.count = 0;
}

void finish_copies(Worker& w, Thread* thread) {
  Copies& copies = w.copies[thread->linear];
  perform_until(copies, ~0u, false);
  copies.groups = 0;
}

}  // namespace simt

using namespace simt;

static Failure misaligned(const void* address, const void* code) {
  Failure failure{Kind::kMisaligned};
  failure.region = locate(static_cast<const char*>(address), &failure.offset);
  failure.code = code;
  return failure;
}

static void need_alignment(const void* address, unsigned bytes, const char* what, const void* code) {
  if (likely(reinterpret_cast<uintptr_t>(address) % bytes == 0)) return;
  fail(misaligned(address, code), "%s of %u bytes at an address that is not a multiple of it", what, bytes);
}

extern "C" void simt_need_alignment(const void* address, unsigned bytes) {
  need_alignment(address, bytes, "an access", __builtin_return_address(0));
}

extern "C" void simt_copy_async(void* destination, const void* source, unsigned bytes, unsigned zero_bytes) {
  const void* code = __builtin_return_address(0);
  if (bytes != 4 && bytes != 8 && bytes != 16)
    fail(misaligned(destination, code), "an asynchronous copy of %u bytes; 4, 8 or 16 are possible", bytes);
  if (zero_bytes > bytes) {
    fail(misaligned(destination, code), "an asynchronous copy of %u bytes with %u of them zero", bytes,
         zero_bytes);
  }
  need_alignment(destination, bytes, "an asynchronous copy", code);
  if (zero_bytes < bytes) need_alignment(source, bytes, "an asynchronous copy", code);
  if (launch.findings) check_copy_begins(destination, source, bytes, zero_bytes, code);
  Copies& copies = copies_of(simt_thread);
  if (copies.count == copies.capacity) {
    copies.capacity = copies.capacity ? 2 * copies.capacity : 16;
    copies.items = static_cast<Copy*>(realloc(copies.items, copies.capacity * sizeof(Copy)));
  }
  copies.items[copies.count++] = {destination, source, bytes, zero_bytes, copies.groups};
}

extern "C" void simt_copy_commit() { ++copies_of(simt_thread).groups; }

extern "C" void simt_copy_wait(unsigned groups_left) {
  Copies& copies = copies_of(simt_thread);
  if (groups_left == 0) {
    perform_until(copies, ~0u);
  } else if (copies.groups > groups_left) {
    perform_until(copies, copies.groups - groups_left);
  }
}
