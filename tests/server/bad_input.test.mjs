// Every row of bad_input.json is refused as it says, and the next good request works.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import {
  RawConnection, Server, assertError, chatRequest, completionRequest, dataUri, makeHugePng, makePng, makeTiff, multipart, ocrRequest, responseRequest,
} from './harness.mjs';

const { rows } = JSON.parse(readFileSync(join(import.meta.dirname, 'bad_input.json'), 'utf8'));

const pdf = Buffer.from('%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[]/Count 0>>endobj\ntrailer<</Root 1 0 R>>\n');
const made = {
  $png: dataUri(makePng()),
  $truncated: dataUri(makePng({ width: 500 }).subarray(0, 200)),
  $broken_header: dataUri(Buffer.concat([makePng().subarray(0, 29), Buffer.from('0000'), makePng().subarray(33)])),
  $no_width: dataUri(makeHugePng(0, 64)),
  $huge: dataUri(makeHugePng()),
  $over_max_pixels: dataUri(makePng({ width: 2001, height: 2000 })),
  $not_a_picture: dataUri(Buffer.from('This is not a picture, whatever it is said to be.')),
  $three_pages: dataUri(makeTiff([240, 241, 242]), 'image/tiff'),
  $pdf: dataUri(pdf, 'application/pdf'),
  $not_utf8: Buffer.concat([Buffer.from('{"messages": "\\ud800'), Buffer.from([0xff, 0xfe]), Buffer.from('"}')]),
};

// "$png" and "$x*3" ("xxx") are made, in all of a value; the rest stays as it is.
function make(value) {
  if (typeof value === 'string') {
    const repeat = value.match(/^\$([^]+)\*(\d+)$/);
    return repeat ? repeat[1].repeat(Number(repeat[2])) : (made[value] ?? value);
  }
  if (Array.isArray(value)) return value.map(make);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, make(member)]));
}

// A good request, small enough to read.
function goodBody(path) {
  const one = { max_tokens: 4 };
  switch (path) {
    case '/v1/chat/completions': {
      const body = chatRequest(makePng(), one);
      body.messages[0].content.unshift({ type: 'text', text: 'Free OCR. ' });
      return body;
    }
    case '/v1/completions': return completionRequest(makePng(), one);
    case '/v1/responses': return responseRequest(makePng(), { max_output_tokens: 4 });
    case '/v1/ocr': return ocrRequest();
    case '/tokenize': return { prompt: 'Free OCR. ' };
    case '/detokenize': return { tokens: [17, 42] };
  }
}

// "a[0].b" as keys and indices.
const stepsOf = (path) => path.match(/[^.[\]]+/g).map((step) => (/^\d+$/.test(step) ? Number(step) : step));

function change(body, path, act) {
  const steps = stepsOf(path);
  const last = steps.pop();
  let at = body;
  steps.forEach((step, index) => (at = at[step] ??= typeof (steps[index + 1] ?? last) === 'number' ? [] : {}));
  act(at, last);
}

function bodyOf(row, path) {
  if (row.body === null) return undefined;
  if (row.body !== undefined) return make(row.body);
  const body = goodBody(path);
  for (const [key, value] of Object.entries(row.set ?? {})) change(body, key, (at, last) => (at[last] = make(value)));
  for (const key of row.unset ?? []) change(body, key, (at, last) => delete at[last]);
  return body;
}

async function send(server, row) {
  if (row.raw) {
    const connection = await RawConnection.open(server.port);
    for (const piece of row.raw) connection.send(make(piece));
    const answer = await connection.answer();
    connection.abort();
    return answer;
  }
  const path = row.path ?? '/v1/chat/completions';
  const upload = row.multipart && multipart(row.multipart.map(([name, value, file]) =>
    [name, file === undefined || value !== '$png' ? value : makePng(), file]));
  return server.request(row.method ?? 'POST', path, {
    body: upload ? upload.body : bodyOf(row, path),
    headers: { ...upload?.headers, ...row.headers },
  });
}

function assertMatches(found, wanted, what) {
  if (typeof wanted === 'string' && wanted.startsWith('/')) {
    assert.match(found ?? '', new RegExp(wanted.slice(1, -1)), what);
  } else {
    assert.ok([].concat(wanted).includes(found), `${what}: wanted ${JSON.stringify(wanted)}, found ${JSON.stringify(found)}`);
  }
}

