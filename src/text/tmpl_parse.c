/* tmpl_parse.c - statements: the tags of a template and the bodies between them. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/tmpl_ast.h"

node *parse_new(parser *p, node_kind kind, int line)
{
  node *n = rt_zalloc(p->r, sizeof *n);
  if (n) {
    n->kind = (uint8_t)kind;
    n->line = line;
    n->height = 1;
  }
  return n;
}

bool parse_append(parser *p, nodes *list, node *n)
{
  if (list->n == list->capacity) {
    size_t capacity = list->capacity ? list->capacity * 2 : 4;
    node **grown = rt_array(p->r, capacity, sizeof *grown);
    OK(grown);
    if (list->n)
      memcpy(grown, list->v, list->n * sizeof *grown);
    list->v = grown;
    list->capacity = capacity;
  }
  list->v[list->n++] = n;
  return true;
}

void parse_grow(node *parent, const node *child)
{
  if (child && child->height >= parent->height)
    parent->height = child->height + 1;
}

bool parse_fail(parser *p, int line, const char *format, ...)
{
  char text[400];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  p->r->line = line;
  return rt_fail(p->r, "%s", text);
}

void parse_describe(const token *t, char *out, size_t size)
{
  if (t->kind == T_NAME)
    snprintf(out, size, "%.*s", (int)(t->value.s->n > 60 ? 60 : t->value.s->n), t->value.s->s);
  else
    snprintf(out, size, "%s", token_name(t->kind));
}

static bool unexpected(parser *p, const char *wanted)
{
  char text[80];
  if (p->t->kind == T_EOF)
    return parse_fail(p, p->t->line, "unexpected end of template, expected '%s'", wanted);
  parse_describe(p->t, text, sizeof text);
  return parse_fail(p, p->t->line, "expected token '%s', got '%s'", wanted, text);
}

bool parse_expect(parser *p, token_kind kind)
{
  if (p->t->kind != kind)
    return unexpected(p, token_name(kind));
  if (kind != T_EOF)
    p->t++;
  return true;
}

bool parse_is_name(const token *t, const char *word)
{
  return t->kind == T_NAME && ts_is(t->value.s, word);
}

bool parse_expect_name(parser *p, const char *word)
{
  if (!parse_is_name(p->t, word))
    return unexpected(p, word);
  p->t++;
  return true;
}

bool parse_skip_name(parser *p, const char *word)
{
  bool there = parse_is_name(p->t, word);
  p->t += there;
  return there;
}

bool parse_skip(parser *p, token_kind kind)
{
  bool there = p->t->kind == kind;
  p->t += there;
  return there;
}

/* ---- bodies ---- */

static bool parse_statement(parser *p, nodes *out);

/* `ends`: the tags that end this body, NULL-terminated; NULL at top level. The end tag's name is the current token. */
static bool parse_body(parser *p, const char *const *ends, nodes *out)
{
  while (p->t->kind != T_EOF) {
    const token *t = p->t++;
    node *n;
    switch (t->kind) {
    case T_DATA:
      n = parse_new(p, N_DATA, t->line);
      OK(n && parse_append(p, out, n));
      n->value = t->value;
      break;
    case T_VAR_BEGIN:
      n = parse_new(p, N_OUTPUT, t->line);
      OK(n && parse_tuple(p, true, false, &n->a) && parse_expect(p, T_VAR_END) && parse_append(p, out, n));
      break;
    case T_BLOCK_BEGIN:
      for (size_t i = 0; ends && ends[i]; i++)
        if (parse_is_name(p->t, ends[i]))
          return true;
      OK(parse_statement(p, out) && parse_expect(p, T_BLOCK_END));
      break;
    default:
      return parse_fail(p, t->line, "unexpected '%s'", token_name(t->kind));
    }
  }
  if (!ends)
    return true;
  char wanted[120] = "";
  for (size_t i = 0; ends[i]; i++)
    snprintf(wanted + strlen(wanted), sizeof wanted - strlen(wanted), "%s'%s'", i ? " or " : "", ends[i]);
  return parse_fail(
      p, p->t->line,
      "Unexpected end of template. Jinja was looking for the following tags: %s. The innermost block that "
      "needs to be closed is '%s'",
      wanted, p->n_tags ? p->tags[p->n_tags - 1] : "?");
}

/* The body behind a tag. `drop`: step over the name of the end tag. */
static bool parse_statements(parser *p, const char *const *ends, bool drop, nodes *out)
{
  parse_skip(p, T_COLON);
  OK(parse_expect(p, T_BLOCK_END) && parse_deeper(p) && parse_body(p, ends, out));
  p->nesting--;
  p->t += drop;
  return true;
}

