// The list of what was found: each pair of places once, with how often it happened.
#include <string.h>

#include "check.h"

namespace simt {

static uint32_t slots[2 * kMaxFindings];  // number of a finding plus one, by hash

static uint64_t module_base;
static struct {
  const Thread* thread;
  Wrong wrong;
  uint32_t time;
} latest;

uint64_t code_at(const void* return_address) {
  return reinterpret_cast<uint64_t>(return_address) - module_base;
}

void set_module_base(const char* base) { module_base = reinterpret_cast<uint64_t>(base); }

bool already_noted(Wrong wrong) {
  return latest.thread && latest.thread == simt_thread && latest.wrong == wrong && latest.time == now;
}

static uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

static uint64_t hash_of(const Finding& f) {
  uint64_t hash = mixed(static_cast<uint64_t>(f.wrong), static_cast<uint64_t>(f.region));
  hash = mixed(mixed(hash, f.first.code), f.second.code);
  hash = mixed(hash, f.line);
  for (const char* c = f.file; *c; ++c) hash = mixed(hash, static_cast<uint64_t>(*c));
  return hash;
}

static bool same_places(const Finding& a, const Finding& b) {
  return a.wrong == b.wrong && a.region == b.region && a.first.code == b.first.code &&
         a.second.code == b.second.code && a.line == b.line && strcmp(a.file, b.file) == 0;
}

void add_finding(const Finding& finding) {
  Findings& all = *launch.findings;
  latest = {simt_thread, finding.wrong, now};
  for (uint64_t i = hash_of(finding);; ++i) {
    uint32_t& slot = slots[i % (2 * kMaxFindings)];
    if (slot) {
      Finding& known = all.items[slot - 1];
      if (!same_places(known, finding)) continue;
      ++known.count;
      return;
    }
    if (all.count == kMaxFindings) {
      ++all.dropped;
      return;
    }
    all.items[all.count] = finding;
    all.items[all.count].count = 1;
    slot = ++all.count;
    return;
  }
}

void note(Wrong wrong, Spot spot, size_t bytes, const Party& first, const Party& second, const char* text) {
  Finding finding{};
  finding.wrong = wrong;
  finding.region = spot.region;
  finding.offset = spot.offset;
  finding.bytes = static_cast<uint32_t>(bytes);
  finding.first = first;
  finding.second = second;
  strncpy(finding.text, text, sizeof finding.text - 1);
  add_finding(finding);
}

static uint64_t this_block() {
  const uint3 i = simt_block.index, g = simt_block.grid;
  return i.x + g.x * (i.y + static_cast<uint64_t>(g.y) * i.z);
}

Party party(Doing doing, uint64_t code) {
  return {code, this_block(), simt_thread ? simt_thread->linear : kNobody, doing};
}

Party party_of(Record record, Doing doing) {
  return {code_of(record), block_at(time_of(record)), thread_of(record), doing};
}

}  // namespace simt
