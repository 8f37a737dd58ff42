"""C of the rows of numbers that heads' channels become in attention, and of their derivative."""

from typing import Any

from anygatr.spaces.features import Distance, Feature, Inner


def row_source(name: str, features: tuple[Feature, ...], key: bool, blades: int, real: str) -> str:
    """C of the rows that the channels of `count` heads make, from head h on and `ld` numbers apart, and of its derivative.

    One loop for each blade: in a loop over several, compilers check at run time whether the blades overlap.
    """
    forward = backward = ""
    place = learned = 0
    begun: set[int] = set()
    for feature in features:
        weight = f"w[({learned} * heads + h + r) * C + i]" if feature.learned and not key else "1"
        there, back = EMITTERS[type(feature)](feature, key, place, weight, begun, real)
        forward, backward = forward + there, backward + back
        place += feature.size
        learned += feature.learned
    backward = "".join(f"EACH {_channel('gx', b)} = 0;\n" for b in range(blades) if b not in begun) + backward
    return f"""
#define EACH for (long r = 0; r < count; r++) for (int i = 0; i < C; i++)
#define LEARNED_{name} {0 if key else learned}
static void {name}_rows_of(const real *restrict x, const real *restrict w, real *restrict o, long K, long heads, long h,
                   long count, long ld) {{
    {forward}
}}
static void {name}_rows_backward(const real *restrict x, const real *restrict w, const real *restrict g,
                   real *restrict gx, real *restrict gw, long K, long heads, long h, long count, long ld) {{
    {backward}
}}
"""


def _inner(feature: Inner, key: bool, place: int, weight: str, begun: set[int], real: str) -> tuple[str, str]:
    forward = backward = ""
    for j, (blade, sign) in enumerate(zip(feature.blades, feature.signs, strict=True)):
        factor = sign if key else 1.0
        forward += f"EACH {_number('o', place + j)} = {factor} * {_channel('x', blade)};\n"
        backward += f"EACH {_channel('gx', blade)} {_assign(blade, begun)} {factor} * {_number('g', place + j)};\n"
    return forward, backward


def _distance(feature: Distance, key: bool, place: int, weight: str, begun: set[int], real: str) -> tuple[str, str]:
    """With u = w / (w^2 + eps), W = w u and P = p u: (|P|^2, W^2, W P) of a query, (-W^2, -|P|^2, 2 W P) of a key."""
    axes = range(len(feature.coordinates))
    o = [_number("o", place + j) for j in range(feature.size)]
    g = [f"(m * {_number('g', place + j)})" for j in range(feature.size)]
    common = f"{real} m = {weight}, v = {_channel('x', feature.weight)};\n"
    common += f"{real} u = v / (v * v + ({real}){feature.eps}), W = v * u;\n"
    for j, (blade, sign) in enumerate(zip(feature.coordinates, feature.signs, strict=True)):
        common += f"{real} p{j} = {sign} * {_channel('x', blade)}, P{j} = p{j} * u;\n"
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
    backward += f"{_channel('gx', feature.weight)} {_assign(feature.weight, begun)} u * dW + {bend} * du;\n"
    for j, (blade, sign) in enumerate(zip(feature.coordinates, feature.signs, strict=True)):
        backward += f"{_channel('gx', blade)} {_assign(blade, begun)} {sign} * u * d{j};\n"
    if weight != "1":
        total = " + ".join(f"{_number('g', place + j)} * ({value})" for j, value in enumerate(values))
        backward += f"{weight.replace('w[', 'gw[')} += {total};\n"
    return f"EACH {{ {common}{forward} }}\n", f"EACH {{ {common}{backward} }}\n"


def _channel(of: str, blade: int) -> str:
    return f"{of}[{blade} * K + r * C + i]"


def _number(of: str, place: int) -> str:
    return f"{of}[r * ld + {place} * C + i]"


def _assign(blade: int, begun: set[int]) -> str:
    """Write a blade's gradient the first time, add to it later."""
    operator = "+=" if blade in begun else "="
    begun.add(blade)
    return operator


EMITTERS: dict[type, Any] = {Inner: _inner, Distance: _distance}
