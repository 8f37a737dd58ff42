/* Draws the figures in the colours of the page, and again when a view, the theme or the paper changes. */
"use strict";
(() => {
  const root = document.documentElement;
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const config = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"] };
  const chosen = {};
  const touch = matchMedia("(pointer: coarse)");  // where dragging scrolls the page, not the axes

  const resolve = (value, css) => {
    if (typeof value === "string") return value.replace(/var\((--[a-z]+)\)/g, (_, name) => css.getPropertyValue(name).trim());
    if (Array.isArray(value)) return value.map((item) => resolve(item, css));
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, resolve(v, css)]));
    return value;
  };

  const base = (name, css, width) => {  // a width means paper, where figures are flatter
    const [ink, muted, line, card] = ["--ink", "--muted", "--line", "--card"].map((v) => css.getPropertyValue(v).trim());
    const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, tickcolor: line, tickfont: { color: muted }, title: { standoff: 10 } };
    const side = { gridcolor: line, color: muted, showbackground: false, showspikes: false, zeroline: false };
    const hover = { bgcolor: card, bordercolor: line, font: { color: ink } };
    return {
      height: figures[name].height * (width ? 0.78 : 1), ...(width ? { width } : { autosize: true }),
      margin: { l: 12, r: 12, t: 8, b: 12 }, ...(touch.matches ? { dragmode: false } : {}),
      template: { layout: {
        font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: ink },
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", hoverlabel: hover,
        xaxis: axis, yaxis: axis, scene: { xaxis: side, yaxis: side, zaxis: side },
        legend: { orientation: "h", x: 0, xanchor: "left", y: 1.02, yanchor: "bottom", itemsizing: "constant" },
        annotationdefaults: { font: { color: muted } }, modebar: { bgcolor: "rgba(0,0,0,0)", color: muted, activecolor: ink },
      } },
    };
  };

  const draw = (name, width) => {
    const css = getComputedStyle(root);
    const view = figures[name].views[chosen[name] ?? 0];
    const layout = { uirevision: `${name} ${chosen[name] ?? 0}`, ...base(name, css, width), ...resolve(view.layout, css) };
    const scenes = Object.keys(layout).filter((key) => /^scene\d*$/.test(key));
    const eye = layout.scene?.camera.eye;
    if (eye && innerWidth < 600) for (const axis of "xyz") eye[axis] *= 1.3;  // a narrow screen is farther away
    for (const scene of innerWidth < 600 && scenes.length > 1 ? scenes : []) {  // and a long thing has to fit its width
      const { aspectratio } = layout[scene], factor = Math.min(1, 3.4 / aspectratio.x);
      for (const axis of "xyz") aspectratio[axis] *= factor;
    }
    const drawn = Plotly.react(`plot-${name}`, resolve(view.traces, css), layout, config);
    if (scenes.length > 1) link(`plot-${name}`, scenes);
    return drawn;
  };

  const link = (id, scenes) => {  // what one camera does, the others do
    const plot = document.getElementById(id);
    if (plot.dataset.linked) return;
    plot.dataset.linked = "yes";
    let busy = false, latest = null, last = null;
    const follow = (event) => {
      const moved = scenes.find((scene) => event[`${scene}.camera`]);
      if (moved && Object.keys(event).length === 1) {  // our own events name two
        latest = { moved, camera: event[`${moved}.camera`] };
        last = moved;
      }
      if (!latest || busy) return;
      const { moved: first, camera } = latest;
      busy = true;
      latest = null;
      const others = scenes.filter((scene) => scene !== first).map((scene) => [`${scene}.camera`, camera]);
      Plotly.relayout(plot, Object.fromEntries(others)).finally(() => { busy = false; if (latest) follow({}); });
    };
    plot.on("plotly_relayouting", follow);
    plot.on("plotly_relayout", follow);
    addEventListener("pointerup", () => setTimeout(() => {  // the end of a fast drag is not always reported
      const camera = last && plot._fullLayout[last]._scene.getCamera();
      if (camera) Plotly.relayout(plot, Object.fromEntries(scenes.map((scene) => [`${scene}.camera`, camera])));
      last = null;
    }, 100));
  };
  const drawAll = (width) => Object.keys(figures).forEach((name) => draw(name, width));

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const toggle = document.getElementById("theme");
  const setTheme = (theme) => {
    root.dataset.theme = theme;
    toggle.textContent = theme === "dark" ? "Light" : "Dark";
    toggle.setAttribute("aria-label", `Switch to ${theme === "dark" ? "light" : "dark"} colours`);
  };
  const follow = () => setTheme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => { follow(); drawAll(); });
  toggle.addEventListener("click", () => { setTheme(root.dataset.theme === "dark" ? "light" : "dark"); drawAll(); });

  document.querySelectorAll(".views button").forEach((button) => button.addEventListener("click", () => {
    const { figure, view } = button.dataset;
    chosen[figure] = Number(view);
    button.parentElement.querySelectorAll("button").forEach((b) => b.setAttribute("aria-pressed", String(b === button)));
    document.querySelectorAll(`#${figure} [data-numbers]`).forEach((table) => { table.hidden = table.dataset.numbers !== view; });
    draw(figure);
  }));

  const copy = document.getElementById("copy");
  if (copy && navigator.clipboard) {
    copy.hidden = false;
    copy.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById("command").textContent);
      copy.textContent = "Copied";
    });
  }

  const footnotes = document.querySelector("#ranking details");
  let before;
  addEventListener("beforeprint", () => {
    before = { theme: root.dataset.theme, open: footnotes?.open };
    if (footnotes) footnotes.open = true;
    setTheme("light");
    drawAll(680);
  });
  addEventListener("afterprint", () => {
    if (footnotes) footnotes.open = before.open;
    setTheme(before.theme);
    drawAll();
  });

  // one figure at a time, so that the first is there and the page moves while the others are made
  const waiting = Object.keys(figures);
  const next = () => {
    if (!waiting.length) { root.dataset.drawn = "yes"; return; }
    draw(waiting.shift());
    setTimeout(next);
  };
  follow();
  next();
})();
