// The memory that a kernel sees. Buffers and dynamic shared memory end where an inaccessible page begins;
// static shared memory is the module's thread-local storage.
#include <link.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime.h"

extern "C" void* __tls_get_addr(size_t*);

namespace simt {

constexpr size_t kPage = 4096;
constexpr size_t kMargin = size_t{64} << 20;
constexpr int kFill = 0xff;  // a NaN in every floating type

static size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// On both sides as much inaccessible address space as the buffer is large, and no less than kMargin: an index
// computed with the wrong extent still lands in it.
static size_t margin(const BufferRequest& buffer) {
  return whole_pages(buffer.bytes < kMargin ? kMargin : buffer.bytes);
}

void map_buffers(Request& request) {
  for (size_t i = 0; i < request.buffer_count; ++i) {
    BufferRequest& buffer = request.buffers[i];
    const size_t side = margin(buffer);
    void* space = mmap(nullptr, side * 2 + buffer.map_bytes, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED)
      fail({Kind::kInternal}, "no address space for a buffer of %zu bytes", buffer.bytes);
    char* base = static_cast<char*>(space) + side;
    const int protection = buffer.writable ? PROT_READ | PROT_WRITE : PROT_READ;
    if (mmap(base, buffer.map_bytes, protection, MAP_SHARED | MAP_FIXED, buffer.descriptor, 0) ==
        MAP_FAILED) {
      fail({Kind::kInternal}, "a buffer of %zu bytes cannot be mapped", buffer.bytes);
    }
    buffer.data = base + buffer.offset;
  }
}

struct Segment {
  const void* inside;
  size_t tls_module, tls_bytes;
};

static int find_segment(dl_phdr_info* info, size_t, void* argument) {
  auto* segment = static_cast<Segment*>(argument);
  const auto wanted = reinterpret_cast<uintptr_t>(segment->inside);
  bool holds = false;
  size_t tls_bytes = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type == PT_TLS) tls_bytes = header.p_memsz;
    const uintptr_t start = info->dlpi_addr + header.p_vaddr;
    if (header.p_type == PT_LOAD && wanted >= start && wanted < start + header.p_memsz) holds = true;
  }
  if (!holds) return 0;
  segment->tls_module = info->dlpi_tls_modid;
  segment->tls_bytes = tls_bytes;
  return 1;
}

// The largest power of two that divides `bytes`, within [16, 1024]: an array of that many bytes can end at a
// page's end and begin at a multiple of it.
static size_t alignment_of(size_t bytes) {
  size_t alignment = 16;
  while (alignment < 1024 && bytes % (alignment * 2) == 0) alignment *= 2;
  return alignment;
}

void map_shared(Worker& w, const Module* module) {
  Segment segment{module, 0, 0};
  dl_iterate_phdr(find_segment, &segment);
  if (segment.tls_bytes) {
    size_t index[2] = {segment.tls_module, 0};
    w.static_shared = static_cast<char*>(__tls_get_addr(index));
    w.static_shared_bytes = segment.tls_bytes;
  }
  const size_t bytes = launch.request.dynamic_bytes;
  const size_t body = whole_pages(bytes);
  void* space = mmap(nullptr, body + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (space == MAP_FAILED) fail({Kind::kInternal}, "no memory for %zu bytes of shared memory", bytes);
  w.dynamic_begin = static_cast<char*>(space) + kPage;
  w.dynamic_end = w.dynamic_begin + body;
  if (bytes) {
    mprotect(w.dynamic_begin, body, PROT_READ | PROT_WRITE);
    memset(w.dynamic_begin, kFill, body);
  }
  const size_t alignment = alignment_of(bytes);
  simt_dynamic_shared = w.dynamic_end - (bytes + alignment - 1) / alignment * alignment;
}

void fill_shared(Worker& w) {
  if (w.static_shared) memset(w.static_shared, kFill, w.static_shared_bytes);
  if (launch.request.dynamic_bytes) memset(simt_dynamic_shared, kFill, launch.request.dynamic_bytes);
}

static const char* first_changed(const char* begin, const char* end) {
  while (begin < end && *begin == static_cast<char>(kFill)) ++begin;
  return begin;
}

// The rest of the pages that hold dynamic shared memory: nobody may write there.
void check_dynamic_shared(Worker& w) {
  const char* end = simt_dynamic_shared + launch.request.dynamic_bytes;
  const char* changed = first_changed(end, w.dynamic_end);
  if (changed == w.dynamic_end) changed = first_changed(w.dynamic_begin, simt_dynamic_shared);
  if (changed == simt_dynamic_shared) return;
  fail({Kind::kOverrun, Access::kWrite, kDynamicShared, changed - simt_dynamic_shared});
}

int32_t locate(const char* address, int64_t* offset) {
  const Request& request = launch.request;
  for (size_t i = 0; i < request.buffer_count; ++i) {
    const BufferRequest& buffer = request.buffers[i];
    if (!buffer.data) continue;
    const char* map = buffer.data - buffer.offset;
    const size_t side = margin(buffer);
    if (address >= map - side && address < map + buffer.map_bytes + side) {
      *offset = address - buffer.data;
      return static_cast<int32_t>(i);
    }
  }
  if (worker.dynamic_end && address >= worker.dynamic_begin - kPage && address < worker.dynamic_end + kPage) {
    *offset = address - simt_dynamic_shared;
    return kDynamicShared;
  }
  if (address >= worker.static_shared && address < worker.static_shared + worker.static_shared_bytes) {
    *offset = address - worker.static_shared;
    return kStaticShared;
  }
  *offset = reinterpret_cast<int64_t>(address);
  return reinterpret_cast<uintptr_t>(address) < 65536 ? kNull : kNowhere;
}

}  // namespace simt
