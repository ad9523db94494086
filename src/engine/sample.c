/* sample.c - the sampler: options checked and turned into the reference's constants, the penalties, the normalisation,
 * the draw. See sample.h; docs/sampling.md has the arithmetic and what the reference does with odd options. */
#include "engine/sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "engine/sample_impl.h"
#include "ops/math.h"

/* ---- options ---- */

/* A Python float inside a compiled function that works in T. */
static float constant(sample_type type, double x)
{
  return type == SAMPLE_F32 ? math_c7((float)x) : sample_round(type, (float)x);
}

static tern_status check_range(const char *flag, double x, double low, double high, tern_error *err)
{
  if (x >= low && x <= high)
    return TERN_OK;
  return err_set(err, TERN_E_USAGE, "%s: %g: give a number from %g to %g", flag, x, low, high);
}

static tern_status check_finite(const char *flag, double x, tern_error *err)
{
  return isfinite(x) ? TERN_OK : err_set(err, TERN_E_USAGE, "%s: %g: give a finite number", flag, x);
}

static tern_status check_context(const char *flag, int n, tern_error *err)
{
  return n >= 0 ? TERN_OK : err_set(err, TERN_E_USAGE, "%s: %d: give a number of tokens, at least 1", flag, n);
}

static tern_status check_ids(const char *flag, const int32_t *ids, size_t n, int vocab, tern_error *err)
{
  for (size_t i = 0; i < n; i++)
    if (ids[i] < 0 || ids[i] >= vocab)
      return err_set(err, TERN_E_USAGE, "%s: token id %d: the model has ids 0 to %d", flag, ids[i], vocab - 1);
  return TERN_OK;
}

static tern_status check_numbers(const tern_sampling *o, tern_error *err)
{
  if (!(o->temp >= 0) || !isfinite(o->temp))
    return err_set(err, TERN_E_USAGE, "--temp: %g: give a number from 0 up", o->temp);
  TRY(check_range("--top-p", o->top_p, 0, 1, err));
  TRY(check_range("--min-p", o->min_p, 0, 1, err));
  TRY(check_range("--xtc-probability", o->xtc_probability, 0, 1, err));
  TRY(check_range("--xtc-threshold", o->xtc_threshold, 0, 0.5, err));
  if (!(o->repetition_penalty >= 0) || !isfinite(o->repetition_penalty))
    return err_set(err, TERN_E_USAGE, "--repetition-penalty: %g: give a number from 0 up", o->repetition_penalty);
  TRY(check_finite("--presence-penalty", o->presence_penalty, err));
  TRY(check_finite("--frequency-penalty", o->frequency_penalty, err));
  TRY(check_context("--repetition-context-size", o->repetition_context, err));
  TRY(check_context("--presence-context-size", o->presence_context, err));
  TRY(check_context("--frequency-context-size", o->frequency_context, err));
  return TERN_OK;
}

tern_status sampler_check(const tern_sampling *o, int vocab, tern_error *err)
{
  if (vocab < 1)
    return err_set(err, TERN_E_USAGE, "sampler: a vocabulary of %d: give at least one logit", vocab);
  TRY(check_numbers(o, err));
  if (o->min_tokens_to_keep < 0)
    return err_set(err, TERN_E_USAGE, "--min-tokens-to-keep: %d: give a number of tokens, at least 1",
                   o->min_tokens_to_keep);
  if (o->top_k < 0)
    return err_set(err, TERN_E_USAGE, "--top-k: %d: give a number of tokens, 0 for all", o->top_k);
  TRY(check_ids("--logit-bias", o->bias_ids, o->n_bias, vocab, err));
  if (o->temp == 0)
    return TERN_OK; /* the filters are not used */
  if (o->top_k >= vocab)
    return err_set(err, TERN_E_USAGE, "--top-k: %d: give less than the model's %d tokens, or 0", o->top_k, vocab);
  if (o->min_p > 0 && o->min_tokens_to_keep > vocab)
    return err_set(err, TERN_E_USAGE, "--min-tokens-to-keep: %d: the model has %d tokens", o->min_tokens_to_keep,
                   vocab);
  if (o->xtc_probability > 0)
    TRY(check_ids("xtc special tokens", o->xtc_special, o->n_xtc_special, vocab, err));
  return TERN_OK;
}

static sample_penalty penalty(sample_type type, double value, int context)
{
  /* A penalty is off where the number itself is zero, not where T makes it zero; then adding or multiplying is harmless
   * only for the additive ones, and dividing by zero is what the reference does too. */
  return (sample_penalty){sample_round(type, (float)value), value == 0 ? 0 : context ? (size_t)context : 20};
}

