/* sample.h - from logits to the next token, with the arithmetic, the order and the random draws of mlx-lm 0.31.3.
 *
 *   logits -> processors: logit bias, repetition, presence, frequency
 *          -> -infinity over tokens that are not allowed (sampler_allow)
 *          -> log-probabilities = logits - logsumexp(logits)
 *          -> temp == 0: the first of the largest
 *             else filters: top_p, min_p, xtc, top_k; then one draw from what they left
 *
 * The logits are the model's, in its type T (float32, or bfloat16 or float16 held in floats); every step rounds to T
 * where the reference does, so that a seed gives the reference's tokens. The reference's sampler is compiled, which
 * moves its constants: docs/sampling.md has the whole arithmetic.
 *
 * A sampler belongs to one thread. sampler_next allocates nothing. Refused: options that the reference refuses or
 * quietly ignores, logits that hold NaN or +infinity.
 */
#ifndef TERN_ENGINE_SAMPLE_H
#define TERN_ENGINE_SAMPLE_H

#include "base/status.h"
#include "engine/rng.h"
#include "ops/ops.h"

typedef enum sample_type { SAMPLE_F32 = 0, SAMPLE_BF16, SAMPLE_F16 } sample_type;

typedef struct sampler sampler;

/* vocab: number of logits, V. The options are copied, lists included. Errors (TERN_E_USAGE) name the command line's
 * flag. */
tern_status sampler_open(const tern_sampling *options, int vocab, sample_type type, sampler **out, tern_error *err);
void sampler_close(sampler *s); /* NULL is fine */
/* The errors of sampler_open about the options, without opening one. */
tern_status sampler_check(const tern_sampling *options, int vocab, tern_error *err);

/* One step. logits [V] become the step's log-probabilities: processed, normalised, not filtered.
 *
 * history: what the penalties look back on, newest last; each penalty takes its own window from the end. The
 * reference's single-sequence loop hands its processors the tokens that went through its step function: the prompt's
 * last token and everything generated since, in this call. Whoever wants its tokens passes timeline + prompt length
 * - 1. Its server passes the whole timeline instead. */
tern_status sampler_next(sampler *s, float *logits, const int32_t *history, size_t n_history, int32_t *token,
                         tern_error *err);

/* The next call of sampler_next, and that one alone, draws one of these [V bits], at least one of which is set: what
 * the others say goes before the log-probabilities are taken, whatever penalties said. */
void sampler_allow(sampler *s, const uint64_t *allowed);

/* From now on sampler_next may leave the logits as they are, where the choice is the same: for whoever wants tokens
 * alone. */
void sampler_choice_alone(sampler *s);

/* Whether sampler_next would give the place of the largest logit, where no other comes within SAMPLER_APART of it:
 * greedy, with the choice alone and nothing that changes logits before it. */
#define SAMPLER_APART 0x1p-18f
bool sampler_takes_largest(const sampler *s);

/* The n (at most V) most likely tokens of log-probabilities [V], most likely first, equals by id. Returns how many
 * there are: tokens with probability zero are left out. ids and values hold n each. */
int sampler_top(sampler *s, const float *logprobs, int n, int32_t *ids, float *values);

/* The state of the random numbers, for a chat that goes on where the last answer stopped. */
rng_key sampler_key(const sampler *s);
void sampler_set_key(sampler *s, rng_key key);

/* No SIMD level above `level`; the bits do not change. After open: the machine's best. */
void sampler_limit_simd(sampler *s, ops_simd level);

#endif
