/* tmpl.c - compiling and rendering from the outside: checks, the C locale, and turning the context's status into the
 * public one. */
#include "text/tmpl.h"

#include <locale.h>
#include <string.h>

#include "base/hash.h"
#include "base/utf8.h"
#include "text/tmpl_exec.h"
#include "text/tmpl_json.h"
#include "text/tmpl_run.h"

bool tmpl_locale_enter(tmpl_locale *l)
{
  l->c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  if (!l->c)
    return false;
  l->old = uselocale(l->c);
  return true;
}

void tmpl_locale_leave(tmpl_locale *l)
{
  uselocale(l->old);
  freelocale(l->c);
}

/* Constant strings are shared by threads: nothing about them may be computed later. */
static bool hash_tokens(tmpl_rt *r, tokens *list)
{
  for (size_t i = 0; i < list->n; i++) {
    tv *v = &list->v[i].value;
    if (v->type != TV_STR)
      continue;
    tstr *copy = rt_alloc(r, sizeof *copy);
    OK(copy);
    *copy = *v->s;
    copy->hash = ts_hash(copy);
    copy->room = NULL;
    v->s = copy;
  }
  return true;
}

static bool compile(tmpl *t, const char *source, size_t n)
{
  tokens list;
  tmpl_rt *r = &t->mem;
  size_t fault;
  if (n > TMPL_MAX_SOURCE)
    return rt_fail_status(r, TERN_E_LIMIT, "a source of more than %d MiB", TMPL_MAX_SOURCE >> 20);
  if (!utf8_valid(source, n, &fault))
    return rt_fail(r, "not valid UTF-8 at byte %zu", fault);
  return tmpl_lex(r, source, n, &list) && hash_tokens(r, &list) && tmpl_parse(t, &list) && tmpl_bind(t) &&
         r->status == TERN_OK;
}

tern_status tmpl_compile(const char *source, size_t n, tmpl **out, tern_error *err)
{
  tmpl *t = mem_zalloc(sizeof *t);
  if (!t)
    return err_nomem(err, "a template");
  rt_init(&t->mem, err);
  tmpl_locale locale;
  if (!tmpl_locale_enter(&locale)) {
    tmpl_free(t);
    return err_nomem(err, "the C locale");
  }
  bool ok = compile(t, source, n);
  tmpl_locale_leave(&locale);
  tern_status status = t->mem.status;
  t->mem.err = NULL;
  if (!ok) {
    tmpl_free(t);
    return status;
  }
  *out = t;
  return TERN_OK;
}

void tmpl_free(tmpl *t)
{
  if (!t)
    return;
  rt_free(&t->mem);
  mem_free(t);
}

tern_status tmpl_render_values(tmpl_rt *r, const tmpl *t, const tdict *vars, char **out, size_t *length)
{
  r->vars = vars;
  tbuf text = {.r = r};
  if (!tmpl_run(r, t, &text))
    return r->status;
  char *copy = mem_strndup(text.n ? text.s : "", text.n);
  if (!copy)
    return err_nomem(r->err, "a rendered template");
  *out = copy;
  if (length)
    *length = text.n;
  return TERN_OK;
}

static bool read_vars(tmpl_rt *r, const char *text, size_t n, tv *out)
{
  OK(tj_read(r, text, n, out));
  return out->type == TV_DICT || rt_fail_status(r, TERN_E_FORMAT, "the variables are not a JSON object");
}

tern_status tmpl_render(const tmpl *t, const char *vars, size_t n, const tmpl_clock *clock, char **out, size_t *length,
                        tern_error *err)
{
  tmpl_locale locale;
  if (!tmpl_locale_enter(&locale))
    return err_nomem(err, "the C locale");
  tmpl_rt r;
  rt_init(&r, err);
  if (clock)
    r.clock = *clock;
  tv values;
  tern_status status = read_vars(&r, vars, n, &values) ? tmpl_render_values(&r, t, values.d, out, length) : r.status;
  rt_free(&r);
  tmpl_locale_leave(&locale);
  return status;
}
