// What the backend itself runs on a GPU: signs of life, pauses, fills, digests, comparisons, products.
//
// Compiled ahead of time to device_code.ptx, which the driver compiles for whatever GPU it finds:
// `python -m sweeper.backend.cuda.compile_device_code` makes it anew. Offsets and counts are 64-bit throughout.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using u64 = unsigned long long;
using s64 = long long;

namespace {

constexpr int kThreads = 256;   // of every kernel that reduces; a power of two
constexpr int kMostListed = 5;  // wrong elements named in a record
constexpr u64 kNowhere = ~0ull;
constexpr double kLargest = 1.7976931348623157e308;
constexpr double kSmallestNormal = 2.2250738585072014e-308;

// An element's storage type, as `device_code.TYPE_CODES` numbers it.
enum Type : int { kFloat64, kFloat32, kFloat16, kBfloat16, kInt8, kInt32, kInt64, kUint32, kUint64, kFloat8 };

__device__ inline double infinity() { return __longlong_as_double(0x7ff0000000000000ll); }

__device__ inline int bytes_of(int type) {
  switch (type) {
    case kInt8: case kFloat8: return 1;
    case kFloat16: case kBfloat16: return 2;
    case kFloat32: case kInt32: case kUint32: return 4;
    default: return 8;
  }
}

__device__ inline u64 load_bits(const void* data, u64 at, int bytes) {
  switch (bytes) {
    case 1: return static_cast<const unsigned char*>(data)[at];
    case 2: return static_cast<const unsigned short*>(data)[at];
    case 4: return static_cast<const unsigned int*>(data)[at];
    default: return static_cast<const u64*>(data)[at];
  }
}

__device__ inline void store_bits(void* data, u64 at, int bytes, u64 bits) {
  switch (bytes) {
    case 1: static_cast<unsigned char*>(data)[at] = static_cast<unsigned char>(bits); break;
    case 2: static_cast<unsigned short*>(data)[at] = static_cast<unsigned short>(bits); break;
    case 4: static_cast<unsigned int*>(data)[at] = static_cast<unsigned int>(bits); break;
    default: static_cast<u64*>(data)[at] = bits;
  }
}

__device__ inline s64 as_integer(u64 bits, int type) {
  switch (type) {
    case kInt8: return static_cast<signed char>(bits);
    case kInt32: return static_cast<int>(bits);
    default: return static_cast<s64>(bits);
  }
}

// e4m3: four bits of exponent, biased by 7, and three of fraction; no infinities, and one NaN of either sign
// (Micikevicius et al., FP8 Formats for Deep Learning, arXiv 2209.05433).
__device__ inline double from_float8(unsigned int bits) {
  const unsigned int exponent = bits >> 3 & 15, fraction = bits & 7;
  double magnitude = exponent ? __uint_as_float((exponent + 120) << 23 | fraction << 20) : fraction * 0.001953125;
  if ((bits & 127) == 127) magnitude = __longlong_as_double(0x7ff8000000000000ll);
  return bits & 128 ? -magnitude : magnitude;
}

__device__ inline double as_double(u64 bits, int type) {
  switch (type) {
    case kFloat64: return __longlong_as_double(static_cast<s64>(bits));
    case kFloat32: return __uint_as_float(static_cast<unsigned int>(bits));
    case kFloat16: return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
    case kBfloat16: return __uint_as_float(static_cast<unsigned int>(bits) << 16);
    case kUint64: return static_cast<double>(bits);
    case kFloat8: return from_float8(static_cast<unsigned int>(bits));
    default: return static_cast<double>(as_integer(bits, type));
  }
}

// --- Comparison ----------------------------------------------------------------------------------------

// What an array should hold: doubles with a bound each, or (`exact`) integers without.
struct Wanted {
  const void* values;
  const double* bounds;
  int exact, negated;
};

// What one element comes to. Not finite is infinitely wrong; so is an integer that is wrong by anything.
struct Judged {
  double want, bound, error, ratio;
  bool right;
};

__device__ inline Judged judge(u64 bits, int type, const Wanted& wanted, u64 at) {
  Judged judged;
  if (wanted.exact) {
    s64 want = static_cast<const s64*>(wanted.values)[at];
    if (wanted.negated) want = -want;
    const s64 whole = as_integer(bits, type);
    judged.want = static_cast<double>(want);
    judged.bound = 0.0;
    judged.error = fabs(static_cast<double>(whole) - judged.want);
    judged.right = whole == want;
    judged.ratio = judged.right ? 0.0 : infinity();
    return judged;
  }
  judged.want = static_cast<const double*>(wanted.values)[at];
  if (wanted.negated) judged.want = -judged.want;
  judged.bound = wanted.bounds[at];
  judged.error = fabs(as_double(bits, type) - judged.want);
  const bool finite = judged.error <= kLargest;
  if (!finite) judged.error = infinity();
  judged.right = finite && judged.error <= judged.bound;
  judged.ratio = judged.error / fmax(judged.bound, kSmallestNormal);
  return judged;
}

// What a part of an array comes to; `index` is the first element of the largest ratio above 0.
struct Part {
  double error, ratio;
  u64 index, wrong, not_finite, poison, differing;
};

__device__ inline Part nothing() { return {0.0, 0.0, kNowhere, 0, 0, 0, 0}; }

__device__ inline void merge(Part& into, const Part& other) {
  into.error = fmax(into.error, other.error);
  if (other.ratio > into.ratio || (other.ratio == into.ratio && other.index < into.index)) {
    into.ratio = other.ratio;
    into.index = other.index;
  }
  into.wrong += other.wrong;
  into.not_finite += other.not_finite;
  into.poison += other.poison;
  into.differing += other.differing;
}

// The parts of all threads of the block as one; `parts` is shared.
__device__ inline Part over_the_block(Part (&parts)[kThreads], const Part& mine) {
  const int t = threadIdx.x;
  parts[t] = mine;
  __syncthreads();
#pragma unroll 1
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (t < half) merge(parts[t], parts[t + half]);
    __syncthreads();
  }
  return parts[0];
}

