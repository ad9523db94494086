/* tmpl_scope.c - decides at compile time which variable each name means, by the rules of Jinja's own compiler.
 *
 * The rules have consequences that templates rely on, knowingly or not:
 *   - A loop body, a macro, a with or set block has its own scope; an if has not. Assigning in a scope makes a new
 *     variable there, which starts as a copy of the outer one of that name (an alias), or unset.
 *   - A name that no scope around assigns is looked up in the variables of the rendering when its scope is entered.
 *   - A name that a scope assigns anywhere belongs to that scope throughout: inner scopes that read it before the
 *     assignment ran see nothing, not the rendering's variable of that name.
 *   - A macro is a closure: it sees the current values of the scopes it was written in.
 *
 * Two passes per scope, as in the original: `note_*` walks a scope's code and collects its symbols (inner scopes are
 * not entered), then `bind_*` walks it again and writes slots into names, doing both for each inner scope as it meets
 * it. Variables of one function at one nesting level share a slot by name, again as in the original. */
#include <string.h>

#include "text/tmpl_ast.h"
#include "text/tmpl_filters.h"

typedef struct symbol {
  const tstr *name;
  bool ref, stored;
  load_action action;
  int hops, from; /* of an alias */
} symbol;

typedef struct function {
  struct function *outer;
  struct slot_name {
    const tstr *name;
    int level;
  } * names;
  size_t n, capacity;
} function;

typedef struct symbols {
  struct symbols *parent;
  function *fn;
  int level;
  symbol *v;
  size_t n, capacity;
} symbols;

typedef struct binder {
  tmpl_rt *r;
  tmpl *t;
} binder;

/* Where code stands: its symbols, whether it runs at top level, and whether it may never run (inside an if). */
typedef struct place {
  symbols *s;
  bool top, soft;
} place;

/* ---- symbols: a name is looked for one by one, which is counted as work: a template has dozens of names ---- */

static int slot_of(binder *b, function *fn, const tstr *name, int level)
{
  for (size_t i = 0; i < fn->n; i++) {
    if (fn->names[i].level == level && ts_equal(fn->names[i].name, name))
      return (int)i;
    if (i % 4 == 3 && !rt_step(b->r, 1))
      return -1;
  }
  if (fn->n == fn->capacity) {
    size_t capacity = fn->capacity ? fn->capacity * 2 : 16;
    struct slot_name *grown = rt_array(b->r, capacity, sizeof *grown);
    if (!grown)
      return -1;
    if (fn->n)
      memcpy(grown, fn->names, fn->n * sizeof *grown);
    fn->names = grown;
    fn->capacity = capacity;
  }
  fn->names[fn->n] = (struct slot_name){name, level};
  return (int)fn->n++;
}

static symbol *find_symbol(binder *b, symbols *s, const tstr *name)
{
  for (size_t i = 0; i < s->n; i++) {
    if (ts_equal(s->v[i].name, name))
      return &s->v[i];
    if (i % 4 == 3 && !rt_step(b->r, 1))
      break;
  }
  return NULL;
}

static bool get_symbol(binder *b, symbols *s, const tstr *name, symbol **out)
{
  *out = find_symbol(b, s, name);
  if (*out)
    return true;
  OK(b->r->status == TERN_OK);
  if (s->n == s->capacity) {
    size_t capacity = s->capacity ? s->capacity * 2 : 16;
    symbol *grown = rt_array(b->r, capacity, sizeof *grown);
    OK(grown);
    if (s->n)
      memcpy(grown, s->v, s->n * sizeof *grown);
    s->v = grown;
    s->capacity = capacity;
  }
  s->v[s->n] = (symbol){.name = name};
  *out = &s->v[s->n++];
  return true;
}

/* The scope, from s outward, that has the name. */
static symbols *find_ref(binder *b, symbols *s, const tstr *name)
{
  for (; s; s = s->parent) {
    symbol *found = find_symbol(b, s, name);
    if (found && found->ref)
      return s;
  }
  return NULL;
}

