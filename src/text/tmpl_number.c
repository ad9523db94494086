/* tmpl_number.c - Python's int and float: parsing, printing, exact comparison, arithmetic.
 *
 * An int is 64 bits, or decimal digits beyond that. Long ones can be read, printed, compared, hashed, negated and
 * turned into floats exactly; sums and products that need more than 64 bits are an error, never a wrong number. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "text/tmpl_unicode.h"
#include "text/tmpl_value.h"

enum { MAX_DIGITS = 4300 }; /* Python's own limit for int(str) */

/* ---- making and reading ---- */

bool tn_from_digits(tmpl_rt *r, const char *digits, size_t n, bool negative, tv *out)
{
  while (n > 1 && *digits == '0') {
    digits++;
    n--;
  }
  uint64_t u = 0;
  bool fits = true;
  for (size_t i = 0; i < n && fits; i++)
    fits = !__builtin_mul_overflow(u, 10u, &u) && !__builtin_add_overflow(u, (unsigned)(digits[i] - '0'), &u);
  if (fits && u <= (uint64_t)INT64_MAX + negative) {
    *out = tv_int(negative ? (int64_t)(0 - u) : (int64_t)u);
    return true;
  }
  char *copy = rt_alloc(r, n);
  tbig *big = rt_alloc(r, sizeof *big);
  OK(copy && big);
  memcpy(copy, digits, n);
  *big = (tbig){.digits = copy, .n = n, .negative = negative};
  *out = (tv){.type = TV_BIG, .g = big};
  return true;
}

static int digit_value(char c)
{
  if (c >= '0' && c <= '9')
    return c - '0';
  if (c >= 'a' && c <= 'z')
    return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z')
    return c - 'A' + 10;
  return 99;
}

/* Strips Unicode blanks from both ends. */
static void strip(const char **s, size_t *n)
{
  size_t from = tu_skip_space(*s, *n), to = tu_rstrip_space(*s, *n);
  if (to < from)
    to = from;
  *s += from;
  *n = to - from;
}

static void int_prefix(const char **s, size_t *n, int *base, bool *leading_zeros_allowed)
{
  *leading_zeros_allowed = true;
  int named = 0;
  if (*n >= 2 && (*s)[0] == '0') {
    char c = (*s)[1];
    named = c == 'x' || c == 'X' ? 16 : c == 'o' || c == 'O' ? 8 : c == 'b' || c == 'B' ? 2 : 0;
  }
  if (named && (*base == 0 || *base == named)) {
    *s += 2;
    *n -= 2;
    if (*n > 0 && **s == '_') { /* 0x_1 is fine */
      (*s)++;
      (*n)--;
    }
    *base = named;
  } else if (*base == 0) {
    *base = 10;
    *leading_zeros_allowed = false;
  }
}

bool tn_parse_int(tmpl_rt *r, const char *s, size_t n, int base, tv *out, bool *ok)
{
  *ok = false;
  if (base != 0 && (base < 2 || base > 36))
    return rt_fail(r, "int() base must be >= 2 and <= 36, or 0");
  strip(&s, &n);
  bool negative = false, zeros;
  if (n > 0 && (*s == '+' || *s == '-')) {
    negative = *s == '-';
    s++;
    n--;
  }
  int_prefix(&s, &n, &base, &zeros);
  if (n == 0)
    return true;
  if (n > MAX_DIGITS)
    return rt_fail(r, "an integer of more than %d digits", MAX_DIGITS);
  char digits[MAX_DIGITS];
  size_t count = 0;
  uint64_t u = 0;
  bool fits = true;
  for (size_t i = 0; i < n; i++) {
    if (s[i] == '_' && i > 0 && i + 1 < n && s[i - 1] != '_')
      continue;
    int digit = digit_value(s[i]);
    if (digit >= base)
      return true;
    digits[count++] = s[i];
    fits = fits && !__builtin_mul_overflow(u, (unsigned)base, &u) && !__builtin_add_overflow(u, (unsigned)digit, &u);
  }
  if (!zeros && count > 1 && digits[0] == '0' && u != 0)
    return true;
  *ok = true;
  if (base == 10)
    return tn_from_digits(r, digits, count, negative, out);
  if (!fits || u > (uint64_t)INT64_MAX + negative)
    return rt_fail(r, "an integer beyond 64 bits in base %d", base);
  *out = tv_int(negative ? (int64_t)(0 - u) : (int64_t)u);
  return true;
}

