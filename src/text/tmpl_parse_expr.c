/* tmpl_parse_expr.c - expressions, by recursive descent, in Jinja's order of binding (which is not quite Python's:
 * unary minus binds tighter than **, ~ tighter than +, and filters and tests tighter than any operator):
 *
 *   a if b else c  <  or  <  and  <  not  <  == != < in ...  <  + -  <  ~  <  * / // %  <  **  <  unary  <  | is . []
 * ()
 */
#include <string.h>

#include "text/tmpl_ast.h"

bool parse_deeper(parser *p)
{
  if (++p->nesting > TMPL_MAX_NESTING) {
    p->r->line = p->t->line;
    return rt_fail_status(p->r, TERN_E_LIMIT, "nested more than %d levels deep", TMPL_MAX_NESTING);
  }
  return true;
}

static bool wrap(parser *p, node_kind kind, node *a, node *b, node **out)
{
  node *n = parse_new(p, kind, p->t->line);
  OK(n);
  n->line = a->line;
  n->a = a;
  n->b = b;
  parse_grow(n, a);
  parse_grow(n, b);
  if (n->height > TMPL_MAX_HEIGHT) {
    p->r->line = a->line;
    return rt_fail_status(p->r, TERN_E_LIMIT, "an expression of more than %d operators", TMPL_MAX_HEIGHT);
  }
  *out = n;
  return true;
}

/* ---- literals and names ---- */

static bool parse_string(parser *p, node *n)
{
  n->value = p->t->value;
  p->t++;
  while (p->t->kind == T_STRING) { /* neighbours join */
    OK(ts_concat(p->r, n->value.s, p->t->value.s, &n->value));
    p->t++;
  }
  return true;
}

static bool constant_name(const tstr *name, tv *out)
{
  if (ts_is(name, "true") || ts_is(name, "True"))
    *out = tv_bool(true);
  else if (ts_is(name, "false") || ts_is(name, "False"))
    *out = tv_bool(false);
  else if (ts_is(name, "none") || ts_is(name, "None"))
    *out = tv_none();
  else
    return false;
  return true;
}

static bool parse_list_literal(parser *p, node **out)
{
  node *n = parse_new(p, N_LIST, p->t->line);
  OK(n && parse_deeper(p));
  p->t++;
  while (p->t->kind != T_RBRACKET) {
    if (n->items.n)
      OK(parse_expect(p, T_COMMA));
    if (p->t->kind == T_RBRACKET)
      break;
    node *item;
    OK(parse_expression(p, true, &item) && parse_append(p, &n->items, item));
    parse_grow(n, item);
  }
  p->nesting--;
  *out = n;
  return parse_expect(p, T_RBRACKET);
}

static bool parse_dict_literal(parser *p, node **out)
{
  node *n = parse_new(p, N_DICT, p->t->line);
  OK(n && parse_deeper(p));
  p->t++;
  while (p->t->kind != T_RBRACE) {
    if (n->items.n)
      OK(parse_expect(p, T_COMMA));
    if (p->t->kind == T_RBRACE)
      break;
    node *key, *value;
    OK(parse_expression(p, true, &key) && parse_append(p, &n->items, key));
    OK(parse_expect(p, T_COLON));
    OK(parse_expression(p, true, &value) && parse_append(p, &n->items, value));
    parse_grow(n, key);
    parse_grow(n, value);
  }
  p->nesting--;
  *out = n;
  return parse_expect(p, T_RBRACE);
}

static bool parse_name(parser *p, bool namespaces, node **out)
{
  const token *t = p->t++;
  tv value;
  node *n;
  if (constant_name(t->value.s, &value)) {
    n = parse_new(p, N_CONST, t->line);
    OK(n);
    n->value = value;
  } else if (namespaces && p->t->kind == T_DOT) {
    p->t++;
    n = parse_new(p, N_NSREF, t->line);
    OK(n);
    n->name = t->value.s;
    n->attr = p->t->value.s;
    OK(parse_expect(p, T_NAME));
  } else {
    n = parse_new(p, N_NAME, t->line);
    OK(n);
    n->name = t->value.s;
  }
  *out = n;
  return true;
}

