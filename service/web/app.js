// The dashboard: loads the state once, then follows the event stream.

import { Chart, h, s, formatNumber, formatSeconds, formatRatio, formatClock, formatDay } from './charts.js';
import { Explorer, bar } from './explorer.js';

const byId = id => document.getElementById(id);
const SPANS = { '15m': 900000, '3h': 10800000, '24h': 86400000 };
const KINDS = {
  temporal_shift: 'Temporal shift', attention_dispersion: 'Attention dispersion', quality_drop: 'Quality drop',
  surprise: 'Surprise', feed_stalled: 'Feed stalled', feed_fast: 'Feed unusually fast', reference_renewed: 'Reference renewed',
};
const SINGLE = { reference_renewed: '● done', surprise: '● seen' }; // never cleared
const SEVERITIES = { info: 'ℹ info', warning: '! warning', critical: '‼ critical' };
const view = { span: '15m', series: null, latest: {}, alerts: [], drift: null, quality: null, model: null, connected: false, session: null, opened: new Set() };

async function fetchJson(path, options) {
  const response = await fetch(path, { headers: { Accept: 'application/json' }, ...options });
  const body = await response.json().catch(() => ({}));
  if (response.status === 401 && path !== '/api/login') askToken();
  if (!response.ok) throw Object.assign(new Error(body.error || `HTTP ${response.status}`), { status: response.status });
  return body;
}

// ---- charts --------------------------------------------------------------------

function makeCharts(parent) {
  const json = '/api/series?span=15m';
  const number = { format: formatNumber, json };
  return [
    new Chart(parent, { ...number, title: 'Drift: squared MMD of recent events against the reference', wide: true, area: true, marks: true,
      series: [{ key: 'drift_statistic', label: 'statistic' }, { key: 'drift_threshold', label: 'threshold', style: 'bad', dash: 'dash' }],
      empty: 'no statistic yet: the window of recent events is not full, or drift.enabled is off' }),
    new Chart(parent, { ...number, title: 'Throughput, per second', area: true,
      series: [{ key: 'events_per_second', label: 'events' }, { key: 'scores_per_second', label: 'scores' },
        { key: 'predictions_per_second', label: 'predictions' }] }),
    new Chart(parent, { json, title: 'Live quality', format: formatRatio, zero: false, top: 1,
      series: [{ key: 'average_precision', label: 'AP' }, { key: 'auc', label: 'AUC' }, { key: 'mrr', label: 'MRR' }],
      empty: 'no live quality yet: set predict.quality: on' }),
    new Chart(parent, { json, title: 'Calibration error of the probabilities (ECE)', format: formatRatio, area: true, top: 0.05,
      series: [{ key: 'calibration_error', label: 'expected calibration error' }],
      empty: 'no live quality yet: set predict.quality: on' }),
    new Chart(parent, { ...number, title: 'Surprise of each event, bits', area: true,
      series: [{ key: 'surprise_mean_bits', label: 'mean' }, { key: 'surprise_p95_bits', label: '95th percentile' }],
      empty: 'nothing was scored yet' }),
    new Chart(parent, { json, title: 'Latency, event read to subscribers', format: formatSeconds,
      series: [{ key: 'latency_p50_seconds', label: 'median' }, { key: 'latency_p99_seconds', label: '99th percentile' }],
      empty: 'no event came yet' }),
    new Chart(parent, { ...number, title: 'Lag and outbox', area: true,
      series: [{ key: 'lag_records', label: 'messages to read' }, { key: 'outbox_rows', label: 'rows to publish' }],
      empty: 'this source has no lag' }),
    new Chart(parent, { json, title: 'Attention on served traffic', format: formatRatio, top: 1, half: true,
      series: [{ key: 'attention_entropy_ratio', label: 'entropy (1: uniform)' }, { key: 'attention_top5_ratio', label: 'share of top 5 %' },
        { key: 'attention_sink_movement_ratio', label: 'sinks that moved' }],
      empty: 'no attention was measured yet' }),
    new Chart(parent, { ...number, title: 'Attention sinks of a pair (mean + 3 σ)', half: true,
      series: [{ key: 'attention_sinks_global', label: 'global: in most layers' }, { key: 'attention_sinks_local', label: 'local: in fewer' }],
      empty: 'no sinks were measured yet: pairs with 16 tokens and more are needed' }),
  ];
}

