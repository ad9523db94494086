/* attention.cuh - what the attention kernels of both numerics share: which keys a token sees, and how grids walk them.
 *
 * ops/visible.h says which positions a token sees and in which order `exact` sums them. A thread that has one key needs
 * the way back, from position to place in that order, and without loops: the ranges are always the `keep` first
 * positions, then [low, high), of which the `moved` newest come first. That is a sight. A `slot` is a place in the
 * order; without a ring it is position - low.
 *
 * Grids cover units of positions (blocks of 64 in exact, chunks of 256 in fast). Their number may depend only on the
 * record and on cuda_step.most_keys, so under a window unit x of a token is not x times its size: the units of the
 * `keep` positions come first, then those from the window's lower end on.
 */
#ifndef TERN_OPS_CUDA_ATTENTION_CUH
#define TERN_OPS_CUDA_ATTENTION_CUH

#include "ops/cuda/cuda.cuh"
#include "ops/cuda/math.cuh"

/* ---- what a token sees ---- */

struct sight {
  int keep, low, high, moved; /* [0, keep) and [low, high); the moved newest are summed before the rest of those */
};

/* Rare or long: calls, so that kernels stay small. (With these inlined at each use a step's kernel had 150 KB of
 * instructions, which no cache holds, and took three times as long.) */
static __device__ __noinline__ sight visible_sight(int window, int keep, ops_row_kind kind, int64_t position,
                                                   int64_t split)
{
  ops_range range[VISIBLE_MOST];
  int n = ops_visible(window, keep, position, split, kind, range), i = 0;
  sight s;
  s.keep = n > 1 && keep ? (int)range[i++].count : 0;
  s.moved = n - i > 1 ? (int)range[i++].count : 0;
  s.low = (int)range[i].first;
  s.high = s.low + (int)range[i].count + s.moved;
  return s;
}

static inline __device__ sight sight_of(const op_attention &a, const cuda_token &t)
{
  int seen = (int)t.position + 1;
  if (a.window == 0 || seen <= a.window)
    return {0, 0, seen, 0};
  return visible_sight(a.window, a.keep, a.by_time ? ROW_READ : (ops_row_kind)t.kind, t.position, t.split);
}

static inline __device__ int sight_count(const sight &s)
{
  return s.keep + s.high - s.low;
}

static inline __device__ bool sight_sees(const sight &s, int position)
{
  return position < s.keep || (position >= s.low && position < s.high);
}

/* The place of a position that is seen. */
static inline __device__ int sight_slot(const sight &s, int position)
{
  int newest = s.high - s.moved;
  if (position < s.keep)
    return position;
  return s.keep + (position >= newest ? position - newest : s.moved + position - s.low);
}

static inline __device__ int sight_position(const sight &s, int slot)
{
  if (slot < s.keep)
    return slot;
  slot -= s.keep;
  return slot < s.moved ? s.high - s.moved + slot : s.low + slot - s.moved;
}

static __device__ __noinline__ bool sparse_sees(int block, int local, int stride, int head, int own, int position)
{
  op_attention a;
  a.sparse_block = block;
  a.sparse_local = local;
  a.sparse_stride = stride;
  return ref_sees(&a, head, own, position);
}

static __device__ __noinline__ float capped_score(float cap, float score)
{
  return ref_cap(DT_F32, cap, score);
}

/* Whether a head sees a position of the sight: block-sparse ops hide some. */
static inline __device__ bool head_sees(const op_attention &a, int head, int own, int position)
{
  return !a.sparse_block || sparse_sees(a.sparse_block, a.sparse_local, a.sparse_stride, head, own, position);
}

/* ---- units of positions ---- */

/* Units of `size` positions that a grid must have. */
static inline int64_t unit_count(const op_attention *a, int64_t most_keys, int size)
{
  int64_t all = cuda_ceil(most_keys, size);
  if (!a->window)
    return all;
  int64_t some = cuda_ceil(a->keep, size) + cuda_ceil(a->window, size) + 1;
  return some < all ? some : all;
}

/* Where unit x of a token begins; it may lie outside of what is seen. Ascending in x. */
static inline __device__ int unit_first(const op_attention &a, const sight &s, int x, int size)
{
  int kept = a.window ? (a.keep + size - 1) / size : 0, low = s.low / size;
  return (x < kept ? x : x - kept + (low > kept ? low : kept)) * size;
}

/* The unit that begins there, if the token sees it. */
static inline __device__ int unit_index(const op_attention &a, const sight &s, int first, int size)
{
  int kept = a.window ? (a.keep + size - 1) / size : 0, low = s.low / size, unit = first / size;
  return unit < kept ? unit : unit - (low > kept ? low : kept) + kept;
}

static inline __device__ bool unit_seen(const sight &s, int first, int size)
{
  return first < s.keep || (first < s.high && first + size > s.low);
}

/* ---- heads ---- */

/* Heads that share a key/value head go through a kernel HEADS at a time: the share of one block of threads. */
struct head_share {
  int kv_head, first, count;
};

static inline __host__ __device__ int share_count(const op_attention &a, int heads)
{
  return a.kv_heads * ((a.heads / a.kv_heads + heads - 1) / heads);
}

