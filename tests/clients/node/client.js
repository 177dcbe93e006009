// The stock Node client against a running driftline.
//
//   node client.js MODE ADDRESS PROTO-FOLDER [CERTS-FOLDER] [TOKEN] [READER-TOKEN]
//
// Prints its versions, then one JSON line a check: {"name", "ok", "why"}.
'use strict';
const fs = require('fs');
const path = require('path');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const [mode, address, protos, certs, token, reader] = process.argv.slice(2);
const SERVICE = 'driftline.v1.LinkPrediction';
const PATIENT_MS = 60000;
// 10,000 pairs of such names are just below 4 MiB, one byte more a name is above.
const NAME_NEAR_LIMIT = 205;

const load = (file) => grpc.loadPackageDefinition(loader.loadSync(file, {
  includeDirs: [protos], keepCase: true, longs: Number, enums: String, defaults: true, oneofs: true,
}));
const Api = load('driftline/v1/service.proto').driftline.v1.LinkPrediction;
const Health = load('grpc/health/v1/health.proto').grpc.health.v1.Health;
const Reflection = load('grpc/reflection/v1/reflection.proto').grpc.reflection.v1.ServerReflection;

const deadline = (ms) => ({ deadline: Date.now() + ms });
const unary = (client, method, request, metadata = new grpc.Metadata(), options = deadline(PATIENT_MS)) =>
  new Promise((resolve, reject) => client[method](request, metadata, options,
    (error, answer) => (error ? reject(error) : resolve(answer))));

function expect(what, value) {
  if (!what) throw new Error(`unexpected: ${JSON.stringify(value).slice(0, 500)}`);
}

async function expectCode(promise, code, word = '') {
  let answer;
  try {
    answer = await promise;
  } catch (error) {
    if (error.code === code && error.details.includes(word)) return;
    throw new Error(`${error.message} instead of ${grpc.status[code]} with "${word}"`);
  }
  throw new Error(`was answered, though ${grpc.status[code]} was expected: ${JSON.stringify(answer).slice(0, 200)}`);
}

function pairs(count, nameBytes) {
  return { pairs: Array.from({ length: count }, (_, i) => {
    const name = String(i).padStart(nameBytes, '0');
    return { src: name, dst: name };
  }) };
}

async function events(api, src, count) {
  const model = await unary(api, 'GetModel', {});
  return Array.from({ length: count }, (_, i) => (
    { src, dst: `node-peer-${i}`, time: model.trained_until + i, weight: 1 }));
}

const ingest = (api, batches, metadata = new grpc.Metadata()) => new Promise((resolve, reject) => {
  const call = api.Ingest(metadata, deadline(PATIENT_MS),
    (error, answer) => (error ? reject(error) : resolve(answer)));
  batches.forEach((batch) => call.write({ events: batch }));
  call.end();
});

// Subscribes, runs `then` once the server has accepted, resolves with `count` messages.
const subscribed = (call, count, then) => new Promise((resolve, reject) => {
  const got = [];
  let over = false;
  call.on('metadata', () => then(call).catch(reject));
  call.on('data', (message) => {
    got.push(message);
    if (got.length === count) {
      over = true;
      call.cancel();
      resolve(got);
    }
  });
  call.on('error', (error) => over || reject(error));
  call.on('end', () => over || reject(new Error('the stream ended early')));
});

