/* calls_members.c - arguments between tags of their own, as grammar: those of qwen3_coder and its kin, minimax_m2 and
 * glm47. See answer_impl.h.
 *
 * What a text means there is decided by the reader, from the argument's schema (calls_tags.c). So only such schemas are
 * taken of which the reader makes what was meant: a string is written as it is, up to the tag, and anything else as
 * JSON. A string that the reader would take for null does not come. What else a schema says of a string is not enforced
 * here, and so an error.
 */
#include <string.h>
#include <strings.h>

#include "text/answer_impl.h"

/* Whether the text of a string may be anything, with these keywords beside its type. */
static bool has_only(const json_t *schema, const char *const *known)
{
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)schema, key, value)
  {
    static const char *const words[] = {"title",    "description", "default",  "example",
                                        "examples", "deprecated",  "$comment", NULL};
    bool is = false;
    for (size_t i = 0; words[i]; i++)
      is |= !strcmp(words[i], key);
    for (size_t i = 0; known[i]; i++)
      is |= !strcmp(known[i], key);
    if (!is)
      return false;
  }
  return true;
}

static bool is_type(const json_t *schema, const char *name)
{
  const char *type = json_string_value(json_object_get(schema, "type"));
  return type && !strcmp(type, name);
}

typedef enum written {
  WRITTEN_RAW,
  WRITTEN_OR_NULL, /* as it is, and what is taken for null is null */
  WRITTEN_VALUES,
  WRITTEN_JSON,
  WRITTEN_NOT
} written;

/* Types of which every reader makes what JSON says. */
static bool is_plain_json(const json_t *schema)
{
  static const char *const types[] = {"integer", "number", "boolean", "object", "array"};
  bool is = false;
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    is |= is_type(schema, types[i]);
  return is && !json_is_true(json_object_get(schema, "nullable"));
}

/* A string or null, and nothing more of either. */
static bool is_string_or_null(const json_t *schema)
{
  static const char *const any[] = {"anyOf", NULL}, *const typed[] = {"type", NULL};
  const json_t *list = json_object_get(schema, "anyOf");
  bool string = false, null = false;
  for (size_t i = 0; i < json_array_size(list); i++) {
    const json_t *one = json_array_get(list, i);
    string |= is_type(one, "string") && has_only(one, typed);
    null |= is_type(one, "null") && has_only(one, typed);
  }
  return json_is_object(schema) && has_only(schema, any) && json_array_size(list) == 2 && string && null;
}

static written way_of(const json_t *schema, const member_form *w)
{
  static const char *const none[] = {NULL}, *const typed[] = {"type", NULL};
  static const char *const values[] = {"type", "enum", "const", NULL};
  bool string = is_type(schema, "string"), untyped = !json_object_get(schema, "type");
  if (string && has_only(schema, typed))
    return WRITTEN_RAW;
  if (string && has_only(schema, values))
    return WRITTEN_VALUES;
  if (string)
    return WRITTEN_NOT;
  if (!w->guesses && is_string_or_null(schema))
    return WRITTEN_OR_NULL;
  if (!w->guesses && untyped && json_is_object(schema) && has_only(schema, none))
    return WRITTEN_RAW;
  return w->guesses || is_plain_json(schema) ? WRITTEN_JSON : WRITTEN_NOT;
}

/* Strings that are to be written as they are, each with the tag behind it. */
static tern_status emit_values(schema_compiler *c, const schema_item *at, const member_form *w, tern_error *err)
{
  const json_t *list = json_object_get(at->schema, "enum"), *only = json_object_get(at->schema, "const");
  size_t n = list ? json_array_size(list) : 1;
  gram_alternatives a = GRAM_ALTERNATIVES;
  for (size_t i = 0; i < n; i++) {
    const json_t *value = list ? json_array_get(list, i) : only;
    const char *text = json_string_value(value);
    if (!text || (list && only))
      return schema_wrong(at, list ? "enum" : "const", "must be strings, and not beside each other", err);
    bool plain = *text && !strpbrk(text, "<\n\r\t\v\f") && *text != ' ' && text[strlen(text) - 1] != ' ' &&
                 strlen(text) == json_string_length(value);
    for (size_t k = 0; k < w->n_nulls; k++)
      plain = plain && strcasecmp(text, w->nulls[k]) != 0;
    if (!plain)
      return schema_wrong(at, list ? "enum" : "const", "a string that the format cannot write", err);
    gram_branch(c->g, &a, i + 1 < n);
    gram_text(c->g, text, strlen(text));
    gram_text(c->g, w->line_end, strlen(w->line_end));
    gram_text(c->g, w->value_end, strlen(w->value_end));
  }
  gram_join(c->g, &a);
  return n ? TERN_OK : schema_wrong(at, "enum", "must be a list, and not empty", err);
}

