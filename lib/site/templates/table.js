// Tables that a reader may sort and filter; without this script they are plain tables in their given order.
"use strict";

// Numbers sort as numbers ("1e-09", "≤ 0.5", "0.98 ± 0.02" by their first number), all else as text after them.
function key(cell) {
  const text = cell.textContent.trim().replace("−", "-");
  const number = text.match(/^[≤≥]?\s*(-?(\d+\.?\d*(e[-+]?\d+)?|∞))/i);
  if (!number) return text === "" ? [2, ""] : [1, text.toLowerCase()];
  return [0, Number(number[1].replace("∞", "Infinity"))];
}

function compare(a, b) {
  if (a[0] !== b[0]) return a[0] - b[0];
  return a[0] === 0 ? a[1] - b[1] : a[1].localeCompare(b[1], "en", { numeric: true });
}

function sort(table, column, ascending) {
  const rows = [...table.tBodies[0].rows].map((row) => [key(row.cells[column]), row]);
  rows.sort((a, b) => (ascending ? 1 : -1) * compare(a[0], b[0]));
  table.tBodies[0].append(...rows.map((pair) => pair[1]));
}

for (const table of document.querySelectorAll("table[data-sortable]")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const ascending = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      sort(table, column, ascending);
    });
  });
}

for (const form of document.querySelectorAll("form[data-filters]")) {
  const rows = [...document.getElementById(form.dataset.filters).tBodies[0].rows];
  const filter = () => {
    const asked = Object.fromEntries(new FormData(form));
    const words = asked.words.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const fits = ["paper", "holds", "figure"].every((name) => !asked[name] || row.dataset[name] === asked[name]);
      const text = row.textContent.toLowerCase();
      row.hidden = !(fits && words.every((word) => text.includes(word)));
      shown += !row.hidden;
    }
    form.querySelector("output").textContent = `${shown} of ${rows.length} rows`;
  };
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
}
