/* calls.h - the formats in which models call tools: a table with a row each, and readers from a call's text to names
 * and arguments.
 *
 * A format is chosen by marks in the chat template, those of mlx-lm's tokenizer_utils first and in its order, or by
 * name. The readers give what mlx-lm's tool_parsers give; docs/server.md lists where they give more (what the reference
 * drops) and the few places where they differ. Arguments are always an object. What a reader does not understand whole
 * it refuses: the caller then has the text, and shows it.
 *
 * Formats that type arguments by the tool's JSON schema take it from `tools`, OpenAI's list, which may be NULL.
 */
#ifndef TERN_TEXT_CALLS_H
#define TERN_TEXT_CALLS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* One call of a tool. */
typedef struct tool_call {
  char *name;      /* mem_free */
  char *id;        /* as the model wrote it, mem_free; NULL: the format has none */
  char *arguments; /* the text of a JSON object as Python's json.dumps(ensure_ascii=False) writes it, mem_free */
} tool_call;

typedef struct call_list {
  tool_call *at;
  size_t n, capacity;
  bool failed; /* memory ran out */
} call_list;

/* How far a block was looked through for open strings, as it grows: bytes done with, and what is open there, for each
 * kind of string that a format has. Begins as {0}. */
enum { CALLS_STRINGS = 6 };
typedef struct calls_scan {
  size_t at[CALLS_STRINGS];
  char open[CALLS_STRINGS]; /* 0: nothing */
} calls_scan;

/* How arguments are told of while a call is being written (calls_told.h). */
typedef enum calls_pieces {
  PIECES_LETTERS, /* as their letters come: they are JSON */
  PIECES_MEMBERS, /* each once it is whole */
} calls_pieces;

struct calls_told;
typedef struct calls_format calls_format;
struct calls_format {
  const char *name;
  /* What a block of calls stands between. end "": it goes to the next `start` or to the answer's end. start "": the
   * answer as a whole is calls, or none of it is. start NULL: there are no wrappers. */
  const char *start, *end;
  /* Where there are none, or they were forgotten: what a call itself begins and ends with, which is part of its text.
   * As such letters may stand in any text, it must be the call of a tool that is known. NULL: nothing. */
  const char *bare_start, *bare_end;
  const char *marks[2]; /* of the template: all that are not NULL stand in it. Both NULL: chosen by name alone. */
  bool closed;          /* the text shows by itself whether a call is whole: it may stand though the end is missing */
  bool channels;        /* calls are messages of harmony */
  bool short_ids;       /* templates take ids of nine letters and digits alone */
  bool (*read)(const calls_format *f, const char *text, size_t n, const json_t *tools, call_list *out);
  /* Whether a text that was refused ends inside of a string, in which an end marker ends nothing. `scan` is of a
   * beginning of the same text, and becomes that of all of it: no byte is looked at twice. */
  bool (*inside)(const calls_format *f, const char *text, size_t n, calls_scan *scan);
  calls_pieces pieces;
  void (*tell)(const calls_format *f, const char *text, size_t n, const json_t *tools, struct calls_told *told);
};

/* NULL: there is none of that name. */
const calls_format *calls_find(const char *name);
/* The format of a template; NULL: none that is known. */
const calls_format *calls_of_template(const char *source, size_t n);
/* The i-th format of the table; NULL: there are fewer. */
const calls_format *calls_at(size_t i);

/* Adds the calls of a block's text, what stands between its markers. False: it is not understood, or out->failed; then
 * nothing was added. */
bool calls_read(const calls_format *f, const char *text, size_t n, const json_t *tools, call_list *out);
/* Whether `tools` has functions of all these names. */
bool calls_all_known(const call_list *list, const json_t *tools);
void calls_clear(call_list *list);

#endif
