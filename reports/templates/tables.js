"use strict";
(() => {
  // Filter, sort and copy for tables of class "sheet". The tables are whole without it: it only adds to them.
  const SIZE = { ms: 1e-3, kB: 1e3, MB: 1e6, MiB: 1048576 };
  // Parts of a cell are apart for the eye (line breaks, small print), not in its text.
  const words = cell => [...cell.childNodes].map(part => part.textContent.trim()).join(" ").replace(/\s+/g, " ").trim();
  const amount = text => {
    const found = /^(-?[\d,]*\.?\d+)\s*([a-zA-Z]*)/.exec(text);
    return found ? Number(found[1].replaceAll(",", "")) * (SIZE[found[2]] ?? 1) : NaN;
  };
  const made = (kind, attributes) => Object.assign(document.createElement(kind), attributes);

  for (const sheet of document.querySelectorAll(".sheet")) {
    const table = sheet.querySelector("table");
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    const names = heads.map(words);
    const rows = [...body.rows];
    const tools = made("div", { className: "tools" });
    const filter = made("input", { type: "search", placeholder: "Filter rows" });
    const order = made("select", {});
    const copy = made("button", { type: "button", textContent: "Copy" });
    const state = made("output", {});
    filter.setAttribute("aria-label", "Show only rows with all of these words");
    order.setAttribute("aria-label", "Sort by");
    copy.title = "Copy the rows that are shown, as a spreadsheet takes them";
    order.append(made("option", { textContent: "as it was", value: -1 }),
      ...names.map((name, place) => made("option", { textContent: name, value: place })));
    tools.append(filter, order, copy, state);
    sheet.before(tools);

    const shown = () => rows.filter(row => !row.hidden);
    const count = () => { state.textContent = shown().length === rows.length ? "" : `${shown().length} of ${rows.length}`; };
    filter.addEventListener("input", () => {
      const wanted = filter.value.toLowerCase().split(/\s+/);
      for (const row of rows) {
        const text = [...row.cells].map(words).join(" ").toLowerCase();
        row.hidden = !wanted.every(word => text.includes(word));
      }
      count();
    });

    let by = -1, down = false;
    const sort = place => {
      const numbers = heads[place]?.classList.contains("n");
      down = place === by ? !down : numbers;
      by = place;
      order.value = place;
      heads.forEach((head, other) => head.setAttribute("aria-sort", other !== by ? "none" : down ? "descending" : "ascending"));
      const key = new Map(rows.map(row => {
        const text = row.cells[place] ? words(row.cells[place]) : "";
        return [row, numbers ? amount(text) : text];
      }));
      const lacks = value => value === "" || Number.isNaN(value);
      const compare = (one, other) => numbers ? one - other : one.localeCompare(other, "en", { numeric: true });
      body.append(...(place < 0 ? rows : [...rows].sort((one, other) => {
        const [a, b] = [key.get(one), key.get(other)];
        return lacks(a) - lacks(b) || (lacks(a) ? 0 : compare(a, b) * (down ? -1 : 1));
      })));
    };
    order.addEventListener("change", () => { by = -1; sort(Number(order.value)); });
    heads.forEach((head, place) => {
      if (!names[place]) return;
      const button = made("button", { type: "button" });
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sort(place));
    });

    copy.addEventListener("click", () => {
      const lines = [names, ...[...body.rows].filter(row => !row.hidden).map(row => [...row.cells].map(words))];
      document.addEventListener("copy", event => {
        event.clipboardData.setData("text/plain", lines.map(line => line.join("\t")).join("\n"));
        event.preventDefault();
      }, { once: true });
      // The older call: navigator.clipboard is refused to pages that a plain HTTP server shows.
      const done = document.execCommand("copy");
      state.textContent = done ? `${lines.length - 1} rows copied` : "This browser does not let a page copy";
    });
  }
})();
