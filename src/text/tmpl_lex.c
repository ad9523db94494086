/* tmpl_lex.c - from source text to tokens, with the white space rules of trim_blocks and lstrip_blocks.
 *
 * A template alternates between text and tags. Text runs to the next tag; what is trimmed from it depends on the sign
 * in the tag: {%- cuts all white space before it, {%+ cuts nothing, and a plain {% or {# alone on its line loses the
 * blanks in front. After a tag, -%} cuts all white space and a plain %} or #} one newline. Expressions never lose a
 * newline. Inside a tag everything is tokens, but %} and }} only end it where brackets are balanced. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tmpl_ast.h"
#include "text/tmpl_unicode.h"

typedef struct lexer {
  tmpl_rt *r;
  const char *s; /* newlines normalised, the final one dropped */
  size_t n, at;
  size_t counted; /* where r->line is */
  bool line_starting;
  char open[TMPL_MAX_NESTING]; /* closing brackets expected */
  int n_open;
  tokens *out;
} lexer;

typedef struct operator
{
  const char *text;
  token_kind kind;
}
operator;

/* Two characters before one. */
static const operator operators[] = {
    {"//", T_FLOORDIV}, {"**", T_POW},      {"==", T_EQ},    {"!=", T_NE},    {">=", T_GE},    {"<=", T_LE},
    {"+", T_ADD},       {"-", T_SUB},       {"/", T_DIV},    {"*", T_MUL},    {"%", T_MOD},    {"~", T_TILDE},
    {"[", T_LBRACKET},  {"]", T_RBRACKET},  {"(", T_LPAREN}, {")", T_RPAREN}, {"{", T_LBRACE}, {"}", T_RBRACE},
    {">", T_GT},        {"<", T_LT},        {"=", T_ASSIGN}, {".", T_DOT},    {":", T_COLON},  {"|", T_PIPE},
    {",", T_COMMA},     {";", T_SEMICOLON},
};

const char *token_name(token_kind kind)
{
  static const char *const names[] = {
      [T_EOF] = "end of template",
      [T_DATA] = "template data / text",
      [T_VAR_BEGIN] = "begin of print statement",
      [T_VAR_END] = "end of print statement",
      [T_BLOCK_BEGIN] = "begin of statement block",
      [T_BLOCK_END] = "end of statement block",
      [T_NAME] = "name",
      [T_STRING] = "string",
      [T_INT] = "integer",
      [T_FLOAT] = "float",
  };
  if (kind <= T_FLOAT)
    return names[kind];
  for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
    if (operators[i].kind == kind)
      return operators[i].text;
  return "?";
}

static bool looking_at(const lexer *x, size_t at, const char *text)
{
  size_t n = strlen(text);
  return x->n - at >= n && memcmp(x->s + at, text, n) == 0;
}

/* Brings r->line to the line of byte `at` (which never moves back). */
static void count_lines(lexer *x, size_t at)
{
  for (; x->counted < at; x->counted++)
    if (x->s[x->counted] == '\n')
      x->r->line++;
}

static bool emit(lexer *x, token_kind kind, tv value)
{
  tokens *t = x->out;
  if (t->n == t->capacity) {
    size_t capacity = t->capacity ? t->capacity * 2 : 256;
    token *grown = rt_array(x->r, capacity, sizeof *grown);
    OK(grown);
    if (t->n)
      memcpy(grown, t->v, t->n * sizeof *grown);
    t->v = grown;
    t->capacity = capacity;
  }
  t->v[t->n++] = (token){.kind = kind, .line = x->r->line, .value = value};
  return true;
}

static bool emit_text(lexer *x, token_kind kind, size_t from, size_t to)
{
  tv text;
  OK(ts_ref(x->r, x->s + from, to - from, &text));
  return emit(x, kind, text);
}

/* Moves past `to`, remembering whether a line starts there. */
static void advance(lexer *x, size_t to)
{
  if (to > x->at)
    x->line_starting = x->s[to - 1] == '\n';
  x->at = to;
}

static size_t skip_space(const lexer *x, size_t at)
{
  return at + tu_skip_space(x->s + at, x->n - at);
}

/* The end of a tag at `at`: `+END`, `-END` with white space, or `END` with one newline (not for }}). 0: not here. */
static size_t tag_end(const lexer *x, size_t at, const char *end)
{
  bool variable = end[0] == '}';
  if (at < x->n && x->s[at] == '-' && looking_at(x, at + 1, end))
    return skip_space(x, at + 3);
  if (!variable && at < x->n && x->s[at] == '+' && looking_at(x, at + 1, end))
    return at + 3;
  if (!looking_at(x, at, end))
    return 0;
  at += 2;
  return !variable && at < x->n && x->s[at] == '\n' ? at + 1 : at;
}

