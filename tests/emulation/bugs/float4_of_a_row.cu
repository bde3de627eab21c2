// Rows are read four elements at a time though a row's length is no multiple of four.
// To be found: an access that is not aligned to its 16 bytes.
extern "C" __global__ void kernel(const float* A, float* sums, int M, int K) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M) return;
  float sum = 0;
  int k = 0;
#ifdef FIXED
  if (K % 4 == 0)
#endif
    for (; k + 4 <= K; k += 4) {
      const float4 four = *reinterpret_cast<const float4*>(A + row * K + k);  // BUG
      sum += four.x + four.y + four.z + four.w;
    }
  for (; k < K; ++k) sum += A[row * K + k];
  sums[row] = sum;
}
