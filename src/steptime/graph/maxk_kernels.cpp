// Kernels of MaxK on a CPU: selection, CBSR times graph, its gradient, and conversions.
//
// A C interface over plain pointers: neither torch's headers nor Python's are needed, so that it is
// built in seconds and fits any version of either. Each function runs on `threads` threads and
// takes `path`: 0 portable, 1 AVX2, 2 AVX-512. The caller asks `steptime_best_path` first.
//
// CBSR (compressed balanced sparse row): val (rows, k) and idx (rows, k), idx ascending in a row,
// of 1 byte where the width is at most 256 and of 4 bytes else. A sum over edges is taken in the
// order of the graph's rows whatever the number of threads, so the bits do not depend on it.
//
// The formulas are those of MaxK-GNN (Peng et al., ASPLOS 2024); masks in place of indices, which
// let a row of 256 accumulators stay in registers, are ours.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#define X86 1
#define AVX2 __attribute__((target("avx2,fma,bmi,bmi2,popcnt")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma,bmi,bmi2,popcnt")))
#endif

namespace {

struct bf16 {
    uint16_t bits;
};

template <class T> struct Wide { using type = T; };
template <> struct Wide<bf16> { using type = float; };
template <class T> using wide = typename Wide<T>::type;

inline float widen(float x) { return x; }
inline double widen(double x) { return x; }
inline float widen(bf16 x) {
    uint32_t bits = uint32_t(x.bits) << 16;
    float out;
    std::memcpy(&out, &bits, 4);
    return out;
}
inline void narrow(float x, float* to) { *to = x; }
inline void narrow(double x, double* to) { *to = x; }
inline void narrow(float x, bf16* to) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    if (x != x) to->bits = uint16_t((bits >> 16) | 0x40);  // a NaN stays one
    else to->bits = uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);  // to nearest, ties to even
}

// Runs work(item) for each item on up to `threads` threads; fewer where the system gives no more.
template <class F> void share(int64_t threads, int64_t items, F work) {
    std::atomic<int64_t> next{0};
    auto run = [&] {
        for (int64_t item; (item = next.fetch_add(1)) < items;) work(item);
    };
    std::vector<std::thread> others;
    try {
        for (int64_t t = 1; t < std::min(threads, items); ++t) others.emplace_back(run);
    } catch (const std::system_error&) {
    }
    run();
    for (auto& other : others) other.join();
}

