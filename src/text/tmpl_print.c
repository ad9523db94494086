/* tmpl_print.c - str() and repr() of every value, as Python prints them. Objects that Python prints with an address
 * (methods, iterators, functions) are printed without: the address would make prompts differ from run to run. */
#include <stdio.h>

#include "base/utf8.h"
#include "text/tmpl_attr.h"
#include "text/tmpl_unicode.h"
#include "text/tmpl_value.h"

const char *tv_type_name(tv v)
{
  static const char *const names[] = {
      [TV_MISSING] = "missing", [TV_UNDEF] = "Undefined", [TV_NONE] = "NoneType",    [TV_BOOL] = "bool",
      [TV_INT] = "int",         [TV_BIG] = "int",         [TV_FLOAT] = "float",      [TV_STR] = "str",
      [TV_LIST] = "list",       [TV_TUPLE] = "tuple",     [TV_DICT] = "dict",        [TV_RANGE] = "range",
      [TV_VIEW] = "dict_view",  [TV_ITER] = "generator",  [TV_NS] = "Namespace",     [TV_MACRO] = "Macro",
      [TV_METHOD] = "method",   [TV_FUNC] = "function",   [TV_LOOP] = "LoopContext", [TV_CYCLER] = "Cycler",
      [TV_JOINER] = "Joiner",
  };
  static const char *const views[] = {"dict_keys", "dict_values", "dict_items"};
  if (v.type == TV_VIEW)
    return views[v.kind];
  if (v.type == TV_STR && v.s->markup)
    return "Markup";
  return names[v.type];
}

/* Double quotes only where the text has single ones and no double ones. */
static void repr_text(tbuf *b, const tstr *s)
{
  bool single = false, other = false;
  for (size_t i = 0; i < s->n; i++) {
    single = single || s->s[i] == '\'';
    other = other || s->s[i] == '"';
  }
  char quote = single && !other ? '"' : '\'';
  tb_addc(b, quote);
  for (size_t i = 0; i < s->n;) {
    uint32_t c;
    size_t used = utf8_decode(s->s + i, s->n - i, &c);
    char text[16];
    if (c == (uint32_t)quote || c == '\\') {
      tb_addc(b, '\\');
      tb_addc(b, (char)c);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      tb_adds(b, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    } else if (tu_is_printable(c)) {
      tb_add(b, s->s + i, used);
    } else {
      snprintf(text, sizeof text, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
      tb_adds(b, text);
    }
    i += used;
  }
  tb_addc(b, quote);
}

static void print_number(tbuf *b, tv v)
{
  char text[48];
  if (v.type == TV_BOOL) {
    tb_adds(b, v.b ? "True" : "False");
  } else if (v.type == TV_INT) {
    tb_add(b, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)v.i));
  } else if (v.type == TV_FLOAT) {
    tb_add(b, text, tn_float_repr(v.f, text));
  } else {
    if (v.g->negative)
      tb_addc(b, '-');
    tb_add(b, v.g->digits, v.g->n);
  }
}

static void repr_list(tbuf *b, const tlist *l, const char *open, const char *close)
{
  tb_adds(b, open);
  for (size_t i = 0; i < l->n && !b->failed; i++) {
    if (i)
      tb_adds(b, ", ");
    tv_repr(b, l->v[i]);
  }
  tb_adds(b, close);
}

static void repr_dict(tbuf *b, const tdict *d)
{
  tb_addc(b, '{');
  for (size_t i = 0; i < d->n && !b->failed; i++) {
    if (i)
      tb_adds(b, ", ");
    tv_repr(b, d->e[i].key);
    tb_adds(b, ": ");
    tv_repr(b, d->e[i].value);
  }
  tb_addc(b, '}');
}

static void repr_view(tbuf *b, tv v)
{
  tb_adds(b, tv_type_name(v));
  tb_adds(b, "([");
  for (size_t i = 0; i < v.d->n && !b->failed; i++) {
    const tentry *e = &v.d->e[i];
    if (i)
      tb_adds(b, ", ");
    if (v.kind == VIEW_ITEMS)
      tb_addc(b, '(');
    if (v.kind != VIEW_VALUES)
      tv_repr(b, e->key);
    if (v.kind == VIEW_ITEMS)
      tb_adds(b, ", ");
    if (v.kind != VIEW_KEYS)
      tv_repr(b, e->value);
    if (v.kind == VIEW_ITEMS)
      tb_addc(b, ')');
  }
  tb_adds(b, "])");
}

static void repr_range(tbuf *b, const trange *range)
{
  char text[80];
  if (range->step == 1)
    snprintf(text, sizeof text, "range(%lld, %lld)", (long long)range->start, (long long)range->stop);
  else
    snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)range->start, (long long)range->stop,
             (long long)range->step);
  tb_adds(b, text);
}

static void repr_object(tbuf *b, tv v)
{
  switch (v.type) {
  case TV_NS:
    tb_adds(b, "<Namespace ");
    repr_dict(b, v.d);
    tb_addc(b, '>');
    return;
  case TV_MACRO: {
    const tstr *name = tmacro_name(v.m);
    tb_adds(b, "<Macro ");
    if (name)
      repr_text(b, name);
    else
      tb_adds(b, "anonymous");
    tb_addc(b, '>');
    return;
  }
  case TV_METHOD:
    tb_adds(b, "<built-in method ");
    tb_adds(b, tmethod_name(v.bound));
    tb_adds(b, " of ");
    tb_adds(b, tv_type_name(tmethod_self(v.bound)));
    tb_adds(b, " object>");
    return;
  case TV_LOOP:
    tloop_repr(b, v.loop);
    return;
  default:
    tb_addc(b, '<');
    tb_adds(b, tv_type_name(v));
    tb_adds(b, " object>");
  }
}

void tv_repr(tbuf *b, tv v)
{
  if (b->failed || !rt_enter(b->r) || !rt_step(b->r, 1)) {
    b->failed = true;
    return;
  }
  switch (v.type) {
  case TV_MISSING:
  case TV_UNDEF:
    tb_adds(b, "Undefined");
    break;
  case TV_NONE:
    tb_adds(b, "None");
    break;
  case TV_BOOL:
  case TV_INT:
  case TV_BIG:
  case TV_FLOAT:
    print_number(b, v);
    break;
  case TV_STR:
    if (v.s->markup)
      tb_adds(b, "Markup(");
    repr_text(b, v.s);
    if (v.s->markup)
      tb_addc(b, ')');
    break;
  case TV_LIST:
    repr_list(b, v.l, "[", "]");
    break;
  case TV_TUPLE:
    repr_list(b, v.l, "(", v.l->n == 1 ? ",)" : ")");
    break;
  case TV_DICT:
    repr_dict(b, v.d);
    break;
  case TV_RANGE:
    repr_range(b, v.r);
    break;
  case TV_VIEW:
    repr_view(b, v);
    break;
  default:
    repr_object(b, v);
  }
  rt_leave(b->r);
}

void tv_print(tbuf *b, tv v)
{
  if (v.type == TV_STR)
    tb_str(b, v.s);
  else if (v.type != TV_UNDEF)
    tv_repr(b, v);
}

bool tv_soft_str(tmpl_rt *r, tv v, tv *out)
{
  if (v.type == TV_STR) {
    *out = v;
    return true;
  }
  tbuf b = {.r = r};
  tv_print(&b, v);
  return tb_take(&b, out);
}

bool tv_to_str(tmpl_rt *r, tv v, tv *out)
{
  if (v.type == TV_STR)
    return ts_markup(r, v.s, false, out);
  return tv_soft_str(r, v, out);
}
