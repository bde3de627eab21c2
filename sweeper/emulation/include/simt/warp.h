// Warp-wide operations. The lanes of a mask meet; the last to come computes everyone's result (a Combine),
// so that a lane is suspended once an operation and the work is done once a warp.
#pragma once
#include "abi.h"
#include "keywords.h"

namespace simt {

template <class T>
struct Exchange {
  T value, result;
  unsigned source;
};

// What a lane outside the mask would have sent is undefined: all bits set, which is a NaN.
template <class T>
SIMT_UNCHECKED void exchange(void* const* payloads, unsigned lanes) {
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    auto* mine = static_cast<Exchange<T>*>(payloads[lane]);
    if (mine->source < kWarpSize && lanes >> mine->source & 1) {
      mine->result = static_cast<const Exchange<T>*>(payloads[mine->source])->value;
    } else {
      SIMT_READS_NOBODY(lane, mine->source);
      memset(static_cast<void*>(&mine->result), 0xff, sizeof(T));
    }
  }
}

template <class T>
SIMT_INLINE T shuffle(unsigned mask, T value, unsigned source) {
  Exchange<T> payload{value, value, source};
  SIMT_HERE();
  simt_sync_lanes(mask, &payload, &exchange<T>);
  return payload.result;
}

struct Vote {
  int predicate;
  unsigned result;
};

SIMT_UNCHECKED inline void vote(void* const* payloads, unsigned lanes) {
  unsigned result = 0;
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if (lanes >> lane & 1 && static_cast<const Vote*>(payloads[lane])->predicate) result |= 1u << lane;
  }
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if (lanes >> lane & 1) static_cast<Vote*>(payloads[lane])->result = result;
  }
}

SIMT_INLINE unsigned ballot(unsigned mask, int predicate) {
  Vote payload{predicate, 0};
  SIMT_HERE();
  simt_sync_lanes(mask, &payload, &vote);
  return payload.result;
}

template <class T>
struct Match {
  T value;
  unsigned same, all;  // lanes with this value, and lanes that took part
};

template <class T>
SIMT_UNCHECKED void match(void* const* payloads, unsigned lanes) {
  for (unsigned lane = 0; lane < kWarpSize; ++lane) {
    if (!(lanes >> lane & 1)) continue;
    auto* mine = static_cast<Match<T>*>(payloads[lane]);
    mine->same = 0;
    mine->all = lanes;
    for (unsigned other = 0; other < kWarpSize; ++other) {
      if (!(lanes >> other & 1)) continue;
      const auto* theirs = static_cast<const Match<T>*>(payloads[other]);
      if (memcmp(&mine->value, &theirs->value, sizeof(T)) == 0) mine->same |= 1u << other;
    }
  }
}

template <class T>
SIMT_INLINE Match<T> matching(unsigned mask, T value) {
  Match<T> payload{value, 0, 0};
  SIMT_HERE();
  simt_sync_lanes(mask, &payload, &match<T>);
  return payload;
}

struct Add { template <class T> SIMT_UNCHECKED static T apply(T a, T b) { return a + b; } };
struct Minimum { template <class T> static T apply(T a, T b) { return b < a ? b : a; } };
struct Maximum { template <class T> static T apply(T a, T b) { return a < b ? b : a; } };
struct And { template <class T> static T apply(T a, T b) { return a & b; } };
struct Or { template <class T> static T apply(T a, T b) { return a | b; } };
struct Xor { template <class T> static T apply(T a, T b) { return a ^ b; } };

template <class Operation, class T>
SIMT_UNCHECKED void reduce(void* const* payloads, unsigned lanes) {
  const unsigned first = static_cast<unsigned>(__builtin_ctz(lanes));
  T total = *static_cast<const T*>(payloads[first]);
  for (unsigned lane = first + 1; lane < kWarpSize; ++lane) {
    if (lanes >> lane & 1) total = Operation::apply(total, *static_cast<const T*>(payloads[lane]));
  }
  for (unsigned lane = first; lane < kWarpSize; ++lane) {
    if (lanes >> lane & 1) *static_cast<T*>(payloads[lane]) = total;
  }
}

