"""The most multiply-adds that the machine's cores can do: on numbers that never leave their registers."""

import time

from anygatr.kernels import native

SUMS = 12  # independent ones, enough to keep two units busy that answer after four or five cycles
STEPS, LANES = 4_000_000, 64 // 4  # in the widest vectors; on narrower machines the compiler splits them
SOURCE = f"""
#include <omp.h>
typedef float vec __attribute__((vector_size({4 * LANES})));
void peak(float *out, long steps, long threads) {{
    #pragma omp parallel num_threads(threads) if (threads > 1)
    {{
    vec a = (vec){{0}} + out[0], b = (vec){{0}} + out[1];
    {" ".join(f"vec c{i} = (vec){{0}} + {i};" for i in range(SUMS))}
    for (long k = 0; k < steps; k++) {{ {" ".join(f"c{i} = c{i} * a + b;" for i in range(SUMS))} }}
    vec sum = {" + ".join(f"c{i}" for i in range(SUMS))};
    out[2 + omp_get_thread_num()] = sum[0];
    }}
}}
"""


def peak_rate(threads: int, repetitions: int = 15) -> float:
    """FLOPs per second of all threads together, the best of the repetitions."""
    import torch

    out = torch.tensor([0.999, 0.001, *[0.0] * threads])
    run = native.function(SOURCE, "peak", 1, 2)
    fastest = float("inf")
    for _ in range(repetitions):
        begin = time.perf_counter()
        run(out.data_ptr(), STEPS, threads)
        fastest = min(fastest, time.perf_counter() - begin)
    return 2 * LANES * SUMS * STEPS * threads / fastest
