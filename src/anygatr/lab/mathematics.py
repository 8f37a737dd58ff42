"""What the mathematician's commands print: algebras, equivariant maps and expressivity, as tables or JSON."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from rich import box
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from anygatr.algebra import Algebra
from anygatr.equivariance.expressivity import Expressivity, expressivity
from anygatr.equivariance.solver import LinearBasis, MultilinearBasis, linear_maps, multilinear_maps
from anygatr.equivariance.symmetry import Symmetry, pin, spin
from anygatr.lab.config.mathematics import AlgebraConfig, ExpressivityConfig, MapsConfig
from anygatr.lab.system.effort import check_effort
from anygatr.lab.system.terminal import Terminal, description_column
from anygatr.spaces.presets import geometry

GROUP = re.compile(r"(S?)E([123])", re.IGNORECASE)
MAX_ROWS = 32  # of a product table; beyond, only the rows of the generators are printed


def show_algebra(config: AlgebraConfig) -> None:
    """Blades, metric and product table of G(p, q, r)."""
    alg = Algebra(config.p, config.q, config.r)
    table = alg.table(config.product)
    if config.json:
        entries = [[alg.blades[i] for i in row] for row in table.factor.tolist()]
        _print_json(
            {
                "signature": [alg.p, alg.q, alg.r],
                "blades": alg.blades,
                "grades": alg.grades.tolist(),
                "metric": [int(m) for m in alg.metric.tolist()],
                "product": {"name": config.product, "left_factor": entries, "sign": table.sign.int().tolist()},
            }
        )
        return
    console = Terminal()
    squares = ", ".join(f"{name}² = {square}" for name, square in zip(alg.names or (), alg.squares, strict=True))
    signs = alg.metric.int().tolist()
    console.print(Text.assemble((f"G({alg.p},{alg.q},{alg.r})", "bold"), f"  {alg.dim} blades;  {squares}"))
    console.print(f"inner product: {signs.count(1)} positive, {signs.count(-1)} negative, {signs.count(0)} null directions")
    for k, s in enumerate(alg.slices):
        console.print(f"  grade {k}: {' '.join(alg.blades[s])}", highlight=False)
    console.print(f"\n{config.product} product, row times column:")
    console.print(_product_table(alg, config.product, console.width))


def show_maps(config: MapsConfig) -> None:
    """Every equivariant map of a geometry under a group."""
    _check_order(config.order)
    symmetry, group = _symmetry(config.geometry, config.group)
    check_effort(f"order {config.order} of {symmetry.algebra}", symmetry.algebra.dim, config.order)
    if config.order == 1:
        basis: LinearBasis | MultilinearBasis = linear_maps(symmetry)
    else:
        with _progress(f"solving order {config.order}", config.json) as advance:
            basis = multilinear_maps(symmetry, config.order, advance)
    if config.json:
        counts = {" ".join(map(str, g)): n for g, n in basis.counts.items() if n}
        record = {"geometry": config.geometry, "group": group, "order": config.order, "count": len(basis)}
        record |= {"residual": basis.residual, "counts": counts}
        if isinstance(basis, LinearBasis):
            record |= {"formulas": list(basis.names), "maps": basis.tensor.tolist()}
        _print_json(record)
        return
    console = Terminal()
    kind = "linear maps" if config.order == 1 else f"maps of {config.order} multivectors"
    said = f" {group}-equivariant {kind} of {config.geometry}, {symmetry.algebra}"
    console.print(Text.assemble((str(len(basis)), "bold"), said))
    console.print(f"residual {basis.residual:.1e}", style="dim")
    if isinstance(basis, LinearBasis):
        console.print(_formula_table(basis))
    console.print("\nmaps by input grades (rows) and output grade (columns):")
    console.print(_count_table(basis.counts, symmetry.algebra.n))


def show_expressivity(config: ExpressivityConfig) -> None:
    """Which maps can be built, and what is missing."""
    _check_order(config.order)
    symmetry, group = _symmetry(config.geometry, config.group)
    check_effort(f"order {config.order} of {symmetry.algebra}", symmetry.algebra.dim, config.order)
    if config.group is None and not all(symmetry.is_equivariant(name) for name in config.products):
        symmetry, group = _symmetry(config.geometry, "SE3")
    with _progress(f"building order {config.order}", config.json) as advance:
        result = expressivity(symmetry, config.order, config.products, config.linear, advance)
    if config.json:
        missing = {" ".join(map(str, g)): n for g, n in result.missing.items()}
        record = {"geometry": config.geometry, "group": group, "order": config.order, "products": config.products}
        record |= {"linear": len(result.linear), "rank": result.rank, "total": result.total, "complete": result.complete}
        _print_json(record | {"missing": missing, "primes": result.primes})
        return
    print_verdict(Terminal(), config.geometry, group, result)


def print_verdict(console: Terminal, name: str, group: str, result: Expressivity) -> None:
    """One line of verdict; below it the grade blocks with missing maps, input orders merged."""
    colour, verdict = ("green", "complete") if result.complete else ("red", "incomplete")
    about = f": {name} under {group}, order {result.order}, {' + '.join(result.products)}, "
    builds = (f"{len(result.linear)} linear maps: builds ", (str(result.rank), "bold"), f" of {result.total} maps")
    console.print(Text.assemble((verdict, f"bold {colour}"), about, *builds))
    merged: dict[tuple[tuple[int, ...], int], int] = {}
    for grades, n in result.missing.items():
        key = (tuple(sorted(grades[:-1])), grades[-1])
        merged[key] = merged.get(key, 0) + n
    rows = [f"({', '.join(map(str, inputs))}) -> {out}: {n}" for (inputs, out), n in sorted(merged.items())]
    if rows:
        shown = "; ".join(rows[:12]) + (f"; and {len(rows) - 12} more blocks" if len(rows) > 12 else "")
        console.print(f"  missing maps by input grades, in any order: {shown}", style="dim", highlight=False)


def _check_order(order: int) -> None:
    if order < 1:
        raise ValueError(f"order={order} must be at least 1: the number of multivectors that a map takes")


def _symmetry(name: str, group: str | None) -> tuple[Symmetry, str]:
    """The group acting on a preset or signature, and its name."""
    if re.fullmatch(r"\d+,\d+(,\d+)?", name):
        p, q, r = map(int, (name + ",0").split(",")[:3])
        check_effort(f"G({name})", 2 ** min(p + q + r, 100))
        alg = Algebra(p, q, r)
        group = group or "pin"
        if group.lower() not in ("pin", "spin"):
            raise ValueError(f"group={group!r} needs to know where points live; for a signature use pin or spin")
        return (pin(alg) if group.lower() == "pin" else spin(alg)), group
    match = GROUP.fullmatch(group or "")
    if match:
        geo = geometry(name, dim=int(match[2]), mirrors=not match[1])
        return geo.symmetry, f"{match[1].upper()}E({match[2]})"
    if group is not None and group.lower() not in ("pin", "spin"):
        raise ValueError(f"group={group!r} is unknown; use E1, E2, E3, SE1, SE2, SE3, pin or spin")
    geo = geometry(name)
    if group is None:
        return geo.symmetry, f"E({geo.dim})" if geo.point else "Pin"
    return (pin(geo.algebra), "Pin") if group.lower() == "pin" else (spin(geo.algebra), "Spin")


def _product_table(alg: Algebra, product: str, width: int) -> Table:
    """The products of blades, row times column: as many columns as fit a screen, and at least the generators'."""
    generators = range(1, alg.n + 1)
    rows = range(alg.dim) if alg.dim <= MAX_ROWS else generators
    eye = torch.eye(alg.dim, dtype=torch.float64)
    cells = {i: [alg.format(value) for value in alg.product(product, eye[i], eye)] for i in rows}
    needed = sum(1 + max(map(len, column)) for column in zip(alg.blades, *cells.values(), strict=True)) + 1 + alg.n
    columns = range(alg.dim) if needed < width else generators
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("")
    for j in columns:
        table.add_column(alg.blades[j], justify="right", no_wrap=True)
    for i in rows:
        table.add_row(Text(alg.blades[i], style="bold"), *(cells[i][j] for j in columns))
    return table


def _formula_table(basis: LinearBasis) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title, justify in (("#", "right"), ("map", "left"), ("from grade", "right"), ("to grade", "right")):
        table.add_column(title, justify=justify)  # type: ignore[arg-type]
    for number, (name, (i, o)) in enumerate(zip(basis.names, basis.grades, strict=True), 1):
        table.add_row(str(number), name, str(i), str(o))
    return table


def _count_table(counts: dict[tuple[int, ...], int], n: int) -> Table:
    """Counts by sorted input grades (rows) and output grade (columns)."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("in \\ out")
    for o in range(n + 1):
        table.add_column(str(o), justify="right")
    for inputs in sorted({tuple(sorted(g[:-1])) for g in counts}):
        row = [counts[(*inputs, o)] for o in range(n + 1)]
        if any(row):
            table.add_row(" ".join(map(str, inputs)), *(str(c) if c else "·" for c in row))
    return table


@contextmanager
def _progress(title: str, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar with an ETA on standard error."""
    columns = (description_column(), BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeRemainingColumn())
    with Progress(*columns, console=Terminal(stderr=True), transient=True, disable=quiet) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _print_json(record: dict) -> None:
    print(json.dumps(record, ensure_ascii=False))