template <class Operation, class T>
SIMT_INLINE T reduced(unsigned mask, T value) {
  SIMT_HERE();
  simt_sync_lanes(mask, &value, &reduce<Operation, T>);
  return value;
}

SIMT_INLINE unsigned active_lanes(int line) {
  unsigned lanes;
  SIMT_HERE();
  simt_gather_lanes(line, &lanes);
  return lanes;
}

}  // namespace simt

SIMT_INLINE void __syncwarp(unsigned mask = 0xffffffffu) {
  SIMT_HERE();
  simt_sync_lanes(mask, nullptr, nullptr);
}

// The lanes of the warp that come to this line before they would have to wait for each other: as many as
// hardware could ever find together.
#define __activemask() simt::active_lanes(__LINE__)
SIMT_INLINE unsigned __lanemask_lt() { return (1u << simt_thread->lane) - 1; }
SIMT_INLINE unsigned __lane_id() { return simt_thread->lane; }

template <class T>
SIMT_INLINE T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
  const unsigned segment = ~static_cast<unsigned>(width - 1);
  return simt::shuffle(mask, value, (simt_thread->lane & segment) | (static_cast<unsigned>(source) & ~segment));
}

template <class T>
SIMT_INLINE T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const unsigned lane = simt_thread->lane, place = lane & static_cast<unsigned>(width - 1);
  return simt::shuffle(mask, value, place < delta ? lane : lane - delta);
}

template <class T>
SIMT_INLINE T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const unsigned lane = simt_thread->lane, place = lane & static_cast<unsigned>(width - 1);
  return simt::shuffle(mask, value, place + delta >= static_cast<unsigned>(width) ? lane : lane + delta);
}

template <class T>
SIMT_INLINE T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize) {
  const unsigned lane = simt_thread->lane, source = lane ^ static_cast<unsigned>(lane_mask);
  return simt::shuffle(mask, value, source > (lane | static_cast<unsigned>(width - 1)) ? lane : source);
}

SIMT_INLINE unsigned __ballot_sync(unsigned mask, int predicate) { return simt::ballot(mask, predicate); }
SIMT_INLINE int __any_sync(unsigned mask, int predicate) { return simt::ballot(mask, predicate) != 0; }
SIMT_INLINE int __all_sync(unsigned mask, int predicate) { return simt::ballot(mask, !predicate) == 0; }
SIMT_INLINE int __uni_sync(unsigned mask, int predicate) {
  return simt::reduced<simt::Minimum>(mask, predicate != 0) == simt::reduced<simt::Maximum>(mask, predicate != 0);
}

template <class T>
SIMT_INLINE unsigned __match_any_sync(unsigned mask, T value) { return simt::matching(mask, value).same; }

template <class T>
SIMT_INLINE unsigned __match_all_sync(unsigned mask, T value, int* predicate) {
  const simt::Match<T> found = simt::matching(mask, value);
  *predicate = found.same == found.all;
  return *predicate ? mask : 0;
}

#define SIMT_REDUCE(name, operation, type) \
  SIMT_INLINE type __reduce_##name##_sync(unsigned mask, type value) { return simt::reduced<simt::operation>(mask, value); }
SIMT_REDUCE(add, Add, int)
SIMT_REDUCE(add, Add, unsigned)
SIMT_REDUCE(min, Minimum, int)
SIMT_REDUCE(min, Minimum, unsigned)
SIMT_REDUCE(max, Maximum, int)
SIMT_REDUCE(max, Maximum, unsigned)
SIMT_REDUCE(and, And, unsigned)
SIMT_REDUCE(or, Or, unsigned)
SIMT_REDUCE(xor, Xor, unsigned)
#undef SIMT_REDUCE
