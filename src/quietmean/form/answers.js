// The questions of a page, one for each column, and what their answers are as cells of a record.

const DAY = 86_400_000;
const MOST_CHOICES = 7;

function element(name, fields = {}, ...children) {
  const made = Object.assign(document.createElement(name), fields);
  made.append(...children);
  return made;
}

export const shown = (number) => number.toLocaleString("en", { maximumFractionDigits: 10 });
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
  const [low, high] = [column.low, column.high].map((bound) => (isDay ? dateOf(column, bound) : shown(bound)));
  const id = `answer-${place}`;
  const input = element("input", { id, type: isDay ? "date" : "number", autocomplete: "off" });
  if (!isDay) Object.assign(input, { step: "any", inputMode: "decimal" });
  const hint = element("p", { className: "hint", id: `${id}-hint`, textContent: `From ${low} to ${high}.` });
  const note = element("p", { className: "hint", id: `${id}-note`, role: "status" });
  note.setAttribute("aria-live", "polite");
  input.setAttribute("aria-describedby", `${hint.id} ${note.id}`);
  const cell = () => {
    if (input.validity.badInput) return { value: NaN, mistake: `${column.name} is not ${isDay ? "a date" : "a number"}.` };
    if (input.value === "") return { value: NaN };
    const value = isDay ? dayOf(input.value) - dayOf(column.since) : input.valueAsNumber;
    return Number.isFinite(value) ? { value } : { value: NaN, mistake: `${column.name} is too large.` };
  };
  // Only the person who answers sees this.
  input.addEventListener("input", () => {
    const { value, mistake } = cell();
    input.setAttribute("aria-invalid", String(Boolean(mistake)));
    note.textContent = value < column.low ? `This is below ${low}. It counts as ${low}.`
      : value > column.high ? `This is above ${high}. It counts as ${high}.` : mistake ?? "";
  });
  return { field: element("div", {}, element("label", { htmlFor: id, textContent: column.name }), input, hint, note), cell };
}
