
// What the server answers, and errors in words.
const kKeyPlace = 'tessera-key';
const kHealthEach = 2000;

class ServerError extends Error {
  constructor(status, facts = {}) {
    super(facts.message || `the server answered ${status}`);
    this.status = status;
    this.param = typeof facts.param === 'string' ? facts.param : '';
    this.code = facts.code || '';
  }
}

function own_error(where, expected, found) {
  return new ServerError(0, {message: `${where}: expected ${expected}, found ${found}`, param: where, code: ''});
}

const is_cancel = (error) => error.name === 'AbortError';

// Storage may be closed to pages.
const key_store = {
  value: '',
  get() {
    try {
      return sessionStorage.getItem(kKeyPlace) || this.value;
    } catch {
      return this.value;
    }
  },
  set(key) {
    this.value = key;
    try {
      if (key) sessionStorage.setItem(kKeyPlace, key);
      else sessionStorage.removeItem(kKeyPlace);
    } catch {
      // Kept in this page alone.
    }
  },
};

async function ask(path, options = {}) {
  const headers = {...options.headers};
  const key = key_store.get();
  if (key) headers.Authorization = `Bearer ${key}`;
  let answer;
  try {
    answer = await fetch(path, {...options, headers, cache: 'no-store', redirect: 'error'});
  } catch (error) {
    if (is_cancel(error)) throw error;
    throw new ServerError(0, {message: 'the server does not answer'});
  }
  if (answer.ok) return answer;
  let facts = {};
  try {
    facts = (await answer.json()).error || {};
  } catch {
    // Not an answer of this server's own; its status says enough.
  }
  if (answer.status === 401) need_key(Boolean(key));
  throw new ServerError(answer.status, facts);
}

const ask_json = async (path) => (await ask(path)).json();

const post = (path, body, signal) => ask(path, {
  method: 'POST',
  headers: {'Content-Type': 'application/json'},
  body: JSON.stringify(body),
  signal,
});

// Events of text/event-stream, their data as JSON; "[DONE]" ends them.
async function* events_of(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    while (true) {
      const {value, done} = await reader.read();
      if (done) return;
      rest += value;
      const blocks = rest.split(/\r?\n\r?\n/);
      rest = blocks.pop();
      for (const block of blocks) {
        const data = block.split(/\r?\n/).filter((line) => line.startsWith('data:'))
            .map((line) => line.slice(5).replace(/^ /, '')).join('\n');
        if (data === '') continue;
        if (data === '[DONE]') return;
        const event = JSON.parse(data);
        if (event.error) throw new ServerError(200, event.error);
        yield event;
      }
    }
  } catch (error) {
    if (is_cancel(error) || error instanceof ServerError) throw error;
    throw new ServerError(0, {message: 'the answer broke off'});
  } finally {
    reader.cancel().catch(() => {});
  }
}

// "temp: expected a number, found 'x' (a hint)" in lines.
function error_lines(error) {
  const parts = /^(?:([^:]{1,80}): )?expected (.+), found (.+?)(?: \((.+)\))?$/s.exec(error.message);
  if (!parts) return [['', error.message]];
  const [, where, expected, found, hint] = parts;
  return [['', where || ''], ['Expected', expected], ['Found', found], ['', hint || '']].filter((line) => line[1]);
}

function show_error(box, error) {
  box.replaceChildren();
  box.hidden = error === null;
  if (error === null) return;
  for (const [name, text] of error_lines(error)) {
    box.append(make('p', {}, name ? make('b', {textContent: name + ' '}) : null, text));
  }
}

// --- the key --------------------------------------------------------------------------------------

function need_key(was_given) {
  set_text(find('key-text'), was_given ? 'This is not one of the server\'s keys.' :
                                         'This server answers those who have one of its keys.');
  const form = find('key-form');
  if (!form.hidden && !was_given) return;
  form.hidden = false;
  find('work').hidden = true;
  find('forget-key').hidden = true;
  find('key').focus();
  announce(find('key-text').textContent);
}

function start_keys(again) {
  const forget = find('forget-key');
  forget.hidden = !key_store.get();
  find('key-form').addEventListener('submit', async (event) => {
    event.preventDefault();
    const key = find('key').value.trim();
    if (!key) return find('key').focus();
    key_store.set(key);
    if (await again()) {
      find('key').value = '';
      forget.hidden = false;
      find('prompt').focus();
    } else {
      key_store.set('');
    }
  });
  forget.addEventListener('click', () => {
    key_store.set('');
    forget.hidden = true;
    again();
  });
}

// --- its state ------------------------------------------------------------------------------------

function show_state(state, text) {
  const line = find('state');
  if (line.dataset.state !== state && state === 'away') announce(text);
  line.dataset.state = state;
  set_text(find('state-text'), text);
}

// Asks each two seconds; back() once it answers again.
function watch_health(back) {
  let away = false;
  const look = async () => {
    if (!document.hidden) {
      try {
        const health = await ask_json('/health');
        const good = health.status === 'ok';
        show_state(good ? 'good' : 'away', `${good ? 'Ready' : String(health.status)} \u00b7 ` +
            `${health.at_work} at work \u00b7 ${health.waiting} waiting`);
        set_text(find('version'), health.version ? `version ${health.version}` : '');
        if (away) back();
        away = false;
      } catch (error) {
        away = true;
        show_state('away', `No answer from the server; asked again every ${kHealthEach / 1000} s`);
      }
    }
    setTimeout(look, kHealthEach);
  };
  look();
}
