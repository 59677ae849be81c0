// Elements of the page, numbers as text, and files to save. Names go in as text, never as markup.
const byId = (id) => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function svg(tag, attributes, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag); // a namespace: nothing is loaded
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}

const isolated = (text) => make("bdi", { textContent: text }); // isolates right-to-left names from their surroundings
const option = (value, label = value) => make("option", { value, textContent: label });

// Text of a live region is set only if it changed, so that it is read once.
function say(id, words) {
  if (byId(id).textContent !== words) byId(id).textContent = words;
}

// Some digits, an exponent only where the number is very large or small; as in Python's format.
function digits(value, many = 4) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "" : value > 0 ? "∞" : "−∞";
  const [mantissa, power] = value.toExponential(many - 1).split("e"), exponent = Number(power);
  const trimmed = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);
  if (exponent >= -4 && exponent < many) return trimmed(value.toFixed(Math.max(many - 1 - exponent, 0)));
  return `${trimmed(mantissa)}e${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
}

// A number to the digit of the second significant digit of its standard error.
function toError(value, error) {
  if (!(error > 0) || !Number.isFinite(value)) return digits(value, 6);
  const decimals = 1 - Math.floor(Math.log10(error)), step = 10 ** -decimals, size = Math.max(Math.abs(value), error);
  if (decimals > 7 || size >= 1e15) return value.toExponential(Math.max(Math.floor(Math.log10(size)) + decimals, 0));
  const rounded = decimals < 0 ? Math.round(value / step) * step : value;
  return rounded.toFixed(Math.max(decimals, 0)).replace(/^-(0\.?0*)$/, "$1");
}

const percent = (level) => `${digits(100 * level, 6)} %`;

function save(name, type, text) {
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// RFC 4180; text that a spreadsheet would evaluate as a formula is quoted.
function saveTable(name, rows) {
  const field = (value) => {
    if (Number.isNaN(value)) return "";
    if (typeof value === "number") return String(value).replace("Infinity", "inf");
    const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  save(`${name}.csv`, "text/csv;charset=utf-8", rows.map((row) => `${row.map(field).join(",")}\r\n`).join(""));
}
