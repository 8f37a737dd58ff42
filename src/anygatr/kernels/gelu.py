"""C for both forms of GELU and their slopes, of vectors: v times a share that rises from 0 to 1."""

from functools import lru_cache
from math import erfc, exp, pi, sqrt

from numpy.polynomial import chebyshev

from anygatr.kernels.exponential import exponential

FAR = 6.0  # where the complementary error function is below the rounding of 1
DEGREES = {"float": 10, "double": 18}  # of the polynomial for exp(z^2) erfc(z) in 1 / (1 + z / 2)


@lru_cache(maxsize=2)
def gelu_source(real: str) -> str:
    """C of `gelu_exact` and `gelu_tanh(v, slope)`, and of exponentials; slope may be null.

    The share is exp(-z^2) times a smooth function of z, |v| = sqrt(2) z, or that taken from 1; or 1 / (1 + exp(-2u)).
    """
    least = 1 / (1 + FAR / 2)
    horner = "".join(f"p = p * y + (real){c!r};\n" for c in _polynomial(DEGREES[real])[::-1])
    return f"""{exponential(real)}
static inline vec pick(ivec which, vec a, vec b) {{ return (vec)(((ivec)a & which) | ((ivec)b & ~which)); }}
static inline vec gelu_exact(vec v, vec *slope) {{
    ivec below = v < 0;
    vec none = {{0}}, z = pick(below, -v, v) * (real){sqrt(0.5)!r}, small = exponential(-z * z), t = 1 / (1 + z / 2);
    t = pick(t < (real){least!r}, none + (real){least!r}, t);
    vec y = (t - (real){least!r}) * (real){2 / (1 - least)!r} - 1, p = none;
    {horner}
    p *= small / 2;
    vec share = pick(below, p, 1 - p);
    if (slope) *slope = share + v * small * (real){1 / sqrt(2 * pi)!r};
    return v * share;
}}
static inline vec gelu_tanh(vec v, vec *slope) {{
    vec u = (real){2 * sqrt(2 / pi)!r} * v * (1 + (real)0.044715 * v * v);
    ivec below = u < 0;
    vec one = (vec){{0}} + 1, small = exponential(pick(below, u, -u)), over = 1 / (1 + small);
    vec share = pick(below, small, one) * over, rest = pick(below, one, small) * over;
    vec steep = (real){2 * sqrt(2 / pi)!r} * (1 + (real){3 * 0.044715!r} * v * v);
    if (slope) *slope = share + v * share * rest * steep;
    return v * share;
}}
"""


def _polynomial(degree: int) -> list[float]:
    """Of exp(z^2) erfc(z) in y, where 1 / (1 + z / 2) goes from its least to 1 as y goes from -1 to 1."""
    least, nodes = 1 / (1 + FAR / 2), chebyshev.chebpts1(degree + 1)
    z = 2 / ((nodes + 1) / 2 * (1 - least) + least) - 2
    fitted = chebyshev.chebfit(nodes, [exp(a * a) * erfc(a) for a in z.tolist()], degree)
    return [float(c) for c in chebyshev.cheb2poly(fitted)]
