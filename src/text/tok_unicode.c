/* tok_unicode.c - see tok_unicode.h: searches in the generated tables. */
#include "text/tok_unicode.h"

static bool in_ranges(const unicode_range *ranges, size_t n, uint32_t c)
{
  size_t low = 0;
  while (n > 0) {
    size_t half = n / 2;
    if (ranges[low + half].high < c) {
      low += half + 1;
      n -= half + 1;
    } else if (ranges[low + half].low > c)
      n = half;
    else
      return true;
  }
  return false;
}

static int class_of(const unicode_class *rows, size_t n, uint32_t c, int none)
{
  size_t low = 0;
  while (n > 0) {
    size_t half = n / 2;
    if (rows[low + half].high < c) {
      low += half + 1;
      n -= half + 1;
    } else if (rows[low + half].low > c)
      n = half;
    else
      return rows[low + half].number;
  }
  return none;
}

bool unicode_is_word(uint32_t c)
{
  return in_ranges(unicode_word, unicode_word_count, c);
}

bool unicode_is_space(uint32_t c)
{
  if (c < 0x80)
    return c == ' ' || (c >= 9 && c <= 13);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

bool unicode_is_numeric(uint32_t c)
{
  return in_ranges(unicode_numeric, unicode_numeric_count, c);
}

bool unicode_is_punctuation(uint32_t c)
{
  return in_ranges(unicode_punctuation, unicode_punctuation_count, c);
}

bool unicode_is_accent(uint32_t c)
{
  return c >= 0x300 && in_ranges(unicode_accent, unicode_accent_count, c);
}

bool unicode_is_nonspacing(uint32_t c)
{
  return c >= 0x300 && in_ranges(unicode_nonspacing, unicode_nonspacing_count, c);
}

bool unicode_is_control(uint32_t c)
{
  return in_ranges(unicode_control, unicode_control_count, c);
}

bool unicode_is_composing(uint32_t c)
{
  return c >= 0xa0 && in_ranges(unicode_composing, unicode_composing_count, c);
}

bool unicode_is_cjk(uint32_t c)
{
  static const unicode_range ranges[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},  {0x20000, 0x2a6df},
                                         {0x2a700, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f}};
  return in_ranges(ranges, sizeof ranges / sizeof *ranges, c);
}

size_t unicode_to_lower(uint32_t c, uint32_t out[2])
{
  out[0] = c;
  if (c < 0x80) {
    if (c >= 'A' && c <= 'Z')
      out[0] = c + 32;
    return 1;
  }
  if (c == 0x130) { /* the one character that becomes two */
    out[0] = 'i';
    out[1] = 0x307;
    return 2;
  }
  size_t low = 0, n = unicode_lowercase_count;
  while (n > 0) {
    size_t half = n / 2;
    const unicode_lower *row = &unicode_lowercase[low + half];
    if (row->high < c) {
      low += half + 1;
      n -= half + 1;
    } else if (row->low > c)
      n = half;
    else {
      if ((c - row->low) % row->step == 0)
        out[0] = (uint32_t)((int32_t)c + row->shift);
      break;
    }
  }
  return 1;
}

int unicode_script(uint32_t c)
{
  return class_of(unicode_scripts, unicode_scripts_count, c, -1);
}

int unicode_category(uint32_t c)
{
  return class_of(unicode_categories, unicode_categories_count, c, GC_CN);
}