/* From behind the name to behind the tag that ends the argument. With its return. */
static tern_status emit_value(schema_compiler *c, const schema_item *at, const member_form *w, tern_error *err)
{
  grammar *g = c->g;
  written way = way_of(at->schema, w);
  bool json = way == WRITTEN_JSON;
  if (way == WRITTEN_NOT)
    return err_set(err, TERN_E_USAGE,
                   "%s: what this says is not enforced in the format of this model's calls, which writes arguments "
                   "between tags",
                   at->path);
  gram_text(g, w->opens, strlen(w->opens));
  if (way == WRITTEN_RAW || way == WRITTEN_OR_NULL) {
    schema_emit_text_but(c, w->value_end, w->nulls, way == WRITTEN_RAW ? w->n_nulls : 0);
    return TERN_OK;
  }
  if (json) {
    gram_call(g, schema_add_at(c, at));
    gram_text(g, w->line_end, strlen(w->line_end));
    gram_text(g, w->value_end, strlen(w->value_end));
  } else {
    TRY(emit_values(c, at, w, err));
  }
  gram_return(g);
  return TERN_OK;
}

static bool is_required(const json_t *schema, const char *name)
{
  const json_t *list = json_object_get(schema, "required");
  for (size_t i = 0; i < json_array_size(list); i++) {
    const char *one = json_string_value(json_array_get(list, i));
    if (one && !strcmp(one, name))
      return true;
  }
  return false;
}

static tern_status check_names(const schema_root *root, tern_error *err)
{
  static const char *const known[] = {
      "type", "properties", "required", "additionalProperties", "$defs", "definitions", "$schema", "$id", NULL};
  const json_t *required = json_object_get(root->schema, "required"), *of = json_object_get(root->schema, "properties");
  const json_t *others = json_object_get(root->schema, "additionalProperties");
  const char *name;
  json_t *value;
  bool object = !json_object_get(root->schema, "type") || is_type(root->schema, "object");
  if (!object)
    return err_set(err, TERN_E_USAGE, "%s: arguments are an object: its type must say so", root->place);
  if (!has_only(root->schema, known) || (of && !json_is_object(of)) || (others && !json_is_false(others)) ||
      (required && !json_is_array(required)))
    return err_set(
        err, TERN_E_USAGE,
        "%s: beside properties, required and additionalProperties false nothing is enforced in the format of "
        "this model's calls",
        root->place);
  json_object_foreach((json_t *)(uintptr_t)of, name, value)
  {
    if (!*name || strpbrk(name, "<>\"' \t\r\n\v\f"))
      return err_set(err, TERN_E_USAGE,
                     "%s.properties: \"%.60s\" cannot be written in the format of this model's calls", root->place,
                     name);
  }
  for (size_t i = 0; i < json_array_size(required); i++)
    if (!json_object_get(of, json_string_value(json_array_get(required, i))))
      return err_set(err, TERN_E_USAGE, "%s.required: a name that is none of the properties", root->place);
  return TERN_OK;
}

/* Arguments of any names and texts. */
static void emit_any(schema_compiler *c, const member_form *w)
{
  static const char *const ranges[] = {"az", "AZ", "09", "__", "--", ".."};
  grammar *g = c->g;
  uint32_t again = gram_here(g), enough = gram_split(g), value = gram_rule(g);
  gram_text(g, w->argument, strlen(w->argument));
  uint32_t letter = gram_here(g);
  gram_alternatives a = GRAM_ALTERNATIVES;
  for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
    gram_branch(g, &a, i + 1 < sizeof ranges / sizeof *ranges);
    gram_bytes(g, (uint8_t)ranges[i][0], (uint8_t)ranges[i][1]);
  }
  gram_join(g, &a);
  gram_split_to(g, letter);
  gram_text(g, w->opens, strlen(w->opens));
  gram_call(g, value);
  answer_emit_space(g, 2);
  gram_jump_to(g, again);
  gram_land(g, enough);
  gram_text(g, w->end, strlen(w->end));
  gram_return(g);
  gram_begin(g, value);
  schema_emit_text(c, &(schema_marker){w->value_end, GRAM_NONE}, 1, false);
}

tern_status members_emit(schema_compiler *c, const member_form *w, const schema_root *root, tern_error *err)
{
  grammar *g = c->g;
  const json_t *properties = json_object_get(root->schema, "properties");
  const char *name;
  json_t *schema;
  uint32_t rules[MEMBERS_MOST] = {0}, n = 0;
  if (!root->schema) {
    emit_any(c, w);
    return TERN_OK;
  }
  TRY(check_names(root, err));
  if (json_object_size(properties) > MEMBERS_MOST)
    return err_set(err, TERN_E_LIMIT, "%s: more than %d arguments", root->place, MEMBERS_MOST);
  json_object_foreach((json_t *)(uintptr_t)properties, name, schema)
  {
    bool may_lack = !is_required(root->schema, name);
    uint32_t without = may_lack ? gram_split(g) : GRAM_NONE;
    gram_text(g, w->argument, strlen(w->argument));
    gram_text(g, name, strlen(name));
    rules[n] = gram_rule(g);
    gram_call(g, rules[n++]);
    answer_emit_space(g, 2);
    if (may_lack)
      gram_land(g, without);
  }
  gram_text(g, w->end, strlen(w->end));
  gram_return(g);
  n = 0;
  json_object_foreach((json_t *)(uintptr_t)properties, name, schema)
  {
    const schema_item at = {schema, 0, schema_path(c, root->place, "properties", name), root};
    gram_begin(g, rules[n++]);
    TRY(emit_value(c, &at, w, err));
  }
  return TERN_OK;
}
