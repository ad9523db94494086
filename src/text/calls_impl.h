/* calls_impl.h - what the files calls*.c share: values in the notations that models write arguments in, and the readers
 * that the table names. */
#ifndef TERN_TEXT_CALLS_IMPL_H
#define TERN_TEXT_CALLS_IMPL_H

#include "text/calls.h"
#include "text/calls_told.h"

/* ---- texts ---- */

/* n bytes, not terminated. */
typedef struct span {
  const char *s;
  size_t n;
} span;

span span_trim(span a);                       /* without white space around it, as Python's strip */
bool span_is(span a, const char *b);          /* the same bytes */
bool span_starts(span a, const char *prefix); /* and `prefix` may be all of it */
span span_skip(span a, size_t n);             /* without its first n bytes */
/* Where `what` stands first, or NULL. */
const char *span_find(span a, const char *what);
/* Goes on to the first `what` from *at on, and behind it; false: none stands there, and *at is where one could yet
 * begin once there is more text. */
bool span_pass(span a, const char *what, size_t *at);
/* What stands before `what`, of which the end then is *rest. False: it stands nowhere. */
bool span_cut(span a, const char *what, span *before, span *rest);

/* ---- values ---- */

typedef enum value_style {
  VALUE_JSON,   /* as Python's json.loads, less NaN, infinities and whole numbers beyond 64 bits */
  VALUE_LOOSE,  /* JSON that may hold line ends and tabs in strings */
  VALUE_PYTHON, /* as ast.literal_eval, of what JSON can say: tuples are lists; no sets, bytes, complex numbers */
  VALUE_WORDS,  /* keys without quotes, strings between `quote`s, else JSON */
} value_style;

typedef struct value_scan {
  span left; /* what is not read yet */
  value_style style;
  const char *quote; /* of VALUE_WORDS */
  bool bare;         /* there: a value that is none is the string of its own letters */
  int depth;
} value_scan;

/* The value that stands next, white space aside. New reference; NULL: there is none. */
json_t *value_next(value_scan *s);
/* Takes `c` if it stands next, white space aside. */
bool value_accept(value_scan *s, char c);
/* Sets a member, and takes over the value. False: it is NULL, or the key has a NUL, which readers of JSON do not take.
 */
bool value_set(json_t *object, span key, json_t *value);
/* A text that is a value, white space aside. NULL: it is not. */
json_t *value_of(value_style style, span text);
/* As the reference's _deserialize: JSON, or a Python literal, or the text itself. NULL: no memory. */
json_t *value_guess(span text);
json_t *value_string(span text);
/* An object, as JSON, as a Python literal, or as loose JSON: what the model meant in any case. NULL: it is none. */
json_t *value_object(span text);
/* As json.dumps(ensure_ascii=False) writes it; mem_free. NULL: no memory. */
char *value_text(const json_t *value);
/* The number of a real as it is read from text; false: it is none, or not finite. */
bool value_real(span text, double *out);
/* As Python's int(text): white space, a sign, digits with single underscores between them, and 64 bits. */
bool value_integer(span text, json_int_t *out);

/* ---- lists ---- */

/* Takes over `arguments`; NULL or no object: false. `id` of no bytes: none. */
bool calls_add(call_list *out, span name, span id, json_t *arguments);

/* ---- schemas ---- */

/* Whether `tools` has a function of that name. */
bool calls_known(const json_t *tools, span name);
/* The schema of an argument; NULL: it has none. */
const json_t *calls_schema(const json_t *tools, span function, span argument);

/* ---- what is told before a block is whole (calls_told.c) ---- */

enum { CALLS_LONGEST_HEAD = 4096 }; /* what is longer is not looked through again and again */

/* A call begins; the one before it is whole. False: it is none that may be told, and the machine has stopped. */
bool told_begin(calls_told *t, const json_t *tools, span name, span id);
/* Of the call under way. */
buf *told_arguments(calls_told *t);
/* It ends at this byte of the block. */
void told_close(calls_told *t, size_t end);

typedef enum head_state { HEAD_WAIT, HEAD_KNOWN, HEAD_NONE } head_state;
typedef struct calls_head {
  span name, id;
  size_t size; /* bytes up to the arguments */
  bool fenced; /* which then stand in a fence of three backquotes */
} calls_head;

/* Whether a text begins with what stands before a call's arguments, or may yet. */
typedef head_state calls_heading(span text, calls_head *out);
/* calls_json.c */
calls_heading head_mistral, head_kimi, head_deepseek, head_harmony;

/* ---- readers and their `inside`s, by file ---- */

typedef bool calls_reader(const calls_format *f, const char *text, size_t n, const json_t *tools, call_list *out);
typedef bool calls_insider(const calls_format *f, const char *text, size_t n, calls_scan *scan);

/* calls_json.c */
calls_reader read_json, read_bare_json, read_mistral, read_kimi, read_deepseek, read_harmony;
calls_insider inside_json;
/* calls_tags.c */
calls_reader read_qwen_coder, read_minicpm, read_minimax, read_dsml, read_glm, read_longcat;
calls_insider inside_tags;
/* calls_words.c */
calls_reader read_pythonic, read_gemma, read_function_gemma;
calls_insider inside_python, inside_gemma, inside_function_gemma;

typedef void calls_teller(const calls_format *f, const char *text, size_t n, const json_t *tools, calls_told *t);

/* calls_told_json.c */
calls_teller tell_json, tell_bare_json, tell_mistral, tell_kimi, tell_deepseek, tell_harmony;
/* calls_told_args.c */
calls_teller tell_qwen_coder, tell_minicpm, tell_minimax, tell_dsml, tell_glm, tell_longcat, tell_pythonic, tell_gemma,
    tell_function_gemma;

#endif