static int hops_between(const function *from, const function *to)
{
  int hops = 0;
  for (; from != to; from = from->outer)
    hops++;
  return hops;
}

static bool alias_or(binder *b, symbols *s, symbol *x, load_action otherwise)
{
  symbols *outer = s->parent ? find_ref(b, s->parent, x->name) : NULL;
  x->ref = true;
  x->action = otherwise;
  if (outer) {
    x->action = LOAD_ALIAS;
    x->hops = hops_between(s->fn, outer->fn);
    x->from = slot_of(b, outer->fn, x->name, outer->level);
    OK(x->from >= 0);
  }
  return true;
}

static bool note_store(binder *b, symbols *s, const tstr *name)
{
  symbol *x;
  OK(get_symbol(b, s, name, &x));
  x->stored = true;
  return x->ref || alias_or(b, s, x, LOAD_UNSET);
}

static bool note_parameter(binder *b, symbols *s, const tstr *name)
{
  symbol *x;
  OK(get_symbol(b, s, name, &x));
  x->stored = x->ref = true;
  x->action = LOAD_PARAM;
  return true;
}

static bool note_load(binder *b, symbols *s, const tstr *name)
{
  if (find_ref(b, s, name))
    return true;
  symbol *x;
  OK(get_symbol(b, s, name, &x));
  x->ref = true;
  x->action = LOAD_RESOLVE;
  return true;
}

/* ---- first pass: what a scope's own code loads and stores ---- */

static bool note(binder *b, symbols *s, node *n, bool as_parameter);

static bool note_all(binder *b, symbols *s, const nodes *list)
{
  for (size_t i = 0; i < list->n; i++)
    OK(note(b, s, list->v[i], false));
  return true;
}

static bool copy_symbols(binder *b, const symbols *s, symbols *out)
{
  *out = *s;
  out->v = rt_array(b->r, s->capacity ? s->capacity : 1, sizeof *s->v);
  OK(out->v);
  if (s->n)
    memcpy(out->v, s->v, s->n * sizeof *s->v);
  return true;
}

/* Takes over what a branch noted; *news collects the names that only branches store. */
static bool merge_branch(binder *b, symbols *s, const symbols *branch)
{
  for (size_t i = 0; i < branch->n; i++) {
    symbol *x;
    OK(get_symbol(b, s, branch->v[i].name, &x));
    bool stored = x->stored;
    *x = branch->v[i];
    x->stored = stored || branch->v[i].stored;
  }
  return true;
}

/* The branches of an if share the scope, but a name stored in one of them may stay unset: it then means what it meant
 * outside. */
static bool note_if(binder *b, symbols *s, node *n)
{
  symbols before, body, elifs, otherwise;
  OK(note(b, s, n->a, false));
  OK(copy_symbols(b, s, &before) && copy_symbols(b, s, &body) && copy_symbols(b, s, &elifs));
  OK(copy_symbols(b, s, &otherwise));
  OK(note_all(b, &body, &n->items));
  for (node *e = n->b; e; e = e->b) { /* an elif is an if of its own inside the second branch */
    symbols part;
    OK(note(b, &elifs, e->a, false) && copy_symbols(b, &elifs, &part) && note_all(b, &part, &e->items));
    symbols was;
    OK(copy_symbols(b, &elifs, &was) && merge_branch(b, &elifs, &part));
    for (size_t i = 0; i < elifs.n; i++) {
      symbol *x = &elifs.v[i], *old = find_symbol(b, &was, x->name);
      if (x->stored && !(old && old->stored))
        OK(alias_or(b, &elifs, x, LOAD_RESOLVE));
    }
  }
  node *last = n;
  while (last->b)
    last = last->b;
  OK(note_all(b, &otherwise, &last->more));
  OK(merge_branch(b, s, &body) && merge_branch(b, s, &elifs) && merge_branch(b, s, &otherwise));
  for (size_t i = 0; i < s->n; i++) {
    symbol *x = &s->v[i], *old = find_symbol(b, &before, x->name);
    if (x->stored && !(old && old->stored))
      OK(alias_or(b, s, x, LOAD_RESOLVE));
  }
  return true;
}