struct Wrong {
  u64 index;
  double got, want, bound;
};

// What comes back to the host of one array.
struct Record {
  u64 wrong, not_finite, poison, differing;
  double error, ratio;
  u64 index, listed;
  Wrong first[kMostListed];
};

// --- Digests -------------------------------------------------------------------------------------------

// The finaliser of SplitMix64 (Steele, Lea and Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
__device__ inline u64 mixed(u64 z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// The word number `word` of `bytes` bytes at `data`; the last one is filled up with zeros.
__device__ inline u64 word_at(const unsigned char* data, u64 word, u64 bytes, bool aligned) {
  const u64 start = 8 * word;
  if (aligned && start + 8 <= bytes) return *reinterpret_cast<const u64*>(data + start);
  u64 value = 0;
#pragma unroll 1
  for (int i = 0; i < 8 && start + i < bytes; ++i) value |= static_cast<u64>(data[start + i]) << (8 * i);
  return value;
}

// --- Products ------------------------------------------------------------------------------------------

constexpr int kTile = 64, kDepth = 16, kEach = 4;  // a block's tile of the result, its depth, a thread's share
constexpr int kAcross = kTile / kEach;

// Brings kTile×kDepth parts of an operand to shared memory, one after the other along its inner axis. Neighbouring
// threads take neighbouring elements along whichever axis is contiguous.
struct Loader {
  const double* at;
  s64 hop, next;
  int outer, inner, outer_hop, inner_hop, outers;

  __device__ Loader(const double* data, s64 outer_stride, s64 inner_stride, s64 outer0, s64 count) {
    const int t = threadIdx.x;
    const bool along_inner = inner_stride == 1;
    outer = along_inner ? t / kDepth : t % kTile;
    inner = along_inner ? t % kDepth : t / kTile;
    outer_hop = along_inner ? kThreads / kDepth : 0;
    inner_hop = along_inner ? 0 : kThreads / kTile;
    hop = outer_hop * outer_stride + inner_hop * inner_stride;
    next = kDepth * inner_stride;
    at = data + (outer0 + outer) * outer_stride + inner * inner_stride;
    outers = static_cast<int>(count - outer0 < kTile ? count - outer0 : kTile);
  }

  __device__ void load(double (&tile)[kDepth][kTile + 1], int inners) {
#pragma unroll
    for (int n = 0; n < kTile * kDepth / kThreads; ++n) {
      const int o = outer + n * outer_hop, k = inner + n * inner_hop;
      tile[k][o] = o < outers && k < inners ? at[n * hop] : 0.0;
    }
    at += next;
  }
};

}  // namespace

