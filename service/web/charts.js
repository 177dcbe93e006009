// Line charts as SVG: a time axis, a threshold, alert marks, one crosshair
// shared by all charts, and a legend that shows the values under it.

const SVG = 'http://www.w3.org/2000/svg';

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? '' : value);
  }
  element.append(...children.filter(child => child !== null && child !== undefined));
  return element;
}

export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [key, value] of Object.entries(attributes))
    if (value !== null && value !== undefined) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

// ---- numbers and times -------------------------------------------------------

const known = value => typeof value === 'number' && Number.isFinite(value);

export function formatNumber(value) {
  if (!known(value)) return '–';
  const size = Math.abs(value);
  if (size < 1e4 && Number.isInteger(value)) return String(value);
  if (size >= 1e9) return (value / 1e9).toFixed(size < 1e10 ? 2 : 1) + ' G';
  if (size >= 1e6) return (value / 1e6).toFixed(size < 1e7 ? 2 : 1) + ' M';
  if (size >= 1e4) return (value / 1e3).toFixed(size < 1e5 ? 1 : 0) + ' k';
  if (size >= 100) return value.toFixed(0);
  if (size >= 0.001) return String(Number(value.toPrecision(3)));
  return value.toExponential(1);
}

export function formatSeconds(value) {
  if (!known(value)) return '–';
  if (value >= 1) return value.toFixed(value < 10 ? 2 : 1) + ' s';
  if (value >= 1e-3) return (value * 1e3).toFixed(value < 1e-2 ? 1 : 0) + ' ms';
  return (value * 1e6).toFixed(0) + ' µs';
}

export const formatRatio = value => known(value) ? value.toFixed(3) : '–';

// An axis label: the value's format without trailing zeros.
const formatTick = (format, value) => format(value).replace(/(\.\d*?)0+(?=\D|$)/, '$1').replace(/\.(?=\D|$)/, '');

export function formatClock(milliseconds, withSeconds = true) {
  return new Date(milliseconds).toLocaleTimeString([], {
    hour: '2-digit', minute: '2-digit', second: withSeconds ? '2-digit' : undefined, hourCycle: 'h23',
  });
}

export const formatDay = milliseconds => new Date(milliseconds).toLocaleString([], {
  day: 'numeric', month: 'short', year: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23',
});

function niceStep(span, count) {
  const raw = span / count, power = 10 ** Math.floor(Math.log10(raw)), unit = raw / power;
  return (unit <= 1 ? 1 : unit <= 2 ? 2 : unit <= 2.5 ? 2.5 : unit <= 5 ? 5 : 10) * power;
}

export function niceTicks(low, high, count) {
  const step = niceStep(high - low || 1, count), ticks = [];
  for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-6; tick += step)
    ticks.push(Math.abs(tick) < step * 1e-6 ? 0 : tick);
  return ticks;
}

const TIME_STEPS = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200];

function timeTicks(low, high, count) {
  const span = (high - low) / 1000;
  const step = (TIME_STEPS.find(candidate => span / candidate <= count) || 86400) * 1000;
  const offset = new Date(high).getTimezoneOffset() * 60000;
  const ticks = [];
  for (let tick = Math.ceil((low - offset) / step) * step + offset; tick <= high; tick += step)
    ticks.push(tick);
  return { ticks, seconds: step < 60000 };
}

// ---- the shared crosshair ------------------------------------------------------

const charts = [];
let hoverTime = null;

export function setHover(time) {
  hoverTime = time;
  for (const chart of charts) chart.drawHover();
}

const MARGIN = { left: 46, right: 10, top: 8, bottom: 20 };
const DASHES = ['', 'dash', 'dots', ''];

export class Chart {
  // options: title, json, series [{key, label, style?}], format, unit?, zero?,
  // top?, wide?, half?, empty, area?, marks?
  constructor(parent, options) {
    this.options = options;
    this.series = options.series.map((serie, index) => ({
      style: 'abcd'[index], dash: DASHES[index], ...serie,
    }));
    this.data = { time_ms: [] };
    this.span = 900000;
    this.marks = [];
    const id = 'chart-' + options.series[0].key;
    this.jsonLink = h('a', { class: 'json', href: options.json }, 'JSON');
    this.legend = h('div', { class: 'legend' });
    this.svg = s('svg', { 'aria-hidden': 'true' });
    this.empty = h('div', { class: 'empty', hidden: true });
    this.plot = h('div', {
      class: 'plot', tabindex: 0, role: 'img', 'aria-labelledby': id,
      onpointermove: event => this.point(event), onpointerleave: () => setHover(null),
      onkeydown: event => this.key(event), onblur: () => setHover(null),
    }, this.svg, this.empty);
    this.live = h('span', { class: 'hidden', 'aria-live': 'polite' });
    parent.append(h('article', { class: 'card chart' + (options.wide ? ' wide' : options.half ? ' half' : '') },
      h('header', {}, h('h2', { id }, options.title), this.jsonLink), this.legend, this.plot, this.live));
    this.size = { width: 0, height: 0 };
    new ResizeObserver(entries => {
      const box = entries[0].contentRect;
      this.size = { width: box.width, height: box.height };
      this.draw();
    }).observe(this.plot);
    charts.push(this);
  }