static void set_constants(sampler *s, const tern_sampling *o)
{
  s->key = rng_seed(o->seed);
  s->repetition = penalty(s->type, o->repetition_penalty, o->repetition_context);
  s->presence = penalty(s->type, o->presence_penalty, o->presence_context);
  s->frequency = penalty(s->type, o->frequency_penalty, o->frequency_context);
  s->greedy = o->temp == 0;
  if (s->greedy)
    return;
  s->inverse_temp = constant(s->type, 1 / o->temp);
  s->top_p = o->top_p > 0 && o->top_p < 1;
  s->top_p_cut = constant(s->type, 1 - o->top_p);
  s->min_p = o->min_p > 0;
  s->log_min_p = s->min_p ? constant(s->type, log(o->min_p)) : 0;
  s->min_keep = o->min_tokens_to_keep ? (size_t)o->min_tokens_to_keep : 1;
  s->xtc = o->xtc_probability > 0;
  s->xtc_probability = constant(SAMPLE_F32, o->xtc_probability); /* compared with a float32 draw in every T */
  s->xtc_threshold = constant(s->type, o->xtc_threshold);
  s->top_k = (size_t)o->top_k;
}

static bool copy_ids(int32_t **to, size_t *n_to, const int32_t *from, size_t n)
{
  *to = mem_array(n, sizeof **to);
  if (!*to)
    return false;
  if (n)
    memcpy(*to, from, n * sizeof **to);
  *n_to = n;
  return true;
}

static bool set_lists(sampler *s, const tern_sampling *o)
{
  size_t v = s->vocab;
  s->work = mem_aligned(64, v * sizeof(float));
  s->exps = mem_aligned(64, v * sizeof(float));
  s->entries[0] = mem_array(v, sizeof(uint64_t));
  s->entries[1] = mem_array(v, sizeof(uint64_t));
  s->seen = mem_array(v / 64 + 1, sizeof(uint64_t));
  s->bias_values = mem_array(o->n_bias, sizeof(float));
  if (!s->work || !s->exps || !s->entries[0] || !s->entries[1] || !s->seen || !s->bias_values)
    return false;
  for (size_t i = 0; i < o->n_bias; i++)
    s->bias_values[i] = sample_round(s->type, o->bias_values[i]);
  return copy_ids(&s->bias_ids, &s->n_bias, o->bias_ids, o->n_bias) &&
         copy_ids(&s->xtc_special, &s->n_xtc_special, o->xtc_special, s->xtc ? o->n_xtc_special : 0);
}

void sampler_limit_simd(sampler *s, ops_simd level)
{
#if defined(__x86_64__)
  s->kernels = level >= SIMD_AVX2 && ops_simd_best() >= SIMD_AVX2 ? &sample_kernels_avx2 : &sample_kernels_baseline;
#else
  (void)level;
  s->kernels = &sample_kernels_baseline;
#endif
}

tern_status sampler_open(const tern_sampling *options, int vocab, sample_type type, sampler **out, tern_error *err)
{
  TRY(sampler_check(options, vocab, err));
  sampler *s = mem_zalloc(sizeof *s);
  if (!s)
    return err_nomem(err, "sampler");
  s->vocab = (size_t)vocab;
  s->type = type;
  sampler_limit_simd(s, ops_simd_best());
  set_constants(s, options);
  if (!set_lists(s, options)) {
    sampler_close(s);
    return err_nomem(err, "sampler");
  }
  *out = s;
  return TERN_OK;
}

void sampler_close(sampler *s)
{
  if (!s)
    return;
  mem_free(s->work);
  mem_free(s->exps);
  mem_free(s->entries[0]);
  mem_free(s->entries[1]);
  mem_free(s->seen);
  mem_free(s->bias_ids);
  mem_free(s->bias_values);
  mem_free(s->xtc_special);
  mem_free(s);
}

rng_key sampler_key(const sampler *s)
{
  return s->key;
}

void sampler_set_key(sampler *s, rng_key key)
{
  s->key = key;
}

/* ---- processors ---- */

static bool first_sight(sampler *s, int32_t id)
{
  uint64_t bit = UINT64_C(1) << (id & 63), *word = &s->seen[id >> 6];
  bool first = !(*word & bit);
  *word |= bit;
  return first;
}

static void forget(sampler *s, const int32_t *ids, size_t n)
{
  for (size_t i = 0; i < n; i++)
    s->seen[ids[i] >> 6] = 0;
}

/* The last `context` of the history. */
static const int32_t *window(const sample_penalty *p, const int32_t *history, size_t n_history, size_t *n)
{
  *n = n_history < p->context ? n_history : p->context;
  return history + (n_history - *n);
}

/* Each token of the window once, however often it stands there: the reference gathers, computes and scatters. */
static void penalise_repetition(sampler *s, float *l, const int32_t *ids, size_t n)
{
  float p = s->repetition.value;
  for (size_t i = 0; i < n; i++)
    if (first_sight(s, ids[i])) {
      float *x = &l[ids[i]];
      *x = sample_round(s->type, *x < 0 ? *x * p : *x / p);
    }
  forget(s, ids, n);
}