static bool parse_primary(parser *p, bool namespaces, node **out)
{
  const token *t = p->t;
  switch (t->kind) {
  case T_NAME:
    return parse_name(p, namespaces, out);
  case T_STRING:
    *out = parse_new(p, N_CONST, t->line);
    return *out && parse_string(p, *out);
  case T_INT:
  case T_FLOAT:
    *out = parse_new(p, N_CONST, t->line);
    OK(*out);
    (*out)->value = t->value;
    p->t++;
    return true;
  case T_LPAREN:
    OK(parse_deeper(p));
    p->t++;
    OK(parse_tuple(p, true, true, out));
    p->nesting--;
    return parse_expect(p, T_RPAREN);
  case T_LBRACKET:
    return parse_list_literal(p, out);
  case T_LBRACE:
    return parse_dict_literal(p, out);
  default: {
    char text[80];
    parse_describe(t, text, sizeof text);
    return parse_fail(p, t->line, "unexpected '%s'", text);
  }
  }
}

/* ---- subscripts and calls ---- */

/* `a`, `a:b`, `:b:c`, ... inside brackets. */
static bool parse_subscribed(parser *p, node **out)
{
  node *part[3] = {0};
  int line = p->t->line;
  if (p->t->kind != T_COLON) {
    OK(parse_expression(p, true, &part[0]));
    if (p->t->kind != T_COLON) {
      *out = part[0];
      return true;
    }
  }
  p->t++;
  if (p->t->kind != T_COLON && p->t->kind != T_RBRACKET && p->t->kind != T_COMMA)
    OK(parse_expression(p, true, &part[1]));
  if (p->t->kind == T_COLON) {
    p->t++;
    if (p->t->kind != T_RBRACKET && p->t->kind != T_COMMA)
      OK(parse_expression(p, true, &part[2]));
  }
  node *n = parse_new(p, N_SLICE, line);
  OK(n);
  n->a = part[0];
  n->b = part[1];
  n->c = part[2];
  for (int i = 0; i < 3; i++)
    parse_grow(n, part[i]);
  *out = n;
  return true;
}

static bool parse_brackets(parser *p, node *object, node **out)
{
  int line = p->t->line;
  p->t++;
  OK(parse_deeper(p));
  nodes list = {0};
  while (p->t->kind != T_RBRACKET) {
    node *item;
    if (list.n)
      OK(parse_expect(p, T_COMMA));
    OK(parse_subscribed(p, &item) && parse_append(p, &list, item));
    if (item->kind == N_SLICE && (list.n > 1 || p->t->kind == T_COMMA))
      return parse_fail(p, line, "a slice among several subscripts is not supported");
  }
  p->nesting--;
  OK(parse_expect(p, T_RBRACKET));
  node *key;
  if (list.n == 1) {
    key = list.v[0];
  } else {
    key = parse_new(p, N_TUPLE, line);
    OK(key);
    key->items = list;
    for (size_t i = 0; i < list.n; i++)
      parse_grow(key, list.v[i]);
  }
  return wrap(p, N_GETITEM, object, key, out);
}

static bool parse_dot(parser *p, node *object, node **out)
{
  p->t++;
  const token *t = p->t++;
  if (t->kind == T_NAME) {
    OK(wrap(p, N_GETATTR, object, NULL, out));
    (*out)->name = t->value.s;
    return true;
  }
  if (t->kind != T_INT) {
    p->t = t;
    return parse_fail(p, t->line, "expected name or number");
  }
  node *key = parse_new(p, N_CONST, t->line);
  OK(key);
  key->value = t->value;
  return wrap(p, N_GETITEM, object, key, out);
}

static bool parse_argument(parser *p, node *call, int line)
{
  node *value, **star = p->t->kind == T_MUL ? &call->star : p->t->kind == T_POW ? &call->star2 : NULL;
  bool allowed;
  if (star) {
    allowed = !*star && !call->star2;
    p->t++;
    OK(parse_expression(p, true, &value));
    *star = value;
  } else if (p->t->kind == T_NAME && p->t[1].kind == T_ASSIGN) {
    allowed = !call->star2;
    node *keyword = parse_new(p, N_KEYWORD, p->t->line);
    OK(keyword);
    keyword->name = p->t->value.s;
    p->t += 2;
    OK(parse_expression(p, true, &value));
    keyword->a = value;
    for (size_t i = 0; i < call->kws.n; i++)
      if (ts_equal(call->kws.v[i]->name, keyword->name))
        allowed = false;
    OK(parse_append(p, &call->kws, keyword));
  } else {
    allowed = !call->star && !call->star2 && call->kws.n == 0;
    OK(parse_expression(p, true, &value) && parse_append(p, &call->items, value));
  }
  parse_grow(call, value);
  if (!allowed)
    return parse_fail(p, line, "invalid syntax for function call expression");
  return true;
}

