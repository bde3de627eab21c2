// Whose memory an address is: the arrays of the launch, shared memory, and what only a thread itself sees.
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"

namespace simt {

constexpr size_t kPage = 4096;
constexpr size_t kNear = 4096;  // how far outside shared memory an address still counts as meant for it

struct Image {
  const char *begin, *end;
};

static Area static_area, dynamic_area;
static Area* global_areas;  // the launch's arrays, then the module's variables
static size_t global_count;
static Area* recent;
constexpr uint16_t kGuard = 0xffff;
static uint16_t* owner;  // for each byte of static shared memory its variable, counted from 1; 0 for gaps
static Image module_image, launcher_image;
static const char* arguments_begin;
static const char* arguments_end;

void* reserve(size_t bytes) {
  void* space = mmap(nullptr, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) fail({Kind::kInternal}, "no address space to follow %zu bytes", bytes);
  return space;
}

static Area make_area(char* begin, size_t bytes, int32_t region, bool writable, bool shared) {
  Area area{begin, bytes, nullptr, nullptr, region, writable, shared, 0, 0, shared};
  if (writable) {
    const size_t words = (bytes + 3) / 4;
    area.words = static_cast<Cell*>(reserve(words * sizeof(Cell)));
    area.split = static_cast<Cell*>(reserve(4 * words * sizeof(Cell)));
  }
  return area;
}

struct Images {
  const char* inside;
  Image found;
};

static int find_image(dl_phdr_info* info, size_t, void* argument) {
  auto* wanted = static_cast<Images*>(argument);
  Image image{nullptr, nullptr};
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD) continue;
    const char* begin = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    if (!image.begin || begin < image.begin) image.begin = begin;
    if (begin + header.p_memsz > image.end) image.end = begin + header.p_memsz;
  }
  if (wanted->inside < image.begin || wanted->inside >= image.end) return 0;
  wanted->found = image;
  return 1;
}

static Image image_of(const void* inside) {
  Images search{static_cast<const char*>(inside), {nullptr, nullptr}};
  dl_iterate_phdr(find_image, &search);
  return search.found;
}

void check_maps_module(const Module* module) {
  module_image = image_of(module);
  set_module_base(module_image.begin);
  launcher_image = image_of(&launch);
  const Request& request = launch.request;
  global_areas = static_cast<Area*>(calloc(request.buffer_count + request.device_count + 1, sizeof(Area)));
  for (size_t i = 0; i < request.buffer_count; ++i) {
    const BufferRequest& b = request.buffers[i];
    Area& area = global_areas[global_count++];
    area = make_area(b.data, b.bytes, static_cast<int32_t>(i), b.writable, false);
    area.row_bytes = b.row_bytes;
    area.pitch_bytes = b.pitch_bytes;
    area.empty = b.empty;
  }
  for (size_t i = 0; i < request.device_count; ++i) {
    const VariableRequest& v = request.devices[i];
    char* begin = const_cast<char*>(module_image.begin) + v.offset;
    global_areas[global_count++] = make_area(begin, v.bytes, kDevice, true, false);
  }
}

void check_maps_shared(Worker& w) {
  static_area = make_area(w.static_shared, w.static_shared_bytes, kStaticShared, true, true);
  dynamic_area = make_area(simt_dynamic_shared, launch.request.dynamic_bytes, kDynamicShared, true, true);
  owner = static_cast<uint16_t*>(reserve(w.static_shared_bytes * sizeof *owner));
  for (size_t i = 0; i < launch.request.variable_count; ++i) {
    const VariableRequest& v = launch.request.variables[i];
    for (size_t at = v.offset; at < v.offset + v.bytes && at < w.static_shared_bytes; ++at)
      owner[at] = v.guard ? kGuard : static_cast<uint16_t>(i + 1);
  }
}

void check_maps_arguments(const void* begin, const void* end) {
  arguments_begin = static_cast<const char*>(begin);
  arguments_end = static_cast<const char*>(end);
}

static inline bool within(const Area& area, const char* address) {
  return static_cast<size_t>(address - area.begin) < area.bytes;
}

static Area* search(const char* address) {
  for (size_t i = 0; i < global_count; ++i) {
    if (within(global_areas[i], address)) return recent = &global_areas[i];
  }
  return nullptr;
}

Area* find_area(const char* address) {
  if (within(static_area, address)) return &static_area;
  if (within(dynamic_area, address)) return &dynamic_area;
  if (recent && within(*recent, address)) return recent;
  return search(address);
}

bool is_guard(const Area& area, const char* address) {
  return area.region == kStaticShared && owner[address - area.begin] == kGuard;
}

bool is_private(const char* address) {
  const Worker& w = worker;
  const auto inside = [address](const void* begin, const void* end) {
    return address >= begin && address < end;
  };
  return inside(w.stacks, w.stacks + launch.request.stack_bytes * w.size) || inside(&worker, &worker + 1) ||
         inside(&simt_thread, &simt_thread + 1) || inside(&simt_block, &simt_block + 1) ||
         inside(&simt_dynamic_shared, &simt_dynamic_shared + 1) ||
         inside(module_image.begin, module_image.end) || inside(launcher_image.begin, launcher_image.end) ||
         inside(arguments_begin, arguments_end);
}

bool is_mapped_shared(const char* address) {
  const Worker& w = worker;
  return within(static_area, address) || (address >= w.dynamic_begin && address < w.dynamic_end);
}

bool covers(const Area& area, const char* address, size_t bytes) {
  const size_t offset = static_cast<size_t>(address - area.begin);
  if (bytes > area.bytes - offset) return false;
  if (area.pitch_bytes) return offset % area.pitch_bytes + bytes <= area.row_bytes;
  if (area.region != kStaticShared) return true;
  return owner[offset] && owner[offset] == owner[offset + bytes - 1];
}

Spot in_area(const Area& area, const char* address) {
  return {area.region, address - (area.region == kDevice ? module_image.begin : area.begin)};
}

static bool is_near(const Area& area, const char* address) {
  return area.bytes && address >= area.begin - kNear && address < area.begin + area.bytes + kNear;
}

Spot spot_of(const char* address) {
  if (is_near(dynamic_area, address)) return in_area(dynamic_area, address);
  if (is_near(static_area, address)) return in_area(static_area, address);
  Spot spot{};
  spot.region = locate(address, &spot.offset);
  return spot;
}

// Gives an access that is wrong something to go to, so that the kernel goes on: a page of its own, in what is
// set aside around every array. Writes to an input go to a copy of its page.
bool make_accessible(const char* address, size_t bytes) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(address) / kPage * kPage;
  const uintptr_t last = (reinterpret_cast<uintptr_t>(address) + bytes - 1) / kPage * kPage;
  for (uintptr_t page = first; page <= last; page += kPage) {
    char* start = reinterpret_cast<char*>(page);
    int64_t offset;
    const int32_t region = locate(start, &offset);
    if (region < 0) return false;
    const BufferRequest& b = launch.request.buffers[region];
    const char* map = b.data - b.offset;
    const bool mapped = start >= map && start < map + b.map_bytes;
    if (mapped && b.writable) continue;
    if (mapped) {
      char kept[kPage];
      memcpy(kept, start, kPage);
      if (mmap(start, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
          MAP_FAILED)
        return false;
      memcpy(start, kept, kPage);
    } else if (mprotect(start, kPage, PROT_READ | PROT_WRITE) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace simt
