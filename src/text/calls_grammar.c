/* calls_grammar.c - the calls of each format as grammar: a table of their forms, and how each is written. See answer.h.
 *
 * A form is one that models write and this format's reader takes; a format may have several. Names go out as they are,
 * so that of a tool with letters that the form's markers have is refused.
 */
#include <string.h>

#include "text/answer_impl.h"
#include "text/calls_impl.h"

typedef enum call_block {
  BLOCK_EACH, /* a call each */
  BLOCK_MANY, /* calls one after another */
  BLOCK_LIST, /* a JSON list of calls */
} call_block;

typedef enum call_id {
  ID_NONE,
  ID_DIGITS,  /* up to three */
  ID_LETTERS, /* nine, as mistral's templates take them */
} call_id;

/* A call is {name_key: NAME, arguments_key: ARGUMENTS}, or, name_key NULL, before NAME behind ID behind_id ARGUMENTS
 * end, where ID and what follows it may be missing, or before NAME behind and what `members` says. */
typedef struct call_form {
  const char *format;
  call_block block;
  const char *name_key, *arguments_key;
  const char *id_key; /* of an id that may stand there too, digits first and letters last; NULL: none */
  const char *before, *behind, *behind_id, *end;
  call_id id;
  const char *tag;     /* that may stand before all calls; NULL: none */
  const char *between; /* calls of one block; NULL: nothing but blanks */
  const member_form *members;
  bool cuts; /* the reader looks for the end before it reads JSON, so that no string may have it */
} call_form;

static const member_form qwen_members = {.argument = "<parameter=",
                                         .opens = ">\n",
                                         .line_end = "\n",
                                         .value_end = "</parameter>",
                                         .end = "</function>",
                                         .nulls = {"null"},
                                         .n_nulls = 1};
static const member_form minimax_members = {.argument = "<parameter name=\"",
                                            .opens = "\">",
                                            .line_end = "",
                                            .value_end = "</parameter>",
                                            .end = "</invoke>",
                                            .nulls = {"null", "none", "nil"},
                                            .n_nulls = 3};
static const member_form glm_members = {.argument = "<arg_key>",
                                        .opens = "</arg_key>\n<arg_value>",
                                        .line_end = "",
                                        .value_end = "</arg_value>",
                                        .end = "",
                                        .guesses = true};

static const call_form forms[] = {
    {.format = "json_tools", .block = BLOCK_EACH, .name_key = "name", .arguments_key = "arguments"},
    {.format = "hermes", .block = BLOCK_EACH, .name_key = "name", .arguments_key = "arguments"},
    {.format = "cohere",
     .block = BLOCK_LIST,
     .id_key = "tool_call_id",
     .id = ID_DIGITS,
     .name_key = "tool_name",
     .arguments_key = "parameters"},
    {.format = "nemotron", .block = BLOCK_LIST, .name_key = "name", .arguments_key = "arguments"},
    {.format = "granite", .block = BLOCK_LIST, .name_key = "name", .arguments_key = "arguments"},
    {.format = "llama3_json",
     .block = BLOCK_MANY,
     .name_key = "name",
     .arguments_key = "parameters",
     .tag = "<|python_tag|>",
     .between = ";"},
    {.format = "mistral", .block = BLOCK_EACH, .before = "", .behind = "[ARGS]", .end = ""},
    {.format = "mistral",
     .block = BLOCK_EACH,
     .before = "",
     .behind = "[CALL_ID]",
     .id = ID_LETTERS,
     .behind_id = "[ARGS]",
     .end = ""},
    {.format = "mistral",
     .block = BLOCK_LIST,
     .name_key = "name",
     .arguments_key = "arguments",
     .id_key = "id",
     .id = ID_LETTERS},
    {.format = "kimi_k2",
     .block = BLOCK_MANY,
     .before = "<|tool_call_begin|>functions.",
     .behind = ":",
     .id = ID_DIGITS,
     .behind_id = "<|tool_call_argument_begin|>",
     .end = "<|tool_call_end|>",
     .cuts = true},
    {.format = "deepseek_v31",
     .block = BLOCK_MANY,
     .before = "<｜tool▁call▁begin｜>",
     .behind = "<｜tool▁sep｜>",
     .end = "<｜tool▁call▁end｜>",
     .cuts = true},
    {.format = "deepseek_v31",
     .block = BLOCK_MANY,
     .before = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
     .behind = "\n```json\n",
     .end = "\n```<｜tool▁call▁end｜>",
     .cuts = true},
    {.format = "qwen3_coder", .block = BLOCK_EACH, .before = "<function=", .behind = ">\n", .members = &qwen_members},
    {.format = "seed_oss", .block = BLOCK_EACH, .before = "<function=", .behind = ">\n", .members = &qwen_members},
    {.format = "minimax_m2",
     .block = BLOCK_MANY,
     .before = "<invoke name=\"",
     .behind = "\">\n",
     .members = &minimax_members},
    {.format = "glm47", .block = BLOCK_EACH, .before = "", .behind = "\n", .members = &glm_members},
};
enum { FORMS = sizeof forms / sizeof *forms, BLANKS = 2 };

