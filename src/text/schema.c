/* schema.c - see schema.h: keywords, and the grammar of each schema.
 *
 * A schema becomes a rule; those within it are put on a list and get their code later, so that nothing here recurses
 * over what a request nests. A table says of each keyword what it is about; one that is not in it, or is not enforced,
 * is an error.
 */
#include "text/schema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/schema_impl.h"

enum { MOST_PATH = 240 };

/* ---- keywords ---- */

typedef enum about {
  ABOUT_NOTHING = 0,
  ABOUT_REF = 1,
  ABOUT_ANY_OF = 2,
  ABOUT_ALL_OF = 4,
  ABOUT_VALUES = 8, /* enum, const */
  ABOUT_TYPE = 16,
  ABOUT_NULL = 32,
  ABOUT_STRINGS = 64,
  ABOUT_NUMBERS = 128,
  ABOUT_LISTS = 256,
  ABOUT_OBJECTS = 512,
} about;

static const struct {
  const char *name;
  about what;
} keywords[] = {
    {"title", ABOUT_NOTHING},
    {"description", ABOUT_NOTHING},
    {"default", ABOUT_NOTHING},
    {"example", ABOUT_NOTHING},
    {"examples", ABOUT_NOTHING},
    {"deprecated", ABOUT_NOTHING},
    {"readOnly", ABOUT_NOTHING},
    {"writeOnly", ABOUT_NOTHING},
    {"discriminator", ABOUT_NOTHING}, /* of oneOf: the branches say it themselves */
    {"$schema", ABOUT_NOTHING},
    {"$id", ABOUT_NOTHING},
    {"$comment", ABOUT_NOTHING},
    {"$defs", ABOUT_NOTHING},
    {"definitions", ABOUT_NOTHING},
    {"$ref", ABOUT_REF},
    {"anyOf", ABOUT_ANY_OF},
    {"oneOf", ABOUT_ANY_OF},
    {"allOf", ABOUT_ALL_OF},
    {"enum", ABOUT_VALUES},
    {"const", ABOUT_VALUES},
    {"type", ABOUT_TYPE},
    {"nullable", ABOUT_NULL},
    {"minLength", ABOUT_STRINGS},
    {"maxLength", ABOUT_STRINGS},
    {"pattern", ABOUT_STRINGS},
    {"format", ABOUT_STRINGS},
    {"minimum", ABOUT_NUMBERS},
    {"maximum", ABOUT_NUMBERS},
    {"exclusiveMinimum", ABOUT_NUMBERS},
    {"exclusiveMaximum", ABOUT_NUMBERS},
    {"items", ABOUT_LISTS},
    {"prefixItems", ABOUT_LISTS},
    {"minItems", ABOUT_LISTS},
    {"maxItems", ABOUT_LISTS},
    {"properties", ABOUT_OBJECTS},
    {"required", ABOUT_OBJECTS},
    {"additionalProperties", ABOUT_OBJECTS},
};

/* What the schema's keywords are about. */
static tern_status check_keywords(const schema_item *at, unsigned *all, tern_error *err)
{
  const char *key;
  json_t *value;
  *all = 0;
  json_object_foreach((json_t *)(uintptr_t)at->schema, key, value)
  {
    size_t i = 0;
    while (i < sizeof keywords / sizeof *keywords && strcmp(keywords[i].name, key) != 0)
      i++;
    if (i < sizeof keywords / sizeof *keywords)
      *all |= keywords[i].what;
    else if (strncmp(key, "x-", 2) != 0 && !(!strcmp(key, "uniqueItems") && json_is_false(value)))
      return schema_wrong(at, key, "this keyword is not enforced here, and not ignored", err);
  }
  return TERN_OK;
}

/* ---- the list of schemas ---- */

const char *schema_path(schema_compiler *c, const char *base, const char *key, const char *name)
{
  size_t length = strlen(base) + strlen(key) + (name ? strlen(name) : 0) + 3;
  if (length > MOST_PATH)
    return base; /* long enough to find the place */
  char *path = arena_alloc(&c->memory, length);
  if (!path)
    return base;
  strcpy(path, base);
  strcat(path, ".");
  strcat(path, key);
  if (name) {
    strcat(path, ".");
    strcat(path, name);
  }
  return path;
}

