/* tmpl_value.h - values of the template language, and the context that one compilation or one rendering carries.
 *
 * Values follow Python: undefined is not none, a bool is an int, strings count code points, dicts keep insertion order.
 * A tv is 16 bytes, passed by value. Everything it points to lives in the arena of the context that made it and is
 * never changed once it is visible to a template (namespaces, loops and one-pass iterators excepted), so sharing is
 * free.
 *
 * Errors. Inside the engine functions return false after having set the error line in the context: the status travels
 * in the context because nearly every call can fail and none recovers. Public entry points turn it into tern_status.
 *
 * Prefixes: rt_ context, tv_ values, ts_ strings, tb_ string builder, td_ dicts, tn_ numbers, ti_ iterators.
 */
#ifndef TERN_TEXT_TMPL_VALUE_H
#define TERN_TEXT_TMPL_VALUE_H

#include "base/mem.h"
#include "text/tmpl.h"

/* Passes a failure up. */
#define OK(expression)                                                                                                 \
  do {                                                                                                                 \
    if (!(expression))                                                                                                 \
      return false;                                                                                                    \
  } while (0)

enum {
  TMPL_MAX_DEPTH = 4000,       /* nested evaluations of one rendering, macro recursion included */
  TMPL_MAX_NESTING = 150,      /* brackets and blocks inside each other in a source */
  TMPL_MAX_HEIGHT = 1000,      /* operators chained in one expression */
  TMPL_MAX_RANGE = 100000,     /* items of one range(), as in the reference */
  TMPL_MAX_JSON_DEPTH = 900,   /* nesting of JSON read and written */
  TMPL_MAX_SOURCE = 16 << 20,  /* bytes of a template */
  TMPL_MAX_MEMORY = 512 << 20, /* bytes one rendering may use, its output included */
  TMPL_MAX_STEPS = 5000000,    /* evaluations of one rendering: thousands are usual, this is half a second of work */
  TMPL_MAX_WALK = 256 << 20,   /* bytes that one rendering may look at one by one */
};

typedef enum tv_type {
  TV_MISSING = 0, /* no value at all: an unset variable, an argument not given */
  TV_UNDEF,
  TV_NONE,
  TV_BOOL,
  TV_INT,
  TV_BIG, /* an integer beyond 64 bits, as decimal digits */
  TV_FLOAT,
  TV_STR,
  TV_LIST,
  TV_TUPLE,
  TV_DICT,
  TV_RANGE,
  TV_VIEW, /* d.keys(), d.values(), d.items(); kind says which */
  TV_ITER, /* a one-pass iterator */
  TV_NS,
  TV_MACRO,
  TV_METHOD, /* a builtin method bound to its object */
  TV_FUNC,   /* a global function; kind says which */
  TV_LOOP,
  TV_CYCLER,
  TV_JOINER,
} tv_type;