constexpr int64_t ROWS_AT_ONCE = 64;  // small, because the degrees of a graph are uneven
inline int64_t chunks(int64_t rows) { return (rows + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE; }
template <class F> void share_rows(int64_t threads, int64_t rows, F work) {
    share(threads, chunks(rows), [&](int64_t chunk) {
        work(chunk * ROWS_AT_ONCE, std::min(rows, (chunk + 1) * ROWS_AT_ONCE));
    });
}

// --- selection ---------------------------------------------------------------------------------

// Integers in the order of the values; a NaN lies above +inf or below -inf.
inline int32_t key_of(float x) {
    int32_t b;
    std::memcpy(&b, &x, 4);
    return b ^ ((b >> 31) & 0x7fffffff);
}
inline int64_t key_of(double x) {
    int64_t b;
    std::memcpy(&b, &x, 8);
    return b ^ ((b >> 63) & 0x7fffffffffffffffLL);
}
inline int32_t key_of(bf16 x) { return key_of(widen(x)); }
template <class K> struct Infinity;
template <> struct Infinity<int32_t> { static constexpr int32_t key = 0x7f800000; };
template <> struct Infinity<int64_t> { static constexpr int64_t key = 0x7ff0000000000000LL; };
template <class K> bool has_nan(K least, K most) {
    return most > Infinity<K>::key || least < ~Infinity<K>::key;
}
// The middle of two integers, rounded up, without overflow.
template <class K> K middle(K a, K b) { return (a | b) - ((a ^ b) >> 1); }

// Bisection: the largest key that at least k entries reach; stops where exactly k do.
// Invariant: count(>= low) >= k, count(>= high + 1) < k.
template <class K, class Count> K threshold(K low, K high, int64_t k, Count count) {
    while (low < high) {
        K mid = middle(low, high);
        int64_t reach = count(mid);
        if (reach == k) return mid;
        if (reach > k) low = mid;
        else high = mid - 1;
    }
    return low;
}

template <class T, class I>
int64_t select_rows(const T* x, int64_t first, int64_t last, int64_t width, int64_t k, T* val, I* idx) {
    using K = decltype(key_of(T{}));
    std::vector<K> keys(width);
    for (int64_t row = first; row < last; ++row) {
        const T* from = x + row * width;
        for (int64_t d = 0; d < width; ++d) keys[d] = key_of(from[d]);
        auto ends = std::minmax_element(keys.begin(), keys.end());
        if (has_nan(*ends.first, *ends.second)) return row;
        K least = threshold(*ends.first, *ends.second, k, [&](K mid) {
            int64_t reach = 0;
            for (int64_t d = 0; d < width; ++d) reach += keys[d] >= mid;
            return reach;
        });
        int64_t above = 0, at = 0;
        for (int64_t d = 0; d < width; ++d) above += keys[d] > least;
        int64_t ties = k - above;  // of equal entries, the first ones
        for (int64_t d = 0; d < width && at < k; ++d) {
            if (keys[d] > least || (keys[d] == least && ties-- > 0)) {
                val[row * k + at] = from[d];
                idx[row * k + at++] = I(d);
            }
        }
    }
    return -1;
}

// --- products, for any machine -----------------------------------------------------------------

template <class T> struct Edges {
    const int64_t* indptr;
    const int32_t* indices;
    const T* weight;  // null: all ones
    wide<T> at(int64_t e) const { return weight ? widen(weight[e]) : wide<T>(1); }
};

template <class T, class I>
inline __attribute__((always_inline)) void forward_rows(const Edges<T>& edges, int64_t first,
        int64_t last, int64_t k, int64_t width, const T* val, const I* idx, T* y) {
    std::vector<wide<T>> sum(width);
    for (int64_t row = first; row < last; ++row) {
        std::fill(sum.begin(), sum.end(), wide<T>(0));
        wide<T>* to = sum.data();
        const int64_t end = edges.indptr[row + 1];
        for (int64_t e = edges.indptr[row]; e < end; ++e) {
            if (e + 4 < end) {
                __builtin_prefetch(val + int64_t(edges.indices[e + 4]) * k);
                __builtin_prefetch(idx + int64_t(edges.indices[e + 4]) * k);
            }
            const wide<T> a = edges.at(e);
            const T* v = val + int64_t(edges.indices[e]) * k;
            const I* at = idx + int64_t(edges.indices[e]) * k;
            for (int64_t s = 0; s < k; ++s) to[at[s]] += a * widen(v[s]);
        }
        for (int64_t d = 0; d < width; ++d) narrow(to[d], y + row * width + d);
    }
}

// One column range: edges begin[row] .. end[row] of each row. grad is wide and holds zeros.
template <class T, class I>
inline __attribute__((always_inline)) void backward_range(const Edges<T>& edges,
        const int64_t* begin, const int64_t* end, int64_t rows, int64_t k, int64_t width,
        const T* dy, const I* idx, wide<T>* grad) {
    std::vector<wide<T>> of_row(width);
    for (int64_t row = 0; row < rows; ++row) {
        if (begin[row] == end[row]) continue;
        for (int64_t d = 0; d < width; ++d) of_row[d] = widen(dy[row * width + d]);
        const wide<T>* from = of_row.data();
        for (int64_t e = begin[row]; e < end[row]; ++e) {
            if (e + 4 < end[row]) {
                __builtin_prefetch(grad + int64_t(edges.indices[e + 4]) * k);
                __builtin_prefetch(idx + int64_t(edges.indices[e + 4]) * k);
            }
            const wide<T> a = edges.at(e);
            wide<T>* g = grad + int64_t(edges.indices[e]) * k;
            const I* at = idx + int64_t(edges.indices[e]) * k;
            for (int64_t s = 0; s < k; ++s) g[s] += a * from[at[s]];
        }
    }
}

template <class T, class I>
void weight_rows(const Edges<T>& edges, int64_t first, int64_t last, int64_t k, int64_t width,
        const T* val, const I* idx, const T* dy, T* dweight) {
    for (int64_t row = first; row < last; ++row) {
        for (int64_t e = edges.indptr[row]; e < edges.indptr[row + 1]; ++e) {
            const T* v = val + int64_t(edges.indices[e]) * k;
            const I* at = idx + int64_t(edges.indices[e]) * k;
            wide<T> sum = 0;
            for (int64_t s = 0; s < k; ++s) sum += widen(v[s]) * widen(dy[row * width + at[s]]);
            narrow(sum, dweight + e);
        }
    }
}

// --- AVX-512 -----------------------------------------------------------------------------------
#ifdef X86

// Which entries of a row are kept: a bit each, 16 in a word, `groups` words a row.
template <class I>
std::vector<uint16_t> masks_of(const I* idx, int64_t rows, int64_t k, int64_t groups, int64_t threads) {
    std::vector<uint16_t> masks(rows * groups);
    share_rows(threads, rows, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; ++row)
            for (int64_t s = 0; s < k; ++s)
                masks[row * groups + (idx[row * k + s] >> 4)] |= uint16_t(1u << (idx[row * k + s] & 15));
    });
    return masks;
}

