
// Controls made from the server's table of settings. What is typed is sent as it is: the server
// honours or refuses it by name.
const kSizes = ['width', 'height'];  // sent together, as "size"

const field_of = (name) => name.replaceAll('-', '_');
const number_text = (value) => Number(value).toLocaleString('en', {maximumFractionDigits: 6, useGrouping: false});

function range_text(row) {
  if (row.low === undefined) return '';
  const high = row.high >= 1e6 ? '' : ` to ${number_text(row.high)}`;
  const range = high ? `${number_text(row.low)}${high}` : `from ${number_text(row.low)}`;
  return row.zero_is_off && row.low > 0 ? `${range}, or 0` : range;
}

class SettingsForm {
  constructor(place, task) {
    this.place = place;
    this.prefix = `${task}-`;
    this.task = task;
    this.controls = new Map();  // by name
    this.count = make('span', {className: 'count'});
    this.body = make('div', {className: 'groups'});
    this.reset = make('button', {
      type: 'button', className: 'quiet', textContent: 'Reset settings', disabled: true,
      on: {click: () => this.clear()},
    });
    place.replaceChildren(make('summary', {}, 'Settings', this.count), this.body, this.reset);
  }

  async load() {
    const {data} = await ask_json(`/v1/settings?task=${this.task}`);
    const kept = this.values();
    this.controls.clear();
    const groups = new Map();
    // Those of a request first: they are the ones that are changed most.
    const rows = [...data.filter((row) => row.place === 'request'), ...data.filter((row) => row.place !== 'request')];
    for (const row of rows) {
      const title = row.of ? `${row.group}: ${row.of}` : row.group;
      if (!groups.has(title)) groups.set(title, []);
      groups.get(title).push(row);
    }
    this.body.replaceChildren();
    for (const [title, list] of groups) this.body.append(this.group(title, list));
    this.set(kept);
  }

  group(title, rows) {
    const count = make('span', {className: 'count'});
    const group = make('details', {className: 'group'}, make('summary', {}, title, count),
                       ...rows.map((row) => this.field(row)));
    group.recount = () => {
      const changed = rows.filter((row) => this.value(row.name) !== null).length;
      set_text(count, changed ? `${changed} changed` : '');
    };
    return group;
  }

  field(row) {
    const id = this.prefix + row.name;
    const hint = make('p', {id: `${id}-hint`, className: 'hint', textContent: row.help});
    const wrong = make('p', {id: `${id}-error`, className: 'wrong', hidden: true});
    const control = this.control(row, id);
    control.setAttribute('aria-describedby', `${hint.id} ${wrong.id}`);
    control.addEventListener('input', () => this.changed(row.name));
    this.controls.set(row.name, {row, control, wrong});
    const range = [range_text(row), row.unit].filter(Boolean).join(', ');
    const label = make('label', {htmlFor: id}, row.name,
                       range ? make('span', {className: 'range', textContent: range}) : null);
    return row.kind === 'switch' ? make('div', {className: 'field switch'}, control, label, hint, wrong) :
                                   make('div', {className: 'field'}, label, control, hint, wrong);
  }

  control(row, id) {
    if (row.kind === 'switch') {
      return make('input', {id, type: 'checkbox', checked: row.without === 'true'});
    }
    if (row.choices) {
      return make('select', {id}, make('option', {value: '', textContent: `as without (${row.without})`}),
                  ...row.choices.map((choice) => make('option', {value: choice, textContent: choice})));
    }
    const numeric = {number: 'decimal', integer: 'numeric'}[row.kind];
    return make('input', {
      id, type: 'text', inputMode: row.low < 0 ? 'text' : numeric || 'text', autocomplete: 'off', spellcheck: false,
      placeholder: row.without,
    });
  }

  // Null: as without it.
  value(name) {
    const {row, control} = this.controls.get(name);
    if (row.kind === 'switch') return control.checked === (row.without === 'true') ? null : control.checked;
    const text = control.value.trim();
    if (text === '') return null;
    const number = /^-?\d/.test(text) && (row.kind === 'number' || row.kind === 'integer') ? Number(text) : NaN;
    return Number.isFinite(number) && Math.abs(number) <= Number.MAX_SAFE_INTEGER ? number : text;
  }

  // By name, those that were changed.
  values() {
    const out = {};
    for (const name of this.controls.keys()) {
      const value = this.value(name);
      if (value !== null) out[name] = value;
    }
    return out;
  }

  set(values) {
    for (const [name, {row, control}] of this.controls) {
      const value = values[name];
      if (row.kind === 'switch') control.checked = value === undefined ? row.without === 'true' : value;
      else control.value = value === undefined ? '' : value;
    }
    this.recount();
  }

  clear() {
    this.set({});
    this.mark(null);
    this.place.querySelector('summary').focus();
    announce('Settings are as without them');
  }

  changed(name) {
    const {control, wrong} = this.controls.get(name);
    control.removeAttribute('aria-invalid');
    wrong.hidden = true;
    this.recount();
  }

  recount() {
    const changed = Object.keys(this.values()).length;
    set_text(this.count, changed ? `${changed} changed` : '');
    this.reset.disabled = changed === 0;
    for (const group of this.body.children) group.recount();
    if (this.on_change) this.on_change();
  }

  // Shows an error at the setting that it names. False: it names none of these.
  mark(error) {
    for (const {control, wrong} of this.controls.values()) {
      control.removeAttribute('aria-invalid');
      wrong.hidden = true;
    }
    if (error === null) return false;
    const name = error.param === 'size' ? 'width' : error.param.replaceAll('_', '-');
    const found = this.controls.get(name);
    if (!found) return false;
    this.place.open = true;
    found.control.closest('details').open = true;
    found.control.setAttribute('aria-invalid', 'true');
    const lines = error_lines(error).filter(([key]) => key).map(([key, text]) => `${key} ${text}.`);
    set_text(found.wrong, lines.join(' ') || error.message);
    found.wrong.hidden = false;
    found.control.focus();
    found.control.closest('.field').scrollIntoView({block: 'center'});
    return true;
  }
}

// The fields of a request. A size needs both of its numbers; one that is missing is the model's own.
function setting_fields(values, model_size) {
  const out = {};
  for (const [name, value] of Object.entries(values)) {
    if (!kSizes.includes(name)) out[field_of(name)] = value;
  }
  if (kSizes.some((name) => values[name] !== undefined)) {
    const own = (model_size || 'x').split('x');
    out.size = kSizes.map((name, at) => values[name] ?? own[at]).join('x');
  }
  return out;
}
