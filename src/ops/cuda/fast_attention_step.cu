/* fast_attention_step.cu - a chunk of one token: for rows that take a step each, and for whatever has no tile.
 *
 * A block of threads has a chunk of 256 positions and the query heads of one key/value head, so keys and values are
 * read once for all of them. That is memory's speed or nothing: a step at depth 8192 reads 33 MB a layer. So much is
 * asked for at once, with cp.async into shared memory: all keys, in two stages of dims, and values as they get a place.
 * Where two blocks of threads a multiprocessor are all there are, the first two blocks of values have one from the
 * beginning (192 KB are on their way then, dims of 128, nearly all that is ever wanted), and the other two take that of
 * the first dims. Where there are more, values take the place of keys, so that three blocks of threads fit.
 *
 * Sums: a thread has two keys and four heads and walks the dims; then two dims and two heads, and walks the keys. More
 * sums a thread mean fewer loads from shared memory for each; fewer threads do not matter, since the sums of one are
 * independent. Float16 is widened at each use: floats in shared memory would take twice the room.
 *
 * Where no row has more than one token, queries and keys are rotated here as well, and keys and values stored
 * (fast_turn): whoever has the chunk with a token's position puts them into its own copy of it, and one of those into
 * the block. So nothing but queries, keys and values of its own is this step's, and all else is asked for early.
 *
 * What failed: four keys and two heads a thread (fewer loads from shared memory, and no quicker); a key and two heads,
 * in stages of two blocks (1.5 times the instructions); pointers loaded where they are used, a cache's latency each.
 */
#include "ops/cuda/copy.cuh"
#include "ops/cuda/fast_attention.cuh"

enum {
  BLOCKS = FAST_CHUNK / KV_BLOCK, /* of a chunk */
};

/* For HEADS heads of a share: GROUP of them meet a key together, PAIRS of two a value. */
template <int HEADS> struct step_shape {
  enum { GROUP = HEADS < 4 ? HEADS : 4, GROUPS = HEADS / GROUP, PAIRS = (HEADS + 1) / 2, THREADS = 128 * GROUPS };
};

/* Of shared memory: for the keys, and where values are asked for ahead of their place, for two blocks of those. */
static __host__ __device__ int buffers_of(const fast_room &r)
{
  return r.ahead ? BLOCKS + 2 : BLOCKS;
}

/* ---- the parts of it ---- */

/* Asks for some bytes, a multiple of 16, with all threads: four pieces a turn, as long as it goes. */
template <int THREADS> static __device__ void ask(void *to, const void *from, int bytes)
{
  enum { TURN = THREADS * 16 };
  char *here = (char *)to + threadIdx.x * 16;
  const char *there = (const char *)from + threadIdx.x * 16;
#pragma unroll 1
  for (; bytes >= 4 * TURN; bytes -= 4 * TURN, here += 4 * TURN, there += 4 * TURN)
#pragma unroll
    for (int i = 0; i < 4; i++)
      copy_async(here + i * TURN, there + i * TURN);
#pragma unroll 1
  for (int at = (int)threadIdx.x * 16; at < bytes; at += TURN, here += TURN, there += TURN)
    copy_async(here, there);
}

static __device__ float2 two_floats(unsigned halves)
{
  return __half22float2(*(const __half2 *)&halves);
}

template <int N> struct alignas(N * sizeof(float)) floats {
  float x[N];
};

/* sum[head] += q k of one dim, for two neighbouring keys. */
template <int GROUP> static __device__ void add_score(const __half *key, const floats<GROUP> &q, float2 sum[GROUP])
{
  float2 k = two_floats(*(const unsigned *)key);
#pragma unroll
  for (int h = 0; h < GROUP; h++) {
    sum[h].x = fmaf(q.x[h], k.x, sum[h].x);
    sum[h].y = fmaf(q.x[h], k.y, sum[h].y);
  }
}

/* The same over some dims; q [dims][GROUP]. In straight pieces, inside of which the compiler loads in time. */
template <int GROUP>
static __device__ void add_scores(const __half *key, const floats<GROUP> *q, int dims, float2 sum[GROUP])
{
  enum { PIECE = 16 };
  int e = 0;
#pragma unroll 1
  for (; e + PIECE <= dims; e += PIECE)
#pragma unroll
    for (int i = 0; i < PIECE; i++)
      add_score<GROUP>(key + (e + i) * KV_BLOCK, q[e + i], sum);
#pragma unroll 1
  for (; e < dims; e++)
    add_score<GROUP>(key + e * KV_BLOCK, q[e], sum);
}