static bool note_statement(binder *b, symbols *s, node *n)
{
  switch (n->kind) {
  case N_OUTPUT:
    return note(b, s, n->a, false);
  case N_IF:
    return note_if(b, s, n);
  case N_FOR:
    return note(b, s, n->b, false);
  case N_SET:
    return note(b, s, n->b, false) && note(b, s, n->a, false);
  case N_SETBLOCK:
    return note(b, s, n->a, false);
  case N_WITH:
    for (size_t i = 1; i < n->items.n; i += 2)
      OK(note(b, s, n->items.v[i], false));
    return true;
  case N_MACRO:
    return note_store(b, s, n->name);
  case N_CALLBLOCK:
  case N_FILTERBLOCK:
    return note(b, s, n->a, false);
  default:
    return true;
  }
}

static bool note(binder *b, symbols *s, node *n, bool as_parameter)
{
  if (!n)
    return true;
  switch (n->kind) {
  case N_NAME:
    if (as_parameter)
      return note_parameter(b, s, n->name);
    return n->store ? note_store(b, s, n->name) : note_load(b, s, n->name);
  case N_NSREF:
    return note_load(b, s, n->name);
  case N_TUPLE:
    for (size_t i = 0; i < n->items.n; i++)
      OK(note(b, s, n->items.v[i], as_parameter));
    return true;
  default:
    break;
  }
  if (n->kind >= N_DATA)
    return note_statement(b, s, n);
  return note(b, s, n->a, false) && note(b, s, n->b, false) && note(b, s, n->c, false) && note_all(b, s, &n->items) &&
         note_all(b, s, &n->kws) && note(b, s, n->star, false) && note(b, s, n->star2, false);
}

/* ---- which of `caller`, `kwargs`, `varargs` a macro's body reads without ever having set them ---- */

enum { SPECIALS = 3 };
static const char *const special_names[SPECIALS] = {"caller", "kwargs", "varargs"};

typedef struct search {
  bool open[SPECIALS], found[SPECIALS];
} search;

static void search_name(search *f, const tstr *name, bool load)
{
  for (int i = 0; i < SPECIALS; i++) {
    if (!f->open[i] || !ts_is(name, special_names[i]))
      continue;
    if (load)
      f->found[i] = true;
    else
      f->open[i] = false;
  }
}

static void search_tree(search *f, const node *n);

static void search_all(search *f, const nodes *list)
{
  for (size_t i = 0; i < list->n; i++)
    search_tree(f, list->v[i]);
}

/* In the order in which the fields of the original's nodes come. */
static void search_tree(search *f, const node *n)
{
  if (!n || n->kind == N_BLOCK)
    return;
  switch (n->kind) {
  case N_NAME:
    search_name(f, n->name, !n->store);
    return;
  case N_MACRO:
  case N_CALLBLOCK:
  case N_GENERATION:
    search_tree(f, n->a);
    for (size_t i = 0; i < n->items.n; i++)
      search_name(f, n->items.v[i]->name, false);
    search_all(f, &n->more);
    search_all(f, &n->body);
    return;
  case N_FOR:
    search_tree(f, n->a);
    search_tree(f, n->b);
    search_all(f, &n->items);
    search_all(f, &n->more);
    search_tree(f, n->c);
    return;
  case N_IF:
    for (; n; n = n->b) { /* the else of a chain hangs on its last elif */
      search_tree(f, n->a);
      search_all(f, &n->items);
      search_all(f, &n->more);
    }
    return;
  case N_WITH:
    for (size_t i = 0; i < n->items.n; i += 2)
      search_tree(f, n->items.v[i]);
    for (size_t i = 1; i < n->items.n; i += 2)
      search_tree(f, n->items.v[i]);
    search_all(f, &n->more);
    return;
  case N_FILTERBLOCK:
    search_all(f, &n->items);
    search_tree(f, n->a);
    return;
  default:
    search_tree(f, n->a);
    search_tree(f, n->b);
    search_tree(f, n->c);
    search_all(f, &n->items);
    search_all(f, &n->kws);
    search_tree(f, n->star);
    search_tree(f, n->star2);
  }
}

