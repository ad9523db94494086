/* parts.c - see parts.h.
 *
 * The text that no part was made of yet is held: a marker may have begun in it. Each state says what it looks for; the
 * earliest that stands whole is taken, and what could be the beginning of one at the end stays. So a part depends on
 * the text alone, wherever it was cut.
 */
#include "text/parts_impl.h"

#include <string.h>

#include "base/mem.h"

enum {
  SLICE = 4096,   /* bytes that are looked through at once: a marker that stands nowhere is looked for in all of them */
  MOST_TRIES = 16 /* at reading a block in which a string seems open */
};

/* ---- reasoning ---- */

/* The first three are what the reference finds, in its order. */
static const parts_reasoning reasonings[] = {
    {"think", "<think>", "</think>", {"<think>", "</think>"}, false},
    {"longcat", "<longcat_think>", "</longcat_think>", {"<longcat_think>", "</longcat_think>"}, false},
    {"gemma4", "<|channel>thought", "<channel|>", {"<|channel>", "<channel|>"}, false},
    {"seed", "<seed:think>", "</seed:think>", {"<seed:think>", "</seed:think>"}, false},
    {"mistral", "[THINK]", "[/THINK]", {"[THINK]", "[/THINK]"}, false},
    {"cohere", "<|START_THINKING|>", "<|END_THINKING|>", {"<|START_THINKING|>", "<|END_THINKING|>"}, false},
    {"harmony", "<|channel|>analysis<|message|>", "<|end|>", {"<|channel|>", "<|message|>"}, true},
};
enum { REASONINGS = sizeof reasonings / sizeof *reasonings };

const parts_reasoning *parts_reasoning_at(size_t i)
{
  return i < REASONINGS ? &reasonings[i] : NULL;
}

const parts_reasoning *parts_reasoning_find(const char *name)
{
  for (size_t i = 0; i < REASONINGS; i++)
    if (!strcmp(reasonings[i].name, name))
      return &reasonings[i];
  return NULL;
}

const parts_reasoning *parts_reasoning_of(const tok *t)
{
  for (size_t i = 0; i < REASONINGS; i++) {
    const char *const *tokens = reasonings[i].tokens;
    if (tok_id(t, tokens[0], strlen(tokens[0])) >= 0 && tok_id(t, tokens[1], strlen(tokens[1])) >= 0)
      return &reasonings[i];
  }
  return NULL;
}

static bool is_blank(char c)
{
  return c == ' ' || (c >= '\t' && c <= '\r');
}

static size_t blanks(const char *s, size_t n)
{
  size_t i = 0;
  while (i < n && is_blank(s[i]))
    i++;
  return i;
}

static bool ends_at(const char *text, size_t end, const char *what)
{
  size_t n = strlen(what);
  return end >= n && memcmp(text + end - n, what, n) == 0;
}

bool parts_opened(const parts_reasoning *r, const char *prompt, size_t n, bool within)
{
  if (!within)
    while (n && is_blank(prompt[n - 1]))
      n--;
  for (; n; n--) {
    if (ends_at(prompt, n, r->start))
      return true;
    if (!within || ends_at(prompt, n, r->end))
      return false;
  }
  return false;
}

/* ---- parts ---- */

void parts_clear(answer_parts *p)
{
  for (size_t i = 0; i < p->n; i++) {
    answer_part *one = &p->at[i];
    buf_free(&one->text);
    mem_free(one->call.name);
    mem_free(one->call.id);
    mem_free(one->call.arguments);
  }
  p->n = 0;
}

void parts_free(answer_parts *p)
{
  parts_clear(p);
  mem_free(p->at);
  *p = (answer_parts){0};
}

answer_part *parts_new(answer_parts *p, part_kind kind)
{
  if (!mem_grow(&p->at, &p->capacity, p->n + 1, sizeof *p->at)) {
    p->failed = true;
    return NULL;
  }
  answer_part *one = &p->at[p->n++];
  *one = (answer_part){.kind = kind};
  return one;
}

void parts_add(answer_parts *p, part_kind kind, const char *text, size_t n)
{
  if (!n)
    return;
  answer_part *last = p->n && p->at[p->n - 1].kind == kind ? &p->at[p->n - 1] : parts_new(p, kind);
  if (!last)
    return;
  buf_add(&last->text, text, n);
  p->failed |= last->text.failed;
}

/* ---- the reader ---- */

parts_reader *parts_open(const parts_options *options)
{
  parts_reader *r = mem_zalloc(sizeof *r);
  if (!r)
    return NULL;
  r->options = *options;
  r->channels = (options->reasoning && options->reasoning->channels) || (options->calls && options->calls->channels);
  r->behind = r->channels;
  r->state = options->opened && options->reasoning ? IN_REASONING : IN_CONTENT;
  return r;
}

void parts_close(parts_reader *r)
{
  if (!r)
    return;
  buf_free(&r->held);
  calls_told_clear(&r->told);
  mem_free(r);
}

