// Reading a request: lines of `key value…`, written by launcher.py.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime.h"

namespace simt {

static unsigned hex_digit(char c) { return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10); }

static bool read_buffer(Request& r, const char* rest) {
  if (r.buffer_count == kMaxArguments) return false;
  BufferRequest& b = r.buffers[r.buffer_count++];
  int writable, empty;
  const int read = sscanf(rest, "%d %zu %zu %zu %zu %d %d %zu %zu", &b.descriptor, &b.map_bytes, &b.offset,
                          &b.bytes, &b.item_bytes, &writable, &empty, &b.row_bytes, &b.pitch_bytes);
  b.writable = writable != 0;
  b.empty = empty != 0;
  return read == 9;
}

static bool read_array(Request& r, const char* rest) {
  if (r.argument_count == kMaxArguments) return false;
  ArgumentRequest& a = r.arguments[r.argument_count++];
  int output;
  const int read = sscanf(rest, "%d %c %d", &a.buffer, &a.kind, &output);
  a.is_output = output != 0;
  return read == 3;
}

// `kind hex`
static bool read_scalar(Request& r, const char* rest) {
  const char* hex = rest + 2;
  const size_t digits = strlen(rest) < 2 ? 0 : strlen(hex);
  if (r.argument_count == kMaxArguments || digits == 0 || digits % 2 || digits / 2 > kMaxScalarBytes)
    return false;
  ArgumentRequest& a = r.arguments[r.argument_count++];
  a.buffer = -1;
  a.kind = rest[0];
  a.bytes = digits / 2;
  a.value = static_cast<unsigned char*>(malloc(a.bytes));
  for (size_t i = 0; i < a.bytes; ++i) {
    a.value[i] = static_cast<unsigned char>(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
  }
  return true;
}

static bool read_blocks(Request& r, const char* rest) {
  int descriptor;
  if (sscanf(rest, "%d %" SCNu64, &descriptor, &r.block_count) != 2) return false;
  void* list = mmap(nullptr, r.block_count * sizeof(uint64_t), PROT_READ, MAP_SHARED, descriptor, 0);
  r.blocks = static_cast<const uint64_t*>(list);
  return list != MAP_FAILED;
}

static bool read_variable(VariableRequest*& all, size_t& count, const char* rest, bool guard = false) {
  if (!all) all = static_cast<VariableRequest*>(calloc(kMaxVariables, sizeof *all));
  if (count == kMaxVariables) return false;
  VariableRequest& v = all[count++];
  v.guard = guard;
  return sscanf(rest, "%zu %zu", &v.offset, &v.bytes) == 2;
}

static bool read_three(const char* rest, unsigned (&sizes)[3]) {
  return sscanf(rest, "%u %u %u", &sizes[0], &sizes[1], &sizes[2]) == 3;
}

static bool read_line(Request& r, const char* key, const char* rest) {
  const auto is = [key](const char* name) { return strcmp(key, name) == 0; };
  if (is("module"))
    return static_cast<size_t>(snprintf(r.module, sizeof r.module, "%s", rest)) < sizeof r.module;
  if (is("kernel")) return sscanf(rest, "%u", &r.kernel) == 1;
  if (is("grid")) return read_three(rest, r.grid);
  if (is("block")) return read_three(rest, r.block);
  if (is("shared")) return sscanf(rest, "%zu", &r.dynamic_bytes) == 1;
  if (is("stack")) return sscanf(rest, "%zu", &r.stack_bytes) == 1;
  if (is("order")) return sscanf(rest, "%u", &r.order) == 1;
  if (is("seed")) return sscanf(rest, "%" SCNu64, &r.seed) == 1;
  if (is("workers")) return sscanf(rest, "%u", &r.workers) == 1;
  if (is("strict")) return r.strict = rest[0] == '1', true;
  if (is("checked")) return r.checked = sscanf(rest, "%d", &r.findings) == 1;
  if (is("variable")) return read_variable(r.variables, r.variable_count, rest);
  if (is("guard")) return read_variable(r.variables, r.variable_count, rest, true);
  if (is("device")) return read_variable(r.devices, r.device_count, rest);
  if (is("buffer")) return read_buffer(r, rest);
  if (is("array")) return read_array(r, rest);
  if (is("scalar")) return read_scalar(r, rest);
  return is("blocks") && read_blocks(r, rest);
}

void read_request(int descriptor, Request& request) {
  FILE* file = fdopen(descriptor, "r");
  static char line[2 * kMaxScalarBytes + 64];
  while (file && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    char* space = strchr(line, ' ');
    if (space) *space = 0;
    if (!space || !read_line(request, line, space + 1)) {
      fail({Kind::kInternal}, "the request's line %s cannot be read", line);
    }
  }
  if (!request.blocks) {
    request.block_count = static_cast<uint64_t>(request.grid[0]) * request.grid[1] * request.grid[2];
  }
}

}  // namespace simt