/* ---- second pass ---- */

static bool bind_all(binder *b, place at, const nodes *list);

static bool ref_of(binder *b, symbols *s, const tstr *name, int *hops, int *slot)
{
  symbols *owner = find_ref(b, s, name);
  if (!owner)
    return rt_fail_status(b->r, TERN_E_INTERNAL, "the name '%.*s' was not resolved", (int)name->n, name->s);
  *hops = hops_between(s->fn, owner->fn);
  *slot = slot_of(b, owner->fn, name, owner->level);
  return *slot >= 0;
}

static bool finish_scope(binder *b, const symbols *s, tscope *out)
{
  out->loads = rt_array(b->r, s->n ? s->n : 1, sizeof *out->loads);
  OK(out->loads);
  out->n = 0;
  for (size_t i = 0; i < s->n; i++) {
    const symbol *x = &s->v[i];
    if (x->action == LOAD_NONE)
      continue;
    int slot = slot_of(b, s->fn, x->name, s->level);
    OK(slot >= 0);
    out->loads[out->n++] =
        (tload){.action = x->action, .slot = slot, .name = x->name, .hops = x->hops, .from = x->from};
  }
  return true;
}

static symbols inner(symbols *outer)
{
  return (symbols){.parent = outer, .fn = outer->fn, .level = outer->level + 1};
}

/* Symbols of code that is a function of its own. */
static bool inner_function(binder *b, symbols *outer, symbols *out, tfunc **fn)
{
  function *f = rt_zalloc(b->r, sizeof *f);
  *fn = rt_zalloc(b->r, sizeof **fn);
  OK(f && *fn);
  f->outer = outer ? outer->fn : NULL;
  **fn = (tfunc){.caller = -1, .kwargs = -1, .varargs = -1, .loop = -1};
  *out = (symbols){.parent = outer, .fn = f, .level = outer ? outer->level + 1 : 0};
  return true;
}

static bool find_entry(binder *b, node *n, bool soft)
{
  bool filter = n->kind == N_FILTER;
  n->entry = filter ? (const void *)tfilter_find(n->name) : (const void *)ttest_find(n->name);
  if (n->entry || soft) /* inside a branch it is an error only if reached */
    return true;
  b->r->line = n->line;
  return rt_fail(b->r, "No %s named '%.*s'", filter ? "filter" : "test", (int)n->name->n, n->name->s);
}

static bool bind_expression(binder *b, place at, node *n)
{
  if (!n)
    return true;
  if (n->kind == N_NAME || n->kind == N_NSREF)
    return ref_of(b, at.s, n->name, &n->hops, &n->slot);
  if (n->kind == N_FILTER || n->kind == N_TEST)
    OK(find_entry(b, n, at.soft));
  if (n->kind == N_COND)
    at.soft = true;
  OK(bind_expression(b, at, n->a) && bind_expression(b, at, n->b) && bind_expression(b, at, n->c));
  for (size_t i = 0; i < n->items.n; i++)
    OK(bind_expression(b, at, n->items.v[i]));
  for (size_t i = 0; i < n->kws.n; i++)
    OK(bind_expression(b, at, n->kws.v[i]));
  return bind_expression(b, at, n->star) && bind_expression(b, at, n->star2);
}

static bool special_parameter(binder *b, symbols *s, const char *name, int *slot)
{
  tv text;
  OK(ts_cstr(b->r, name, &text) && note_parameter(b, s, text.s));
  *slot = slot_of(b, s->fn, text.s, s->level);
  return *slot >= 0;
}