const plain = {
  async unary_get_model({ api }) {
    const model = await unary(api, 'GetModel', {});
    expect(model.architecture === 'diffdyg' && model.version.length === 16, model);
  },
  async unary_score({ api }) {
    const answer = await unary(api, 'Score', pairs(3, 5));
    expect(answer.scores.length === 3 &&
           answer.scores.every((s) => s.probability > 0 && s.probability < 1), answer);
  },
  async unary_top_k({ api }) {
    const answer = await unary(api, 'TopK',
      { node: 'node-top', k: 2, candidates: ['n000019', 'n000035', 'n000060'], only_given: true });
    expect(answer.candidates.length === 2 && answer.scored === 3 && !answer.known, answer);
  },
  async unary_get_window({ api }) {
    await ingest(api, [await events(api, 'node-window', 3)]);
    const answer = await unary(api, 'GetWindow', { node: 'node-window', limit: 2 });
    expect(answer.known && answer.events === 3 && answer.interactions.length === 2 &&
           answer.interactions[0].peer === 'node-peer-2', answer);
  },
  async unary_explain({ api }) {
    const answer = await unary(api, 'Explain', { src: 'a', dst: 'b', per_head: true });
    const sum = answer.tokens.reduce((total, t) => total + t.attention, 0);
    expect(Math.abs(sum - 1) < 1e-3, sum);
  },
  async server_stream_scores({ api }) {
    const list = await events(api, 'node-scores', 5);
    const call = api.SubscribeScores({ nodes: ['node-scores'] }, deadline(PATIENT_MS));
    const got = await subscribed(call, 5, () => ingest(api, [list]));
    expect(got.every((m, i) => m.score.dst === list[i].dst && m.dropped === 0), got);
  },
  async server_stream_predictions({ api }) {
    const list = await events(api, 'node-predictions', 2);
    const call = api.SubscribePredictions({ nodes: ['node-predictions'] }, deadline(PATIENT_MS));
    const [message] = await subscribed(call, 1, () => ingest(api, [list]));
    expect(message.prediction.node === 'node-predictions' && message.prediction.candidates.length > 0, message);
  },
  async client_stream_ingest({ api }) {
    const list = await events(api, 'node-ingest', 300);
    let answer = await ingest(api, [list.slice(0, 100), list.slice(100, 200), list.slice(200)]);
    expect(answer.accepted === 300 && answer.rejected === 0, answer);
    answer = await ingest(api, [[list[0], { dst: 'no source' }]]);
    expect(answer.accepted === 1 && answer.rejected === 1 && answer.first_reason.includes('src'), answer);
  },
  async deadline_exceeded({ api }) {
    const call = api.SubscribeScores({ nodes: ['nobody at all'] }, deadline(300));
    await expectCode(subscribed(call, 1, async () => {}), grpc.status.DEADLINE_EXCEEDED);
    await expectCode(unary(api, 'Score', pairs(10000, 100), new grpc.Metadata(), deadline(5)),
      grpc.status.DEADLINE_EXCEEDED);
  },
  async client_cancel({ api }) {
    const call = api.SubscribeScores({}, deadline(PATIENT_MS));
    await expectCode(subscribed(call, Infinity, async (c) => c.cancel()), grpc.status.CANCELLED);
    await unary(api, 'GetModel', {});
  },
  async message_near_the_limit({ api }) {
    const answer = await unary(api, 'Score', pairs(10000, NAME_NEAR_LIMIT));
    expect(answer.scores.length === 10000, answer.scores.length);
  },
  async message_above_the_limit({ api }) {
    await expectCode(unary(api, 'Score', pairs(10000, NAME_NEAR_LIMIT + 1)),
      grpc.status.RESOURCE_EXHAUSTED, 'limit');
  },
  async invalid_argument({ api }) {
    await expectCode(unary(api, 'Score', {}), grpc.status.INVALID_ARGUMENT, 'pairs');
  },
  async not_found({ health }) {
    await expectCode(unary(health, 'Check', { service: 'other' }), grpc.status.NOT_FOUND, 'no such service');
  },
  async unimplemented({ api }) {
    const same = (bytes) => bytes;
    await expectCode(new Promise((resolve, reject) => api.makeUnaryRequest(`/${SERVICE}/Nothing`, same, same,
      Buffer.alloc(0), (error, answer) => (error ? reject(error) : resolve(answer)))),
    grpc.status.UNIMPLEMENTED, 'Nothing');
  },
  async gzip() {
    const api = new Api(address, grpc.credentials.createInsecure(),
      { 'grpc.default_compression_algorithm': grpc.compressionAlgorithms.gzip });
    try {
      const answer = await unary(api, 'Score', pairs(1000, 100));
      expect(answer.scores.length === 1000, answer.scores.length);
      await expectCode(unary(api, 'Score', pairs(10000, NAME_NEAR_LIMIT + 1)),
        grpc.status.RESOURCE_EXHAUSTED, 'limit');
    } finally {
      api.close();
    }
  },
  async health({ health }) {
    const answer = await unary(health, 'Check', { service: SERVICE });
    expect(answer.status === 'SERVING', answer);
    const [first] = await subscribed(health.Watch({}, deadline(PATIENT_MS)), 1, async () => {});
    expect(first.status === 'SERVING', first);
  },
  async reflection() {
    const client = new Reflection(address, grpc.credentials.createInsecure());
    try {
      const call = client.ServerReflectionInfo(deadline(PATIENT_MS));
      const names = await new Promise((resolve, reject) => {
        call.on('data', (m) => resolve(m.list_services_response.service.map((s) => s.name)));
        call.on('error', reject);
        call.write({ list_services: '' });
        call.end();
      });
      expect(names.includes(SERVICE), names);
    } finally {
      client.close();
    }
  },
};

