#include "kernels.h"

/* value * multiplier / 2^shift, rounded half away from 0 */
static int64_t st_scaled(int64_t value, int32_t multiplier, int32_t shift)
{
    int64_t whole = value * multiplier;
    return (whole + ((int64_t)1 << (shift - 1)) - (whole < 0)) >> shift;
}

static int8_t st_clamped(int64_t value, int32_t low, int32_t high)
{
    return (int8_t)(value < low ? low : value > high ? high : value);
}

/* The same of 32 bits, of which the upper half of the product is enough where the shift is large. */
static int32_t st_rescaled(int32_t sum, int32_t multiplier, int32_t shift)
{
    if (shift <= 32) {
        return (int32_t)st_scaled(sum, multiplier, shift);
    }
    const int64_t whole = (int64_t)sum * multiplier;
    return ((int32_t)((whole - (whole < 0)) >> 32) + (1 << (shift - 33))) >> (shift - 32);
}

/* Adds the products of inputs that four outputs share, whose weights lie `stride` apart: an input is
 * loaded once for four products. */
static void st_add_shared(const int8_t *in, int32_t num, int32_t zero, const int8_t *weight,
                          int32_t stride, int32_t *sums)
{
    const int8_t *a = weight, *b = a + stride, *c = b + stride, *d = c + stride;
    int32_t sum_a = sums[0], sum_b = sums[1], sum_c = sums[2], sum_d = sums[3];
    for (const int8_t *end = in + num; in != end; in++) {
        const int32_t value = *in - zero;
        sum_a += value * *a++;
        sum_b += value * *b++;
        sum_c += value * *c++;
        sum_d += value * *d++;
    }
    sums[0] = sum_a, sums[1] = sum_b, sums[2] = sum_c, sums[3] = sum_d;
}

/* The same where each has inputs of its own, beside the others', and the next lie `step` on. */
static void st_add_apart(const int8_t *in, int32_t step, int32_t num, int32_t zero,
                         const int8_t *weight, int32_t stride, int32_t *sums)
{
    const int8_t *a = weight, *b = a + stride, *c = b + stride, *d = c + stride;
    int32_t sum_a = sums[0], sum_b = sums[1], sum_c = sums[2], sum_d = sums[3];
    for (const int8_t *end = a + num; a != end; in += step) {
        sum_a += (in[0] - zero) * *a++;
        sum_b += (in[1] - zero) * *b++;
        sum_c += (in[2] - zero) * *c++;
        sum_d += (in[3] - zero) * *d++;
    }
    sums[0] = sum_a, sums[1] = sum_b, sums[2] = sum_c, sums[3] = sum_d;
}

/* Which of `num` places, `spread` apart from `begin` on, lie within a size. */
typedef struct {
    int32_t first, end;
} st_places;

static st_places st_within(int32_t begin, int32_t spread, int32_t num, int32_t size)
{
    st_places found = {0, num};
    while (found.first < num && begin + found.first * spread < 0) {
        found.first++;
    }
    while (found.end > found.first && begin + (found.end - 1) * spread >= size) {
        found.end--;
    }
    return found;
}

/* Writes the outputs of one place, four at a time; where four do not go into the outputs that share
 * their inputs, the last four begin earlier, and where there are fewer, each is made four times. */
static void st_convolve(const st_convolution *of, const int8_t *in, int32_t y0, int32_t x0,
                        int8_t *out)
{
    const int32_t depth = of->depth / of->groups, each = of->outputs / of->groups;
    const int32_t is_apart = of->groups > 1 && depth == 1 && each == 1 && of->outputs > 3;
    const int32_t is_row = of->groups == 1 && of->spread_x == 1, zero = of->zero_in;
    const int32_t length = of->tall * of->wide * depth, together = is_apart ? of->outputs : each;
    const int32_t block = together > 3 ? 4 : 1, stride = together > 3 ? length : 0;
    const int32_t step = of->spread_x * of->depth, row = of->spread_y * of->width * of->depth;
    const st_places y = st_within(y0, of->spread_y, of->tall, of->height);
    const st_places x = st_within(x0, of->spread_x, of->wide, of->width);
    const int32_t num = x.end - x.first;
    in += (y0 * of->width + x0) * of->depth + y.first * row + x.first * step;
    const int8_t *begin = of->weight + (y.first * of->wide + x.first) * depth;
    for (int32_t at = 0; at < of->outputs; at += block) {
        const int32_t over = at % together + block - together;
        at -= over > 0 ? over : 0;
        const int8_t *from = in + at / each * depth, *weight = begin + at * length;
        int32_t sums[4];
        for (int32_t i = 0; i < 4; i++) {
            sums[i] = of->bias[at + (i < block ? i : 0)];
        }
        for (int32_t ky = y.first; ky < y.end; ky++, from += row, weight += of->wide * depth) {
            if (is_apart) {
                st_add_apart(from, step, num, zero, weight, stride, sums);
            } else if (is_row) {
                st_add_shared(from, num * depth, zero, weight, stride, sums);
            } else {
                for (int32_t i = 0; i < num; i++) {
                    st_add_shared(from + i * step, depth, zero, weight + i * depth, stride, sums);
                }
            }
        }
        for (int32_t i = at; i < at + block; i++) {
            const int32_t value = st_rescaled(sums[i - at], of->multipliers[i], of->shifts[i]);
            out[i] = st_clamped(value + of->zero_out, of->low, of->high);
        }
    }
}

