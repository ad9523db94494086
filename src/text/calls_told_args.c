/* calls_told_args.c - machines for formats whose arguments are not JSON: between tags, or in notations of their own.
 * See calls_told.h.
 *
 * A machine only knows where a call's head, each of its arguments and its end stand. What an argument means its
 * format's own reader says: of a call that is made of the head and this argument alone.
 */
#include <ctype.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "text/calls_impl.h"

typedef enum piece_state { PIECE_WAIT, PIECE_ARGUMENT, PIECE_END, PIECE_NONE } piece_state;

/* How calls of a family are cut up. */
typedef struct cutter {
  const char *opening, *closing; /* what makes a block of a head and an argument */
  /* The head behind `from` of the block: its bytes are t->head, t->head_size then. */
  head_state (*head)(const struct cutter *c, span block, calls_told *t, span *name);
  /* What stands at t->from: *size bytes, of which the first *taken are the argument. What belongs to none may go at
   * once, and where an end was looked for in vain is t->seen: no byte is looked at again with every piece. */
  piece_state (*next)(const struct cutter *c, span block, calls_told *t, size_t *taken, size_t *size);
  const char *words[4]; /* of the family */
  bool quoted, cdata;
} cutter;

static span behind(span block, size_t at)
{
  return span_skip(block, at);
}

/* Whether the text begins with `word`, or may once there is more of it. */
static head_state begins_with(span text, const char *word)
{
  size_t size = strlen(word), have = text.n < size ? text.n : size;
  if (have && memcmp(text.s, word, have) != 0)
    return HEAD_NONE;
  return have == size ? HEAD_KNOWN : HEAD_WAIT;
}

static size_t blanks(span a)
{
  size_t i = 0;
  while (i < a.n && (a.s[i] == ' ' || (a.s[i] >= '\t' && a.s[i] <= '\r')))
    i++;
  return i;
}

/* ---- for all families ---- */

/* What stands between arguments. */
static void pass_blanks(calls_told *t, size_t n)
{
  t->from += n;
  t->seen = t->seen > t->from ? t->seen : t->from;
}

/* An argument, as the reader has it: "{…}" without its braces. */
static void add_argument(const calls_format *f, const cutter *c, span block, size_t size, const json_t *tools,
                         calls_told *t)
{
  buf made = {0}, *to = told_arguments(t);
  call_list one = {0};
  buf_adds(&made, c->opening);
  buf_add(&made, block.s + t->head, t->head_size);
  buf_add(&made, block.s + t->from, size);
  buf_adds(&made, c->closing);
  bool well = !made.failed && calls_read(f, made.data, made.length, tools, &one) && one.n == 1 &&
              !strcmp(one.at[0].name, t->at[t->n - 1].name) && strlen(one.at[0].arguments) > 2;
  t->failed |= made.failed || one.failed;
  if (well) {
    const char *text = one.at[0].arguments;
    buf_adds(to, to->length ? ", " : "{");
    buf_add(to, text + 1, strlen(text) - 2);
  }
  t->stopped |= !well;
  calls_clear(&one);
  buf_free(&made);
}

static bool step_head(const cutter *c, span block, const json_t *tools, calls_told *t)
{
  span name = {0};
  head_state state = c->head(c, block, t, &name);
  size_t end = state == HEAD_KNOWN ? t->head + t->head_size : block.n;
  t->stopped |= state == HEAD_NONE || end - t->from > CALLS_LONGEST_HEAD;
  if (state != HEAD_KNOWN || t->stopped || !told_begin(t, tools, name, (span){0}))
    return false;
  t->from = t->seen = t->head + t->head_size;
  t->depth = 0;
  t->quote = '\0';
  t->marked = t->no_data = false;
  t->phase = TOLD_ARGUMENTS;
  return true;
}

static bool step_argument(const calls_format *f, const cutter *c, span block, const json_t *tools, calls_told *t)
{
  size_t taken = 0, size = 0;
  piece_state state = c->next(c, block, t, &taken, &size);
  t->stopped |= state == PIECE_NONE;
  if (state == PIECE_WAIT || state == PIECE_NONE)
    return false;
  if (state == PIECE_ARGUMENT)
    add_argument(f, c, block, taken, tools, t);
  t->from += size;
  t->seen = t->from;
  t->no_data = false;
  if (state == PIECE_END) {
    told_close(t, t->from);
    t->phase = TOLD_HEAD;
  }
  return true;
}