/* out: two dims of one head, then of the other. */
static __device__ void add_value(float2 term, unsigned value, float4 *out)
{
  float2 v = two_floats(value);
  out->x = fmaf(term.x, v.x, out->x);
  out->y = fmaf(term.x, v.y, out->y);
  out->z = fmaf(term.y, v.x, out->z);
  out->w = fmaf(term.y, v.y, out->w);
}

/* N keys: out += term * value; term [keys][2], of 16 bytes. */
template <int N> static __device__ void add_piece(const __half *value, int stride, const float2 *term, float4 *out)
{
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    float4 two = *(const float4 *)(term + i);
    add_value(make_float2(two.x, two.y), *(const unsigned *)(value + i * stride), out);
    add_value(make_float2(two.z, two.w), *(const unsigned *)(value + (i + 1) * stride), out);
  }
}

/* The first keys of a block, count a multiple of FEW. */
enum { FEW = 8, PIECE_KEYS = 32 };

static __device__ void add_keys(const __half *value, int stride, const float2 *term, int count, float4 *out)
{
  int i = 0;
#pragma unroll 1
  for (; i + PIECE_KEYS <= count; i += PIECE_KEYS)
    add_piece<PIECE_KEYS>(value + i * stride, stride, term + i, out);
#pragma unroll 1
  for (; i < count; i += FEW)
    add_piece<FEW>(value + i * stride, stride, term + i, out);
}

/* Keys [from, to) of a block. Terms below zero are of keys that a block-sparse head does not see. */
static __device__ void add_some(const __half *value, int stride, const float2 *term, int from, int to, float4 *out)
{
#pragma unroll 1
  for (int i = from; i < to; i++) {
    float4 with = *out;
    add_value(term[i], *(const unsigned *)(value + i * stride), &with);
    if (!(term[i].x < 0))
      out->x = with.x, out->y = with.y;
    if (!(term[i].y < 0))
      out->z = with.z, out->w = with.w;
  }
}

/* What a thread knows of its two keys: scores, then terms, of a group of heads. Those that are not seen become -1. */
template <int GROUP> struct two_keys {
  float2 of[GROUP];
  bool seen[GROUP][2];
};

/* The rare features: few instructions, called. */
static __device__ __noinline__ float special_score(float cap, bool sees, float score)
{
  return sees && cap != 0 ? capped_score(cap, score) : score;
}

/* Scores become terms; the block meets twice. most [HEADS], in every thread's view afterwards. */
template <int GROUP, int HEADS>
static __device__ void make_terms(two_keys<GROUP> *k, int group, float (*warp_most)[HEADS], float *most)
{
  enum { WARPS = 4 }; /* of a group of heads */
  int warp = threadIdx.x / 32 % WARPS, lane = threadIdx.x % 32;
  float largest[GROUP];
#pragma unroll
  for (int h = 0; h < GROUP; h++)
    largest[h] = fmaxf(k->seen[h][0] ? k->of[h].x : -INFINITY, k->seen[h][1] ? k->of[h].y : -INFINITY);
#pragma unroll
  for (int far = 16; far; far /= 2)
#pragma unroll
    for (int h = 0; h < GROUP; h++)
      largest[h] = fmaxf(largest[h], __shfl_xor_sync(~0u, largest[h], far));
  if (lane < GROUP)
#pragma unroll
    for (int h = 0; h < GROUP; h++)
      if (lane == h)
        warp_most[warp][group * GROUP + h] = largest[h];
  __syncthreads();
#pragma unroll
  for (int h = 0; h < GROUP; h++) {
#pragma unroll
    for (int w = 0; w < WARPS; w++)
      largest[h] = fmaxf(largest[h], warp_most[w][group * GROUP + h]);
    if (warp == 0 && lane == h)
      most[group * GROUP + h] = largest[h];
    k->of[h].x = k->seen[h][0] ? math_exp(k->of[h].x - largest[h]) : -1.0f;
    k->of[h].y = k->seen[h][1] ? math_exp(k->of[h].y - largest[h]) : -1.0f;
  }
}