/* The rule of a schema, which is one of `at`'s. */
static uint32_t rule_of(schema_compiler *c, const json_t *schema, const char *path, const schema_root *of)
{
  uint32_t rule = gram_rule(c->g);
  c->g->over = c->g->over || c->n >= SCHEMA_MOST;
  if (c->g->over || c->g->failed)
    return 0;
  c->g->failed = !mem_grow(&c->items, &c->capacity, c->n + 1, sizeof *c->items);
  if (c->g->failed)
    return 0;
  c->items[c->n++] = (schema_item){schema, rule, path, of};
  return rule;
}

static uint32_t member_rule(schema_compiler *c, const schema_item *at, const json_t *schema, const char *key,
                            const char *name)
{
  return rule_of(c, schema, schema_path(c, at->path, key, name), at->of);
}

uint32_t schema_add_at(schema_compiler *c, const schema_item *at)
{
  return rule_of(c, at->schema, at->path, at->of);
}

uint32_t schema_add(schema_compiler *c, const schema_root *root)
{
  return rule_of(c, root->schema, root->place, root);
}

/* ---- $ref ---- */

static tern_status resolve(const schema_item *at, const char *ref, const json_t **out, tern_error *err)
{
  if (*ref != '#' || (ref[1] && ref[1] != '/'))
    return schema_wrong(at, "$ref", "only \"#\" and \"#/…\" within the schema are followed", err);
  TRY(schema_find(at->of->schema, ref, out, err));
  if (!*out)
    return err_set(err, TERN_E_USAGE, "%s.$ref: there is no \"%.100s\" in the schema", at->path, ref);
  return TERN_OK;
}

static tern_status emit_ref(schema_compiler *c, const schema_item *at, tern_error *err)
{
  const json_t *target = NULL;
  const char *ref = json_string_value(json_object_get(at->schema, "$ref"));
  if (!ref)
    return schema_wrong(at, "$ref", "must be a string", err);
  TRY(resolve(at, ref, &target, err));
  for (size_t i = 0; i < c->n; i++)
    if (c->items[i].schema == target) {
      schema_leave(c, c->items[i].rule);
      return TERN_OK;
    }
  size_t skip = ref[1] == '/' ? 2 : 1;
  char path[MOST_PATH];
  size_t n = strlen(ref + skip) < sizeof path ? strlen(ref + skip) : sizeof path - 1;
  for (size_t i = 0; i < n; i++)
    path[i] = ref[skip + i] == '/' ? '.' : ref[skip + i];
  path[n] = '\0';
  schema_leave(c, rule_of(c, target, schema_path(c, at->of->place, path, NULL), at->of));
  return TERN_OK;
}

/* ---- one of several ---- */

/* With their return. */
static tern_status emit_any_of(schema_compiler *c, const schema_item *at, const char *key, tern_error *err)
{
  const json_t *list = json_object_get(at->schema, key);
  size_t n = json_array_size(list);
  gram_alternatives a = GRAM_ALTERNATIVES;
  char number[24];
  if (!n)
    return schema_wrong(at, key, "must be a list of schemas, and not empty", err);
  for (size_t i = 0; i < n && !c->g->over; i++) {
    snprintf(number, sizeof number, "%zu", i);
    gram_branch(c->g, &a, i + 1 < n);
    schema_leave(c, member_rule(c, at, json_array_get(list, i), key, number));
  }
  gram_join(c->g, &a);
  return TERN_OK;
}

static tern_status emit_all_of(schema_compiler *c, const schema_item *at, tern_error *err)
{
  if (json_array_size(json_object_get(at->schema, "allOf")) != 1)
    return schema_wrong(at, "allOf", "only a list of one schema is enforced here", err);
  return emit_any_of(c, at, "allOf", err);
}

/* ---- types ---- */

typedef enum kind {
  KIND_NULL = 1,
  KIND_BOOLEAN = 2,
  KIND_INTEGER = 4,
  KIND_NUMBER = 8,
  KIND_STRING = 16,
  KIND_ARRAY = 32,
  KIND_OBJECT = 64,
} kind;