static void tell_cut(const calls_format *f, const cutter *c, span block, const json_t *tools, calls_told *t)
{
  while (!t->stopped && !t->failed &&
         (t->phase == TOLD_HEAD ? step_head(c, block, tools, t) : step_argument(f, c, block, tools, t)))
    ;
}

/* ---- <function=NAME><parameter=KEY>TEXT</parameter></function> and the like ---- */

enum { CALL, CALL_END, ARGUMENT, ARGUMENT_END };

static head_state tag_head(const cutter *c, span block, calls_told *t, span *name)
{
  t->head = t->from + blanks(behind(block, t->from));
  span text = behind(block, t->head), rest;
  head_state state = begins_with(text, c->words[CALL]);
  if (state != HEAD_KNOWN)
    return state;
  if (!span_cut(span_skip(text, strlen(c->words[CALL])), ">", name, &rest))
    return HEAD_WAIT;
  t->head_size = (size_t)(rest.s - text.s);
  *name = span_trim(*name);
  bool quotes = c->quoted && name->n >= 2 && (*name->s == '"' || *name->s == '\'') && name->s[name->n - 1] == *name->s;
  if (quotes)
    *name = (span){name->s + 1, name->n - 2};
  return HEAD_KNOWN;
}

/* The end of a value in CDATA, which may hold the argument's own end marker. HEAD_KNOWN: that stands at t->seen;
 * HEAD_NONE: it is no CDATA, or does not end the argument. */
static head_state in_cdata(const cutter *c, span block, calls_told *t)
{
  span text = behind(block, t->from), name, value;
  if (!c->cdata || t->no_data)
    return HEAD_NONE;
  bool named = span_cut(text, ">", &name, &value);
  t->stopped |= (named ? name.n : text.n) > CALLS_LONGEST_HEAD;
  head_state begins = named ? begins_with(value, "<![CDATA[") : HEAD_WAIT;
  if (begins != HEAD_KNOWN || t->stopped)
    return t->stopped ? HEAD_WAIT : begins;
  size_t at = t->seen - t->from, least = (size_t)(value.s - text.s);
  at = at > least ? at : least;
  bool found = span_pass(text, "]]>", &at);
  span rest = span_skip(text, at);
  if (!found || rest.n < strlen(c->words[ARGUMENT_END])) {
    t->seen = t->from + at - (found ? strlen("]]>") : 0);
    return HEAD_WAIT;
  }
  bool ends = span_starts(rest, c->words[ARGUMENT_END]);
  t->seen = ends ? t->from + at : t->from;
  return ends ? HEAD_KNOWN : HEAD_NONE;
}

static piece_state tag_next(const cutter *c, span block, calls_told *t, size_t *taken, size_t *size)
{
  pass_blanks(t, blanks(behind(block, t->from)));
  span text = behind(block, t->from);
  head_state end = begins_with(text, c->words[CALL_END]), argument = begins_with(text, c->words[ARGUMENT]);
  if (end == HEAD_KNOWN) {
    *size = strlen(c->words[CALL_END]);
    return PIECE_END;
  }
  if (argument != HEAD_KNOWN)
    return end == HEAD_WAIT || argument == HEAD_WAIT ? PIECE_WAIT : PIECE_NONE;
  head_state data = in_cdata(c, block, t);
  if (data == HEAD_WAIT)
    return PIECE_WAIT;
  t->no_data = data == HEAD_NONE;
  size_t at = t->seen - t->from;
  bool found = span_pass(text, c->words[ARGUMENT_END], &at);
  t->seen = t->from + at;
  *taken = *size = at;
  return found ? PIECE_ARGUMENT : PIECE_WAIT;
}

/* tell_NAME of each family: what ends a block, the four marks, what else is so of it. */
#define TAGS(name, ...)                                                                                                \
  void tell_##name(const calls_format *f, const char *text, size_t n, const json_t *tools, calls_told *t)              \
  {                                                                                                                    \
    static const cutter c = {.opening = "", .head = tag_head, .next = tag_next, __VA_ARGS__};                          \
    tell_cut(f, &c, (span){text, n}, tools, t);                                                                        \
  }
TAGS(qwen_coder, .closing = "</function>", .words = {"<function=", "</function>", "<parameter=", "</parameter>"})
TAGS(minicpm, .closing = "</function>", .words = {"<function name=", "</function>", "<param name=", "</param>"},
     .quoted = true, .cdata = true)
