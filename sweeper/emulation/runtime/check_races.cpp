// Races, reads of what nobody wrote, and copies that are not waited for: what the cells of an access tell.
#include "check.h"

namespace simt {

struct Visit {
  const Thread* thread;
  Record record;
  Doing doing;
  bool shared, strong, empty;
  uint64_t code;
  // What was found at one byte of it; one of each kind is enough for the whole access.
  Record race, pending;
  Doing race_with;
  bool unwritten;
  size_t race_at, pending_at, unwritten_at;
};

// An earlier block's use of shared memory is nobody's.
static inline Record in_force(const Visit& a, Record record) {
  return a.shared && !same_block(record) ? 0 : record;
}

static inline bool conflicts(const Visit& a, Record record) {
  if (!record || (record & kStrongFlag && a.strong)) return false;
  if (same_block(record) && ordered(a.thread, record)) return false;
  return !handed_over(a.thread, record);
}

static void found_race(Visit& a, Record with, Doing doing, size_t at) {
  if (a.race) return;
  a.race = with;
  a.race_with = doing;
  a.race_at = at;
}

static Doing written_how(Record write) {
  return write & kStrongFlag ? Doing::kUpdate : write & kPendingFlag ? Doing::kCopy : Doing::kWrite;
}

static Doing read_how(Record read) { return read & kStrongFlag ? Doing::kUpdate : Doing::kRead; }

// Two reads are enough: a later write conflicts with one of them if it conflicts with any. Two are kept that
// are of different warps, or of different lanes where only one warp reads.
static inline void remember_read(const Visit& a, Cell& cell) {
  Record& x = cell.read[0];
  Record& y = cell.read[1];
  x = in_force(a, x), y = in_force(a, y);
  const auto replaceable = [&a](Record r) {
    if (!r) return true;
    if (!same_block(r)) return false;
    if (thread_of(r) == a.thread->linear) return !a.strong || r & kStrongFlag;
    return ordered(a.thread, r);
  };
  if (x && !same_block(x)) return;
  if (replaceable(x)) {
    x = a.record;
  } else if (replaceable(y)) {
    y = a.record;
  } else if (thread_of(x) / kWarpSize == thread_of(y) / kWarpSize &&
             thread_of(x) / kWarpSize != a.thread->warp) {
    y = a.record;
  }
}

static inline void visit(Visit& a, Cell& cell, size_t at) {
  const Record write = in_force(a, cell.write);
  if (!write) {
    if (a.empty && reads(a.doing) && !a.unwritten) a.unwritten = true, a.unwritten_at = at;
  } else if (conflicts(a, write)) {
    found_race(a, write, written_how(write), at);
  } else if (write & kPendingFlag && !a.pending) {
    a.pending = write, a.pending_at = at;
  }
  if (!writes(a.doing)) {
    // Of several atomic updates by different threads only the last is the cell's write.
    if (write & kStrongFlag) {
      for (const Record r : cell.read) {
        if (r & kStrongFlag && conflicts(a, in_force(a, r))) found_race(a, r, Doing::kUpdate, at);
      }
    }
    remember_read(a, cell);
    return;
  }
  for (const Record r : cell.read) {
    if (conflicts(a, in_force(a, r))) found_race(a, r, read_how(r), at);
  }
  cell.write = a.record;
  if (a.strong) {
    remember_read(a, cell);
  } else {
    cell.read[0] = cell.read[1] = 0;
  }
}

static void visit_split(Visit& a, Area& area, size_t from, size_t to) {
  Cell& word = area.words[from / 4];
  Cell* cells = area.split + from / 4 * 4;
  if (word.write != kSplit) {
    for (int i = 0; i < 4; ++i) cells[i] = word;
    word.write = kSplit;
  }
  for (size_t at = from; at < to; ++at) visit(a, cells[at % 4], at);
  if (to - from == 4 && writes(a.doing) && !a.strong) word = cells[0];
}

static const char* race_text(Doing mine, Doing other) {
  if (!writes(mine)) return "a read of what another thread writes, with nothing to order them";
  if (!writes(other)) return "a write of what another thread reads, with nothing to order them";
  if (is_strong(other) != is_strong(mine))
    return "an atomic operation and a plain access by different threads, with nothing to order them";
  return "two writes by different threads, with nothing to order them";
}

static void tell(const Area& area, const Visit& a, size_t bytes) {
  const Party mine = party(a.doing, a.code);
  const auto spot = [&area](size_t at) { return in_area(area, area.begin + at); };
  if (a.pending) {
    note(Wrong::kPendingCopy, spot(a.pending_at), bytes, mine, party_of(a.pending, Doing::kCopy),
         "an access to where an asynchronous copy goes that was not waited for");
  }
  if (a.unwritten) {
    note(Wrong::kUninitialised, spot(a.unwritten_at), bytes, mine, {},
         area.shared ? "a read of shared memory that no thread of the block has written"
                     : "a read of scratch that no thread has written");
  }
  if (a.race) {
    note(area.shared ? Wrong::kRaceShared : Wrong::kRaceGlobal, spot(a.race_at), bytes, mine,
         party_of(a.race, a.race_with), race_text(a.doing, a.race_with));
  }
}

void follow(Area& area, const char* address, size_t bytes, Doing doing, uint64_t code) {
  const Record flags = is_strong(doing) ? kStrongFlag : doing == Doing::kCopy ? kPendingFlag : 0;
  Visit a{};
  a.thread = simt_thread;
  a.doing = doing;
  a.shared = area.shared;
  a.empty = area.empty;
  a.strong = is_strong(doing);
  a.code = code;
  a.record = static_cast<Record>(now) << kTimeShift | (code >> kCodeBits ? 0 : code << kCodeShift) | flags |
             simt_thread->linear;
  if (unlikely(a.strong)) flag_touched(address, reads(doing), writes(doing));
  size_t at = static_cast<size_t>(address - area.begin);
  const size_t end = at + bytes;
  while (at < end) {
    const size_t next = at / 4 * 4 + 4, to = next < end ? next : end;
    Cell& word = area.words[at / 4];
    if (likely(to - at == 4 && word.write != kSplit)) {
      visit(a, word, at);
    } else {
      visit_split(a, area, at, to);
    }
    at = to;
  }
  if (unlikely(a.race || a.pending || a.unwritten)) tell(area, a, bytes);
}

// A copy that has been waited for is an ordinary write by this thread, as of now.
void settle_copy(Area& area, const char* address, size_t bytes) {
  const auto settle = [](Record& write) {
    if (write == kSplit || !(write & kPendingFlag) || thread_of(write) != simt_thread->linear) return;
    write = static_cast<Record>(now) << kTimeShift | (write & 0xffffffffu & ~kPendingFlag);
  };
  const size_t begin = static_cast<size_t>(address - area.begin);
  for (size_t at = begin; at < begin + bytes; ++at) {
    Cell& word = area.words[at / 4];
    settle(word.write == kSplit ? area.split[at].write : word.write);
  }
}

}  // namespace simt