AVX512 inline __m512 load16(const float* from) { return _mm512_loadu_ps(from); }
AVX512 inline __m512 load16(const bf16* from) {
    __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}
AVX512 inline __m512 load_some(const float* from, __mmask16 which) {
    return _mm512_maskz_loadu_ps(which, from);
}
AVX512 inline __m512 load_some(const bf16* from, __mmask16 which) {
    __m512i bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(which, from));
    return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}
AVX512 inline void store_some(__m512 x, float* to, __mmask16 which) {
    _mm512_mask_storeu_ps(to, which, x);
}
AVX512 inline void store_some(__m512 x, bf16* to, __mmask16 which) {
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_srli_epi32(
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    __m512i nan = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
    up = _mm512_mask_mov_epi32(up, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan);
    _mm256_mask_storeu_epi16(to, which, _mm512_cvtepi32_epi16(up));
}
inline uint16_t first_bits(int64_t num) { return num >= 16 ? 0xffff : uint16_t((1u << num) - 1); }

// The last rows of val again, with room behind them: a load of 16 may reach past the end.
template <class T> struct Tail {
    std::vector<T> copy;
    int64_t from_row;
    Tail(const T* val, int64_t rows, int64_t k) {
        from_row = std::max<int64_t>(0, rows - (16 + k - 1) / k);
        copy.assign((rows - from_row) * k + 16, T{});
        if (rows > from_row) std::memcpy(copy.data(), val + from_row * k, (rows - from_row) * k * sizeof(T));
    }
    const T* row(const T* val, int64_t row, int64_t k) const {
        return row < from_row ? val + row * k : copy.data() + (row - from_row) * k;
    }
};

template <class T> inline void fetch_row(const T* val, const uint16_t* mask, int64_t k) {
    for (int64_t at = 0; at < k * int64_t(sizeof(T)); at += 64)
        __builtin_prefetch((const char*)val + at);
    __builtin_prefetch(mask);
}

constexpr int64_t AHEAD = 8;  // edges, between a row's prefetch and its use

// Width at most 16 * G: the row of accumulators stays in registers.
template <int G, class T>
AVX512 void forward_registers(const Edges<T>& edges, int64_t first, int64_t last, int64_t k,
        int64_t width, const T* val, const Tail<T>& tail, const uint16_t* masks, T* y) {
    for (int64_t row = first; row < last; ++row) {
        __m512 sum[G];
#pragma GCC unroll 16
        for (int g = 0; g < G; ++g) sum[g] = _mm512_setzero_ps();
        const int64_t end = edges.indptr[row + 1];
        for (int64_t e = edges.indptr[row]; e < end; ++e) {
            if (e + AHEAD < edges.indptr[last]) {
                const int64_t j = edges.indices[e + AHEAD];
                fetch_row(val + j * k, masks + j * G, k);
            }
            const int64_t j = edges.indices[e];
            const T* v = tail.row(val, j, k);
            const uint16_t* mask = masks + j * G;
            const __m512 a = _mm512_set1_ps(edges.at(e));
#pragma GCC unroll 16
            for (int g = 0; g < G; ++g) {
                __m512 near = load16(v);
                asm("" : "+v"(near));  // else it is one instruction with memory: microcode on Zen 4
                sum[g] = _mm512_fmadd_ps(a, _mm512_maskz_expand_ps(mask[g], near), sum[g]);
                v += _mm_popcnt_u32(mask[g]);
            }
        }
#pragma GCC unroll 16
        for (int g = 0; g < G; ++g)
            if (g * 16 < width) store_some(sum[g], y + row * width + g * 16, first_bits(width - g * 16));
    }
}

// Any width: the accumulators lie in the first-level cache.
template <class T>
AVX512 void forward_memory(const Edges<T>& edges, int64_t first, int64_t last, int64_t k,
        int64_t width, const T* val, const Tail<T>& tail, const uint16_t* masks, T* y) {
    const int64_t groups = (width + 15) / 16;
    std::vector<float> sum(groups * 16);
    for (int64_t row = first; row < last; ++row) {
        std::fill(sum.begin(), sum.end(), 0.f);
        for (int64_t e = edges.indptr[row]; e < edges.indptr[row + 1]; ++e) {
            if (e + AHEAD < edges.indptr[last]) {
                const int64_t j = edges.indices[e + AHEAD];
                fetch_row(val + j * k, masks + j * groups, k);
            }
            const int64_t j = edges.indices[e];
            const T* v = tail.row(val, j, k);
            const uint16_t* mask = masks + j * groups;
            const __m512 a = _mm512_set1_ps(edges.at(e));
            for (int64_t g = 0; g < groups; ++g) {
                if (!mask[g]) continue;
                float* to = sum.data() + g * 16;
                __m512 x = _mm512_maskz_expand_ps(mask[g], load16(v));
                _mm512_storeu_ps(to, _mm512_fmadd_ps(a, x, _mm512_loadu_ps(to)));
                v += _mm_popcnt_u32(mask[g]);
            }
        }
        for (int64_t g = 0; g < groups; ++g)
            store_some(_mm512_loadu_ps(&sum[g * 16]), y + row * width + g * 16,
                       first_bits(width - g * 16));
    }
}

// Rows of the gradient are packed for several edges before they are added: a load that follows the
// stores it depends on too closely waits for them.
constexpr int64_t PACKED = 8;

template <int G, class T>
AVX512 void backward_registers(const Edges<T>& edges, const int64_t* begin, const int64_t* end,
        int64_t rows, int64_t k, int64_t width, const T* dy, const uint16_t* masks, float* grad) {
    alignas(64) float packed[PACKED][G * 16 + 16];
    for (int64_t row = 0; row < rows; ++row) {
        if (begin[row] == end[row]) continue;
        __m512 of_row[G];
#pragma GCC unroll 16
        for (int g = 0; g < G; ++g)
            of_row[g] = g * 16 < width
                ? load_some(dy + row * width + g * 16, first_bits(width - g * 16)) : _mm512_setzero_ps();
        for (int64_t e = begin[row]; e < end[row]; e += PACKED) {
            const int64_t num = std::min(PACKED, end[row] - e);
            for (int64_t p = 0; p < num; ++p) {
                const int64_t j = edges.indices[e + p];
                for (int64_t at = 0; at < k; at += 16) __builtin_prefetch(grad + j * k + at, 1);
                if (e + p + AHEAD < end[row])
                    __builtin_prefetch(masks + int64_t(edges.indices[e + p + AHEAD]) * G);
                const uint16_t* mask = masks + j * G;
                float* to = packed[p];
#pragma GCC unroll 16
                for (int g = 0; g < G; ++g) {
                    _mm512_storeu_ps(to, _mm512_maskz_compress_ps(mask[g], of_row[g]));
                    to += _mm_popcnt_u32(mask[g]);
                }
            }
            for (int64_t p = 0; p < num; ++p) {
                float* g = grad + int64_t(edges.indices[e + p]) * k;
                const __m512 a = _mm512_set1_ps(edges.at(e + p));
                for (int64_t s = 0; s < k; s += 16) {
                    const __mmask16 some = first_bits(k - s);
                    __m512 now = _mm512_maskz_loadu_ps(some, g + s);
                    _mm512_mask_storeu_ps(g + s, some,
                        _mm512_fmadd_ps(a, _mm512_loadu_ps(packed[p] + s), now));
                }
            }
        }
    }
}

template <class T> AVX512 int64_t keys512(const T* from, int64_t width, int32_t* keys,
        int32_t* least, int32_t* most) {
    __m512i low = _mm512_set1_epi32(0x7fffffff), high = _mm512_set1_epi32(int32_t(0x80000000));
    int64_t groups = (width + 15) / 16;
    for (int64_t g = 0; g < groups; ++g) {
        const __mmask16 some = first_bits(width - g * 16);
        __m512i b = _mm512_castps_si512(load_some(from + g * 16, some));
        __m512i key = _mm512_xor_si512(b, _mm512_srli_epi32(_mm512_srai_epi32(b, 31), 1));
        low = _mm512_mask_min_epi32(low, some, low, key);
        high = _mm512_mask_max_epi32(high, some, high, key);
        // Behind the end, the least key of all: no threshold but itself keeps it.
        key = _mm512_mask_mov_epi32(_mm512_set1_epi32(int32_t(0x80000000)), some, key);
        _mm512_storeu_si512(keys + g * 16, key);
    }
    *least = _mm512_reduce_min_epi32(low);
    *most = _mm512_reduce_max_epi32(high);
    return groups;
}

AVX512 inline int64_t reach512(const int32_t* keys, int64_t groups, int32_t mid) {
    const __m512i t = _mm512_set1_epi32(mid);
    int64_t reach = 0;
    for (int64_t g = 0; g < groups; ++g)
        reach += _mm_popcnt_u32(_mm512_cmpge_epi32_mask(_mm512_loadu_si512(keys + g * 16), t));
    return reach;
}

AVX512 inline void store_indices(uint8_t* to, __m512i at) {
    _mm_storeu_si128((__m128i*)to, _mm512_cvtepi32_epi8(at));
}
AVX512 inline void store_indices(int32_t* to, __m512i at) { _mm512_storeu_si512(to, at); }
AVX512 inline void store16(float* to, __m512 x) { _mm512_storeu_ps(to, x); }
AVX512 inline void store16(bf16* to, __m512 x) {
    _mm256_storeu_si256((__m256i*)to,
        _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(x), 16)));
}