/* A body outside any loop around it, as macros are. */
static bool parse_function_body(parser *p, const char *const *ends, nodes *out)
{
  int loops = p->loops;
  p->loops = 0;
  OK(parse_statements(p, ends, true, out));
  p->loops = loops;
  return true;
}

/* ---- statements ---- */

static bool parse_if(parser *p, node **out)
{
  static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
  node *n = parse_new(p, N_IF, p->t->line), *head = n;
  OK(n);
  p->t++;
  for (;;) {
    OK(parse_tuple(p, false, false, &n->a) && parse_statements(p, ends, false, &n->items));
    const token *t = p->t++;
    if (parse_is_name(t, "elif")) {
      n->b = parse_new(p, N_IF, t->line);
      n = n->b;
      OK(n);
      continue;
    }
    if (parse_is_name(t, "else"))
      OK(parse_statements(p, last, true, &n->more));
    *out = head;
    return true;
  }
}

static bool parse_for(parser *p, node **out)
{
  static const char *const ends[] = {"endfor", "else", NULL}, *const last[] = {"endfor", NULL};
  node *n = parse_new(p, N_FOR, p->t->line);
  OK(n);
  p->t++;
  p->fors++;
  OK(parse_target(p, false, &n->a) && parse_expect_name(p, "in"));
  OK(parse_tuple(p, false, false, &n->b));
  if (parse_skip_name(p, "if"))
    OK(parse_expression(p, true, &n->c));
  n->flag = parse_skip_name(p, "recursive");
  int loops = p->loops;
  p->loops++;
  OK(parse_statements(p, ends, false, &n->items));
  p->loops = n->flag ? 0 : loops;
  if (parse_is_name(p->t++, "else"))
    OK(parse_statements(p, last, true, &n->more));
  p->loops = loops;
  p->fors--;
  *out = n;
  return true;
}

static bool parse_set(parser *p, node **out)
{
  static const char *const ends[] = {"endset", NULL};
  node *n = parse_new(p, N_SET, p->t->line);
  OK(n);
  p->t++;
  OK(parse_target(p, true, &n->a));
  *out = n;
  if (parse_skip(p, T_ASSIGN))
    return parse_tuple(p, true, false, &n->b);
  n->kind = N_SETBLOCK;
  return parse_filters(p, NULL, false, &n->b) && parse_statements(p, ends, true, &n->items);
}

static bool parse_with(parser *p, node **out)
{
  static const char *const ends[] = {"endwith", NULL};
  node *n = parse_new(p, N_WITH, p->t->line), *target, *value;
  OK(n);
  p->t++;
  while (p->t->kind != T_BLOCK_END) {
    if (n->items.n)
      OK(parse_expect(p, T_COMMA));
    OK(parse_target(p, false, &target) && parse_expect(p, T_ASSIGN) && parse_expression(p, true, &value));
    OK(parse_append(p, &n->items, target) && parse_append(p, &n->items, value));
  }
  *out = n;
  return parse_statements(p, ends, true, &n->more);
}

static bool parse_signature(parser *p, node *macro)
{
  OK(parse_expect(p, T_LPAREN));
  while (p->t->kind != T_RPAREN) {
    if (macro->items.n)
      OK(parse_expect(p, T_COMMA));
    node *name, *value;
    OK(parse_name_target(p, &name));
    if (parse_skip(p, T_ASSIGN))
      OK(parse_expression(p, true, &value) && parse_append(p, &macro->more, value));
    else if (macro->more.n)
      return parse_fail(p, name->line, "non-default argument follows default argument");
    for (size_t i = 0; i < macro->items.n; i++)
      if (ts_equal(macro->items.v[i]->name, name->name))
        return parse_fail(p, name->line, "duplicate argument '%.*s'", (int)name->name->n, name->name->s);
    OK(parse_append(p, &macro->items, name));
  }
  return parse_expect(p, T_RPAREN);
}

static bool parse_macro(parser *p, node **out)
{
  static const char *const ends[] = {"endmacro", NULL};
  node *n = parse_new(p, N_MACRO, p->t->line), *name;
  OK(n);
  p->t++;
  OK(parse_name_target(p, &name));
  n->name = name->name;
  *out = n;
  return parse_signature(p, n) && parse_function_body(p, ends, &n->body);
}

