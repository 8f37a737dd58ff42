"""C of the row of numbers that a head's channels become in attention, and of its derivative."""

from typing import Any

from anygatr.features import Distance, Feature, Inner


def row_source(name: str, features: tuple[Feature, ...], key: bool, blades: int, real: str) -> str:
    """C of the row that a head's channels make, and of its derivative.

    One loop for each blade: in a loop over several, compilers check at run time whether the blades overlap.
    """
    forward = backward = ""
    place = learned = 0
    begun: set[int] = set()
    for feature in features:
        weight = f"w[({learned} * heads + h) * C + i]" if feature.learned and not key else "1"
        there, back = EMITTERS[type(feature)](feature, key, place, weight, begun, real)
        forward, backward = forward + there, backward + back
        place += feature.size
        learned += feature.learned
    backward = "".join(f"EACH gx[{b} * K + i] = 0;\n" for b in range(blades) if b not in begun) + backward
    return f"""
#define EACH for (int i = 0; i < C; i++)
#define LEARNED_{name} {0 if key else learned}
static void {name}_row(const real *restrict x, const real *restrict w, real *restrict o, long K, long heads, long h) {{
    {forward}
}}
static void {name}_row_backward(const real *restrict x, const real *restrict w, const real *restrict g,
                                real *restrict gx, real *restrict gw, long K, long heads, long h) {{
    {backward}
}}
"""


def _inner(feature: Inner, key: bool, place: int, weight: str, begun: set[int], real: str) -> tuple[str, str]:
    forward = backward = ""
    for j, (blade, sign) in enumerate(zip(feature.blades, feature.signs, strict=True)):
        factor = sign if key else 1.0
        forward += f"EACH o[{place + j} * C + i] = {factor} * x[{blade} * K + i];\n"
        backward += f"EACH gx[{blade} * K + i] {_assign(blade, begun)} {factor} * g[{place + j} * C + i];\n"
    return forward, backward


def _distance(feature: Distance, key: bool, place: int, weight: str, begun: set[int], real: str) -> tuple[str, str]:
    """With u = w / (w^2 + eps), W = w u and P = p u: (|P|^2, W^2, W P) of a query, (-W^2, -|P|^2, 2 W P) of a key."""
    axes = range(len(feature.coordinates))
    o = [f"o[{place + j} * C + i]" for j in range(feature.size)]
    g = [f"(m * g[{place + j} * C + i])" for j in range(feature.size)]
    common = f"{real} m = {weight}, v = x[{feature.weight} * K + i], u = v / (v * v + ({real}){feature.eps}), W = v * u;\n"
    for j, (blade, sign) in enumerate(zip(feature.coordinates, feature.signs, strict=True)):
        common += f"{real} p{j} = {sign} * x[{blade} * K + i], P{j} = p{j} * u;\n"
    common += f"{real} PP = {' + '.join(f'P{j} * P{j}' for j in axes)};\n"
    values = ["-W * W", "-PP", *(f"2 * W * P{j}" for j in axes)] if key else ["PP", "W * W", *(f"W * P{j}" for j in axes)]
    forward = "".join(f"{target} = m * ({value});\n" for target, value in zip(o, values, strict=True))
    cross = " + ".join(f"P{j} * {g[2 + j]}" for j in axes)
    if key:
        slopes = [f"-2 * W * {g[0]} + 2 * ({cross})"] + [f"-2 * P{j} * {g[1]} + 2 * W * {g[2 + j]}" for j in axes]
    else:
        slopes = [f"2 * W * {g[1]} + {cross}"] + [f"2 * P{j} * {g[0]} + W * {g[2 + j]}" for j in axes]
    backward = f"{real} dW = {slopes[0]}, du = v * dW;\n"
    for j, slope in enumerate(slopes[1:]):
        backward += f"{real} d{j} = {slope}; du += p{j} * d{j};\n"
    down = f"(v * v + ({real}){feature.eps})"
    bend = f"(({real}){feature.eps} - v * v) / ({down} * {down})"
    backward += f"gx[{feature.weight} * K + i] {_assign(feature.weight, begun)} u * dW + {bend} * du;\n"
    for j, (blade, sign) in enumerate(zip(feature.coordinates, feature.signs, strict=True)):
        backward += f"gx[{blade} * K + i] {_assign(blade, begun)} {sign} * u * d{j};\n"
    if weight != "1":
        total = " + ".join(f"g[{place + j} * C + i] * ({value})" for j, value in enumerate(values))
        backward += f"{weight.replace('w[', 'gw[')} += {total};\n"
    return f"EACH {{ {common}{forward} }}\n", f"EACH {{ {common}{backward} }}\n"


def _assign(blade: int, begun: set[int]) -> str:
    """Write a blade's gradient the first time, add to it later."""
    operator = "+=" if blade in begun else "="
    begun.add(blade)
    return operator


EMITTERS: dict[type, Any] = {Inner: _inner, Distance: _distance}