  set(data, span, marks) {
    this.data = data;
    this.span = span;
    this.marks = marks || [];
    this.draw();
  }

  // ---- geometry ----

  scale() {
    const { time_ms: times } = this.data;
    const end = times.length ? times[times.length - 1] : Date.now();
    // A young service fills its charts instead of one edge of them.
    const span = Math.min(this.span, Math.max(60000, times.length ? end - times[0] : 0)), start = end - span;
    let low = Infinity, high = -Infinity;
    for (const serie of this.series) {
      const values = this.data[serie.key] || [];
      for (let i = 0; i < times.length; i++) {
        if (times[i] < start || !known(values[i])) continue;
        low = Math.min(low, values[i]);
        high = Math.max(high, values[i]);
      }
    }
    if (low > high) return null;
    if (this.options.zero !== false) low = Math.min(0, low);
    if (this.options.top !== undefined) high = Math.max(high, this.options.top);
    if (high - low < 1e-12) high = low + (Math.abs(low) || 1);
    const step = niceStep(high - low, 4);
    low = Math.floor(low / step + 1e-9) * step;
    high = Math.ceil(high / step - 1e-9) * step;
    const { width, height } = this.size;
    const inner = { width: width - MARGIN.left - MARGIN.right, height: height - MARGIN.top - MARGIN.bottom };
    return {
      start, end, span, low, high, inner,
      x: time => MARGIN.left + (time - start) / span * inner.width,
      y: value => MARGIN.top + (1 - (value - low) / (high - low)) * inner.height,
    };
  }

  path(scale, values) {
    const { time_ms: times } = this.data;
    let text = '', open = false;
    const gap = this.span / 900 * 6;
    for (let i = 0; i < times.length; i++) {
      if (times[i] < scale.start || !known(values[i])) { open = false; continue; }
      if (open && times[i] - times[i - 1] > gap) open = false;
      text += (open ? 'L' : 'M') + scale.x(times[i]).toFixed(1) + ' ' + scale.y(values[i]).toFixed(1);
      open = true;
    }
    return text;
  }

  // ---- drawing ----

  draw() {
    if (this.size.width < 40) return;
    const scale = this.currentScale = this.scale();
    this.svg.replaceChildren();
    this.empty.hidden = scale !== null;
    if (!scale) {
      this.empty.textContent = this.options.empty || 'nothing yet';
      this.drawLegend(null);
      return;
    }
    this.drawAxes(scale);
    this.drawBands(scale);
    for (const serie of this.series) {
      const values = this.data[serie.key] || [], line = this.path(scale, values);
      if (this.options.area && serie === this.series[0] && line)
        this.svg.append(s('path', { class: 'fill ' + serie.style, d: this.areaPath(scale, values) }));
      this.svg.append(s('path', { class: `serie ${serie.style} ${serie.dash}`, d: line, 'data-key': serie.key }));
    }
    if (this.options.marks) this.drawMarks(scale);
    this.hover = s('g');
    this.svg.append(this.hover);
    this.drawHover();
  }

  areaPath(scale, values) {
    const base = scale.y(Math.max(scale.low, 0)).toFixed(1);
    return this.path(scale, values).split('M').filter(Boolean).map(piece => {
      const points = piece.split('L'), first = points[0].split(' ')[0], last = points.at(-1).split(' ')[0];
      return `M${first} ${base}L${piece}L${last} ${base}Z`;
    }).join('');
  }

  drawAxes(scale) {
    const right = MARGIN.left + scale.inner.width, bottom = MARGIN.top + scale.inner.height;
    for (const tick of niceTicks(scale.low, scale.high, 4)) {
      const y = scale.y(tick);
      this.svg.append(
        s('line', { class: 'grid', x1: MARGIN.left, x2: right, y1: y, y2: y }),
        s('text', { x: MARGIN.left - 6, y: y + 3.5, 'text-anchor': 'end' }, formatTick(this.options.format, tick)));
    }
    const { ticks, seconds } = timeTicks(scale.start, scale.end, Math.max(2, Math.floor(scale.inner.width / 80)));
    for (const tick of ticks) {
      const x = scale.x(tick);
      this.svg.append(s('line', { class: 'axis', x1: x, x2: x, y1: bottom, y2: bottom + 4 }),
        s('text', { x: Math.min(x, right - 12), y: bottom + 16, 'text-anchor': 'middle' }, formatClock(tick, seconds)));
    }
    this.svg.append(s('line', { class: 'axis', x1: MARGIN.left, x2: right, y1: bottom, y2: bottom }));
  }

