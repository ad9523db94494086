/* tmpl_ast.h - the parse tree of a template, and what the scope pass writes into it.
 *
 * One node type with general fields; the table below says which kind uses which. A finished tree is never changed.
 *
 * Names. Jinja compiles templates to Python functions and decides at compile time which variable a name means; the same
 * is done here. Code runs in functions: the template itself, every macro, call block, block, recursive loop and loop
 * filter. Each call of one has a frame of slots; a name is (hops outward, slot). A scope is a stretch of code inside a
 * function (a loop body, a with block) with its own names; entering it runs its loads, leaving it clears them.
 */
#ifndef TERN_TEXT_TMPL_AST_H
#define TERN_TEXT_TMPL_AST_H

#include "text/tmpl_value.h"

typedef enum node_kind {
  /* expressions */
  N_CONST,   /* value */
  N_NAME,    /* name, store; hops, slot */
  N_NSREF,   /* name.attr: name, attr; hops, slot (assignment target only) */
  N_TUPLE,   /* items */
  N_LIST,    /* items */
  N_DICT,    /* items: key, value, key, value */
  N_BINARY,  /* op, a, b */
  N_AND,     /* a, b */
  N_OR,      /* a, b */
  N_NOT,     /* a */
  N_NEG,     /* a */
  N_POS,     /* a */
  N_CONCAT,  /* items */
  N_COMPARE, /* a, items: N_OPERAND */
  N_OPERAND, /* op (compare_op), a */
  N_COND,    /* test a, then b, else c (may be NULL) */
  N_GETATTR, /* a, name */
  N_GETITEM, /* a, b (may be an N_SLICE) */
  N_SLICE,   /* a, b, c, each may be NULL */
  N_CALL,    /* a, items, kws, star, star2 */
  N_FILTER,  /* a (NULL: the body of a block), name, entry, items, kws, star, star2 */
  N_TEST,    /* a, name, entry, items, kws, star, star2 */
  N_KEYWORD, /* name, a */
  /* statements */
  N_DATA,      /* value */
  N_OUTPUT,    /* a */
  N_IF,        /* a, items: body; more: else body; b: next elif as an N_IF */
  N_FOR,       /* a target, b iter, c test; items body, more else; flag recursive; scope, scope2 else, fn, fn2 filter */
  N_SET,       /* a target, b value; flag: exported */
  N_SETBLOCK,  /* a target, b filter (may be NULL), items; scope; flag: exported */
  N_WITH,      /* items: target, value, target, value; more: body; scope */
  N_MACRO,     /* name, items: parameters (N_NAME), more: defaults, body; fn; hops, slot; flag: exported */
  N_CALLBLOCK, /* a call, items parameters, more defaults, body; fn */
  N_GENERATION,  /* body; fn */
  N_FILTERBLOCK, /* a filter chain, items body; scope */
  N_BLOCK,       /* name, items body; fn */
  N_BREAK,
  N_CONTINUE,
  N_REFUSED, /* name: a statement that tern does not run; an error when reached */
} node_kind;

typedef enum compare_op { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_IN, CMP_NOTIN } compare_op;

typedef struct node node;

typedef struct nodes {
  node **v;
  size_t n, capacity;
} nodes;

/* What entering a scope does to one of its slots. */
typedef enum load_action { LOAD_NONE, LOAD_PARAM, LOAD_RESOLVE, LOAD_ALIAS, LOAD_UNSET } load_action;

typedef struct tload {
  load_action action;
  int slot;
  const tstr *name; /* RESOLVE */
  int hops, from;   /* ALIAS */
} tload;

typedef struct tscope {
  tload *loads;
  size_t n;
} tscope;

typedef struct tfunc {
  int slots;
  tscope scope;                /* entered once, when the function starts */
  int caller, kwargs, varargs; /* slots, -1: the body does not use them */
  int loop;                    /* slot of `loop` (recursive loops keep it here) */
  bool explicit_caller;        /* `caller` is among the parameters */
} tfunc;

struct node {
  uint8_t kind; /* node_kind */
  uint8_t op;
  bool store, flag;
  int line, height;
  int hops, slot, loop_slot;
  const tstr *name, *attr;
  tv value;
  const void *entry; /* the filter or test, NULL: there is none of this name */
  node *a, *b, *c, *star, *star2;
  nodes items, more, body, kws;
  tscope scope, scope2;
  tfunc *fn, *fn2;
};

struct tmpl {
  tmpl_rt mem; /* owns everything below */
  nodes body;
  tfunc fn;
  bool has_blocks;
};

/* ---- lexer ---- */

typedef enum token_kind {
  T_EOF,
  T_DATA,
  T_VAR_BEGIN,
  T_VAR_END,
  T_BLOCK_BEGIN,
  T_BLOCK_END,
  T_NAME,
  T_STRING,
  T_INT,
  T_FLOAT,
  T_ADD,
  T_SUB,
  T_DIV,
  T_FLOORDIV,
  T_MUL,
  T_MOD,
  T_POW,
  T_TILDE,
  T_LBRACKET,
  T_RBRACKET,
  T_LPAREN,
  T_RPAREN,
  T_LBRACE,
  T_RBRACE,
  T_EQ,
  T_NE,
  T_GT,
  T_GE,
  T_LT,
  T_LE,
  T_ASSIGN,
  T_DOT,
  T_COLON,
  T_PIPE,
  T_COMMA,
  T_SEMICOLON,
} token_kind;

typedef struct token {
  token_kind kind;
  int line;
  tv value; /* text of data, names and strings; numbers */
} token;

typedef struct tokens {
  token *v;
  size_t n, capacity;
} tokens;

/* The tokens of a whole source, T_EOF last. Data is trimmed as the environment says. Errors set r->line. */
bool tmpl_lex(tmpl_rt *r, const char *source, size_t n, tokens *out);
const char *token_name(token_kind kind);

/* ---- parser and scopes ---- */

typedef struct parser {
  tmpl_rt *r;
  const token *t; /* the current token */
  tmpl *out;
  int nesting;                            /* brackets and blocks around */
  int loops;                              /* loops around, for break and continue; 0 inside macros */
  int fors;                               /* for statements around, whatever is between */
  const char *tags[TMPL_MAX_NESTING + 4]; /* open blocks, for error messages */
  int n_tags;
} parser;

bool tmpl_parse(tmpl *t, const tokens *list);
node *parse_new(parser *p, node_kind kind, int line); /* NULL: failed */
bool parse_append(parser *p, nodes *list, node *n);
bool parse_fail(parser *p, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool parse_expect(parser *p, token_kind kind); /* and step over it */
bool parse_expect_name(parser *p, const char *word);
bool parse_is_name(const token *t, const char *word);
bool parse_skip_name(parser *p, const char *word); /* true: it was there */
bool parse_skip(parser *p, token_kind kind);
void parse_describe(const token *t, char *out, size_t size);
void parse_grow(node *parent, const node *child); /* keeps heights */
/* An expression, with `a if b else c` where `conditional`. */
bool parse_expression(parser *p, bool conditional, node **out);
/* A comma list or one expression. parentheses: they stand around it, so it may be empty. */
bool parse_tuple(parser *p, bool conditional, bool parentheses, node **out);
bool parse_target(parser *p, bool namespaces, node **out);
bool parse_name_target(parser *p, node **out);
bool parse_filters(parser *p, node *value, bool inline_first, node **out); /* `| f | g`, or `f | g` of a filter block */
bool parse_deeper(parser *p);                                              /* pairs with p->nesting-- */

/* Resolves every name of t->body and finds filters and tests. */
bool tmpl_bind(tmpl *t);

#endif
