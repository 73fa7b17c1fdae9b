
// Images: their requests, and tiles that stand where an image will be until it is removed.
const kMaxImages = 10;
let settings_of_images = null;
let last_seed = null;
const tiles = new Set();

const chosen_model = (list) => models.find((model) => model.id === find(list).value);

// Error of a field that cannot be sent.
function image_request() {
  const mode = find('seed-mode').value;
  const text = find('seed').value.trim();
  const model = chosen_model('model');
  const body = {
    model: model?.id,
    prompt: find('prompt').value.trim(),
    ...setting_fields(settings_of_images.values(), model?.tasks.image.size),
    n: Number(find('images').value),
    stream: true,
    partial_images: Number(find('previews').value),
  };
  const negative = find('negative').value.trim();
  if (negative) body.negative_prompt = negative;
  if (mode === 'random') {
    // Short enough to be read and written down.
    [body.seed] = crypto.getRandomValues(new Uint32Array(1));
  } else {
    const seed = Number(text);
    if (!/^\d+$/.test(text) || !Number.isSafeInteger(seed)) {
      throw own_error('seed', `an integer from 0 to ${Number.MAX_SAFE_INTEGER}`, text === '' ? 'none' : `'${text}'`);
    }
    body.seed = seed;
    if (mode === 'next') find('seed').value = Math.min(seed + body.n, Number.MAX_SAFE_INTEGER);
  }
  return body;
}

class Tile {
  constructor(request, at, original) {
    Object.assign(this, {request, at, original});
    tiles.add(this);
    this.image = show_pixels(make('img', {alt: '', hidden: true}));
    this.progress = make('progress', {max: request.partial_images + 1, value: 0, 'aria-label': 'Previews so far'});
    this.picture = make('button', {
      type: 'button', className: 'picture', disabled: true, on: {click: () => show_viewer(this)},
      'aria-label': `Enlarge: ${request.prompt}`,
    }, this.image, this.progress);
    const own = models.find((model) => model.id === request.model)?.tasks.image?.size;
    const [width, height] = (request.size || own || '1x1').split('x');
    if (width > 0 && height > 0) this.picture.style.aspectRatio = `${width} / ${height}`;
    this.facts = make('p', {className: 'facts'});
    this.actions = make('div', {className: 'actions'});
    this.element = make('article', {className: 'tile', role: 'listitem', data: {state: 'waiting'}},
        this.picture, make('p', {className: 'tile-prompt', textContent: request.prompt || 'no prompt'}),
        this.facts, this.actions);
  }

  button(text, call, className = 'small') {
    const about = `${text}: ${this.request.prompt}${this.seed === undefined ? '' : `, seed ${this.seed}`}`;
    return make('button', {type: 'button', className, textContent: text, 'aria-label': about, on: {click: call}});
  }

  wait(job) {
    this.job = job;
    const all = this.request.n > 1 ? `Cancel all ${this.request.n}` : 'Cancel';
    this.actions.replaceChildren(this.button(all, () => queue.cancel(job)));
  }

  moved(at) {
    if (this.done || this.element.dataset.state === 'over') return;
    this.element.dataset.state = this.job.state;
    set_text(this.facts, job_text(this.job, at));
  }

  preview(event) {
    this.progress.value = event.partial_image_index + 1;
    this.image.src = `data:image/png;base64,${event.b64_json}`;
    this.image.hidden = false;
  }