let charts = [];

function drawCharts() {
  if (!view.series) return;
  const marks = view.alerts.filter(alert => alert.kind !== 'surprise').map(alert => ({ wall_ms: alert.wall_ms,
    state: SINGLE[alert.kind] ? 'done' : alert.raised ? 'raised' : 'cleared', text: `${KINDS[alert.kind] || alert.kind}: ${alert.reason}` }));
  for (const chart of charts) chart.set(view.series, SPANS[view.span], marks);
}

async function loadSeries() {
  const span = view.span, path = '/api/series?span=' + span;
  const series = await fetchJson(path);
  if (span !== view.span) return;
  view.series = series;
  for (const chart of charts) chart.jsonLink.href = path;
  drawCharts();
}

function appendPoint(point) {
  const { series } = view;
  if (!series || series.interval_seconds !== 1 || point.time_ms === undefined) return;
  for (const [key, values] of Object.entries(series)) {
    if (!Array.isArray(values)) continue;
    values.push(point[key] === undefined ? null : point[key]);
    if (values.length > series.points_max) values.shift();
  }
  drawCharts();
}

// ---- tiles ------------------------------------------------------------------------

function tile(name, value, unit, more, options = {}) {
  const element = h('div', { class: 'tile' + (options.bad ? ' bad' : '') }, h('div', { class: 'name' }, name),
    h('div', { class: 'value' }, value, unit ? h('small', {}, ' ' + unit) : null));
  if (options.meter !== undefined) {
    const fill = h('i');
    fill.style.width = Math.min(100, options.meter * 100) + '%';
    element.append(h('div', { class: 'meter' }, fill));
  }
  element.append(h('div', { class: 'more', title: more }, more));
  return element;
}

function drawTiles() {
  const now = view.latest, trained = view.quality?.trained, statistic = now.drift_statistic, threshold = now.drift_threshold;
  const ratio = statistic !== null && threshold ? statistic / threshold : undefined;
  const raised = now.drift_raised === 1;
  byId('tiles').replaceChildren(
    tile('Drift', ratio === undefined ? '–' : Math.max(0, ratio).toFixed(2), '× threshold',
      raised ? '▲ shift raised' : ratio === undefined ? 'no statistic yet' : '● within the reference',
      { bad: raised, meter: ratio === undefined ? 0 : Math.max(0, ratio) }),
    tile('Events', formatNumber(now.events_per_second), '/s', `${formatNumber(now.predictions_per_second)} predictions/s`),
    tile('Live AP', formatRatio(now.average_precision), '', trained ? `in training ${formatRatio(trained.average_precision)}` : ' '),
    tile('Surprise', formatNumber(now.surprise_mean_bits), 'bits', `95 %: ${formatNumber(now.surprise_p95_bits)} bits`),
    tile('Latency, p99', ...splitUnit(formatSeconds(now.latency_p99_seconds)), `median ${formatSeconds(now.latency_p50_seconds)}`),
    tile('Lag', formatNumber(now.lag_records), 'messages', `outbox ${formatNumber(now.outbox_rows)} rows`),
    tile('Dead letters', formatNumber(now.dead_letters_per_second), '/s',
      now.dead_letters_per_second > 0 ? '▲ messages are being refused' : '● none now', { bad: now.dead_letters_per_second > 0 }));
}

function splitUnit(text) {
  const at = text.lastIndexOf(' ');
  return at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)];
}

// ---- drift and alerts ------------------------------------------------------------------

// Shares of the reference's rows (line) and of the recent rows (bars) in equal bins.
function histogram(feature) {
  const before = feature.before_histogram || [], now = feature.now_histogram || [], bins = now.length;
  if (!bins || before.length !== bins) return null;
  const width = 80, height = 26, top = Math.max(...before, ...now, 1e-9), step = width / bins;
  const y = share => height - share / top * (height - 2);
  const line = before.map((share, bin) => `${bin ? 'L' : 'M'}${(bin * step).toFixed(1)} ${y(share).toFixed(1)}h${step.toFixed(1)}`).join('');
  const range = `${formatNumber(feature.low)} to ${formatNumber(feature.high)}`;
  return s('svg', { class: 'histogram', width, height, viewBox: `0 0 ${width} ${height}`, role: 'img',
    'aria-label': `histogram of ${feature.name.replaceAll('_', ' ')} from ${range}: line before, bars now` },
  s('title', {}, `${range}; line: reference, bars: recent events`),
  ...now.map((share, bin) => s('rect', { x: bin * step, width: Math.max(0.5, step - 0.5), y: y(share), height: height - y(share) })),
  s('path', { d: line }));
}