  // Times at which a shift stood.
  drawBands(scale) {
    const { time_ms: times, drift_raised: raised = [] } = this.data;
    for (let i = 0; i < times.length; i++) {
      if (raised[i] !== 1 || times[i] < scale.start) continue;
      const from = i;
      while (i + 1 < times.length && raised[i + 1] === 1) i++;
      const x = scale.x(times[from]);
      this.svg.append(s('rect', {
        class: 'band', x, y: MARGIN.top, width: Math.max(2, scale.x(times[i]) - x), height: scale.inner.height,
      }));
    }
  }

  drawMarks(scale) {
    for (const mark of this.marks) {
      if (mark.wall_ms === null || mark.wall_ms < scale.start || mark.wall_ms > scale.end) continue;
      const x = scale.x(mark.wall_ms), { state } = mark;
      const flag = { raised: `M${x} ${MARGIN.top - 6}l7 10h-14z`, cleared: `M${x} ${MARGIN.top + 4}l7 -10h-14z` }[state] ||
        `M${x - 4} ${MARGIN.top - 4}h8v8h-8z`;
      this.svg.append(s('g', { class: 'alert-mark' },
        s('title', {}, `${state}: ${mark.text}`),
        s('line', { class: 'mark ' + state, x1: x, x2: x, y1: MARGIN.top, y2: MARGIN.top + scale.inner.height }),
        s('path', { class: 'flag ' + state, d: flag })));
    }
  }

  // ---- reading values ----

  nearest(time) {
    const times = this.data.time_ms;
    let low = 0, high = times.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (times[middle] < time) low = middle; else high = middle;
    }
    return times[high] - time < time - times[low] ? high : low;
  }

  drawHover() {
    const scale = this.currentScale;
    if (!scale || !this.hover) return;
    this.hover.replaceChildren();
    const index = hoverTime === null ? null : this.nearest(hoverTime);
    this.drawLegend(index);
    if (index === null) return;
    const x = scale.x(this.data.time_ms[index]);
    if (x < MARGIN.left) return;
    this.hover.append(s('line', { class: 'cross', x1: x, x2: x, y1: MARGIN.top, y2: MARGIN.top + scale.inner.height }));
    for (const serie of this.series) {
      const value = (this.data[serie.key] || [])[index];
      if (known(value)) this.hover.append(s('circle', { class: 'dot ' + serie.style, cx: x, cy: scale.y(value), r: 4 }));
    }
  }

  drawLegend(index) {
    const times = this.data.time_ms, at = index === null ? times.length - 1 : index;
    const items = this.series.map(serie => {
      const value = (this.data[serie.key] || [])[at];
      return h('span', {},
        s('svg', { width: 22, height: 8, 'aria-hidden': 'true' },
          s('line', { class: `serie ${serie.style} ${serie.dash}`, x1: 1, x2: 21, y1: 4, y2: 4 })),
        serie.label + ' ', h('b', {}, this.options.format(value)));
    });
    if (index !== null && times.length) items.push(h('span', {}, 'at ', h('b', {}, formatClock(times[at]))));
    this.legend.replaceChildren(...items);
  }

  point(event) {
    const scale = this.currentScale;
    if (!scale) return;
    const x = event.clientX - this.plot.getBoundingClientRect().left;
    const time = scale.start + (x - MARGIN.left) / scale.inner.width * scale.span;
    setHover(Math.min(scale.end, Math.max(scale.start, time)));
  }

  key(event) {
    const times = this.data.time_ms;
    if (!times.length) return;
    const at = hoverTime === null ? times.length - 1 : this.nearest(hoverTime);
    const first = times.findIndex(time => time >= this.currentScale?.start);
    const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - 30, PageDown: at + 30, Home: first, End: times.length - 1 };
    if (event.key === 'Escape') { setHover(null); return; }
    if (!(event.key in moves)) return;
    event.preventDefault();
    const index = Math.min(times.length - 1, Math.max(Math.max(0, first), moves[event.key]));
    setHover(times[index]);
    this.live.textContent = formatClock(times[index]) + ': ' + this.series.map(serie =>
      `${serie.label} ${this.options.format((this.data[serie.key] || [])[index])}`).join(', ');
  }
}