static bool parse_arguments(parser *p, node *call)
{
  int line = p->t->line;
  bool first = true;
  OK(parse_expect(p, T_LPAREN) && parse_deeper(p));
  for (; p->t->kind != T_RPAREN; first = false) {
    if (!first) {
      OK(parse_expect(p, T_COMMA));
      if (p->t->kind == T_RPAREN)
        break;
    }
    OK(parse_argument(p, call, line));
  }
  p->nesting--;
  return parse_expect(p, T_RPAREN);
}

static bool parse_call(parser *p, node *callee, node **out)
{
  OK(wrap(p, N_CALL, callee, NULL, out));
  (*out)->line = p->t->line;
  return parse_arguments(p, *out);
}

static bool parse_postfix(parser *p, node **n)
{
  for (;;) {
    if (p->t->kind == T_DOT)
      OK(parse_dot(p, *n, n));
    else if (p->t->kind == T_LBRACKET)
      OK(parse_brackets(p, *n, n));
    else if (p->t->kind == T_LPAREN)
      OK(parse_call(p, *n, n));
    else
      return true;
  }
}

/* ---- filters and tests ---- */

static bool dotted_name(parser *p, const tstr **out)
{
  tv name = p->t->value;
  OK(parse_expect(p, T_NAME));
  while (p->t->kind == T_DOT) {
    p->t++;
    tv dot;
    OK(ts_cstr(p->r, ".", &dot) && ts_concat(p->r, name.s, dot.s, &name));
    tv part = p->t->value;
    OK(parse_expect(p, T_NAME) && ts_concat(p->r, name.s, part.s, &name));
  }
  *out = name.s;
  return true;
}

bool parse_filters(parser *p, node *value, bool inline_first, node **out)
{
  while (p->t->kind == T_PIPE || inline_first) {
    if (!inline_first)
      p->t++;
    inline_first = false;
    node *n = parse_new(p, N_FILTER, p->t->line);
    OK(n && dotted_name(p, &n->name));
    n->a = value;
    parse_grow(n, value);
    if (p->t->kind == T_LPAREN)
      OK(parse_arguments(p, n));
    if (n->height > TMPL_MAX_HEIGHT)
      return parse_fail(p, n->line, "more than %d filters in a row", TMPL_MAX_HEIGHT);
    value = n;
  }
  *out = value;
  return true;
}

static bool starts_test_argument(const token *t)
{
  switch (t->kind) {
  case T_NAME:
    return !parse_is_name(t, "else") && !parse_is_name(t, "or") && !parse_is_name(t, "and");
  case T_STRING:
  case T_INT:
  case T_FLOAT:
  case T_LBRACKET:
  case T_LBRACE:
    return true;
  default:
    return false;
  }
}

static bool parse_test(parser *p, node *value, node **out)
{
  p->t++;
  int line = p->t->line;
  bool negated = parse_skip_name(p, "not");
  node *n;
  OK(wrap(p, N_TEST, value, NULL, &n) && dotted_name(p, &n->name));
  if (p->t->kind == T_LPAREN) {
    OK(parse_arguments(p, n));
  } else if (starts_test_argument(p->t)) {
    if (parse_is_name(p->t, "is"))
      return parse_fail(p, line, "You cannot chain multiple tests with is");
    node *argument;
    OK(parse_primary(p, false, &argument) && parse_postfix(p, &argument));
    OK(parse_append(p, &n->items, argument));
    parse_grow(n, argument);
  }
  if (negated)
    OK(wrap(p, N_NOT, n, NULL, &n));
  *out = n;
  return true;
}

static bool parse_filter_expression(parser *p, node **n)
{
  for (;;) {
    if (p->t->kind == T_PIPE)
      OK(parse_filters(p, *n, false, n));
    else if (parse_is_name(p->t, "is"))
      OK(parse_test(p, *n, n));
    else if (p->t->kind == T_LPAREN)
      OK(parse_call(p, *n, n));
    else
      return true;
  }
}