static bool is_of(const call_form *w, const calls_format *f)
{
  return !strcmp(w->format, f->name);
}

bool answer_has_calls(const calls_format *f)
{
  for (size_t i = 0; i < FORMS; i++)
    if (is_of(&forms[i], f))
      return true;
  return false;
}

static bool has(const char *marker, const char *text, size_t n)
{
  return marker && memmem(marker, strlen(marker), text, n);
}

static bool members_have(const member_form *w, const char *text, size_t n)
{
  return w &&
         (has(w->argument, text, n) || has(w->opens, text, n) || has(w->value_end, text, n) || has(w->end, text, n));
}

bool answer_is_marker(const char *text, size_t n)
{
  const calls_format *f;
  bool is = false;
  for (size_t i = 0; n && !is && (f = calls_at(i)); i++)
    is = answer_has_calls(f) && (has(f->start, text, n) || has(f->end, text, n) || has(f->bare_start, text, n));
  for (size_t i = 0; n && !is && i < FORMS; i++)
    is = has(forms[i].before, text, n) || has(forms[i].behind, text, n) || has(forms[i].behind_id, text, n) ||
         has(forms[i].end, text, n) || has(forms[i].tag, text, n) || members_have(forms[i].members, text, n);
  return is;
}

const char *calls_start(const calls_format *f)
{
  return f->start ? f->start : f->bare_start;
}

bool calls_open_ended(const calls_format *f)
{
  return f->start && !*f->end;
}

typedef struct emitter {
  schema_compiler *c;
  const answer_form *form;
  uint32_t *arguments; /* [n_tools]: rules; of what is between tags with the call's end */
  const json_t **seen; /* [n_seen], SCHEMA_MOST at most: schemas that are objects, or are still to be looked at */
  size_t n_seen;
  tern_error *err;
} emitter;

static void word(emitter *e, const char *text)
{
  gram_text(e->c->g, text, strlen(text));
}

static void space(emitter *e)
{
  answer_emit_space(e->c->g, BLANKS);
}

static void gap(emitter *e)
{
  schema_call(e->c, RULE_GAP);
}

/* ---- arguments ---- */

static bool says_nothing(const json_t *schema)
{
  static const char *const keys[] = {"title", "description", "$schema", "$id", "$comment", "$defs", "definitions"};
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)schema, key, value)
  {
    bool known = false;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
      known |= !strcmp(keys[i], key);
    if (!known)
      return false;
  }
  return true;
}

/* Notes a schema that is still to be looked at, once however many say it: every schema is looked at once, and there are
 * no more of them than the compiler takes. */
static tern_status look_at(emitter *e, const answer_tool *t, const json_t *schema)
{
  for (size_t i = 0; i < e->n_seen; i++)
    if (e->seen[i] == schema)
      return TERN_OK;
  if (e->n_seen == SCHEMA_MOST)
    return err_set(e->err, TERN_E_LIMIT, "%s: too large: more than %d schemas say what arguments are", t->place,
                   SCHEMA_MOST);
  e->seen[e->n_seen++] = schema;
  return TERN_OK;
}

/* What a schema leaves to others, which are to be looked at; false: it says itself that it is an object, or is none. */
static tern_status look_behind(emitter *e, const answer_tool *t, const json_t *schema, bool *others)
{
  static const char *const lists[] = {"anyOf", "oneOf", "allOf"};
  const char *ref = json_string_value(json_object_get(schema, "$ref"));
  const json_t *target = NULL;
  *others = false;
  if (ref) {
    if (*ref == '#')
      TRY(schema_find(t->schema, ref, &target, e->err));
    *others = target != NULL;
    return target ? look_at(e, t, target) : TERN_OK;
  }
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    const json_t *list = json_object_get(schema, lists[i]);
    if (!list)
      continue;
    *others = json_array_size(list) > 0;
    for (size_t k = 0; k < json_array_size(list); k++)
      TRY(look_at(e, t, json_array_get(list, k)));
    return TERN_OK;
  }
  return TERN_OK;
}

static bool says_object(const json_t *schema)
{
  const json_t *type = json_object_get(schema, "type");
  if (json_object_get(schema, "$ref") || json_object_get(schema, "anyOf") || json_object_get(schema, "oneOf") ||
      json_object_get(schema, "allOf"))
    return false;
  if (type)
    return json_is_string(type) && !strcmp(json_string_value(type), "object");
  return json_object_get(schema, "properties") || json_object_get(schema, "additionalProperties");
}

