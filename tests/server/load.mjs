// Many clients at once, polite and rude ones, against one server; prints a summary as JSON.
//
//   load.mjs [--clients 256]                       all at once; a quarter leave early, some never read, some send a byte a second
//   load.mjs --requests 10000 [--concurrent 32]    one after another on kept connections, with the server's memory
//
//   --real                  the shipped model and the sample pages, not the scripted model
//   --step-ms N             of the scripted model (default 1)
//   --health-limit-ms N     most that /health may take (default 0: not checked)
//   --slope-limit-kb N      most growth for 1000 requests in the second half (default 0: not checked)
//   --patience-s N          for all of it (default 900)
//   --seed N
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import net from 'node:net';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Worker, isMainThread, parentPort, workerData } from 'node:worker_threads';
import {
  Server, chatRequest, dataUri, makePng, metricOf, ocrRequest, parseAnswer, rawRequest, redOfScript, responseRequest, sleep, sourceDir, until,
} from './harness.mjs';

const sampleEvery = 250;  // requests between two looks at the memory

// --- A client -------------------------------------------------------------------------------------------------------

// One kept connection; events, no polling, so that hundreds of them cost little.
class Client {
  constructor(port) {
    this.socket = net.connect({ port, host: '127.0.0.1', noDelay: true });
    this.socket.on('data', (bytes) => this.take(bytes));
    this.socket.on('error', (error) => (this.error = error));
    this.socket.on('close', () => this.finish(true));
  }

  // The answer. leaveAfter: resets the connection when that many bytes of it have come; the answer is then null.
  async ask(bytes, { leaveAfter } = {}) {
    if (this.socket.destroyed) throw new Error(`the server had closed: ${this.error ?? 'no error'}`);
    this.pieces = [];
    this.size = 0;
    this.leaveAfter = leaveAfter;
    const answer = new Promise((resolve, reject) => Object.assign(this, { resolve, reject }));
    this.socket.write(bytes);
    if (leaveAfter === 0) setTimeout(() => this.leave(), 5);
    return answer;
  }
  leave() {
    const { resolve } = this;
    this.resolve = undefined;
    this.socket.resetAndDestroy();
    resolve?.(null);
  }
  take(bytes) {
    if (!this.resolve) return;
    this.pieces.push(bytes);
    this.size += bytes.length;
    if (this.leaveAfter > 0 && this.size >= this.leaveAfter) return this.leave();
    this.finish(false);
  }
  finish(isEnd) {
    if (!this.resolve) return;
    const last = this.pieces.at(-1);
    // Streams come in many pieces: their end is looked for only where it can be.
    if (!isEnd && this.isChunked && !(last.length < 5 || last.subarray(-5).toString('latin1') === '0\r\n\r\n')) return;
    const answer = parseAnswer(this.pieces.length === 1 ? last : Buffer.concat(this.pieces), isEnd);
    if (!answer) {
      if (isEnd) return this.settle('reject', new Error(`closed in the middle of an answer: ${this.error ?? 'no error'}`));
      this.isChunked ??= /transfer-encoding: chunked/i.test(this.pieces[0].toString('latin1'));
      return;
    }
    this.settle('resolve', answer);
  }
  settle(how, value) {
    const act = this[how];
    this.resolve = this.reject = this.isChunked = undefined;
    act(value);
  }
}

// --- What is asked --------------------------------------------------------------------------------------------------

const forms = {
  chat: { path: '/v1/chat/completions', body: chatRequest, text: (answer) => answer.json.choices[0].message.content },
  'chat stream': {
    path: '/v1/chat/completions',
    body: (picture, more) => chatRequest(picture, { ...more, stream: true }),
    text: ({ events }) => {
      assert.equal(events.pop(), '[DONE]');
      return events.map((event) => event.choices[0]?.delta.content ?? '').join('');
    },
  },
  'responses stream': {
    path: '/v1/responses',
    body: (picture, more) => responseRequest(picture, { ...more, stream: true }),
    text: ({ events }) => events.filter((event) => event.type === 'response.output_text.delta').map((event) => event.delta).join(''),
  },
  ocr: { path: '/v1/ocr', body: ocrRequest, text: (answer) => answer.json.pages[0].markdown },
};

// large: some that take the server tens of megabytes each, which hides a small leak.
function makePages(real, large) {
  if (real) {
    return ['line.png', 'table.png', 'paragraph.png'].map((name) => ({ name, bytes: readFileSync(join(sourceDir, 'samples', name)), quire: { mode: 'strips' } }));
  }
  const sizes = [[32, 32], [100, 100], [333, 333], [640, 640], [64, 48], [6, 300]];
  if (large) sizes.push([1024, 1024], [1500, 1500], [1500, 1000], [600, 900], [2000, 400]);
  return sizes.flatMap(([width, height], index) => ['base', 'gundam'].map((mode) => ({
    name: `${width}x${height} ${mode}`, bytes: makePng({ width, height, red: redOfScript(index) }), quire: { mode },
  })));
}

