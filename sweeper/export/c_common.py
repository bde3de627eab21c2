"""What every exported header has in common: the lookup in C, and its rule in words."""

from __future__ import annotations

__all__ = ["COMMON", "RULE"]

COMMON = """\
#ifndef SWEEPER_EXPORT_COMMON_1
#define SWEEPER_EXPORT_COMMON_1
/* Where a time comes from. */
enum sweeper_timed {
  SWEEPER_CONFIRMED, /* timed in turns with its rivals, after the search that chose it */
  SWEEPER_MEASURED,  /* timed by the search itself */
  SWEEPER_REPLAYED,  /* recorded in another table */
  SWEEPER_PREDICTED  /* the static model's: no clock ran */
};

/* log2(size) * 65536, rounded down, in integers; size >= 1. */
static inline int64_t sweeper_log2(int64_t size) {
  uint64_t mantissa = (uint64_t)size;
  int64_t found = 0;
  int i;
  while ((mantissa >> found) > 1) ++found;
  mantissa = found > 31 ? mantissa >> (found - 31) : mantissa << (31 - found);
  for (i = 0; i < 16; ++i) {
    mantissa = (mantissa * mantissa) >> 31;
    found <<= 1;
    if (mantissa >> 32) {
      mantissa >>= 1;
      found |= 1;
    }
  }
  return found;
}

/* Whether two names are equal; NULL is none. */
static inline int sweeper_same(const char *a, const char *b) {
  return a && b && strcmp(a, b) == 0;
}

/* The place of the row for `asked`, -1 where there is none. Of `count` rows `sizes` has the sizes and `logs` their
   logarithms, `dims` to a row; `names` has device, class and layout. */
static inline int sweeper_find(int count, int dims, const int64_t *sizes, const int32_t *logs,
                               const char *const *names, const char *device, const char *dtype,
                               const char *layout, const int64_t *asked, int *exact) {
  int nearest = -1, row, i;
  int64_t least = 0, far, apart;
  if (exact) *exact = 0;
  for (i = 0; i < dims; ++i)
    if (asked[i] < 0) return -1;
  for (row = 0; row < count; ++row) {
    const int64_t *own = sizes + row * dims;
    int equal = 1, comparable = 1;
    if (!sweeper_same(names[3 * row], device) || !sweeper_same(names[3 * row + 1], dtype) ||
        !sweeper_same(names[3 * row + 2], layout))
      continue;
    for (i = 0; i < dims; ++i) {
      equal &= own[i] == asked[i];
      comparable &= (own[i] == 0) == (asked[i] == 0);
    }
    if (equal) {
      if (exact) *exact = 1;
      return row;
    }
    if (!comparable) continue;
    far = 0;
    for (i = 0; i < dims; ++i) {
      apart = asked[i] ? (int64_t)logs[row * dims + i] - sweeper_log2(asked[i]) : 0;
      far += apart * apart;
    }
    if (nearest < 0 || far < least) {
      nearest = row;
      least = far;
    }
  }
  return nearest;
}
#endif /* SWEEPER_EXPORT_COMMON_1 */
"""

RULE = """\
The row for a shape is the one of the very same sizes. Where there is none it is the nearest one: that with the
least sum of squared differences of the sizes' binary logarithms, of rows as near the first. A configuration need
not be valid at a shape where it was not measured: check its constraints. A size that is not given is 0, and
rows answer only for the sizes that they have. `device` is the name that CUDA gives (cudaDeviceProp.name);
NULL is the only one of the table, and no row where there are several, or where a name is not in the table. The
same holds for `dtype` and `layout`, but a NULL layout is "nn" where the table has it.
"""