template <class T, class I>
AVX512 int64_t select512(const T* x, int64_t first, int64_t last, int64_t width, int64_t k, T* val, I* idx) {
    std::vector<int32_t> keys(width + 16);
    std::vector<T> kept(width + 32);
    std::vector<I> places(width + 32);
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int64_t row = first; row < last; ++row) {
        const T* from = x + row * width;
        int32_t low, high;
        const int64_t groups = keys512(from, width, keys.data(), &low, &high);
        if (has_nan(low, high)) return row;
        int64_t reach = -1;
        while (low < high) {
            const int32_t mid = middle(low, high);
            reach = reach512(keys.data(), groups, mid);
            if (reach == k) { low = mid; break; }
            if (reach > k) low = mid;
            else high = mid - 1;
        }
        const __m512i t = _mm512_set1_epi32(low);
        int64_t ties = k;
        if (reach == k) ties = width;  // nobody is left over
        else
            for (int64_t g = 0; g < groups; ++g)
                ties -= _mm_popcnt_u32(_mm512_cmpgt_epi32_mask(_mm512_loadu_si512(&keys[g * 16]), t));
        int64_t at = 0;
        for (int64_t g = 0; g < groups; ++g) {
            const __m512i key = _mm512_loadu_si512(&keys[g * 16]);
            const __mmask16 some = first_bits(width - g * 16);
            uint32_t equal = _mm512_mask_cmpeq_epi32_mask(some, key, t);
            const int64_t num_equal = _mm_popcnt_u32(equal);
            if (num_equal > ties) equal = _pdep_u32((1u << ties) - 1, equal);  // the first ones
            ties -= std::min(num_equal, ties);
            const __mmask16 keep = _mm512_mask_cmpgt_epi32_mask(some, key, t) | equal;
            store16(kept.data() + at, _mm512_maskz_compress_ps(keep, load_some(from + g * 16, some)));
            store_indices(places.data() + at, _mm512_maskz_compress_epi32(
                keep, _mm512_add_epi32(lanes, _mm512_set1_epi32(int32_t(g * 16)))));
            at += _mm_popcnt_u32(keep);
        }
        std::memcpy(val + row * k, kept.data(), k * sizeof(T));
        std::memcpy(idx + row * k, places.data(), k * sizeof(I));
    }
    return -1;
}

