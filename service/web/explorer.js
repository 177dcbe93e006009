// The node explorer: a node's temporal neighbour window as a picture (a lane
// for each peer, time from left to right), the predicted links to its right,
// and, for a chosen link, where the attention went.

import { h, s, formatNumber, niceTicks } from './charts.js';

const LANES_MAX = 16;
const LANE = 24, NAMES = 132, TOP = 22, BOTTOM = 24;
const ORIGINS = { window: 'repeat', peers: "peer's peer", popular: 'popular', caller: 'asked' };
const state = { data: null, byTime: true, chosen: null, attention: null, explainable: true, width: 0 };

// ---- times of the feed ------------------------------------------------------

const PER_SECOND = { s: 1, ms: 1e3, us: 1e6, ns: 1e9, iso8601: 1e6 };

function feedTick(time, unit, span) {
  if (!PER_SECOND[unit]) return formatNumber(time);
  const date = new Date(time / PER_SECOND[unit] * 1000), iso = date.toISOString();
  const seconds = span / PER_SECOND[unit];
  if (seconds < 600) return iso.slice(11, 19);
  if (seconds < 86400 * 2) return iso.slice(11, 16);
  return seconds < 86400 * 300 ? iso.slice(5, 10) : iso.slice(0, 7);
}

// Ticks at round times: the steps of a clock where there is one.
function feedTicks(low, high, unit, count) {
  const per = PER_SECOND[unit];
  if (!per) return niceTicks(low, high, count);
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400,
    172800, 604800, 2592000, 7776000, 31536000];
  const span = (high - low) / per, step = (steps.find(one => span / one <= count) || 157680000) * per;
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(tick);
  return ticks;
}

// ---- lanes ------------------------------------------------------------------

function lanesOf(data) {
  const lanes = new Map();
  for (const event of data.window) {
    const lane = lanes.get(event.peer) || { name: event.peer, events: [], candidate: null };
    lane.events.push(event);
    lanes.set(event.peer, lane);
  }
  for (const candidate of data.prediction?.candidates.slice(0, 10) || []) {
    const lane = lanes.get(candidate.node) || { name: candidate.node, events: [], candidate: null };
    lane.candidate = candidate;
    lanes.set(candidate.node, lane);
  }
  const all = [...lanes.values()].sort((a, b) =>
    (b.candidate?.probability ?? -1) - (a.candidate?.probability ?? -1) || b.events.length - a.events.length);
  if (all.length <= LANES_MAX) return all;
  const rest = all.slice(LANES_MAX - 1);
  return [...all.slice(0, LANES_MAX - 1),
    { name: `${rest.length} others`, events: rest.flatMap(lane => lane.events), candidate: null, others: true }];
}

const shorten = (text, length) => text.length > length ? text.slice(0, length - 1) + '…' : text;

function markPath(x, y, size, out) {
  const d = out ? 1 : -1;
  return `M${x - d * size} ${y - size}L${x + d * size} ${y}L${x - d * size} ${y + size}Z`;
}

function attentionOf(event) {
  const share = state.attention?.get(event.seq);
  return share ?? 0;
}