/* l of a head: a thread a lane of 16; term [256][2]. Lane 0 has the sum. */
static __device__ float fold_terms(const float *term, int lane)
{
  float sum = 0;
#pragma unroll
  for (int j = 0; j < FAST_CHUNK; j += FAST_LANES) {
    float x = term[2 * (j + lane)];
    sum += x < 0 ? 0 : x; /* NaN stays */
  }
  unsigned half_warp = 0xffffu << (threadIdx.x & 16);
  for (int half = FAST_LANES / 2; half; half /= 2)
    sum += __shfl_down_sync(half_warp, sum, half, FAST_LANES);
  return sum;
}

static __device__ int within(int x, int low, int high)
{
  return x < low ? low : x > high ? high : x;
}

/* ---- a token's own key and value ---- */

/* Where dim e of a head stands after the rotation (ref_rope), its angle being the position's. */
struct turned_dim {
  int first, second; /* of the pair */
  bool turns, lower; /* e is the second of them */
  float sine, cosine;
};

static __device__ turned_dim turned_of(const op_rope &rope, int e, int64_t position)
{
  turned_dim d = {e, e, e < rope.dims, false, 0, 1};
  if (!d.turns)
    return d;
  int half = rope.dims / 2, i = rope.traditional ? e / 2 : e % half;
  d.first = rope.traditional ? 2 * i : i;
  d.second = rope.traditional ? 2 * i + 1 : i + half;
  d.lower = e == d.second;
  math_sincos((float)position * rope.position_scale * rope.inverse[i], &d.sine, &d.cosine);
  return d;
}

static __device__ float turn(const op_rope &rope, const turned_dim &d, const float *x)
{
  float x1 = x[d.first], x2 = x[d.second];
  if (!d.turns)
    return x1;
  x1 = rope.mscale != 1.0f ? rope.mscale * x1 : x1;
  x2 = rope.mscale != 1.0f ? rope.mscale * x2 : x2;
  return d.lower ? x1 * d.sine + x2 * d.cosine : x1 * d.cosine - x2 * d.sine;
}

/* ---- the kernel ---- */

/* TURNS: `own` is to be done. */
template <int HEADS, bool TURNS>
static __device__ void chunk_of_token(const op_attention &a, const cuda_step &s, const fast_room &r,
                                      const fast_turn &own, int buffer, int token)
{
  typedef step_shape<HEADS> shape;
  enum { GROUP = shape::GROUP, THREADS = shape::THREADS };
  extern __shared__ float4 shared[];
  __shared__ float most[HEADS], total[HEADS], warp_most[4][HEADS];
  __shared__ const __half *from[BLOCKS]; /* NULL: nothing of it is seen */
  __shared__ __half own_key[TURNS ? FAST_OWN_DIMS : 1], own_value[TURNS ? FAST_OWN_DIMS : 1];
  char *blocks = (char *)shared;                                          /* [buffers][buffer] */
  floats<GROUP> *q = (floats<GROUP> *)(blocks + buffers_of(r) * buffer);  /* [GROUPS][key_dim] */
  float *term = (float *)(q + shape::GROUPS * ((a.key_dim + 3) / 4 * 4)); /* [PAIRS][FAST_CHUNK][2] */

  int tid = threadIdx.x;
  cuda_token t = s.token[token];
  sight sees = sight_of(a, t);
  int first = unit_first(a, sees, blockIdx.x, FAST_CHUNK);
  if (cuda_quantised(a.quant, t) || !unit_seen(sees, first, FAST_CHUNK))
    return;
  head_share share = share_of(a, blockIdx.y, HEADS);
  if (tid < BLOCKS)
    from[tid] = unit_seen(sees, first + tid * KV_BLOCK, KV_BLOCK)
                    ? (const __half *)cuda_blocks(s, a.slot, t.row)[first / KV_BLOCK + tid]
                    : nullptr;
  size_t keys_at = ref_block_key(share.kv_head, a.key_dim, 0);
  size_t values_at = ref_block_value(a.kv_heads, a.key_dim, share.kv_head, a.value_dim, 0);
  int half = (a.key_dim + 1) / 2; /* dims of a stage of keys; its blocks lie one after another in two buffers */
  auto buffer_of_value = [&](int b) { return !r.ahead ? b : b < 2 ? BLOCKS + b : b - 2; };
  auto ask_values = [&](int b, bool now) {
    if (now && from[b])
      ask<THREADS>(blocks + buffer_of_value(b) * buffer, from[b] + values_at, a.value_dim * KV_BLOCK * 2);
    copy_commit();
  };
  __syncthreads();
  /* What earlier steps left may be read while the kernel before this one still runs. Otherwise queries come first:
   * behind all that is asked for they would come last. */
  const float *queries = a.q + ((int64_t)token * a.heads + share.first) * a.key_dim;
  bool early = r.overlap && (TURNS || first + FAST_CHUNK <= t.row_position);
  /* The block of the chunk that the token's own position is in, and where; -1: none, or it is there already. */
  int own_block =
      TURNS && t.position >= first && t.position < first + FAST_CHUNK ? (int)(t.position - first) / KV_BLOCK : -1;
  int own_at = (int)(t.position % KV_BLOCK);
  turned_dim turned = {};
  if (TURNS && tid < a.key_dim)
    turned = turned_of(own.rope, tid, t.position);
  float x[HEADS] = {};
  auto load_queries = [&](int e) {
    if (TURNS && e != tid)
      turned = turned_of(own.rope, e, t.position);
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
      if (h >= share.count || e >= a.key_dim)
        x[h] = 0;
      else
        x[h] = TURNS ? turn(own.rope, turned, queries + h * a.key_dim) : queries[h * a.key_dim + e];
    }
    if (TURNS && own_block >= 0 && e < a.key_dim)
      own_key[e] = __ushort_as_half(
          fast_half(turn(own.rope, turned, own.k + ((int64_t)token * a.kv_heads + share.kv_head) * a.key_dim)));
  };
  if (!early) {
    cuda_await();
    load_queries(tid);
  }
  /* Groups of copies: two of keys, and one for each block of values. */
