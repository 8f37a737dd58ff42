// Figure 1 of the paper: points of a line in E, P and C. Drag p and q, translate them, read the coefficients.
"use strict";

(() => {
  const root = document.getElementById("points");
  const range = name => root.querySelector(`input[name=${name}]`);
  const value = name => Number(range(name).value);
  const figures = [...root.querySelectorAll("figure")].map(figure => ({
    space: new Space(figure.dataset.space, 1), drawing: figure.querySelector("svg"), table: figure.querySelector("tbody"),
  }));
  const LIMIT = 2, REACH = 3;  // of p and q, and of what a translation makes of them
  const samples = Array.from({ length: 61 }, (_, i) => REACH * (i / 30 - 1));

  // Where the multivector of a point lies in the drawing of its algebra, in three dimensions
  const lies = {
    E: ({ algebra }, x) => [x[algebra.blades.indexOf("e1")], 0, 0],
    P: ({ algebra }, x) => [-x[algebra.blades.indexOf("e0")], 0, x[algebra.blades.indexOf("e1")]],
    C: ({ algebra }, x) => ["e1", "e+", "e-"].map(name => x[algebra.blades.indexOf(name)]),
  };
  const views = { E: { yaw: 0, pitch: 0, scale: 44, centre: [0, 0, 0] },
                  P: { yaw: 0, pitch: 0, scale: 44, centre: [0, 0, 0.7] },
                  C: { yaw: -0.55, pitch: 0.3, scale: 24, centre: [0, 0, 2.5] } };
  for (const figure of figures) {
    const changed = figure.space.kind === "C" ? draw : null;  // E and P lie in the plane of the page
    figure.view = new View(figure.drawing, { ...views[figure.space.kind], changed });
  }

  const axes = { E: [["e1", [3.2, 0, 0]]], P: [["−e0", [2.9, 0, 0]], ["e1", [0, 0, 1.7]]],
                 C: [["e1", [3.2, 0, 0]], ["e+", [0, 2, 0]], ["e−", [0, 0, 5]]] };
  const circle = height => Array.from({ length: 41 }, (_, i) => i * Math.PI / 20)
    .map(a => [height * Math.cos(a), height * Math.sin(a), height]);

  function backdrop({ space, view }) {
    const lines = axes[space.kind].map(([, end]) => view.curve([space.kind === "C" ? [0, 0, 0] : end.map((c, i) => i ? 0 : -c), end],
      { class: "axis" }));
    const names = axes[space.kind].map(([name, end]) => view.label(end, name));
    const cone = space.kind === "C" ? [1, 2, 3, 4, 5].map(height => view.curve(circle(height), { class: "cone" })) : [];
    const possible = view.curve(samples.map(x => lies[space.kind](space, space.point([x]))), { class: "possible" });
    return [...cone, ...lines, ...names, possible];
  }

  function draw() {
    const shift = value("t");
    for (const figure of figures) {
      const { space, view, drawing, table } = figure, translator = space.translation([shift]);
      const at = x => lies[space.kind](space, x);
      const rows = [], shapes = backdrop(figure);
      for (const name of ["p", "q"]) {
        const point = space.point([value(name)]), moved = space.algebra.sandwich(translator, point);
        shapes.push(view.curve([at(space.algebra.zero()), at(moved)], { class: `arrow moved ${name}` }), view.dot(at(moved), { class: `moved ${name}` }));
        shapes.push(view.curve([at(space.algebra.zero()), at(point)], { class: `arrow ${name}` }));
        shapes.push(view.dot(at(point), { class: `handle ${name}`, "data-name": name, r: 9 }), view.label(at(point), name));
        rows.push([name, point], [`T[${name}]`, moved], [`the point at ${name} + t`, space.point([value(name) + shift])]);
        figure[name] = [point, moved];
      }
      drawing.replaceChildren(...shapes);
      table.replaceChildren(...rows.map(([label, x]) => row(label, space.algebra.format(x), JSON.stringify(x))),
        ...[0, 1].map(i => [i ? "⟨T[p], T[q]⟩" : "⟨p, q⟩", space.algebra.inner(figure.p[i], figure.q[i])])
          .map(([label, number]) => row(label, space.algebra.format(space.algebra.sum([number, space.one])), JSON.stringify(number))));
    }
    for (const output of root.querySelectorAll("output")) output.value = value(output.htmlFor.value).toFixed(2);
  }

  function row(label, text, exact) {
    const out = document.createElement("tr"), head = document.createElement("th"), cell = document.createElement("td");
    head.textContent = label;
    head.scope = "row";
    cell.textContent = text;
    cell.dataset.exact = exact;
    cell.dataset.label = label;
    out.append(head, cell);
    return out;
  }

  // A handle follows the pointer to the nearest possible point of its algebra
  function drag({ space, view, drawing }, event) {
    const name = event.target.dataset.name;
    if (!name) return;
    event.preventDefault();
    const follow = move => {
      const box = drawing.getBoundingClientRect(), unit = 2 * view.middle[0] / box.width;
      const pointer = [(move.clientX - box.left) * unit, (move.clientY - box.top) * unit];
      const distance = x => Math.hypot(...view.place(lies[space.kind](space, space.point([x]))).map((c, i) => c - pointer[i]));
      const candidates = Array.from({ length: 401 }, (_, i) => LIMIT * (i / 200 - 1));
      range(name).value = candidates.reduce((best, x) => distance(x) < distance(best) ? x : best).toFixed(2);
      draw();
    };
    drawing.setPointerCapture(event.pointerId);
    drawing.addEventListener("pointermove", follow);
    for (const end of ["pointerup", "pointercancel"]) {
      drawing.addEventListener(end, () => drawing.removeEventListener("pointermove", follow), { once: true });
    }
  }

  for (const figure of figures) figure.drawing.addEventListener("pointerdown", event => drag(figure, event), { capture: true });
  root.addEventListener("input", draw);
  draw();
  document.documentElement.dataset.drawn = "points";
})();
