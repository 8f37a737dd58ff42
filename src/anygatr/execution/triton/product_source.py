"""Products of multivectors as Triton source: each result in a line of its own, all blades of a number in registers."""

from functools import lru_cache

from anygatr.ops.product import ProductPlan

NUMBERS = 128  # in a program; with four warps one for each thread, which is what registers are counted for


@lru_cache(maxsize=64)
def product_source(plan: ProductPlan, blades: int) -> str:
    """out[t] = sum over terms of sign * left_i * right_j, those of odd products times the reference of the token.

    A number is one channel of one token; stacks are parts of the channels.
    """
    out, left, right = plan.sizes
    sums: dict[tuple[int, int, bool], list[str]] = {}
    reads: dict[str, str] = {}
    for term in plan.terms:
        for k, i, j, sign in term.entries:
            a, b = f"a{term.left}_{i}", f"b{term.right}_{j}"
            reads.setdefault(a, _load("left", i, left, term.left))
            reads.setdefault(b, _load("right", j, right, term.right))
            sums.setdefault((term.target, k, term.odd), []).append(f"{'+' if sign > 0 else '-'} {a} * {b}")
    lines = [
        '@triton.jit(do_not_specialize=["tokens", "channels"])',
        "def product(left, right, reference, out, tokens, channels, REAL: tl.constexpr, NUMBERS: tl.constexpr):",
        "    at = tl.program_id(0).to(tl.int64) * NUMBERS + tl.arange(0, NUMBERS)",
        "    blade = tokens.to(tl.int64) * channels",
        "    inside = at < blade",
        "    n, c = at // channels, at % channels",
    ]
    if any(odd for *_, odd in sums):
        lines.append("    number = tl.load(reference + n, mask=inside, other=0.0).to(REAL)")
    known: set[str] = set()
    for t in range(out):
        for k in range(blades):
            parts = []
            for odd in (False, True):
                terms = sums.get((t, k, odd), [])
                for name in (word for term in terms for word in term.split()[1::2]):
                    if name not in known:
                        known.add(name)
                        lines.append(f"    {name} = {reads[name]}")
                if terms:
                    total = " ".join(terms).removeprefix("+ ")
                    parts.append(f"({total}) * number" if odd else total)
            value = " + ".join(parts) if parts else "tl.zeros((NUMBERS,), dtype=REAL)"
            lines.append(f"    tl.store({_place('out', k, out, t)}, {value}, mask=inside)")
    return "\n".join(lines) + "\n"


def _load(stack: str, blade: int, count: int, member: int) -> str:
    return f"tl.load({_place(stack, blade, count, member)}, mask=inside, other=0.0).to(REAL)"


def _place(stack: str, blade: int, count: int, member: int) -> str:
    # written out each time: addresses kept in variables stay in registers, and the kernels of C take 254 instead of 96
    return f"{stack} + {blade * count} * blade + n * {count} * channels + {member} * channels + c"
