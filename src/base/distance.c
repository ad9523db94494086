/* distance.c - see distance.h. */
#include "base/distance.h"

#include <string.h>

enum { NAME_MAX_COMPARED = 64 };

static size_t least(size_t a, size_t b)
{
  return a < b ? a : b;
}

/* The optimal string alignment distance over the first 64 bytes: three rows of the table are enough. */
size_t text_distance(const char *a, const char *b)
{
  size_t rows[3][NAME_MAX_COMPARED + 1];
  size_t n = strnlen(a, NAME_MAX_COMPARED), m = strnlen(b, NAME_MAX_COMPARED);
  for (size_t j = 0; j <= m; j++)
    rows[0][j] = j;
  for (size_t i = 1; i <= n; i++) {
    size_t *row = rows[i % 3], *up = rows[(i + 2) % 3], *upper = rows[(i + 1) % 3];
    row[0] = i;
    for (size_t j = 1; j <= m; j++) {
      row[j] = least(least(up[j], row[j - 1]) + 1, up[j - 1] + (a[i - 1] != b[j - 1]));
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = least(row[j], upper[j - 2] + 1);
    }
  }
  return rows[n % 3][m];
}

bool text_is_slip(const char *asked, size_t distance)
{
  return distance <= strnlen(asked, NAME_MAX_COMPARED) / 3;
}
