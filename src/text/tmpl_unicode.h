/* tmpl_unicode.h - what Python's str methods know about characters: classes, case mapping, blanks, line ends. */
#ifndef TERN_TEXT_TMPL_UNICODE_H
#define TERN_TEXT_TMPL_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool tu_is_space(uint32_t c);    /* str.isspace and \s */
bool tu_is_line_end(uint32_t c); /* where str.splitlines cuts */
bool tu_is_alpha(uint32_t c);
bool tu_is_decimal(uint32_t c);
bool tu_is_digit(uint32_t c);
bool tu_is_numeric(uint32_t c);
bool tu_is_alnum(uint32_t c);
bool tu_is_upper(uint32_t c);
bool tu_is_lower(uint32_t c);
bool tu_is_title(uint32_t c);     /* category Lt */
bool tu_is_printable(uint32_t c); /* repr leaves it as it is */
bool tu_is_word(uint32_t c);      /* \w */
bool tu_is_name_start(uint32_t c);
bool tu_is_name_part(uint32_t c);
bool tu_is_cased(uint32_t c);
bool tu_is_case_ignorable(uint32_t c);

/* Full case mapping of one character; returns how many were written (1..3). Lower-case sigma at the end of a word is
 * the caller's business: it depends on the neighbours. */
size_t tu_upper(uint32_t c, uint32_t out[3]);
size_t tu_title(uint32_t c, uint32_t out[3]);
size_t tu_lower(uint32_t c, uint32_t out[3]);

/* Bytes of leading white space in n valid bytes; and the length left when trailing white space is cut. */
size_t tu_skip_space(const char *s, size_t n);
size_t tu_rstrip_space(const char *s, size_t n);
/* The character that ends at byte `end` (end > 0); *start gets where it begins. */
uint32_t tu_before(const char *s, size_t end, size_t *start);

#endif
