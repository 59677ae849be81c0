/* What is done to every entry of a row, in one pass over it: the same bits as numpy's, one operation after the other.
 *
 * Compiled without -ffast-math and with -ffp-contract=off: every operation is IEEE 754's and is rounded by itself.
 * Sums of squares are of whole numbers. Below 2^53 they are exact in any order; at 2^53 or more they are so in any
 * order (gaussmix/tables/transforms.py). All that is decided by them is decided in Python.
 */
#include <math.h>
#include <stddef.h>

#define VERSION 4 /* of this file and _fused.c, as in kernels.py: raise it with every change of either */
#define LANES 8   /* sums that are added up side by side */

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EVERY_PROCESSOR __attribute__((target_clones("avx2", "default")))
#else
#define FOR_EVERY_PROCESSOR
#endif

int gaussmix_kernels_version(void) { return VERSION; }

static inline double total(const double *lanes)
{
    double sum = 0;
    for (int k = 0; k < LANES; k++)
        sum += lanes[k];
    return sum;
}

/* Rows (x - centre) * multiplier, clipped to +-limits and rounded towards zero, of d features and then of targets; the
 * constant last where m says so. squares: of the features of each row, unless NULL. Returns whether all x were finite.
 */
FOR_EVERY_PROCESSOR
int gaussmix_encode(ptrdiff_t n, ptrdiff_t d, ptrdiff_t targets, ptrdiff_t m, const double *X, ptrdiff_t stride_X,
                    const double *Y, ptrdiff_t stride_Y, const double *centre, const double *multiplier,
                    const double *limits, double constant, double *restrict rows, double *restrict squares)
{
    long long bad = 0;
    for (ptrdiff_t i = 0; i < n; i++) {
        const double *x = X + i * stride_X, *y = Y + i * stride_Y;
        double *restrict row = rows + i * m;
        for (ptrdiff_t j = 0; j < d; j++) {
            double value = (x[j] - centre[j]) * multiplier[j], limit = limits[j];
            bad |= (long long)(x[j] - x[j] != 0);
            value = value < -limit ? -limit : value;
            value = value > limit ? limit : value;
            row[j] = trunc(value);
        }
        for (ptrdiff_t j = d; j < d + targets; j++) {
            double entry = y[j - d], value = (entry - centre[j]) * multiplier[j], limit = limits[j];
            bad |= (long long)(entry - entry != 0);
            value = value < -limit ? -limit : value;
            value = value > limit ? limit : value;
            row[j] = trunc(value);
        }
        if (m > d + targets)
            row[d + targets] = constant;
        if (squares) {
            double lanes[LANES] = {0};
            ptrdiff_t j = 0;
            for (; j + LANES <= d; j += LANES)
                for (int k = 0; k < LANES; k++)
                    lanes[k] += row[j + k] * row[j + k];
            for (; j < d; j++)
                lanes[0] += row[j] * row[j];
            squares[i] = total(lanes);
        }
    }
    return !bad;
}

/* Products times factors, rounded towards zero, in place; squares of each row. */
FOR_EVERY_PROCESSOR
void gaussmix_scale(ptrdiff_t n, ptrdiff_t k, double *restrict rows, const double *restrict factors,
                    double *restrict squares)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        double *restrict row = rows + i * k;
        double lanes[LANES] = {0};
        ptrdiff_t j = 0;
        for (; j + LANES <= k; j += LANES)
            for (int l = 0; l < LANES; l++) {
                double value = trunc(row[j + l] * factors[j + l]);
                row[j + l] = value;
                lanes[l] += value * value;
            }
        for (; j < k; j++) {
            double value = trunc(row[j] * factors[j]);
            row[j] = value;
            lanes[0] += value * value;
        }
        squares[i] = total(lanes);
    }
}

/* The same squares, and the products stay as they are. */
FOR_EVERY_PROCESSOR
void gaussmix_norms(ptrdiff_t n, ptrdiff_t k, const double *restrict products, const double *restrict factors,
                    double *restrict squares)
{
    for (ptrdiff_t i = 0; i < n; i++) {
        const double *restrict row = products + i * k;
        double lanes[LANES] = {0};
        ptrdiff_t j = 0;
        for (; j + LANES <= k; j += LANES)
            for (int l = 0; l < LANES; l++) {
                double value = trunc(row[j + l] * factors[j + l]);
                lanes[l] += value * value;
            }
        for (; j < k; j++) {
            double value = trunc(row[j] * factors[j]);
            lanes[0] += value * value;
        }
        squares[i] = total(lanes);
    }
}
