/* chat_continue.c - as transformers does it: a mark is appended to the last message, the conversation is rendered, and
 * the prompt ends where the mark came out. Where the template trimmed the blank behind the mark, it trimmed the
 * message's blanks as well, and the prompt loses them too. */
#include "text/chat_continue.h"

#include <string.h>

#include "text/tmpl_case.h"
#include "text/tmpl_unicode.h"

static const char mark[] = "CONTINUE_FINAL_MESSAGE_TAG ";
enum { MARK = sizeof mark - 1 };

const char *const chat_reasoning_keys[CHAT_REASONING_KEYS] = {"reasoning_content", "thinking", "reasoning"};

static bool append_mark(tmpl_rt *r, tv text, tv *out)
{
  tv tail;
  if (text.type != TV_STR)
    return rt_fail_status(r, TERN_E_FORMAT, "continue_final_message: the final message has no text to continue");
  return ts_cstr(r, mark, &tail) && ts_concat(r, text.s, tail.s, out);
}

/* The last block of a list of parts that has a text. */
static bool mark_parts(tmpl_rt *r, tdict *message, tv field, const tlist *parts, chat_continue *out)
{
  for (size_t i = parts->n; i-- > 0;) {
    const tv *text = parts->v[i].type == TV_DICT ? td_find_cstr(parts->v[i].d, "text") : NULL;
    if (!text)
      continue;
    tdict *part;
    tlist *copy;
    tv marked;
    OK(append_mark(r, *text, &marked));
    out->text = text->s;
    OK(td_copy(r, parts->v[i].d, &part) && td_set_cstr(r, part, "text", marked));
    OK(ti_list(r, tv_seq(TV_LIST, (tlist *)parts), &copy));
    copy->v[i] = tv_dict(part);
    return td_set(r, message, field, tv_seq(TV_LIST, copy));
  }
  return rt_fail_status(r, TERN_E_FORMAT, "continue_final_message: no text to continue in the final message");
}

static bool mentions(const char *source, size_t n, const tstr *name)
{
  return name->n > 0 && memmem(source, n, name->s, name->n) != NULL;
}

/* Reasoning stands under several names: every copy is marked, whichever the template reads. */
static bool mark_fields(tmpl_rt *r, tdict *message, tv field, tv value, const char *source, size_t n, bool *read)
{
  bool reasoning = false;
  tv marked;
  for (int i = 0; i < CHAT_REASONING_KEYS; i++)
    reasoning = reasoning || ts_is(field.s, chat_reasoning_keys[i]);
  OK(append_mark(r, value, &marked));
  if (!reasoning) {
    *read = mentions(source, n, field.s);
    return td_set(r, message, field, marked);
  }
  for (int i = 0; i < CHAT_REASONING_KEYS; i++) {
    const tv *copy = td_find_cstr(message, chat_reasoning_keys[i]);
    bool same = false;
    if (copy)
      OK(tv_equal(r, *copy, value, &same));
    if (!same)
      continue;
    *read = *read || memmem(source, n, chat_reasoning_keys[i], strlen(chat_reasoning_keys[i])) != NULL;
    OK(td_set_cstr(r, message, chat_reasoning_keys[i], marked));
  }
  return true;
}

bool chat_continue_mark(tmpl_rt *r, tlist *messages, tv option, const char *source, size_t n, chat_continue *out)
{
  *out = (chat_continue){0};
  if (!tv_truth(option))
    return true;
  tv field = option;
  if (option.type != TV_STR)
    OK(ts_cstr(r, "content", &field));
  tdict *message = messages->v[messages->n - 1].d;
  const tv *value = td_find(message, field.s);
  if (!value || value->type == TV_NONE)
    return rt_fail_status(r, TERN_E_FORMAT, "continue_final_message: the final message has no \"%.*s\" to continue",
                          (int)field.s->n, field.s->s);
  bool read = false;
  if (value->type == TV_LIST) {
    read = mentions(source, n, field.s);
    OK(mark_parts(r, message, field, value->l, out));
  } else {
    tv text = *value;
    OK(mark_fields(r, message, field, text, source, n, &read));
    out->text = text.s;
  }
  if (!read)
    return rt_fail_status(r, TERN_E_FORMAT, "continue_final_message: the template does not read \"%.*s\"",
                          (int)field.s->n, field.s->s);
  return true;
}

bool chat_continue_cut(tmpl_rt *r, const chat_continue *c, char *prompt, size_t *length)
{
  if (!c->text)
    return true;
  tv text, trimmed, tag;
  OK(ts_ref(r, prompt, *length, &text) && tc_strip(r, c->text, NULL, true, true, &trimmed));
  OK(ts_ref(r, mark, MARK - 1, &tag)); /* without the blank at its end */
  size_t at = ts_rfind(r, text.s, tag.s, text.s->n);
  if (at == SIZE_MAX || ts_find(r, text.s, trimmed.s, 0) == SIZE_MAX)
    return rt_fail(r, "continue_final_message: the final message does not come out of the template as it is");
  bool whole = *length - at >= MARK && memcmp(prompt + at, mark, MARK) == 0;
  *length = whole ? at : tu_rstrip_space(prompt, at);
  prompt[*length] = '\0';
  return true;
}
