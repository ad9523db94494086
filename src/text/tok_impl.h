/* tok_impl.h - what the files of the tokenizer share: the compiled tokenizer and the steps of its pipeline.
 *
 * The pipeline of one text: added tokens that match raw text are cut out, the rest is normalised, added tokens that
 * match normalised text are cut out, the rest is pre-tokenised into words, the model turns words into ids, and the
 * post-processor puts its tokens around. Each stage is an array of small steps (a Sequence is flattened when read).
 */
#ifndef TERN_TEXT_TOK_IMPL_H
#define TERN_TEXT_TOK_IMPL_H

#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "text/tok.h"
#include "text/tok_regex.h"
#include "text/tok_tree.h"
#include "text/tok_vocab.h"

enum { TOK_MAX_STEPS = 256 }; /* of one stage, Sequences flattened */

typedef struct tok_span {
  const char *s;
  size_t n;
} tok_span;

/* What n bytes may grow to on their way: far more than any real tokenizer makes of them, far less than a list of steps
 * that each double the text would. */
static inline size_t tok_most_text(size_t n)
{
  size_t most;
  return __builtin_mul_overflow(n, 64u, &most) || __builtin_add_overflow(most, 1u << 20, &most) ? SIZE_MAX : most;
}

/* ---- normalizer ------------------------------------------------------------------------------------------------ */

typedef enum norm_kind {
  NORM_NFC,
  NORM_NFD,
  NORM_NFKC,
  NORM_NFKD,
  NORM_LOWERCASE,
  NORM_STRIP,
  NORM_STRIP_ACCENTS,
  NORM_PREPEND,
  NORM_REPLACE,
  NORM_BERT_CLEAN, /* BertNormalizer is read as up to five steps */
  NORM_BERT_CJK,
  NORM_BERT_ACCENTS,
  NORM_PRECOMPILED,
  NORM_BYTE_LEVEL,
  NORM_NMT,
} norm_kind;

typedef struct norm_step {
  norm_kind kind;
  bool left, right;     /* Strip */
  tok_pattern *pattern; /* Replace */
  tok_span text;        /* Prepend, Replace: what is put in */
  const uint32_t *trie; /* Precompiled: a Darts double array, trie_size units */
  size_t trie_size;
  tok_span replacements; /* Precompiled: NUL-terminated strings one after another */
} norm_step;

/* A piece of text on its way. `origin` counts the leading bytes that stand for the first character of the whole input;
 * only Metaspace's prepend_scheme "first" asks. */
typedef struct tok_text {
  const char *s;
  size_t n;
  size_t origin;
} tok_text;

/* Applies all steps. The result stands in *a, in *b or where it stood before. at_start: the text begins the input. */
tern_status norm_apply(const norm_step *steps, size_t n_steps, tok_text *text, bool at_start, buf *a, buf *b,
                       tern_error *err);
/* One of the four forms over valid UTF-8, see tok_forms.c. Appends to *out; false: no memory. */
bool norm_form(norm_kind form, const char *s, size_t n, buf *out);
/* Whether s is in the form already, as far as a quick look tells. */
bool norm_form_stands(const char *s, size_t n);
/* Sentencepiece's character map, see tok_charsmap.c: one step from the base64 text in the file, and its work. */
tern_status charsmap_read(tok *t, tok_span base64, norm_step *out, tern_error *err);
tern_status charsmap_from_bytes(tok *t, const uint8_t *data, size_t n, norm_step *out, tern_error *err);
bool charsmap_apply(const norm_step *step, const char *s, size_t n, buf *out);

/* ---- pre-tokenizer --------------------------------------------------------------------------------------------- */

typedef enum pretok_kind {
  PRETOK_BYTE_LEVEL,
  PRETOK_SPLIT,
  PRETOK_METASPACE,
  PRETOK_DIGITS,
  PRETOK_PUNCTUATION,
  PRETOK_WHITESPACE,
  PRETOK_WHITESPACE_SPLIT,
  PRETOK_DELIMITER,
  PRETOK_SCRIPTS,
  PRETOK_FIXED_LENGTH,
} pretok_kind;

