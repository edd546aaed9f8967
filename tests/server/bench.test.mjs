// `quire bench`, against a server and in its own process.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import net from 'node:net';
import { join } from 'node:path';
import { test } from 'node:test';

import { isSanitized, scratchFolder, Server, sourceDir } from './harness.mjs';

const program = join(process.env.QUIRE_BUILD ?? 'build', 'quire');

function bench(t, ...flags) {
  const folder = scratchFolder(t);
  const json = join(folder, 'report.json'), svg = join(folder, 'plot.svg');
  const run = spawnSync(program, ['bench', '--output', json, '--plot', svg, ...flags], { cwd: sourceDir, encoding: 'utf8' });
  return { ...run, report: existsSync(json) && JSON.parse(readFileSync(json, 'utf8')), svg: existsSync(svg) && readFileSync(svg, 'utf8') };
}

function assertLevel(level, { concurrent, rounds }) {
  assert.equal(level.concurrent, concurrent);
  assert.equal(level.requests, concurrent * rounds);
  assert.equal(level.failed, 0, level.first_error);
  assert.ok(level.output_tokens >= level.requests && level.pages_per_s > 0 && level.total_tokens_per_s > level.output_tokens_per_s);
  for (const times of [level.first_token_ms, level.total_ms]) assert.ok(times.p50 > 0 && times.p50 <= times.p95 && times.p95 <= times.p99);
  assert.ok(level.first_token_ms.p50 <= level.total_ms.p50);
}

test('a server', async (t) => {
  const server = await Server.start(['--step-ms', 2, '--script-tokens', 64]);
  t.after(() => server.stop());
  const { status, stdout, stderr, report, svg } = bench(t, '--url', `${server.url}/v1`, '--concurrent', '1,8', '--rounds', '3', '--mode', 'base');
  assert.equal(status, 0, stderr);
  assert.equal(report.levels.length, 2);
  assertLevel(report.levels[0], { concurrent: 1, rounds: 3 });
  assertLevel(report.levels[1], { concurrent: 8, rounds: 3 });
  // Each step takes 2 ms whatever is in it: eight at once share it.
  assert.ok(report.levels[0].per_token_ms.p50 >= 1.9);
  if (!isSanitized) assert.ok(report.levels[1].output_tokens_per_s > 3 * report.levels[0].output_tokens_per_s);
  assert.match(stdout, /at once +pages\/s/);
  assert.match(svg, /^<svg [^]*<\/svg>\n$/);
});

test('each request has a picture never seen, unless the same is wanted', async (t) => {
  const server = await Server.start(['--script-tokens', 32]);
  t.after(() => server.stop());
  const flags = ['--url', server.url, '--concurrent', '2', '--rounds', '3', '--max-tokens', '4'];
  const hits = () => server.metric('quire_vision_cache_hits_total');
  for (const more of [['--mode', 'base'], ['--mode', 'gundam', '--image', 'samples/large.png'], ['--image', 'samples/a4-11pt.png']]) {
    const { status, stdout, stderr, report } = bench(t, ...flags, ...more);
    assert.equal(status, 0, stderr);
    assert.equal(report.pictures, 'new');
    assert.match(stdout, /pictures: a new one for each request/);
    assert.equal(await hits(), 0, more.join(' '));
  }
  const views = await server.metric('quire_views_total');
  const { stdout, report } = bench(t, ...flags, '--mode', 'base', '--same-picture');
  assert.equal(report.pictures, 'same');
  assert.match(stdout, /pictures: the same/);
  assert.equal(await server.metric('quire_views_total'), views + 1);
  assert.equal(await hits(), 2 + 2 * 3, 'a round to warm up, and three');
});

test('-o - writes JSON, and only that, to standard output', () => {
  const run = spawnSync(program, ['bench', '-o', '-', '--concurrent', '1', '--rounds', '1', '--max-tokens', '2'], { cwd: sourceDir, encoding: 'utf8' });
  assert.equal(run.status, 0, run.stderr);
  assert.equal(JSON.parse(run.stdout).levels.length, 1);
});

test('what a server lacks is said', async (t) => {
  const server = await Server.start(['--served-model-name', 'reader', '--served-model-name', 'other', '--api-key', 'right']);
  t.after(() => server.stop());
  const ask = (...flags) => bench(t, '--url', server.url, '--concurrent', '1', '--rounds', '1', ...flags);
  const key = ['--api-key', 'right'];
  for (const [flags, code, says] of [
    [[], 10, /401: wanted a key that it knows, found none/],
    [['--api-key', 'wrong'], 10, /401: wanted a key that it knows, found another/],
    [[...key, '--served-model-name', 'gpt-4o'], 4, /no model gpt-4o[^]*it has: reader, other/],
    [[...key, '--mode', 'nosuch'], 10, /first request failed[^]*no mode "nosuch"[^]*strips, gundam/],
  ]) {
    const { status, stderr } = ask(...flags);
    assert.match(stderr, says);
    assert.equal(status, code, stderr);
  }
  assert.equal(ask(...key, '--served-model-name', 'other').status, 0);
  const elsewhere = bench(t, '--url', `${server.url}/v2`, ...key);
  assert.match(elsewhere.stderr, /answers 404[^]*up to and with \/v1/);
});

test('a server that is silent is given up', async (t) => {
  const silent = net.createServer();
  await once(silent.listen(0, '127.0.0.1'), 'listening');  // the system takes connections, nobody reads them
  t.after(() => silent.close());
  const start = Date.now();
  const { status, stderr } = bench(t, '--url', `http://127.0.0.1:${silent.address().port}/v1`, '--timeout', '1');
  assert.equal(status, 10, stderr);
  assert.match(stderr, /silent for 1 s/);
  assert.ok(Date.now() - start < 10_000);
});

test('this machine', (t) => {
  const { status, stderr, report } = bench(t, '--concurrent', '2', '--rounds', '1', '--warmup', '0', '--image', 'samples/line.png', '--scenarios', '--max-tokens', '8');
  assert.equal(status, 0, stderr);
  assertLevel(report.levels[0], { concurrent: 2, rounds: 1 });
  assert.ok(report.start_up.kv_cache_tokens >= 8192 && report.start_up.weight_bytes > 1e7 && report.start_up.product_flops > 1e9);
  assert.deepEqual(report.scenarios.map(({ name }) => name), ['short line', 'sentences', 'page', 'digits']);
  for (const scenario of report.scenarios) assert.equal(scenario.error, null);
});

test('what is wrong is said', (t) => {
  for (const [flags, code, says] of [
    [['--concurrent', '0'], 2, /numbers of requests/],
    [['--concurrent', '1,,2'], 2, /numbers of requests/],
    [['--url', 'http://127.0.0.1:1/v1'], 10, /cannot reach the server/],
    [['--image', 'no such file.png'], 4, /no such file\.png/],
    [['--url', ''], 2, /--url: wanted some text, found none/],
    [['--url', 'http://::1:8000/v1'], 2, /brackets/],
    [['--mode', 'nosuch'], 2, /no mode "nosuch"[^]*strips, gundam/],
  ]) {
    const { status, stderr } = bench(t, ...flags);
    assert.equal(status, code, stderr);
    assert.match(stderr, says);
  }
});
