"use strict";
// A field that filters the claims of a paper, and folds that open before a page is printed.

document.addEventListener("DOMContentLoaded", () => {
  const article = document.querySelector("article > section");
  const sections = [...document.querySelectorAll("article > section > section")];
  const rows = (part) => [...part.querySelectorAll("table.claims tbody tr")];
  if (!sections.some((section) => section.querySelector("table.claims"))) return;
  if (rows(article).length < 12) return;

  const bar = document.createElement("p");
  const field = document.createElement("input");
  const count = document.createElement("output");
  bar.className = "filter";
  bar.append(field, " ", count);
  field.type = "search";
  field.placeholder = "Filter: Lemma 5, fails, norm ...";
  field.setAttribute("aria-label", "Filter the claims");
  article.querySelector("p").after(bar);

  // A statement is shown with all its claims if its own words match, else with those that do.
  const filter = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (text) => words.every((word) => text.toLowerCase().includes(word));
    for (const section of sections) {
      const own = [...section.children].filter((part) => part.matches("h2, p"));
      const text = own.map((part) => part.textContent).join(" ");
      for (const row of rows(section)) row.hidden = !matches(text + row.textContent);
      section.hidden = !matches(text) && rows(section).every((row) => row.hidden);
    }
    const shown = rows(article).filter((row) => !row.hidden);
    count.textContent = `${shown.length} of ${rows(article).length} claims`;
  };
  field.addEventListener("input", filter);
  filter();
});

window.addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details")) fold.open = true;
});
