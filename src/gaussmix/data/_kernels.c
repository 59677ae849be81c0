/* Exact sums over rows of integers, a few rows at a time that stay in the first-level cache: encode, map, scale, clip,
 * multiply.
 *
 * The results have the bits of the numpy code in gram.py, which is used where this file was not built:
 * - Rows, transforms and sums are integers that float64 holds (gaussmix/data/transforms.py, gram.py): products and
 *   their sums are exact in any order, with or without fused multiply-add.
 * - Everything else is computed entry by entry, in numpy's order. The file is compiled without -ffast-math and with
 *   -ffp-contract=off: each operation is IEEE 754's and is rounded by itself.
 *
 * A row that is not finite, or whose squares add up to 2^53 or more, is left out and marked: Python adds it, or refuses
 * it. No row depends on another one.
 */
#include <math.h>
#include <stddef.h>

#define VERSION 5 /* as in kernels.py: raise both with every change of this file */

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define FAST __attribute__((target("avx2,fma")))
#define TILE FAST __attribute__((always_inline)) static inline
#define LANES 8    /* entries that are multiplied side by side; widths in here are multiples of it */
#define ROWS 6     /* rows, or rows of sums, in registers: twelve sums hide the latency of additions; last, 2 or 4 */
#define BLOCK 64   /* rows that are processed at a time */
#define AHEAD 8    /* rows that are fetched before they are needed */
#define EXACT 4096 /* rows of norm at most 2^20 whose products add up to at most 2^52; a multiple of BLOCK */
#define INEXACT 9007199254740992.0 /* 2^53: sums of squares below it are exact in any order, others are at least it */

/* The version of this file; 0 where the processor lacks what it needs. */
int gaussmix_kernels_version(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? VERSION : 0;
}

struct source { /* n rows of m columns: whole ones, or arrays to be encoded, at positions chosen unless NULL */
    ptrdiff_t n, m, d, targets, stride, stride_Y;
    const double *rows, *X, *Y;
    const ptrdiff_t *chosen;
    const double *centre, *multiplier, *limits;
    double constant, norm_limit, clipped_norm; /* squares beyond norm_limit: the row is scaled to clipped_norm */
    unsigned char *left;
};

struct map { /* to k columns, in panels of LANES columns; the others of a panel's m rows than from .. to are zero */
    ptrdiff_t m, k;
    const double *panels;
    const ptrdiff_t *ranges;
};

static inline ptrdiff_t padded(ptrdiff_t width) { return (width + LANES - 1) / LANES * LANES; }

static inline void clear(ptrdiff_t n, double *row)
{
    for (ptrdiff_t j = 0; j < n; j++)
        row[j] = 0;
}

FAST static inline double squared(ptrdiff_t n, const double *restrict row)
{
    double lanes[LANES] = {0}, sum = 0;
    ptrdiff_t j = 0;
    for (; j + LANES <= n; j += LANES)
        for (int k = 0; k < LANES; k++)
            lanes[k] += row[j + k] * row[j + k];
    for (; j < n; j++)
        lanes[0] += row[j] * row[j];
    for (int k = 0; k < LANES; k++)
        sum += lanes[k];
    return sum;
}

FAST static inline void shrink(ptrdiff_t n, double *restrict row, double factor)
{
    for (ptrdiff_t j = 0; j < n; j++)
        row[j] = trunc(row[j] * factor);
}

FAST static inline double clipped(double entry, double centre, double multiplier, double limit)
{
    double value = (entry - centre) * multiplier;
    value = value < -limit ? -limit : value;
    return value > limit ? limit : value;
}

/* Encode one row to integers, as encode.BlockEncoder does. Returns whether it is left out. */
FAST static inline int encode(const struct source *from, ptrdiff_t at, double *restrict row)
{
    const ptrdiff_t d = from->d, entries = d + from->targets;
    const double *x = from->X + at * from->stride, *y = from->Y + at * from->stride_Y;
    const double *centre = from->centre, *multiplier = from->multiplier, *limits = from->limits;
    long long bad = 0;
    double factor = 1;
    for (ptrdiff_t j = 0; j < d; j++) {
        bad |= (long long)(x[j] - x[j] != 0);
        row[j] = trunc(clipped(x[j], centre[j], multiplier[j], limits[j]));
    }
    if (from->norm_limit < INFINITY) {
        double squares = squared(d, row);
        if (!(squares <= from->norm_limit)) {
            bad |= !(squares < INEXACT);
            factor = from->clipped_norm / sqrt(squares);
            shrink(d, row, factor);
            bad |= !(squared(d, row) <= from->norm_limit); /* cannot be; Python would refuse it */
        }
    }
    for (ptrdiff_t j = d; j < entries; j++) {
        double entry = y[j - d];
        bad |= (long long)(entry - entry != 0);
        row[j] = trunc(clipped(entry, centre[j], multiplier[j], limits[j]) * factor);
    }
    if (from->m > entries)
        row[entries] = trunc(from->constant * factor);
    if (bad)
        clear(from->m, row);
    return bad != 0;
}