static void penalise_presence(sampler *s, float *l, const int32_t *ids, size_t n)
{
  for (size_t i = 0; i < n; i++)
    if (first_sight(s, ids[i]))
      l[ids[i]] = sample_round(s->type, l[ids[i]] - s->presence.value);
  forget(s, ids, n);
}

/* As often as the token stands in the window, rounded each time. */
static void penalise_frequency(sampler *s, float *l, const int32_t *ids, size_t n)
{
  for (size_t i = 0; i < n; i++)
    l[ids[i]] = sample_round(s->type, l[ids[i]] - s->frequency.value);
}

static size_t longest_window(const sampler *s, size_t n_history)
{
  size_t n = s->repetition.context;
  n = s->presence.context > n ? s->presence.context : n;
  n = s->frequency.context > n ? s->frequency.context : n;
  return n < n_history ? n : n_history;
}

static tern_status process(sampler *s, float *l, const int32_t *history, size_t n_history, tern_error *err)
{
  size_t n = longest_window(s, n_history);
  TRY(check_ids("history", n ? history + (n_history - n) : NULL, n, (int)s->vocab, err));
  for (size_t i = 0; i < s->n_bias; i++) {
    float *x = &l[s->bias_ids[i]];
    *x = sample_round(s->type, *x + s->bias_values[i]);
  }
  if (n == 0)
    return TERN_OK;
  const int32_t *ids = window(&s->repetition, history, n_history, &n);
  penalise_repetition(s, l, ids, n);
  ids = window(&s->presence, history, n_history, &n);
  penalise_presence(s, l, ids, n);
  ids = window(&s->frequency, history, n_history, &n);
  penalise_frequency(s, l, ids, n);
  return TERN_OK;
}

static bool is_allowed(const sampler *s, size_t id)
{
  return s->allowed[id >> 6] >> (id & 63) & 1;
}

static void mask(const sampler *s, float *l)
{
  for (size_t i = 0; i < s->vocab; i++)
    if (!is_allowed(s, i))
      l[i] = -INFINITY;
}

/* ---- the draw ---- */

static tern_status refuse_logits(const sampler *s, const float *l, tern_error *err)
{
  for (size_t i = 0; i < s->vocab; i++)
    if (l[i] != l[i] || l[i] == INFINITY)
      return err_set(err, TERN_E_FORMAT,
                     "logits: %s for token id %zu: the weights are damaged or overflow (of the checkpoint, or prepared "
                     "ones: `tern prepare` looks at those)",
                     l[i] != l[i] ? "nan" : "inf", i);
  return err_set(err, TERN_E_FORMAT, "logits: every token is impossible: take back the logit bias");
}

/* l = T(l - logsumexp(l)); *greatest: the largest of the results. The sum is float32 in every T, and rounding keeps
 * order, so the largest result is that of the largest logit. */
static tern_status normalise(sampler *s, float *l, float *greatest, tern_error *err)
{
  float m = s->kernels->max(l, s->vocab);
  if (!isfinite(m))
    return refuse_logits(s, l, err);
  s->kernels->exp(SAMPLE_F32, l, m, s->exps, s->vocab);
  float lse = sample_round(s->type, math_log(s->kernels->sum(s->exps, s->vocab)) + m);
  s->kernels->subtract(s->type, l, lse, s->vocab);
  *greatest = sample_round(s->type, m - lse);
  return TERN_OK;
}

/* The score of one token: its log-probability over the temperature, in T, plus its share of chance, in float32. */
static float score(const sampler *s, rng_key key, size_t i)
{
  return rng_gumbel(rng_unit_compiled(rng_word(key, s->vocab, i))) +
         sample_round(s->type, s->work[i] * s->inverse_temp);
}

/* No token whose log-probability is below this can reach `best`: chance adds at most RNG_GUMBEL_MAX, and rounding to T
 * takes at most a 2^-8th off the size of a negative number. Half a unit covers the roundings of the addition. */
static float hopeless(const sampler *s, float best)
{
  double reach = (double)best - (double)RNG_GUMBEL_MAX - 0.5;
  return reach < 0 ? (float)(reach / ((double)s->inverse_temp * (1 - 0x1p-7)) * (1 + 0x1p-20)) : -INFINITY;
}

/* All scores, as the reference's argmax goes through them. Needed where the likeliest token drew zero, or where 1/temp
 * is infinite in T. */
static int32_t draw_plainly(const sampler *s, rng_key key)
{
  size_t token = 0;
  float best = score(s, key, 0);
  for (size_t i = 1; i < s->vocab; i++) {
    float x = score(s, key, i);
    if (x > best) {
      best = x;
      token = i;
    }
  }
  return (int32_t)token;
}