/* All that the tool's schema lets through must be objects, as arguments are. */
static tern_status check_object(emitter *e, const answer_tool *t)
{
  size_t at = e->n_seen;
  TRY(look_at(e, t, t->schema));
  for (; at < e->n_seen; at++) {
    const json_t *schema = e->seen[at];
    bool others = false, plain = json_is_object(schema) && !json_is_true(json_object_get(schema, "nullable"));
    if (plain)
      TRY(look_behind(e, t, schema, &others));
    if (!plain || (!others && !says_object(schema)))
      return err_set(e->err, TERN_E_USAGE, "%s: arguments are an object: its type must say so", t->place);
  }
  return TERN_OK;
}

/* Between tags each argument has its own schema; what may be anything has none. */
static tern_status emit_members(emitter *e, const member_form *w)
{
  for (size_t i = 0; i < e->form->n_tools; i++) {
    const answer_tool *t = &e->form->tools[i];
    schema_root *root = arena_alloc(&e->c->memory, sizeof *root);
    if (!root)
      return err_nomem(e->err, "schema");
    *root = (schema_root){t->schema, t->place};
    gram_begin(e->c->g, e->arguments[i]);
    TRY(members_emit(e->c, w, root, e->err));
  }
  return TERN_OK;
}

static tern_status add_arguments(emitter *e, size_t i)
{
  const answer_tool *t = &e->form->tools[i];
  e->arguments[i] = e->c->rules[RULE_OBJECT];
  if (!t->schema || (json_is_object(t->schema) && says_nothing(t->schema)))
    return TERN_OK;
  schema_root *root = arena_alloc(&e->c->memory, sizeof *root);
  if (!root)
    return err_nomem(e->err, "schema");
  *root = (schema_root){t->schema, t->place};
  TRY(check_object(e, t));
  e->arguments[i] = schema_add(e->c, root);
  return TERN_OK;
}

/* ---- a call ---- */

static void emit_key(emitter *e, const char *key)
{
  gram_bytes(e->c->g, '"', '"');
  word(e, key);
  gram_bytes(e->c->g, '"', '"');
  schema_emit_colon(e->c);
}

static void emit_comma(emitter *e)
{
  gram_bytes(e->c->g, ',', ',');
  gap(e);
}

static tern_status emit_quoted(emitter *e, const char *name)
{
  json_t *text = json_string(name);
  bool well = text && schema_emit_literal(e->c, text);
  json_decref(text);
  return well ? TERN_OK : err_nomem(e->err, "schema");
}

static void emit_id(emitter *e, const call_form *w)
{
  grammar *g = e->c->g;
  uint32_t ends = GRAM_NONE;
  for (int i = 0; w->id == ID_DIGITS && i < 3; i++) {
    if (i) {
      uint32_t more = gram_split(g);
      ends = gram_jump(g, ends);
      gram_land(g, more);
    }
    gram_bytes(g, '0', '9');
  }
  gram_land_jumps(g, ends);
  for (int i = 0; w->id == ID_LETTERS && i < 9; i++) {
    gram_alternatives a = GRAM_ALTERNATIVES;
    gram_branch(g, &a, true);
    gram_bytes(g, '0', '9');
    gram_branch(g, &a, true);
    gram_bytes(g, 'A', 'Z');
    gram_branch(g, &a, false);
    gram_bytes(g, 'a', 'z');
    gram_join(g, &a);
  }
}

static void emit_id_member(emitter *e, const call_form *w)
{
  emit_key(e, w->id_key);
  gram_bytes(e->c->g, '"', '"');
  emit_id(e, w);
  gram_bytes(e->c->g, '"', '"');
}

static tern_status emit_object(emitter *e, const call_form *w)
{
  grammar *g = e->c->g;
  gram_alternatives a = GRAM_ALTERNATIVES;
  gram_bytes(g, '{', '{');
  gap(e);
  if (w->id == ID_DIGITS) {
    uint32_t without = gram_split(g);
    emit_id_member(e, w);
    emit_comma(e);
    gram_land(g, without);
  }
  emit_key(e, w->name_key);
  for (size_t i = 0; i < e->form->n_tools; i++) {
    gram_branch(g, &a, i + 1 < e->form->n_tools);
    TRY(emit_quoted(e, e->form->tools[i].name));
    emit_comma(e);
    emit_key(e, w->arguments_key);
    gram_call(g, e->arguments[i]);
  }
  gram_join(g, &a);
  if (w->id == ID_LETTERS) {
    uint32_t without = gram_split(g);
    emit_comma(e);
    emit_id_member(e, w);
    gram_land(g, without);
  }
  gap(e);
  gram_bytes(g, '}', '}');
  return TERN_OK;
}