/* A macro, call block or generation block: parameters in items, defaults in more, code in body. */
static bool bind_macro(binder *b, place at, node *n)
{
  symbols s;
  OK(inner_function(b, at.s, &s, &n->fn));
  for (size_t i = 0; i < n->items.n; i++)
    OK(note_parameter(b, &s, n->items.v[i]->name));
  OK(note_all(b, &s, &n->more) && note_all(b, &s, &n->body));
  search f = {.open = {true, true, true}};
  search_all(&f, &n->body);
  bool taken[SPECIALS] = {false};
  for (size_t i = 0; i < n->items.n; i++)
    for (int k = 0; k < SPECIALS; k++)
      if (ts_is(n->items.v[i]->name, special_names[k])) {
        taken[k] = true;
        if (k == 0 && f.found[0] && i + n->more.n < n->items.n) {
          b->r->line = n->line;
          return rt_fail(b->r, "When defining macros or call blocks the special \"caller\" argument must be omitted or "
                               "be given a default");
        }
      }
  n->fn->explicit_caller = taken[0];
  int *const slots[SPECIALS] = {&n->fn->caller, &n->fn->kwargs, &n->fn->varargs};
  for (int k = 0; k < SPECIALS; k++)
    if (f.found[k] && !taken[k])
      OK(special_parameter(b, &s, special_names[k], slots[k]));
  place inside = {.s = &s};
  for (size_t i = 0; i < n->items.n; i++)
    OK(bind_expression(b, inside, n->items.v[i]));
  for (size_t i = 0; i < n->more.n; i++)
    OK(bind_expression(b, inside, n->more.v[i]));
  OK(bind_all(b, inside, &n->body) && finish_scope(b, &s, &n->fn->scope));
  n->fn->slots = (int)s.fn->n;
  return true;
}

static node *copy_target(binder *b, const node *target)
{
  node *copy = rt_alloc(b->r, sizeof *copy);
  if (!copy)
    return NULL;
  *copy = *target;
  copy->items.v = rt_array(b->r, target->items.n + 1, sizeof *copy->items.v);
  if (!copy->items.v)
    return NULL;
  for (size_t i = 0; i < target->items.n; i++)
    if (!(copy->items.v[i] = copy_target(b, target->items.v[i])))
      return NULL;
  return copy;
}

/* The filter of a loop is a function of its own, with its own copy of the loop's target. */
static bool bind_loop_filter(binder *b, place at, node *n)
{
  symbols s;
  n->star = copy_target(b, n->a);
  OK(n->star && inner_function(b, at.s, &s, &n->fn2));
  OK(note(b, &s, n->star, true) && note(b, &s, n->c, false));
  place inside = {.s = &s};
  OK(bind_expression(b, inside, n->c) && bind_expression(b, inside, n->star));
  OK(finish_scope(b, &s, &n->fn2->scope));
  n->fn2->slots = (int)s.fn->n;
  return true;
}

static bool loop_parameter(binder *b, symbols *s, int *slot)
{
  return special_parameter(b, s, "loop", slot);
}

static bool bind_for(binder *b, place at, node *n)
{
  OK(bind_expression(b, at, n->b));
  if (n->c)
    OK(bind_loop_filter(b, at, n));
  symbols body, otherwise;
  if (n->flag) {
    OK(inner_function(b, at.s, &body, &n->fn));
    otherwise = (symbols){.parent = at.s, .fn = body.fn, .level = body.level};
  } else {
    body = inner(at.s);
    otherwise = inner(at.s);
  }
  OK(loop_parameter(b, &body, &n->loop_slot) && note(b, &body, n->a, true) && note_all(b, &body, &n->items));
  OK(note_all(b, &otherwise, &n->more));
  OK(bind_expression(b, (place){.s = &body}, n->a) && bind_all(b, (place){.s = &body}, &n->items));
  OK(bind_all(b, (place){.s = &otherwise}, &n->more));
  OK(finish_scope(b, &body, &n->scope) && finish_scope(b, &otherwise, &n->scope2));
  if (n->flag)
    n->fn->slots = (int)body.fn->n;
  return true;
}

