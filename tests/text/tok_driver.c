/* tok_driver.c - lets a script drive the tokenizer: requests on stdin, answers on stdout, one line each.
 *
 *   tok_driver DIR
 *   E 0|1 HEX      encode (1: with special tokens)     -> ids, separated by spaces
 *   D 0|1 IDS      decode (1: skip special)            -> hex of the text
 *   S 0|1 IDS      the same as a stream                -> hex of each piece, separated by commas
 *   P ID           raw piece                           -> hex, or "none"
 *   I HEX          id of a piece
 *   R              roles                               -> bos eos unk pad ids, vocabulary size
 *   T N 0|1 HEX    encode N times                      -> seconds of the fastest, number of ids
 * A failure answers "! message". Prints "ready SECONDS" when the tokenizer stands.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "text/detok.h"
#include "text/tok.h"

static double now(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static size_t from_hex(char *s)
{
  size_t n = 0;
  for (; s[2 * n] && s[2 * n + 1] && s[2 * n] != '\n'; n++) {
    char pair[3] = {s[2 * n], s[2 * n + 1], 0};
    s[n] = (char)strtol(pair, NULL, 16);
  }
  return n;
}

static void put_hex(const char *s, size_t n)
{
  for (size_t i = 0; i < n; i++)
    printf("%02x", (unsigned char)s[i]);
}

static void fail(const tern_error *err)
{
  printf("! %s\n", err->text);
}

static size_t parse_ids(char *s, int32_t **ids)
{
  size_t n = 0, capacity = 0;
  *ids = NULL;
  for (char *end;; s = end) {
    long v = strtol(s, &end, 10);
    if (end == s)
      return n;
    if (!mem_grow(ids, &capacity, n + 1, sizeof **ids))
      exit(2);
    (*ids)[n++] = (int32_t)v;
  }
}

static void encode(const tok *t, bool special, char *hex, int times)
{
  tern_error err;
  size_t n = from_hex(hex), n_ids = 0;
  int32_t *ids = NULL;
  double best = 1e9;
  for (int i = 0; i < (times ? times : 1); i++) {
    mem_free(ids);
    ids = NULL;
    double start = now();
    if (tok_encode(t, hex, n, special, &ids, &n_ids, &err) != TERN_OK) {
      fail(&err);
      return;
    }
    double took = now() - start;
    best = took < best ? took : best;
  }
  if (times)
    printf("%.9f %zu", best, n_ids);
  for (size_t i = 0; !times && i < n_ids; i++)
    printf(i ? " %d" : "%d", ids[i]);
  printf("\n");
  mem_free(ids);
}

static void decode(const tok *t, bool skip, char *list)
{
  tern_error err;
  int32_t *ids;
  size_t n = parse_ids(list, &ids), length;
  char *text;
  if (tok_decode(t, ids, n, skip, &text, &length, &err) != TERN_OK)
    fail(&err);
  else {
    put_hex(text, length);
    printf("\n");
    mem_free(text);
  }
  mem_free(ids);
}

static void stream(const tok *t, bool skip, char *list)
{
  tern_error err;
  int32_t *ids;
  size_t n = parse_ids(list, &ids), length = 0;
  detok *d;
  const char *text;
  if (detok_open(t, skip, &d, &err) != TERN_OK) {
    fail(&err);
    mem_free(ids);
    return;
  }
  tern_status status = TERN_OK;
  for (size_t i = 0; i < n && status == TERN_OK; i++) {
    mem_forbid(true);
    status = detok_push(d, ids[i], &text, &length, &err);
    mem_forbid(false);
    if (status == TERN_OK) {
      put_hex(text, length);
      printf(",");
    }
  }
  if (status == TERN_OK)
    status = detok_finish(d, &text, &length, &err);
  if (status == TERN_OK) {
    put_hex(text, length);
    printf("\n");
  } else
    fail(&err);
  detok_close(d);
  mem_free(ids);
}

static void answer(const tok *t, char *line)
{
  size_t length;
  const char *piece;
  switch (line[0]) {
  case 'E':
    encode(t, line[2] == '1', line + 4, 0);
    break;
  case 'D':
    decode(t, line[2] == '1', line + 4);
    break;
  case 'S':
    stream(t, line[2] == '1', line + 4);
    break;
  case 'P':
    piece = tok_piece(t, atoi(line + 2), &length);
    if (piece)
      put_hex(piece, length);
    printf(piece ? "\n" : "none\n");
    break;
  case 'I':
    length = from_hex(line + 2);
    printf("%d\n", tok_id(t, line + 2, length));
    break;
  case 'R':
    printf("%d %d %d %d %d\n", tok_role_id(t, TOK_BOS), tok_role_id(t, TOK_EOS), tok_role_id(t, TOK_UNK),
           tok_role_id(t, TOK_PAD), tok_vocab_size(t));
    break;
  case 'T': {
    char *rest;
    int times = (int)strtol(line + 2, &rest, 10);
    encode(t, rest[1] == '1', rest + 3, times);
    break;
  }
  default:
    printf("! unknown request\n");
  }
  fflush(stdout);
}

int main(int argc, char **argv)
{
  if (argc != 2)
    return 2;
  tok *t;
  tern_error err;
  double start = now();
  if (tok_open(argv[1], &t, &err) != TERN_OK) {
    fail(&err);
    return 1;
  }
  printf("ready %.6f\n", now() - start);
  fflush(stdout);
  char *line = NULL;
  size_t capacity = 0;
  while (getline(&line, &capacity, stdin) > 0)
    answer(t, line);
  free(line);
  tok_close(t);
  return 0;
}
