/* routes.h - the table of routes, as http.c asks it and /openapi.json tells it. */
#ifndef TERN_SERVER_ROUTES_H
#define TERN_SERVER_ROUTES_H

#include "server/fields.h"

typedef struct srv_row {
  const char *method, *path;
  srv_route *route;
  const srv_fields *fields; /* of the body; NULL: it has none, or openapi.c knows */
  /* For /openapi.json: what a good answer is, whose dialect this is, and what else than JSON it may be; NULL: nothing.
   */
  const char *summary, *dialect, *streams;
} srv_row;

extern const srv_row srv_rows[];
extern const size_t srv_n_rows;

enum { SRV_ALLOW = 64 };

/* What a request's line leads to. */
typedef struct srv_found {
  srv_route *route; /* NULL: none */
  srv_shape *shape; /* of errors; NULL: OpenAI's */
  const char *part; /* of the path: what stands for the row's {…}, not terminated; NULL: it has none */
  size_t part_length;
  char allow[SRV_ALLOW]; /* without a route: methods that the path has, "": there is no such path */
} srv_found;

srv_found srv_find(const char *method, const char *path);

/* Bodies, by file. */
extern const srv_fields resp_fields;                             /* responses.c */
extern const srv_fields emb_fields;                              /* embeddings.c */
extern const srv_fields oll_chat_fields, oll_generate_fields;    /* ollama.c */
extern const srv_fields oll_show_fields;                         /* ollama_info.c */
extern const srv_fields oll_embed_fields, oll_embeddings_fields; /* ollama_embed.c */

extern const srv_fields text_tokenize_fields, text_detokenize_fields, text_template_fields; /* text_routes.c */
json_t *ant_schema(void);                                                                   /* anthropic_body.c */
json_t *ant_messages_schema(void);

#endif