extern "C" {

// out[i] = seed + i for every thread i of the grid.
__global__ void sweeper_canary(unsigned int* out, unsigned int seed) {
  const unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = seed + i;
}

// Returns once the SM's clock has advanced by `cycles`; touches no memory.
__global__ void sweeper_spin(u64 cycles) {
  const s64 start = clock64();
  while (static_cast<u64>(clock64() - start) < cycles) {
  }
}

__global__ void sweeper_empty() {}

// `bytes` bytes at `data`, which is 8-byte aligned, become repetitions of `pattern`.
__global__ void sweeper_fill(unsigned char* data, u64 bytes, u64 pattern) {
  const u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
  const u64 first = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x;
#pragma unroll 1
  for (u64 i = first; i < bytes / 8; i += step) reinterpret_cast<u64*>(data)[i] = pattern;
  if (first < bytes % 8) data[bytes / 8 * 8 + first] = static_cast<unsigned char>(pattern >> (8 * first));
}

// Every element becomes its negative; a floating-point one by its sign bit alone.
__global__ void sweeper_negate(void* data, u64 count, int type) {
  const int bytes = bytes_of(type);
  const bool floating = type <= kBfloat16 || type == kFloat8;
  const u64 sign = 1ull << (8 * bytes - 1), step = static_cast<u64>(gridDim.x) * blockDim.x;
#pragma unroll 1
  for (u64 i = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; i < count; i += step) {
    const u64 bits = load_bits(data, i, bytes);
    store_bits(data, i, bytes, floating ? bits ^ sign : 0 - bits);
  }
}

// Copies an array whose rows of `width` elements begin `pitch` apart to one whose rows follow each other.
__global__ void sweeper_gather(const void* data, u64 count, u64 width, u64 pitch, int bytes, void* to) {
  const u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
#pragma unroll 1
  for (u64 i = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; i < count; i += step) {
    store_bits(to, i, bytes, load_bits(data, i / width * pitch + i % width, bytes));
  }
}

// Of the `count` elements between those rows, adds to found[0] how many are not `pattern`, and raises found[1] to the
// complement of the first one's number.
__global__ void sweeper_gaps(const void* data, u64 count, u64 width, u64 pitch, int bytes, u64 pattern, u64* found) {
  const u64 step = static_cast<u64>(gridDim.x) * blockDim.x, gap = pitch - width;
#pragma unroll 1
  for (u64 i = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; i < count; i += step) {
    if (load_bits(data, i / gap * pitch + width + i % gap, bytes) == pattern) continue;
    atomicAdd(found, 1ull);
    atomicMax(found + 1, ~i);
  }
}

// Adds Σ mixed(word i + (i + 1)·γ) to *digest: one changed bit anywhere changes it.
__global__ void __launch_bounds__(kThreads) sweeper_digest(const unsigned char* data, u64 bytes, u64* digest) {
  __shared__ u64 sums[kThreads];
  const bool aligned = (reinterpret_cast<u64>(data) & 7) == 0;
  const u64 words = (bytes + 7) / 8, step = static_cast<u64>(gridDim.x) * kThreads;
  u64 sum = 0;
#pragma unroll 1
  for (u64 i = blockIdx.x * static_cast<u64>(kThreads) + threadIdx.x; i < words; i += step) {
    sum += mixed(word_at(data, i, bytes, aligned) + (i + 1) * 0x9e3779b97f4a7c15ull);
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(digest, sums[0]);
}

// Block b compares the elements [b·share, (b + 1)·share) and writes parts[b]. `previous` is what an earlier launch
// left, `got` itself where there was none; `pattern` is what an element holds that nobody has written.
__global__ void __launch_bounds__(kThreads)
    sweeper_compare(const void* got, const void* previous, const void* want, const double* bounds, u64 count, u64 share,
                    int type, int exact, int negated, u64 pattern, Part* parts) {
  __shared__ Part of_threads[kThreads];
  const Wanted wanted{want, bounds, exact, negated};
  const int bytes = bytes_of(type);
  const u64 begin = blockIdx.x * share, end = begin + share < count ? begin + share : count;
  Part mine = nothing();
#pragma unroll 1
  for (u64 i = begin + threadIdx.x; i < end; i += kThreads) {
    const u64 bits = load_bits(got, i, bytes);
    const Judged judged = judge(bits, type, wanted, i);
    mine.error = fmax(mine.error, judged.error);
    if (judged.ratio > mine.ratio) {
      mine.ratio = judged.ratio;
      mine.index = i;
    }
    mine.wrong += !judged.right;
    mine.not_finite += judged.error > kLargest;
    mine.poison += bits == pattern;
    mine.differing += bits != load_bits(previous, i, bytes);
  }
  const Part whole = over_the_block(of_threads, mine);
  if (threadIdx.x == 0) parts[blockIdx.x] = whole;
}

// One block: puts the parts together and names the first wrong elements in array order.
__global__ void __launch_bounds__(kThreads)
    sweeper_conclude(const void* got, const void* want, const double* bounds, u64 count, u64 share, int parts_made,
                     int type, int exact, int negated, const Part* parts, Record* record) {
  __shared__ Part of_threads[kThreads];
  __shared__ unsigned int votes[kThreads / 32];
  const Wanted wanted{want, bounds, exact, negated};
  const int t = threadIdx.x, bytes = bytes_of(type);
  Part mine = nothing();
#pragma unroll 1
  for (int b = t; b < parts_made; b += kThreads) merge(mine, parts[b]);
  const Part whole = over_the_block(of_threads, mine);
  const u64 listing = whole.wrong < kMostListed ? whole.wrong : kMostListed;
  if (t == 0) {
    record->wrong = whole.wrong;
    record->not_finite = whole.not_finite;
    record->poison = whole.poison;
    record->differing = whole.differing;
    record->error = whole.error;
    record->ratio = whole.ratio;
    record->index = whole.index;
    record->listed = listing;
  }
  u64 listed = 0;  // the same in every thread
#pragma unroll 1
  for (int b = 0; b < parts_made && listed < listing; ++b) {
    if (parts[b].wrong == 0) continue;
    const u64 begin = b * share, end = begin + share < count ? begin + share : count;
#pragma unroll 1
    for (u64 start = begin; start < end && listed < listing; start += kThreads) {
      const u64 i = start + t;
      Wrong found{i, 0.0, 0.0, 0.0};
      bool wrong = false;
      if (i < end) {
        const u64 bits = load_bits(got, i, bytes);
        const Judged judged = judge(bits, type, wanted, i);
        found = {i, as_double(bits, type), judged.want, judged.bound};
        wrong = !judged.right;
      }
      const unsigned int vote = __ballot_sync(0xffffffffu, wrong);
      if (t % 32 == 0) votes[t / 32] = vote;
      __syncthreads();
      u64 place = listed + __popc(vote & ((1u << (t % 32)) - 1));
      for (int w = 0; w < kThreads / 32; ++w) {
        if (w < t / 32) place += __popc(votes[w]);
        listed += __popc(votes[w]);
      }
      if (wrong && place < kMostListed) record->first[place] = found;
      __syncthreads();
    }
  }
}

// wide[i] = element i as a double.
__global__ void sweeper_widen(const void* data, u64 count, int type, double* wide) {
  const int bytes = bytes_of(type);
  const u64 step = static_cast<u64>(gridDim.x) * blockDim.x;
#pragma unroll 1
  for (u64 i = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; i < count; i += step) {
    wide[i] = as_double(load_bits(data, i, bytes), type);
  }
}

// values[r, c] = Σ a[r, k]·b[c, k] and magnitudes[r, c] = Σ |a[r, k]·b[c, k]|, row-major. The operands' strides are in
// elements: those of r and c are the outer ones, that of k is the inner one.
__global__ void __launch_bounds__(kThreads, 2)
    sweeper_product(const double* a, const double* b, s64 rows, s64 columns, s64 terms, s64 a_outer, s64 a_inner,
                    s64 b_outer, s64 b_inner, double* values, double* magnitudes) {
  __shared__ double a_tile[kDepth][kTile + 1], b_tile[kDepth][kTile + 1];
  const s64 tiles = (columns + kTile - 1) / kTile;
  const s64 row0 = blockIdx.x / tiles * kTile, column0 = blockIdx.x % tiles * kTile;
  const int x = threadIdx.x % kAcross, y = threadIdx.x / kAcross;
  Loader left_part(a, a_outer, a_inner, row0, rows), right_part(b, b_outer, b_inner, column0, columns);
  double sum[kEach][kEach] = {}, summed[kEach][kEach] = {};
#pragma unroll 1
  for (s64 k0 = 0; k0 < terms; k0 += kDepth) {
    const int depth = static_cast<int>(terms - k0 < kDepth ? terms - k0 : kDepth);
    left_part.load(a_tile, depth);
    right_part.load(b_tile, depth);
    __syncthreads();
#pragma unroll 2
    for (int k = 0; k < kDepth; ++k) {
      double left[kEach], right[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        left[i] = a_tile[k][y + i * kAcross];
        right[i] = b_tile[k][x + i * kAcross];
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          sum[i][j] += left[i] * right[j];
          summed[i][j] += fabs(left[i]) * fabs(right[j]);
        }
      }
    }
    __syncthreads();
  }
  values += row0 * columns + column0;
  magnitudes += row0 * columns + column0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int row = y + i * kAcross;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int column = x + j * kAcross;
      if (row >= left_part.outers || column >= right_part.outers) continue;
      values[row * columns + column] = sum[i][j];
      magnitudes[row * columns + column] = summed[i][j];
    }
  }
}

// Magnitudes become bounds: sweeper.problem.rounding.contraction_bound, by the names that its text gives the terms.
__global__ void sweeper_bound(const double* values, double* magnitudes, u64 count, double step, double peak,
                              double underflow, double mean, double chance, double u_out, double least, int nearest) {
  const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;
#pragma unroll 1
  for (u64 i = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; i < count; i += stride) {
    const double size = fabs(values[i]), summed = magnitudes[i], spread = sqrt(peak * summed);
    double error = step * (nearest ? fmin(summed, size + spread) : summed) + underflow;
    error += mean * size + chance * spread;
    magnitudes[i] = error * (1 + u_out) + u_out * size + least;
  }
}

// Doubles become integers of the same value, in place.
__global__ void sweeper_whole(double* values, u64 count) {
  const u64 stride = static_cast<u64>(gridDim.x) * blockDim.x;
#pragma unroll 1
  for (u64 i = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; i < count; i += stride) {
    values[i] = __longlong_as_double(static_cast<s64>(values[i]));
  }
}

}  // extern "C"
