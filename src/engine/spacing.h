/* spacing.h - what the reference's stream does to spaces of a generated text.
 *
 * mlx_lm.tokenizer_utils.BPEStreamingDetokenizer (0.31.3), which it takes where the decoder is ByteLevel alone, drops
 * one space at the beginning of an answer; and where tokenizer_config.json sets clean_up_tokenization_spaces, the space
 * of a token's text that begins with " ." " ?" " !" " ," " n't" " 'm" " 's" " 've" " 're". A lone space waits for the
 * next token, which may make it one of these. Texts of other decoders pass unchanged. This shapes answers (run, chat,
 * tern_generate); detokenising is the plain decoder.
 */
#ifndef TERN_ENGINE_SPACING_H
#define TERN_ENGINE_SPACING_H

#include "base/buf.h"
#include "text/tok.h"

typedef struct spacing {
  bool byte_level, cleans;
  bool begun;   /* some text was let through */
  bool waiting; /* a lone space is held */
  buf text;     /* room for the held space and a token's text */
} spacing;

spacing spacing_open(const tok *t);
void spacing_close(spacing *s);
/* One token's text, possibly empty, becomes *out, *length; valid until the next call. */
void spacing_push(spacing *s, const char *text, size_t n, const char **out, size_t *length);
/* The end: the rest that the detokenizer held, and the space that waited. */
void spacing_finish(spacing *s, const char *text, size_t n, const char **out, size_t *length);

#endif
