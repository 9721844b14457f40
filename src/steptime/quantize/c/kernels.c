#include "kernels.h"

/* value * multiplier / 2^shift, rounded half away from 0 */
static int32_t st_scaled(int64_t value, int32_t multiplier, int32_t shift)
{
    int64_t whole = value * multiplier;
    return (int32_t)((whole + ((int64_t)1 << (shift - 1)) - (whole < 0)) >> shift);
}

static int8_t st_clamped(int32_t value, int32_t low, int32_t high)
{
    return (int8_t)(value < low ? low : value > high ? high : value);
}

void st_run_convolution(const st_convolution *of, const int8_t *in, int8_t *out)
{
    const int32_t depth = of->depth / of->groups, each = of->outputs / of->groups;
    for (int32_t row = 0; row < of->rows; row++) {
        for (int32_t column = 0; column < of->columns; column++) {
            const int32_t y0 = row * of->step_y - of->top, x0 = column * of->step_x - of->left;
            const int8_t *weight = of->weight;
            for (int32_t output = 0; output < of->outputs; output++) {
                const int32_t first = output / each * depth;
                int32_t sum = of->bias[output];
                for (int32_t ky = 0; ky < of->tall; ky++) {
                    const int32_t y = y0 + ky * of->spread_y;
                    for (int32_t kx = 0; kx < of->wide; kx++) {
                        const int32_t x = x0 + kx * of->spread_x;
                        if (y >= 0 && y < of->height && x >= 0 && x < of->width) {
                            const int8_t *from = in + (y * of->width + x) * of->depth + first;
                            for (int32_t i = 0; i < depth; i++) {
                                sum += (from[i] - of->zero_in) * weight[i];
                            }
                        }
                        weight += depth;
                    }
                }
                const int32_t value =
                    st_scaled(sum, of->multipliers[output], of->shifts[output]) + of->zero_out;
                *out++ = st_clamped(value, of->low, of->high);
            }
        }
    }
}

void st_run_linear(const st_linear *of, const int8_t *in, int8_t *out)
{
    for (int32_t time = 0; time < of->times; time++, in += of->inputs) {
        const int8_t *weight = of->weight;
        for (int32_t output = 0; output < of->outputs; output++, weight += of->inputs) {
            int32_t sum = of->bias[output];
            for (int32_t i = 0; i < of->inputs; i++) {
                sum += (in[i] - of->zero_in) * weight[i];
            }
            const int32_t value =
                st_scaled(sum, of->multipliers[output], of->shifts[output]) + of->zero_out;
            *out++ = st_clamped(value, of->low, of->high);
        }
    }
}

void st_run_pooling(const st_pooling *of, const int8_t *in, int8_t *out)
{
    for (int32_t row = 0; row < of->rows; row++) {
        for (int32_t column = 0; column < of->columns; column++) {
            const int32_t y0 = row * of->step_y - of->top, x0 = column * of->step_x - of->left;
            for (int32_t channel = 0; channel < of->depth; channel++) {
                int32_t sum = 0, most = -128, count = 0;
                for (int32_t y = y0; y < y0 + of->tall; y++) {
                    for (int32_t x = x0; x < x0 + of->wide; x++) {
                        if (y >= 0 && y < of->height && x >= 0 && x < of->width) {
                            const int32_t value = in[(y * of->width + x) * of->depth + channel];
                            sum += value - of->zero;
                            most = value > most ? value : most;
                            count++;
                        }
                    }
                }
                if (of->is_mean) {
                    count = of->counts_padding ? of->tall * of->wide : count;
                    const int32_t size = sum < 0 ? -sum : sum;
                    const int32_t mean = (2 * size + count) / (2 * count);
                    most = (sum < 0 ? -mean : mean) + of->zero;
                }
                *out++ = st_clamped(most, -128, 127);
            }
        }
    }
}

void st_run_addition(const st_addition *of, const int8_t *a, const int8_t *b, int8_t *out)
{
    for (int32_t i = 0; i < of->num; i++) {
        const int64_t sum = (int64_t)(a[i] - of->zero_a) * of->factor_a
                            + (int64_t)(b[i] - of->zero_b) * of->factor_b;
        out[i] = st_clamped(st_scaled(sum, 1, of->shift) + of->zero_out, of->low, of->high);
    }
}