static bool is_word(const char *s, size_t n, const char *word)
{
  return strlen(word) == n && strncasecmp(s, word, n) == 0;
}

/* digits [. digits] [e digits], with single underscores between digits; copied without them. */
static bool float_grammar(const char *s, size_t n, char *copy)
{
  size_t i = 0, out = 0, digits = 0;
  enum { WHOLE, FRACTION, EXPONENT } part = WHOLE;
  for (; i < n; i++) {
    char c = s[i];
    if (c >= '0' && c <= '9') {
      digits++;
    } else if (c == '_') {
      bool between = i > 0 && i + 1 < n && s[i - 1] >= '0' && s[i - 1] <= '9' && s[i + 1] >= '0' && s[i + 1] <= '9';
      if (!between)
        return false;
      continue;
    } else if (c == '.' && part == WHOLE) {
      part = FRACTION;
    } else if ((c == 'e' || c == 'E') && part != EXPONENT && digits > 0) {
      part = EXPONENT;
      digits = 0;
      copy[out++] = c;
      if (i + 1 < n && (s[i + 1] == '+' || s[i + 1] == '-'))
        copy[out++] = s[++i];
      continue;
    } else {
      return false;
    }
    copy[out++] = c;
  }
  copy[out] = '\0';
  return digits > 0;
}

bool tn_parse_float(tmpl_rt *r, const char *s, size_t n, double *out, bool *ok)
{
  *ok = false;
  strip(&s, &n);
  bool negative = false;
  if (n > 0 && (*s == '+' || *s == '-')) {
    negative = *s == '-';
    s++;
    n--;
  }
  double d;
  if (is_word(s, n, "inf") || is_word(s, n, "infinity")) {
    d = INFINITY;
  } else if (is_word(s, n, "nan")) {
    d = NAN;
  } else {
    char *copy = rt_alloc(r, n + 1);
    OK(copy);
    if (!float_grammar(s, n, copy))
      return true;
    d = strtod(copy, NULL);
  }
  *out = negative ? -d : d;
  *ok = true;
  return true;
}

bool tn_from_double(tmpl_rt *r, double d, tv *out)
{
  if (d >= -9223372036854775808.0 && d < 9223372036854775808.0) {
    *out = tv_int((int64_t)d);
    return true;
  }
  char text[400];
  int n = snprintf(text, sizeof text, "%.0f", fabs(d));
  return tn_from_digits(r, text, (size_t)n, d < 0, out);
}

/* Of a long int: correctly rounded by strtod. */
static double big_to_double(const tbig *g)
{
  char text[MAX_DIGITS + 2];
  if (g->n > 400)
    return g->negative ? -INFINITY : INFINITY;
  memcpy(text, g->digits, g->n);
  text[g->n] = '\0';
  double d = strtod(text, NULL);
  return g->negative ? -d : d;
}

double tn_to_double(tv v)
{
  switch (v.type) {
  case TV_BOOL:
    return v.b;
  case TV_INT:
    return (double)v.i;
  case TV_BIG:
    return big_to_double(v.g);
  default:
    return v.f;
  }
}