size_t parts_reasoning_bytes(const parts_reader *r)
{
  return r->reasoned;
}

/* ---- markers ---- */

const char *parts_at(const parts_reader *r)
{
  return r->held.data + r->from;
}

size_t parts_left(const parts_reader *r)
{
  return r->held.length - r->from;
}

const marker *parts_find(const parts_reader *r, const marker *all, size_t n, size_t start, size_t *where, size_t *keep)
{
  const marker *found = NULL;
  size_t length = parts_left(r);
  *keep = 0;
  for (size_t i = 0; i < n; i++) {
    size_t size = all[i].text ? strlen(all[i].text) : 0;
    const char *p = size && start < length ? memmem(parts_at(r) + start, length - start, all[i].text, size) : NULL;
    if (p && (!found || (size_t)(p - parts_at(r)) < *where)) {
      found = &all[i];
      *where = (size_t)(p - parts_at(r));
    }
    for (size_t k = size ? size - 1 : 0; k > *keep; k--)
      if (k <= length - start && memcmp(parts_at(r) + length - k, all[i].text, k) == 0)
        *keep = k;
  }
  return found;
}

/* The white space that what is held begins with: none of it is looked at again when more comes. */
static size_t held_blanks(parts_reader *r)
{
  size_t known = r->blank_end > r->from ? r->blank_end : r->from;
  r->blank_end = known + blanks(r->held.data + known, r->held.length - known);
  return r->blank_end - r->from;
}

/* ---- content ---- */

/* The next n bytes are content. White space alone behind a marker waits for what follows it. */
static bool give_content(parts_reader *r, size_t n, bool marker_follows, answer_parts *out)
{
  bool blank = held_blanks(r) >= n;
  if (blank && (r->behind || !r->begun) && !marker_follows && n)
    return false;
  r->gap = blank && (r->behind || !r->begun) ? n : 0;
  if (!r->gap)
    parts_add(out, PART_CONTENT, parts_at(r), n);
  r->begun |= !blank;
  r->behind = r->behind && blank;
  r->from += n;
  return true;
}

/* A wrapper's end behind a call that had forgotten its beginning. */
static bool skip_stray_end(parts_reader *r, bool *wait)
{
  const calls_format *f = r->options.calls;
  size_t space = held_blanks(r), size = r->called && r->behind && f->bare_end ? strlen(f->end) : 0;
  size_t have = parts_left(r) - space < size ? parts_left(r) - space : size;
  bool same = size && memcmp(parts_at(r) + space, f->end, have) == 0;
  *wait = same && have < size && have;
  if (!same || have < size)
    return false;
  r->from += space + size;
  return true;
}

/* Whether what is held begins, white space aside, with something that is not the marker. */
static bool begins_otherwise(parts_reader *r, const char *text)
{
  size_t space = held_blanks(r), n = parts_left(r) - space, most = strlen(text);
  return memcmp(parts_at(r) + space, text, n < most ? n : most) != 0;
}

/* True: there is more to be told. */
static bool step_content(parts_reader *r, answer_parts *out)
{
  const calls_format *f = r->options.calls;
  if (!parts_left(r))
    return false;
  if (r->options.once && r->options.reasoning && begins_otherwise(r, r->options.reasoning->start))
    r->begun = true;
  bool may_reason = r->options.reasoning && !(r->options.once && r->begun);
  r->no_calls |= r->options.calls_alone && !may_reason && begins_otherwise(r, f->start ? f->start : f->bare_start);
  f = r->no_calls ? NULL : f;
  const marker all[] = {{may_reason ? r->options.reasoning->start : NULL, IN_REASONING},
                        {f ? f->start : NULL, IN_CALL},
                        {f ? f->bare_start : NULL, IN_BARE_CALL}};
  size_t where = 0, keep;
  bool wait = false;
  if (f && f->start && !*f->start &&
      (!r->begun || r->behind)) { /* the first letters tell whether the answer is calls */
    static const char tag[] = "<|python_tag|>";
    size_t space = held_blanks(r), n = parts_left(r) - space;
    size_t most = n < sizeof tag - 1 ? n : sizeof tag - 1;
    if (n && *(parts_at(r) + space) != '{' && memcmp(parts_at(r) + space, tag, most) != 0) {
      r->begun = true;
    } else if (n && (*(parts_at(r) + space) == '{' || most == sizeof tag - 1)) {
      r->state = IN_WHOLE_CALL;
      return true;
    } else {
      return false;
    }
  }
  if (f && skip_stray_end(r, &wait))
    return true;
  if (wait)
    return false;
  const marker *m = parts_find(r, all, sizeof all / sizeof *all, held_blanks(r), &where, &keep); /* none begins so */
  if (!m) {
    bool plain = !f && !may_reason;
    if (plain)
      r->begun = true;
    if (parts_left(r) > keep)
      give_content(r, parts_left(r) - keep, false, out);
    return false;
  }
  give_content(r, where, true, out);
  r->begun = true;
  r->state = m->to;
  if (m->to == IN_REASONING) {
    r->gap = 0;
    r->from += strlen(m->text);
    r->reasoned += strlen(m->text);
  } else {
    r->scanned = strlen(m->text);
    r->strings = (calls_scan){0};
    r->tries = 0;
  }
  return true;
}