/* ---- operators ---- */

static bool parse_unary(parser *p, bool with_filter, node **out)
{
  token_kind kind = p->t->kind;
  if (kind == T_SUB || kind == T_ADD) {
    OK(parse_deeper(p));
    p->t++;
    node *operand;
    OK(parse_unary(p, false, &operand) && wrap(p, kind == T_SUB ? N_NEG : N_POS, operand, NULL, out));
    p->nesting--;
  } else {
    OK(parse_primary(p, false, out));
  }
  OK(parse_postfix(p, out));
  return !with_filter || parse_filter_expression(p, out);
}

static bool binary(parser *p, node *left, tv_op op, node *right, node **out)
{
  OK(wrap(p, N_BINARY, left, right, out));
  (*out)->op = (uint8_t)op;
  return true;
}

static bool parse_power(parser *p, node **out)
{
  OK(parse_unary(p, true, out));
  while (p->t->kind == T_POW) {
    node *right;
    p->t++;
    OK(parse_unary(p, true, &right) && binary(p, *out, OP_POW, right, out));
  }
  return true;
}

static bool parse_product(parser *p, node **out)
{
  OK(parse_power(p, out));
  for (;;) {
    tv_op op;
    switch (p->t->kind) {
    case T_MUL:
      op = OP_MUL;
      break;
    case T_DIV:
      op = OP_DIV;
      break;
    case T_FLOORDIV:
      op = OP_FLOORDIV;
      break;
    case T_MOD:
      op = OP_MOD;
      break;
    default:
      return true;
    }
    node *right;
    p->t++;
    OK(parse_power(p, &right) && binary(p, *out, op, right, out));
  }
}

static bool parse_concat(parser *p, node **out)
{
  OK(parse_product(p, out));
  if (p->t->kind != T_TILDE)
    return true;
  node *n = parse_new(p, N_CONCAT, (*out)->line);
  OK(n && parse_append(p, &n->items, *out));
  parse_grow(n, *out);
  while (p->t->kind == T_TILDE) {
    node *item;
    p->t++;
    OK(parse_product(p, &item) && parse_append(p, &n->items, item));
    parse_grow(n, item);
  }
  *out = n;
  return true;
}

static bool parse_sum(parser *p, node **out)
{
  OK(parse_concat(p, out));
  while (p->t->kind == T_ADD || p->t->kind == T_SUB) {
    tv_op op = p->t->kind == T_ADD ? OP_ADD : OP_SUB;
    node *right;
    p->t++;
    OK(parse_concat(p, &right) && binary(p, *out, op, right, out));
  }
  return true;
}

static bool comparison(parser *p, compare_op *op)
{
  static const struct {
    token_kind kind;
    compare_op op;
  } table[] = {{T_EQ, CMP_EQ}, {T_NE, CMP_NE}, {T_LT, CMP_LT}, {T_LE, CMP_LE}, {T_GT, CMP_GT}, {T_GE, CMP_GE}};
  for (size_t i = 0; i < sizeof table / sizeof *table; i++)
    if (p->t->kind == table[i].kind) {
      p->t++;
      *op = table[i].op;
      return true;
    }
  if (parse_skip_name(p, "in")) {
    *op = CMP_IN;
    return true;
  }
  if (parse_is_name(p->t, "not") && parse_is_name(p->t + 1, "in")) {
    p->t += 2;
    *op = CMP_NOTIN;
    return true;
  }
  return false;
}

static bool parse_compare(parser *p, node **out)
{
  OK(parse_sum(p, out));
  node *chain = NULL;
  compare_op op;
  while (comparison(p, &op)) {
    if (!chain)
      OK(wrap(p, N_COMPARE, *out, NULL, &chain));
    node *operand = parse_new(p, N_OPERAND, p->t->line);
    OK(operand && parse_sum(p, &operand->a) && parse_append(p, &chain->items, operand));
    operand->op = (uint8_t)op;
    parse_grow(operand, operand->a);
    parse_grow(chain, operand);
  }
  if (chain)
    *out = chain;
  return true;
}

