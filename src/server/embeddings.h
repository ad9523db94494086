/* embeddings.h - texts as vectors: hidden states behind the last norm, pooled, for the dialects that ask for them. */
#ifndef TERN_SERVER_EMBEDDINGS_H
#define TERN_SERVER_EMBEDDINGS_H

#include "server/routes.h"

enum { EMB_MOST_INPUTS = 2048, EMB_MOST_FLOATS = 4 << 20 /* of all vectors of a request */ };

typedef struct embeddings {
  oai_prompt *inputs; /* [n] */
  float *vectors;     /* [n, width], once they are there */
  int n, width;
  size_t tokens; /* of all inputs */
  bool mean;     /* of all positions' states; else the last one's */
  bool normal;   /* of length 1 */
  tok_ask ask;   /* whether the client waits */
} embeddings;

/* `input`, the field `name`: a text, a list of texts, token ids, or a list of such lists. Free with emb_clear. */
bool emb_read(const server *s, const char *name, const json_t *input, embeddings *e, oai_fault *fault);
/* Fills `vectors`. False: the response has the error, or the client is gone. */
bool emb_run(server *s, const srv_request *q, embeddings *e, srv_response *a);
void emb_clear(embeddings *e);
/* "[…]", with as many digits as float32 needs. */
void emb_add_numbers(const float *v, int n, buf *out);

#endif
