/* answer.c - see answer.h: the parts of an answer, one behind another. */
#include "text/answer.h"

#include <string.h>

#include "text/answer_impl.h"
#include "text/grammar_machine.h"

void answer_emit_space(grammar *g, int most)
{
  uint32_t ends = GRAM_NONE;
  for (int i = 0; i < most; i++) {
    uint32_t more = gram_split(g), line;
    ends = gram_jump(g, ends);
    gram_land(g, more);
    line = gram_split(g);
    gram_bytes(g, ' ', ' ');
    uint32_t joined = gram_jump(g, GRAM_NONE);
    gram_land(g, line);
    gram_bytes(g, '\n', '\n');
    gram_land_jumps(g, joined);
  }
  gram_land_jumps(g, ends);
}

typedef struct answer_rules {
  uint32_t until; /* the end of reasoning */
  uint32_t value;
  uint32_t block, all; /* of calls */
  uint32_t text;       /* with calls and reasoning in it */
} answer_rules;

/* Reasoning, or none, before what is no text. (Text has it among its markers.) */
static void emit_reasoning(grammar *g, const schema_frame *frame, uint32_t until)
{
  if (!frame->end)
    return;
  uint32_t without = frame->start ? gram_split(g) : GRAM_NONE;
  if (frame->start)
    gram_text(g, frame->start, strlen(frame->start));
  gram_call(g, until);
  answer_emit_space(g, ANSWER_BLANKS);
  if (frame->start)
    gram_land(g, without);
}

static void emit_whole(grammar *g, const answer_form *form, const answer_rules *r)
{
  if (form->text) {
    if (form->frame.end && !form->frame.start)
      gram_call(g, r->until);
    gram_call(g, r->text);
    gram_accept(g);
    return;
  }
  gram_alternatives a = GRAM_ALTERNATIVES;
  emit_reasoning(g, &form->frame, r->until);
  if (form->value) {
    gram_branch(g, &a, form->calls != NULL);
    gram_call(g, r->value);
  }
  if (form->calls) {
    gram_branch(g, &a, false);
    gram_call(g, r->all);
  }
  gram_join(g, &a);
  gram_accept(g);
}

/* Text, and where a marker was seen what that begins; letters that begin a call without its wrapper lead nowhere. */
static void emit_text(schema_compiler *c, const answer_form *form, const answer_rules *r)
{
  const calls_format *f = form->calls;
  uint32_t bare = gram_rule(c->g), thinks = gram_rule(c->g);
  schema_marker markers[3];
  size_t n = 0;
  markers[n++] = (schema_marker){calls_start(f), gram_rule(c->g)};
  if (f->start && f->bare_start)
    markers[n++] = (schema_marker){f->bare_start, bare};
  if (form->again)
    markers[n++] = (schema_marker){form->again, thinks};
  gram_begin(c->g, r->text);
  schema_emit_text(c, markers, n, true);
  gram_begin(c->g, markers[0].rule);
  gram_call(c->g, r->block);
  if (!form->one_call && calls_open_ended(f)) {
    uint32_t over = gram_split(c->g);
    gram_call(c->g, r->all);
    gram_land(c->g, over);
  } else if (!form->one_call) {
    gram_call(c->g, r->text);
  }
  gram_return(c->g);
  gram_begin(c->g, bare);
  schema_emit_never(c);
  if (form->again) {
    gram_begin(c->g, thinks);
    gram_call(c->g, r->until);
    schema_leave(c, r->text);
  }
}

static tern_status check(const answer_form *form, tern_error *err)
{
  const calls_format *f = form->calls;
  if (f && !answer_has_calls(f))
    return err_set(err, TERN_E_UNSUPPORTED, "%s: calls of the format %s cannot be constrained here", form->place,
                   f->name);
  if (f && !*calls_start(f) && (form->text || form->value))
    return err_set(err, TERN_E_UNSUPPORTED,
                   "%s: calls of the format %s have no marker, so that an answer which may be none cannot be "
                   "constrained",
                   form->place, f->name);
  return TERN_OK;
}

static tern_status emit(schema_compiler *c, const answer_form *form, const schema_root *value, tern_error *err)
{
  grammar *g = c->g;
  for (int i = 0; i < SCHEMA_RULES; i++)
    c->rules[i] = gram_rule(g);
  answer_rules r = {.until = gram_rule(g), .block = gram_rule(g), .all = gram_rule(g), .text = gram_rule(g)};
  r.value = form->value && form->schema ? schema_add(c, value) : c->rules[RULE_OBJECT];
  emit_whole(g, form, &r);
  if (form->frame.end) {
    gram_begin(g, r.until);
    schema_emit_text(c, &(schema_marker){form->frame.end, GRAM_NONE}, 1, false);
  }
  if (form->text)
    emit_text(c, form, &r);
  if (form->calls)
    TRY(calls_emit(c, form, r.block, r.all, err));
  schema_emit_rules(c);
  return schema_emit_items(c, err);
}

tern_status answer_compile(const answer_form *form, grammar *out, tern_error *err)
{
  schema_compiler c = {.g = out};
  const schema_root value = {form->schema, form->place};
  *out = (grammar){0};
  TRY(check(form, err));
  tern_status status = emit(&c, form, &value, err);
  if (status == TERN_OK) {
    status = gram_seal(out, err);
    if (status == TERN_OK)
      status = gram_try(out, err);
    if (status != TERN_OK && status != TERN_E_NOMEM)
      status = err_prefix(err, status, "%s", form->place);
  }
  mem_free(c.items);
  arena_free(&c.memory);
  return status;
}

tern_status schema_compile(const json_t *schema, const char *place, const schema_frame *frame, grammar *out,
                           tern_error *err)
{
  return answer_compile(&(answer_form){.frame = *frame, .value = true, .schema = schema, .place = place}, out, err);
}