/* Python's repr: the shortest digits that read back, exponent form below 1e-4 and from 1e16 on. */
size_t tn_float_repr(double d, char *out)
{
  if (isnan(d))
    return (size_t)sprintf(out, "nan");
  if (isinf(d))
    return (size_t)sprintf(out, d < 0 ? "-inf" : "inf");
  char text[40];
  for (int precision = 0; precision < 17; precision++) {
    snprintf(text, sizeof text, "%.*e", precision, d);
    if (strtod(text, NULL) == d)
      break;
  }
  char digits[24] = "";
  size_t n = 0;
  const char *p = text;
  bool negative = *p == '-';
  p += negative;
  for (; *p != 'e'; p++)
    if (*p != '.')
      digits[n++] = *p;
  int exponent = atoi(p + 1);
  while (n > 1 && digits[n - 1] == '0')
    n--;
  char *w = out;
  if (negative)
    *w++ = '-';
  if (exponent < -4 || exponent >= 16) {
    *w++ = digits[0];
    if (n > 1) {
      *w++ = '.';
      memcpy(w, digits + 1, n - 1);
      w += n - 1;
    }
    w += sprintf(w, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
  } else if (exponent < 0) {
    w += sprintf(w, "0.");
    for (int i = -1; i > exponent; i--)
      *w++ = '0';
    memcpy(w, digits, n);
    w += n;
  } else {
    for (int i = 0; i <= exponent; i++)
      *w++ = (size_t)i < n ? digits[i] : '0';
    *w++ = '.';
    if (n > (size_t)exponent + 1) {
      memcpy(w, digits + exponent + 1, n - (size_t)exponent - 1);
      w += n - (size_t)exponent - 1;
    } else {
      *w++ = '0';
    }
  }
  *w = '\0';
  return (size_t)(w - out);
}

/* ---- comparison ---- */

static int sign_of(bool less, bool greater)
{
  return greater - less;
}

static int compare_digits(const char *a, size_t na, const char *b, size_t nb)
{
  if (na != nb)
    return na < nb ? -1 : 1;
  int c = memcmp(a, b, na);
  return sign_of(c<0, c> 0);
}

static int compare_bigs(const tbig *a, const tbig *b)
{
  if (a->negative != b->negative)
    return a->negative ? -1 : 1;
  int c = compare_digits(a->digits, a->n, b->digits, b->n);
  return a->negative ? -c : c;
}

static int compare_int_float(int64_t i, double d)
{
  if (d >= 9223372036854775808.0)
    return -1;
  if (d < -9223372036854775808.0)
    return 1;
  int64_t whole = (int64_t)d; /* towards zero */
  if (i != whole)
    return i < whole ? -1 : 1;
  double rest = d - (double)whole;
  return sign_of(rest > 0, rest < 0);
}

static int compare_big_float(const tbig *a, double d)
{
  if (isinf(d) || fabs(d) < 9223372036854775808.0 || a->negative != (d < 0)) {
    if (isinf(d))
      return d > 0 ? -1 : 1;
    return a->negative ? -1 : 1;
  }
  char text[400];
  int n = snprintf(text, sizeof text, "%.0f", fabs(d));
  int c = compare_digits(a->digits, a->n, text, (size_t)n);
  return a->negative ? -c : c;
}

static tv plain(tv v) /* bool as the int it is */
{
  return v.type == TV_BOOL ? tv_int(v.b) : v;
}

int tn_compare(tv a, tv b)
{
  a = plain(a);
  b = plain(b);
  if ((a.type == TV_FLOAT && isnan(a.f)) || (b.type == TV_FLOAT && isnan(b.f)))
    return 2;
  if (a.type == TV_FLOAT && b.type == TV_FLOAT)
    return sign_of(a.f<b.f, a.f> b.f);
  if (a.type == TV_INT && b.type == TV_INT)
    return sign_of(a.i<b.i, a.i> b.i);
  if (a.type == TV_BIG && b.type == TV_BIG)
    return compare_bigs(a.g, b.g);
  if (a.type == TV_FLOAT || (a.type == TV_INT && b.type == TV_BIG))
    return -tn_compare(b, a);
  if (a.type == TV_BIG)
    return b.type == TV_FLOAT ? compare_big_float(a.g, b.f) : a.g->negative ? -1 : 1;
  return compare_int_float(a.i, b.f);
}

static uint64_t mix(uint64_t x)
{
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  return x | 1;
}

/* Equal numbers hash alike, whatever their type. */
uint64_t tn_hash(tv v)
{
  v = plain(v);
  if (v.type == TV_INT)
    return mix((uint64_t)v.i);
  if (v.type == TV_BIG)
    return mix((uint64_t)v.g->n * 31 + (uint64_t)v.g->digits[0]);
  if (v.f == floor(v.f) && fabs(v.f) < 9223372036854775808.0)
    return mix((uint64_t)(int64_t)v.f);
  if (isfinite(v.f) && fabs(v.f) >= 9223372036854775808.0) {
    char text[400];
    int n = snprintf(text, sizeof text, "%.0f", fabs(v.f));
    return mix((uint64_t)n * 31 + (uint64_t)text[0]);
  }
  uint64_t bits;
  memcpy(&bits, &v.f, sizeof bits);
  return mix(bits);
}

/* ---- arithmetic ---- */

static bool too_long(tmpl_rt *r)
{
  return rt_fail(r, "integer arithmetic beyond 64 bits is not supported");
}

static int bit_length(uint64_t u)
{
  return u ? 64 - __builtin_clzll(u) : 0;
}

/* a / b of two ints, rounded once as Python does: the quotient to 62 bits or more plus a sticky bit. */
static double divide_ints(int64_t a, int64_t b)
{
  bool negative = (a < 0) != (b < 0);
  uint64_t ua = a < 0 ? 0 - (uint64_t)a : (uint64_t)a, ub = b < 0 ? 0 - (uint64_t)b : (uint64_t)b;
  if (ua == 0)
    return negative ? -0.0 : 0.0;
  int shift = 126 - bit_length(ua);
  unsigned __int128 n = (unsigned __int128)ua << shift, q = n / ub;
  bool sticky = n % ub != 0;
  int drop = 0; /* bring the quotient down to 64 bits, keeping what falls off in the sticky bit */
  while (q >> drop >> 63 > 1)
    drop++;
  sticky = sticky || (q & (((unsigned __int128)1 << drop) - 1)) != 0;
  uint64_t head = (uint64_t)(q >> drop);
  int extra = bit_length(head) - 53;
  if (extra > 0) {
    uint64_t half = (uint64_t)1 << (extra - 1), rest = head & ((half << 1) - 1);
    head >>= extra;
    if (rest > half || (rest == half && (sticky || (head & 1))))
      head++;
    drop += extra;
  }
  double d = ldexp((double)head, drop - shift);
  return negative ? -d : d;
}

static bool int_power(tmpl_rt *r, int64_t base, int64_t exponent, tv *out)
{
  if (exponent < 0) {
    if (base == 0)
      return rt_fail(r, "0.0 cannot be raised to a negative power");
    *out = tv_float(pow((double)base, (double)exponent));
    return true;
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result))
      return too_long(r);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base))
      return too_long(r);
  }
  *out = tv_int(result);
  return true;
}

