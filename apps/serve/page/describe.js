
// Texts about images: chats with one image each.
let settings_of_texts = null;
let chosen_image = null;  // a data URL
const cards = new Set();

function read_file(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(own_error(file.name, 'a file that can be read', 'another'));
    reader.readAsDataURL(file);
  });
}

// What pruning dropped, dark over the picture: patches that no view of it kept. A view has columns
// and rows of patches, the indices of those that were kept, line by line, and its place in parts of
// the picture: left, top, width, height.
function draw_dropped(canvas, views, width, height) {
  const scale = 640 / Math.max(width, height);
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const pen = canvas.getContext('2d');
  pen.fillStyle = 'rgb(8 10 14 / 0.78)';
  const x = ({box, columns}, column) => Math.round((box[0] + box[2] * column / columns) * canvas.width);
  const y = ({box, rows}, row) => Math.round((box[1] + box[3] * row / rows) * canvas.height);
  for (const view of views) {
    const left = x(view, 0), top = y(view, 0), wide = x(view, view.columns) - left, high = y(view, view.rows) - top;
    pen.clearRect(left, top, wide, high);  // else what two views cover is darker
    pen.fillRect(left, top, wide, high);
  }
  for (const view of views) {
    for (const index of view.kept) {
      const column = index % view.columns, row = Math.floor(index / view.columns);
      const left = x(view, column), top = y(view, row);
      pen.clearRect(left, top, x(view, column + 1) - left, y(view, row + 1) - top);
    }
  }
}

const is_count = (value) => Number.isInteger(value) && value > 0 && value <= 4096;
const is_view = (view) => Boolean(view) && is_count(view.columns) && is_count(view.rows) &&
    Array.isArray(view.kept) && view.kept.every(Number.isInteger) &&
    Array.isArray(view.box) && view.box.length === 4 && view.box.every(Number.isFinite);
const views_of = (visual) => Array.isArray(visual?.patches) ? visual.patches.filter(is_view) : [];

class Card {
  constructor(request, url, image) {
    Object.assign(this, {request, image});
    cards.add(this);
    image.alt = '';
    show_pixels(image);
    this.overlay = make('canvas', {hidden: true, role: 'img', 'aria-label': 'Dropped patches are dark'});
    const picture = make('div', {className: 'described'}, image, this.overlay);
    picture.style.aspectRatio = `${image.naturalWidth} / ${image.naturalHeight}`;
    this.text = make('p', {className: 'full-text answer'});
    this.facts = make('p', {className: 'facts'});
    this.actions = make('div', {className: 'actions'});
    this.element = make('article', {className: 'card caption', role: 'listitem', data: {state: 'waiting'}}, picture,
        make('div', {className: 'said'}, make('p', {className: 'question', textContent: request.question}),
             this.text, this.facts, this.actions));
  }

  button(text, call) {
    return make('button', {type: 'button', className: 'small', textContent: text, on: {click: call}});
  }

  wait(job) {
    this.job = job;
    this.actions.replaceChildren(this.button('Cancel', () => queue.cancel(job)));
  }

  moved(at) {
    this.element.dataset.state = this.job.state;
    set_text(this.facts, job_text(this.job, at));
  }

  take(event) {
    const more = event.choices?.[0]?.delta?.content ?? event.choices?.[0]?.message?.content;
    if (more) this.text.append(more);
    if (event.choices?.[0]?.finish_reason === 'length') this.cut_short = true;
    for (const name of ['visual', 'usage', 'notes']) {
      if (event[name]) this[name] = event[name];
    }
  }

  finish(error) {
    this.element.dataset.state = error === null ? 'done' : 'over';
    this.actions.replaceChildren();
    if (error === null) {
      const facts = [seconds_text((performance.now() - this.job.begun) / 1000)];
      if (this.usage) facts.push(plural(this.usage.completion_tokens, 'token', 'tokens'));
      if (this.visual?.kept_tokens < this.visual?.tokens) {
        facts.push(`${this.visual.kept_tokens} of ${this.visual.tokens} patches kept`);
      }
      if (this.cut_short) facts.push('cut short at the longest length');
      show_facts(this.facts, facts, this.notes);
      if (navigator.clipboard) {
        this.actions.append(this.button('Copy', async () => {
          await navigator.clipboard.writeText(this.text.textContent);
          announce('Copied');
        }));
      }
      const views = views_of(this.visual);
      if (views.length > 0) this.add_overlay(views);
    } else {
      set_text(this.facts, is_cancel(error) ? 'cancelled' : `failed: ${error.message}`);
    }
    this.actions.append(this.button('Again', () => add_caption(this.request)),
                        this.button('Remove', () => this.remove()));
  }