// Every page in every form as bytes, with the text that it gives when it is asked for alone.
async function learn(server, pages) {
  const jobs = [];
  for (const { name, bytes, quire } of pages) {
    for (const [form, { path, body, text }] of Object.entries(forms)) {
      const request = rawRequest('POST', path, body(bytes, { quire }));
      const client = new Client(server.port);
      const answer = await client.ask(request);
      client.socket.destroy();
      assert.equal(answer.status, 200, answer.text.slice(0, 1000));
      jobs.push({ name: `${name} ${form}`, request, text, expected: text(answer) });
    }
  }
  return jobs;
}

function check(job, answer) {
  assert.equal(answer.status, 200, `${job.name}: ${answer.text.slice(0, 500)}`);
  assert.equal(job.text(answer), job.expected, job.name);
}

// Numbers from 0 to 1 that a seed decides (mulberry32's recurrence).
function makeRandom(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

// --- Health, from a thread of its own, so that this program's own work does not count --------------------------------

async function pollHealth({ url }) {
  const { default: http } = await import('node:http');
  const latencies = [];
  let stop = false;
  parentPort.once('message', () => (stop = true));
  while (!stop) {
    const start = performance.now();
    const status = await new Promise((resolve) => {
      http.get(`${url}/health`, { agent: false }, (response) => response.resume().on('end', () => resolve(response.statusCode))).on('error', (error) => resolve(String(error)));
    });
    latencies.push(performance.now() - start);
    if (status !== 200) parentPort.postMessage({ failed: status });
    await sleep(25);
  }
  parentPort.postMessage({ latencies });
}

function watchHealth(server) {
  const worker = new Worker(new URL(import.meta.url), { workerData: { url: server.url } });
  const failures = [];
  const done = new Promise((resolve, reject) => {
    worker.on('message', ({ failed, latencies }) => (latencies ? resolve(latencies) : failures.push(failed)));
    worker.on('error', reject);
  });
  return async (limitMs) => {
    worker.postMessage('stop');
    const latencies = (await done).sort((a, b) => a - b);
    const share = (part) => round(latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * part))]);
    assert.deepEqual(failures, [], '/health said other than 200');
    const health = { polls: latencies.length, p50_ms: share(0.5), p99_ms: share(0.99), worst_ms: share(1) };
    if (limitMs > 0) assert.ok(health.worst_ms <= limitMs, `/health took ${health.worst_ms} ms`);
    return health;
  };
}

const round = (value) => Math.round(value * 100) / 100;
const openFiles = (server) => readdirSync(`/proc/${server.pid}/fd`).length;

// All that the server held for clients is free again; kept: connections that stay.
async function settled(server, kept = 0) {
  return until('all free', async () => {
    const { text } = await server.get('/metrics');
    const state = Object.fromEntries(['running', 'waiting'].map((name) => [name, metricOf(text, `quire_requests_${name}`)]));
    state.kv_pages_used = metricOf(text, 'quire_kv_pages_used');
    state.connections = metricOf(text, 'quire_connections') - 1 - kept;  // 1: this one
    return Object.values(state).every((value) => value <= 0) && state;
  }, 60_000);
}

// --- All at once ----------------------------------------------------------------------------------------------------

async function crowd(server, jobs, { clients, random }) {
  const kinds = { polite: 0, leaves: 0, 'never reads': 0, 'a byte a second': 0 };
  const latencies = [], unread = [], cut = [];
  const act = {
    async polite(job) {
      const start = performance.now();
      const client = new Client(server.port);
      check(job, await client.ask(job.request));
      latencies.push(performance.now() - start);
      client.socket.destroy();
    },
    async leaves(job) {
      const client = new Client(server.port);
      const when = random();
      if (when < 0.3) {  // in the middle of sending
        client.socket.write(job.request.subarray(0, Math.floor(job.request.length * random())));
        await sleep(random() * 500);
        return client.leave();
      }
      // At once, or after some of the answer.
      await client.ask(job.request, { leaveAfter: when < 0.6 ? 0 : Math.ceil(random() * 2000) }).catch(() => {});
      client.socket.destroy();
    },
    async 'never reads'(job) {
      const socket = net.connect(server.port, '127.0.0.1').on('error', () => {}).pause();
      socket.write(job.request);
      unread.push(socket);
    },
    async 'a byte a second'(job) {
      const socket = net.connect(server.port, '127.0.0.1').on('error', () => {});
      let sent = 0;
      const timer = setInterval(() => socket.write(job.request.subarray(sent, ++sent)), 1000);
      cut.push(new Promise((resolve) => socket.resume().once('close', resolve)).finally(() => clearInterval(timer)));
    },
  };
  const work = Array.from({ length: clients }, (_, index) => {
    const kind = index % 4 === 0 ? 'leaves' : index % 32 === 1 ? 'never reads' : index % 32 === 2 ? 'a byte a second' : 'polite';
    kinds[kind]++;
    return act[kind](jobs[Math.floor(random() * jobs.length)]);
  });
  const start = performance.now();
  const failures = (await Promise.allSettled(work)).filter((result) => result.status === 'rejected').map((result) => String(result.reason));
  const seconds = (performance.now() - start) / 1000;
  for (const socket of unread) socket.destroy();
  await Promise.all(cut);  // by --header-timeout
  assert.deepEqual(failures.slice(0, 5), [], `${failures.length} of ${clients} clients failed`);
  latencies.sort((a, b) => a - b);
  return { clients, kinds, seconds: round(seconds), answers_per_s: round(latencies.length / seconds),
    latency_ms: { p50: round(latencies[latencies.length >> 1]), worst: round(latencies.at(-1)) } };
}

