"use strict";
(() => {
  // Values under the mouse: the figure's own numbers at one moment. All of them stand in the tables as well.
  const data = document.getElementById("timeline-values");
  const figure = document.getElementById("timeline-figure");
  const svg = figure && figure.querySelector("svg");
  if (data && svg) {
    const known = JSON.parse(data.textContent);
    const box = svg.viewBox.baseVal;
    const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
    line.setAttribute("class", "cursor");
    line.setAttribute("y1", box.y);
    line.setAttribute("y2", box.y + box.height);
    svg.append(line);
    const values = document.createElement("div");
    values.className = "values";
    values.setAttribute("role", "status");
    values.hidden = true;
    figure.append(values);
    let now = known.from;
    const at = (spans, t) => spans.filter(([begin, end]) => begin <= t && t < end).map(span => span[2]);
    const last = (steps, t) => steps.filter(([since]) => since <= t).map(step => step[1]).pop();
    const rows = t => {
      const second = known.second.findIndex(begin => begin <= t && t < begin + 1);
      const told = [["second of load", t.toFixed(3)]];
      for (const [name, series] of known.series)
        if (second >= 0 && series[second] !== null && series[second] !== undefined)
          told.push([name, series[second].toLocaleString("en", { maximumFractionDigits: 1 })]);
      for (const label of at(known.faults, t)) told.push(["fault", label]);
      for (const [name, spans] of known.brokers) told.push([name, at(spans, t).join(", ") || "not known"]);
      for (const [name, lane] of known.partitions) {
        const leader = at(lane.leaders, t)[0];
        const isr = last(lane.isr, t);
        const led = leader === undefined || leader < 0 ? "no leader" : `led by broker ${leader}`;
        told.push([name, isr === undefined ? led : `${led}, ${isr} in sync`]);
      }
      return told;
    };
    const show = t => {
      now = Math.min(Math.max(t, known.from), known.to);
      const share = known.left + (now - known.from) / (known.to - known.from) * (known.right - known.left);
      line.setAttribute("x1", box.x + share * box.width);
      line.setAttribute("x2", box.x + share * box.width);
      line.style.display = "inline";
      values.replaceChildren(...rows(now).map(([name, value]) => {
        const row = document.createElement("div");
        const what = document.createElement("span");
        what.textContent = name;
        row.append(what, value);
        return row;
      }));
      values.hidden = false;
      values.style.left = share < 0.5 ? "auto" : "8px";
      values.style.right = share < 0.5 ? "8px" : "auto";
    };
    const hide = () => { line.style.display = "none"; values.hidden = true; };
    hide();
    svg.addEventListener("pointermove", event => {
      const place = svg.getBoundingClientRect();
      const share = (event.clientX - place.left) / place.width;
      if (share < known.left || share > known.right) return hide();
      show(known.from + (share - known.left) / (known.right - known.left) * (known.to - known.from));
    });
    svg.addEventListener("pointerleave", hide);
    figure.tabIndex = 0;
    figure.addEventListener("keydown", event => {
      const steps = { ArrowLeft: -1, ArrowRight: 1 };
      if (event.key === "Escape") hide();
      if (event.key in steps) { event.preventDefault(); show(now + steps[event.key] * (event.shiftKey ? 1 : 0.1)); }
    });
    // A time anywhere on the page leads to its moment in the figure.
    for (const link of document.querySelectorAll("a[data-t]"))
      link.addEventListener("click", () => show(Number(link.dataset.t)));
  }
  const contents = document.querySelector("nav.toc");
  if (contents && document.querySelector("details"))
    for (const [words, open] of [["Open all", true], ["Close all", false]]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = words;
      button.addEventListener("click", () => document.querySelectorAll("details").forEach(each => { each.open = open; }));
      contents.append(button);
    }
})();