/* Load rows from a start on, at most BLOCK. Returns how many. Columns of block beyond m are zero, and stay so. */
FAST static inline ptrdiff_t load(const struct source *from, ptrdiff_t start, double *restrict block)
{
    const ptrdiff_t width = padded(from->m), n = from->n - start < BLOCK ? from->n - start : BLOCK;
    for (ptrdiff_t i = 0; i < n; i++) {
        double *restrict row = block + i * width;
        const ptrdiff_t at = start + i;
        if (from->rows) {
            const double *given = from->rows + at * from->stride;
            for (ptrdiff_t j = 0; j < from->m; j++)
                row[j] = given[j];
        } else if (from->chosen) {
            if (at + AHEAD < from->n) {
                const char *next = (const char *)(from->X + from->chosen[at + AHEAD] * from->stride);
                for (ptrdiff_t byte = 0; byte < 8 * from->d; byte += 64)
                    __builtin_prefetch(next + byte);
            }
            from->left[at] = (unsigned char)encode(from, from->chosen[at], row);
        } else {
            from->left[at] = (unsigned char)encode(from, at, row);
        }
    }
    return n;
}

/* Add n products to LANES columns of count rows of sums: one entry of left for each row, times LANES entries of right.
 * All are integers of at most 2^52: fused or not, nothing is rounded.
 */
TILE void add_products(const int count, ptrdiff_t n, const double *restrict left, ptrdiff_t left_step,
                       ptrdiff_t left_next, const double *restrict right, ptrdiff_t right_step,
                       __m256d low[ROWS], __m256d high[ROWS])
{
    for (ptrdiff_t i = 0; i < n; i++) {
        __m256d first = _mm256_loadu_pd(right), second = _mm256_loadu_pd(right + 4);
        for (int k = 0; k < count; k++) {
            __m256d entry = _mm256_broadcast_sd(left + k * left_next);
            low[k] = _mm256_fmadd_pd(entry, first, low[k]);
            high[k] = _mm256_fmadd_pd(entry, second, high[k]);
        }
        left += left_step;
        right += right_step;
    }
}

/* Add products to rows a .. a + count of sums, columns b .. b + LANES. */
TILE void multiply_tile(const int count, ptrdiff_t n, ptrdiff_t width, const double *restrict rows, ptrdiff_t a,
                        ptrdiff_t b, double *restrict sums)
{
    double *restrict at = sums + a * width + b;
    __m256d low[ROWS], high[ROWS];
    for (int k = 0; k < count; k++) {
        low[k] = _mm256_loadu_pd(at + k * width);
        high[k] = _mm256_loadu_pd(at + k * width + 4);
    }
    add_products(count, n, rows + a, width, 1, rows + b, width, low, high);
    for (int k = 0; k < count; k++) {
        _mm256_storeu_pd(at + k * width, low[k]);
        _mm256_storeu_pd(at + k * width + 4, high[k]);
    }
}

/* Add the products of every two columns of n rows to sums, (width, width); above the diagonal at least. */
FAST static inline void multiply(ptrdiff_t n, ptrdiff_t width, const double *restrict rows, double *restrict sums)
{
    for (ptrdiff_t b = 0; b < width; b += LANES) {
        const ptrdiff_t end = b + LANES; /* even */
        ptrdiff_t a = 0;
        for (; a + ROWS <= end; a += ROWS)
            multiply_tile(ROWS, n, width, rows, a, b, sums);
        if (end - a == 4)
            multiply_tile(4, n, width, rows, a, b, sums);
        else if (end - a == 2)
            multiply_tile(2, n, width, rows, a, b, sums);
    }
}

/* Add the sums of at most EXACT rows, as integers, to totals, and set them to zero. Returns whether they were integers
 * of at most 2^52, as they must be: not so with a row that is not finite.
 */
FAST static inline int settle(ptrdiff_t width, double *restrict sums, long long *restrict totals)
{
    long long bad = 0;
    for (ptrdiff_t i = 0; i < width * width; i++) {
        const int whole = fabs(sums[i]) <= INEXACT / 2;
        bad |= !whole;
        totals[i] += whole ? (long long)sums[i] : 0;
        sums[i] = 0;
    }
    return !bad;
}

/* Compute LANES columns of count rows of z: products of rows of a width with columns from .. to of a panel. */
TILE void transform_tile(const int count, ptrdiff_t from, ptrdiff_t to, const double *restrict part, ptrdiff_t width,
                         const double *restrict rows, ptrdiff_t to_width, double *restrict z)
{
    __m256d low[ROWS], high[ROWS];
    for (int k = 0; k < count; k++)
        low[k] = high[k] = _mm256_setzero_pd();
    add_products(count, to - from, rows + from, 1, width, part + from * LANES, LANES, low, high);
    for (int k = 0; k < count; k++) {
        _mm256_storeu_pd(z + k * to_width, low[k]);
        _mm256_storeu_pd(z + k * to_width + 4, high[k]);
    }
}

