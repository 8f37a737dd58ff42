"""Rows of attention as Triton source: features of queries and keys and blades of values, head by head, and their gradients.

A program handles numbers, one channel of one token each; what a channel belongs to, a query, a key or a value, is a mask.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from anygatr.ops.attention import Attention
from anygatr.spaces.features import Distance, Inner

NUMBERS = 128
Roles = tuple[str, ...]
SELF, QUERIES, KEYS = ("q", "k", "v"), ("q",), ("k", "v")


def supports(op: Attention) -> bool:
    """Whether there is source for all of its features."""
    return all(type(feature) in (Inner, Distance) for feature in op.features)


@dataclass(frozen=True)
class _Role:
    """Where the channels of queries, keys or values are, and how long their rows."""

    name: str
    heads: int
    first: int
    first_s: int
    numbers: int  # of a row from one channel

    def place(self, op: Attention, f: str | int, kind: str = "") -> str:
        """Where number f of this element's row is."""
        c, s = op.head
        row = self.numbers * c + s
        inner = f"{f} * {c}" if kind == "" else f"{self.numbers * c}"
        return f"(n{kind} * {self.heads} + h{kind}_{self.name}) * {row} + {inner} + j{kind}_{self.name}"


def _roles(op: Attention, roles: Roles) -> list[_Role]:
    c, s = op.head
    heads = {"q": op.heads, "k": op.key_heads, "v": op.key_heads}
    compared = sum(f.size for f in op.features)
    out, at = list[_Role](), 0
    for name in roles:
        numbers = len(op.mixed) if name == "v" else compared
        out.append(_Role(name, heads[name], at * c, at * s, numbers))
        at += heads[name]
    return out


def _channels(op: Attention, roles: Roles) -> tuple[int, int]:
    heads = sum(r.heads for r in _roles(op, roles))
    return heads * op.head[0], heads * op.head[1]


def _head(op: Attention, roles: Roles, names: str) -> list[str]:
    """The opening of both kernels: which number of which role each place is."""
    lines = [
        '@triton.jit(do_not_specialize=["tokens"])',
        f"def rows{'_backward' if 'gx' in names else ''}({names}, tokens, REAL: tl.constexpr, NUMBERS: tl.constexpr):",
        "    at = tl.program_id(0).to(tl.int64) * NUMBERS + tl.arange(0, NUMBERS)",
    ]
    for kind, width, size in zip(("", "s"), _channels(op, roles), op.head, strict=True):
        if not width:
            continue
        lines += [
            f"    inside{kind} = at < tokens.to(tl.int64) * {width}",
            f"    n{kind}, ch{kind} = at // {width}, at % {width}",
        ]
        for r in _roles(op, roles):
            first = r.first_s if kind else r.first
            lines += [
                f"    in{kind}_{r.name} = inside{kind} & (ch{kind} >= {first}) & (ch{kind} < {first + r.heads * size})",
                f"    h{kind}_{r.name}, j{kind}_{r.name} = (ch{kind} - {first}) // {size}, (ch{kind} - {first}) % {size}",
            ]
    return lines


@lru_cache(maxsize=64)
def rows_source(op: Attention, roles: Roles) -> str:
    """x and s of a stream to the rows of its queries, keys and values."""
    lines = _head(op, roles, ", ".join(["x", "s", "weights", *roles]))
    (width, width_s), known = _channels(op, roles), set[int]()
    for r in _roles(op, roles) if width else ():
        parts = [f"x{b}" for b in op.mixed] if r.name == "v" else _features(op, r.name, lines, known, width)
        _load_blades(op.mixed if r.name == "v" else (), lines, known, width)
        lines += [f"    tl.store({r.name} + {r.place(op, f)}, {part}, mask=in_{r.name})" for f, part in enumerate(parts)]
    if width_s:
        lines.append("    scalar = tl.load(s + at, mask=insides, other=0.0)")
        lines += [f"    tl.store({r.name} + {r.place(op, 0, 's')}, scalar, mask=ins_{r.name})" for r in _roles(op, roles)]
    return "\n".join(lines) + "\n"


@lru_cache(maxsize=64)
def rows_backward_source(op: Attention, roles: Roles) -> str:
    """The gradients of rows to those of x, s and, for each token, the logarithms of the learned weights."""
    grads = [f"g{role}" for role in roles]
    lines = _head(op, roles, ", ".join(["x", "weights", *grads, "gx", "gs", "gw"]))
    (width, width_s), known = _channels(op, roles), set[int]()
    sums: dict[int, list[str]] = {b: [] for b in range(op.blades)}
    for r in _roles(op, roles) if width else ():
        count = len(op.mixed) if r.name == "v" else sum(f.size for f in op.features)
        for f in range(count):
            load = f"tl.load(g{r.name} + {r.place(op, f)}, mask=in_{r.name}, other=0.0).to(REAL)"
            lines.append(f"    d{r.name}_{f} = {load}")
        if r.name == "v":
            for f, b in enumerate(op.mixed):
                sums[b].append(f"dv_{f}")
        else:
            _feature_gradients(op, r.name, lines, known, width, sums)
    for b, parts in sums.items() if width else ():
        total = " + ".join(parts) if parts else "tl.zeros((NUMBERS,), dtype=REAL)"
        lines.append(f"    tl.store(gx + {b} * tokens.to(tl.int64) * {width} + at, {total}, mask=inside)")
    if width_s:
        loads = (f"tl.load(g{r.name} + {r.place(op, 0, 's')}, mask=ins_{r.name}, other=0.0)" for r in _roles(op, roles))
        lines.append(f"    tl.store(gs + at, {' + '.join(loads)}, mask=insides)")
    return "\n".join(lines) + "\n"


