/* openai_format.c - response_format: an answer that is JSON, of any form or under a schema. See openai.h.
 *
 * What the schema says is read by openai_grammar.c. It is enforced whether `strict` says so or not.
 */
#include <string.h>

#include "server/openai.h"

static const char field[] = "response_format";

static bool check_members(const json_t *object, const char *const *known, const char *within, oai_fault *fault)
{
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)object, key, value)
  {
    size_t i = 0;
    while (known[i] && strcmp(known[i], key) != 0)
      i++;
    if (!known[i])
      return oai_wrong(fault, field, "%s\"%.60s\" is not known here", within, key);
  }
  return true;
}

static bool read_schema(const json_t *value, oai_request *r, oai_fault *fault)
{
  static const char *const known[] = {"name", "description", "schema", "strict", NULL};
  const json_t *schema = json_object_get(value, "schema"), *strict = json_object_get(value, "strict");
  if (!json_is_object(value))
    return oai_wrong(fault, field, "json_schema must be an object, with a schema");
  if (!check_members(value, known, "json_schema: ", fault))
    return false;
  if (!json_is_object(schema))
    return oai_wrong(fault, field, "json_schema.schema must be an object");
  if (strict && !json_is_boolean(strict) && !json_is_null(strict))
    return oai_wrong(fault, field, "json_schema.strict must be true or false");
  r->schema = schema;
  return true;
}

bool oai_read_format(const server *s, const json_t *value, oai_request *r, oai_fault *fault)
{
  static const char *const plain[] = {"type", NULL}, *const with_schema[] = {"type", "json_schema", NULL};
  const char *type = json_string_value(json_object_get(value, "type"));
  (void)s;
  bool schema = type && !strcmp(type, "json_schema");
  if (!json_is_object(value) || !type)
    return oai_wrong(fault, field, "must be an object with a type");
  if (!schema && strcmp(type, "text") != 0 && strcmp(type, "json_object") != 0)
    return oai_wrong(fault, field, "type \"%.60s\": text, json_object and json_schema are supported", type);
  if (!check_members(value, schema ? with_schema : plain, "", fault))
    return false;
  r->formed = strcmp(type, "text") != 0;
  return !schema || read_schema(json_object_get(value, "json_schema"), r, fault);
}
