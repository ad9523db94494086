/* library.c - see library.h. Looked up anew each time: models come and go, and so does memory. */
#include "cli/library.h"

#include "cli/env.h"
#include "cli/models.h"
#include "cli/out.h"
#include "cli/survey.h"

static json_t *entry(const cli_env *env, const model_entry *e)
{
  survey s;
  survey_entry(env, e, &s);
  json_t *row = survey_json(e->id, e->path, &s);
  if (!row)
    return NULL;
  json_object_del(row, "path");
  json_object_del(row, "error");
  json_object_del(row, "memory");
  if (json_object_set_new(row, "runs", json_boolean(s.runs)) ||
      json_object_set_new(row, "largest_context", json_integer(s.measured ? s.fit.largest : 0))) {
    json_decref(row);
    return NULL;
  }
  return row;
}

json_t *library_list(void *user)
{
  cli_env env;
  model_list list = {0};
  json_t *all = json_array();
  (void)user;
  if (env_read(&env, NULL) == TERN_OK) {
    if (models_find(&env, &list, NULL) == TERN_OK)
      for (size_t i = 0; i < list.n; i++)
        out_append(&all, entry(&env, &list.items[i]));
    models_free(&list);
    env_clear(&env);
  }
  return all;
}