typedef enum split_behavior {
  SPLIT_REMOVED,
  SPLIT_ISOLATED,
  SPLIT_MERGED_WITH_PREVIOUS,
  SPLIT_MERGED_WITH_NEXT,
  SPLIT_CONTIGUOUS,
} split_behavior;

typedef enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER } prepend_scheme;

typedef struct pretok_step {
  pretok_kind kind;
  tok_pattern *pattern; /* Split; ByteLevel with use_regex */
  split_behavior behavior;
  bool invert;
  bool add_prefix_space; /* ByteLevel */
  bool split;            /* Metaspace */
  prepend_scheme scheme;
  uint32_t character; /* Metaspace replacement, CharDelimiterSplit delimiter */
  size_t length;      /* FixedLength, in characters */
} pretok_step;

/* How much one call has done since it asked whether to go on. */
typedef struct tok_work {
  const tok_ask *ask; /* NULL: nobody is asked */
  size_t done;        /* bytes or steps */
  bool given_up;
} tok_work;
enum { TOK_ASK_AFTER = 64 << 10 /* some milliseconds */ };
/* False: the work is not wanted any more, now or before; tok_given_up is then the call's error. */
bool tok_work_ask(tok_work *w);
tern_status tok_given_up(tern_error *err);
/* After n bytes or steps more. */
static inline bool tok_work_on(tok_work *w, size_t n)
{
  w->done += n;
  return w->done < TOK_ASK_AFTER || tok_work_ask(w);
}

/* Words under construction and the memory behind those that no longer stand in the input. */
typedef struct pretok_words {
  tok_text *items;
  size_t count, capacity;
} pretok_words;

/* Runs all steps over words->items. `spare` is scratch of the same kind; new text is made in *texts. A ByteLevel step
 * at the very end does not rewrite the bytes: the model is told instead (tok.byte_level_words). */
tern_status pretok_apply(const tok *t, pretok_words *words, pretok_words *spare, arena *texts, tok_work *work,
                         tern_error *err);
bool pretok_push(pretok_words *words, const char *s, size_t n, size_t origin);

/* The printable character that stands for a byte in byte-level vocabularies, and back (-1: none). */
uint32_t byte_level_char(uint8_t byte);
int byte_level_byte(uint32_t c);

/* ---- added tokens ---------------------------------------------------------------------------------------------- */

typedef struct added_token {
  tok_span content; /* as written in the file */
  tok_span pattern; /* what is searched for: content, normalised where `normalized`; may be set beforehand */
  int32_t id;       /* before added_build: the id that it must get, or -1 */
  bool single_word, lstrip, rstrip, normalized, special;
} added_token;

typedef struct added_trie added_trie; /* leftmost-longest matcher, see tok_added.c */

typedef struct added_match {
  size_t begin, end;
  int32_t id; /* -1: text between tokens */
} added_match;

/* Cuts text at the trie's tokens: the next part at *at, which moves on. False: the text is used up. */
typedef struct added_cursor {
  const added_trie *trie; /* may be NULL: one part */
  const added_token *tokens;
  const char *s;
  size_t n;
  size_t search, done; /* where the matcher goes on; up to where parts were handed out */
  added_match queued;
  bool has_queued;
} added_cursor;
bool added_next(added_cursor *c, added_match *out);

/* One added token from its JSON object. Not strict: flags may be missing, as in
 * tokenizer_config.json. The id that the file gives is not read: see added_build. */
tern_status added_read(const char *file, const jt *value, bool strict, added_token *out, tern_error *err);
/* Reads and numbers tokens[0..n) as the library does, then builds both tries. */
tern_status added_build(tok *t, tern_error *err);
void added_trie_free(added_trie *trie);

/* ---- models ---------------------------------------------------------------------------------------------------- */

typedef enum model_kind { MODEL_BPE, MODEL_UNIGRAM, MODEL_WORDPIECE, MODEL_WORDLEVEL } model_kind;

