/* tmpl_clock.c - the clock of strftime_now: read from text or the machine, written in the C locale. */
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "text/tmpl_attr.h"

static bool digits(const char *s, size_t n, size_t at, size_t count, int *out)
{
  if (at + count > n)
    return false;
  *out = 0;
  for (size_t i = at; i < at + count; i++) {
    if (s[i] < '0' || s[i] > '9')
      return false;
    *out = *out * 10 + (s[i] - '0');
  }
  return true;
}

static int days_in(int year, int month)
{
  static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return days[month - 1] + (month == 2 && leap);
}

static bool parse_date(const char *s, size_t n, tmpl_clock *c)
{
  return digits(s, n, 0, 4, &c->year) && n >= 10 && s[4] == '-' && digits(s, n, 5, 2, &c->month) && s[7] == '-' &&
         digits(s, n, 8, 2, &c->day) && c->year >= 1 && c->month >= 1 && c->month <= 12 && c->day >= 1 &&
         c->day <= days_in(c->year, c->month);
}

/* "T12:34", seconds and fraction optional, a Z at the end ignored. */
static bool parse_time(const char *s, size_t n, tmpl_clock *c)
{
  if (n > 0 && (s[n - 1] == 'Z' || s[n - 1] == 'z'))
    n--;
  if (n == 0)
    return true;
  if ((s[0] != 'T' && s[0] != ' ') || !digits(s, n, 1, 2, &c->hour) || n < 6 || s[3] != ':' ||
      !digits(s, n, 4, 2, &c->minute) || c->hour > 23 || c->minute > 59)
    return false;
  if (n == 6)
    return true;
  if (s[6] != ':' || !digits(s, n, 7, 2, &c->second) || c->second > 59)
    return false;
  if (n == 9)
    return true;
  if (s[9] != '.' || n == 10 || n > 16)
    return false;
  int scale = 100000;
  for (size_t i = 10; i < n; i++, scale /= 10) {
    int digit;
    if (!digits(s, n, i, 1, &digit))
      return false;
    c->microsecond += digit * scale;
  }
  return true;
}

tern_status tmpl_clock_parse(const char *text, size_t n, tmpl_clock *out, tern_error *err)
{
  tmpl_clock c = {0};
  if (!parse_date(text, n, &c) || !parse_time(text + 10, n - 10, &c))
    return err_set(err, TERN_E_FORMAT, "now: '%.*s' is not a time such as 2026-01-15T12:00:00", (int)(n > 60 ? 60 : n),
                   text);
  *out = c;
  return TERN_OK;
}

static bool machine_clock(tmpl_clock *c)
{
  struct timespec now;
  struct tm local;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0 || !localtime_r(&now.tv_sec, &local))
    return false;
  *c = (tmpl_clock){.year = local.tm_year + 1900,
                    .month = local.tm_mon + 1,
                    .day = local.tm_mday,
                    .hour = local.tm_hour,
                    .minute = local.tm_min,
                    .second = local.tm_sec,
                    .microsecond = (int)(now.tv_nsec / 1000)};
  return true;
}

static struct tm to_tm(const tmpl_clock *c)
{
  struct tm t = {.tm_year = c->year - 1900,
                 .tm_mon = c->month - 1,
                 .tm_mday = c->day,
                 .tm_hour = c->hour,
                 .tm_min = c->minute,
                 .tm_sec = c->second,
                 .tm_isdst = -1};
  t.tm_yday = c->day - 1;
  for (int m = 1; m < c->month; m++)
    t.tm_yday += days_in(c->year, m);
  int64_t years = c->year - 1, days = years * 365 + years / 4 - years / 100 + years / 400 + t.tm_yday;
  t.tm_wday = (int)((days + 1) % 7); /* 1 January of year 1 was a Monday */
  return t;
}

/* Time zones print empty, as those of a naive datetime do; %f is Python's own. */
static bool expand(tmpl_rt *r, const tstr *format, const tmpl_clock *c, tv *out)
{
  tbuf b = {.r = r};
  for (size_t i = 0; i < format->n; i++) {
    char next = format->s[i] == '%' && i + 1 < format->n ? format->s[i + 1] : 0;
    if (next == 'f') {
      char text[16];
      snprintf(text, sizeof text, "%06d", c->microsecond % 1000000);
      tb_adds(&b, text);
      i++;
    } else if (next == 'z' || next == 'Z') {
      i++;
    } else if (next) {
      tb_add(&b, format->s + i++, 2);
    } else {
      tb_addc(&b, format->s[i]);
    }
  }
  return tb_take(&b, out);
}

bool tclock_format(tmpl_rt *r, const tstr *format, tv *out)
{
  tmpl_clock c = r->clock;
  if (c.year == 0 && !machine_clock(&c))
    return rt_fail_status(r, TERN_E_IO, "the machine's clock cannot be read");
  if (format->n > 4096)
    return rt_fail_status(r, TERN_E_LIMIT, "a time format of more than 4096 bytes");
  tv expanded;
  OK(expand(r, format, &c, &expanded));
  for (size_t i = 0; i < expanded.s->n; i++)
    if (expanded.s->s[i] == '\0')
      return rt_fail(r, "embedded null character");
  struct tm t = to_tm(&c);
  /* One character in front tells an empty result from a result that does not fit. */
  char *spec = rt_alloc(r, expanded.s->n + 2);
  OK(spec);
  spec[0] = '|';
  memcpy(spec + 1, expanded.s->s, expanded.s->n);
  spec[1 + expanded.s->n] = '\0';
  enum { ROOM = 1 << 16 };
  char *text = rt_alloc(r, ROOM);
  OK(text);
  size_t n = strftime(text, ROOM, spec, &t);
  if (n == 0)
    return rt_fail_status(r, TERN_E_LIMIT, "a time of more than %d bytes", ROOM);
  return ts_new(r, text + 1, n - 1, out);
}
