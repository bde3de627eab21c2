// Runs of elements that one instruction moves. A run of 16 bytes is the widest.
#pragma once

template <typename T, int WIDTH> struct alignas(WIDTH * sizeof(T)) Vector {
  T value[WIDTH];
};

// Whether the rows of a matrix begin where a vector may.
template <typename T, int WIDTH> __device__ __forceinline__ bool rows_aligned(const T* base, int leading) {
  return reinterpret_cast<size_t>(base) % sizeof(Vector<T, WIDTH>) == 0 && leading % WIDTH == 0;
}

// Elements first … first + WIDTH - 1 of a row that ends before `end`; zeros beyond it. `aligned` is the same for
// all threads, so only the threads at the end of a row take the elements one by one.
template <typename T, int WIDTH>
__device__ __forceinline__ Vector<T, WIDTH> load_run(const T* row, int first, int end, bool aligned) {
  if (aligned && first + WIDTH <= end) return *reinterpret_cast<const Vector<T, WIDTH>*>(row + first);
  Vector<T, WIDTH> run;
#pragma unroll
  for (int v = 0; v < WIDTH; ++v) run.value[v] = first + v < end ? row[first + v] : T{};
  return run;
}

template <typename T, int WIDTH>
__device__ __forceinline__ void store_run(T* row, int first, int end, bool aligned, const Vector<T, WIDTH>& run) {
  if (aligned && first + WIDTH <= end) {
    *reinterpret_cast<Vector<T, WIDTH>*>(row + first) = run;
    return;
  }
#pragma unroll
  for (int v = 0; v < WIDTH; ++v) {
    if (first + v < end) row[first + v] = run.value[v];
  }
}