/* One categorical draw: the first of the largest scores. Scores are computed only where they can matter, starting with
 * the likeliest token: the numbers of the others are drawn by position and need not be made. */
static int32_t draw(sampler *s)
{
  rng_key key = rng_next(&s->key);
  size_t n = s->vocab;
  float m = s->kernels->max(s->work, n);
  if (m == -INFINITY)
    return 0; /* the filters left nothing; every score is -infinity */
  size_t token = s->kernels->find(s->work, 0, n, m);
  float best = score(s, key, token);
  if (!isfinite(best))
    return draw_plainly(s, key);
  float limit = hopeless(s, best);
  for (size_t i = s->kernels->find(s->work, 0, n, limit); i < n; i = s->kernels->find(s->work, i + 1, n, limit)) {
    float x = score(s, key, i);
    if (x > best || (x == best && i < token)) {
      best = x;
      token = i;
      limit = hopeless(s, best);
    }
  }
  return (int32_t)token;
}

static bool has_sure_choices(const sampler *s)
{
  return s->greedy && s->choice_alone && s->type == SAMPLE_F32 && s->vocab <= 1 << 24;
}

/* Whether the largest logit is the greedy choice whatever logsumexp is, a chain of V additions. Log-probabilities of
 * the largest are at most ln V < 32 away from zero, so each is rounded by at most 2^-20: logits that differ by more
 * than 2^-18 keep their order. (Where that is less than half a unit of the logits themselves, the limit is the
 * largest.) */
static bool sure_choice(const sampler *s, const float *l, int32_t *token)
{
  if (!has_sure_choices(s))
    return false;
  float m = s->kernels->max(l, s->vocab);
  if (!isfinite(m))
    return false;
  size_t first = s->kernels->find(l, 0, s->vocab, m - SAMPLER_APART);
  *token = (int32_t)first;
  return s->kernels->find(l, first + 1, s->vocab, m - SAMPLER_APART) == s->vocab;
}

bool sampler_takes_largest(const sampler *s)
{
  return has_sure_choices(s) && !s->n_bias && !s->repetition.context && !s->presence.context && !s->frequency.context;
}

/* As mlx-lm does it, whatever the logits are. */
static tern_status next_of(sampler *s, float *logits, const int32_t *history, size_t n_history, int32_t *token,
                           tern_error *err)
{
  float greatest = 0;
  TRY(process(s, logits, history, n_history, err));
  if (s->allowed)
    mask(s, logits);
  if (sure_choice(s, logits, token))
    return TERN_OK;
  TRY(normalise(s, logits, &greatest, err));
  if (s->greedy) {
    *token = (int32_t)s->kernels->find(logits, 0, s->vocab, greatest);
    return TERN_OK;
  }
  memcpy(s->work, logits, s->vocab * sizeof *logits);
  if (s->top_p)
    sample_top_p(s);
  if (s->min_p)
    sample_min_p(s);
  if (s->xtc)
    sample_xtc(s);
  if (s->top_k)
    sample_top_k(s);
  *token = draw(s);
  /* Where filters leave nothing, or 1/temp is infinite, the reference draws the first token: it may not be allowed. */
  if (s->allowed && !is_allowed(s, (size_t)*token))
    *token = (int32_t)s->kernels->find(logits, 0, s->vocab, greatest);
  return TERN_OK;
}

tern_status sampler_next(sampler *s, float *logits, const int32_t *history, size_t n_history, int32_t *token,
                         tern_error *err)
{
  tern_status status = next_of(s, logits, history, n_history, token, err);
  s->allowed = NULL;
  return status;
}

void sampler_allow(sampler *s, const uint64_t *allowed)
{
  s->allowed = allowed;
}

void sampler_choice_alone(sampler *s)
{
  s->choice_alone = true;
}

int sampler_top(sampler *s, const float *logprobs, int n, int32_t *ids, float *values)
{
  if (n < 1)
    return 0;
  size_t want = (size_t)n < s->vocab ? (size_t)n : s->vocab, equal, found = 0;
  uint32_t cut = sample_select(logprobs, s->vocab, want, &equal);
  for (size_t i = 0; i < s->vocab && found < want; i++) {
    uint32_t key = sample_order_key(logprobs[i]);
    if (logprobs[i] > -INFINITY && (key > cut || (key == cut && equal && equal--)))
      s->entries[0][found++] = (uint64_t)~key << 32 | i; /* descending, then by id */
  }
  const uint64_t *sorted = sample_sort(s->entries[0], s->entries[1], found);
  for (size_t i = 0; i < found; i++) {
    ids[i] = (int32_t)(uint32_t)sorted[i];
    values[i] = logprobs[ids[i]];
  }
  return (int)found;
}