/* Text from x->at up to the tag at `tag`, whose sign is `sign`; emitted if anything is left. */
static bool emit_data(lexer *x, size_t tag, char sign, bool variable)
{
  size_t from = x->at, to = tag;
  if (sign == '-') {
    to = from + tu_rstrip_space(x->s + from, to - from);
  } else if (sign != '+' && !variable) {
    size_t line = to;
    while (line > from && x->s[line - 1] != '\n')
      line--;
    if ((line > from || x->line_starting) && line + tu_skip_space(x->s + line, to - line) == to)
      to = line;
  }
  if (to > from)
    OK(emit_text(x, T_DATA, from, to));
  count_lines(x, tag);
  return true;
}

/* `{% raw %}` at a tag: where its contents begin, or 0. */
static size_t raw_begin(const lexer *x, size_t at)
{
  at = skip_space(x, at);
  if (!looking_at(x, at, "raw"))
    return 0;
  at = skip_space(x, at + 3);
  if (looking_at(x, at, "-%}"))
    return skip_space(x, at + 3);
  return looking_at(x, at, "%}") ? at + 2 : 0;
}

static bool lex_raw(lexer *x)
{
  for (size_t at = x->at; at < x->n; at++) {
    if (!looking_at(x, at, "{%"))
      continue;
    char sign = at + 2 < x->n ? x->s[at + 2] : 0;
    size_t word = skip_space(x, at + 2 + (sign == '-' || sign == '+'));
    if (!looking_at(x, word, "endraw"))
      continue;
    size_t end = tag_end(x, skip_space(x, word + 6), "%}");
    if (end == 0)
      continue;
    OK(emit_data(x, at, sign, false));
    advance(x, end);
    count_lines(x, end);
    return true;
  }
  if (x->at < x->n)
    return rt_fail(x->r, "Missing end of raw directive");
  return true;
}

static bool lex_comment(lexer *x)
{
  const char *end = x->at < x->n ? memmem(x->s + x->at, x->n - x->at, "#}", 2) : NULL;
  if (!end)
    return x->at >= x->n || rt_fail(x->r, "Missing end of comment tag");
  size_t at = (size_t)(end - x->s);
  if (at > x->at && (x->s[at - 1] == '-' || x->s[at - 1] == '+'))
    at--;
  size_t after = tag_end(x, at, "#}");
  advance(x, after);
  count_lines(x, after);
  return true;
}

/* ---- inside tags ---- */

static bool is_digit(char c)
{
  return c >= '0' && c <= '9';
}

/* Digits with single underscores between them; the end, or `at` where there are none. */
static size_t skip_digits(const lexer *x, size_t at)
{
  if (at >= x->n || !is_digit(x->s[at]))
    return at;
  while (at < x->n && (is_digit(x->s[at]) || (x->s[at] == '_' && at + 1 < x->n && is_digit(x->s[at + 1]))))
    at++;
  return at;
}

/* A float needs a fraction or an exponent, and no dot before it (x.0.1 is two subscripts). 0: none here. */
static size_t float_end(const lexer *x)
{
  if (x->at > 0 && x->s[x->at - 1] == '.')
    return 0;
  size_t whole = skip_digits(x, x->at), end = 0, at = whole;
  if (whole == x->at)
    return 0;
  if (at < x->n && x->s[at] == '.') {
    size_t fraction = skip_digits(x, at + 1);
    if (fraction > at + 1)
      end = at = fraction;
  }
  if (at < x->n && (x->s[at] == 'e' || x->s[at] == 'E')) {
    size_t digits = at + 1 + (at + 1 < x->n && (x->s[at + 1] == '+' || x->s[at + 1] == '-'));
    size_t exponent = skip_digits(x, digits);
    if (exponent > digits)
      end = exponent;
  }
  return end;
}

static bool digit_of(char c, int base)
{
  if (base == 16)
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  return c >= '0' && c < '0' + base;
}

/* 0x.., 0o.., 0b.., decimal without leading zero, or zeros. */
static size_t int_end(const lexer *x)
{
  size_t at = x->at;
  if (x->s[at] == '0' && at + 1 < x->n) {
    char c = x->s[at + 1] | 0x20;
    int base = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
    size_t end = at + 2;
    while (base && end < x->n) {
      size_t digit = end + (x->s[end] == '_');
      if (digit >= x->n || !digit_of(x->s[digit], base))
        break;
      end = digit + 1;
    }
    if (base && end > at + 2)
      return end;
  }
  bool zero = x->s[at] == '0';
  for (at++; at < x->n; at++) {
    char c = x->s[at] == '_' && at + 1 < x->n ? x->s[at + 1] : x->s[at];
    if (zero ? c != '0' : !is_digit(c))
      break;
  }
  return at;
}