#pragma unroll 1
  for (int n = 0; n < 2 * BLOCKS; n++) {
    int stage = n / BLOCKS, b = n % BLOCKS;
    if (from[b])
      ask<THREADS>(blocks + 2 * stage * buffer + b * half * KV_BLOCK * 2, from[b] + keys_at + stage * half * KV_BLOCK,
                   (stage ? a.key_dim - half : half) * KV_BLOCK * 2);
    if (b == BLOCKS - 1)
      copy_commit();
  }
  if (early) {
    cuda_await();
    load_queries(tid);
  }
  ask_values(0, r.ahead);
  ask_values(1, r.ahead);
#pragma unroll 1
  for (int e = tid; e < a.key_dim; e += THREADS) {
    if (e != tid)
      load_queries(e);
#pragma unroll
    for (int h = 0; h < HEADS; h++)
      q[h / GROUP * a.key_dim + e].x[h % GROUP] = a.scale * x[h];
  }
  if (TURNS && own_block >= 0) {
    bool stores = share.first % (a.heads / a.kv_heads) == 0; /* of the shares of a key/value head, the first */
    __half *block = (__half *)cuda_blocks(s, a.slot, t.row)[t.position / KV_BLOCK];
#pragma unroll 1
    for (int e = tid; e < a.value_dim; e += THREADS) {
      own_value[e] =
          __ushort_as_half(fast_half(own.v[((int64_t)token * a.kv_heads + share.kv_head) * a.value_dim + e]));
      if (stores)
        block[values_at + (size_t)own_at * a.value_dim + e] = own_value[e];
    }
#pragma unroll 1
    for (int e = tid; stores && e < a.key_dim; e += THREADS)
      block[keys_at + (size_t)e * KV_BLOCK + own_at] = own_key[e];
  }

  /* Scores: a thread two keys of a group of heads. */
  int group = tid / (FAST_CHUNK / 2), j = tid % (FAST_CHUNK / 2) * 2;
  bool warp_sees = unit_seen(sees, first + j / KV_BLOCK * KV_BLOCK, KV_BLOCK); /* a warp has a block's keys */
  float2 sum[GROUP] = {};
#pragma unroll 1
  for (int stage = 0; stage < 2; stage++) {
    if (stage == 0)
      copy_wait<3>(); /* the other dims, and values */
    else
      copy_wait<4>();
    __syncthreads();
    if (TURNS && own_block >= 0) {
      int dims = stage ? a.key_dim - half : half;
      __half *keys = (__half *)(blocks + 2 * stage * buffer) + own_block * half * KV_BLOCK + own_at;
#pragma unroll 1
      for (int e = tid; e < dims; e += THREADS)
        keys[e * KV_BLOCK] = own_key[stage * half + e];
      __syncthreads();
    }
    const __half *key = (const __half *)(blocks + 2 * stage * buffer) + j / KV_BLOCK * half * KV_BLOCK + j % KV_BLOCK;
    if (warp_sees)
      add_scores<GROUP>(key, q + group * a.key_dim + stage * half, stage ? a.key_dim - half : half, sum);
    if (stage)
      continue;
    __syncthreads();
    ask_values(r.ahead ? 2 : 0, true);
    ask_values(r.ahead ? 3 : 1, true);
  }
  two_keys<GROUP> keys;