static inline __device__ head_share share_of(const op_attention &a, int index, int heads)
{
  int repeats = a.heads / a.kv_heads, shares = (repeats + heads - 1) / heads, part = index % shares;
  head_share s;
  s.kv_head = index / shares;
  s.first = s.kv_head * repeats + part * heads;
  s.count = repeats - part * heads < heads ? repeats - part * heads : heads;
  return s;
}

static inline __device__ float attention_cap(const op_attention &a, float score)
{
  return a.softcap != 0 ? capped_score(a.softcap, score) : score;
}

/* ---- tiles ---- */

/* Neighbours of a prompt share what is loaded: a tile is QUERIES queries of one key/value head, heads of a share times
 * tokens. A step is cut into tiles as it comes; a tile whose tokens belong together is one to the tile kernels, and the
 * tokens of any other are left to the kernels of single tokens. Both ask tile_shares. */
enum { TILE_QUERIES = 64, TILE_HEADS = 16 };

static inline __host__ __device__ int tile_heads(const op_attention &a)
{
  int repeats = a.heads / a.kv_heads, shares = (repeats + TILE_HEADS - 1) / TILE_HEADS;
  return (repeats + shares - 1) / shares;
}

static inline __host__ __device__ int tile_tokens(const op_attention &a)
{
  return TILE_QUERIES / tile_heads(a);
}

/* The tiles of a launch over tokens [first, first + count), and where tile n lies in it. */
struct tile_span {
  int first, count;
};

static inline __host__ __device__ int tile_count(const op_attention &a, int count)
{
  return (count + tile_tokens(a) - 1) / tile_tokens(a);
}

static inline __device__ tile_span tile_at(const op_attention &a, int first, int count, int n)
{
  int tokens = tile_tokens(a), left = count - n * tokens;
  return {first + n * tokens, left < tokens ? left : tokens};
}

/* Whether a tile's tokens are one row's (a row's stand together, so that the ends tell), plain, and enough to be worth
 * it. `straight`: their keys must also be summed as they come, with no ring. */
static inline __device__ bool tile_shares(const op_attention &a, const cuda_step &s, tile_span span, bool straight)
{
  cuda_token head = s.token[span.first], tail = s.token[span.first + span.count - 1];
  bool ring = a.window && tail.position + 1 > a.window && tail.kind != ROW_READ && !a.by_time;
  return span.count * 4 >= tile_tokens(a) && head.row == tail.row && !cuda_quantised(a.quant, head) &&
         !(straight && ring);
}

/* The same for the tile that a token is in. */
static inline __device__ bool token_in_tile(const op_attention &a, const cuda_step &s, int token, int first, int count,
                                            bool straight)
{
  return tile_shares(a, s, tile_at(a, first, count, (token - first) / tile_tokens(a)), straight);
}

/* Calls work(token) for the block's part of the tokens that are in no tile: gridDim.z blocks share them. A warp looks
 * at 32 tokens at once: where all are in tiles, this is nearly all that a block does. */
template <class work_on>
static inline __device__ void for_lone_tokens(const op_attention &a, const cuda_step &s, int first, int count,
                                              bool tiled, bool straight, work_on work)
{
  int lane = threadIdx.x % 32;
  for (int base = blockIdx.z; base < count; base += 32 * gridDim.z) {
    int mine = base + lane * gridDim.z;
    bool is = mine < count && !(tiled && token_in_tile(a, s, first + mine, first, count, straight));
    for (unsigned lone = __ballot_sync(~0u, is); lone; lone &= lone - 1)
      work(first + base + (__ffs(lone) - 1) * gridDim.z);
  }
}

enum { LONE_BLOCKS = 32 };

/* gridDim.z for that. */
static inline unsigned lone_blocks(int count, bool tiled)
{
  return tiled && count > LONE_BLOCKS ? LONE_BLOCKS : count;
}

/* ---- shared memory ---- */

/* What a kernel may ask for dynamically, at most: the rest is for what it declares. */
static inline size_t dynamic_most(const cuda_context *cx)
{
  return cx->shared_most - 4096;
}

static inline void allow_shared(cuda_context *cx, const void *kernel, size_t bytes)
{
  size_t most = dynamic_most(cx); /* a kernel that needs more is not launched: its `fits` says so */
  if (cx->error == cudaSuccess)
    cx->error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes < most ? bytes : most));
}

/* ---- scratch ---- */

/* What a record uses of scratch at most: steps that need more go in several launches. Only a single token may ask for
 * more. */
static const size_t ATTENTION_SCRATCH = (size_t)256 << 20;

/* Tokens that go together. */
static inline int attention_group(const cuda_context *cx, size_t token_bytes, int tokens)
{
  size_t fit = (cx->scratch_bytes < ATTENTION_SCRATCH ? cx->scratch_bytes : ATTENTION_SCRATCH) / token_bytes;
  if (fit >= (size_t)tokens)
    return tokens;
  return fit >= TILE_QUERIES ? (int)fit / TILE_QUERIES * TILE_QUERIES : fit > 1 ? (int)fit : 1;
}

#endif
