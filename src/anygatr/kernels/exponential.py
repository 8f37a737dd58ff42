"""C for exponentials of vectors, after that of matrix products, whose vectors it takes."""

from math import factorial

DEGREES = {"float": 7, "double": 13}  # of the polynomial on [-log(2) / 2, log(2) / 2]


def exponential(real: str) -> str:
    """C of exponentials of non-positive vectors: zero where the result would slow matrix products down or underflow."""
    degree, (integer, bias, shift) = DEGREES[real], {"float": ("int", 127, 23), "double": ("long", 1023, 52)}[real]
    horner = "".join(f"p = p * r + (real){1 / factorial(d)!r};\n" for d in range(degree - 1, -1, -1))
    return f"""
typedef {integer} ivec __attribute__((vector_size(BYTES), aligned(sizeof(real))));
static inline vec exponential(vec x) {{
    ivec n = __builtin_convertvector(x * (real)1.4426950408889634 - (real)0.5, ivec);
    vec r = x - __builtin_convertvector(n, vec) * (real)0.6931471805599453, p = (vec){{0}} + (real){1 / factorial(degree)!r};
    {horner}
    ivec power = (n + {bias}) << {shift}, far = x < (real)-69;
    return (vec)((ivec)(p * (vec)power) & ~far);
}}
"""