static bool int_op(tmpl_rt *r, tv_op op, int64_t a, int64_t b, tv *out)
{
  int64_t result;
  bool overflow = false;
  if (b == 0 && (op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD))
    return rt_fail(r, op == OP_DIV ? "division by zero" : "integer division or modulo by zero");
  switch (op) {
  case OP_ADD:
    overflow = __builtin_add_overflow(a, b, &result);
    break;
  case OP_SUB:
    overflow = __builtin_sub_overflow(a, b, &result);
    break;
  case OP_MUL:
    overflow = __builtin_mul_overflow(a, b, &result);
    break;
  case OP_DIV:
    *out = tv_float(divide_ints(a, b));
    return true;
  case OP_FLOORDIV:
    overflow = a == INT64_MIN && b == -1;
    result = overflow ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
    break;
  case OP_MOD:
    result = b == -1 ? 0 : a % b;
    if (result != 0 && (result < 0) != (b < 0))
      result += b;
    break;
  default:
    return int_power(r, a, b, out);
  }
  if (overflow)
    return too_long(r);
  *out = tv_int(result);
  return true;
}

static double float_mod(double a, double b)
{
  double m = fmod(a, b);
  if (m != 0.0) {
    if ((b < 0) != (m < 0))
      m += b;
    return m;
  }
  return copysign(0.0, b);
}

static double float_floordiv(double a, double b)
{
  double m = fmod(a, b), q = (a - m) / b;
  if (m != 0.0 && (b < 0) != (m < 0))
    q -= 1.0;
  if (q == 0.0)
    return copysign(0.0, a / b);
  double f = floor(q);
  return q - f > 0.5 ? f + 1.0 : f;
}

static bool float_power(tmpl_rt *r, double a, double b, tv *out)
{
  if (a == 0.0 && b < 0)
    return rt_fail(r, "0.0 cannot be raised to a negative power");
  if (a < 0 && isfinite(a) && isfinite(b) && b != floor(b))
    return rt_fail(r, "complex numbers are not supported (a negative number to a fractional power)");
  double d = pow(a, b);
  if (isinf(d) && isfinite(a) && isfinite(b))
    return rt_fail(r, "numerical result out of range");
  *out = tv_float(d);
  return true;
}

static bool float_op(tmpl_rt *r, tv_op op, double a, double b, tv *out)
{
  if (b == 0.0 && (op == OP_DIV || op == OP_FLOORDIV || op == OP_MOD))
    return rt_fail(r, op == OP_MOD ? "float modulo" : "float division by zero");
  switch (op) {
  case OP_ADD:
    *out = tv_float(a + b);
    return true;
  case OP_SUB:
    *out = tv_float(a - b);
    return true;
  case OP_MUL:
    *out = tv_float(a * b);
    return true;
  case OP_DIV:
    *out = tv_float(a / b);
    return true;
  case OP_FLOORDIV:
    *out = tv_float(float_floordiv(a, b));
    return true;
  case OP_MOD:
    *out = tv_float(float_mod(a, b));
    return true;
  default:
    return float_power(r, a, b, out);
  }
}

