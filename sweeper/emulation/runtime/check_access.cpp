// One access of a kernel: whose memory it is, and whether it may be made.
#include "check.h"

namespace simt {

static const char* outside_text(Doing doing) {
  return !writes(doing) ? "a read of memory that belongs to no array"
                        : "a write to memory that belongs to no array";
}

static __attribute__((noinline)) void outside(const char* address, size_t bytes, Doing doing, uint64_t code) {
  note(Wrong::kOutOfBounds, spot_of(address), bytes, party(doing, code), {}, outside_text(doing));
  if (is_mapped_shared(address) && is_mapped_shared(address + bytes - 1)) return;
  if (make_accessible(address, bytes)) return;
  Failure failure{Kind::kIllegalAddress, writes(doing) ? Access::kWrite : Access::kRead};
  failure.region = locate(address, &failure.offset);
  failure.noted = true;
  fail(failure);
}

static __attribute__((noinline)) void written_input(Area& area, const char* address, size_t bytes,
                                                    Doing doing, uint64_t code) {
  note(Wrong::kReadOnly, in_area(area, address), bytes, party(doing, code), {}, "a write to an input");
  make_accessible(address, bytes);
}

void check_access(const void* where, size_t bytes, Doing doing, uint64_t code) {
  if (!simt_thread || !bytes) return;
  const char* address = static_cast<const char*>(where);
  Area* area = find_area(address);
  if (!area) {
    if (!is_private(address)) outside(address, bytes, doing, code);
    return;
  }
  if (unlikely(!covers(*area, address, bytes))) {
    outside(address, bytes, doing, code);
    return;
  }
  if (unlikely(is_guard(*area, address))) return;
  if (area->writable) {
    follow(*area, address, bytes, doing, code);
  } else if (writes(doing)) {
    written_input(*area, address, bytes, doing, code);
  }
}

// Through volatile, threads may talk to each other in global memory; in shared memory that orders nothing,
// and code which relies on it misses a __syncwarp.
void check_volatile(const void* address, size_t bytes, Doing doing, uint64_t code) {
  const Area* area = simt_thread ? find_area(static_cast<const char*>(address)) : nullptr;
  if (area && !area->shared) doing = doing == Doing::kRead ? Doing::kStrongRead : Doing::kStrongWrite;
  check_access(address, bytes, doing, code);
}

}  // namespace simt
