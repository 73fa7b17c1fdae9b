'use strict';

// What comes from prompts and servers reaches the page as text, never as markup.
const find = (id) => document.getElementById(id);

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name === 'on') {
      for (const [event, call] of Object.entries(value)) element.addEventListener(event, call);
    } else if (name === 'data') {
      Object.assign(element.dataset, value);
    } else if (name in element && name !== 'list') {
      element[name] = value;
    } else {
      element.setAttribute(name, value);
    }
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

function set_text(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Screen readers hear it; the same text twice is heard twice.
function announce(text) {
  const live = find('live');
  live.textContent = live.textContent === text ? text + '\u00a0' : text;
}

const plural = (count, one, many) => `${count} ${count === 1 ? one : many}`;

function seconds_text(seconds) {
  if (seconds < 10) return seconds.toFixed(2) + ' s';
  if (seconds < 60) return seconds.toFixed(1) + ' s';
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

function bytes_of(base64) {
  const text = atob(base64);
  return Uint8Array.from(text, (character) => character.charCodeAt(0));
}

// Facts in a line that breaks between them.
function show_facts(element, facts, notes = []) {
  element.replaceChildren(...facts.flatMap((fact) => [make('span', {className: 'fact', textContent: fact}), ' ']),
                          ...notes.map((note) => make('span', {className: 'note', textContent: note})));
}

// Few pixels are shown as squares, many as a photograph.
const kMaxSquares = 256;
function show_pixels(image) {
  const sharp = () => image.classList.toggle('squares', image.naturalWidth <= kMaxSquares);
  image.addEventListener('load', sharp);
  if (image.complete) sharp();
  return image;
}

function file_name(prompt, seed) {
  const words = prompt.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-+|-+$/g, '').slice(0, 48);
  return `${words || 'image'}_${seed}.png`;
}
