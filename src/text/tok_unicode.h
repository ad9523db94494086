/* tok_unicode.h - classes of characters as the reference's parts see them.
 *
 * The `tokenizers` library draws on four versions of the Unicode database (its regular expressions, the standard
 * library, two older crates), so that each of its steps has its own idea of what a letter or a mark is. The tables in
 * tok_unicode_data.c were asked of the library, code point by code point.
 */
#ifndef TERN_TEXT_TOK_UNICODE_H
#define TERN_TEXT_TOK_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct unicode_range {
  uint32_t low, high;
} unicode_range;

typedef struct unicode_class {
  uint32_t low, high;
  uint8_t number;
} unicode_class;

typedef struct unicode_lower { /* low, low + step, ... high: each moves by shift */
  uint32_t low, high;
  uint8_t step;
  int32_t shift;
} unicode_lower;

extern const unicode_range unicode_word[], unicode_numeric[], unicode_punctuation[], unicode_accent[],
    unicode_nonspacing[], unicode_control[], unicode_composing[], unicode_regex_word[], unicode_class_word[],
    unicode_han[];
extern const size_t unicode_word_count, unicode_numeric_count, unicode_punctuation_count, unicode_accent_count,
    unicode_nonspacing_count, unicode_control_count, unicode_composing_count, unicode_regex_word_count,
    unicode_class_word_count, unicode_han_count;
extern const unicode_lower unicode_lowercase[];
extern const size_t unicode_lowercase_count;
extern const unicode_class unicode_scripts[], unicode_categories[];
extern const size_t unicode_scripts_count, unicode_categories_count;

bool unicode_is_word(uint32_t c);
bool unicode_is_space(uint32_t c); /* White_Space: the same in every part */
bool unicode_is_numeric(uint32_t c);
bool unicode_is_punctuation(uint32_t c);
bool unicode_is_accent(uint32_t c);
bool unicode_is_nonspacing(uint32_t c);
bool unicode_is_control(uint32_t c);
bool unicode_is_composing(uint32_t c);
bool unicode_is_cjk(uint32_t c); /* BertNormalizer's idea of a Chinese character */
/* Writes one or two characters; returns how many. */
size_t unicode_to_lower(uint32_t c, uint32_t out[2]);
/* A number that stands for the script, -1 for characters that go with any. Han, Hiragana and Katakana are one. */
int unicode_script(uint32_t c);

/* General categories of the regular expressions, in the order of the generated table. */
enum {
  GC_LU,
  GC_LL,
  GC_LT,
  GC_LM,
  GC_LO,
  GC_MN,
  GC_MC,
  GC_ME,
  GC_ND,
  GC_NL,
  GC_NO,
  GC_PC,
  GC_PD,
  GC_PS,
  GC_PE,
  GC_PI,
  GC_PF,
  GC_PO,
  GC_SM,
  GC_SC,
  GC_SK,
  GC_SO,
  GC_ZS,
  GC_ZL,
  GC_ZP,
  GC_CC,
  GC_CF,
  GC_CO,
  GC_CN
};
int unicode_category(uint32_t c);

#endif