function featureTable(all) {
  const features = all.filter((feature, index) => index < 3 || feature.share >= 0.005);
  const largest = Math.max(1e-9, ...features.map(feature => feature.share));
  return h('table', { class: 'features' }, h('thead', {}, h('tr', {}, h('th', {}, 'Feature'), h('th', {}, 'Share'),
    h('th', { class: 'num' }, 'Before'), h('th', { class: 'num' }, ''), h('th', { class: 'num' }, 'Now'),
    h('th', { title: 'line: reference, bars: recent events' }, 'Histogram'))),
  h('tbody', {}, ...features.map(feature => h('tr', {},
    h('td', { class: 'name-cell', title: feature.name }, feature.name.replaceAll('_', ' ')),
    h('td', {}, h('div', { class: 'share' }, bar(Math.max(0, feature.share) / largest, 36),
      h('span', {}, (feature.share * 100).toFixed(0) + ' %'))),
    h('td', { class: 'num' }, formatNumber(feature.before)),
    h('td', { class: 'num' }, feature.now > feature.before ? '↗' : feature.now < feature.before ? '↘' : '→'),
    h('td', { class: 'num' }, formatNumber(feature.now)),
    h('td', {}, histogram(feature)))),
  h('tr', {}, h('td', { colspan: 6, class: 'note' }, 'Histograms: line before, bars now.' +
    (features.length < all.length ? ` ${all.length - features.length} other features hardly moved.` : '')))));
}

function drawDrift() {
  const { drift } = view;
  if (!drift) return;
  byId('moved-note').textContent = !drift.ready ? drift.reason || 'No statistic yet.'
    : `Means over the last ${formatNumber(drift.window)} events beside the reference; p = ${formatNumber(drift.p_value)}.`;
  byId('moved').replaceChildren(drift.features.length ? featureTable(drift.features) : '');
  byId('reference').textContent = drift.reference_size
    ? `Reference: ${formatNumber(drift.reference_size)} events` +
      ({ model: ', from training', renewed: ', renewed while serving', feed: ', from this feed' }[drift.reference_origin] || '') +
      (drift.run_length_asked ? `; one false alarm in ${formatNumber(drift.run_length_asked)} events asked, in ${formatNumber(drift.run_length_achieved)} reached.` : '')
    : 'No reference yet.';
  byId('drift-warning').textContent = drift.warning ? '! ' + drift.warning : '';
  drawBanner();
}

function drawBanner() {
  const banner = byId('banner'), raised = view.alerts.find(alert => alert.kind === 'temporal_shift');
  if (!view.drift?.alert_raised) { banner.hidden = true; return; }
  const moved = (raised?.raised ? raised.features : view.drift.features).slice(0, 3)
    .map(feature => feature.name.replaceAll('_', ' ')).join(', ');
  banner.replaceChildren(h('strong', {}, '▲ The feed has shifted'),
    h('span', { class: 'grow' }, (raised?.raised && raised.wall_ms ? `Since ${formatClock(raised.wall_ms)}. ` : '') +
      (moved ? `Moved most: ${moved}. ` : '') + 'Predictions may be less reliable than in training.'),
    h('button', { type: 'button', onclick: askRenewal }, 'Renew reference…'));
  banner.hidden = false;
}

function alertItem(alert) {
  const when = alert.wall_ms === null ? alert.time_text : formatDay(alert.wall_ms);
  const single = SINGLE[alert.kind];
  const state = single ? ['done', single] : alert.raised ? ['raised', '▲ raised'] : ['cleared', '▼ cleared'];
  const item = h('div', { class: 'alert' },
    h('div', { class: 'head' }, h('span', { class: 'badge ' + state[0] }, state[1]),
      h('strong', {}, KINDS[alert.kind] || alert.kind),
      h('span', { class: 'severity ' + alert.severity }, SEVERITIES[alert.severity] || alert.severity),
      h('time', { title: 'feed time ' + alert.time_text }, when)),
    h('div', { class: 'what' }, alert.reason || `statistic ${formatNumber(alert.statistic)}, threshold ${formatNumber(alert.threshold)}`));
  if (alert.features.length)
    item.append(h('details', { open: view.opened.has(alert.number), ontoggle: event => {
      if (event.target.open) view.opened.add(alert.number); else view.opened.delete(alert.number);
    } }, h('summary', {}, 'What moved: ' + alert.features.slice(0, 3).map(feature => feature.name.replaceAll('_', ' ')).join(', ')),
    featureTable(alert.features)));
  return item;
}

