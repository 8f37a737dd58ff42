"""Products of multivectors by table: one kernel for every plan, compiled once, slower than an unrolled one."""

import triton
import triton.language as tl

from anygatr.execution.triton.product_tables import PLACES

PAIR = tl.constexpr(PLACES)
SIZES = ["tokens", "channels", "count", "results", "lefts", "rights"]


@triton.jit(do_not_specialize=SIZES)
def product_table_kernel(
    left, right, reference, targets, runs, pairs, out,
    tokens, channels, count, results, lefts, rights,
    ODD: tl.constexpr, REAL: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    """out_k = sum over the runs of target k of sign * (sum over pairs (i, j) of left_i right_j), odd runs * reference.

    A number is one channel of one token; `results`, `lefts` and `rights` say how many multivectors share the channels of a
    stream. A program reads the blades of its numbers again and again, from the cache of its processor.
    """
    at = tl.program_id(0).to(tl.int64) * NUMBERS + tl.arange(0, NUMBERS)
    blade = tokens.to(tl.int64) * channels
    inside = at < blade
    n, c = at // channels, at % channels
    for target in range(count):
        total = tl.zeros((NUMBERS,), dtype=REAL)
        for run in range(tl.load(targets + target), tl.load(targets + target + 1)):
            row = runs + 6 * run
            a = left + (n * lefts + tl.load(row)) * channels + c
            b = right + (n * rights + tl.load(row + 1)) * channels + c
            part = tl.zeros((NUMBERS,), dtype=REAL)
            for at_pair in range(tl.load(row + 2), tl.load(row + 3)):
                pair = tl.load(pairs + at_pair)
                value = tl.load(a + (pair // PAIR) * lefts * blade, mask=inside, other=0.0).to(REAL)
                part += value * tl.load(b + (pair % PAIR) * rights * blade, mask=inside, other=0.0).to(REAL)
            part *= tl.load(row + 4).to(REAL)
            if ODD:  # noqa: SIM102  the outer one is decided by the compiler
                if tl.load(row + 5) != 0:
                    part *= tl.load(reference + n, mask=inside, other=0.0).to(REAL)
            total += part
        place = (target // results) * results * blade + (n * results + target % results) * channels + c
        tl.store(out + place, total, mask=inside)
