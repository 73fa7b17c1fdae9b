// What a reader needs of a page: names of its controls and enough contrast of its texts.
(() => {
  const shown = (element) => element.checkVisibility({opacityProperty: true, visibilityProperty: true}) &&
      element.getClientRects().length > 0;
  const read = (color) => {
    const parts = color.match(/[\d.]+/g).map(Number);
    return parts.length === 3 ? [...parts, 1] : parts;
  };
  const over = (front, back) => [0, 1, 2].map((at) => front[at] * front[3] + back[at] * (1 - front[3]));
  const behind = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) layers.push(read(getComputedStyle(each).backgroundColor));
    const dark = matchMedia('(prefers-color-scheme: dark)').matches;
    return layers.reverse().reduce((back, layer) => over(layer, back), dark ? [0, 0, 0] : [255, 255, 255]);
  };
  const light = (color) => {
    const [red, green, blue] = color.map((value) => value / 255)
        .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const contrast = (front, back) => {
    const [low, high] = [light(front), light(back)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const pale = [];
  let texts = 0;
  const check = (element, color, text) => {
    const back = behind(element);
    const ratio = contrast(over(read(color), back), back);
    ++texts;
    if (ratio >= 4.5) return;
    pale.push(`${ratio.toFixed(2)} of "${text.trim().slice(0, 40)}" in ${element.tagName}#${element.id}`);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const {parentElement: parent, textContent: text} = walker.currentNode;
    if (text.trim() && !['SCRIPT', 'STYLE', 'NOSCRIPT'].includes(parent.tagName) && shown(parent)) {
      check(parent.tagName === 'OPTION' ? parent.parentElement : parent, getComputedStyle(parent).color, text);
    }
  }
  for (const field of document.querySelectorAll('input, textarea')) {
    if (!shown(field)) continue;
    if (field.placeholder) check(field, getComputedStyle(field, '::placeholder').color, field.placeholder);
    check(field, getComputedStyle(field).color, field.value);
  }
  // A placeholder is no name: it goes.
  const nameless = [...document.querySelectorAll('input, textarea, select')]
      .filter((field) => shown(field) && field.labels.length === 0 && !field.ariaLabel).map((field) => field.id);
  // Edges of what can be changed: 3 to 1.
  for (const field of document.querySelectorAll('input:not([type=checkbox]):enabled, textarea, select:enabled')) {
    if (!shown(field)) continue;
    const back = behind(field.parentElement);
    const ratio = contrast(over(read(getComputedStyle(field).borderTopColor), back), back);
    if (ratio < 3) pale.push(`${ratio.toFixed(2)} of the edge of ${field.id}`);
  }
  return {texts, pale, nameless};
})()