#pragma unroll
  for (int h = 0; h < GROUP; h++) {
    keys.of[h] = sum[h];
    keys.seen[h][0] = sight_sees(sees, first + j);
    keys.seen[h][1] = sight_sees(sees, first + j + 1);
  }
  if (a.softcap != 0 || a.sparse_block)
#pragma unroll
    for (int h = 0; h < GROUP; h++) {
      int head = share.first + group * GROUP + h, own = (int)t.position;
      keys.seen[h][0] = keys.seen[h][0] && head_sees(a, head, own, first + j);
      keys.seen[h][1] = keys.seen[h][1] && head_sees(a, head, own, first + j + 1);
      keys.of[h].x = special_score(a.softcap, keys.seen[h][0], sum[h].x);
      keys.of[h].y = special_score(a.softcap, keys.seen[h][1], sum[h].y);
    }
  make_terms<GROUP, HEADS>(&keys, group, warp_most, most); /* everybody is done with keys */
  if (!r.ahead) {
    ask_values(2, true);
    ask_values(3, true);
  }
#pragma unroll
  for (int h = 0; h < GROUP; h++) {
    int head = group * GROUP + h;
    float *to = term + (head / 2 * FAST_CHUNK + j) * 2 + head % 2;
    to[0] = keys.of[h].x;
    to[2] = keys.of[h].y;
  }
  __syncthreads();
  int folding = tid / FAST_LANES;
  if (folding < share.count) {
    float all = fold_terms(term + folding / 2 * FAST_CHUNK * 2 + folding % 2, tid % FAST_LANES);
    if (tid % FAST_LANES == 0) {
      total[folding] = all;
      r.most[fast_part(r, a, token, share.first + folding, blockIdx.x)] = make_float2(most[folding], all);
    }
  }

  /* Values: a thread two dims of a pair of heads. What is seen of the chunk are two stretches at most. */
  int kept = within(sees.keep - first, 0, FAST_CHUNK);
  int low = within(sees.low - first, kept, FAST_CHUNK), high = within(sees.high - first, low, FAST_CHUNK);
  int pairs_of_dims = a.value_dim / 2;
#pragma unroll 1
  for (int begin = 0; begin < pairs_of_dims * shape::PAIRS; begin += THREADS) {
    int n = begin + tid, pair = n / pairs_of_dims, e = n % pairs_of_dims;
    float4 out = {0, 0, 0, 0};
#pragma unroll 1
    for (int b = 0; b < BLOCKS; b++) {
      if (begin == 0) {
        if (b == 0)
          copy_wait<3>();
        else if (b == 1)
          copy_wait<2>();
        else if (b == 2)
          copy_wait<1>();
        else
          copy_wait<0>();
        __syncthreads();
        if (TURNS && b == own_block) {
          __half *value = (__half *)(blocks + buffer_of_value(b) * buffer) + own_at * a.value_dim;
#pragma unroll 1
          for (int n = tid; n < a.value_dim; n += THREADS)
            value[n] = own_value[n];
          __syncthreads();
        }
      }
      if (pair >= shape::PAIRS)
        continue;
      const __half *value = (const __half *)(blocks + buffer_of_value(b) * buffer) + 2 * e;
      const float2 *terms = (const float2 *)term + pair * FAST_CHUNK + b * KV_BLOCK;
      int start = b * KV_BLOCK, done = 0, until = within(high - start, 0, KV_BLOCK);
      if (low <= start && !a.sparse_block) { /* from the beginning of the block on */
        done = until / FEW * FEW;
        add_keys(value, a.value_dim, terms, done, &out);
      } else {
        add_some(value, a.value_dim, terms, 0, within(kept - start, 0, KV_BLOCK), &out);
        done = within(low - start, 0, KV_BLOCK);
      }
      add_some(value, a.value_dim, terms, done, until, &out);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int h = 2 * pair + i;
      float2 x = i ? make_float2(out.z, out.w) : make_float2(out.x, out.y);
      if (h >= share.count)
        break;
      bool alone = r.units == 1; /* nothing to join */
      float factor = alone ? 1.0f / total[h] : 1.0f;
      float *to = alone ? a.out + ((int64_t)token * a.heads + share.first + h) * a.value_dim
                        : r.out + fast_part(r, a, token, share.first + h, blockIdx.x) * a.value_dim;
      ((float2 *)to)[e] = make_float2(x.x * factor, x.y * factor);
    }
  }
}

