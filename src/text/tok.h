/* tok.h - text to token ids and back, as the `tokenizers` library 0.23.3 does it from the same files.
 *
 * A tok is immutable once open: any number of threads may encode and decode with it at once; scratch memory is per
 * call. Texts are UTF-8; ids are int32_t, -1 means "none". Pointers handed out by queries live as long as the tok.
 */
#ifndef TERN_TEXT_TOK_H
#define TERN_TEXT_TOK_H

#include "base/status.h"

typedef struct tok tok;

/* Opens DIR/tokenizer.json, or else DIR/tokenizer.model (SentencePiece), with tokenizer_config.json,
 * special_tokens_map.json and added_tokens.json where present. Errors name the file and the key. */
tern_status tok_open(const char *dir, tok **out, tern_error *err);
void tok_close(tok *t); /* NULL is fine */

/* *ids: *n_ids values, mem_free. add_special: what the post-processor adds (BOS, EOS, ...). Text that is not UTF-8 is
 * refused with the offset of the first bad byte. */
tern_status tok_encode(const tok *t, const char *text, size_t n, bool add_special, int32_t **ids, size_t *n_ids,
                       tern_error *err);
/* Asked now and then, from within the call, whether its work is still wanted. */
typedef struct tok_ask {
  bool (*wanted)(void *user); /* NULL: it is */
  void *user;
} tok_ask;
/* tok_encode, which is given up with TERN_E_CANCELLED where it is not: a long text takes seconds. */
tern_status tok_encode_while(const tok *t, const tok_ask *ask, const char *text, size_t n, bool add_special,
                             int32_t **ids, size_t *n_ids, tern_error *err);
/* *text: *length bytes and a NUL, mem_free. Always valid UTF-8. Ids beyond the vocabulary vanish, as in the reference
 * (logits may have padding rows); a negative id is refused. `length` may be NULL. */
tern_status tok_decode(const tok *t, const int32_t *ids, size_t n, bool skip_special, char **text, size_t *length,
                       tern_error *err);

/* The vocabulary's own piece of `id`, not decoded; NULL: no such id. */
const char *tok_piece(const tok *t, int32_t id, size_t *length);
/* The id of a piece or added token, or -1. */
int32_t tok_id(const tok *t, const char *piece, size_t length);
/* Largest id + 1. */
int32_t tok_vocab_size(const tok *t);
/* The same of the model's own pieces, those of added tokens left out: ids that any text may become. */
int32_t tok_base_size(const tok *t);
/* Whether skip_special leaves the id out. */
bool tok_is_special(const tok *t, int32_t id);

/* The roles that tokenizer_config.json (or special_tokens_map.json, or the SentencePiece model) gives to tokens. */
typedef enum tok_role { TOK_BOS = 0, TOK_EOS, TOK_UNK, TOK_PAD, TOK_ROLES } tok_role;
/* NULL and -1: not declared; a declared string that is no token has id -1. */
const char *tok_role_text(const tok *t, tok_role role);
int32_t tok_role_id(const tok *t, tok_role role);

/* What a generated text's spacing depends on (engine/spacing.h): whether the decoder is ByteLevel and nothing else, and
 * tokenizer_config.json's clean_up_tokenization_spaces. */
bool tok_is_byte_level(const tok *t);
bool tok_cleans_up_spaces(const tok *t);

#endif
