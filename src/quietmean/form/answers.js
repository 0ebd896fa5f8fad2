// The questions of a page, one for each column, and what their answers are as cells of a record.

const DAY = 86_400_000;
const MOST_CHOICES = 7;

function element(name, fields = {}, ...children) {
  const made = Object.assign(document.createElement(name), fields);
  made.append(...children);
  return made;
}

export const shown = (number) => number.toLocaleString("en", { maximumFractionDigits: 10 });
// As it has to be typed: nothing between thousands.
const typed = (number) => number.toLocaleString("en", { maximumFractionDigits: 10, useGrouping: false });
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;

// A number with a point. Three digits behind it may be thousands: without zeros at the end, or else with one, it is clear.
function clear(whole, digits) {
  if (digits.length !== 3) return `${whole}.${digits}`;
  const short = digits.replace(/0+$/, "");
  return short.length === 3 ? `${whole}.${digits}0` : short && `${whole}.${short}` || whole;
}

// What people of several languages mean by a number with commas or points, as texts that have no other meaning.
function readings(text) {
  const found = [];
  for (const [group, point] of [[",", "\\."], ["\\.", ","]]) {
    const grouped = new RegExp(`^([+-]?[1-9]\\d{0,2}(?:${group}\\d{3})+)(?:${point}(\\d*))?$`).exec(text);
    if (grouped) found.push(grouped[1].replace(/[.,]/g, "") + (grouped[2] ? `.${grouped[2]}` : ""));
    const plain = new RegExp(`^([+-]?\\d*)${point}(\\d+)$`).exec(text);
    if (plain) found.push(clear(plain[1], plain[2]));
  }
  return [...new Set(found)];
}

// The number that was typed, {value, mistake, readings}. What two people may read as two numbers is asked about: nothing of it is
// dropped, and nothing guessed.
export function numberIn(text, name) {
  const bare = text.trim();
  if (bare === "") return { value: NaN };
  const meant = readings(bare);
  if (meant.length > 1 || (meant.length && !NUMBER.test(bare))) {
    return { value: NaN, mistake: `${name} is not clear. Write ${meant.join(" or ")}.`, readings: meant };
  }
  if (!NUMBER.test(bare)) return { value: NaN, mistake: `${name} is not a number. Write it as in 1000 or 1.5.` };
  const value = Number(bare);
  return Number.isFinite(value) ? { value } : { value: NaN, mistake: `${name} is too large. Write a smaller number.` };
}

const dayOf = (text) => Date.parse(`${text}T00:00:00Z`) / DAY;
const dateOf = (column, days) => new Date((dayOf(column.since) + days) * DAY).toISOString().slice(0, 10);

// The question about a column, {field, cell}: an element, and a function to the cell, {value, mistake}. `value` is NaN where
// nothing is answered; `mistake` says why what stands there is no answer.
export function question(column, place) {
  return column.levels ? choice(column, place) : measure(column, place);
}

function choice(column, place) {
  if (column.levels.length > MOST_CHOICES) {
    const options = column.levels.map((level, at) => element("option", { value: String(at), textContent: level }));
    const select = element("select", { id: `answer-${place}` }, element("option", { value: "", textContent: "no answer" }), ...options);
    const label = element("label", { htmlFor: select.id, textContent: column.name });
    return { field: element("div", {}, label, select), cell: () => ({ value: select.value === "" ? NaN : Number(select.value) }) };
  }
  const inputs = [...column.levels, "no answer"].map((level, at) => {
    const last = at === column.levels.length;
    return [element("input", { type: "radio", name: `answer-${place}`, id: `answer-${place}-${at}`, checked: last }), level];
  });
  const checks = inputs.map(([input, level]) =>
    element("div", { className: "check" }, input, element("label", { htmlFor: input.id, textContent: level })),
  );
  const field = element("fieldset", {}, element("legend", { textContent: column.name }), ...checks);
  const cell = () => {
    const at = inputs.findIndex(([input]) => input.checked);
    return { value: at < 0 || at === column.levels.length ? NaN : at };
  };
  return { field, cell };
}

function measure(column, place) {
  const isDay = Boolean(column.since);
  const [low, high] = [column.low, column.high].map((bound) => (isDay ? dateOf(column, bound) : typed(bound)));
  const id = `answer-${place}`;
  // A field for numbers alone would drop a comma without a word: 1,5 would be 15.
  const input = element("input", { id, type: isDay ? "date" : "text", autocomplete: "off" });
  if (!isDay) Object.assign(input, { inputMode: column.low < 0 ? "text" : "decimal", spellcheck: false });
  const hint = element("p", { className: "hint", id: `${id}-hint`, textContent: `From ${low} to ${high}.` });
  const note = element("p", { className: "hint", id: `${id}-note`, role: "status" });
  note.setAttribute("aria-live", "polite");
  const choices = element("div", { className: "buttons" });
  input.setAttribute("aria-describedby", `${hint.id} ${note.id}`);
  const cell = () => {
    if (!isDay) return numberIn(input.value, column.name);
    if (input.validity.badInput) return { value: NaN, mistake: `${column.name} is not a date. Choose a day.` };
    return { value: input.value === "" ? NaN : dayOf(input.value) - dayOf(column.since) };
  };
  // Only the person who answers sees this.
  const look = () => {
    const { value, mistake, readings: meant = [] } = cell();
    choices.replaceChildren(...meant.map((text) => {
      const choose = () => {
        input.value = text;
        look();
        input.focus();
      };
      return element("button", { type: "button", className: "quiet", textContent: text, onclick: choose });
    }));
    input.setAttribute("aria-invalid", String(Boolean(mistake)));
    note.className = mistake ? "mistake" : "hint";
    note.textContent = value < column.low ? `This is below ${low}. It counts as ${low}.`
      : value > column.high ? `This is above ${high}. It counts as ${high}.` : mistake ?? "";
  };
  input.addEventListener("input", look);
  return { field: element("div", {}, element("label", { htmlFor: id, textContent: column.name }), input, hint, note, choices), cell };
}