template <int HEADS, bool TURNS>
static __global__ void __launch_bounds__(step_shape<HEADS>::THREADS, 2)
    step_chunk(op_attention a, cuda_step s, fast_room r, fast_turn own, int buffer)
{
  cuda_release_next();
  for_lone_tokens(a, s, r.first, r.count, r.tiles, false, [&](int token) {
    chunk_of_token<HEADS, TURNS>(a, s, r, own, buffer, token);
    __syncthreads();
  });
  cuda_await(); /* whoever awaits this kernel relies on what was before it, too */
}

/* ---- launching ---- */

typedef void step_kernel(op_attention, cuda_step, fast_room, fast_turn, int);

/* By the query heads of a key/value head, ascending; more than the last go in shares. */
#define STEP(heads)                                                                                                    \
  {                                                                                                                    \
    heads, step_shape<heads>::THREADS, step_chunk<heads, false>, step_chunk<heads, true>                               \
  }
static const struct {
  int heads, threads;
  step_kernel *plain, *turns;
} step_kernels[] = {STEP(1), STEP(2), STEP(4), STEP(8)};
#undef STEP
enum { STEP_KERNELS = sizeof step_kernels / sizeof step_kernels[0] };

/* Bytes of a block's values, and of half of the keys of two. */
static int buffer_of(const op_attention *a)
{
  int keys = (a->key_dim + 1) / 2 * 2;
  return (keys > a->value_dim ? keys : a->value_dim) * KV_BLOCK * 2;
}

static size_t shared_of(const op_attention *a, const fast_room &r, int heads)
{
  size_t q = (size_t)heads * ((a->key_dim + 3) / 4 * 4), terms = (size_t)(heads + 1) / 2 * 2 * FAST_CHUNK;
  return (size_t)buffers_of(r) * buffer_of(a) + (q + terms) * sizeof(float);
}

/* All heads that share keys, unless that leaves most of the machine idle: then fewer, and keys are read again. A block
 * of one head has a quarter of the instructions of four, and few keys are a matter of latency alone. */
static int kernel_of(const cuda_context *cx, const op_attention *a, int units, int tokens)
{
  int i = 0;
  while (i + 1 < STEP_KERNELS && step_kernels[i].heads < a->heads / a->kv_heads)
    i++;
  while (i > 0 && (int64_t)units * tokens * share_count(*a, step_kernels[i - 1].heads) <= cx->processors)
    i--;
  return i;
}

void fast_step_chunks(cuda_context *cx, const op_attention *a, const cuda_step *s, const fast_room *room,
                      const fast_turn *turn)
{
  fast_room r = *room;
  int i = kernel_of(cx, a, r.units, r.count), heads = step_kernels[i].heads;
  dim3 grid(r.units, share_count(*a, heads), lone_blocks(r.count, r.tiles));
  r.ahead = (int64_t)grid.x * grid.y * grid.z <= 2 * cx->processors;
  cuda_launch(cx, true, turn ? step_kernels[i].turns : step_kernels[i].plain, grid, dim3(step_kernels[i].threads),
              shared_of(a, r, heads), *a, *s, r, turn ? *turn : fast_turn{}, buffer_of(a));
}

/* Heads so wide that a chunk does not fit (dims beyond 256) and odd ones have no kernel here. */
bool fast_step_fits(const cuda_context *cx, const op_attention *a)
{
  fast_room r = {};
  r.ahead = true;
  return a->value_dim % 2 == 0 && shared_of(a, r, 8) <= dynamic_most(cx);
}

void fast_attention_step_setup(cuda_context *cx)
{
  for (int i = 0; i < STEP_KERNELS; i++)
    for (step_kernel *kernel : {step_kernels[i].plain, step_kernels[i].turns})
      allow_shared(cx, (const void *)kernel, dynamic_most(cx));
}