/* Values have 8 bits, or 16 where they are wide. */
static int32_t st_get(const void *values, int32_t at, int32_t is_wide)
{
    return is_wide ? ((const int16_t *)values)[at] : ((const int8_t *)values)[at];
}

static void st_put(void *values, int32_t at, int32_t is_wide, int64_t value, int32_t low, int32_t high)
{
    const int64_t found = value < low ? low : value > high ? high : value;
    if (is_wide) {
        ((int16_t *)values)[at] = (int16_t)found;
    } else {
        ((int8_t *)values)[at] = (int8_t)found;
    }
}

/* Products of values that begin at a place. */
static int64_t st_dot(const void *values, int32_t at, int32_t is_wide, int32_t zero,
                      const int8_t *weight, int32_t num)
{
    if (is_wide) {
        const int16_t *from = (const int16_t *)values + at;
        int64_t sum = 0;
        for (int32_t i = 0; i < num; i++) {
            sum += from[i] * weight[i];
        }
        return sum;
    }
    const int8_t *from = (const int8_t *)values + at;
    int32_t sum = 0;
    for (int32_t i = 0; i < num; i++) {
        sum += (from[i] - zero) * weight[i];
    }
    return sum;
}

static void st_convolve_wide(const st_convolution *of, const void *in, void *out)
{
    int32_t place = 0;
    const int32_t depth = of->depth / of->groups, each = of->outputs / of->groups;
    for (int32_t row = 0; row < of->rows; row++) {
        for (int32_t column = 0; column < of->columns; column++) {
            const int32_t y0 = row * of->step_y - of->top, x0 = column * of->step_x - of->left;
            const int8_t *weight = of->weight;
            for (int32_t output = 0; output < of->outputs; output++) {
                const int32_t first = output / each * depth;
                int64_t sum = of->wide_in ? of->wide_bias[output] : of->bias[output];
                for (int32_t ky = 0; ky < of->tall; ky++) {
                    const int32_t y = y0 + ky * of->spread_y;
                    for (int32_t kx = 0; kx < of->wide; kx++) {
                        const int32_t x = x0 + kx * of->spread_x;
                        if (y >= 0 && y < of->height && x >= 0 && x < of->width) {
                            sum += st_dot(in, (y * of->width + x) * of->depth + first,
                                          of->wide_in, of->zero_in, weight, depth);
                        }
                        weight += depth;
                    }
                }
                const int64_t value =
                    st_scaled(sum, of->multipliers[output], of->shifts[output]) + of->zero_out;
                st_put(out, place++, of->wide_out, value, of->low, of->high);
            }
        }
    }
}

void st_run_convolution(const st_convolution *of, const void *in, void *out)
{
    if (of->wide_in || of->wide_out) {
        st_convolve_wide(of, in, out);
        return;
    }
    int8_t *place = out;
    for (int32_t row = 0; row < of->rows; row++) {
        const int32_t y0 = row * of->step_y - of->top;
        for (int32_t column = 0; column < of->columns; column++, place += of->outputs) {
            st_convolve(of, in, y0, column * of->step_x - of->left, place);
        }
    }
}