static const struct {
  const char *name;
  kind is;
} kinds[] = {{"null", KIND_NULL},     {"boolean", KIND_BOOLEAN}, {"integer", KIND_INTEGER}, {"number", KIND_NUMBER},
             {"string", KIND_STRING}, {"array", KIND_ARRAY},     {"object", KIND_OBJECT}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static unsigned kind_named(const json_t *name)
{
  const char *text = json_string_value(name);
  for (size_t i = 0; text && i < N_KINDS; i++)
    if (!strcmp(kinds[i].name, text))
      return kinds[i].is;
  return 0;
}

/* The types that a schema allows: named, or those that its keywords are about. 0: any. */
static tern_status read_types(const schema_item *at, unsigned keys, unsigned *out, tern_error *err)
{
  const json_t *type = json_object_get(at->schema, "type");
  size_t n = json_is_array(type) ? json_array_size(type) : 1;
  *out = 0;
  if (!type) {
    *out = (keys & ABOUT_STRINGS ? KIND_STRING : 0) | (keys & ABOUT_NUMBERS ? KIND_NUMBER : 0) |
           (keys & ABOUT_LISTS ? KIND_ARRAY : 0) | (keys & ABOUT_OBJECTS ? KIND_OBJECT : 0);
    return TERN_OK;
  }
  for (size_t i = 0; i < n; i++) {
    unsigned one = kind_named(json_is_array(type) ? json_array_get(type, i) : type);
    if (!one)
      return schema_wrong(at, "type", "must be one or a list of null, boolean, integer, number, string, array, object",
                          err);
    *out |= one;
  }
  return n ? TERN_OK : schema_wrong(at, "type", "an empty list", err);
}

static unsigned kinds_of(const json_t *value)
{
  switch (json_typeof(value)) {
  case JSON_NULL:
    return KIND_NULL;
  case JSON_TRUE:
  case JSON_FALSE:
    return KIND_BOOLEAN;
  case JSON_INTEGER:
    return KIND_INTEGER | KIND_NUMBER;
  case JSON_REAL:
    return schema_is_whole(json_real_value(value)) ? KIND_INTEGER | KIND_NUMBER : KIND_NUMBER;
  case JSON_STRING:
    return KIND_STRING;
  case JSON_ARRAY:
    return KIND_ARRAY;
  case JSON_OBJECT:
    return KIND_OBJECT;
  }
  return 0;
}

/* ---- enum, const ---- */

/* Whether a whole number is in it that was read as a real, for it is beyond 64 bits: which one it was is not known. */
static bool has_vast(const json_t *value)
{
  const char *key;
  json_t *x;
  bool vast = json_is_real(value) && fabs(json_real_value(value)) >= 0x1p63;
  for (size_t i = 0; !vast && i < json_array_size(value); i++)
    vast = has_vast(json_array_get(value, i));
  json_object_foreach((json_t *)(uintptr_t)value, key, x) vast = vast || has_vast(x);
  return vast;
}

static tern_status emit_values(schema_compiler *c, const schema_item *at, unsigned types, tern_error *err)
{
  json_t *list = json_object_get(at->schema, "enum"), *only = json_object_get(at->schema, "const");
  if (list && !json_array_size(list))
    return schema_wrong(at, "enum", "must be a list, and not empty", err);
  size_t n = list ? json_array_size(list) : 1;
  bool well = true;
  gram_alternatives a = GRAM_ALTERNATIVES;
  for (size_t i = 0; i < n && well && !c->g->over; i++) {
    const json_t *value = list ? json_array_get(list, i) : only;
    bool fits = (!types || types & kinds_of(value)) && (!list || !only || json_equal(value, only));
    if (!fits)
      continue;
    if (has_vast(value))
      return schema_wrong(at, list ? "enum" : "const", "a number beyond 64 bits: not enforced here", err);
    gram_branch(c->g, &a, true);
    well = schema_emit_literal(c, value);
    gram_return(c->g);
  }
  gram_branch(c->g, &a, false);
  schema_emit_never(c);
  gram_join(c->g, &a);
  return well ? TERN_OK : err_nomem(err, "schema");
}

/* ---- lists ---- */

typedef struct list_plan {
  const json_t *prefix;   /* NULL: none */
  json_int_t least, most; /* most < 0: any number */
  uint32_t item;          /* the rule of those behind the prefix */
} list_plan;

static tern_status plan_list(schema_compiler *c, const schema_item *at, list_plan *p, tern_error *err)
{
  const json_t *items = json_object_get(at->schema, "items");
  p->prefix = json_object_get(at->schema, "prefixItems");
  if (p->prefix && !json_is_array(p->prefix))
    return schema_wrong(at, "prefixItems", "must be a list of schemas", err);
  if (json_is_array(items))
    return schema_wrong(at, "items", "a list: call it prefixItems", err);
  TRY(schema_read_count(at, "minItems", 0, &p->least, err));
  TRY(schema_read_count(at, "maxItems", -1, &p->most, err));
  p->item = items ? member_rule(c, at, items, "items", NULL) : c->rules[RULE_VALUE];
  return TERN_OK;
}

static uint32_t item_rule(schema_compiler *c, const schema_item *at, const list_plan *p, size_t i)
{
  char number[24];
  if (i >= json_array_size(p->prefix))
    return p->item;
  snprintf(number, sizeof number, "%zu", i);
  return member_rule(c, at, json_array_get(p->prefix, i), "prefixItems", number);
}

/* A rule for each number of items that stand already, as long as numbers tell something. */
static tern_status emit_list(schema_compiler *c, const schema_item *at, tern_error *err)
{
  grammar *g = c->g;
  list_plan p = {0};
  TRY(plan_list(c, at, &p, err));
  size_t prefix = json_array_size(p.prefix), last = prefix > (size_t)p.least ? prefix : (size_t)p.least;
  if (p.most >= 0)
    last = (size_t)p.most;
  last = last ? last : 1;
  gram_bytes(g, '[', '[');
  schema_call(c, RULE_GAP);
  uint32_t next = 0;
  for (size_t k = 0; k <= last && !g->over; k++) {
    bool may_end = k >= (size_t)p.least, may_go_on = p.most < 0 || k < (size_t)p.most;
    uint32_t here = next;
    gram_alternatives a = GRAM_ALTERNATIVES;
    if (k)
      gram_begin(g, here);
    gram_branch(g, &a, true);
    if (may_end) {
      if (k)
        schema_call(c, RULE_GAP);
      gram_bytes(g, ']', ']');
      gram_return(g);
    } else {
      schema_emit_never(c);
    }
    gram_branch(g, &a, false);
    if (may_go_on) {
      if (k) {
        gram_bytes(g, ',', ',');
        schema_call(c, RULE_GAP);
      }
      gram_call(g, item_rule(c, at, &p, k));
      next = k < last ? gram_rule(g) : here;
      schema_leave(c, next);
    } else {
      schema_emit_never(c);
    }
    gram_join(g, &a);
    if (!may_go_on)
      break;
  }
  return TERN_OK;
}

/* ---- objects ---- */

typedef struct object_plan {
  const json_t *properties; /* NULL: none */
  const json_t *required;   /* NULL: none */
  const json_t *others;     /* the schema of additional members; NULL: there are none, or any */
  bool any;
  const char **names; /* [n]: of properties, then of what is required beside them */
  size_t n;
} object_plan;

static bool is_required(const object_plan *p, const char *name)
{
  for (size_t i = 0; i < json_array_size(p->required); i++)
    if (!strcmp(json_string_value(json_array_get(p->required, i)), name))
      return true;
  return false;
}

static tern_status plan_object(schema_compiler *c, const schema_item *at, object_plan *p, tern_error *err)
{
  const char *key;
  json_t *value;
  const json_t *others = json_object_get(at->schema, "additionalProperties");
  p->properties = json_object_get(at->schema, "properties");
  p->required = json_object_get(at->schema, "required");
  if (p->properties && !json_is_object(p->properties))
    return schema_wrong(at, "properties", "must be an object", err);
  if (p->required && !json_is_array(p->required))
    return schema_wrong(at, "required", "must be a list of names", err);
  if (others && !json_is_object(others) && !json_is_boolean(others))
    return schema_wrong(at, "additionalProperties", "must be a schema, true or false", err);
  if (json_object_size(p->properties) + json_array_size(p->required) > GRAM_MOST_RULES)
    return err_set(err, TERN_E_LIMIT, "%s: more than %d members", at->path, GRAM_MOST_RULES);
  p->any = others ? json_is_true(others) : !p->properties;
  p->others = json_is_object(others) ? others : NULL;
  p->names =
      arena_alloc(&c->memory, (json_object_size(p->properties) + json_array_size(p->required) + 1) * sizeof *p->names);
  if (!p->names)
    return err_nomem(err, "schema");
  json_object_foreach((json_t *)(uintptr_t)p->properties, key, value) p->names[p->n++] = key;
  for (size_t i = 0; i < json_array_size(p->required); i++) {
    const char *name = json_string_value(json_array_get(p->required, i));
    bool known = json_object_get(p->properties, name ? name : "") != NULL;
    if (!name)
      return schema_wrong(at, "required", "must be a list of names", err);
    if (!known && json_is_false(others))
      return err_set(err, TERN_E_USAGE, "%s.required: \"%.60s\" is none of the properties", at->path, name);
    for (size_t k = 0; k < p->n && !known; k++)
      known = !strcmp(p->names[k], name);
    if (!known)
      p->names[p->n++] = name;
  }
  return TERN_OK;
}

void schema_emit_colon(schema_compiler *c)
{
  gram_bytes(c->g, ':', ':');
  uint32_t blank = gram_split(c->g);
  gram_bytes(c->g, ' ', ' ');
  gram_land(c->g, blank);
}

/* What a member's value is; SCHEMA_RULES' RULE_VALUE where all is allowed. */
static uint32_t value_rule(schema_compiler *c, const schema_item *at, const object_plan *p, const char *name)
{
  const json_t *own = name ? json_object_get(p->properties, name) : NULL;
  if (own)
    return member_rule(c, at, own, "properties", name);
  return p->others ? member_rule(c, at, p->others, "additionalProperties", NULL) : c->rules[RULE_VALUE];
}

/* The rules of the members: pairs[i] is "name": value. */
static tern_status emit_pairs(schema_compiler *c, const schema_item *at, const object_plan *p, const uint32_t *pairs,
                              tern_error *err)
{
  for (size_t i = 0; i < p->n; i++) {
    json_t *key = json_string(p->names[i]);
    gram_begin(c->g, pairs[i]);
    bool well = key && schema_emit_literal(c, key);
    json_decref(key);
    if (!well)
      return err_nomem(err, "schema");
    schema_emit_colon(c);
    schema_leave(c, value_rule(c, at, p, p->names[i]));
  }
  if (!p->any && !p->others)
    return TERN_OK;
  uint32_t key = gram_rule(c->g);
  gram_begin(c->g, pairs[p->n]);
  gram_call(c->g, key);
  schema_emit_colon(c);
  schema_leave(c, value_rule(c, at, p, NULL));
  gram_begin(c->g, key);
  return schema_emit_other_key(c, p->names, p->n, at->path, err);
}

/* From the i-th member on: `begun`: one stands already. There is a rule for each such place. */
static void emit_place(schema_compiler *c, const object_plan *p, const uint32_t *pairs, uint32_t *const places[2],
                       const bool *required, size_t i, bool begun)
{
  grammar *g = c->g;
  bool last = i == p->n, others = p->any || p->others;
  gram_alternatives a = GRAM_ALTERNATIVES;
  gram_begin(g, places[begun][i]);
  if (!last || others) {
    gram_branch(g, &a, true);
    if (begun) {
      gram_bytes(g, ',', ',');
      schema_call(c, RULE_GAP);
    }
    gram_call(g, pairs[i]);
    schema_leave(c, places[1][last ? i : i + 1]);
  }
  gram_branch(g, &a, false);
  if (!last && required[i]) {
    schema_emit_never(c);
  } else if (!last) {
    schema_leave(c, places[begun][i + 1]);
  } else {
    if (begun)
      schema_call(c, RULE_GAP);
    gram_bytes(g, '}', '}');
    gram_return(g);
  }
  gram_join(g, &a);
}

static tern_status emit_object(schema_compiler *c, const schema_item *at, tern_error *err)
{
  grammar *g = c->g;
  object_plan p = {0};
  TRY(plan_object(c, at, &p, err));
  uint32_t *pairs = arena_zalloc(&c->memory, (p.n + 1) * sizeof *pairs);
  uint32_t *places[2] = {arena_zalloc(&c->memory, (p.n + 1) * sizeof **places),
                         arena_zalloc(&c->memory, (p.n + 1) * sizeof **places)};
  bool *required = arena_zalloc(&c->memory, (p.n + 1) * sizeof *required);
  if (!pairs || !places[0] || !places[1] || !required)
    return err_nomem(err, "schema");
  for (size_t i = 0; i <= p.n; i++) {
    places[0][i] = gram_rule(g);
    places[1][i] = gram_rule(g);
    pairs[i] = gram_rule(g);
    required[i] = i < p.n && is_required(&p, p.names[i]);
  }
  gram_bytes(g, '{', '{');
  schema_call(c, RULE_GAP);
  schema_leave(c, places[0][0]);
  /* The names are put in another order for other keys, so last. */
  for (size_t i = 0; i <= p.n && !g->over && !g->failed; i++)
    for (int begun = 0; begun < 2; begun++)
      if (begun || !i || !required[i - 1])
        emit_place(c, &p, pairs, places, required, i, begun);
  return emit_pairs(c, at, &p, pairs, err);
}

/* ---- any schema ---- */

static tern_status emit_kind(schema_compiler *c, const schema_item *at, kind one, unsigned keys, tern_error *err)
{
  switch (one) {
  case KIND_NULL:
    gram_text(c->g, "null", 4);
    gram_return(c->g);
    return TERN_OK;
  case KIND_BOOLEAN: {
    uint32_t other = gram_split(c->g);
    gram_text(c->g, "true", 4);
    gram_return(c->g);
    gram_land(c->g, other);
    gram_text(c->g, "false", 5);
    gram_return(c->g);
    return TERN_OK;
  }
  case KIND_INTEGER:
    return schema_integer(c, at, keys & ABOUT_NUMBERS, err);
  case KIND_NUMBER:
    return schema_number(c, at, err);
  case KIND_STRING:
    return schema_string(c, at, err);
  case KIND_ARRAY:
    return emit_list(c, at, err);
  case KIND_OBJECT:
    return emit_object(c, at, err);
  }
  return TERN_OK;
}

static tern_status emit_types(schema_compiler *c, const schema_item *at, unsigned types, unsigned keys, tern_error *err)
{
  gram_alternatives a = GRAM_ALTERNATIVES;
  if (!types) {
    schema_leave(c, c->rules[RULE_VALUE]);
    return TERN_OK;
  }
  if (types & KIND_NUMBER)
    types &= ~(unsigned)KIND_INTEGER;
  for (size_t i = 0; i < N_KINDS; i++) {
    if (!(types & kinds[i].is))
      continue;
    gram_branch(c->g, &a, (types & ~(unsigned)(2 * kinds[i].is - 1)) != 0);
    TRY(emit_kind(c, at, kinds[i].is, keys, err));
  }
  gram_join(c->g, &a);
  return TERN_OK;
}

/* Which other keywords may stand beside one of the kind. */
static tern_status check_alone(const schema_item *at, const char *key, unsigned keys, unsigned beside, tern_error *err)
{
  if (!(keys & ~beside))
    return TERN_OK;
  return schema_wrong(at, key, "with other keywords that restrict the value beside it: not enforced here", err);
}

static tern_status emit_schema(schema_compiler *c, const schema_item *at, tern_error *err)
{
  unsigned keys = 0, types = 0;
  if (json_is_boolean(at->schema)) {
    if (json_is_true(at->schema))
      schema_leave(c, c->rules[RULE_VALUE]);
    else
      schema_emit_never(c);
    return TERN_OK;
  }
  if (!json_is_object(at->schema))
    return err_set(err, TERN_E_USAGE, "%s: a schema is an object, true or false", at->path);
  TRY(check_keywords(at, &keys, err));
  TRY(read_types(at, keys, &types, err));
  if (keys & ABOUT_NULL && !json_is_boolean(json_object_get(at->schema, "nullable")))
    return schema_wrong(at, "nullable", "must be true or false", err);
  if (json_is_true(json_object_get(at->schema, "nullable"))) {
    uint32_t other = gram_split(c->g);
    gram_text(c->g, "null", 4);
    gram_return(c->g);
    gram_land(c->g, other);
  }
  if (keys & ABOUT_REF) {
    TRY(check_alone(at, "$ref", keys, ABOUT_REF | ABOUT_NULL, err));
    return emit_ref(c, at, err);
  }
  if (keys & ABOUT_ANY_OF) {
    const char *key = json_object_get(at->schema, "anyOf") ? "anyOf" : "oneOf";
    bool both = json_object_get(at->schema, "anyOf") && json_object_get(at->schema, "oneOf");
    TRY(check_alone(at, key, both ? ~0u : keys, ABOUT_ANY_OF | ABOUT_NULL, err));
    return emit_any_of(c, at, key, err);
  }
  if (keys & ABOUT_ALL_OF) {
    TRY(check_alone(at, "allOf", keys, ABOUT_ALL_OF | ABOUT_NULL, err));
    return emit_all_of(c, at, err);
  }
  if (keys & ABOUT_VALUES) {
    const char *key = json_object_get(at->schema, "enum") ? "enum" : "const";
    TRY(check_alone(at, key, keys, ABOUT_VALUES | ABOUT_NULL | ABOUT_TYPE, err));
    return emit_values(c, at, types, err);
  }
  return emit_types(c, at, types, keys, err);
}

/* ---- all of them ---- */

tern_status schema_emit_items(schema_compiler *c, tern_error *err)
{
  for (; c->done < c->n && !c->g->over && !c->g->failed; c->done++) {
    schema_item at = c->items[c->done]; /* the list may move */
    gram_begin(c->g, at.rule);
    TRY(emit_schema(c, &at, err));
  }
  return TERN_OK;
}
