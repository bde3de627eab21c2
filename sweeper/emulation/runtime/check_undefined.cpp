// What compilers call in code built with parts of -fsanitize=undefined (LLVM's ubsan_handlers.h). Each call
// brings a description that the compiler made: the place in the source first, then types.
#include <stdio.h>
#include <string.h>

#include "check.h"

namespace simt {

struct SourcePlace {
  const char* file;
  uint32_t line, column;
};

struct TypeName {
  uint16_t kind, info;  // kind 0: an integer; info: 2·log2 of its bits plus whether it is signed
  char name[1];
};

struct IndexDescription {
  SourcePlace place;
  const TypeName *array, *index;
};

struct PointerDescription {
  SourcePlace place;
  const TypeName* type;
  unsigned char log_alignment, check;
};

struct ValueDescription {
  SourcePlace place;
  const TypeName* type;
};

struct ShiftDescription {
  SourcePlace place;
  const TypeName *left, *right;
};

// A value no wider than a pointer is passed in one; other values by address.
static long long value_of(const TypeName* type, uintptr_t passed) {
  if (type->kind != 0) return 0;
  const unsigned bits = 1u << (type->info >> 1);
  if (bits > 64) return 0;
  const unsigned unused = 64 - bits;
  const uint64_t shifted = static_cast<uint64_t>(passed) << unused;
  return type->info & 1 ? static_cast<long long>(shifted) >> unused
                        : static_cast<long long>(shifted >> unused);
}

static bool is_zero(const TypeName* type, uintptr_t passed) { return value_of(type, passed) == 0; }

static void note_at(Wrong wrong, const SourcePlace& place, const void* caller, Spot spot, const char* text) {
  if (!simt_thread) return;
  Finding finding{};
  finding.wrong = wrong;
  finding.region = spot.region;
  finding.offset = spot.offset;
  finding.line = place.line;
  finding.first = party(Doing::kNothing, code_at(caller));
  strncpy(finding.file, place.file ? place.file : "", sizeof finding.file - 1);
  strncpy(finding.text, text, sizeof finding.text - 1);
  add_finding(finding);
}

static void note_overflow(const void* description, const void* caller, const char* text) {
  note_at(Wrong::kOverflow, static_cast<const ValueDescription*>(description)->place, caller, {kNoMemory, 0},
          text);
}

static void note_binary(const void* description, uintptr_t a, char operation, uintptr_t b,
                        const void* caller) {
  const TypeName* type = static_cast<const ValueDescription*>(description)->type;
  char text[160];
  snprintf(text, sizeof text, "%lld %c %lld does not fit into %s", value_of(type, a), operation,
           value_of(type, b), type->name);
  note_overflow(description, caller, text);
}

}  // namespace simt

using namespace simt;

#define SIMT_CALLBACK extern "C" __attribute__((visibility("default")))
#define SIMT_CALLER __builtin_return_address(0)

SIMT_CALLBACK void __ubsan_handle_out_of_bounds(void* description, uintptr_t index) {
  const auto& d = *static_cast<const IndexDescription*>(description);
  char text[160];
  snprintf(text, sizeof text, "index %lld is out of range for %s", value_of(d.index, index), d.array->name);
  note_at(Wrong::kIndexRange, d.place, SIMT_CALLER, {kNoMemory, 0}, text);
}

SIMT_CALLBACK void __ubsan_handle_type_mismatch_v1(void* description, uintptr_t address) {
  const auto& d = *static_cast<const PointerDescription*>(description);
  char text[160];
  snprintf(text, sizeof text, "an access as %s, which needs an address that is a multiple of %u",
           d.type->name, 1u << d.log_alignment);
  note_at(Wrong::kMisaligned, d.place, SIMT_CALLER, spot_of(reinterpret_cast<const char*>(address)), text);
}

SIMT_CALLBACK void __ubsan_handle_add_overflow(void* description, uintptr_t a, uintptr_t b) {
  note_binary(description, a, '+', b, SIMT_CALLER);
}
SIMT_CALLBACK void __ubsan_handle_sub_overflow(void* description, uintptr_t a, uintptr_t b) {
  note_binary(description, a, '-', b, SIMT_CALLER);
}
SIMT_CALLBACK void __ubsan_handle_mul_overflow(void* description, uintptr_t a, uintptr_t b) {
  note_binary(description, a, '*', b, SIMT_CALLER);
}

SIMT_CALLBACK void __ubsan_handle_negate_overflow(void* description, uintptr_t value) {
  const TypeName* type = static_cast<const ValueDescription*>(description)->type;
  char text[160];
  snprintf(text, sizeof text, "-(%lld) does not fit into %s", value_of(type, value), type->name);
  note_overflow(description, SIMT_CALLER, text);
}

SIMT_CALLBACK void __ubsan_handle_divrem_overflow(void* description, uintptr_t a, uintptr_t b) {
  const TypeName* type = static_cast<const ValueDescription*>(description)->type;
  char text[160];
  if (is_zero(type, b)) {
    snprintf(text, sizeof text, "division of %lld by zero", value_of(type, a));
  } else {
    snprintf(text, sizeof text, "%lld / %lld does not fit into %s", value_of(type, a), value_of(type, b),
             type->name);
  }
  note_overflow(description, SIMT_CALLER, text);
}

SIMT_CALLBACK void __ubsan_handle_shift_out_of_bounds(void* description, uintptr_t, uintptr_t by) {
  const auto& d = *static_cast<const ShiftDescription*>(description);
  char text[160];
  snprintf(text, sizeof text, "a shift of %s by %lld", d.left->name, value_of(d.right, by));
  note_overflow(description, SIMT_CALLER, text);
}
