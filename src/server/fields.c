/* fields.c - see fields.h. */
#include "server/fields.h"

#include <stdio.h>
#include <string.h>

#include "format/json_util.h"

static const struct {
  unsigned kind;
  const char *words, *schema;
} kinds[] = {
    {FIELD_IS_BOOL, "true or false", "boolean"}, {FIELD_IS_INT, "a whole number", "integer"},
    {FIELD_IS_REAL, "a number", "number"},       {FIELD_IS_STRING, "a string", "string"},
    {FIELD_IS_LIST, "a list", "array"},          {FIELD_IS_OBJECT, "an object", "object"},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* ---- checking ---- */

static unsigned kinds_of(const json_t *value)
{
  switch (json_typeof(value)) {
  case JSON_TRUE:
  case JSON_FALSE:
    return FIELD_IS_BOOL;
  case JSON_INTEGER:
    return FIELD_IS_INT | FIELD_IS_REAL;
  case JSON_REAL:
    return FIELD_IS_REAL;
  case JSON_STRING:
    return FIELD_IS_STRING;
  case JSON_ARRAY:
    return FIELD_IS_LIST;
  case JSON_OBJECT:
    return FIELD_IS_OBJECT;
  default:
    return 0;
  }
}

static const srv_field *find_row(const srv_fields *f, const char *name)
{
  for (size_t i = 0; i < f->n; i++)
    if (!strcmp(f->rows[i].name, name))
      return &f->rows[i];
  return NULL;
}

static bool wrong_kind(const srv_fields *f, const srv_field *row, const json_t *value, oai_fault *fault)
{
  char wanted[160] = "", is[100];
  size_t used = 0;
  for (size_t i = 0; i < N_KINDS; i++)
    if (row->kinds & kinds[i].kind)
      used += (size_t)snprintf(wanted + used, sizeof wanted - used, "%s%s", used ? " or " : "", kinds[i].words);
  return oai_wrong_in(fault, f->within, row->name, "must be %s, not %s", wanted, jsonu_describe(value, is, sizeof is));
}

/* Whether the value is one of the row's JSON values. */
static bool is_neutral(const srv_field *row, const json_t *value)
{
  size_t length = strlen(row->only), used = 0;
  bool same = false;
  while (used < length && !same) {
    json_error_t end;
    json_t *one = json_loadb(row->only + used, length - used, JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, &end);
    if (!one)
      break;
    same = json_equal(one, (json_t *)value) ||
           (json_is_number(one) && json_is_number(value) && json_number_value(one) == json_number_value(value));
    json_decref(one);
    used += (size_t)end.position;
  }
  return same;
}

static bool check_row(const srv_fields *f, const srv_field *row, const json_t *value, oai_fault *fault)
{
  if (!(row->kinds & kinds_of(value)))
    return wrong_kind(f, row, value, fault);
  double x = json_is_number(value) ? json_number_value(value) : 0;
  if (json_is_number(value) && row->lo < row->hi && !(x >= row->lo && x <= row->hi))
    return oai_wrong_in(fault, f->within, row->name, "%.15g is not from %.15g to %.15g", x, row->lo, row->hi);
  if (!row->only || is_neutral(row, value))
    return true;
  fault->code = "unsupported_parameter";
  bool says_why = row->note && strncmp(row->note, "let be", strlen("let be")) != 0;
  return oai_wrong_in(fault, f->within, row->name, "only %s is supported here%s%s", row->only, says_why ? ": " : "",
                      says_why ? row->note : "");
}

bool fields_check(const srv_fields *f, json_t *body, oai_fault *fault)
{
  const char *name;
  json_t *value;
  void *next;
  json_object_foreach_safe(body, next, name, value)
  {
    const srv_field *row = find_row(f, name);
    if (!row) {
      fault->code = "unsupported_parameter";
      return oai_wrong_in(fault, f->within, name, "not supported here, and not ignored: it could change the answer");
    }
    if (json_is_null(value))
      json_object_del(body, name);
    else if (!check_row(f, row, value, fault))
      return false;
  }
  for (size_t i = 0; i < f->n; i++)
    if (f->rows[i].required && !json_object_get(body, f->rows[i].name))
      return oai_wrong_in(fault, f->within, f->rows[i].name, "is missing");
  return true;
}

bool fields_move(const srv_fields *f, const json_t *body, json_t *to, oai_fault *fault)
{
  for (size_t i = 0; i < f->n; i++) {
    json_t *value = json_object_get(body, f->rows[i].name);
    if (value && f->rows[i].to && json_object_set(to, f->rows[i].to, value)) {
      err_nomem(&fault->err, "request");
      return false;
    }
  }
  return true;
}

bool fields_rename(const srv_fields *f, oai_fault *fault)
{
  for (size_t i = 0; i < f->n; i++) {
    const srv_field *row = &f->rows[i];
    char name[100];
    if (!row->to || !fault->param || strcmp(row->to, fault->param) != 0)
      continue;
    snprintf(name, sizeof name, "%s%s", f->within, row->name);
    oai_rename(fault, row->to, name);
    fault->param = row->name; /* as where the table is checked */
    return true;
  }
  return false;
}

/* ---- telling ---- */

static json_t *values_json(const char *text)
{
  json_t *list = json_array();
  for (size_t length = strlen(text), used = 0; used < length;) {
    json_error_t end;
    json_t *one = json_loadb(text + used, length - used, JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, &end);
    if (!one)
      break;
    json_array_append_new(list, one);
    used += (size_t)end.position;
  }
  return list;
}

json_t *fields_row_schema(const srv_field *row)
{
  json_t *out = json_object(), *types = json_array();
  for (size_t i = 0; i < N_KINDS; i++)
    if ((row->kinds & kinds[i].kind) && !(kinds[i].kind == FIELD_IS_INT && (row->kinds & FIELD_IS_REAL)))
      json_array_append_new(types, json_string(kinds[i].schema));
  json_array_append_new(types, json_string("null"));
  json_object_set_new(out, "type", types);
  if (row->lo < row->hi) {
    bool whole = row->kinds & FIELD_IS_INT && !(row->kinds & FIELD_IS_REAL);
    json_object_set_new(out, "minimum", whole ? json_integer((json_int_t)row->lo) : json_real(row->lo));
    json_object_set_new(out, "maximum", whole ? json_integer((json_int_t)row->hi) : json_real(row->hi));
  }
  if (row->only) {
    json_t *values = values_json(row->only);
    json_array_append_new(values, json_null());
    json_object_set_new(out, "enum", values);
  }
  if (row->note)
    json_object_set_new(out, "description", json_string(row->note));
  return out;
}

json_t *fields_schema(const srv_fields *f)
{
  json_t *properties = json_object(), *required = json_array();
  for (size_t i = 0; i < f->n; i++) {
    json_object_set_new(properties, f->rows[i].name, fields_row_schema(&f->rows[i]));
    if (f->rows[i].required)
      json_array_append_new(required, json_string(f->rows[i].name));
  }
  return json_pack("{ss so so sb}", "type", "object", "properties", properties, "required", required,
                   "additionalProperties", 0);
}