static tern_status check_name(const emitter *e, const char *name)
{
  for (const char *c = name; *c; c++)
    if ((unsigned char)*c <= ' ' || strchr("[]{}<>|\"'", *c))
      return err_set(e->err, TERN_E_USAGE, "a call of \"%.60s\" cannot be written in the format %s", name,
                     e->form->calls->name);
  return TERN_OK;
}

/* Names, and what follows each. */
static tern_status emit_headed(emitter *e, const call_form *w)
{
  grammar *g = e->c->g;
  gram_alternatives a = GRAM_ALTERNATIVES;
  word(e, w->before);
  for (size_t i = 0; i < e->form->n_tools; i++) {
    const char *name = e->form->tools[i].name;
    TRY(check_name(e, name));
    gram_branch(g, &a, i + 1 < e->form->n_tools);
    word(e, name);
    word(e, w->behind);
    emit_id(e, w);
    word(e, w->id == ID_NONE ? "" : w->behind_id);
    gram_call(g, e->arguments[i]);
  }
  gram_join(g, &a);
  word(e, w->end ? w->end : "");
  return TERN_OK;
}

/* With its return. */
static tern_status emit_call(emitter *e, const call_form *w, uint32_t rule)
{
  gram_begin(e->c->g, rule);
  TRY(w->name_key ? emit_object(e, w) : emit_headed(e, w));
  gram_return(e->c->g);
  return TERN_OK;
}

/* ---- a block ---- */

/* Behind its marker, with its return. */
static void emit_block(emitter *e, const call_form *w, uint32_t call)
{
  grammar *g = e->c->g;
  bool list = w->block == BLOCK_LIST;
  space(e);
  if (w->tag) {
    uint32_t without = gram_split(g);
    word(e, w->tag);
    gram_land(g, without);
  }
  if (list) {
    gram_bytes(g, '[', '[');
    gap(e);
  }
  uint32_t again = gram_here(g);
  gram_call(g, call);
  if (w->block != BLOCK_EACH && !e->form->one_call) {
    uint32_t enough = gram_split(g);
    if (list) {
      emit_comma(e);
    } else {
      space(e);
      word(e, w->between ? w->between : "");
      space(e);
    }
    gram_jump_to(g, again);
    gram_land(g, enough);
  }
  if (list) {
    gap(e);
    gram_bytes(g, ']', ']');
  }
  if (e->form->calls->start && *e->form->calls->end) {
    space(e);
    word(e, e->form->calls->end);
  }
  gram_return(g);
}

/* Blocks as the whole answer. */
static void emit_all(emitter *e, uint32_t block, uint32_t all, bool each)
{
  grammar *g = e->c->g;
  gram_begin(g, all);
  word(e, calls_start(e->form->calls));
  gram_call(g, block);
  if (!e->form->one_call && each) {
    uint32_t enough = gram_split(g);
    space(e);
    uint32_t blank = gram_split(g);
    schema_leave(e->c, all);
    gram_land(g, blank);
    gram_land(g, enough);
  }
  gram_return(g);
}

tern_status calls_emit(schema_compiler *c, const answer_form *form, uint32_t block, uint32_t all, tern_error *err)
{
  emitter e = {.c = c, .form = form, .err = err};
  gram_alternatives a = GRAM_ALTERNATIVES;
  const call_form *own[FORMS];
  uint32_t calls[FORMS];
  size_t n = 0;
  bool each = false;
  e.arguments = arena_zalloc(&c->memory, (form->n_tools + 1) * sizeof *e.arguments);
  e.seen = arena_alloc(&c->memory, SCHEMA_MOST * sizeof *e.seen);
  if (!e.arguments || !e.seen)
    return err_nomem(err, "schema");
  for (size_t i = 0; i < FORMS; i++)
    if (is_of(&forms[i], form->calls)) {
      own[n] = &forms[i];
      each |= forms[i].block == BLOCK_EACH;
      calls[n++] = gram_rule(c->g);
    }
  const member_form *members = own[0]->members; /* a format with tags has one form */
  c->no_angle = members || own[0]->cuts;
  for (size_t i = 0; i < form->n_tools; i++)
    if (members)
      e.arguments[i] = gram_rule(c->g);
    else
      TRY(add_arguments(&e, i));
  gram_begin(c->g, block);
  for (size_t i = 0; i < n; i++) {
    gram_branch(c->g, &a, i + 1 < n);
    emit_block(&e, own[i], calls[i]);
  }
  gram_join(c->g, &a);
  emit_all(&e, block, all, each);
  for (size_t i = 0; i < n; i++)
    TRY(emit_call(&e, own[i], calls[i]));
  return members ? emit_members(&e, members) : TERN_OK;
}