void st_run_pooling(const st_pooling *of, const void *in, void *out)
{
    const int32_t least = of->is_wide ? -32768 : -128;
    int32_t place = 0;
    for (int32_t row = 0; row < of->rows; row++) {
        for (int32_t column = 0; column < of->columns; column++) {
            const int32_t y0 = row * of->step_y - of->top, x0 = column * of->step_x - of->left;
            for (int32_t channel = 0; channel < of->depth; channel++) {
                int64_t sum = 0, count = 0, most = least;
                for (int32_t y = y0; y < y0 + of->tall; y++) {
                    for (int32_t x = x0; x < x0 + of->wide; x++) {
                        if (y >= 0 && y < of->height && x >= 0 && x < of->width) {
                            const int32_t at = (y * of->width + x) * of->depth + channel;
                            const int32_t value = st_get(in, at, of->is_wide);
                            sum += value - of->zero;
                            most = value > most ? value : most;
                            count++;
                        }
                    }
                }
                if (of->is_mean) {
                    count = of->counts_padding ? of->tall * of->wide : count;
                    const int64_t size = sum < 0 ? -sum : sum;
                    const int64_t mean = (2 * size + count) / (2 * count);
                    most = (sum < 0 ? -mean : mean) + of->zero;
                }
                st_put(out, place++, of->is_wide, most, least, -1 - least);
            }
        }
    }
}

void st_run_addition(const st_addition *of, const void *a, const void *b, void *out)
{
    for (int32_t i = 0; i < of->num; i++) {
        const int64_t sum =
            (int64_t)(st_get(a, i, of->wide_a) - of->zero_a) * of->factor_a
            + (int64_t)(st_get(b, i, of->wide_b) - of->zero_b) * of->factor_b;
        const int64_t value = st_scaled(sum, 1, of->shift) + of->zero_out;
        st_put(out, i, of->wide_out, value, of->low, of->high);
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
                    const int64_t scaled = st_scaled(value, of->multiplier, of->shift);
                    *out++ = st_clamped(scaled + of->zero_out, -128, 127);
                }
            }
        }
    }
}

void st_run_part(const st_part *of, const void *in, int8_t *out)
{
    for (int32_t i = 0; i < of->outer; i++) {
        for (int32_t j = 0; j < of->inner; j++) {
            const int32_t given = st_get(in, i * of->inner + j, of->wide_in) - of->zero_in;
            const int64_t value = st_scaled(given, of->multiplier, of->shift);
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

void st_run_order(const st_order *of, const void *in, void *out)
{
    int32_t place = 0;
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
                    const int32_t from = at[0] * strides[axes[0]] + at[1] * strides[axes[1]]
                                         + at[2] * strides[axes[2]] + at[3] * strides[axes[3]];
                    const int32_t value = st_get(in, from, of->is_wide);
                    st_put(out, place++, of->is_wide, value, -32768, 32767);
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

static int32_t st_short(int64_t value)
{
    return value < -32768 ? -32768 : value > 32767 ? 32767 : (int32_t)value;
}

/* A function of a 16-bit number, straight between the entries of its table. */
static int32_t st_looked_up(const int16_t *table, int32_t value)
{
    const int32_t place = (value + 32768) >> 7, rest = (value + 32768) & 127;
    return table[place] + (((table[place + 1] - table[place]) * rest) >> 7);
}

/* What goes into the four gates of a unit, in steps of 2 ** -11; a step shares its inputs. */
static void st_gates(const st_recurrence *of, int32_t unit, const int8_t *in, const int8_t *before,
                     int32_t *gates)
{
    const int32_t num = of->outputs, inputs = of->inputs;
    int32_t sums[4], own_sums[4];
    for (int32_t i = 0; i < 4; i++) {
        sums[i] = of->bias[i * num + unit], own_sums[i] = 0;
    }
    st_add_shared(in, inputs, of->zero_in, of->weight + unit * inputs, num * inputs, sums);
    st_add_shared(before, before ? num : 0, 0, of->hidden + unit * num, num * num, own_sums);
    for (int32_t i = 0, row = unit; i < 4; i++, row += num) {
        gates[i] = st_short(st_rescaled(sums[i], of->multipliers[row], of->shifts[row])
                            + st_rescaled(own_sums[i], of->own_multipliers[row],
                                          of->own_shifts[row]));
    }
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
            int32_t gates[4];
            st_gates(of, i, in, before, gates);
            const int32_t taken = st_looked_up(of->sigmoid, gates[0]);
            const int32_t kept = st_looked_up(of->sigmoid, gates[1]);
            const int32_t new = st_looked_up(of->tanh, gates[2]);
            const int32_t given = st_looked_up(of->sigmoid, gates[3]);
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
