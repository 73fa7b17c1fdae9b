
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

// The patches that pruning dropped, dark over the picture. `visual` has columns and rows of patches
// and the indices of those that were kept, line by line; `box` is their place as left, top, width and
// height in parts of the picture, without it the whole of it.
function draw_dropped(canvas, visual, width, height) {
  const scale = 640 / Math.max(width, height);
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const [left, top, wide, high] = visual.box || [0, 0, 1, 1];
  const kept = new Set(visual.kept);
  const pen = canvas.getContext('2d');
  pen.fillStyle = 'rgb(8 10 14 / 0.78)';
  const x = (column) => Math.round((left + wide * column / visual.columns) * canvas.width);
  const y = (row) => Math.round((top + high * row / visual.rows) * canvas.height);
  for (let row = 0; row < visual.rows; ++row) {
    for (let column = 0; column < visual.columns; ++column) {
      if (kept.has(row * visual.columns + column)) continue;
      pen.fillRect(x(column), y(row), x(column + 1) - x(column), y(row + 1) - y(row));
    }
  }
}

const is_count = (value) => Number.isInteger(value) && value > 0 && value <= 4096;
const has_patches = (visual) => Boolean(visual) && is_count(visual.columns) && is_count(visual.rows) &&
    Array.isArray(visual.kept) && visual.kept.every(Number.isInteger);

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
      if (has_patches(this.visual)) this.add_overlay();
    } else {
      set_text(this.facts, is_cancel(error) ? 'cancelled' : `failed: ${error.message}`);
    }
    this.actions.append(this.button('Again', () => add_caption(this.request)),
                        this.button('Remove', () => this.remove()));
  }

  add_overlay() {
    draw_dropped(this.overlay, this.visual, this.image.naturalWidth, this.image.naturalHeight);
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