/* Compute z, (n, padded k): products of rows (n, padded m) with a map. Of an odd n one row more is computed, not used. */
FAST static inline void transform(ptrdiff_t n, const struct map *by, const double *restrict rows, double *restrict z)
{
    const ptrdiff_t width = padded(by->m), to_width = padded(by->k);
    for (ptrdiff_t panel = 0; panel < to_width / LANES; panel++) {
        const ptrdiff_t from = by->ranges[2 * panel], to = by->ranges[2 * panel + 1];
        const double *part = by->panels + panel * LANES * by->m;
        double *to_panel = z + panel * LANES;
        ptrdiff_t i = 0;
        for (; i + ROWS - 2 < n; i += ROWS) /* five are computed as six: BLOCK leaves four */
            transform_tile(ROWS, from, to, part, width, rows + i * width, to_width, to_panel + i * to_width);
        if (n - i > 2)
            transform_tile(4, from, to, part, width, rows + i * width, to_width, to_panel + i * to_width);
        else if (n - i > 0)
            transform_tile(2, from, to, part, width, rows + i * width, to_width, to_panel + i * to_width);
    }
}

/* Add the Gram matrix of rows to totals, (padded m, padded m). Returns whether it was exact.
 *
 * sums: as many floats, zeros before and after. squares: squared norm of each row as it was added. block, here and
 * below: memory for BLOCK rows, zeros at first.
 */
FAST int gaussmix_gram(const struct source *from, long long *restrict totals, double *restrict sums,
                       double *restrict squares, double *restrict block)
{
    const ptrdiff_t width = padded(from->m);
    int exact = 1;
    for (ptrdiff_t start = 0; start < from->n; start += BLOCK) {
        const ptrdiff_t n = load(from, start, block), end = start + n;
        for (ptrdiff_t i = 0; i < n; i++)
            squares[start + i] = squared(width, block + i * width);
        multiply(n, width, block, sums);
        if (end % EXACT == 0 || end == from->n)
            exact &= settle(width, sums, totals);
    }
    return exact;
}

/* Add the Gram matrix of mapped rows times factors, rounded towards zero and, where their squares add up to more than
 * norm_limit, scaled to clipped_norm and rounded again, to totals as above. squares: of each row as it was added.
 */
FAST int gaussmix_mapped(const struct source *from, const struct map *by, const double *restrict factors,
                         double norm_limit, double clipped_norm, long long *restrict totals,
                         double *restrict sums, double *restrict squares, double *restrict block,
                         double *restrict z)
{
    const ptrdiff_t width = padded(by->k);
    int exact = 1;
    for (ptrdiff_t start = 0; start < from->n; start += BLOCK) {
        const ptrdiff_t n = load(from, start, block), end = start + n;
        transform(n, by, block, z);
        for (ptrdiff_t i = 0; i < n; i++) {
            double *restrict row = z + i * width, *restrict square = squares + start + i;
            for (ptrdiff_t j = 0; j < width; j++)
                row[j] = trunc(row[j] * factors[j]);
            *square = squared(width, row);
            if (*square <= norm_limit)
                continue;
            if (*square < INEXACT) {
                shrink(width, row, clipped_norm / sqrt(*square));
                *square = squared(width, row);
            } else {
                clear(width, row);
                *square = 0;
                from->left[start + i] = 1;
            }
        }
        multiply(n, width, z, sums);
        if (end % EXACT == 0 || end == from->n)
            exact &= settle(width, sums, totals);
    }
    return exact;
}

/* Compute the squared norms of mapped rows times each of several factors (kinds, padded k), rounded towards zero:
 * (kinds, n). Returns how many rows that are not left out are mapped to zero before rounding.
 */
FAST ptrdiff_t gaussmix_norms(const struct source *from, const struct map *by, ptrdiff_t kinds,
                              const double *restrict factors, double *restrict squares, double *restrict block,
                              double *restrict z)
{
    const ptrdiff_t width = padded(by->k);
    ptrdiff_t zeros = 0;
    for (ptrdiff_t start = 0; start < from->n; start += BLOCK) {
        const ptrdiff_t n = load(from, start, block);
        transform(n, by, block, z);
        for (ptrdiff_t i = 0; i < n; i++) {
            const double *restrict row = z + i * width;
            double least = 1;
            for (ptrdiff_t kind = 0; kind < kinds; kind++) {
                const double *restrict factor = factors + kind * width;
                double lanes[LANES] = {0}, sum = 0;
                for (ptrdiff_t j = 0; j < width; j += LANES)
                    for (int k = 0; k < LANES; k++) {
                        double value = trunc(row[j + k] * factor[j + k]);
                        lanes[k] += value * value;
                    }
                for (int k = 0; k < LANES; k++)
                    sum += lanes[k];
                squares[kind * from->n + start + i] = sum;
                least = sum < least ? sum : least;
            }
            if (least == 0 && !from->left[start + i]) {
                ptrdiff_t j = 0;
                while (j < width && row[j] == 0)
                    j++;
                zeros += j == width;
            }
        }
    }
    return zeros;
}

#else
int gaussmix_kernels_version(void) { return 0; }
#endif