  finish(event) {
    const {record = {}} = event;
    Object.assign(this, {done: true, seed: event.seed, record, base64: event.b64_json});
    last_seed = event.seed;
    this.url = URL.createObjectURL(new Blob([bytes_of(event.b64_json)], {type: 'image/png'}));
    this.image.src = this.url;
    this.image.alt = this.request.prompt;
    this.image.hidden = false;
    this.progress.hidden = true;
    this.picture.disabled = false;
    this.element.dataset.state = 'done';
    const seconds = event.seconds ?? (performance.now() - this.job.begun) / 1000;
    const facts = [`seed ${event.seed}`, seconds_text(seconds)];
    if (record.tokens_per_pass) facts.push(`${record.tokens_per_pass.toFixed(2)} tokens a pass`);
    if (this.original !== undefined) {
      this.same = this.original === this.base64;
      facts.push(this.same ? 'the same bytes' : 'other bytes');
    }
    show_facts(this.facts, facts, event.notes);
    this.actions.replaceChildren(
        this.button('Repeat', () => add_images({...this.request, n: 1, seed: this.seed}, this.base64)),
        this.button('Next seed', () => add_images({...this.request, n: 1, seed: this.seed + 1})),
        make('a', {
          className: 'button small', href: this.url, download: file_name(this.request.prompt, this.seed),
          textContent: 'Download', 'aria-label': `Download: ${this.request.prompt}, seed ${this.seed}`,
        }),
        this.button('Describe', () => describe_base64(this.base64), 'small describe-it'));
  }

  // It ends without an image.
  fail(error) {
    if (this.done) return;
    const cancelled = is_cancel(error);
    this.element.dataset.state = 'over';
    this.progress.hidden = true;
    set_text(this.facts, cancelled ? 'cancelled' : `failed: ${error.message}`);
    const again = {...this.request, n: 1, seed: this.request.seed + this.at};
    this.actions.replaceChildren(this.button('Repeat', () => add_images(again)),
                                 this.button('Remove', () => this.remove()));
  }

  remove() {
    if (this.url) URL.revokeObjectURL(this.url);
    const next = this.element.nextElementSibling || this.element.previousElementSibling;
    const had_focus = this.element.contains(document.activeElement);
    this.element.remove();
    tiles.delete(this);
    if (had_focus) (next?.querySelector('button:enabled') || find('prompt')).focus();
    show_results();
  }
}

function add_images(request, original) {
  show_error(find('generate-error'), null);
  settings_of_images.mark(null);
  const made = Array.from({length: request.n}, (_, at) => new Tile(request, at, original));
  let begun = false;
  const run = async (signal) => {
    const answer = await post('/v1/images/generations', request, signal);
    for await (const event of events_of(answer)) {
      const tile = made[event.index ?? 0];
      if (tile === undefined) continue;
      begun = true;
      if (event.type === 'image_generation.completed') {
        tile.finish(event);
        const count = made.filter((each) => each.done).length;
        announce(request.n > 1 ? `${count} of ${request.n} images finished` : `Image finished, seed ${tile.seed}`);
      } else {
        tile.preview(event);
      }
    }
    if (made.some((tile) => !tile.done)) throw new ServerError(0, {message: 'the answer ended early'});
  };
  const ended = (error) => {
    if (error === null) return;
    // What the request itself has wrong is mended in the form.
    if (!begun && error.status >= 400 && error.status < 500 && ![401, 408, 429].includes(error.status)) {
      made.forEach((tile) => tile.remove());
      settings_of_images.mark(error);
      show_error(find('generate-error'), error);
      return;
    }
    made.forEach((tile) => tile.fail(error));
    if (!is_cancel(error)) announce(`Failed: ${error.message}`);
  };
  const job = new Job('images', run, ended, (at) => made.forEach((tile) => tile.moved(at)));
  made.forEach((tile) => tile.wait(job));
  find('gallery').prepend(...made.map((tile) => tile.element));
  queue.add(job);
}

function generate() {
  try {
    add_images(image_request());
    show_newest();
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    show_error(find('generate-error'), error);
    find('seed').focus();
  }
}

// --- one image, large ------------------------------------------------------------------------------

function show_viewer(tile) {
  const image = find('viewer-image');
  image.src = tile.url;
  image.alt = tile.request.prompt;
  find('viewer-prompt').textContent = tile.request.prompt;
  find('viewer-title').textContent = `Seed ${tile.seed}`;
  const facts = Object.entries(tile.record).filter(([name, value]) => name !== 'prompt' && typeof value !== 'object');
  find('viewer-facts').replaceChildren(...facts.flatMap(([name, value]) => [
    make('dt', {textContent: name.replaceAll('_', ' ')}), make('dd', {textContent: String(value)}),
  ]));
  find('viewer').showModal();
}
