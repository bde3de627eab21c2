// How the work of a product is cut for blocks that stay.
//
// Work is counted in units, one k-block of one tile of C. Tiles that are cut lie in one line, tile after tile, and
// worker w of W has the units from w·U/W to (w + 1)·U/W of it: every one the same number, give or take one.
#pragma once

namespace streams {

// Row and place in it of `index`, in rows of `width`. A block's first copy waits for it: a power of two spares it the
// division.
__device__ __forceinline__ void unravel(int index, int width, int& row, int& within) {
  if ((width & (width - 1)) == 0) {
    within = index & (width - 1), row = index >> (__ffs(width) - 1);
  } else {
    row = index / width, within = index - row * width;
  }
}

// A worker's next piece: k-blocks `from` … `to` - 1 of a tile, which `parts` workers share, this one the `part`-th.
struct Piece {
  int tile, from, to, part, parts, slot;
};

// The pieces of one worker, in order. SPLITS > 0: each tile is cut into so many, a worker each. SPLITS 0: the first
// tiles go whole, a wave of all workers after the other, and the rest is one line of units; WAVES says what goes
// whole: 0 nothing, 1 all waves that are full, 2 all of these but one, so that a worker's share of the line is more
// than a tile and at most two workers share one. The line comes before the whole tiles, which hide how long
// partial sums take. Units times workers are below 2³².
template <int SPLITS, int WAVES>
class Work {
 public:
  __device__ __forceinline__ Work(int tiles, int depth, int worker, int workers)
      : tiles_(tiles), depth_(depth), worker_(worker), workers_(workers) {
    if constexpr (SPLITS > 0) return;
    const int full = tiles / workers * workers;
    const int kept = WAVES == 2 && full < tiles ? max(full - workers, 0) : full;
    next_whole_ = worker;
    whole_ = WAVES == 0 ? 0 : kept;
    units_ = static_cast<unsigned>((tiles - whole_) * depth);
    cutters_ = units_ < static_cast<unsigned>(workers) ? static_cast<int>(units_) : workers;
    if (worker < cutters_) at_ = begin(worker), end_ = begin(worker + 1);
  }

  __device__ __forceinline__ bool next(Piece& piece) {
    if constexpr (SPLITS > 0) {
      if (at_ > 0 || worker_ >= tiles_ * SPLITS) return false;
      at_ = 1;
      const int tile = worker_ / SPLITS, part = worker_ % SPLITS;
      piece = {tile, part * depth_ / SPLITS, (part + 1) * depth_ / SPLITS, part, SPLITS, worker_};
      return true;
    }
    if (at_ < end_) {
      const int cut = static_cast<int>(at_ / depth_);
      const unsigned start = cut * depth_, stop = start + depth_;
      const int first = holder(start), last = holder(stop - 1);
      piece.tile = whole_ + cut;
      piece.from = static_cast<int>(at_ - start);
      piece.to = static_cast<int>((end_ < stop ? end_ : stop) - start);
      piece.part = worker_ - first;
      piece.parts = last - first + 1;
      piece.slot = 2 * worker_ + (worker_ == first);
      at_ += piece.to - piece.from;
      return true;
    }
    if (next_whole_ >= whole_) return false;
    piece = {next_whole_, 0, depth_, 0, 1, 0};
    next_whole_ += workers_;
    return true;
  }

  // Where the sums of part `other` of the tile of `piece` lie.
  static __device__ __forceinline__ int slot_of(const Piece& piece, int other) {
    if constexpr (SPLITS > 0) return piece.slot - piece.part + other;
    return 2 * (piece.slot / 2 - piece.part + other) + (other == 0);
  }

 private:
  __device__ __forceinline__ unsigned begin(int worker) const { return worker * units_ / cutters_; }
  // The worker in whose share a unit is: the last one that begins at it or before.
  __device__ __forceinline__ int holder(unsigned unit) const {
    return static_cast<int>(((unit + 1) * cutters_ - 1) / units_);
  }

  int tiles_, depth_, worker_, workers_;
  int whole_ = 0, next_whole_ = 0, cutters_ = 1;
  unsigned units_ = 1, at_ = 0, end_ = 0;
};

// Adds up share `part` of PARTS equal runs of QUADS times four sums, as add_share does, where that has about as many
// quads as there are threads, or more. A thread has all that it adds up under way at once: a few quads more than there
// are threads take no second way there and back.
template <int QUADS, int THREADS, int PARTS, typename Fetch, typename Put>
__device__ __forceinline__ void add_share_at_once(int part, const Fetch& fetch, const Put& put) {
  constexpr int TURNS = ((QUADS + PARTS - 1) / PARTS + THREADS - 1) / THREADS;
  const int last = QUADS * (part + 1) / PARTS - 1;
  const int begin = QUADS * part / PARTS + static_cast<int>(threadIdx.x) % THREADS;
  float4 found[PARTS][TURNS];
#pragma unroll
  for (int other = 0; other < PARTS; ++other) {
#pragma unroll
    for (int i = 0; i < TURNS; ++i) found[other][i] = fetch(other, min(begin + i * THREADS, last));
  }
#pragma unroll
  for (int i = 0; i < TURNS; ++i) {
    float4 sum = found[0][i];
#pragma unroll
    for (int other = 1; other < PARTS; ++other) {
      const float4& more = found[other][i];
      sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
    if (begin + i * THREADS <= last) put(sum, begin + i * THREADS);
  }
}

}  // namespace streams