// --- AVX2 --------------------------------------------------------------------------------------

AVX2 inline __m256 load8(const float* from) { return _mm256_loadu_ps(from); }
AVX2 inline __m256 load8(const bf16* from) {
    __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i*)from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}
AVX2 inline __m256i indices8(const uint8_t* from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i*)from));
}
AVX2 inline __m256i indices8(const int32_t* from) { return _mm256_loadu_si256((const __m256i*)from); }

AVX2 inline int64_t reach256(const int32_t* keys, int64_t padded, int32_t mid) {
    const __m256i below = _mm256_set1_epi32(mid);
    __m256i less = _mm256_setzero_si256();  // minus the number of keys under mid, a lane each
    for (int64_t d = 0; d < padded; d += 8)
        less = _mm256_add_epi32(less, _mm256_cmpgt_epi32(below, _mm256_loadu_si256((const __m256i*)(keys + d))));
    alignas(32) int32_t lanes[8];
    _mm256_store_si256((__m256i*)lanes, less);
    int64_t reach = padded;
    for (int32_t lane : lanes) reach += lane;
    return reach;
}

template <class T, class I>
AVX2 int64_t select256(const T* x, int64_t first, int64_t last, int64_t width, int64_t k, T* val, I* idx) {
    const int64_t padded = (width + 7) / 8 * 8;
    std::vector<int32_t> keys(padded, int32_t(0x80000000));
    for (int64_t row = first; row < last; ++row) {
        const T* from = x + row * width;
        int32_t low = 0x7fffffff, high = int32_t(0x80000000);
        for (int64_t d = 0; d < width; ++d) {
            keys[d] = key_of(from[d]);
            low = std::min(low, keys[d]);
            high = std::max(high, keys[d]);
        }
        if (has_nan(low, high)) return row;
        int64_t reach = -1;
        while (low < high) {
            const int32_t mid = middle(low, high);
            reach = reach256(keys.data(), padded, mid);
            if (reach == k) { low = mid; break; }
            if (reach > k) low = mid;
            else high = mid - 1;
        }
        int64_t ties = reach == k ? width : k - (low == 0x7fffffff ? 0 : reach256(keys.data(), padded, low + 1));
        int64_t at = 0;
        for (int64_t d = 0; d < padded; d += 8) {
            const __m256i key = _mm256_loadu_si256((const __m256i*)&keys[d]);
            const __m256i below = _mm256_cmpgt_epi32(_mm256_set1_epi32(low), key);
            uint32_t keep = ~_mm256_movemask_ps(_mm256_castsi256_ps(below)) & 0xff;
            while (keep) {
                const int64_t place = d + __builtin_ctz(keep);
                keep &= keep - 1;
                if (place >= width || at == k) break;
                if (keys[place] == low && ties-- <= 0) continue;
                val[row * k + at] = from[place];
                idx[row * k + at++] = I(place);
            }
        }
    }
    return -1;
}

