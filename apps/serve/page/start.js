
// Models, tabs, keys of the keyboard, and the first questions to the server.
let models = [];
let tab = 'generate';

const models_of = (task) => models.filter((model) => model.tasks?.[task]);

function show_models(list, hint, task) {
  const select = find(list);
  const fitting = models_of(task);
  const before = select.value;
  select.replaceChildren(...fitting.map((model) => make('option', {value: model.id, textContent: model.id})));
  select.disabled = fitting.length === 0;
  if (fitting.length === 0) {
    select.append(make('option', {value: '', textContent: 'no model of this server does this'}));
  }
  if (fitting.some((model) => model.id === before)) select.value = before;
  const show = () => {
    const model = chosen_model(list);
    const about = model ? [model.title, model.tasks[task].size, model.tasks[task].dtype, model.tasks[task].device] : [];
    const broken = models.filter((each) => each.error)
        .map((each) => `${each.id} cannot be used: ${each.error.message}`);
    set_text(find(hint), [about.filter(Boolean).join(' \u00b7 '), ...broken].filter(Boolean).join('. '));
    find(hint).title = find(hint).textContent;
  };
  select.onchange = show;
  show();
}

// False: a key is needed, or the server is away.
async function load() {
  try {
    models = (await ask_json('/v1/models')).data;
    await Promise.all([settings_of_images.load(), settings_of_texts.load()]);
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    if (error.status !== 401) show_error(find('generate-error'), error);
    return false;
  }
  show_error(find('generate-error'), null);
  find('key-form').hidden = true;
  find('work').hidden = false;
  show_models('model', 'model-hint', 'image');
  show_models('describer', 'describer-hint', 'describe');
  document.body.classList.toggle('no-describer', models_of('describe').length === 0);
  find('generate-button').disabled = models_of('image').length === 0;
  find('describe-button').disabled = chosen_image === null || models_of('describe').length === 0;
  return true;
}

// --- tabs ------------------------------------------------------------------------------------------

function choose_tab(name, focus = false) {
  tab = name;
  for (const each of ['generate', 'describe']) {
    const button = find(`tab-${each}`);
    button.setAttribute('aria-selected', String(each === name));
    button.tabIndex = each === name ? 0 : -1;
    find(each).hidden = each !== name;
    if (focus && each === name) button.focus();
  }
  show_results();
}

function show_results() {
  const texts = tab === 'describe';
  set_text(find('results-title'), texts ? 'Texts' : 'Images');
  find('gallery').hidden = texts || tiles.size === 0;
  find('captions').hidden = !texts || cards.size === 0;
  const items = texts ? cards : tiles;
  find('empty').hidden = items.size > 0;
  set_text(find('empty-title'), texts ? 'No texts yet' : 'No images yet');
  set_text(find('empty-text'), texts ? 'Drop an image anywhere on this page. Texts stay until the page is closed.' :
                                       'Write a prompt and press Enter. Images stay until the page is closed.');
  find('clear').disabled = ![...items].some((item) => item.job.state === 'over');
}

// Where the form fills the screen, results begin below it.
function show_newest() {
  if (!matchMedia('(max-width: 860px)').matches) return;
  const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
  find('results').scrollIntoView({behavior: calm ? 'auto' : 'smooth'});
}

// Two presses, for what it takes away cannot be brought back.
function start_clear() {
  const button = find('clear');
  let timer = 0;
  const calm = () => {
    clearTimeout(timer);
    timer = 0;
    set_text(button, 'Clear');
  };
  button.addEventListener('click', () => {
    const over = [...(tab === 'describe' ? cards : tiles)].filter((item) => item.job.state === 'over');
    if (timer === 0) {
      set_text(button, `Clear ${over.length}?`);
      announce(`Press again to clear ${over.length}`);
      timer = setTimeout(calm, 4000);
      return;
    }
    calm();
    over.forEach((item) => item.remove());
    announce('Cleared');
  });
  button.addEventListener('blur', calm);
}

// --- keyboard --------------------------------------------------------------------------------------

function start_keyboard() {
  for (const [id, form] of [['prompt', 'generate'], ['negative', 'generate'], ['question', 'describe']]) {
    find(id).addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (!event.repeat) find(form).requestSubmit();
    });
  }
  document.addEventListener('keydown', (event) => {
    if (event.isComposing || find('viewer').open) return;
    if (event.key === 'Escape') queue.cancel_last();
    const sends = event.key === 'Enter' && (event.ctrlKey || event.metaKey);
    if (sends && !event.defaultPrevented && !event.repeat) {
      event.preventDefault();
      find(tab).requestSubmit();
    }
  });
  for (const [name, other] of [['generate', 'describe'], ['describe', 'generate']]) {
    find(`tab-${name}`).addEventListener('click', () => choose_tab(name));
    find(`tab-${name}`).addEventListener('keydown', (event) => {
      if (event.key === 'ArrowLeft' || event.key === 'ArrowRight') choose_tab(other, true);
    });
  }
}

function start_drops() {
  const holds_files = (event) => event.dataTransfer?.types.includes('Files');
  const mark = (on) => document.body.classList.toggle('dropping', on);
  window.addEventListener('dragover', (event) => {
    if (!holds_files(event)) return;
    event.preventDefault();
    mark(true);
  });
  window.addEventListener('dragleave', (event) => {
    if (event.relatedTarget === null) mark(false);
  });
  window.addEventListener('drop', (event) => {
    mark(false);
    if (!holds_files(event)) return;
    event.preventDefault();
    describe_files([...event.dataTransfer.files]);
  });
  find('choose').addEventListener('click', () => find('file').click());
  find('file').addEventListener('change', () => {
    describe_files([...find('file').files]);
    find('file').value = '';
  });
}

function start() {
  settings_of_images = new SettingsForm(find('image-settings'), 'image');
  settings_of_texts = new SettingsForm(find('text-settings'), 'describe');
  settings_of_texts.on_change = show_share;
  find('kept').addEventListener('input', choose_share);
  for (let count = 1; count <= kMaxImages; ++count) find('images').append(make('option', {textContent: count}));
  find('seed-mode').addEventListener('change', () => {
    const random = find('seed-mode').value === 'random';
    find('seed').disabled = random;
    if (random) find('seed').value = '';
    else if (find('seed').value === '') find('seed').value = last_seed ?? 0;
    find('seed').placeholder = random ? 'any' : 'an integer';
  });
  find('generate').addEventListener('submit', (event) => {
    event.preventDefault();
    if (!find('generate-button').disabled) generate();
  });
  find('describe').addEventListener('submit', (event) => {
    event.preventDefault();
    if (!find('describe-button').disabled) add_caption(caption_request(chosen_image));
  });
  find('cancel-all').addEventListener('click', () => queue.cancel_all());
  find('viewer-close').addEventListener('click', () => find('viewer').close());
  show_pixels(find('viewer-image'));
  show_pixels(find('chosen'));
  start_clear();
  start_keyboard();
  start_drops();
  start_keys(load);
  show_results();
  watch_health(load);
  load();
}

start();
