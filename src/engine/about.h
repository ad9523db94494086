/* about.h - how many values a model's weights stand for, from its headers, and how they are stored. */
#ifndef TERN_ENGINE_ABOUT_H
#define TERN_ENGINE_ABOUT_H

#include "model/model.h"

/* Packed values count, their scales do not. Remembers entries of the quantisation that it meets: one thread at a time.
 */
double about_parameters(const model *m);
/* "affine 4-bit g64", or the dtype that config.json names ("bfloat16"), or "dense". Returns out. */
const char *about_quantisation(const cfg *c, const quant_config *q, char out[64]);

#endif