typedef struct bpe_merge {
  uint64_t pair; /* left id << 32 | right id; UINT64_MAX: free */
  uint32_t rank, id;
} bpe_merge;

typedef struct bpe_model {
  bpe_merge *merges; /* open addressing */
  size_t mask;
  int shift;
  tok_span prefix, suffix; /* n == 0: none */
  bool has_prefix, has_suffix;
  bool fuse_unk, byte_fallback, ignore_merges;
  bool has_unk;
  int32_t unk; /* -1 with has_unk: the token is not in the vocabulary */
  tok_span unk_text;
  int32_t byte_ids[256];   /* byte_fallback: ids of <0x00>..<0xFF>, -1 where missing */
  int32_t mapped_ids[256]; /* ids of the byte-level characters, -1 where missing */
  bool cuts;               /* words may be cut before U+2581, see find_mark */
  uint8_t *before_mark;    /* bitmap over U+0000..U+FFFF: characters that some piece has just before the mark */
  size_t longest;          /* bytes of the longest piece */
} bpe_model;

typedef struct unigram_model {
  double *scores; /* [vocab.size] */
  double min_score;
  int32_t unk; /* -1: none */
  bool byte_fallback;
  int32_t byte_ids[256];
  struct unigram_trie *trie;
} unigram_model;

typedef struct wordpiece_model {
  tok_span unk_text, prefix;
  int32_t unk;
  size_t max_chars;
  size_t longest;
} wordpiece_model;

/* ---- post-processor -------------------------------------------------------------------------------------------- */

typedef struct post_piece {
  bool sequence; /* the text itself; else ids */
  const int32_t *ids;
  size_t n_ids;
} post_piece;

typedef struct post_step { /* one template; Bert and Roberta are templates of three pieces */
  post_piece *pieces;
  size_t count;
} post_step;

/* ---- decoder --------------------------------------------------------------------------------------------------- */

typedef enum decode_kind {
  DECODE_BYTE_LEVEL,
  DECODE_BYTE_FALLBACK,
  DECODE_FUSE,
  DECODE_REPLACE,
  DECODE_STRIP,
  DECODE_METASPACE,
  DECODE_WORDPIECE,
  DECODE_BPE,
  DECODE_CTC,
} decode_kind;

typedef struct decode_step {
  decode_kind kind;
  tok_pattern *pattern; /* Replace */
  tok_span text, text2; /* Replace content; WordPiece prefix; BPEDecoder suffix; CTC pad and word delimiter */
  uint32_t character;   /* Strip, Metaspace */
  size_t start, stop;   /* Strip */
  bool cleanup;         /* WordPiece, CTC */
  bool drop_first;      /* Metaspace: the first token loses its marks */
} decode_step;

/* What WordPiece and CTC do to each token when `cleanup` is set. Works in place, never grows; returns the length. */
size_t decode_cleanup(char *s, size_t n);
/* The byte that a piece of the form <0xAB> stands for, or -1. */
int decode_byte_piece(const char *s, size_t n);
/* Adds s with every match of a Replace step's pattern replaced. The caller finishes the cursor. */
tern_status decode_replace(const decode_step *step, pattern_cursor *cursor, tok_span s, buf *out, size_t *matches,
                           tern_error *err);

/* ---- the whole ------------------------------------------------------------------------------------------------- */

enum { TOKEN_SPECIAL = 1, TOKEN_ADDED = 2, TOKEN_SHOWN_OTHERWISE = 4 };

