/* Operators on signed bytes, some also on 16 bits, with whole numbers alone. Pictures are height,
 * width, channels; weights are output, height, width, input, as CMSIS-NN has them. */
#ifndef STEPTIME_KERNELS_H
#define STEPTIME_KERNELS_H

#include <stdint.h>

typedef struct {
    const int8_t *weight;
    const int32_t *bias, *multipliers;
    const int64_t *wide_bias;                  /* in its place where the input is wide */
    const int8_t *shifts;
    int32_t zero_in, zero_out, low, high, wide_in, wide_out;
    int32_t height, width, depth;              /* of the input */
    int32_t rows, columns, outputs;            /* of the output */
    int32_t tall, wide, step_y, step_x;        /* of the kernel */
    int32_t top, left, spread_y, spread_x, groups;
} st_convolution;

typedef struct {
    int32_t is_mean, counts_padding, zero, is_wide;
    int32_t height, width, depth, rows, columns;
    int32_t tall, wide, step_y, step_x, top, left, bottom, right;
} st_pooling;

typedef struct {
    int32_t zero_a, zero_b, factor_a, factor_b, shift, zero_out, low, high, num;
    int32_t wide_a, wide_b, wide_out;
} st_addition;

typedef struct {
    int32_t zero_a, zero_b, multiplier, shift, zero_out;
    int32_t sizes[4], sizes_b[4];              /* the last four axes of both */
} st_product;

typedef struct {
    int32_t zero_in, multiplier, shift, zero_out, wide_in;
    int32_t outer, inner, begin, width;        /* inner numbers of this part, of width in all */
} st_part;

typedef struct {
    int32_t sizes[4], axes[4], is_wide;
} st_order;

typedef struct {
    const int8_t *weight, *hidden;
    const int32_t *bias, *multipliers, *own_multipliers;
    const int8_t *shifts, *own_shifts;
    const int16_t *sigmoid, *tanh;             /* at each 128th of 16-bit numbers */
    int32_t zero_in, inputs, outputs, steps;
} st_recurrence;

typedef struct {
    int32_t zero_a, zero_b, multiplier, shift, zero_out, is_turned;
    int32_t times, rows, inner, columns;
} st_contraction;

typedef struct {
    const int32_t *table;                      /* exp(-d) of each distance d from the largest */
    int32_t times, rows, num, is_causal;
} st_softmax;

typedef struct {
    const int16_t *weight;
    const int32_t *bias;
    int64_t added;                             /* to the variance of sums */
    int32_t multiplier, shift, zero_out, times, num;
} st_normalization;

typedef struct {
    const int8_t *table;
    int32_t rows, num, times;
} st_lookup;

void st_run_lookup(const st_lookup *of, const int8_t *in, int8_t *out);
void st_run_contraction(const st_contraction *of, const int8_t *a, const int8_t *b, int8_t *out);
void st_run_softmax(const st_softmax *of, const int8_t *in, int8_t *out);
void st_run_normalization(const st_normalization *of, const int8_t *in, int8_t *out);
void st_run_convolution(const st_convolution *of, const void *in, void *out);
void st_run_pooling(const st_pooling *of, const void *in, void *out);
void st_run_addition(const st_addition *of, const void *a, const void *b, void *out);
void st_run_product(const st_product *of, const int8_t *a, const int8_t *b, int8_t *out);
void st_run_part(const st_part *of, const void *in, int8_t *out);
void st_run_table(const int8_t *table, int32_t num, const int8_t *in, int8_t *out);
void st_run_order(const st_order *of, const void *in, void *out);

void st_run_copy(int32_t num, const int8_t *in, int8_t *out);
void st_run_recurrence(const st_recurrence *of, const int8_t *in, int8_t *out, int16_t *cell);

#endif