describe('bad input', () => {
  const servers = {};
  const keys = { authorization: 'Bearer right' };
  let text;

  const ask = (server) => servers[server].chat(goodBody('/v1/chat/completions'), server === 'keys' ? { headers: keys } : {});

  before(async () => {
    servers.plain = await Server.start(
      ['--max-body-mb', 1, '--max-pixels', 4_000_000, '--max-images', 2, '--header-timeout', 2, '--body-timeout', 2]);
    servers.keys = await Server.start(['--api-key', 'right']);
    const answer = await ask('plain');
    assert.equal(answer.status, 200, answer.text);
    text = answer.json.choices[0].message.content;
    assert.notEqual(text, '');
  });
  after(() => Promise.all(Object.values(servers).map((server) => server.stop())));

  for (const row of rows) {
    test(row.name, async () => {
      const server = row.server ?? 'plain';
      const answer = await send(servers[server], row);
      const status = [].concat(row.status ?? 400);
      assertMatches(answer.status, status, `status of ${answer.text.slice(0, 500)}`);
      const error = assertError(answer, answer.status);
      const shown = JSON.stringify(error);
      assertMatches(error.code, row.code ?? 'usage', `code of ${shown}`);
      assertMatches(error.param, row.param ?? Object.keys(row.set ?? {})[0] ?? row.unset?.[0] ?? null, `param of ${shown}`);
      if (row.message) assert.match(error.message, new RegExp(row.message, 'is'));
      if (row.allow) assert.ok((answer.headers.allow ?? '').split(/, */).includes(row.allow), `Allow: ${answer.headers.allow}`);

      const next = await ask(server);
      assert.equal(next.status, 200, next.text);
      assert.equal(next.json.choices[0].message.content, text);
    });
  }

  // What looks odd and is right.
  const fine = {
    'null is absent': { temperature: null, stop: null, tools: null, quire: { mode: 'base', task: null }, vllm_xargs: null },
    'all neutral values': {
      n: 1, best_of: 1, frequency_penalty: 0, presence_penalty: 0, repetition_penalty: 1, logit_bias: {}, response_format: { type: 'text' },
      store: false, tools: [], tool_choice: 'none', modalities: ['text'], min_p: 0, min_tokens: 0, ignore_eos: false, echo: false,
      add_generation_prompt: true,
    },
    'neutral values as fractions': { n: 1.0, frequency_penalty: 0.0, top_p: 1, temperature: 0 },
    'accepted without effect': {
      user: 'u', safety_identifier: 's', prompt_cache_key: 'k', metadata: { a: 'b' }, service_tier: 'auto', parallel_tool_calls: true,
    },
    'guard by name': { quire: { mode: 'base', guard: 'official-pdf' } },
    'guard as vLLM has it': { vllm_xargs: { ngram_size: 30, window_size: 90, whitelist_token_ids: [17, 42] } },
    'no guard, loops kept': { quire: { mode: 'base', guard: 'off', detect_loops: false, skip_blank: false, max_tiles: 0, timeout_s: 60, priority: -3 } },
    'top_k -1, seed, priority': { top_k: -1, seed: 7, priority: 5 },
    'more tokens than the context leaves': { max_tokens: 1_000_000 },
  };
  for (const [name, more] of Object.entries(fine)) {
    test(`fine: ${name}`, async () => {
      const answer = await servers.plain.chat({ ...goodBody('/v1/chat/completions'), ...more });
      assert.equal(answer.status, 200, answer.text);
    });
  }
  test('fine: content type with a charset', async () => {
    const answer = await servers.plain.chat(goodBody('/v1/chat/completions'), { headers: { 'content-type': 'application/json; charset=utf-8' } });
    assert.equal(answer.status, 200, answer.text);
  });
  test('fine: a PNG that is said to be a JPEG', async () => {
    const body = goodBody('/v1/chat/completions');
    body.messages[0].content[1].image_url.url = dataUri(makePng(), 'image/jpeg');
    const answer = await servers.plain.chat(body);
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.json.choices[0].message.content, text);
  });
  test('fine: a page of the server itself', async () => {
    const { plain } = servers;
    for (const origin of [plain.url, plain.url.replace('127.0.0.1', 'localhost')]) {
      const answer = await plain.chat(goodBody('/v1/chat/completions'), { headers: { origin, host: new URL(origin).host } });
      assert.equal(answer.status, 200, answer.text);
    }
  });
  const raw = {
    'an absolute target': 'GET http://localhost:1/health?x HTTP/1.1\r\nHost: evil.example\r\n\r\n',
    'empty lines before a request': '\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n',
    'HTTP/1.0 without a host': 'GET /health HTTP/1.0\r\n\r\n',
    'an extension of a chunk, and a trailer':
      'POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\ne;a=b\r\n{"prompt": "a"\r\n1\r\n}\r\n0\r\nX: y\r\n\r\n',
  };
  for (const [name, bytes] of Object.entries(raw)) {
    test(`fine: ${name}`, async () => {
      const connection = await RawConnection.open(servers.plain.port);
      for (const byte of bytes) connection.send(byte);
      const answer = await connection.answer();
      assert.equal(answer.status, 200, answer.text);
      connection.abort();
    });
  }
  test('fine: the scheme of a key in other letters', async () => {
    assert.equal((await servers.keys.get('/v1/models', { headers: { authorization: 'bEARER right' } })).status, 200);
  });
  for (const open of ['/health', '/version', '/metrics', '/openapi.json']) {
    test(`fine: ${open} without a key`, async () => assert.equal((await servers.keys.get(open)).status, 200));
  }
});
