// Reading a request: lines of `key value…`, written by launcher.py.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime.h"

namespace simt {

static unsigned char hex_digit(char c) { return static_cast<unsigned char>(c <= '9' ? c - '0' : c - 'a' + 10); }

static std::vector<unsigned char> bytes_of(const char* hex) {
  std::vector<unsigned char> bytes;
  for (; hex[0] && hex[1]; hex += 2) bytes.push_back(static_cast<unsigned char>(hex_digit(hex[0]) << 4 | hex_digit(hex[1])));
  return bytes;
}

static bool read_line(Request& r, const char* key, const char* rest) {
  const auto is = [key](const char* name) { return strcmp(key, name) == 0; };
  if (is("module")) return r.module = rest, true;
  if (is("kernel")) return sscanf(rest, "%u", &r.kernel) == 1;
  if (is("grid")) return sscanf(rest, "%u %u %u", &r.grid[0], &r.grid[1], &r.grid[2]) == 3;
  if (is("block")) return sscanf(rest, "%u %u %u", &r.block[0], &r.block[1], &r.block[2]) == 3;
  if (is("shared")) return sscanf(rest, "%zu", &r.dynamic_bytes) == 1;
  if (is("stack")) return sscanf(rest, "%zu", &r.stack_bytes) == 1;
  if (is("order")) return sscanf(rest, "%u", &r.order) == 1;
  if (is("seed")) return sscanf(rest, "%" SCNu64, &r.seed) == 1;
  if (is("workers")) return sscanf(rest, "%u", &r.workers) == 1;
  if (is("strict")) return r.strict = rest[0] == '1', true;
  if (is("buffer")) {
    BufferRequest b{};
    int writable;
    if (sscanf(rest, "%d %zu %zu %zu %zu %d", &b.descriptor, &b.map_bytes, &b.offset, &b.bytes, &b.item_bytes, &writable) != 6) return false;
    b.writable = writable != 0;
    r.buffers.push_back(b);
    return true;
  }
  if (is("array")) {
    ArgumentRequest a{-1, 's', false, {}};
    int output;
    if (sscanf(rest, "%d %c %d", &a.buffer, &a.kind, &output) != 3) return false;
    a.is_output = output != 0;
    r.arguments.push_back(a);
    return true;
  }
  if (is("scalar")) {
    ArgumentRequest a{-1, 's', false, {}};
    char hex[512];
    if (sscanf(rest, "%c %511s", &a.kind, hex) != 2) return false;
    a.value = bytes_of(hex);
    r.arguments.push_back(a);
    return true;
  }
  if (is("blocks")) {
    int descriptor;
    if (sscanf(rest, "%d %" SCNu64, &descriptor, &r.block_count) != 2) return false;
    void* list = mmap(nullptr, r.block_count * sizeof(uint64_t), PROT_READ, MAP_SHARED, descriptor, 0);
    r.blocks = static_cast<const uint64_t*>(list);
    return list != MAP_FAILED;
  }
  return false;
}

Request read_request(int descriptor) {
  Request request;
  FILE* file = fdopen(descriptor, "r");
  char line[8192];
  while (file && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    char* space = strchr(line, ' ');
    if (space) *space = 0;
    if (!space || !read_line(request, line, space + 1)) fail({Kind::kInternal}, "request line %s is not understood", line);
  }
  if (!request.blocks) request.block_count = static_cast<uint64_t>(request.grid[0]) * request.grid[1] * request.grid[2];
  return request;
}

}  // namespace simt