  add_overlay(views) {
    draw_dropped(this.overlay, views, this.image.naturalWidth, this.image.naturalHeight);
    const toggle = this.button('Dropped patches', () => {
      this.overlay.hidden = !this.overlay.hidden;
      toggle.setAttribute('aria-pressed', String(!this.overlay.hidden));
    });
    toggle.setAttribute('aria-pressed', 'true');
    this.overlay.hidden = false;
    this.actions.append(toggle);
  }

  remove() {
    const had_focus = this.element.contains(document.activeElement);
    this.element.remove();
    cards.delete(this);
    if (had_focus) find('question').focus();
    show_results();
  }
}

// The share of patches that stay is three settings of the server in one: the slider shows and sets
// them, and they are what is sent.
const kUsualPruner = 'divprune';

const without = (name) => settings_of_texts.controls.get(name).row.without;

function share_of_settings() {
  const {prune, 'prune-rate': rate} = settings_of_texts.values();
  return (prune ?? without('prune')) === 'none' ? 1 : 1 - (rate ?? Number(without('prune-rate')));
}

function show_share() {
  const box = find('kept-field');
  box.hidden = !settings_of_texts.controls.has('prune-rate');
  if (box.hidden) return;
  const percent = Math.round(share_of_settings() * 100);
  find('kept').value = percent;
  const counted = settings_of_texts.value('keep-tokens') !== null;
  set_text(find('kept-text'), counted ? 'as keep-tokens says' : `${percent} %`);
}

function choose_share() {
  const {prune, 'prune-rate': rate, 'keep-tokens': count, ...others} = settings_of_texts.values();
  const percent = Number(find('kept').value), pruned = (prune ?? without('prune')) !== 'none';
  if (percent < 100) {
    if (!pruned) others.prune = kUsualPruner;
    else if (prune !== undefined) others.prune = prune;
    others['prune-rate'] = (100 - percent) / 100;
  } else if (without('prune') !== 'none') {
    others.prune = 'none';
  }
  settings_of_texts.set(others);
}

// The request is read when it is made, so that it can be made again.
function caption_request(url) {
  return {
    url,
    question: find('question').value.trim(),
    model: find('describer').value || undefined,
    fields: setting_fields(settings_of_texts.values()),
  };
}

async function add_caption(request) {
  const box = find('describe-error');
  show_error(box, null);
  settings_of_texts.mark(null);
  const image = make('img', {src: request.url});
  try {
    await image.decode();
  } catch {
    return show_error(box, own_error('image', 'a picture that browsers show', 'another file'));
  }
  const content = [{type: 'image_url', image_url: {url: request.url}}];
  if (request.question) content.push({type: 'text', text: request.question});
  const body = {
    ...request.fields,
    model: request.model,
    messages: [{role: 'user', content}],
    stream: true,
    stream_options: {include_usage: true},
  };
  const card = new Card(request, request.url, image);
  let begun = false;
  const run = async (signal) => {
    for await (const event of events_of(await post('/v1/chat/completions', body, signal))) {
      begun = true;
      card.take(event);
    }
    if (!begun) throw new ServerError(0, {message: 'the answer ended early'});
  };
  const ended = (error) => {
    if (error !== null && !begun && error.status === 400) {
      card.remove();
      settings_of_texts.mark(error);
      return show_error(box, error);
    }
    card.finish(error);
    if (error === null) announce(card.text.textContent);
    else if (!is_cancel(error)) announce(`Failed: ${error.message}`);
  };
  const job = new Job('text', run, ended, (at) => card.moved(at));
  card.wait(job);
  find('captions').prepend(card.element);
  queue.add(job);
  show_newest();
}

function choose_image(url) {
  chosen_image = url;
  find('chosen').src = url;
  find('chosen').hidden = false;
  find('drop-text').hidden = true;
  find('describe-button').disabled = models_of('describe').length === 0;
}

function describe_url(url) {
  choose_tab('describe');
  choose_image(url);
  if (models_of('describe').length === 0) {
    return show_error(find('describe-error'), own_error('model', 'one that describes images', 'none at this server'));
  }
  add_caption(caption_request(url));
}

const describe_base64 = (base64) => describe_url(`data:image/png;base64,${base64}`);

async function describe_files(files) {
  for (const file of files) {
    choose_tab('describe');
    try {
      if (!file.type.startsWith('image/')) throw own_error(file.name, 'an image', file.type || 'another file');
      describe_url(await read_file(file));
    } catch (error) {
      if (!(error instanceof ServerError)) throw error;
      show_error(find('describe-error'), error);
    }
  }
}