// --- One after another ----------------------------------------------------------------------------------------------

// Growth in kB for 1000 requests by least squares over the second half of [requests, kB].
function slope(samples) {
  const half = samples.slice(samples.length >> 1);
  const mean = (index) => half.reduce((sum, sample) => sum + sample[index], 0) / half.length;
  const [x, y] = [mean(0), mean(1)];
  const [over, under] = half.reduce(([a, b], sample) => [a + (sample[0] - x) * (sample[1] - y), b + (sample[0] - x) ** 2], [0, 0]);
  return under > 0 ? (over / under) * 1000 : 0;
}

async function soak(server, jobs, { requests, concurrent, random, slopeLimitKb }) {
  const rss = [[0, server.rssKb()]];
  const counts = { read: 0, refused: 0, left: 0 };
  const bad = rawRequest('POST', '/v1/chat/completions', { ...chatRequest(), temperature: 9 });
  const clients = Array.from({ length: concurrent }, () => new Client(server.port));
  let begun = 0;
  const ask = async (index) => {
    const job = jobs[Math.floor(random() * jobs.length)];
    const dice = random();
    if (dice < 0.05) {
      assert.equal((await clients[index].ask(bad)).status, 400);
      counts.refused++;
    } else if (dice < 0.1) {
      await clients[index].ask(job.request, { leaveAfter: Math.floor(random() * 2000) });
      clients[index].socket.destroy();
      clients[index] = new Client(server.port);
      counts.left++;
    } else {
      check(job, await clients[index].ask(job.request));
      counts.read++;
    }
  };
  const start = performance.now();
  while (begun < requests) {
    const end = Math.min(begun + sampleEvery, requests);
    await Promise.all(clients.map(async (_, index) => {
      while (begun < end) {
        begun++;
        await ask(index);
      }
    }));
    await settled(server, concurrent + 1);  // 1: of the health's thread
    rss.push([end, server.rssKb()]);
  }
  clients.forEach((client) => client.socket.destroy());
  const seconds = (performance.now() - start) / 1000;
  const growth = round(slope(rss));
  const summary = { requests, concurrent, counts, seconds: round(seconds), requests_per_s: round(requests / seconds), slope_kb_per_1000: growth, rss_kb: rss };
  if (slopeLimitKb > 0 && growth > slopeLimitKb) {
    console.log(JSON.stringify(summary));
    assert.fail(`memory grows by ${growth} kB for 1000 requests`);
  }
  return summary;
}

// --------------------------------------------------------------------------------------------------------------------

async function main() {
  const { values } = parseArgs({ options: Object.fromEntries(
    ['clients', 'requests', 'concurrent', 'step-ms', 'health-limit-ms', 'slope-limit-kb', 'patience-s', 'seed'].map((name) => [name, { type: 'string' }])
      .concat([['real', { type: 'boolean' }]])) });
  const number = (name, otherwise) => Number(values[name] ?? otherwise);
  const clients = number('clients', 256), concurrent = number('concurrent', 32), requests = number('requests', 0);
  const random = makeRandom(number('seed', 1));
  const server = await Server.start([
    '--max-queue', clients + concurrent, '--max-sequences', 16, '--header-timeout', 5, '--body-timeout', 20, '--write-timeout', 5,
    ...(values.real ? [] : ['--step-ms', number('step-ms', 1), '--script-tokens', 40]),
  ], { real: values.real });
  const patience = setTimeout(() => {
    console.error(`not done within ${number('patience-s', 900)} s`);
    process.exit(1);
  }, number('patience-s', 900) * 1000);
  const jobs = await learn(server, makePages(values.real, requests === 0));
  assert.ok(new Set(jobs.map((job) => job.expected)).size > 2, 'texts differ');
  const filesBefore = openFiles(server);
  const health = watchHealth(server);
  const summary = requests > 0
    ? await soak(server, jobs, { requests, concurrent, random, slopeLimitKb: number('slope-limit-kb', 0) })
    : await crowd(server, jobs, { clients, random });
  summary.health = await health(number('health-limit-ms', 0));
  summary.left_over = await settled(server);
  summary.peak_rss_kb = server.rssKb('VmHWM');
  summary.open_files = [filesBefore, openFiles(server)];
  assert.ok(summary.open_files[1] <= filesBefore + 8, `open files: ${summary.open_files}`);
  const again = new Client(server.port);
  for (const job of jobs.slice(0, 4)) check(job, await again.ask(job.request));
  again.socket.destroy();
  await server.stop();
  clearTimeout(patience);
  console.log(JSON.stringify(summary));
}

if (isMainThread) await main();
else await pollHealth(workerData);