template <class T, class I>
AVX2 void forward256(const Edges<T>& edges, int64_t first, int64_t last, int64_t k, int64_t width,
        const T* val, const I* idx, T* y) {
    std::vector<float> sum(width);
    float* to = sum.data();
    for (int64_t row = first; row < last; ++row) {
        std::fill(sum.begin(), sum.end(), 0.f);
        for (int64_t e = edges.indptr[row]; e < edges.indptr[row + 1]; ++e) {
            if (e + AHEAD < edges.indptr[last]) {
                const int64_t j = edges.indices[e + AHEAD];
                __builtin_prefetch(val + j * k);
                __builtin_prefetch(idx + j * k);
            }
            const float a = edges.at(e);
            const T* v = val + int64_t(edges.indices[e]) * k;
            const I* at = idx + int64_t(edges.indices[e]) * k;
            int64_t s = 0;
            for (; s + 8 <= k; s += 8) {
                if (sizeof(I) == 1) {  // eight indices in one load
                    uint64_t eight;
                    std::memcpy(&eight, at + s, 8);
#pragma GCC unroll 8
                    for (int q = 0; q < 8; ++q) to[(eight >> (8 * q)) & 255] += a * widen(v[s + q]);
                } else {
#pragma GCC unroll 8
                    for (int q = 0; q < 8; ++q) to[at[s + q]] += a * widen(v[s + q]);
                }
            }
            for (; s < k; ++s) to[at[s]] += a * widen(v[s]);
        }
        for (int64_t d = 0; d < width; ++d) narrow(to[d], y + row * width + d);
    }
}

template <class T, class I>
AVX2 void backward256(const Edges<T>& edges, const int64_t* begin, const int64_t* end, int64_t rows,
        int64_t k, int64_t width, const T* dy, const I* idx, float* grad) {
    std::vector<float> of_row(width);
    for (int64_t row = 0; row < rows; ++row) {
        if (begin[row] == end[row]) continue;
        for (int64_t d = 0; d < width; ++d) of_row[d] = widen(dy[row * width + d]);
        for (int64_t e = begin[row]; e < end[row]; ++e) {
            const int64_t j = edges.indices[e];
            const float a = edges.at(e);
            const __m256 a8 = _mm256_set1_ps(a);
            int64_t s = 0;
            for (; s + 8 <= k; s += 8) {
                const __m256 some = _mm256_i32gather_ps(of_row.data(), indices8(idx + j * k + s), 4);
                float* g = grad + j * k + s;
                _mm256_storeu_ps(g, _mm256_fmadd_ps(a8, some, _mm256_loadu_ps(g)));
            }
            for (; s < k; ++s) grad[j * k + s] += a * of_row[idx[j * k + s]];
        }
    }
}
#endif  // X86

// --- which path --------------------------------------------------------------------------------

template <class T, class I>
int64_t select_any(int path, const T* x, int64_t first, int64_t last, int64_t width, int64_t k, T* val, I* idx) {
#ifdef X86
    if constexpr (sizeof(T) < 8) {
        if (path == 2) return select512(x, first, last, width, k, val, idx);
        if (path == 1) return select256(x, first, last, width, k, val, idx);
    }
#endif
    return select_rows(x, first, last, width, k, val, idx);
}