def _load_blades(blades: Sequence[int], lines: list[str], known: set[int], width: int) -> None:
    for b in blades:
        if b not in known:
            known.add(b)
            load = f"tl.load(x + {b} * tokens.to(tl.int64) * {width} + at, mask=inside, other=0.0).to(REAL)"
            lines.append(f"    x{b} = {load}")


def _features(op: Attention, role: str, lines: list[str], known: set[int], width: int) -> list[str]:
    """The numbers of a row of queries or keys, as expressions."""
    parts, learned = list[str](), 0
    for at, feature in enumerate(op.features):
        if isinstance(feature, Inner):
            blades = feature.blades if role == "q" else feature.key_blades
            signs = [1.0] * len(blades) if role == "q" else feature.signs
            _load_blades(blades, lines, known, width)
            parts += [f"x{b} * {sign}" for b, sign in zip(blades, signs, strict=True)]
            continue
        assert isinstance(feature, Distance)
        p = _normalised(op, feature, at, role, lines, known, width)
        squares = " + ".join(f"{q} * {q}" for q in p[1:])
        if role == "k":
            parts += [f"-{p[0]} * {p[0]}", f"-({squares})", *(f"2.0 * {p[0]} * {q}" for q in p[1:])]
            continue
        w = _weight(op, learned, lines)
        learned += 1
        parts += [f"{w} * ({squares})", f"{w} * {p[0]} * {p[0]}", *(f"{w} * {p[0]} * {q}" for q in p[1:])]
    return parts


def _normalised(
    op: Attention, feature: Distance, at: int, role: str, lines: list[str], known: set[int], width: int
) -> list[str]:
    """The names of the weight and the coordinates times w / (w^2 + eps)."""
    _load_blades(feature.blades, lines, known, width)
    w, name = f"x{feature.weight}", f"{role}{at}"
    lines.append(f"    t{name} = {w} / ({w} * {w} + {feature.eps})")
    signs = (1.0, *feature.signs)
    for i, (b, sign) in enumerate(zip(feature.blades, signs, strict=True)):
        lines.append(f"    p{name}_{i} = x{b} * {sign} * t{name}")
    return [f"p{name}_{i}" for i in range(len(signs))]


def _weight(op: Attention, learned: int, lines: list[str]) -> str:
    """The weight of a learned feature for this element's head and channel, exp of what is stored."""
    c = op.head[0]
    place = f"{learned * op.heads * c} + h_q * {c} + j_q"
    lines.append(f"    w{learned} = tl.exp(tl.load(weights + {place}, mask=in_q, other=0.0).to(REAL))")
    return f"w{learned}"


def _feature_gradients(
    op: Attention, role: str, lines: list[str], known: set[int], width: int, sums: dict[int, list[str]]
) -> None:
    """Add what the row of a query or key contributes to the gradient of each blade, and write that of learned weights."""
    f, learned = 0, 0
    for at, feature in enumerate(op.features):
        d = [f"d{role}_{f + i}" for i in range(feature.size)]
        f += feature.size
        if isinstance(feature, Inner):
            blades = feature.blades if role == "q" else feature.key_blades
            signs = [1.0] * len(blades) if role == "q" else feature.signs
            for b, sign, g in zip(blades, signs, d, strict=True):
                sums[b].append(f"{g} * {sign}")
            continue
        assert isinstance(feature, Distance)
        p, name = _normalised(op, feature, at, role, lines, known, width), f"{role}{at}"
        first, rest = p[0], list(enumerate(p[1:]))
        along = " + ".join(f"{d[2 + i]} * {q}" for i, q in rest)
        if role == "q":
            w = _weight(op, learned, lines)
            squares = " + ".join(f"{q} * {q}" for _, q in rest)
            lines.append(f"    l{name} = {w} * ({d[0]} * ({squares}) + {d[1]} * {first} * {first} + {first} * ({along}))")
            place = f"({learned} * tokens.to(tl.int64) + n) * {op.heads * op.head[0]} + ch"
            lines.append(f"    tl.store(gw + {place}, l{name}, mask=in_q)")
            learned += 1
            own = [f"{w} * (2.0 * {first} * {d[1]} + {along})"]
            own += [f"{w} * (2.0 * {q} * {d[0]} + {first} * {d[2 + i]})" for i, q in rest]
        else:
            own = [f"2.0 * ({along} - {first} * {d[0]})"]
            own += [f"2.0 * ({first} * {d[2 + i]} - {q} * {d[1]})" for i, q in rest]
        lines += [f"    e{name}_{i} = {g}" for i, g in enumerate(own)]
        signs, x_w = (1.0, *feature.signs), f"x{feature.weight}"
        turned = " + ".join(f"e{name}_{i} * {s} * x{b}" for i, (b, s) in enumerate(zip(feature.blades, signs, strict=True)))
        size = f"({x_w} * {x_w} + {feature.eps})"
        lines.append(f"    f{name} = ({turned}) * ({feature.eps} - {x_w} * {x_w}) / ({size} * {size})")
        sums[feature.weight].append(f"f{name}")
        for i, (b, sign) in enumerate(zip(feature.blades, signs, strict=True)):
            sums[b].append(f"e{name}_{i} * {sign} * t{name}")