static bool bind_if(binder *b, place at, node *n)
{
  at.soft = true;
  for (; n; n = n->b)
    OK(bind_expression(b, at, n->a) && bind_all(b, at, &n->items) && bind_all(b, at, &n->more));
  return true;
}

static bool bind_set_block(binder *b, place at, node *n)
{
  symbols s = inner(at.s);
  place inside = {.s = &s};
  OK(note_all(b, &s, &n->items) && note(b, &s, n->b, false));
  OK(bind_expression(b, at, n->a) && bind_all(b, inside, &n->items) && bind_expression(b, inside, n->b));
  n->flag = at.top && b->t->has_blocks;
  return finish_scope(b, &s, &n->scope);
}

static bool bind_with(binder *b, place at, node *n)
{
  symbols s = inner(at.s);
  place inside = {.s = &s};
  for (size_t i = 0; i < n->items.n; i += 2)
    OK(note(b, &s, n->items.v[i], true));
  OK(note_all(b, &s, &n->more));
  for (size_t i = 0; i < n->items.n; i += 2)
    OK(bind_expression(b, inside, n->items.v[i]) && bind_expression(b, at, n->items.v[i + 1]));
  return bind_all(b, inside, &n->more) && finish_scope(b, &s, &n->scope);
}

static bool bind_filter_block(binder *b, place at, node *n)
{
  symbols s = inner(at.s);
  place inside = {.s = &s};
  OK(note_all(b, &s, &n->items) && note(b, &s, n->a, false));
  return bind_all(b, inside, &n->items) && bind_expression(b, inside, n->a) && finish_scope(b, &s, &n->scope);
}

/* A block stands alone: it sees top-level names through the rendering's variables only. */
static bool bind_block(binder *b, node *n)
{
  symbols s;
  OK(inner_function(b, NULL, &s, &n->fn) && note_all(b, &s, &n->items));
  OK(bind_all(b, (place){.s = &s}, &n->items) && finish_scope(b, &s, &n->fn->scope));
  n->fn->slots = (int)s.fn->n;
  return true;
}

static bool bind_statement(binder *b, place at, node *n)
{
  switch (n->kind) {
  case N_OUTPUT:
    return bind_expression(b, at, n->a);
  case N_IF:
    return bind_if(b, at, n);
  case N_FOR:
    return bind_for(b, at, n);
  case N_SET:
    n->flag = at.top && b->t->has_blocks;
    return bind_expression(b, at, n->b) && bind_expression(b, at, n->a);
  case N_SETBLOCK:
    return bind_set_block(b, at, n);
  case N_WITH:
    return bind_with(b, at, n);
  case N_MACRO:
    n->flag = at.top && b->t->has_blocks;
    return ref_of(b, at.s, n->name, &n->hops, &n->slot) && bind_macro(b, at, n);
  case N_CALLBLOCK:
    return bind_expression(b, at, n->a) && bind_macro(b, at, n);
  case N_GENERATION:
    return bind_macro(b, at, n);
  case N_FILTERBLOCK:
    return bind_filter_block(b, at, n);
  case N_BLOCK:
    return bind_block(b, n);
  default:
    return true;
  }
}

static bool bind_all(binder *b, place at, const nodes *list)
{
  for (size_t i = 0; i < list->n; i++)
    OK(bind_statement(b, at, list->v[i]));
  return true;
}

bool tmpl_bind(tmpl *t)
{
  binder b = {.r = &t->mem, .t = t};
  tfunc *fn;
  symbols s;
  OK(inner_function(&b, NULL, &s, &fn) && note_all(&b, &s, &t->body));
  OK(bind_all(&b, (place){.s = &s, .top = true}, &t->body) && finish_scope(&b, &s, &fn->scope));
  fn->slots = (int)s.fn->n;
  t->fn = *fn;
  return true;
}