function drawAlerts() {
  byId('alerts').replaceChildren(...(view.alerts.length ? view.alerts.map(alertItem)
    : [h('p', { class: 'note' }, 'No alert so far.')]));
  drawBanner();
}

function drawSurprises(surprises) {
  if (!surprises.length) {
    byId('surprises').replaceChildren(h('p', { class: 'note' }, 'Nothing surprising: no event of the last ten minutes had less than even odds.'));
    return;
  }
  const node = name => h('td', { class: 'name-cell' }, h('button', { type: 'button', class: 'link', title: 'Explore ' + name, onclick: () => openNode(name) }, name));
  byId('surprises').replaceChildren(h('table', {}, h('thead', {}, h('tr', {}, h('th', {}, 'Source'), h('th', {}, 'Destination'),
    h('th', { class: 'num' }, 'Bits'), h('th', { class: 'num' }, 'Before'), h('th', { class: 'num' }, 'At'))),
  h('tbody', {}, ...surprises.map(one => h('tr', {}, node(one.src), node(one.dst), h('td', { class: 'num' }, one.surprise_bits.toFixed(1)),
    h('td', { class: 'num', title: 'events between the two before' }, formatNumber(one.pair_history)),
    h('td', { class: 'num' }, formatClock(one.wall_ms)))))));
}

function drawNodes(nodes) {
  byId('recent-nodes').replaceChildren(...nodes.map(name => h('option', { value: name })));
  if (!byId('recent').matches(':focus-within, :hover'))
    byId('recent').replaceChildren(...nodes.slice(0, 10).map(name => h('button', { type: 'button', title: name, onclick: () => openNode(name) }, name)));
}

// ---- renewing -------------------------------------------------------------------------------

function askRenewal() {
  byId('renew-reason').value = '';
  byId('confirm').showModal();
}

const post = (path, body) => fetchJson(path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) });

async function renew() {
  const result = byId('renew-result');
  byId('renew').disabled = true;
  try {
    const answer = await post('/api/drift/renew', { reason: byId('renew-reason').value });
    result.textContent = `Renewed at ${formatClock(Date.now())}` + (answer.alert_cleared ? '; the alert is cleared.' : '.');
    await refresh();
  } catch (error) {
    result.textContent = 'Not renewed: ' + error.message;
  } finally {
    drawSession();
  }
}

// ---- who is there --------------------------------------------------------------------------------

function askToken() {
  const dialog = byId('login');
  if (!dialog.open) dialog.showModal();
}

function drawSession() {
  const { session } = view, may = role => !session || session.roles.includes(role);
  byId('sign-out').hidden = !(session?.token_needed && session.roles.length);
  byId('sign-out').title = session?.name ? 'signed in with the token ' + session.name : '';
  byId('renew').disabled = !may('admin');
  byId('renew').title = may('admin') ? '' : 'this token has no role admin';
}

async function login(event) {
  event.preventDefault();
  const field = byId('token'), problem = byId('login-problem');
  problem.textContent = '';
  try {
    view.session = await post('/api/login', { token: field.value.trim() });
    field.value = '';
    byId('login').close();
    drawSession();
    connect();
    followHash();
  } catch (error) {
    problem.textContent = 'Not signed in: ' + error.message;
    field.select();
  }
}

async function logout() {
  view.stream?.close();
  await post('/api/logout', {}).catch(() => {});
  location.reload();
}

// ---- the connection -----------------------------------------------------------------------------

function drawHealth(ready, reason) {
  const pill = byId('health');
  pill.className = 'pill ' + (view.connected && ready ? 'good' : 'bad');
  pill.textContent = !view.connected ? '▲ connection lost, trying again' : ready ? '● ready' : '▲ not ready: ' + reason;
  pill.title = pill.textContent;
}