TAGS(minimax, .closing = "</invoke>", .words = {"<invoke name=", "</invoke>", "<parameter name=", "</parameter>"},
     .quoted = true)
TAGS(dsml, .closing = "</｜DSML｜invoke>",
     .words = {"<｜DSML｜invoke name=", "</｜DSML｜invoke>", "<｜DSML｜parameter name=", "</｜DSML｜parameter>"},
     .quoted = true)
#undef TAGS

/* ---- NAME<arg_key>KEY</arg_key><arg_value>TEXT</arg_value> ---- */

enum { KEY, KEY_END, VALUE, VALUE_END };

static head_state pair_head(const cutter *c, span block, calls_told *t, span *name)
{
  span rest;
  size_t at = t->seen;
  bool found = span_pass(block, c->words[KEY], &at);
  t->seen = at;
  if (t->n) /* a block has one call */
    return HEAD_NONE;
  if (!found || !span_cut(block, c->words[KEY], name, &rest))
    return HEAD_WAIT;
  *name = span_trim(*name);
  t->head = 0;
  t->head_size = at - strlen(c->words[KEY]);
  return HEAD_KNOWN;
}

/* White space, and line ends written as \n. */
static size_t lines(span a)
{
  size_t at = blanks(a);
  while (span_starts(span_skip(a, at), "\\n")) {
    at += 2;
    at += blanks(span_skip(a, at));
  }
  return at;
}

static bool may_be_line(span a)
{
  return a.n == 1 && *a.s == '\\';
}

/* A key, and what its value begins with. */
static head_state pair_key(const cutter *c, span text, span *value)
{
  span key;
  head_state state = may_be_line(text) ? HEAD_WAIT : begins_with(text, c->words[KEY]);
  if (state != HEAD_KNOWN)
    return state;
  if (!span_cut(text, c->words[KEY_END], &key, value))
    return HEAD_WAIT;
  *value = span_skip(*value, lines(*value));
  return may_be_line(*value) ? HEAD_WAIT : begins_with(*value, c->words[VALUE]);
}

static piece_state pair_next(const cutter *c, span block, calls_told *t, size_t *taken, size_t *size)
{
  pass_blanks(t, lines(behind(block, t->from)));
  span text = behind(block, t->from), value;
  head_state state = pair_key(c, text, &value);
  size_t least = state == HEAD_KNOWN ? (size_t)(value.s - text.s) + strlen(c->words[VALUE]) : text.n;
  size_t at = t->seen - t->from;
  if (state == HEAD_NONE || least > CALLS_LONGEST_HEAD)
    return PIECE_NONE;
  if (state == HEAD_WAIT)
    return PIECE_WAIT;
  at = at > least ? at : least;
  bool found = span_pass(text, c->words[VALUE_END], &at);
  t->seen = t->from + at;
  *taken = *size = at;
  return found ? PIECE_ARGUMENT : PIECE_WAIT;
}

/* Text that is JSON from its first letter is read as that. */
static void tell_pairs(const calls_format *f, const cutter *c, const char *braces, span block, const json_t *tools,
                       calls_told *t)
{
  size_t space = blanks(block);
  t->stopped |= space > CALLS_LONGEST_HEAD;
  if (space == block.n || t->stopped)
    return;
  if (strchr(braces, block.s[space]) && block.s[space])
    tell_json(f, block.s, block.n, tools, t);
  else
    tell_cut(f, c, block, tools, t);
}

/* tell_NAME of each family: what JSON begins with, and the four marks. */
#define PAIRS(name, braces, ...)                                                                                       \
  void tell_##name(const calls_format *f, const char *text, size_t n, const json_t *tools, calls_told *t)              \
  {                                                                                                                    \
    static const cutter c = {                                                                                          \
        .opening = "", .closing = "", .head = pair_head, .next = pair_next, .words = {__VA_ARGS__}};                   \
    tell_pairs(f, &c, braces, (span){text, n}, tools, t);                                                              \
  }