bool tn_binary(tmpl_rt *r, tv_op op, tv a, tv b, tv *out)
{
  a = plain(a);
  b = plain(b);
  if (a.type == TV_INT && b.type == TV_INT)
    return int_op(r, op, a.i, b.i, out);
  if (a.type == TV_FLOAT || b.type == TV_FLOAT) {
    double x = tn_to_double(a), y = tn_to_double(b);
    if ((a.type == TV_BIG && isinf(x)) || (b.type == TV_BIG && isinf(y)))
      return rt_fail(r, "int too large to convert to float");
    return float_op(r, op, x, y, out);
  }
  return too_long(r);
}

bool tv_negate(tmpl_rt *r, tv v, tv *out)
{
  switch (v.type) {
  case TV_FLOAT:
    *out = tv_float(-v.f);
    return true;
  case TV_BOOL:
    *out = tv_int(-(int64_t)v.b);
    return true;
  case TV_INT:
    if (v.i == INT64_MIN)
      return tn_from_digits(r, "9223372036854775808", 19, false, out);
    *out = tv_int(-v.i);
    return true;
  case TV_BIG:
    return tn_from_digits(r, v.g->digits, v.g->n, !v.g->negative, out);
  case TV_UNDEF:
    return tv_fail_undefined(r, v);
  default:
    return rt_fail(r, "bad operand type for unary -: '%s'", tv_type_name(v));
  }
}

bool tv_positive(tmpl_rt *r, tv v, tv *out)
{
  if (v.type == TV_UNDEF)
    return tv_fail_undefined(r, v);
  if (!tv_is_number(v))
    return rt_fail(r, "bad operand type for unary +: '%s'", tv_type_name(v));
  *out = plain(v);
  return true;
}

/* Half to even at a power of ten to the left of the point. */
static bool round_int(tmpl_rt *r, int64_t i, int64_t digits, tv *out)
{
  if (digits >= 0) {
    *out = tv_int(i);
    return true;
  }
  if (digits < -18) {
    *out = tv_int(0);
    return true;
  }
  int64_t unit = 1;
  for (; digits < 0; digits++)
    unit *= 10;
  int64_t rest = i % unit, base = i - rest;
  int64_t size = rest < 0 ? -rest : rest, half = unit / 2;
  bool up = size > half || (size == half && (base / unit) % 2 != 0);
  if (up && __builtin_add_overflow(base, rest < 0 ? -unit : unit, &base))
    return too_long(r);
  *out = tv_int(base);
  return true;
}

bool tn_round(tmpl_rt *r, tv v, int64_t digits, tv *out)
{
  v = plain(v);
  if (v.type == TV_INT)
    return round_int(r, v.i, digits, out);
  if (v.type == TV_BIG) {
    if (digits < 0)
      return too_long(r);
    *out = v;
    return true;
  }
  double d = v.f;
  if (!isfinite(d) || digits > 322) {
    *out = v;
    return true;
  }
  if (digits >= 0) { /* printing rounds the exact binary value, half to even, as Python does */
    char text[700];
    snprintf(text, sizeof text, "%.*f", (int)digits, d);
    *out = tv_float(strtod(text, NULL));
    return true;
  }
  if (digits < -308) {
    *out = tv_float(copysign(0.0, d));
    return true;
  }
  double unit = pow(10.0, (double)-digits), rest = fmod(fabs(d), unit), base = fabs(d) - rest;
  if (rest * 2 > unit || (rest * 2 == unit && fmod(base / unit, 2.0) != 0.0))
    base += unit;
  *out = tv_float(copysign(base, d));
  return true;
}

bool tn_index(tmpl_rt *r, tv v, const char *what, int64_t *out)
{
  v = plain(v);
  if (v.type == TV_UNDEF)
    return tv_fail_undefined(r, v);
  if (v.type != TV_INT)
    return rt_fail(r, "%s: '%s' object cannot be interpreted as an integer", what, tv_type_name(v));
  *out = v.i;
  return true;
}