static bool parse_call_block(parser *p, node **out)
{
  static const char *const ends[] = {"endcall", NULL};
  node *n = parse_new(p, N_CALLBLOCK, p->t->line);
  OK(n);
  p->t++;
  if (p->t->kind == T_LPAREN)
    OK(parse_signature(p, n));
  OK(parse_expression(p, true, &n->a));
  if (n->a->kind != N_CALL)
    return parse_fail(p, n->line, "expected call");
  *out = n;
  return parse_function_body(p, ends, &n->body);
}

static bool parse_generation(parser *p, node **out)
{
  static const char *const ends[] = {"endgeneration", NULL};
  *out = parse_new(p, N_GENERATION, p->t->line);
  OK(*out);
  p->t++;
  return parse_function_body(p, ends, &(*out)->body);
}

static bool parse_filter_block(parser *p, node **out)
{
  static const char *const ends[] = {"endfilter", NULL};
  *out = parse_new(p, N_FILTERBLOCK, p->t->line);
  OK(*out);
  p->t++;
  return parse_filters(p, NULL, true, &(*out)->a) && parse_statements(p, ends, true, &(*out)->items);
}

static bool parse_block(parser *p, node **out)
{
  static const char *const ends[] = {"endblock", NULL};
  node *n = parse_new(p, N_BLOCK, p->t->line);
  OK(n);
  p->t++;
  n->name = p->t->value.s;
  OK(parse_expect(p, T_NAME));
  if (parse_is_name(p->t, "scoped") || parse_is_name(p->t, "required"))
    return parse_fail(p, n->line, "scoped and required blocks are not supported");
  OK(parse_function_body(p, ends, &n->items));
  if (p->t->kind == T_NAME && ts_equal(p->t->value.s, n->name))
    p->t++;
  p->out->has_blocks = true;
  *out = n;
  return true;
}

/* {% print a, b %} writes its expressions one after the other. */
static bool parse_print(parser *p, nodes *out)
{
  p->t++;
  bool first = true;
  for (; p->t->kind != T_BLOCK_END; first = false) {
    if (!first)
      OK(parse_expect(p, T_COMMA));
    node *n = parse_new(p, N_OUTPUT, p->t->line);
    OK(n && parse_expression(p, true, &n->a) && parse_append(p, out, n));
  }
  return true;
}

static bool parse_loop_control(parser *p, node **out)
{
  bool is_break = parse_is_name(p->t, "break");
  if (p->loops == 0)
    return parse_fail(p, p->t->line, "'%s' outside loop", is_break ? "break" : "continue");
  *out = parse_new(p, is_break ? N_BREAK : N_CONTINUE, p->t->line);
  p->t++;
  return *out != NULL;
}

/* include, import, from and extends: there is nothing to load from. Refused where they are reached. */
static bool parse_refused(parser *p, node **out)
{
  *out = parse_new(p, N_REFUSED, p->t->line);
  OK(*out);
  (*out)->name = p->t->value.s;
  while (p->t->kind != T_BLOCK_END && p->t->kind != T_EOF)
    p->t++;
  return true;
}

typedef struct statement {
  const char *name;
  bool (*parse)(parser *p, node **out);
} statement;

static const statement statements[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"with", parse_with},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"generation", parse_generation},
    {"break", parse_loop_control},
    {"continue", parse_loop_control},
    {"block", parse_block},
    {"include", parse_refused},
    {"import", parse_refused},
    {"from", parse_refused},
    {"extends", parse_refused},
};

static bool parse_statement(parser *p, nodes *out)
{
  if (p->t->kind != T_NAME)
    return parse_fail(p, p->t->line, "tag name expected");
  if (parse_is_name(p->t, "print"))
    return parse_print(p, out);
  if (parse_is_name(p->t, "autoescape"))
    return parse_fail(p, p->t->line, "the autoescape tag is not supported");
  for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
    if (!parse_is_name(p->t, statements[i].name))
      continue;
    node *n;
    if (p->n_tags < TMPL_MAX_NESTING + 4)
      p->tags[p->n_tags++] = statements[i].name;
    OK(statements[i].parse(p, &n) && parse_append(p, out, n));
    p->n_tags--;
    return true;
  }
  char text[80], inside[80] = "";
  parse_describe(p->t, text, sizeof text);
  if (p->n_tags)
    snprintf(inside, sizeof inside, " (the innermost block that needs to be closed is '%s')", p->tags[p->n_tags - 1]);
  return parse_fail(p, p->t->line, "Encountered unknown tag '%s'%s", text, inside);
}

bool tmpl_parse(tmpl *t, const tokens *list)
{
  parser p = {.r = &t->mem, .t = list->v, .out = t};
  return parse_body(&p, NULL, &t->body);
}