static bool lex_number(lexer *x)
{
  size_t end = float_end(x);
  tv value;
  bool ok;
  if (end) {
    double d;
    OK(tn_parse_float(x->r, x->s + x->at, end - x->at, &d, &ok));
    value = tv_float(d);
  } else {
    end = int_end(x);
    OK(tn_parse_int(x->r, x->s + x->at, end - x->at, x->s[x->at] == '0' ? 0 : 10, &value, &ok));
  }
  if (!ok)
    return rt_fail(x->r, "malformed number");
  OK(emit(x, value.type == TV_FLOAT ? T_FLOAT : T_INT, value));
  advance(x, end);
  return true;
}

static bool lex_name(lexer *x)
{
  size_t at = x->at;
  while (at < x->n) {
    uint32_t c;
    size_t used = utf8_decode(x->s + at, x->n - at, &c);
    if (c < 0x80 ? !(is_digit((char)c) || c == '_' || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z'))
                 : !tu_is_word(c) && !tu_is_name_part(c))
      break;
    if (c >= 0x80 && !(at == x->at ? tu_is_name_start(c) : tu_is_name_part(c)))
      return rt_fail(x->r, "Invalid character in identifier");
    at += used;
  }
  if (at == x->at) {
    uint32_t c;
    size_t used = utf8_decode(x->s + at, x->n - at, &c);
    return rt_fail(x->r, "unexpected char '%.*s'", (int)used, x->s + at);
  }
  OK(emit_text(x, T_NAME, x->at, at));
  advance(x, at);
  return true;
}

/* \xhh, \uhhhh, \Uhhhhhhhh with `digits` digits at s[*i]. */
static bool unescape_hex(lexer *x, const char *s, size_t n, size_t *i, int digits, tbuf *b)
{
  uint32_t c = 0;
  for (int k = 0; k < digits; k++, (*i)++) {
    int value = *i < n ? hex_digit(s[*i]) : -1;
    if (value < 0)
      return rt_fail(x->r, "truncated \\x, \\u or \\U escape in a string");
    c = c << 4 | (uint32_t)value;
  }
  if (c > 0x10ffff)
    return rt_fail(x->r, "illegal Unicode character in a string escape");
  if (c >= 0xd800 && c < 0xe000)
    return rt_fail(x->r, "a surrogate (\\u%04x) in a string escape is not supported", c);
  tb_char(b, c);
  return true;
}

static void unescape_octal(const char *s, size_t n, size_t *i, tbuf *b)
{
  uint32_t c = 0;
  for (int k = 0; k < 3 && *i < n && s[*i] >= '0' && s[*i] <= '7'; k++)
    c = c * 8 + (uint32_t)(s[(*i)++] - '0');
  tb_char(b, c);
}

/* Python's unicode-escape after backslashreplace: an escaped character beyond ASCII turns into its own escape. */
static void unescape_unknown(const char *s, size_t n, size_t *i, tbuf *b)
{
  uint32_t c;
  size_t used = utf8_decode(s + *i, n - *i, &c);
  tb_addc(b, '\\');
  if (c < 0x80) {
    tb_addc(b, (char)c);
  } else {
    char text[16];
    snprintf(text, sizeof text, c < 0x100 ? "x%02x" : c < 0x10000 ? "u%04x" : "U%08x", c);
    tb_adds(b, text);
  }
  *i += used ? used : 1;
}

static bool unescape_one(lexer *x, const char *s, size_t n, size_t *i, tbuf *b)
{
  static const char from[] = "abfnrtv\\'\"", to[] = "\a\b\f\n\r\t\v\\'\"";
  char c = s[*i];
  const char *simple = c ? strchr(from, c) : NULL;
  if (simple) {
    tb_addc(b, to[simple - from]);
    (*i)++;
  } else if (c == '\n') { /* a line continued */
    (*i)++;
  } else if (c == 'x' || c == 'u' || c == 'U') {
    (*i)++;
    return unescape_hex(x, s, n, i, c == 'x' ? 2 : c == 'u' ? 4 : 8, b);
  } else if (c == 'N') {
    return rt_fail(x->r, "the string escape \\N{...} is not supported");
  } else if (c >= '0' && c <= '7') {
    unescape_octal(s, n, i, b);
  } else {
    unescape_unknown(s, n, i, b);
  }
  return true;
}

static bool lex_string(lexer *x)
{
  char quote = x->s[x->at];
  size_t end = x->at + 1;
  bool escapes = false;
  while (end < x->n && x->s[end] != quote) {
    escapes = escapes || x->s[end] == '\\';
    end += x->s[end] == '\\' ? 2 : 1;
  }
  if (end >= x->n)
    return rt_fail(x->r, "unexpected char \"%c\" (a string that does not end)", quote);
  const char *s = x->s + x->at + 1;
  size_t n = end - x->at - 1;
  if (!escapes) {
    OK(emit_text(x, T_STRING, x->at + 1, end));
  } else {
    tbuf b = {.r = x->r};
    for (size_t i = 0; i < n;) {
      if (s[i] != '\\') {
        tb_addc(&b, s[i++]);
        continue;
      }
      i++;
      OK(unescape_one(x, s, n, &i, &b));
    }
    tv text;
    OK(tb_take(&b, &text) && emit(x, T_STRING, text));
  }
  advance(x, end + 1);
  count_lines(x, end + 1);
  return true;
}

static bool balance(lexer *x, char c)
{
  if (c == '{' || c == '(' || c == '[') {
    if (x->n_open == TMPL_MAX_NESTING)
      return rt_fail_status(x->r, TERN_E_LIMIT, "brackets nested more than %d deep", TMPL_MAX_NESTING);
    x->open[x->n_open++] = c == '{' ? '}' : c == '(' ? ')' : ']';
  } else if (c == '}' || c == ')' || c == ']') {
    if (x->n_open == 0)
      return rt_fail(x->r, "unexpected '%c'", c);
    char expected = x->open[--x->n_open];
    if (expected != c)
      return rt_fail(x->r, "unexpected '%c', expected '%c'", c, expected);
  }
  return true;
}

static bool lex_operator(lexer *x)
{
  for (size_t i = 0; i < sizeof operators / sizeof *operators; i++) {
    if (!looking_at(x, x->at, operators[i].text))
      continue;
    OK(balance(x, x->s[x->at]) && emit(x, operators[i].kind, tv_none()));
    advance(x, x->at + strlen(operators[i].text));
    return true;
  }
  uint32_t c = '?';
  size_t used = utf8_decode(x->s + x->at, x->n - x->at, &c);
  return rt_fail(x->r, "unexpected char '%.*s'", (int)(used ? used : 1), x->s + x->at);
}

static bool lex_tag(lexer *x, bool variable)
{
  const char *end = variable ? "}}" : "%}";
  x->n_open = 0;
  while (x->at < x->n) {
    size_t after = x->n_open == 0 ? tag_end(x, x->at, end) : 0;
    if (after) {
      OK(emit(x, variable ? T_VAR_END : T_BLOCK_END, tv_none()));
      advance(x, after);
      count_lines(x, after);
      return true;
    }
    size_t space = skip_space(x, x->at);
    if (space > x->at) {
      advance(x, space);
      count_lines(x, space);
      continue;
    }
    char c = x->s[x->at];
    if (is_digit(c))
      OK(lex_number(x));
    else if (c == '_' || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (unsigned char)c >= 0x80)
      OK(lex_name(x));
    else if (c == '\'' || c == '"')
      OK(lex_string(x));
    else
      OK(lex_operator(x));
  }
  return true;
}

/* One stretch of text and the tag behind it. */
static bool lex_one(lexer *x)
{
  size_t tag = x->at;
  while (tag + 1 < x->n && !(x->s[tag] == '{' && strchr("%#{", x->s[tag + 1]) && x->s[tag + 1]))
    tag++;
  if (tag + 1 >= x->n) {
    OK(emit_text(x, T_DATA, x->at, x->n));
    x->at = x->n;
    return true;
  }
  char what = x->s[tag + 1], sign = tag + 2 < x->n ? x->s[tag + 2] : 0;
  bool signed_tag = sign == '-' || sign == '+';
  OK(emit_data(x, tag, sign, what == '{'));
  size_t inside = tag + 2 + signed_tag, raw = what == '%' ? raw_begin(x, inside) : 0;
  if (raw) {
    advance(x, raw);
    count_lines(x, raw);
    return lex_raw(x);
  }
  if (what != '#')
    OK(emit(x, what == '%' ? T_BLOCK_BEGIN : T_VAR_BEGIN, tv_none()));
  advance(x, inside);
  return what == '#' ? lex_comment(x) : lex_tag(x, what == '{');
}

bool tmpl_lex(tmpl_rt *r, const char *source, size_t n, tokens *out)
{
  char *s = rt_alloc(r, n + 1);
  OK(s);
  size_t length = 0;
  for (size_t i = 0; i < n; i++) { /* CRLF and CR become LF */
    if (source[i] == '\r' && i + 1 < n && source[i + 1] == '\n')
      continue;
    s[length++] = source[i] == '\r' ? '\n' : source[i];
  }
  if (length > 0 && s[length - 1] == '\n')
    length--;
  *out = (tokens){0};
  r->line = 1;
  lexer x = {.r = r, .s = s, .n = length, .line_starting = true, .out = out};
  while (x.at < x.n)
    OK(lex_one(&x));
  return emit(&x, T_EOF, tv_none());
}
