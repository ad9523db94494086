/* tok_regex.c - see tok_regex.h. Syntax and options are those of the reference: Oniguruma's own syntax, UTF-8, no
 * options. A pattern that backtracks without end is stopped by a limit on retries and reported, never waited for. */
#include "text/tok_regex.h"

#include <oniguruma.h>
#include <pthread.h>
#include <string.h>

#include "base/mem.h"

enum { RETRIES = 10 * 1000 * 1000 }; /* of one search */

struct tok_pattern {
  regex_t *regex; /* NULL: a plain string */
  char *text;     /* the source, or the string */
  size_t n;
  tok_pattern *next;
};

/* Oniguruma has tables of its own that must be set up once per process, before threads meet in it. */
static pthread_once_t onig_once = PTHREAD_ONCE_INIT;

static void start_onig(void)
{
  OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
  onig_initialize(encodings, 1);
}

static tok_pattern *new_pattern(const char *text, size_t n)
{
  tok_pattern *p = mem_zalloc(sizeof *p);
  if (!p)
    return NULL;
  p->text = mem_strndup(text, n);
  p->n = n;
  if (!p->text) {
    mem_free(p);
    return NULL;
  }
  return p;
}

tern_status pattern_regex(const char *where, const char *source, size_t n, tok_pattern **out, tern_error *err)
{
  pthread_once(&onig_once, start_onig);
  tok_pattern *p = new_pattern(source, n);
  if (!p)
    return err_nomem(err, "regular expression");
  buf whole = {0};
  buf_add(&whole, "", 0);
  if (!pattern_spell_out(source, n, &whole)) {
    buf_free(&whole);
    pattern_free(p);
    return err_nomem(err, "regular expression");
  }
  OnigErrorInfo info;
  const OnigUChar *expression = (const OnigUChar *)whole.data;
  int r = onig_new(&p->regex, expression, expression + whole.length, ONIG_OPTION_NONE, ONIG_ENCODING_UTF8,
                   ONIG_SYNTAX_DEFAULT, &info);
  if (r != ONIG_NORMAL) {
    OnigUChar text[ONIG_MAX_ERROR_MESSAGE_LEN] = {0};
    onig_error_code_to_str(text, r, &info);
    buf_free(&whole);
    p->regex = NULL;
    pattern_free(p);
    return r == ONIGERR_MEMORY ? err_nomem(err, "regular expression")
                               : err_set(err, TERN_E_FORMAT, "%s: bad regular expression '%.*s': %s", where,
                                         (int)(n < 200 ? n : 200), source, (char *)text);
  }
  buf_free(&whole);
  *out = p;
  return TERN_OK;
}

tern_status pattern_literal(const char *text, size_t n, tok_pattern **out, tern_error *err)
{
  if (n == 0) /* matches between any two characters */
    return pattern_regex("pattern", "", 0, out, err);
  tok_pattern *p = new_pattern(text, n);
  if (!p)
    return err_nomem(err, "pattern");
  *out = p;
  return TERN_OK;
}

void pattern_free(tok_pattern *p)
{
  while (p) {
    tok_pattern *next = p->next;
    if (p->regex)
      onig_free(p->regex);
    mem_free(p->text);
    mem_free(p);
    p = next;
  }
}

bool pattern_matches_nothing(const tok_pattern *p)
{
  static const OnigUChar nothing[1] = "";
  return p->regex && onig_search(p->regex, nothing, nothing, nothing, nothing, NULL, ONIG_OPTION_NONE) >= 0;
}

const char *pattern_text(const tok_pattern *p, size_t *n)
{
  *n = p->n;
  return p->regex ? NULL : p->text;
}

void pattern_link(tok_pattern **head, tok_pattern *p)
{
  p->next = *head;
  *head = p;
}

void pattern_start(pattern_cursor *c, const tok_pattern *p, const char *s, size_t n)
{
  c->pattern = p;
  c->s = s;
  c->n = n;
  c->at = 0;
  c->last_end = SIZE_MAX;
}

void pattern_finish(pattern_cursor *c)
{
  if (c->region)
    onig_region_free(c->region, 1);
  if (c->param)
    onig_free_match_param(c->param);
  c->region = c->param = NULL;
}

/* Bytes of the character at p, which begins one. */
static size_t step(const char *s, size_t n, size_t at)
{
  size_t i = at + 1;
  while (i < n && ((uint8_t)s[i] & 0xc0) == 0x80)
    i++;
  return i - at;
}

static tern_status search(pattern_cursor *c, bool *found, size_t *begin, size_t *end, tern_error *err)
{
  const tok_pattern *p = c->pattern;
  if ((!c->region && !(c->region = onig_region_new())) || (!c->param && !(c->param = onig_new_match_param())))
    return err_nomem(err, "regular expression");
  OnigRegion *region = c->region;
  const OnigUChar *s = (const OnigUChar *)c->s;
  onig_set_retry_limit_in_search_of_match_param(c->param, RETRIES);
  int r = onig_search_with_param(p->regex, s, s + c->n, s + c->at, s + c->n, region, ONIG_OPTION_NONE, c->param);
  *found = r >= 0;
  if (r >= 0) {
    *begin = (size_t)region->beg[0];
    *end = (size_t)region->end[0];
    return TERN_OK;
  }
  if (r == ONIG_MISMATCH)
    return TERN_OK;
  OnigUChar text[ONIG_MAX_ERROR_MESSAGE_LEN] = {0};
  onig_error_code_to_str(text, r);
  return err_set(err, r == ONIGERR_MEMORY ? TERN_E_NOMEM : TERN_E_LIMIT,
                 "tokenizer: regular expression '%.200s' gave up on this text: %s", p->text, (char *)text);
}

static tern_status next_regex(pattern_cursor *c, bool *found, size_t *begin, size_t *end, tern_error *err)
{
  *found = false;
  while (c->at <= c->n) {
    TRY(search(c, found, begin, end, err));
    if (!*found)
      break;
    if (*begin == *end && c->last_end == *end) { /* an empty match that touches the last one */
      c->at += c->at < c->n ? step(c->s, c->n, c->at) : 1;
      *found = false;
      continue;
    }
    c->at = c->last_end = *end;
    return TERN_OK;
  }
  c->at = c->n + 1;
  return TERN_OK;
}

tern_status pattern_next(pattern_cursor *c, bool *found, size_t *begin, size_t *end, tern_error *err)
{
  const tok_pattern *p = c->pattern;
  if (p->regex)
    return next_regex(c, found, begin, end, err);
  const char *hit = c->at < c->n ? memmem(c->s + c->at, c->n - c->at, p->text, p->n) : NULL;
  *found = hit != NULL;
  if (hit) {
    *begin = (size_t)(hit - c->s);
    *end = c->at = *begin + p->n;
  }
  return TERN_OK;
}
