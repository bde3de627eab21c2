// The order in which persistent blocks walk through the tiles of C: tiles that are computed at the same time shall
// share rows of A and columns of B, so that the second-level cache holds what they read.
#pragma once

namespace tile_order {

constexpr int BY_ROWS = 0;     // bands of GROUP rows of tiles, each walked column by column
constexpr int BY_COLUMNS = 1;  // bands of GROUP columns, each walked row by row
constexpr int HILBERT = 2;     // bands of rows cut into squares, each walked along Hilbert's curve

// Place `index` of Hilbert's curve in a square of SIDE, a power of two: from (0, 0) to (SIDE - 1, 0).
template <int SIDE>
__device__ __forceinline__ void along_the_curve(int index, int& x, int& y) {
  x = y = 0;
#pragma unroll
  for (int size = 1; size < SIDE; size *= 2) {
    const int right = index / 2 % 2, up = (index ^ right) % 2;
    if (!up) {
      if (right) x = size - 1 - x, y = size - 1 - y;
      const int kept = x;
      x = y, y = kept;
    }
    x += size * right, y += size * up;
    index /= 4;
  }
}

// Row and column of tile `index` among rows × columns of them. Every second band is walked backwards, so that the
// first tiles of a band lie beside the last ones of the band before.
template <int GROUP, int ORDER>
__device__ __forceinline__ void locate(int index, int rows, int columns, int& row, int& column) {
  if constexpr (ORDER == BY_COLUMNS) {
    locate<GROUP, BY_ROWS>(index, columns, rows, column, row);
  } else {
    const int band = index / (GROUP * columns), within = index - band * (GROUP * columns);
    const int height = min(GROUP, rows - band * GROUP);
    if (ORDER == HILBERT && height == GROUP && within < columns / GROUP * (GROUP * GROUP)) {
      along_the_curve<GROUP>(within % (GROUP * GROUP), column, row);
      column += within / (GROUP * GROUP) * GROUP;
    } else {
      row = within % height;
      column = within / height;
    }
    row += band * GROUP;
    if (band % 2) column = columns - 1 - column;
  }
}

}  // namespace tile_order
