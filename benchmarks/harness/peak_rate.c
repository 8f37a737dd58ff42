/* Multiply-adds on vectors that stay in registers. SUMS and LANES are given to the compiler by peak_rate.py. */
#include <omp.h>

typedef float vec __attribute__((vector_size(4 * LANES)));

/* scale, shift: of every step x = scale x + shift; out: one number for each thread, so that nothing is left out. */
void peak(float scale, float shift, float *out, long steps, long threads) {
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        vec a = (vec){0} + scale, b = (vec){0} + shift, x[SUMS], total = {0};
        for (int i = 0; i < SUMS; i++) x[i] = (vec){0} + (float)i;
        for (long k = 0; k < steps; k++)
            for (int i = 0; i < SUMS; i++) x[i] = x[i] * a + b;
        for (int i = 0; i < SUMS; i++) total += x[i];
        out[omp_get_thread_num()] = total[0];
    }
}
