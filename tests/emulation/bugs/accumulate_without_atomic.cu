// K is split over blocks that all add to C, by a plain load and a plain store.
// To be found: a race between blocks on C.
extern "C" __global__ void kernel(const float* A, const float* B, float* C, int M, int N, int K, int parts) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  if (row >= M || column >= N) return;
  const int each = (K + parts - 1) / parts;
  const int first = blockIdx.z * each, last = min(K, first + each);
  float sum = 0;
  for (int k = first; k < last; ++k) sum += A[row * K + k] * B[k * N + column];
#ifdef FIXED
  // Small whole numbers: their sum is the same in any order.
  atomicAdd(&C[row * N + column], sum);
#else
  C[row * N + column] += sum;  // BUG
#endif
}