struct tok {
  arena arena;
  char *file; /* path, for error lines */
  model_kind model;
  bool byte_level_words; /* words reach the model as raw bytes that stand for byte-level characters */
  bool has_decoder;      /* without one, pieces are joined by spaces */
  bool is_spm;           /* read from a SentencePiece model */
  tok_vocab vocab;       /* the model's pieces, and those of added tokens beyond them */
  bpe_model bpe;
  unigram_model unigram;
  wordpiece_model wordpiece;
  norm_step *norm;
  size_t n_norm;
  pretok_step *pretok;
  size_t n_pretok;
  post_step *post;
  size_t n_post;
  decode_step *decode;
  size_t n_decode;
  added_token *added;
  size_t n_added;
  strmap added_ids; /* content -> index in added */
  added_trie *raw_trie, *normalized_trie;
  uint8_t *flags;        /* [vocab.size] TOKEN_* */
  size_t longest_shown;  /* bytes of the longest string that decoding can meet */
  tok_pattern *patterns; /* all of them, to be freed */
  const char *spm_roles[TOK_ROLES];
  const char *role_text[TOK_ROLES];
  int32_t role_id[TOK_ROLES];
  bool cleans_up_spaces;
};

/* The string of an id as decoding sees it (an added token shows its normalised form). s == NULL: no such id. */
tok_span tok_shown(const tok *t, int32_t id);

/* Reads tokenizer.json: data is the whole file. */
tern_status tok_read_json(tok *t, const char *data, size_t n, tern_error *err);
/* Reads a SentencePiece model file. */
tern_status tok_read_spm(tok *t, const char *data, size_t n, tern_error *err);
/* Compile the parts of tokenizer.json; NULL and JSON null mean "none". */
tern_status norm_read(tok *t, const jt *value, tern_error *err);
tern_status pretok_read(tok *t, const jt *value, tern_error *err);
tern_status post_read(tok *t, const jt *value, tern_error *err);
tern_status decode_read(tok *t, const jt *value, tern_error *err);
/* Opens a tokenizer from the bytes of a tokenizer.json or (not json) tokenizer.model, with no files beside it. */
tern_status tok_open_bytes(bool json, const char *data, size_t n, tok **out, tern_error *err);
/* Roles and added tokens from the files beside the tokenizer. */
tern_status tok_read_config(tok *t, const char *dir, tern_error *err);

/* Growing list of ids, and what one encode call needs besides. */
typedef struct tok_ids {
  int32_t *data;
  size_t count, capacity;
} tok_ids;

typedef struct tok_scratch tok_scratch; /* see tok_bpe.c */

/* Each appends the ids of one word. */
tern_status bpe_word(const tok *t, tok_scratch *scratch, const char *s, size_t n, tok_ids *out, tern_error *err);
tern_status unigram_word(const tok *t, tok_scratch *scratch, const char *s, size_t n, tok_ids *out, tern_error *err);
tern_status wordpiece_word(const tok *t, const char *s, size_t n, tok_ids *out, tern_error *err);
tern_status wordlevel_word(const tok *t, const char *s, size_t n, tok_ids *out, tern_error *err);
bool tok_ids_push(tok_ids *ids, int32_t id);

/* Built once the vocabulary stands. */
typedef struct bpe_pair { /* one merge as the file has it */
  tok_span left, right;
} bpe_pair;
typedef struct bpe_ids { /* the same, resolved */
  uint32_t left, right, rank, id;
} bpe_ids;
tern_status bpe_build(tok *t, const bpe_pair *merges, size_t n, tern_error *err);
tern_status bpe_build_ids(tok *t, const bpe_ids *merges, size_t n, tern_error *err);
/* types: SentencePiece's, of which only 1 is found in text; NULL: all pieces are. */
tern_status unigram_build(tok *t, const uint8_t *types, tern_error *err);
void bpe_free(bpe_model *m);
void unigram_free(unigram_model *m);

/* Memory that one encode call uses: a cache of words seen, and the arrays of the BPE and Viterbi loops. */
typedef struct word_cache_entry {
  uint32_t hash, length;
  const char *word;
  uint32_t first, count; /* in the output */
} word_cache_entry;

struct tok_scratch {
  word_cache_entry *cache; /* direct mapped; cache_mask + 1 entries */
  size_t cache_mask;
  uint32_t *symbols; /* BPE, long words: four arrays in one block */
  size_t symbols_capacity;
  uint64_t *heap;
  size_t heap_capacity;
  void *nodes; /* Viterbi */
  size_t nodes_capacity;
  tok_work work;
};

#endif
