/* import_rope.c - rope scaling: what a GGUF says and the "rope_scaling" object that makes mlx-lm's rope factory compute
 * the same frequencies.
 *
 * linear   factor.
 * yarn     factor and original context, with the default ramp unless the file gives another.
 * llama3   a GGUF holds no parameters, only their result: rope_freqs.weight, one divisor per frequency. They are found
 *          again by search: the largest divisor is the factor; low and high edge are those of Llama 3 (1 and 4), or
 *          solved for from the ramp; the original context is tried over the powers of two. A set counts only if it
 *          reproduces every divisor to float32 accuracy; otherwise the file is refused, never approximated. Several
 *          sets may do so on short tables; they are then equal where it matters.
 *
 * The divisors' formula: convert_hf_to_gguf.py of llama.cpp, class LlamaModel. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/import_model.h"
#include "format/json_out.h"

static const double two_pi = 6.283185307179586476925286766559;

typedef struct llama3_rope {
  double factor, low, high, context;
} llama3_rope;

/* The divisor of frequency i. */
static double llama3_divisor(const import_hyper *h, const llama3_rope *r, size_t i)
{
  double wavelength = two_pi * pow(h->rope_base, 2.0 * (double)i / h->head_dim);
  if (wavelength < r->context / r->high)
    return 1;
  if (wavelength > r->context / r->low)
    return r->factor;
  double smooth = (r->context / wavelength - r->low) / (r->high - r->low);
  return 1 / ((1 - smooth) / r->factor + smooth);
}

/* The converter works in float32, whose pow may be an ulp or two off; the ramp magnifies that by at most `factor`. */
static bool llama3_fits(const import_hyper *h, const llama3_rope *r, const float *divisors, size_t n)
{
  for (size_t i = 0; i < n; i++) {
    double want = llama3_divisor(h, r, i);
    if (!(fabs(want - (double)divisors[i]) <= 4e-6 * want))
      return false;
  }
  return true;
}

static bool llama3_search(const import_hyper *h, double factor, const float *divisors, size_t n, llama3_rope *out)
{
  static const double highs[] = {4, 2, 8};
  /* Llama 3's own 8192 first, then up to 2^24, then down to 1. */
  for (int k = 0; k < 25; k++) {
    double context = ldexp(1, k < 12 ? 13 + k : 24 - k);
    for (size_t i = 0; i < sizeof highs / sizeof *highs; i++) {
      *out = (llama3_rope){.factor = factor, .low = 1, .high = highs[i], .context = context};
      if (llama3_fits(h, out, divisors, n))
        return true;
    }
  }
  return false;
}

/* Two points of the ramp determine its line, and with low = 1 the other two parameters. */
static bool llama3_solve(const import_hyper *h, double factor, const float *divisors, size_t n, llama3_rope *out)
{
  double x[2] = {0, 0}, y[2] = {0, 0};
  size_t points = 0;
  for (size_t i = 0; i < n; i++) {
    double f = (double)divisors[i];
    if (f <= 1.0001 || f >= factor * 0.9999)
      continue;
    size_t at = points == 0 ? 0 : 1; /* the first and the last: the widest base */
    x[at] = 1 / (two_pi * pow(h->rope_base, 2.0 * (double)i / h->head_dim));
    y[at] = (1 / f - 1 / factor) / (1 - 1 / factor);
    points++;
  }
  if (points < 2)
    return false;
  double slope = (y[1] - y[0]) / (x[1] - x[0]), low_term = slope * x[0] - y[0];
  if (!(low_term > 0) || !(slope > 0))
    return false;
  double high = nearbyint((1 + 1 / low_term) * 1000) / 1000;
  *out = (llama3_rope){.factor = factor, .low = 1, .high = high, .context = nearbyint(slope * (high - 1))};
  return out->high > 1 && out->context >= 1 && llama3_fits(h, out, divisors, n);
}

