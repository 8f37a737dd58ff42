"""C for the sum and the largest of a vector's numbers, after that of exponentials, whose types it takes."""

from anygatr.kernels.tiles import WIDTHS, lanes_of


def across(real: str) -> str:
    """C of `sum_of` and `most_of`, whose result stands in every place of a vector."""
    sums, most = (
        "\n#else\n".join(_folded(step, lanes_of(real, width)) for width in WIDTHS) for step in ("x + y", "larger(x, y)")
    )
    return f"""
static inline vec larger(vec a, vec b) {{ ivec w = a > b; return (vec)(((ivec)a & w) | ((ivec)b & ~w)); }}
static inline vec sum_of(vec x) {{
    vec y;
#ifdef __AVX512F__
{sums}
#endif
    return x;
}}
static inline vec most_of(vec x) {{
    vec y;
#ifdef __AVX512F__
{most}
#endif
    return x;
}}
"""


def _folded(step: str, lanes: int) -> str:
    """Every number with the one half a vector away, then a quarter, down to its neighbour."""
    text, apart = "", lanes // 2
    while apart:
        places = ", ".join(str(lane ^ apart) for lane in range(lanes))
        text += f"    y = PICK(x, x, {places}); x = {step};\n"
        apart //= 2
    return text.rstrip()
