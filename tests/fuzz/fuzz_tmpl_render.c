/* fuzz_tmpl_render.c - any bytes as a template's source, rendered over a small conversation with few steps allowed. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/tmpl_json.h"
#include "text/tmpl_run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { STEPS = 100000 };

static const char vars[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", \"content\": \"H\u00e9 "
    "\\\"you\\\"\"}, {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"function\": {\"name\": \"f\", "
    "\"arguments\": {\"a\": 1, \"b\": [true, null, 1.5]}}}]}], \"tools\": null, \"n\": 7, \"f\": -2.5, \"s\": \"a,b "
    "\u03a3\", "
    "\"l\": [3, 1, 2], \"d\": {\"b\": 1, \"a\": \"x\"}, \"big\": 12345678901234567890, \"nothing\": null}";

static void render(const tmpl *t)
{
  tern_error err = {0};
  tmpl_rt r;
  tv values;
  char *out;
  size_t n;
  rt_init(&r, &err);
  r.clock = (tmpl_clock){.year = 2026, .month = 1, .day = 15};
  if (!tj_read(&r, vars, sizeof vars - 1, &values))
    abort();
  r.steps = TMPL_MAX_STEPS - STEPS;
  if (tmpl_render_values(&r, t, values.d, &out, &n) == TERN_OK)
    mem_free(out);
  else if (!err.text[0])
    abort();
  rt_free(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  tmpl *t;
  if (tmpl_compile((const char *)data, size, &t, NULL) != TERN_OK)
    return 0;
  render(t);
  tmpl_free(t);
  return 0;
}