static tern_status llama3_scaling(const gguf *g, const import_hyper *h, const gguf_tensor *t, buf *out, tern_error *err)
{
  size_t n = t->size[0];
  if (t->type != GGML_F32 || t->dims != 1 || n != h->head_dim / 2)
    return err_set(err, TERN_E_FORMAT, "%s: tensor rope_freqs.weight: %" PRIu32 " float32 divisors are expected",
                   g->path, h->head_dim / 2);
  float *divisors = mem_array(n, sizeof *divisors);
  if (!divisors)
    return err_nomem(err, "rope_freqs.weight");
  memcpy(divisors, t->data, t->bytes);
  double factor = 1;
  bool finite = true;
  for (size_t i = 0; i < n; i++) {
    finite = finite && isfinite(divisors[i]) && divisors[i] >= 1;
    factor = (double)divisors[i] > factor ? (double)divisors[i] : factor;
  }
  llama3_rope r = {0};
  bool found =
      finite && factor > 1 && (llama3_search(h, factor, divisors, n, &r) || llama3_solve(h, factor, divisors, n, &r));
  bool plain = finite && factor <= 1;
  mem_free(divisors);
  if (plain)
    return TERN_OK;
  if (!found)
    return err_set(err, TERN_E_UNSUPPORTED,
                   "%s: tensor rope_freqs.weight: no llama3 parameters reproduce these divisors", g->path);
  buf_adds(out, "{\"rope_type\": \"llama3\"");
  jout_put_float32(out, "factor", r.factor);
  jout_put_float32(out, "low_freq_factor", r.low);
  jout_put_float32(out, "high_freq_factor", r.high);
  jout_put_int(out, "original_max_position_embeddings", (int64_t)r.context);
  buf_adds(out, "}");
  return TERN_OK;
}

static const char *rope_key(const import_hyper *h, const char *suffix, char out[128])
{
  snprintf(out, 128, "%s.rope.%s", h->arch->name, suffix);
  return out;
}

static tern_status read_factor(const gguf *g, const import_hyper *h, double *factor, bool *present, tern_error *err)
{
  char key[128];
  TRY(gguf_get_float(g, rope_key(h, "scaling.factor", key), factor, present, err));
  if (!*present) /* the name before scaling types existed */
    TRY(gguf_get_float(g, rope_key(h, "scale_linear", key), factor, present, err));
  if (*present && !(*factor >= 1))
    return err_set(err, TERN_E_FORMAT, "%s: key %s: %g is out of range", g->path, key, *factor);
  return TERN_OK;
}

static tern_status yarn_scaling(const gguf *g, const import_hyper *h, double factor, buf *out, tern_error *err)
{
  char key[128];
  uint32_t original = 0;
  double fast = 32, slow = 1;
  bool present, has_fast, has_slow;
  TRY(gguf_get_float(g, rope_key(h, "scaling.yarn_beta_fast", key), &fast, &has_fast, err));
  TRY(gguf_get_float(g, rope_key(h, "scaling.yarn_beta_slow", key), &slow, &has_slow, err));
  TRY(gguf_get_uint(g, rope_key(h, "scaling.original_context_length", key), &original, &present, err));
  if (!present || original == 0)
    return err_set(err, TERN_E_FORMAT, "%s: key %s is missing", g->path, key);
  buf_adds(out, "{\"rope_type\": \"yarn\"");
  jout_put_float32(out, "factor", factor);
  jout_put_int(out, "original_max_position_embeddings", original);
  if (has_fast)
    jout_put_float32(out, "beta_fast", fast);
  if (has_slow)
    jout_put_float32(out, "beta_slow", slow);
  buf_adds(out, "}");
  return TERN_OK;
}

tern_status import_rope_scaling(const gguf *g, const import_hyper *h, buf *out, tern_error *err)
{
  char key[128];
  gguf_string type = {0};
  bool has_type, has_factor;
  double factor = 1;
  TRY(gguf_get_string(g, rope_key(h, "scaling.type", key), &type, &has_type, err));
  TRY(read_factor(g, h, &factor, &has_factor, err));
  const char *kind = !has_type                                               ? has_factor ? "linear" : "none"
                     : type.size == 4 && memcmp(type.data, "none", 4) == 0   ? "none"
                     : type.size == 6 && memcmp(type.data, "linear", 6) == 0 ? "linear"
                     : type.size == 4 && memcmp(type.data, "yarn", 4) == 0   ? "yarn"
                                                                             : NULL;
  if (!kind)
    return err_set(err, TERN_E_UNSUPPORTED, "%s: key %s: %.*s: linear and yarn can be imported", g->path,
                   rope_key(h, "scaling.type", key), GGUF_STR(type));
  if (factor == 1)
    kind = "none";
  const gguf_tensor *divisors = gguf_find_tensor(g, "rope_freqs.weight");
  if (divisors && strcmp(kind, "none") != 0)
    return err_set(err, TERN_E_UNSUPPORTED, "%s: tensor rope_freqs.weight beside %s rope scaling", g->path, kind);
  if (divisors)
    return llama3_scaling(g, h, divisors, out, err);
  if (strcmp(kind, "yarn") == 0)
    return yarn_scaling(g, h, factor, out, err);
  if (strcmp(kind, "linear") == 0) {
    buf_adds(out, "{\"rope_type\": \"linear\"");
    jout_put_float32(out, "factor", factor);
    buf_adds(out, "}");
  }
  return TERN_OK;
}