function drawStatus(status) {
  const { model } = status;
  view.status = status;
  byId('fact-model').textContent = model ? `${model.architecture} ${model.version.slice(0, 8)}` : 'none';
  byId('fact-model').title = model ? `${formatNumber(model.parameters)} parameters, window ${model.window}, trained on ${formatNumber(model.data_edges)} edges` : '';
  byId('fact-feed').textContent = status.feed && status.feed.events ? status.feed.time_text : '–';
  byId('program').textContent = 'driftline ' + status.version;
  drawHealth(status.ready, status.reason);
}

async function refresh() {
  const want = [['/api/status', drawStatus],
    ['/api/drift', drift => { view.drift = drift; drawDrift(); }],
    ['/api/alerts', answer => { view.alerts = answer.alerts; drawAlerts(); }],
    ['/api/quality', quality => { view.quality = quality; drawTiles(); }],
    ['/api/surprises', answer => drawSurprises(answer.surprises)],
    ['/api/nodes', answer => drawNodes(answer.nodes)]];
  await Promise.all(want.map(([path, use]) => fetchJson(path).then(use, () => {})));
}

function onSample(sample) {
  view.latest = sample.point;
  view.connected = true;
  byId('fact-events').textContent = formatNumber(sample.events);
  drawHealth(sample.ready, sample.reason);
  drawTiles();
  appendPoint(sample.point);
}

function connect() {
  view.stream?.close();
  const stream = view.stream = new EventSource('/api/events');
  // After a break the points in between are missing, so everything is read again.
  stream.addEventListener('open', () => {
    view.connected = true;
    loadSeries().catch(() => {});
    refresh();
  });
  stream.addEventListener('sample', event => onSample(JSON.parse(event.data)));
  stream.addEventListener('alert', () => refresh().then(drawCharts));
  stream.addEventListener('error', () => {
    view.connected = false;
    drawHealth(false, '');
    // A refused stream is final for the browser, a broken one is not.
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => { if (view.stream === stream) begin(); }, 3000);
  });
}

// Who is asking is known first, so that a page without a token asks for one.
async function begin() {
  try {
    view.session = await fetchJson('/api/session');
  } catch {
    view.connected = false;
    drawHealth(false, '');
    setTimeout(begin, 3000);
    return;
  }
  drawSession();
  if (view.session.roles.length) connect(); else askToken();
}

// ---- start ------------------------------------------------------------------------------------------

let explorer;

function openNode(name) {
  location.hash = 'node=' + encodeURIComponent(name);
  byId('explorer').scrollIntoView({ block: 'start' });
}

function followHash() {
  const match = /^#node=(.+)$/.exec(location.hash);
  if (!match) return;
  let name;
  try { name = decodeURIComponent(match[1]); } catch { return; }
  byId('node-name').value = name;
  explorer.show(name);
}

function describeZone() {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone, minutes = -new Date().getTimezoneOffset();
  const size = Math.abs(minutes), two = value => String(value).padStart(2, '0');
  return `${zone} (UTC${minutes < 0 ? '−' : '+'}${two(Math.floor(size / 60))}:${two(size % 60)})`;
}

function start() {
  charts = makeCharts(byId('charts'));
  explorer = new Explorer(byId('node'), byId('node-json'), fetchJson);
  byId('zone').textContent = describeZone();
  byId('search').addEventListener('submit', event => {
    event.preventDefault();
    const name = byId('node-name').value;
    if (location.hash === '#node=' + encodeURIComponent(name)) explorer.show(name);
    else location.hash = 'node=' + encodeURIComponent(name);
  });
  byId('renew').addEventListener('click', askRenewal);
  byId('confirm').addEventListener('close', () => { if (byId('confirm').returnValue === 'renew') renew(); });
  for (const input of document.querySelectorAll('input[name="span"]'))
    input.addEventListener('change', () => { view.span = input.value; loadSeries().catch(() => {}); });
  window.addEventListener('hashchange', followHash);
  byId('login-form').addEventListener('submit', login);
  byId('sign-out').addEventListener('click', logout);
  drawTiles();
  begin().then(() => { if (view.session?.roles.length) followHash(); });
  setInterval(() => { if (!document.hidden && view.connected) refresh(); }, 10000);
  setInterval(() => { if (!document.hidden && view.connected && view.span !== '15m') loadSeries().catch(() => {}); }, 10000);
}

start();