/* ---- reasoning ---- */

static bool step_reasoning(parts_reader *r, answer_parts *out)
{
  const marker end = {r->options.reasoning->end, IN_CONTENT};
  size_t where = 0, keep;
  const marker *m = parts_find(r, &end, 1, 0, &where, &keep);
  size_t n = m ? where : parts_left(r) - keep;
  parts_add(out, PART_REASONING, parts_at(r), n);
  r->from += n;
  r->reasoned += n;
  r->begun = true;
  if (!m)
    return false;
  r->from += strlen(end.text);
  r->reasoned += strlen(end.text);
  r->state = IN_CONTENT;
  r->behind = true;
  r->called = false;
  return true;
}

/* ---- calls ---- */

static bool step_call(parts_reader *r, answer_parts *out)
{
  const calls_format *f = r->options.calls;
  bool bare = r->state == IN_BARE_CALL, open_ended = !bare && !*f->end;
  const marker end = {bare ? f->bare_end : open_ended ? f->start : f->end, IN_CONTENT};
  size_t skip = bare ? 0 : strlen(f->start), where = 0, keep;
  if (!parts_find(r, &end, 1, r->scanned, &where, &keep)) {
    size_t safe = parts_left(r) - keep;
    r->scanned = safe > r->scanned ? safe : r->scanned;
    parts_tell_calls(r, skip, r->scanned, out);
    return false;
  }
  parts_tell_calls(r, skip, where, out);
  size_t size = where + (open_ended ? 0 : strlen(end.text)), n = (bare ? size : where) - skip;
  /* The scan knows one notation's strings, and readers take others too: they are asked first, but not of every marker
   * of a long string, for each time they read the block anew. */
  bool inside = f->inside(f, parts_at(r) + skip, where - skip, &r->strings);
  bool again = !inside || r->tries++ < MOST_TRIES;
  if (again && parts_take_calls(r, size, skip, n, out))
    return true;
  if (inside)
    r->scanned = where + 1;
  else
    parts_refuse_calls(r, skip, size, out);
  return true;
}

/* ---- in and out ---- */

static bool step(parts_reader *r, answer_parts *out)
{
  if (r->channels)
    return channels_step(r, out);
  switch (r->state) {
  case IN_CONTENT:
    return step_content(r, out);
  case IN_REASONING:
    return step_reasoning(r, out);
  case IN_WHOLE_CALL:
    parts_tell_calls(r, 0, parts_left(r), out);
    return false;
  default:
    return step_call(r, out);
  }
}

/* What is done with goes once it is most of what is held. */
static void drop_done(parts_reader *r)
{
  size_t done = r->from - r->gap, n = r->held.length - done;
  if (done < n || !done)
    return;
  r->blank_end = r->blank_end > done ? r->blank_end - done : 0;
  memmove(r->held.data, r->held.data + done, n);
  r->held.data[n] = '\0';
  r->held.length = n;
  r->from = r->gap;
}

void parts_feed(parts_reader *r, const char *text, size_t n, answer_parts *out)
{
  for (size_t done = 0; done < n && !r->held.failed; done += SLICE) {
    buf_add(&r->held, text + done, n - done < SLICE ? n - done : SLICE);
    if (r->held.failed)
      break;
    while (step(r, out))
      ;
    drop_done(r);
  }
  out->failed |= r->held.failed;
}

/* A block that the text's end ends. */
static void end_calls(parts_reader *r, bool cut, answer_parts *out)
{
  const calls_format *f = r->options.calls;
  size_t skip = r->state == IN_CALL ? strlen(f->start) : 0, size = parts_left(r);
  parts_tell_calls(r, skip, size, out);
  if ((cut && !f->closed) || !parts_take_calls(r, size, skip, size - skip, out))
    parts_refuse_calls(r, skip, size, out);
}

void parts_end(parts_reader *r, bool cut, answer_parts *out)
{
  if (r->held.failed || !parts_left(r))
    return;
  if (r->channels) {
    channels_end(r, out);
    r->state = IN_CONTENT;
  }
  switch (r->state) {
  case IN_CONTENT:
    if (!(r->behind && held_blanks(r) == parts_left(r)))
      parts_add(out, PART_CONTENT, parts_at(r), parts_left(r));
    break;
  case IN_REASONING:
    parts_add(out, PART_REASONING, parts_at(r), parts_left(r));
    r->reasoned += parts_left(r);
    break;
  default:
    end_calls(r, cut, out);
  }
  buf_clear(&r->held);
  r->from = r->blank_end = 0;
}
