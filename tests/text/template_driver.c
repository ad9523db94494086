/* template_driver.c - renders cases for the differential tests: one JSON object a line on stdin, one a line on stdout.
 *
 *   {"source": TEXT, "vars": JSON, "now": TIME}      a bare template
 *   {"source": TEXT, "request": JSON}                a chat request with this template
 *   {"model": DIR, "request": JSON}                  a chat request with a model's own
 *
 * JSON is the text of an object, as a string: it reaches the library as it is.
 *
 * Answers {"text": ...} or {"status": NAME, "error": LINE}. With an argument N, every rendering is done N times and the
 * mean time in microseconds is added. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "text/chat.h"

static double seconds(void)
{
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static tern_status open_chat(const json_t *c, chat **out, tern_error *err)
{
  const char *model = json_string_value(json_object_get(c, "model"));
  if (model)
    return chat_open(model, out, err);
  const json_t *source = json_object_get(c, "source");
  return chat_from_template(json_string_value(source), json_string_length(source), out, err);
}

static tern_status run_chat(const json_t *c, int times, char **text, size_t *n, double *each, tern_error *err)
{
  chat *ch;
  const char *request = json_string_value(json_object_get(c, "request"));
  size_t length = json_string_length(json_object_get(c, "request"));
  tern_status status = open_chat(c, &ch, err);
  if (status == TERN_OK) {
    double start = seconds();
    status = chat_render(ch, request, length, text, n, err);
    for (int i = 1; i < times && status == TERN_OK; i++) {
      mem_free(*text);
      status = chat_render(ch, request, length, text, n, err);
    }
    *each = (seconds() - start) / times;
    chat_close(ch);
  }
  return status;
}

static tern_status run_template(const json_t *c, char **text, size_t *n, tern_error *err)
{
  tmpl *t;
  tmpl_clock clock;
  const json_t *source = json_object_get(c, "source"), *now = json_object_get(c, "now");
  if (now)
    TRY(tmpl_clock_parse(json_string_value(now), json_string_length(now), &clock, err));
  TRY(tmpl_compile(json_string_value(source), json_string_length(source), &t, err));
  const json_t *vars = json_object_get(c, "vars");
  tern_status status =
      tmpl_render(t, json_string_value(vars), json_string_length(vars), now ? &clock : NULL, text, n, err);
  tmpl_free(t);
  return status;
}

int main(int argc, char **argv)
{
  int times = argc > 1 ? atoi(argv[1]) : 1;
  char *line = NULL;
  size_t room = 0;
  ssize_t got;
  while ((got = getline(&line, &room, stdin)) > 0) {
    json_error_t why;
    json_t *c = json_loadb(line, (size_t)got, JSON_ALLOW_NUL, &why), *answer = json_object();
    if (!c) {
      fprintf(stderr, "template_driver: %s\n", why.text);
      return 1;
    }
    tern_error err = {0};
    char *text = NULL;
    size_t n = 0;
    double each = 0;
    tern_status status =
        json_object_get(c, "request") ? run_chat(c, times, &text, &n, &each, &err) : run_template(c, &text, &n, &err);
    if (status == TERN_OK) {
      json_object_set_new(answer, "text", json_stringn(text, n));
    } else {
      json_object_set_new(answer, "status", json_string(tern_status_name(status)));
      json_object_set_new(answer, "error", json_string(err.text));
    }
    if (times > 1)
      json_object_set_new(answer, "microseconds", json_real(each * 1e6));
    char *out = json_dumps(answer, JSON_COMPACT | JSON_ENSURE_ASCII);
    puts(out ? out : "{}");
    fflush(stdout);
    free(out);
    mem_free(text);
    json_decref(answer);
    json_decref(c);
  }
  free(line);
  return 0;
}