template <class T, class I>
int64_t select_all(const T* x, int64_t rows, int64_t width, int64_t k, T* val, I* idx, int path, int64_t threads) {
    std::atomic<int64_t> nan{-1};
    share_rows(threads, rows, [&](int64_t first, int64_t last) {
        int64_t row = select_any(path, x, first, last, width, k, val, idx);
        if (row >= 0) nan = row;
    });
    return nan;
}

template <int G, class T>
void forward_groups(const Edges<T>& edges, int64_t rows, int64_t k, int64_t width, const T* val,
        const Tail<T>& tail, const uint16_t* masks, T* y, int64_t threads) {
#ifdef X86
    share_rows(threads, rows, [&](int64_t first, int64_t last) {
        if constexpr (G > 0) forward_registers<G>(edges, first, last, k, width, val, tail, masks, y);
        else forward_memory(edges, first, last, k, width, val, tail, masks, y);
    });
#endif
}

// Below it the indices are faster: expanding a register takes four cycles on Zen 4, however few of
// its entries are kept (measured: benchmarks/graph/graph_maxk.py, and docs/libraries/maxk.md).
constexpr int64_t MASKS_FROM = 64;

inline int64_t groups_of(int64_t width) {
    return width <= 64 ? 4 : width <= 128 ? 8 : width <= 256 ? 16 : (width + 15) / 16;
}

template <class T, class I>
void forward_all(const Edges<T>& edges, int64_t rows, int64_t cols, int64_t k, int64_t width,
        const T* val, const I* idx, T* y, int path, int64_t threads) {
#ifdef X86
    if constexpr (sizeof(T) < 8) {
        if (path == 2 && k >= MASKS_FROM) {
            const int64_t groups = groups_of(width);
            const auto masks = masks_of(idx, cols, k, groups, threads);
            const Tail<T> tail(val, cols, k);
            if (groups == 4) forward_groups<4>(edges, rows, k, width, val, tail, masks.data(), y, threads);
            else if (groups == 8) forward_groups<8>(edges, rows, k, width, val, tail, masks.data(), y, threads);
            else if (groups == 16) forward_groups<16>(edges, rows, k, width, val, tail, masks.data(), y, threads);
            else forward_groups<0>(edges, rows, k, width, val, tail, masks.data(), y, threads);
            return;
        }
        if (path >= 1) {
            share_rows(threads, rows, [&](int64_t first, int64_t last) {
                forward256(edges, first, last, k, width, val, idx, y);
            });
            return;
        }
    }
#endif
    share_rows(threads, rows, [&](int64_t first, int64_t last) {
        forward_rows(edges, first, last, k, width, val, idx, y);
    });
}

// splits (ranges + 1, rows): the edges of column range r in row i are splits[r][i] .. splits[r+1][i].
template <class T, class I>
void backward_all(const Edges<T>& edges, const int64_t* splits, int64_t ranges, int64_t rows,
        int64_t cols, int64_t k, int64_t width, const T* dy, const I* idx, wide<T>* grad, int path,
        int64_t threads) {
#ifdef X86
    std::vector<uint16_t> masks;
    const int64_t groups = groups_of(width);
    const bool masked = sizeof(T) < 8 && path == 2 && width <= 256 && k >= MASKS_FROM;
    if (masked) masks = masks_of(idx, cols, k, groups, threads);
#endif
    share(threads, ranges, [&](int64_t range) {
        const int64_t* begin = splits + range * rows;
        const int64_t* end = begin + rows;
#ifdef X86
        if constexpr (sizeof(T) < 8) {
            if (masked) {
                if (groups == 4) backward_registers<4>(edges, begin, end, rows, k, width, dy, masks.data(), grad);
                else if (groups == 8) backward_registers<8>(edges, begin, end, rows, k, width, dy, masks.data(), grad);
                else backward_registers<16>(edges, begin, end, rows, k, width, dy, masks.data(), grad);
                return;
            }
            if (path >= 1) return backward256(edges, begin, end, rows, k, width, dy, idx, grad);
        }
#endif
        backward_range(edges, begin, end, rows, k, width, dy, idx, grad);
    });
}

// Calls body(T*, I*) with the types that the codes name; dtype 0 float, 1 bfloat16, 2 double.
template <class F> int64_t typed(int64_t dtype, int64_t idx_bytes, F body) {
    auto with_index = [&](auto value) {
        return idx_bytes == 1 ? body(value, (uint8_t*)nullptr) : body(value, (int32_t*)nullptr);
    };
    if (dtype == 0) return with_index((float*)nullptr);
    if (dtype == 1) return with_index((bf16*)nullptr);
    return with_index((double*)nullptr);
}