void st_run_product(const st_product *of, const int8_t *a, const int8_t *b, int8_t *out)
{
    const int32_t *n = of->sizes, *m = of->sizes_b;
    for (int32_t i = 0; i < n[0]; i++) {
        for (int32_t j = 0; j < n[1]; j++) {
            for (int32_t k = 0; k < n[2]; k++) {
                for (int32_t l = 0; l < n[3]; l++) {
                    const int32_t at = (((i % m[0]) * m[1] + j % m[1]) * m[2] + k % m[2]) * m[3]
                                       + l % m[3];
                    const int32_t value = (*a++ - of->zero_a) * (b[at] - of->zero_b);
                    const int32_t scaled = st_scaled(value, of->multiplier, of->shift);
                    *out++ = st_clamped(scaled + of->zero_out, -128, 127);
                }
            }
        }
    }
}

void st_run_part(const st_part *of, const int8_t *in, int8_t *out)
{
    for (int32_t i = 0; i < of->outer; i++) {
        for (int32_t j = 0; j < of->inner; j++) {
            const int32_t value = st_scaled(*in++ - of->zero_in, of->multiplier, of->shift);
            out[i * of->width + of->begin + j] = st_clamped(value + of->zero_out, -128, 127);
        }
    }
}

void st_run_table(const int8_t *table, int32_t num, const int8_t *in, int8_t *out)
{
    for (int32_t i = 0; i < num; i++) {
        out[i] = table[in[i] + 128];
    }
}

void st_run_order(const st_order *of, const int8_t *in, int8_t *out)
{
    int32_t strides[4], at[4];
    strides[3] = 1;
    for (int32_t i = 2; i >= 0; i--) {
        strides[i] = strides[i + 1] * of->sizes[i + 1];
    }
    const int32_t *n = of->sizes, *axes = of->axes;
    for (at[0] = 0; at[0] < n[axes[0]]; at[0]++) {
        for (at[1] = 0; at[1] < n[axes[1]]; at[1]++) {
            for (at[2] = 0; at[2] < n[axes[2]]; at[2]++) {
                for (at[3] = 0; at[3] < n[axes[3]]; at[3]++) {
                    *out++ = in[at[0] * strides[axes[0]] + at[1] * strides[axes[1]]
                                + at[2] * strides[axes[2]] + at[3] * strides[axes[3]]];
                }
            }
        }
    }
}

void st_run_copy(int32_t num, const int8_t *in, int8_t *out)
{
    for (int32_t i = 0; i < num; i++) {
        out[i] = in[i];
    }
}

/* Rows of a table, by whole numbers of two bytes; one that is too large takes the last row. */
void st_run_lookup(const st_lookup *of, const int8_t *in, int8_t *out)
{
    for (int32_t time = 0; time < of->times; time++, in += 2, out += of->num) {
        const int32_t given = (uint8_t)in[0] + 256 * (uint8_t)in[1];
        const int32_t row = given < of->rows ? given : of->rows - 1;
        st_run_copy(of->num, of->table + row * of->num, out);
    }
}

static int32_t st_short(int32_t value)
{
    return value < -32768 ? -32768 : value > 32767 ? 32767 : value;
}

/* A function of a 16-bit number, straight between the entries of its table. */
static int32_t st_looked_up(const int16_t *table, int32_t value)
{
    const int32_t place = (value + 32768) >> 7, rest = (value + 32768) & 127;
    return table[place] + (((table[place + 1] - table[place]) * rest) >> 7);
}

/* What goes into the gate of a row, in steps of 2 ** -11. */
static int32_t st_gate(const st_recurrence *of, int32_t row, const int8_t *in, const int8_t *before)
{
    const int8_t *weight = of->weight + row * of->inputs, *own = of->hidden + row * of->outputs;
    int32_t sum = of->bias[row], own_sum = 0;
    for (int32_t i = 0; i < of->inputs; i++) {
        sum += (in[i] - of->zero_in) * weight[i];
    }
    for (int32_t i = 0; before && i < of->outputs; i++) {
        own_sum += before[i] * own[i];
    }
    return st_short(st_scaled(sum, of->multipliers[row], of->shifts[row])
                    + st_scaled(own_sum, of->own_multipliers[row], of->own_shifts[row]));
}