PAIRS(glm, "{[", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
PAIRS(longcat, "{", "<longcat_arg_key>", "</longcat_arg_key>", "<longcat_arg_value>", "</longcat_arg_value>")
#undef PAIRS

/* ---- notations with brackets: [name(key=value, …), …] and call:name{key:value, …} ---- */

enum { QUOTE, CALL_WORD };

static bool is_name(char c)
{
  return isalnum((unsigned char)c) || (c && strchr("_-.", c)) || (unsigned char)c >= 0x80;
}

/* One letter, or string marker, of a value. 0: it takes more text to tell. */
static size_t scan_letter(const cutter *c, span text, calls_told *t)
{
  const char *quote = c->words[QUOTE];
  if (quote && !t->quote) {
    head_state state = begins_with(text, quote);
    if (state != HEAD_NONE)
      t->marked ^= state == HEAD_KNOWN;
    if (state != HEAD_NONE)
      return state == HEAD_WAIT ? 0 : strlen(quote);
  }
  char letter = *text.s;
  if (t->marked)
    return 1;
  if (t->quote && letter == '\\')
    return text.n > 1 ? 2 : 0;
  if (t->quote)
    t->quote = letter == t->quote ? '\0' : t->quote;
  else if (letter == '"' || (letter == '\'' && !quote))
    t->quote = letter;
  else if (strchr("([{", letter) && letter)
    t->depth++;
  else if (strchr(")]}", letter) && letter)
    t->depth--;
  return 1;
}

/* Up to the comma or bracket that ends a member. */
static piece_state bracket_next(const cutter *c, span block, calls_told *t, size_t *taken, size_t *size)
{
  while (t->seen < block.n) {
    char letter = block.s[t->seen];
    bool outside = !t->quote && !t->marked && t->depth == 0, end = outside && letter == *c->closing;
    if (end || (outside && letter == ',')) {
      *taken = t->seen - t->from;
      bool nothing = blanks(behind(block, t->from)) >= *taken;
      *size = *taken + (!end || nothing);
      return !nothing ? PIECE_ARGUMENT : end ? PIECE_END : PIECE_NONE;
    }
    size_t step = scan_letter(c, behind(block, t->seen), t);
    if (!step)
      break;
    t->seen += step;
    if (t->depth < 0)
      return PIECE_NONE;
  }
  return PIECE_WAIT;
}

static head_state python_head(const cutter *c, span block, calls_told *t, span *name)
{
  size_t at = t->from + blanks(behind(block, t->from));
  (void)c;
  if (at == block.n)
    return HEAD_WAIT;
  if (block.s[at] != (t->n ? ',' : '['))
    return HEAD_NONE;
  at++;
  at += blanks(behind(block, at));
  t->head = at;
  while (at < block.n && is_name(block.s[at]))
    at++;
  *name = (span){block.s + t->head, at - t->head};
  at += blanks(behind(block, at));
  if (at == block.n)
    return HEAD_WAIT;
  t->head_size = at + 1 - t->head;
  return name->n && block.s[at] == '(' ? HEAD_KNOWN : HEAD_NONE;
}

void tell_pythonic(const calls_format *f, const char *text, size_t n, const json_t *tools, calls_told *t)
{
  static const cutter c = {.opening = "[", .closing = ")]", .head = python_head, .next = bracket_next};
  tell_cut(f, &c, (span){text, n}, tools, t);
}

static head_state word_head(const cutter *c, span block, calls_told *t, span *name)
{
  size_t at = t->from + blanks(behind(block, t->from));
  if (t->n && at < block.n && block.s[at] == ',') {
    at++;
    at += blanks(behind(block, at));
  }
  t->head = at;
  head_state state = begins_with(behind(block, at), c->words[CALL_WORD]);
  if (state != HEAD_KNOWN)
    return state;
  size_t begin = at += strlen(c->words[CALL_WORD]);
  while (at < block.n && (is_name(block.s[at]) || block.s[at] == ':'))
    at++;
  if (at == block.n)
    return HEAD_WAIT;
  *name = (span){block.s + begin, at - begin};
  t->head_size = at + 1 - t->head;
  return name->n && block.s[at] == '{' ? HEAD_KNOWN : HEAD_NONE;
}

void tell_gemma(const calls_format *f, const char *text, size_t n, const json_t *tools, calls_told *t)
{
  static const cutter c = {
      .opening = "", .closing = "}", .head = word_head, .next = bracket_next, .words = {"<|\"|>", "call:"}};
  tell_cut(f, &c, (span){text, n}, tools, t);
}

void tell_function_gemma(const calls_format *f, const char *text, size_t n, const json_t *tools, calls_told *t)
{
  static const cutter c = {
      .opening = "", .closing = "}", .head = word_head, .next = bracket_next, .words = {"<escape>", "call:"}};
  tell_cut(f, &c, (span){text, n}, tools, t);
}