static bool parse_not(parser *p, node **out)
{
  if (!parse_is_name(p->t, "not"))
    return parse_compare(p, out);
  OK(parse_deeper(p));
  p->t++;
  node *operand;
  OK(parse_not(p, &operand) && wrap(p, N_NOT, operand, NULL, out));
  p->nesting--;
  return true;
}

static bool parse_and(parser *p, node **out)
{
  OK(parse_not(p, out));
  while (parse_skip_name(p, "and")) {
    node *right;
    OK(parse_not(p, &right) && wrap(p, N_AND, *out, right, out));
  }
  return true;
}

static bool parse_or(parser *p, node **out)
{
  OK(parse_and(p, out));
  while (parse_skip_name(p, "or")) {
    node *right;
    OK(parse_and(p, &right) && wrap(p, N_OR, *out, right, out));
  }
  return true;
}

bool parse_expression(parser *p, bool conditional, node **out)
{
  OK(parse_deeper(p) && parse_or(p, out));
  while (conditional && parse_skip_name(p, "if")) {
    node *test, *otherwise = NULL, *n;
    OK(parse_or(p, &test));
    if (parse_skip_name(p, "else"))
      OK(parse_expression(p, true, &otherwise));
    OK(wrap(p, N_COND, test, *out, &n));
    n->c = otherwise;
    parse_grow(n, otherwise);
    *out = n;
  }
  p->nesting--;
  return true;
}

/* ---- tuples and targets ---- */

static bool tuple_ends(const parser *p)
{
  return p->t->kind == T_VAR_END || p->t->kind == T_BLOCK_END || p->t->kind == T_RPAREN;
}

/* Items separated by commas. simplified: names and literals only, as targets are. */
static bool parse_items(parser *p, bool simplified, bool conditional, bool namespaces, bool parentheses, node **out)
{
  nodes list = {0};
  bool is_tuple = false;
  int line = p->t->line;
  for (;;) {
    if (list.n)
      OK(parse_expect(p, T_COMMA));
    if (tuple_ends(p))
      break;
    node *item = NULL; /* the analyser does not see that success sets it */
    if (simplified)
      OK(parse_primary(p, namespaces, &item));
    else
      OK(parse_expression(p, conditional, &item));
    OK(parse_append(p, &list, item));
    if (p->t->kind != T_COMMA)
      break;
    is_tuple = true;
  }
  if (!is_tuple && list.n == 1) {
    *out = list.v[0];
    return true;
  }
  if (!is_tuple && !parentheses) {
    char text[80];
    parse_describe(p->t, text, sizeof text);
    return parse_fail(p, p->t->line, "Expected an expression, got '%s'", text);
  }
  node *n = parse_new(p, N_TUPLE, line);
  OK(n);
  n->items = list;
  for (size_t i = 0; i < list.n; i++)
    parse_grow(n, list.v[i]);
  *out = n;
  return true;
}

bool parse_tuple(parser *p, bool conditional, bool parentheses, node **out)
{
  return parse_items(p, false, conditional, false, parentheses, out);
}

/* Marks what can be assigned to, and refuses the rest. */
static bool make_target(parser *p, node *n)
{
  switch (n->kind) {
  case N_NAME:
    n->store = true;
    if (p->fors > 0 && ts_is(n->name, "loop"))
      return parse_fail(p, n->line, "Can't assign to special loop variable in for-loop target");
    return true;
  case N_NSREF:
    return true;
  case N_TUPLE:
    for (size_t i = 0; i < n->items.n; i++)
      OK(make_target(p, n->items.v[i]));
    return true;
  case N_CONST:
    return parse_fail(p, n->line, "can't assign to 'const'");
  default:
    return parse_fail(p, n->line, "can't assign to an expression");
  }
}

bool parse_target(parser *p, bool namespaces, node **out)
{
  return parse_items(p, true, true, namespaces, false, out) && make_target(p, *out);
}

bool parse_name_target(parser *p, node **out)
{
  const token *t = p->t;
  OK(parse_expect(p, T_NAME));
  tv unused;
  if (constant_name(t->value.s, &unused))
    return parse_fail(p, t->line, "can't assign to '%.*s'", (int)t->value.s->n, t->value.s->s);
  *out = parse_new(p, N_NAME, t->line);
  OK(*out);
  (*out)->name = t->value.s;
  (*out)->store = true;
  return true;
}
