// Objects of space, moved by versors. What is drawn is read from the coefficients of the moved multivector.
"use strict";

(() => {
  const root = document.getElementById("playground");
  const controls = root.querySelector("form").elements;
  const drawing = root.querySelector("svg");
  const number = name => Number(controls[name].value);
  const spaces = Object.fromEntries(["E", "P", "C"].map(kind => [kind, new Space(kind, 3)]));
  const view = new View(drawing, { yaw: 0.6, pitch: 0.45, scale: 46, centre: [0, 0, 0.5], changed: draw });

  const PLACE = [1, 0.5, 1], DIRECTION = [0, 0.6, 0.8], RADIUS = 0.8, TURN = [0, 0, 0.6, 0.8];
  const make = {
    point: space => space.point(PLACE),
    vector: space => space.freeVector([0.5, 1, 1]),
    plane: space => space.plane(DIRECTION, PLACE),
    line: space => space.line(PLACE, DIRECTION),
    sphere: space => space.sphere(PLACE, RADIUS),
    circle: space => space.circle(PLACE, DIRECTION, RADIUS),
    motor: space => space.motor(TURN, PLACE),
  };

  // Rotation about an axis through the origin, then translation; before both the reflection in the plane axis = offset
  function versor(space) {
    const half = number("angle") * Math.PI / 360, axis = ["x", "y", "z"].indexOf(controls.axis.value);
    const quaternion = [0, 1, 2].map(i => i === axis ? Math.sin(half) : 0).concat(Math.cos(half));
    const motor = space.algebra.geometric(space.translation(["tx", "ty", "tz"].map(number)), space.rotation(quaternion));
    if (!controls.mirror.checked) return motor;
    const normal = [0, 1, 2].map(i => i === axis ? 1 : 0);
    return space.algebra.geometric(motor, space.plane(normal, normal.map(c => c * number("offset"))));
  }

  // ---- drawing

  const add = (p, ...terms) => p.map((c, i) => c + terms.reduce((total, [factor, v]) => total + factor * v[i], 0));
  const unit = v => v.map(c => c / (Math.hypot(...v) || 1));
  const cross = (a, b) => [0, 1, 2].map(i => a[(i + 1) % 3] * b[(i + 2) % 3] - a[(i + 2) % 3] * b[(i + 1) % 3]);

  // Two directions orthogonal to n and to each other
  function across(n) {
    const start = Math.abs(unit(n)[0]) < 0.7 ? [1, 0, 0] : [0, 1, 0];
    const u = unit(cross(n, start));
    return [u, unit(cross(n, u))];
  }

  const ring = (centre, u, v, radius) => Array.from({ length: 49 }, (_, i) => i * Math.PI / 24)
    .map(a => add(centre, [radius * Math.cos(a), u], [radius * Math.sin(a), v]));

  const draws = {
    point: (space, x) => [view.dot(space.readPoint(x))],
    vector: (space, x) => {
      const end = freeVector(space, x);
      return [view.curve([[0, 0, 0], end]), view.dot(end, { r: 4 })];
    },
    plane: (space, x) => {
      const { normal, foot } = space.readPlane(x), [u, v] = across(normal);
      const corners = [[2, 2], [2, -2], [-2, -2], [-2, 2], [2, 2]].map(([a, b]) => add(foot, [a, u], [b, v]));
      return [view.curve(corners, { class: "face" }), view.curve([foot, add(foot, [0.7, unit(normal)])])];
    },
    line: (space, x) => {
      const { direction, foot } = space.readLine(x);
      return [view.curve([-3, 3].map(c => add(foot, [c, unit(direction)]))), view.dot(add(foot, [1, unit(direction)]), { r: 4 })];
    },
    sphere: (space, x) => {
      const { centre, radius } = space.readRound(x), axes = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
      return axes.map((u, i) => view.curve(ring(centre, u, axes[(i + 1) % 3], radius)));
    },
    circle: (space, x) => {
      const { centre, radius, normal } = space.readRound(x);
      return [view.curve(ring(centre, ...across(normal), radius)), view.curve([centre, add(centre, [0.7, unit(normal)])])];
    },
    // three axes, and where the motor takes them
    motor: (space, x) => {
      const corners = [[0, 0, 0], [0.7, 0, 0], [0, 0.7, 0], [0, 0, 0.7]];
      const ends = corners.map(p => space.readPoint(space.algebra.sandwich(x, space.point(p))));
      return [1, 2, 3].map(i => view.curve([ends[0], ends[i]])).concat(view.dot(ends[0], { r: 4 }));
    },
  };

  // The free vector v of infinity ^ v (e0 ^ v in P), or of v itself in E
  function freeVector(space, x) {
    const basis = [[1, 0, 0], [0, 1, 0], [0, 0, 1]].map(v => space.freeVector(v));
    return basis.map(row => project(x, row));
  }

  function room() {
    const axes = [["x", [3, 0, 0]], ["y", [0, 3, 0]], ["z", [0, 0, 3]]];
    const floor = [-2, -1, 0, 1, 2].flatMap(c => [[[c, -2, 0], [c, 2, 0]], [[-2, c, 0], [2, c, 0]]]);
    return [...floor.map(ends => view.curve(ends, { class: "cone" })),
            ...axes.flatMap(([name, end]) => [view.curve([[0, 0, 0], end], { class: "axis" }), view.label(end, name)])];
  }

  // ---- the table of coefficients

  function table(algebra, columns) {
    const seen = algebra.blades.map((_, k) => k).filter(k => columns.some(x => Math.abs(x[k]) > 1e-12));
    root.querySelector("tbody").replaceChildren(...seen.map(k => {
      const row = document.createElement("tr"), head = document.createElement("th");
      head.textContent = algebra.blades[k];
      head.scope = "row";
      row.dataset.blade = algebra.blades[k];
      row.append(head, ...columns.map(x => {
        const cell = document.createElement("td");
        cell.textContent = x[k].toFixed(3).replace("-", "−");
        cell.dataset.exact = x[k];
        return cell;
      }));
      return row;
    }));
  }

  function draw() {
    const space = spaces[controls.space.value];
    for (const option of controls.object.options) option.disabled = !space.has(option.value);
    if (!space.has(controls.object.value)) controls.object.value = "point";
    controls.offset.disabled = !controls.mirror.checked;
    const object = controls.object.value, before = make[object](space), u = versor(space);
    const after = space.algebra.sandwich(u, before);
    const dim = (shapes, name) => shapes.map(shape => { shape.classList.add("object", name); return shape; });
    drawing.replaceChildren(...room(), ...dim(draws[object](space, before), "before"), ...dim(draws[object](space, after), "after"));
    table(space.algebra, [before, after, u]);
    root.querySelector(".says").textContent = `u = ${space.algebra.format(u)}`;
    for (const output of root.querySelectorAll("output")) output.value = number(output.htmlFor.value);
  }

  root.addEventListener("input", draw);
  root.querySelector("form").addEventListener("reset", () => setTimeout(draw));
  draw();
  document.documentElement.dataset.drawn = "playground";
})();