void st_run_recurrence(const st_recurrence *of, const int8_t *in, int8_t *out, int16_t *cell)
{
    const int32_t num = of->outputs;
    for (int32_t i = 0; i < num; i++) {
        cell[i] = 0;
    }
    for (int32_t step = 0; step < of->steps; step++, in += of->inputs, out += num) {
        const int8_t *before = step ? out - num : 0;
        for (int32_t i = 0; i < num; i++) {
            const int32_t taken = st_looked_up(of->sigmoid, st_gate(of, i, in, before));
            const int32_t kept = st_looked_up(of->sigmoid, st_gate(of, num + i, in, before));
            const int32_t new = st_looked_up(of->tanh, st_gate(of, 2 * num + i, in, before));
            const int32_t given = st_looked_up(of->sigmoid, st_gate(of, 3 * num + i, in, before));
            cell[i] = (int16_t)st_short(st_scaled((int64_t)kept * cell[i], 1, 15)
                                        + st_scaled((int64_t)taken * new, 1, 19));
            const int64_t whole = (int64_t)given * st_looked_up(of->tanh, cell[i]);
            out[i] = st_clamped(st_scaled(whole, 1, 23), -128, 127);
        }
    }
}

void st_run_contraction(const st_contraction *of, const int8_t *a, const int8_t *b, int8_t *out)
{
    const int32_t inner = of->inner, columns = of->columns;
    const int32_t step = of->is_turned ? 1 : columns, next = of->is_turned ? inner : 1;
    for (int32_t time = 0; time < of->times; time++, b += inner * columns) {
        for (int32_t row = 0; row < of->rows; row++, a += inner) {
            for (int32_t column = 0; column < columns; column++) {
                int32_t sum = 0;
                for (int32_t i = 0; i < inner; i++) {
                    sum += (a[i] - of->zero_a) * (b[column * next + i * step] - of->zero_b);
                }
                const int32_t value = st_scaled(sum, of->multiplier, of->shift) + of->zero_out;
                *out++ = st_clamped(value, -128, 127);
            }
        }
    }
}

void st_run_softmax(const st_softmax *of, const int8_t *in, int8_t *out)
{
    for (int32_t line = 0; line < of->times * of->rows; line++, in += of->num, out += of->num) {
        const int32_t counts = of->is_causal ? line % of->rows + 1 : of->num;
        int32_t most = -128;
        int64_t whole = 0;
        for (int32_t i = 0; i < counts; i++) {
            most = in[i] > most ? in[i] : most;
        }
        for (int32_t i = 0; i < counts; i++) {
            whole += of->table[most - in[i]];
        }
        for (int32_t i = 0; i < of->num; i++) {
            const int64_t power = i < counts ? of->table[most - in[i]] : 0;
            const int64_t share = (power * 256 + whole / 2) / whole;
            out[i] = (int8_t)((share < 255 ? share : 255) - 128);
        }
    }
}

/* The largest whole number whose square is not above the value. */
static int64_t st_root(int64_t value)
{
    int64_t root = 0;
    for (int64_t bit = (int64_t)1 << 30; bit; bit >>= 1) {
        const int64_t tried = root | bit;
        if (tried * tried <= value) {
            root = tried;
        }
    }
    return root;
}

void st_run_normalization(const st_normalization *of, const int8_t *in, int8_t *out)
{
    const int32_t num = of->num;
    for (int32_t time = 0; time < of->times; time++, in += num, out += num) {
        int32_t sum = 0;
        int64_t squares = 0;
        for (int32_t i = 0; i < num; i++) {
            sum += in[i];
        }
        for (int32_t i = 0; i < num; i++) {
            const int64_t moved = num * in[i] - sum;
            squares += moved * moved;
        }
        const int64_t found = st_root((squares / num + of->added) << 16), root = found ? found : 1;
        for (int32_t i = 0; i < num; i++) {
            const int64_t moved = num * in[i] - sum, far = moved < 0 ? -moved : moved;
            const int64_t size = (2 * (far << 20) + root) / (2 * root);
            const int64_t whole = (moved < 0 ? -size : size) * of->weight[i] + of->bias[i];
            const int32_t value = st_scaled(whole, of->multiplier, of->shift) + of->zero_out;
            out[i] = st_clamped(value, -128, 127);
        }
    }
}
