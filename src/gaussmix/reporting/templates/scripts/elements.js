// Elements of the page, numbers as text, and files to save. Names go in as text, never as markup.
const Elements = (() => {
  const NAMESPACE = "http://www.w3.org/2000/svg"; // a name: nothing is loaded from it
  const byId = (id) => document.getElementById(id);

  function svg(tag, attributes, text) {
    const element = document.createElementNS(NAMESPACE, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return element;
  }

  function make(tag, properties = {}, ...children) {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  }

  // A name or a number must not turn the direction of its neighbours.
  const isolated = (text) => make("bdi", { textContent: text });

  function cell(tag, text, className = "") {
    const element = make(tag, { className }, isolated(text));
    if (tag === "th") element.scope = "row";
    return element;
  }

  function option(value, label) {
    return make("option", { value, textContent: label === undefined ? value : label });
  }

  // A table's head and rows: strings, or elements that are cells already.
  function fill(table, head, rows) {
    const words = (text, i) => make("th", { scope: "col", className: i ? "number" : "" }, isolated(text));
    table.tHead.replaceChildren(make("tr", {}, ...head.map((text, i) => (text instanceof Node ? text : words(text, i)))));
    table.tBodies[0].replaceChildren(...rows.map((row) => make("tr", {}, ...row.map((value, i) => (
      value instanceof Node ? value : cell(i ? "td" : "th", value, i ? "number" : "")
    )))));
  }

  // Some digits, an exponent only where the number is very large or small; as in Python's format.
  function digits(value, many = 4) {
    if (!Number.isFinite(value)) return Number.isNaN(value) ? "" : value > 0 ? "∞" : "−∞";
    if (value === 0) return "0";
    const [mantissa, power] = value.toExponential(many - 1).split("e"), exponent = Number(power);
    const trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
    if (exponent >= -4 && exponent < many) return trimmed(value.toFixed(Math.max(many - 1 - exponent, 0)));
    return `${trimmed(mantissa)}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
  }

  const whole = (value) => (Number.isFinite(value) ? (Math.round(value) + 0).toLocaleString("en-GB") : "");
  const range = ([low, high], many = 4) => (
    Number.isFinite(low) || Number.isFinite(high) ? `${digits(low, many)} to ${digits(high, many)}` : "does not end"
  );
  const pValue = (p) => (Number.isNaN(p) ? "" : p < 1e-4 ? "<1e-4" : digits(p, 3));
  const percent = (level) => `${digits(100 * level, 6)} %`;

  // RFC 4180; text that a spreadsheet would take for a formula is marked as text.
  function csv(head, rows) {
    const field = (value) => {
      if (typeof value === "number") return Number.isFinite(value) ? String(value) : Number.isNaN(value) ? "" : value > 0 ? "inf" : "-inf";
      const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    return [head, ...rows].map((row) => row.map(field).join(",")).join("\r\n") + "\r\n";
  }

  function save(name, type, text) {
    const link = make("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  const saveTable = (name, head, rows) => save(`${name}.csv`, "text/csv;charset=utf-8", csv(head, rows));

  // Words in a live region are set once, so that they are read once.
  function say(id, words) {
    const element = byId(id);
    if (element.textContent !== words) element.textContent = words;
  }

  return { byId, cell, csv, digits, fill, isolated, make, option, pValue, percent, range, save, saveTable, say, svg, whole };
})();
