// Cooperative groups within a block: the block itself, tiles of a warp, and the lanes that are together.
#pragma once
#include "cuda_runtime.h"

namespace cooperative_groups {

class thread_block {
 public:
  SIMT_INLINE void sync(int line = __builtin_LINE()) const {
    SIMT_HERE();
    simt_sync_block(line);
  }
  unsigned thread_rank() const { return simt_thread->linear; }
  unsigned num_threads() const { return simt_block.size.x * simt_block.size.y * simt_block.size.z; }
  unsigned size() const { return num_threads(); }
  dim3 group_index() const { return simt_block.index; }
  dim3 thread_index() const { return simt_thread->index; }
  dim3 dim_threads() const { return simt_block.size; }
  dim3 group_dim() const { return simt_block.size; }
};

inline thread_block this_thread_block() { return {}; }

// A call of such a function does not compile.
#ifdef __clang__
#define SIMT_ONLY_GPU(what) __attribute__((unavailable("not emulable: " what)))
#else
#define SIMT_ONLY_GPU(what) __attribute__((error("not emulable: " what)))
#endif

// All blocks of the launch; a barrier for them would need them all at once.
class grid_group {
 public:
  SIMT_ONLY_GPU("a barrier of all blocks, which run one after another") void sync() const;
  unsigned long long block_rank() const {
    const uint3 i = simt_block.index, g = simt_block.grid;
    return i.x + g.x * (i.y + static_cast<unsigned long long>(g.y) * i.z);
  }
  unsigned long long num_blocks() const {
    const uint3 g = simt_block.grid;
    return static_cast<unsigned long long>(g.x) * g.y * g.z;
  }
  unsigned long long thread_rank() const {
    return block_rank() * thread_block().num_threads() + simt_thread->linear;
  }
  unsigned long long num_threads() const { return num_blocks() * thread_block().num_threads(); }
  unsigned long long size() const { return num_threads(); }
  dim3 group_dim() const { return simt_block.grid; }
  dim3 dim_blocks() const { return simt_block.grid; }
  dim3 block_index() const { return simt_block.index; }
};

inline grid_group this_grid() { return {}; }

class cluster_group {};
SIMT_ONLY_GPU("thread block clusters") cluster_group this_cluster();

// Some lanes of a warp, by mask.
class coalesced_group {
 public:
  explicit coalesced_group(unsigned mask) : mask_(mask) {}
  SIMT_INLINE void sync() const { __syncwarp(mask_); }
  unsigned thread_rank() const {
    return static_cast<unsigned>(__popc(mask_ & ((1u << simt_thread->lane) - 1)));
  }
  unsigned num_threads() const { return static_cast<unsigned>(__popc(mask_)); }
  unsigned size() const { return num_threads(); }
  SIMT_INLINE int any(int predicate) const { return __any_sync(mask_, predicate); }
  SIMT_INLINE int all(int predicate) const { return __all_sync(mask_, predicate); }
  SIMT_INLINE unsigned ballot(int predicate) const { return packed(__ballot_sync(mask_, predicate)); }
  template <class T> SIMT_INLINE T shfl(T value, int rank) const {
    return simt::shuffle(mask_, value, lane_of(static_cast<unsigned>(rank)));
  }
  template <class T> SIMT_INLINE T shfl_down(T value, unsigned delta) const {
    return moved(value, thread_rank() + delta);
  }
  template <class T> SIMT_INLINE T shfl_up(T value, unsigned delta) const {
    return moved(value, thread_rank() < delta ? num_threads() : thread_rank() - delta);
  }

 protected:
  unsigned lane_of(unsigned rank) const {
    unsigned left = mask_;
    for (; rank && left; --rank) left &= left - 1;
    return left ? static_cast<unsigned>(__builtin_ctz(left)) : 32;
  }
  template <class T> SIMT_INLINE T moved(T value, unsigned rank) const {
    return simt::shuffle(mask_, value, rank < num_threads() ? lane_of(rank) : simt_thread->lane);
  }
  // A vote with bit i for the lane of rank i.
  unsigned packed(unsigned lanes) const {
    unsigned result = 0;
    for (unsigned rank = 0; rank < num_threads(); ++rank) result |= (lanes >> lane_of(rank) & 1) << rank;
    return result;
  }
  unsigned mask_;
};

SIMT_INLINE coalesced_group coalesced_threads(int line = __builtin_LINE()) {
  return coalesced_group(simt::active_lanes(line));
}

// `Size` consecutive lanes of a warp.
template <unsigned Size, class Parent = void> class thread_block_tile : public coalesced_group {
 public:
  static_assert(Size <= 32 && (Size & (Size - 1)) == 0, "a tile is a power of two of lanes");
  thread_block_tile() : coalesced_group(mask()) {}
  unsigned thread_rank() const { return simt_thread->lane % Size; }
  static constexpr unsigned num_threads() { return Size; }
  static constexpr unsigned size() { return Size; }
  unsigned meta_group_rank() const { return simt_thread->linear / Size; }
  unsigned meta_group_size() const { return (thread_block().num_threads() + Size - 1) / Size; }
  template <class T> SIMT_INLINE T shfl(T value, int rank) const {
    return __shfl_sync(mask_, value, rank, Size);
  }
  template <class T> SIMT_INLINE T shfl_down(T value, unsigned delta) const {
    return __shfl_down_sync(mask_, value, delta, Size);
  }
  template <class T> SIMT_INLINE T shfl_up(T value, unsigned delta) const {
    return __shfl_up_sync(mask_, value, delta, Size);
  }
  template <class T> SIMT_INLINE T shfl_xor(T value, int lanes) const {
    return __shfl_xor_sync(mask_, value, lanes, Size);
  }
  template <class T> SIMT_INLINE unsigned match_any(T value) const {
    return packed(__match_any_sync(mask_, value));
  }

 private:
  static unsigned mask() {
    constexpr unsigned ones = static_cast<unsigned>((1ull << Size) - 1);
    return ones << (simt_thread->lane & ~(Size - 1));
  }
};

template <unsigned Size, class Group> inline thread_block_tile<Size, Group> tiled_partition(const Group&) {
  return {};
}

template <class Group> SIMT_INLINE void sync(const Group& group) { group.sync(); }

template <class T> struct plus {
  T operator()(T a, T b) const { return a + b; }
};
template <class T> struct less {
  T operator()(T a, T b) const { return b < a ? b : a; }
};
template <class T> struct greater {
  T operator()(T a, T b) const { return a < b ? b : a; }
};

// The reduction of `value` over the group, in every thread of it.
template <class Group, class T, class Operation>
SIMT_INLINE T reduce(const Group& group, T value, Operation operation) {
  T total = group.shfl(value, 0);
  for (unsigned rank = 1; rank < group.num_threads(); ++rank)
    total = operation(total, group.shfl(value, static_cast<int>(rank)));
  return total;
}

}  // namespace cooperative_groups
