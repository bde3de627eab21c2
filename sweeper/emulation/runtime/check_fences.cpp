// Memory that is handed from thread to thread without a barrier: one writes it, passes a fence and then
// touches a flag with an atomic operation (or through volatile); another touches the flag later and reads
// what was written (CUDA C++ Programming Guide, "Memory Fence Functions", and its example of the last block
// to finish).
//
// A flag keeps the list of those who released something through it, a block the list of flags that its
// threads came to. Both are looked at only where two accesses would otherwise be a race.
#include <stdlib.h>
#include <string.h>

#include "check.h"

namespace simt {

namespace {

// What `thread` did before `fenced`, and what its block did before `barrier`, precedes whoever comes later.
struct Release {
  uint64_t block;
  uint32_t thread, fenced, barrier;
};

template <class T> struct List {
  T* items;
  size_t count, room;
  T& add() {
    if (count == room) {
      room = room ? 2 * room : 16;
      items = static_cast<T*>(realloc(static_cast<void*>(items), room * sizeof(T)));
    }
    return items[count++];
  }
};

struct Flag {
  const char* address;
  List<Release> releases;
};

// `thread` came to the flag at `time`, after so many releases.
struct Acquisition {
  size_t flag, releases;
  uint32_t thread, time;
};

constexpr size_t kMostInherited = 1 << 20;

List<Flag> flags;
uint32_t* slots;  // number of a flag plus one, by hash of its address
size_t slot_count, inherited;
List<Acquisition> acquired;
uint32_t fenced[kMaxThreads], barrier_then[kMaxThreads];

uint32_t& slot_of(const char* address) {
  for (size_t i = (reinterpret_cast<size_t>(address) >> 2) * 0x9e3779b97f4a7c15u >> 20;; ++i) {
    uint32_t& slot = slots[i % slot_count];
    if (!slot || flags.items[slot - 1].address == address) return slot;
  }
}

void make_slots(size_t count) {
  free(slots);
  slot_count = count;
  slots = static_cast<uint32_t*>(calloc(slot_count, sizeof *slots));
  for (size_t i = 0; i < flags.count; ++i) slot_of(flags.items[i].address) = static_cast<uint32_t>(i + 1);
}

size_t flag_at(const char* address) {
  if (2 * flags.count >= slot_count) make_slots(slot_count ? 2 * slot_count : 64);
  uint32_t& slot = slot_of(address);
  if (!slot) {
    flags.add() = {address, {}};
    slot = static_cast<uint32_t>(flags.count);
  }
  return slot - 1;
}

bool known_to(const Thread* thread, const Acquisition& a) {
  return a.thread == thread->linear || a.time < barrier_opened;
}

void release(const char* address) {
  const uint32_t me = simt_thread->linear;
  const size_t number = flag_at(address);
  Flag& flag = flags.items[number];
  for (size_t i = 0; i < acquired.count; ++i) {
    const Acquisition& a = acquired.items[i];
    if (a.flag == number || !known_to(simt_thread, a)) continue;
    for (size_t j = 0; j < a.releases && inherited < kMostInherited; ++j, ++inherited)
      flag.releases.add() = flags.items[a.flag].releases.items[j];
  }
  flag.releases.add() = {worker.ordinal, me, fenced[me], barrier_then[me]};
}

void acquire(const char* address) {
  const uint32_t slot = slot_count ? slot_of(address) : 0;
  if (!slot) return;
  const Acquisition now_here{slot - 1, flags.items[slot - 1].releases.count, simt_thread->linear, ++now};
  for (size_t i = acquired.count; i-- > 0;) {
    Acquisition& a = acquired.items[i];
    if (a.flag != now_here.flag || a.thread != now_here.thread) continue;
    if (a.releases == now_here.releases) return;
    if (a.time >= barrier_opened) {
      a = now_here;
      return;
    }
  }
  acquired.add() = now_here;
}

}  // namespace

void fences_begin_block() {
  acquired.count = 0;
  memset(fenced, 0, sizeof fenced);
}

void fence_passed() {
  if (!simt_thread) return;
  fenced[simt_thread->linear] = ++now;
  barrier_then[simt_thread->linear] = barrier_opened;
}

// The current thread comes to a possible flag; a strong write after a fence releases.
void flag_touched(const char* address, bool reads, bool writes) {
  if (reads && flags.count) acquire(address);
  if (writes && fenced[simt_thread->linear]) release(address);
}

// Whether what `record` tells of was handed over to `thread`.
bool handed_over(const Thread* thread, Record record) {
  if (!acquired.count) return false;
  const uint32_t time = time_of(record);
  const uint64_t block = ordinal_at(time);
  for (size_t i = 0; i < acquired.count; ++i) {
    const Acquisition& a = acquired.items[i];
    if (!known_to(thread, a)) continue;
    const Release* releases = flags.items[a.flag].releases.items;
    for (size_t j = a.releases; j-- > 0;) {
      if (releases[j].block != block) continue;
      if (time < releases[j].barrier ||
          (thread_of(record) == releases[j].thread && time < releases[j].fenced))
        return true;
    }
  }
  return false;
}

}  // namespace simt
