/* ggml_blocks.h - what ggml's tensor types mean, value by value, and the affine form of those that have one.
 *
 * Affine types. A block of 32 values in Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 (or a sub-block of Q4_K, Q5_K) is scale*q + bias
 * with one scale and one bias, so it is an MLX affine group of 32 with the same integers q:
 *
 *   Q4_0  d*(q-8)    scale d, bias -8d       q of 4 bits      Q5_0  d*(q-16)   bias -16d      5 bits
 *   Q8_0  d*q        scale d, bias -128d     q+128, 8 bits    Q4_1, Q5_1       scale d, bias m
 *   Q4_K, Q5_K       scale d*sc, bias -(dmin*m)               sc, m of 6 bits
 *
 * d, dmin, m are float16. The scales and biases here are float32 and equal the real numbers above: d*sc and dmin*m
 * have 11 + 6 significant bits, -8d, -16d, -128d have 11. Whether they fit float16 is the caller's question.
 *
 * The decoded float32 value is the reference's too, bit for bit but for the sign of a zero: scale*q has at most
 * 11 + 6 + 5 = 22 bits (11 + 8 for Q8_0), so it is exact, and then both sides do one addition of the same two numbers;
 * for Q4_0, Q5_0, Q8_0 the sum d*(q - offset) is itself exact. */
#ifndef TERN_CONVERT_GGML_BLOCKS_H
#define TERN_CONVERT_GGML_BLOCKS_H

#include "format/gguf.h"

enum { AFFINE_GROUP = 32 };

/* Bits of the affine form, 0 where the type has none. */
uint32_t ggml_affine_bits(ggml_type type);

/* A row of k values (whole blocks) of a type with ggml_affine_bits: its integers q[k]; its scale[k/32], bias[k/32]. */
void ggml_affine_integers(ggml_type type, const uint8_t *blocks, size_t k, uint8_t *q);
void ggml_affine_scales(ggml_type type, const uint8_t *blocks, size_t k, float *scale, float *bias);

/* Whether ggml_dense_row knows the type. */
bool ggml_has_dense(ggml_type type);
/* A row of k values in float32, as ggml's reference dequantisation gives them. */
void ggml_dense_row(ggml_type type, const uint8_t *blocks, size_t k, float *out);

/* k values of `bits` bits as a little-endian bit stream, k*bits/8 bytes: MLX's packing. k is a multiple of 8. */
void affine_pack(const uint8_t *q, size_t k, uint32_t bits, uint8_t *out);

#endif
