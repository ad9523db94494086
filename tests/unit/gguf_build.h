/* gguf_build.h - GGUF files for tests, byte by byte, right or wrong on purpose. Include from one test program. */
#ifndef TERN_TESTS_GGUF_BUILD_H
#define TERN_TESTS_GGUF_BUILD_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "format/gguf.h"

/* Counts are patched by gb_finish. */
typedef struct gb {
  buf bytes, data;
  buf infos;
  uint64_t keys, tensors;
} gb;

static inline void gb_u32(buf *b, uint32_t x)
{
  buf_add(b, (const char *)&x, 4);
}

static inline void gb_u64(buf *b, uint64_t x)
{
  buf_add(b, (const char *)&x, 8);
}

static inline void gb_string(buf *b, const char *s)
{
  gb_u64(b, strlen(s));
  buf_adds(b, s);
}

static inline void gb_key(gb *g, const char *key, uint32_t type)
{
  gb_string(&g->bytes, key);
  gb_u32(&g->bytes, type);
  g->keys++;
}

static inline void gb_put_u32(gb *g, const char *key, uint32_t x)
{
  gb_key(g, key, GGUF_U32);
  gb_u32(&g->bytes, x);
}

static inline void gb_put_f32(gb *g, const char *key, float x)
{
  gb_key(g, key, GGUF_F32);
  buf_add(&g->bytes, (const char *)&x, 4);
}

static inline void gb_put_bool(gb *g, const char *key, char x)
{
  gb_key(g, key, GGUF_BOOL);
  buf_addc(&g->bytes, x);
}

static inline void gb_put_string(gb *g, const char *key, const char *s)
{
  gb_key(g, key, GGUF_STRING);
  gb_string(&g->bytes, s);
}

static inline void gb_put_strings(gb *g, const char *key, const char *const *s, size_t n)
{
  gb_key(g, key, GGUF_ARRAY);
  gb_u32(&g->bytes, GGUF_STRING);
  gb_u64(&g->bytes, n);
  for (size_t i = 0; i < n; i++)
    gb_string(&g->bytes, s[i]);
}

static inline void gb_put_i32s(gb *g, const char *key, const int32_t *x, size_t n)
{
  gb_key(g, key, GGUF_ARRAY);
  gb_u32(&g->bytes, GGUF_I32);
  gb_u64(&g->bytes, n);
  buf_add(&g->bytes, (const char *)x, 4 * n);
}

static inline void gb_info(gb *g, const char *name, uint32_t dims, const uint64_t *size, uint32_t type, uint64_t offset)
{
  gb_string(&g->infos, name);
  gb_u32(&g->infos, dims);
  for (uint32_t i = 0; i < dims; i++)
    gb_u64(&g->infos, size[i]);
  gb_u32(&g->infos, type);
  gb_u64(&g->infos, offset);
  g->tensors++;
}

/* `bytes` bytes of value `fill` behind what is there, aligned to 32. */
static inline void gb_tensor(gb *g, const char *name, uint64_t columns, uint64_t rows, uint32_t type, size_t bytes,
                             char fill)
{
  while (g->data.length % 32)
    buf_addc(&g->data, 0);
  uint64_t size[2] = {columns, rows};
  gb_info(g, name, rows ? 2 : 1, size, type, g->data.length);
  for (size_t i = 0; i < bytes; i++)
    buf_addc(&g->data, fill);
}

/* The whole file into `out`; g is empty afterwards. */
static inline void gb_finish(gb *g, uint32_t version, buf *out)
{
  buf_add(out, "GGUF", 4);
  gb_u32(out, version);
  gb_u64(out, g->tensors);
  gb_u64(out, g->keys);
  if (g->bytes.length)
    buf_add(out, g->bytes.data, g->bytes.length);
  if (g->infos.length)
    buf_add(out, g->infos.data, g->infos.length);
  while (out->length % 32)
    buf_addc(out, 0);
  if (g->data.length)
    buf_add(out, g->data.data, g->data.length);
  buf_free(&g->bytes);
  buf_free(&g->infos);
  buf_free(&g->data);
  *g = (gb){0};
}

/* Floating data is written as float32 ones: fill a tensor's bytes with 1.0f. */
static inline void gb_ones(gb *g, const char *name, uint64_t columns, uint64_t rows)
{
  gb_tensor(g, name, columns, rows, GGML_F32, 4 * columns * (rows ? rows : 1), 0);
  float one = 1;
  size_t n = columns * (rows ? rows : 1);
  for (size_t i = 0; i < n; i++)
    memcpy(g->data.data + g->data.length - 4 * (n - i), &one, 4);
}

static inline void gb_save(const char *path, const buf *b, size_t length)
{
  FILE *f = fopen(path, "wb");
  if (f) {
    fwrite(b->data, 1, length, f);
    fclose(f);
  }
}

#endif
