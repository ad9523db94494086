/* probe_format.c - what the Python tests call of the format room. Results are texts of one canonical form, which the
 * script builds from the reference's objects too. */
#include "format/json_util.h"
#include "format/quant_config.h"
#include "format/st.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "probe.h"

void probe_free(void *p)
{
  mem_free(p);
}

static void add_bytes(buf *b, const char *s, size_t n)
{
  buf_addf(b, "s%zu:", n);
  buf_add(b, s, n);
}

/* n t f, i and a number, r and the bits of a double, s and a length and bytes, [values], {keys and values}. */
static void add_tree(buf *b, const json_t *v)
{
  const char *key;
  json_t *member;
  if (json_is_object(v)) {
    buf_addc(b, '{');
    json_object_foreach((json_t *)(uintptr_t)v, key, member)
    {
      add_bytes(b, key, strlen(key));
      add_tree(b, member);
    }
    buf_addc(b, '}');
  } else if (json_is_array(v)) {
    buf_addc(b, '[');
    for (size_t i = 0; i < json_array_size(v); i++)
      add_tree(b, json_array_get(v, i));
    buf_addc(b, ']');
  } else if (json_is_string(v)) {
    add_bytes(b, json_string_value(v), json_string_length(v));
  } else if (json_is_integer(v)) {
    buf_addf(b, "i%" JSON_INTEGER_FORMAT, json_integer_value(v));
  } else if (json_is_real(v)) {
    double x = jsonu_real(v);
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    buf_addf(b, "r%016" PRIx64, x != x ? UINT64_C(0x7ff8000000000000) : bits);
  } else {
    buf_addc(b, json_is_null(v) ? 'n' : json_is_true(v) ? 't' : 'f');
  }
}

char *probe_json(const char *text, size_t n, size_t *length, tern_error *err)
{
  json_t *root;
  if (jsonu_parse("text", text, n, &root, err) != TERN_OK)
    return NULL;
  buf b = {0};
  add_tree(&b, root);
  json_decref(root);
  *length = b.length;
  return buf_take(&b);
}

char *probe_st(const char *path, size_t *length, tern_error *err)
{
  st_file f;
  if (st_open(path, &f, err) != TERN_OK)
    return NULL;
  buf b = {0};
  for (size_t i = 0; i < f.n_tensors; i++) {
    const st_tensor *t = &f.tensors[i];
    add_bytes(&b, t->name, strlen(t->name));
    buf_adds(&b, st_dtype_name(t->dtype));
    for (int k = 0; k < t->rank; k++)
      buf_addf(&b, " %" PRId64, t->shape[k]);
    add_bytes(&b, (const char *)t->data, t->bytes);
  }
  st_close(&f);
  *length = b.length;
  return buf_take(&b);
}

static tern_status put_whole(void *user, st_writer *w, tern_error *err)
{
  const st_tensor *t = user;
  return st_put(w, t->data, t->bytes, err);
}

tern_status probe_st_copy(const char *from, const char *to, tern_error *err)
{
  st_file f;
  TRY(st_open(from, &f, err));
  st_writer *w = NULL;
  tern_status status = st_writer_open(&w, err);
  for (size_t i = 0; status == TERN_OK && i < f.n_metadata; i++)
    status = st_writer_meta(w, f.metadata[i].key, f.metadata[i].value, err);
  for (size_t i = f.n_tensors; status == TERN_OK && i > 0; i--) { /* in another order than they stand in */
    st_tensor *t = &f.tensors[i - 1];
    status = st_writer_add(w, t->name, t->dtype, t->rank, t->shape, put_whole, t, err);
  }
  if (status == TERN_OK)
    status = st_writer_write(w, to, err);
  st_writer_close(w);
  st_close(&f);
  return status;
}

static tern_status find_one(const cfg *c, const char *path, bool has_scales, int32_t out[3], char mode[16],
                            tern_error *err)
{
  quant_config *q;
  TRY(quant_open(c, &q, err));
  bool quantised = false;
  quant_params p = {0};
  tern_status status = quant_find(q, path, NULL, has_scales, &quantised, &p, err);
  out[0] = quantised;
  out[1] = p.group_size;
  out[2] = p.bits;
  snprintf(mode, 16, "%s", quant_mode_name(p.mode));
  quant_close(q);
  return status;
}

tern_status probe_quant(const char *config, const char *path, bool has_scales, int32_t out[3], char mode[16],
                        tern_error *err)
{
  cfg *c;
  TRY(cfg_parse(config, strlen(config), NULL, 0, &c, err));
  tern_status status = find_one(c, path, has_scales, out, mode, err);
  cfg_close(c);
  return status;
}
