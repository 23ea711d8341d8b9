"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");

  // A cell's number in full precision; null where there is none, and text where it is no number.
  const key = (cell) => {
    const value = cell.dataset.value;
    if (value === undefined) return cell.textContent.trim();
    return value === "" ? null : Number(value);
  };

  const order = (a, b, sign) => {
    if (a === null || b === null) return (a === null) - (b === null);
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), "en", { numeric: true });
  };

  const sort = (head) => {
    const table = head.closest("table");
    const body = table.tBodies[0];
    const column = head.cellIndex;
    // The larger number is asked for first, and the first name.
    const first = head.classList.contains("number") ? "descending" : "ascending";
    const other = first === "descending" ? "ascending" : "descending";
    const direction = head.getAttribute("aria-sort") === first ? other : first;
    for (const one of head.parentElement.cells) one.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const rows = [...body.rows].filter((row) => !row.classList.contains("pinned"));
    rows.sort((a, b) => order(key(a.cells[column]), key(b.cells[column]), sign));
    body.append(...rows);
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("th button");
    if (button) sort(button.parentElement);
  });

  // What is folded away belongs on paper too.
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const part of opened) part.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const part of opened) part.open = false;
    opened = [];
  });
})();