enum { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

typedef struct tmpl_rt tmpl_rt;
typedef struct tv tv;
typedef struct tstr tstr;
typedef struct tbig tbig;
typedef struct tundef tundef;
typedef struct tlist tlist;
typedef struct tdict tdict;
typedef struct trange trange;
typedef struct titer titer;
typedef struct tmacro tmacro;
typedef struct tmethod tmethod;
typedef struct tloop tloop;
typedef struct tcycler tcycler;

struct tv {
  uint8_t type; /* tv_type */
  uint8_t kind;
  union {
    bool b;
    int64_t i;
    double f;
    const tstr *s;
    const tbig *g;
    const tundef *u;
    tlist *l;  /* list and tuple */
    tdict *d;  /* dict, view, namespace */
    trange *r; /* range */
    titer *it;
    tmacro *m;
    tmethod *bound;
    tloop *loop;
    tcycler *c; /* cycler and joiner */
  };
};

/* Room behind a string that a concatenation may grow into: makes s = s + x linear in the end. */
typedef struct troom {
  char *base;
  size_t used, size;
} troom;

struct tstr {
  const char *s; /* n bytes of valid UTF-8, not terminated */
  size_t n, chars;
  uint64_t hash; /* 0: not computed yet; always computed for strings of a template, which threads share */
  troom *room;
  bool markup; /* marked safe: the reference's Markup, which escapes what is added to it */
};

struct tbig {
  const char *digits; /* no leading zeros */
  size_t n;
  bool negative;
};

struct tundef {
  enum { UNDEF_NAME, UNDEF_ATTRIBUTE, UNDEF_HINT, UNDEF_UNSAFE } why;
  const char *text; /* HINT: the message; ATTRIBUTE and UNSAFE: the type of the object */
  tv name;          /* what was looked for */
};

struct tlist {
  tv *v;
  size_t n, capacity;
  bool group; /* a tuple of groupby: .grouper and .list name its halves */
};

typedef struct tentry {
  tv key, value;
  uint64_t hash;
} tentry;

struct tdict {
  tentry *e;
  size_t n, capacity;
  uint32_t *index; /* positions + 1; NULL while small */
  size_t index_size;
};

struct trange {
  int64_t start, stop, step;
  int64_t n;
};

struct titer {
  bool (*next)(tmpl_rt *r, titer *it, tv *out, bool *done);
  tv src;
  size_t pos, end;
  void *state;
};

struct tcycler {
  tlist *items;          /* cycler */
  const tstr *separator; /* joiner */
  size_t pos;
  bool used;
};

/* ---- context ---- */

struct tmpl_rt {
  arena mem;
  tern_error *err;
  tern_status status;
  const char *what; /* prefix of error lines: "template" */
  int line;         /* where the template is, 0: nowhere */
  unsigned depth;
  uint64_t steps;
  const tdict *vars;    /* the variables given */
  tdict *exported;      /* top-level assignments, kept only for templates with blocks */
  const struct tmpl *t; /* the template being rendered */
  tmpl_clock clock;
};

void rt_init(tmpl_rt *r, tern_error *err);
void rt_free(tmpl_rt *r);
/* Sets the line "template: line N: ..." unless an error is there already. The macros give false, so that the compiler
 * sees it too. */
void rt_set_error(tmpl_rt *r, tern_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define rt_fail_status(r, ...) (rt_set_error(r, __VA_ARGS__), false)
#define rt_fail(r, ...) (rt_set_error(r, TERN_E_TEMPLATE, __VA_ARGS__), false)
bool rt_nomem(tmpl_rt *r);
void *rt_alloc(tmpl_rt *r, size_t size);               /* NULL: failed, error set */
void *rt_zalloc(tmpl_rt *r, size_t size);              /* zeroed */
void *rt_array(tmpl_rt *r, size_t count, size_t size); /* zeroed, overflow checked */
bool rt_step(tmpl_rt *r, uint64_t n);                  /* counts work; false: too much */
/* Count n bytes that one operation touches, so that its time is bounded too. A failure stays: what ignores it here
 * fails at the next step. */
static inline bool rt_scan(tmpl_rt *r, size_t n) /* at the speed of memory */
{
  return rt_step(r, n / (8 * (TMPL_MAX_WALK / TMPL_MAX_STEPS)));
}
static inline bool rt_walk(tmpl_rt *r, size_t n) /* character by character */
{
  return rt_step(r, n / (TMPL_MAX_WALK / TMPL_MAX_STEPS));
}
bool rt_enter(tmpl_rt *r); /* one level deeper; false: too deep. Pairs with rt_leave */
static inline void rt_leave(tmpl_rt *r)
{
  r->depth--;
}

/* ---- plain values ---- */

static inline tv tv_none(void)
{
  return (tv){.type = TV_NONE};
}

static inline tv tv_bool(bool b)
{
  return (tv){.type = TV_BOOL, .b = b};
}

static inline tv tv_int(int64_t i)
{
  return (tv){.type = TV_INT, .i = i};
}

static inline tv tv_float(double f)
{
  return (tv){.type = TV_FLOAT, .f = f};
}

static inline tv tv_string(const tstr *s)
{
  return (tv){.type = TV_STR, .s = s};
}

static inline tv tv_seq(tv_type type, tlist *l)
{
  return (tv){.type = (uint8_t)type, .l = l};
}

static inline tv tv_dict(tdict *d)
{
  return (tv){.type = TV_DICT, .d = d};
}

static inline bool tv_is(tv v, tv_type type)
{
  return v.type == type;
}

static inline bool tv_given(tv v) /* an argument that was passed */
{
  return v.type != TV_MISSING;
}

/* Python's name of the type: "int", "str", "NoneType", "Undefined", ... */
const char *tv_type_name(tv v);
/* Undefined values of each kind. */
bool tv_undef_name(tmpl_rt *r, const tstr *name, tv *out);
bool tv_undef_attribute(tmpl_rt *r, tv object, tv name, tv *out);
bool tv_undef_unsafe(tmpl_rt *r, tv object, const tstr *name, tv *out);
bool tv_undef_hint(tmpl_rt *r, const char *text, tv *out);
/* The error that using it is. Always false. */
bool tv_fail_undefined(tmpl_rt *r, tv v);

/* ---- strings ---- */

/* Copies n bytes of valid UTF-8. */
bool ts_new(tmpl_rt *r, const char *s, size_t n, tv *out);
/* Borrows them: they must live as long as the context. */
bool ts_ref(tmpl_rt *r, const char *s, size_t n, tv *out);
bool ts_cstr(tmpl_rt *r, const char *s, tv *out); /* a literal */
/* Part of a string by bytes; keeps the markup flag. */
bool ts_slice(tmpl_rt *r, const tstr *s, size_t from, size_t to, tv *out);
bool ts_markup(tmpl_rt *r, const tstr *s, bool markup, tv *out);   /* the same text, flag as given */
bool ts_concat(tmpl_rt *r, const tstr *a, const tstr *b, tv *out); /* bytes only: no escaping; not markup */
/* HTML escaping of the five characters; the result is markup. */
bool ts_escape(tmpl_rt *r, const tstr *s, tv *out);
uint64_t ts_hash(const tstr *s);
bool ts_equal(const tstr *a, const tstr *b);
bool ts_is(const tstr *s, const char *literal);
int ts_compare(const tstr *a, const tstr *b); /* by code points */
/* Byte offset of the code point `index` (0..chars). */
size_t ts_offset(tmpl_rt *r, const tstr *s, size_t index);
/* Offset of the first occurrence of b in a at or after `from`, or SIZE_MAX. */
size_t ts_find(tmpl_rt *r, const tstr *a, const tstr *b, size_t from);
/* The last occurrence that ends at or before `before`. */
size_t ts_rfind(tmpl_rt *r, const tstr *a, const tstr *b, size_t before);

/* ---- string builder: grows inside the arena, so that a failure leaks nothing ---- */

typedef struct tbuf {
  tmpl_rt *r;
  char *s;
  size_t n, size;
  bool failed; /* the error is set in r */
} tbuf;

void tb_add(tbuf *b, const char *s, size_t n);
void tb_adds(tbuf *b, const char *s);
void tb_addc(tbuf *b, char c);
void tb_char(tbuf *b, uint32_t c); /* a code point */
void tb_fill(tbuf *b, uint32_t c, size_t count);
void tb_str(tbuf *b, const tstr *s);
bool tb_take(tbuf *b, tv *out); /* the string; false if anything failed */

/* ---- lists and dicts ---- */

bool tl_new(tmpl_rt *r, size_t capacity, tlist **out);
bool tl_add(tmpl_rt *r, tlist *l, tv v);
bool td_new(tmpl_rt *r, tdict **out);
/* Sets or replaces; a replaced entry keeps its place and its key. Fails for keys that have no hash. */
bool td_set(tmpl_rt *r, tdict *d, tv key, tv value);
bool td_set_cstr(tmpl_rt *r, tdict *d, const char *key, tv value);
/* *out is TV_MISSING where there is no such key. Fails for keys that have no hash. */
bool td_get(tmpl_rt *r, const tdict *d, tv key, tv *out);
const tv *td_find(const tdict *d, const tstr *key); /* NULL: not there */
const tv *td_find_cstr(const tdict *d, const char *key);
bool td_copy(tmpl_rt *r, const tdict *d, tdict **out);

/* ---- what every value can do ---- */

bool tv_truth(tv v);
bool tv_equal(tmpl_rt *r, tv a, tv b, bool *out);
bool tv_less(tmpl_rt *r, tv a, tv b, bool *out);       /* a < b, an error where Python has none */
bool tv_less_equal(tmpl_rt *r, tv a, tv b, bool *out); /* a <= b */
bool tv_hash(tmpl_rt *r, tv v, uint64_t *out);
bool tv_in(tmpl_rt *r, tv item, tv container, bool *out);
bool tv_length(tmpl_rt *r, tv v, int64_t *out);
bool tv_sized(tv v);
bool tv_subscript(tmpl_rt *r, tv object, tv key, tv *out,
                  bool *found); /* obj[key]; found false: TypeError or LookupError */
bool tv_slice(tmpl_rt *r, tv object, tv start, tv stop, tv step, tv *out);
bool tv_to_str(tmpl_rt *r, tv v, tv *out);   /* str(v), a plain string; markup keeps its text only */
bool tv_soft_str(tmpl_rt *r, tv v, tv *out); /* v itself where it is a string */
void tv_print(tbuf *b, tv v);                /* str(v) appended */
void tv_repr(tbuf *b, tv v);                 /* repr(v) appended */

typedef enum tv_op { OP_ADD, OP_SUB, OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD, OP_POW } tv_op;
bool tv_binary(tmpl_rt *r, tv_op op, tv a, tv b, tv *out);
bool tv_negate(tmpl_rt *r, tv v, tv *out);
bool tv_positive(tmpl_rt *r, tv v, tv *out);

/* Stable sort of n values by n keys. */
bool tv_sort(tmpl_rt *r, tv *values, const tv *keys, size_t n, bool reverse);

/* ---- numbers ---- */

static inline bool tv_is_integer(tv v) /* int, big or bool */
{
  return v.type == TV_INT || v.type == TV_BIG || v.type == TV_BOOL;
}

static inline bool tv_is_number(tv v)
{
  return tv_is_integer(v) || v.type == TV_FLOAT;
}

/* An int from decimal digits of any length. */
bool tn_from_digits(tmpl_rt *r, const char *digits, size_t n, bool negative, tv *out);
/* int(text, base); *ok false where Python raises ValueError. */
bool tn_parse_int(tmpl_rt *r, const char *s, size_t n, int base, tv *out, bool *ok);
bool tn_parse_float(tmpl_rt *r, const char *s, size_t n, double *out, bool *ok);
bool tn_from_double(tmpl_rt *r, double d, tv *out); /* int(d), d finite */
double tn_to_double(tv v);                          /* of any number; infinite if beyond */
/* repr(d): the shortest digits that read back. out holds 40. */
size_t tn_float_repr(double d, char *out);
/* -1, 0, 1; 2 where one is a NaN. Exact across int, big and float. */
int tn_compare(tv a, tv b);
uint64_t tn_hash(tv v);
bool tn_binary(tmpl_rt *r, tv_op op, tv a, tv b, tv *out);
bool tn_round(tmpl_rt *r, tv v, int64_t digits, tv *out);
/* A small integer argument; fails with the name of the argument. */
bool tn_index(tmpl_rt *r, tv v, const char *what, int64_t *out);

/* ---- iterators ---- */

/* iter(v); fails where v cannot be iterated. */
bool ti_open(tmpl_rt *r, tv v, titer **out);
bool ti_iterable(tv v);
static inline bool ti_next(tmpl_rt *r, titer *it, tv *out, bool *done)
{
  *done = false;
  if (!rt_enter(r)) /* iterators stack up */
    return false;
  bool ok = it->next(r, it, out, done);
  rt_leave(r);
  return ok;
}
bool ti_new(tmpl_rt *r, bool (*next)(tmpl_rt *, titer *, tv *, bool *), tv src, void *state, tv *out);
bool ti_reversed(tmpl_rt *r, tv v, tv *out); /* reversed(v) */
/* list(v) */
bool ti_list(tmpl_rt *r, tv v, tlist **out);
tv ti_range_at(const trange *range, int64_t i);
bool ti_pair(tmpl_rt *r, tv a, tv b, tv *out); /* the tuple (a, b) */

#endif