function drawPicture(holder) {
  const { data } = state, width = state.width;
  if (!data || width < 60) return;
  const lanes = lanesOf(data), events = [...data.window].reverse();
  const names = Math.min(NAMES, width * 0.28), bars = Math.min(170, width * 0.24);
  const left = names + 8, right = width - bars - 14, height = TOP + lanes.length * LANE + BOTTOM;
  const order = new Map(events.map((event, index) => [event, index]));
  const now = Math.max(data.prediction?.time ?? data.last_time, data.last_time);
  const low = state.byTime ? (events[0]?.time ?? now - 1) : 0;
  const high = state.byTime ? Math.max(now, low + 1) : Math.max(1, events.length);
  const x = value => left + 8 + (value - low) / (high - low) * (right - left - 16);
  const at = event => x(state.byTime ? event.time : order.get(event));
  const heaviest = Math.max(1e-9, ...events.map(event => Math.abs(event.weight)));
  const svg = s('svg', { height, viewBox: `0 0 ${width} ${height}`, role: 'img',
    'aria-label': `${events.length} past events of ${data.name} with ${lanes.length} peers, and predicted links` });

  svg.append(s('text', { x: left, y: 12 }, state.byTime ? 'past events' : 'past events, in order'),
    s('text', { x: width, y: 12, 'text-anchor': 'end' }, bars > 150 ? 'probability of a link next' : 'next link'));
  const bottom = TOP + lanes.length * LANE;
  const ticks = state.byTime ? feedTicks(low, high, data.time_unit, Math.max(2, (right - left) / 95)) : [];
  for (const tick of ticks.filter(one => x(one) < right - 46 && x(one) > left + 20))
    svg.append(s('line', { class: 'grid', x1: x(tick), x2: x(tick), y1: TOP, y2: bottom }),
      s('text', { x: x(tick), y: bottom + 16, 'text-anchor': 'middle' }, feedTick(tick, data.time_unit, high - low)));
  if (!state.byTime)
    svg.append(s('text', { x: left + 8, y: bottom + 16 }, 'oldest'),
      s('text', { x: right - 8, y: bottom + 16, 'text-anchor': 'end' }, 'newest'));
  svg.append(s('line', { class: 'now', x1: right, x2: right, y1: TOP - 4, y2: bottom + 4 }),
    s('text', { x: right, y: bottom + 16, 'text-anchor': 'middle' }, 'now'));

  lanes.forEach((lane, row) => {
    const y = TOP + row * LANE + LANE / 2;
    const group = s('g', { class: 'peer' }, s('title', {}, lane.name));
    if (state.chosen === lane.name)
      group.append(s('rect', { class: 'chosen', x: 0, y: y - LANE / 2, width, height: LANE, rx: 5 }));
    group.append(s('line', { class: 'lane', x1: left, x2: right, y1: y, y2: y }),
      s('text', { class: 'lane-name', x: names, y: y + 4, 'text-anchor': 'end' }, shorten(lane.name, Math.floor(names / 7))));
    for (const event of lane.events) {
      const size = 3 + 3.5 * Math.sqrt(Math.abs(event.weight) / heaviest), out = event.direction === 'out';
      const share = attentionOf(event);
      if (share > 1 / state.attention?.size)
        group.append(s('circle', { class: 'attention', cx: at(event), cy: y, r: size + 2 + 14 * Math.sqrt(share) }));
      group.append(s('path', { class: out ? 'out' : 'in', d: markPath(at(event), y, size, out) },
        s('title', {}, `${out ? data.name + ' → ' + event.peer : event.peer + ' → ' + data.name}\n` +
          `${event.time_text}${event.type ? ', ' + event.type : ''}, weight ${formatNumber(event.weight)}` +
          (share > 0 ? `\nattention ${(share * 100).toFixed(1)} %` : ''))));
    }
    if (lane.candidate) {
      const track = bars - 44, share = lane.candidate.probability;
      group.append(
        s('rect', { class: 'bar-track', x: right + 8, y: y - 5, width: track, height: 10, rx: 3 }),
        s('rect', { class: 'bar', x: right + 8, y: y - 5, width: Math.max(1.5, track * share), height: 10, rx: 3 }),
        s('text', { class: 'lane-name', x: right + 8 + track + 6, y: y + 4 }, share.toFixed(3)));
    }
    svg.append(group);
  });
  holder.replaceChildren(svg);
}

// ---- the parts around the picture ------------------------------------------------

function facts(data) {
  const fact = (name, value) => h('span', {}, name + ' ', h('b', {}, value));
  return h('div', { class: 'node-facts' }, h('h3', {}, data.name),
    fact('events', formatNumber(data.events)), fact('as source', formatNumber(data.events_out)),
    fact('as destination', formatNumber(data.events_in)), fact('first', data.first_time_text),
    fact('last', data.last_time_text), fact('window', `${data.window.length} of ${data.window_max}`));
}

function candidateTable(data, show, explain) {
  if (!data.prediction)
    return h('p', { class: 'note' }, 'No prediction: ' + (data.prediction_error || 'not known'));
  const rows = data.prediction.candidates.map((candidate, index) =>
    h('tr', { class: state.chosen === candidate.node ? 'chosen' : null },
      h('td', { class: 'num' }, String(index + 1)),
      h('td', { class: 'name-cell' }, h('button', { type: 'button', class: 'link', title: 'Explore ' + candidate.node,
        onclick: () => show(candidate.node) }, candidate.node)),
      state.explainable ? h('td', {}, h('button', { type: 'button', class: 'link why', 'aria-label': `Why ${candidate.node}?`,
        onclick: () => explain(candidate.node) }, 'why?')) : null,
      h('td', {}, h('div', { class: 'share' }, bar(candidate.probability, 40), h('span', {}, candidate.probability.toFixed(3)))),
      h('td', { class: 'num' }, (candidate.share * 100).toFixed(1) + ' %'),
      h('td', { class: 'origin' }, candidate.origin.map(origin => ORIGINS[origin] || origin).join(', ')),
      h('td', { class: 'num' }, formatNumber(candidate.pair_history))));
  return h('div', { class: 'scroll tall' }, h('table', {}, h('thead', {}, h('tr', {},
    h('th', { class: 'num' }, '#'), h('th', {}, 'Predicted link to'),
    state.explainable ? h('th', {}, h('span', { class: 'hidden' }, 'Explain')) : null, h('th', {}, 'Probability'),
    h('th', { class: 'num' }, 'Share'), h('th', {}, 'Found as'), h('th', { class: 'num' }, 'Before'))), h('tbody', {}, ...rows)));
}

