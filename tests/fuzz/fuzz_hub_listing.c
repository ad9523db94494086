/* fuzz_hub_listing.c - any bytes as what the hub answers: a page of a file list, a revision's info, a Link header, a
 * Content-Range. The first byte picks. What a list that is accepted names stays inside the cache. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "hub/listing.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const hub_file *f)
{
  size_t n = strlen(f->etag);
  if ((n != 40 && n != 64) || strspn(f->etag, "0123456789abcdef") != n || f->size > (uint64_t)1 << 50)
    abort();
  if (f->path[0] == '/' || strstr(f->path, "//") || strstr(f->path, "/../") || !strncmp(f->path, "../", 3) ||
      strlen(f->path) > REPO_PATH_MOST)
    abort();
}

static void list(const char *text, size_t size)
{
  hub_files files = {0};
  tern_error err = {0};
  if (listing_add("x", text, size, &files, &err) == TERN_OK && listing_check("x", &files, &err) == TERN_OK) {
    size_t n;
    const hub_file **blobs = listing_blobs(&files, &n);
    if (!blobs || n > files.n)
      abort();
    mem_free(blobs);
    for (size_t i = 0; i < files.n; i++)
      check(&files.items[i]);
  }
  listing_free(&files);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  if (!size)
    return 0;
  char *text = malloc(size), commit[REPO_COMMIT_ROOM], *url;
  uint64_t first, last, total;
  memcpy(text, data + 1, size - 1);
  text[size - 1] = 0;
  switch (data[0] % 4) {
  case 0:
    list(text, size - 1);
    break;
  case 1:
    if (listing_commit("x", text, size - 1, commit, NULL) == TERN_OK && !repo_is_commit(commit))
      abort();
    break;
  case 2:
    if (listing_next(text, &url, NULL) == TERN_OK)
      mem_free(url);
    break;
  default:
    if (listing_range(text, &first, &last, &total) && (first > last || last >= total))
      abort();
  }
  free(text);
  return 0;
}