template <class P> using target = std::remove_pointer_t<P>;

}  // namespace

extern "C" {

int64_t steptime_best_path() {
#ifdef X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("bmi2"))
        return 2;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
        return 1;
#endif
    return 0;
}

// Returns -1, or a row that holds a NaN.
int64_t steptime_select(int64_t dtype, int64_t idx_bytes, int64_t path, int64_t threads,
        const void* x, int64_t rows, int64_t width, int64_t k, void* val, void* idx) {
    return typed(dtype, idx_bytes, [&](auto t, auto i) {
        using T = target<decltype(t)>;
        using I = target<decltype(i)>;
        return select_all((const T*)x, rows, width, k, (T*)val, (I*)idx, int(path), threads);
    });
}

int64_t steptime_forward(int64_t dtype, int64_t idx_bytes, int64_t path, int64_t threads,
        const int64_t* indptr, const int32_t* indices, const void* weight, int64_t rows, int64_t cols,
        int64_t k, int64_t width, const void* val, const void* idx, void* y) {
    return typed(dtype, idx_bytes, [&](auto t, auto i) {
        using T = target<decltype(t)>;
        using I = target<decltype(i)>;
        Edges<T> edges{indptr, indices, (const T*)weight};
        forward_all(edges, rows, cols, k, width, (const T*)val, (const I*)idx, (T*)y, int(path), threads);
        return int64_t(0);
    });
}

// grad holds zeros, of float where the values are bfloat16.
int64_t steptime_backward(int64_t dtype, int64_t idx_bytes, int64_t path, int64_t threads,
        const int64_t* splits, int64_t ranges, const int32_t* indices, const void* weight, int64_t rows,
        int64_t cols, int64_t k, int64_t width, const void* dy, const void* idx, void* grad) {
    return typed(dtype, idx_bytes, [&](auto t, auto i) {
        using T = target<decltype(t)>;
        using I = target<decltype(i)>;
        Edges<T> edges{nullptr, indices, (const T*)weight};
        backward_all(edges, splits, ranges, rows, cols, k, width, (const T*)dy, (const I*)idx,
                     (wide<T>*)grad, int(path), threads);
        return int64_t(0);
    });
}

int64_t steptime_weight_gradient(int64_t dtype, int64_t idx_bytes, int64_t threads, const int64_t* indptr,
        const int32_t* indices, int64_t rows, int64_t k, int64_t width, const void* val, const void* idx,
        const void* dy, void* dweight) {
    return typed(dtype, idx_bytes, [&](auto t, auto i) {
        using T = target<decltype(t)>;
        using I = target<decltype(i)>;
        Edges<T> edges{indptr, indices, nullptr};
        share_rows(threads, rows, [&](int64_t first, int64_t last) {
            weight_rows(edges, first, last, k, width, (const T*)val, (const I*)idx, (const T*)dy, (T*)dweight);
        });
        return int64_t(0);
    });
}

// CBSR to dense; every entry of `dense` is written.
int64_t steptime_scatter(int64_t dtype, int64_t idx_bytes, int64_t threads, const void* val,
        const void* idx, int64_t rows, int64_t k, int64_t width, void* dense) {
    return typed(dtype, idx_bytes, [&](auto t, auto i) {
        using T = target<decltype(t)>;
        using I = target<decltype(i)>;
        share_rows(threads, rows, [&](int64_t first, int64_t last) {
            for (int64_t row = first; row < last; ++row) {
                T* to = (T*)dense + row * width;
                std::memset((void*)to, 0, width * sizeof(T));
                for (int64_t s = row * k; s < (row + 1) * k; ++s) to[((const I*)idx)[s]] = ((const T*)val)[s];
            }
        });
        return int64_t(0);
    });
}

int64_t steptime_gather(int64_t dtype, int64_t idx_bytes, int64_t threads, const void* dense,
        const void* idx, int64_t rows, int64_t k, int64_t width, void* val) {
    return typed(dtype, idx_bytes, [&](auto t, auto i) {
        using T = target<decltype(t)>;
        using I = target<decltype(i)>;
        share_rows(threads, rows, [&](int64_t first, int64_t last) {
            for (int64_t row = first; row < last; ++row)
                for (int64_t s = row * k; s < (row + 1) * k; ++s)
                    ((T*)val)[s] = ((const T*)dense)[row * width + ((const I*)idx)[s]];
        });
        return int64_t(0);
    });
}

}  // extern "C"