export function bar(share, width) {
  const fill = h('i');
  fill.style.width = Math.max(1, share * width) + 'px';
  return fill;
}

function windowTable(data) {
  const rows = data.window.map(event => h('tr', {}, h('td', {}, event.time_text),
    h('td', {}, event.direction === 'out' ? '→ to' : '← from'), h('td', { class: 'name-cell' }, event.peer),
    h('td', {}, event.type || ''), h('td', { class: 'num' }, formatNumber(event.weight)),
    h('td', { class: 'num' }, state.attention ? (attentionOf(event) * 100).toFixed(1) + ' %' : '')));
  return h('details', {}, h('summary', {}, 'The window as a table'), h('div', { class: 'scroll' }, h('table', {},
    h('thead', {}, h('tr', {}, h('th', {}, 'Time'), h('th', {}, ''), h('th', {}, 'Peer'), h('th', {}, 'Type'),
      h('th', { class: 'num' }, 'Weight'), h('th', { class: 'num' }, state.attention ? 'Attention' : ''))),
    h('tbody', {}, ...rows))));
}

function scaleChoice(redraw) {
  const choice = (label, byTime) => h('label', {}, h('input', { type: 'radio', name: 'axis', checked: state.byTime === byTime,
    onchange: () => { state.byTime = byTime; redraw(); } }), label);
  return h('span', { role: 'radiogroup', 'aria-label': 'Horizontal axis' }, choice('by time', true), ' ', choice('in order', false));
}

function key() {
  const mark = out => s('svg', { width: 14, height: 12, 'aria-hidden': 'true' },
    s('path', { class: out ? 'out' : 'in', d: markPath(7, 6, 4.5, out) }));
  return h('span', {}, mark(true), ' outgoing  ', mark(false), ' incoming; size: weight',
    state.attention ? '; ring: attention' : '');
}

// ---- the explorer ------------------------------------------------------------------

export class Explorer {
  constructor(holder, jsonLink, fetchJson) {
    this.holder = holder;
    this.jsonLink = jsonLink;
    this.fetchJson = fetchJson;
    this.serial = 0;
    this.observer = new ResizeObserver(entries => {
      state.width = entries[0].contentRect.width;
      if (this.picture) drawPicture(this.picture);
    });
  }

  async show(name) {
    const serial = ++this.serial, path = '/api/node?name=' + encodeURIComponent(name) + '&k=20';
    this.jsonLink.href = path;
    this.holder.setAttribute('aria-busy', 'true');
    try {
      const data = await this.fetchJson(path);
      if (serial !== this.serial) return;
      Object.assign(state, { data, chosen: null, attention: null });
      this.render();
    } catch (error) {
      if (serial === this.serial) this.holder.replaceChildren(h('p', { class: 'note' }, String(error.message || error)));
    } finally {
      this.holder.removeAttribute('aria-busy');
    }
  }

  async explain(peer) {
    const { data } = state;
    const path = `/api/explain?src=${encodeURIComponent(data.name)}&dst=${encodeURIComponent(peer)}`;
    state.chosen = peer;
    try {
      const answer = await this.fetchJson(path);
      state.attention = new Map(answer.attention.filter(token => token.side === 'src' && !token.self)
        .map(token => [token.seq, token.attention_share]));
      this.message = `Attention for ${data.name} → ${peer}: rings mark the past events of ${data.name} that drew more than an even share.`;
    } catch (error) {
      state.attention = null;
      if (error.status === 501) state.explainable = false;
      this.message = 'No explanation: ' + (error.message || error);
    }
    this.render();
  }

  render() {
    const { data } = state;
    const show = name => { location.hash = 'node=' + encodeURIComponent(name); };
    if (!data.known) {
      this.picture = null;
      this.holder.replaceChildren(h('p', { class: 'note' }, `No event of “${data.name}” was ever seen. Names are exact, capitals included.`),
        candidateTable(data, show, peer => this.explain(peer)));
      return;
    }
    this.picture = h('div', { class: 'picture' });
    this.holder.replaceChildren(facts(data), h('div', { class: 'node-grid' },
      h('div', {}, h('div', { class: 'picture-head picture' }, scaleChoice(() => drawPicture(this.picture)), key()), this.picture,
        this.message ? h('p', { class: 'note', role: 'status' }, this.message) : null, windowTable(data)),
      candidateTable(data, show, peer => this.explain(peer))));
    this.message = null;
    this.observer.disconnect();
    this.observer.observe(this.picture);
  }
}