function withToken(text) {
  const metadata = new grpc.Metadata();
  metadata.set('authorization', `Bearer ${text}`);
  return metadata;
}

const tokens = {
  async unauthenticated({ api }) {
    for (const metadata of [new grpc.Metadata(), withToken('wrong-wrong-wrong-wrong')])
      await expectCode(unary(api, 'GetModel', {}, metadata), grpc.status.UNAUTHENTICATED);
  },
  async permission_denied({ api }) {
    await expectCode(ingest(api, [[{ src: 'a', dst: 'b' }]], withToken(reader)), grpc.status.PERMISSION_DENIED);
  },
  async token_is_taken({ api }) {
    for (const text of [reader, token]) await unary(api, 'GetModel', {}, withToken(text));
  },
};

const read = (name) => fs.readFileSync(path.join(certs, name));
// Asks once with these credentials; they are made only when asked.
const ask = (credentials, wanted) => async () => {
  const api = new Api(address, credentials());
  try {
    const answer = unary(api, 'GetModel', {});
    await (wanted ? answer : expectCode(answer, grpc.status.UNAVAILABLE));
  } finally {
    api.close();
  }
};
const encrypted = (ca, own) => () => (own
  ? grpc.credentials.createSsl(read(`${ca}.pem`), read(`${own}.key`), read(`${own}.pem`))
  : grpc.credentials.createSsl(read(`${ca}.pem`)));

const modes = {
  plain,
  tokens,
  tls: {
    tls: ask(encrypted('ca'), true),
    foreign_authority_is_refused: ask(encrypted('foreign'), false),
    plain_text_is_refused: ask(grpc.credentials.createInsecure, false),
  },
  mtls: {
    mtls: ask(encrypted('ca', 'client'), true),
    no_certificate_is_refused: ask(encrypted('ca'), false),
    foreign_certificate_is_refused: ask(encrypted('ca', 'stranger'), false),
    expired_certificate_is_refused: ask(encrypted('ca', 'expired'), false),
  },
};

async function main() {
  const version = (name) => require(`${name}/package.json`).version;
  console.log(`@grpc/grpc-js ${version('@grpc/grpc-js')}, @grpc/proto-loader ${version('@grpc/proto-loader')}, ` +
              `node ${process.version}`);
  const clients = {
    api: new Api(address, grpc.credentials.createInsecure()),
    health: new Health(address, grpc.credentials.createInsecure()),
  };
  for (const [name, run] of Object.entries(modes[mode])) {
    let why = '';
    try {
      await run(clients);
    } catch (error) {
      why = error.message || String(error);
    }
    console.log(JSON.stringify({ name, ok: why === '', why }));
  }
  clients.api.close();
  clients.health.close();
}
main();
