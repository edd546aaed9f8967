// The file that the server serves is the repository's, and what the server answers is what the file says.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import Ajv from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import {
  Server, assertError, chatRequest, completionRequest, dataUri, makePng, makeTiff, multipart, ocrRequest, redOfScript, responseRequest, sourceDir,
} from './harness.mjs';

const api = JSON.parse(readFileSync(join(sourceDir, 'src', 'server', 'openapi.json'), 'utf8'));
const methods = ['get', 'post', 'put', 'patch', 'delete'];

const ajv = new Ajv({ strict: true, allowUnionTypes: true, allErrors: true });
addFormats(ajv);
ajv.addSchema({ $id: 'api', $defs: JSON.parse(JSON.stringify(api.components.schemas).replaceAll('#/components/schemas/', '#/$defs/')) });

function isValid(schema, value) {
  return ajv.validate({ $ref: `api#/$defs/${schema}` }, value);
}
function assertValid(schema, value) {
  if (isValid(schema, value)) return;
  const errors = ajv.errors.map(({ instancePath, message, params }) => `${instancePath} ${message} ${JSON.stringify(params)}`);
  assert.fail(`${schema}:\n${errors.join('\n')}\n${JSON.stringify(value).slice(0, 3000)}`);
}

const nameOf = (reference) => reference.$ref?.split('/').at(-1);
// The schema that the file has for an answer.
function schemaOf(path, method, status, type = 'application/json') {
  const operation = api.paths[path][method];
  const response = operation.responses[status];
  assert.ok(response, `${method} ${path} does not list ${status}`);
  const content = response.$ref ? api.components.responses[nameOf(response)].content : response.content;
  assert.ok(content[type], `${method} ${path} ${status} does not list ${type}`);
  return nameOf(content[type].schema);
}

describe('the file', () => {
  test('every schema compiles, every reference leads somewhere', () => {
    for (const name of Object.keys(api.components.schemas)) ajv.compile({ $ref: `api#/$defs/${name}` });
    for (const [, path] of JSON.stringify(api).matchAll(/"\$ref":"#\/([^"]+)"/g)) {
      assert.ok(path.split('/').reduce((at, step) => at?.[step], api), path);
    }
  });

  test('objects say whether other members may be there', () => {
    const walk = (schema, where) => {
      if (schema === null || typeof schema !== 'object') return;
      if (schema.properties) assert.equal(schema.additionalProperties, false, where);
      for (const [key, member] of Object.entries(schema)) walk(member, `${where}.${key}`);
    };
    walk(api.components.schemas, 'schemas');
  });

  test('bad requests are not valid', () => {
    const bad = [
      { ...chatRequest(), colour: 1 }, { ...chatRequest(), temperature: 3 }, { ...chatRequest(), n: 2 }, { ...chatRequest(), messages: [] },
      { ...chatRequest(), tools: [{}] }, chatRequest(makePng(), { quire: { colour: 1 } }), { ...chatRequest(), stop: ['a', 'b', 'c', 'd', 'e'] },
      { ...chatRequest(), top_p: 2 }, { ...chatRequest(), messages: [{ role: 'system', content: 'x' }] },
    ];
    for (const body of bad) assert.ok(!isValid('ChatRequest', body), JSON.stringify(body).slice(0, 200));
    assertValid('ChatRequest', { ...chatRequest(), temperature: null, stop: null, service_tier: null, quire: null });
  });
});

describe('the server', () => {
  let server, keyed;
  before(async () => {
    server = await Server.start(['--max-body-mb', 2, '--max-pixels', 4_000_000, '--max-images', 4]);
    keyed = await Server.start(['--api-key', 'right', '--step-ms', 30, '--script-tokens', 60, '--max-sequences', 1, '--max-queue', 1]);
  });
  after(() => Promise.all([server.stop(), keyed.stop()]));

  test('serves the file', async () => {
    const answer = await server.get('/openapi.json');
    assert.match(answer.headers['content-type'], /^application\/json/);
    assert.deepEqual(answer.json, api);
  });

  test('every path and method of the file is there, no other method', async () => {
    for (const [path, item] of Object.entries(api.paths)) {
      const real = path.replace('{id}', await server.model());
      for (const method of methods) {
        const answer = await server.request(method.toUpperCase(), real, { body: method === 'get' ? undefined : '{}' });
        if (item[method]) {
          assert.ok(![404, 405].includes(answer.status), `${method} ${path}: ${answer.status}`);
          continue;
        }
        assertError(answer, 405, { code: 'method_not_allowed' });
        assertValid('Error', answer.json);
        const wanted = methods.filter((other) => item[other]).map((other) => other.toUpperCase());
        const allowed = answer.headers.allow.split(/, */);
        for (const other of wanted) assert.ok(allowed.includes(other), `${path}: Allow: ${answer.headers.allow}`);
        for (const other of methods) assert.ok(item[other] || !allowed.includes(other.toUpperCase()), `${path}: Allow: ${answer.headers.allow}`);
      }
    }
  });

  test('other paths are not there', async () => {
    for (const path of ['/', '/v1', '/v1/', '/v1/chat', '/v1/embeddings', '/v1/models/', '/v2/models', '/metrics/x', '/health/', '/V1/models', '/docs']) {
      const answer = await server.get(path);
      assertError(answer, 404);
      assertValid('Error', answer.json);
    }
  });

  // Requests of every POST endpoint, each valid by the file.
  const requests = {
    '/v1/chat/completions': ['ChatRequest', [
      chatRequest(), chatRequest(makePng(), { logprobs: true, top_logprobs: 2 }), chatRequest(makePng(), { max_tokens: 2 }),
      chatRequest(makePng(), { quire: { output: 'json' } }), chatRequest(makePng(), { quire: { output: 'markdown', guard: 'off' } }),
      chatRequest(makePng({ width: 300, height: 200 }), { quire: { mode: 'gundam' }, vllm_xargs: { ngram_size: 30, window_size: 90 } }),
    ]],
    '/v1/completions': ['CompletionRequest', [completionRequest(), completionRequest(makePng(), { logprobs: 2 }), completionRequest(makePng(), { max_tokens: 2 })]],
    '/v1/responses': ['ResponseRequest', [
      responseRequest(), responseRequest(makePng(), { max_output_tokens: 2 }),
      responseRequest(makePng(), { top_logprobs: 2, include: ['message.output_text.logprobs'] }),
    ]],
    '/v1/ocr': ['OcrRequest', [
      ocrRequest(), ocrRequest(makeTiff([redOfScript(1), redOfScript(2)]), { id: 'x', pages: '0-1' }), ocrRequest(makePng(), { include_image_base64: true }),
      ocrRequest(makeTiff([redOfScript(1), null])),
    ]],
    '/tokenize': ['TokenizeRequest', [{ prompt: 'Free OCR. ' }, { prompt: 'x', add_special_tokens: false, return_token_strs: true }]],
    '/detokenize': ['DetokenizeRequest', [{ tokens: [17, 42] }]],
  };
  const streams = {
    '/v1/chat/completions': [{ stream_options: { include_usage: true } }, { logprobs: true, top_logprobs: 2 }, { max_tokens: 2 }],
    '/v1/completions': [{ stream_options: { include_usage: true } }, { logprobs: 2 }],
    '/v1/responses': [{}, { max_output_tokens: 2 }, { top_logprobs: 2, include: ['message.output_text.logprobs'] }],
  };

  for (const [path, [schema, bodies]] of Object.entries(requests)) {
    test(`answers of ${path}`, async () => {
      for (const body of bodies) {
        assertValid(schema, body);
        const answer = await server.post(path, body);
        assert.equal(answer.status, 200, answer.text);
        assertValid(schemaOf(path, 'post', 200), answer.json);
      }
    });

    if (streams[path]) {
      test(`events of ${path}`, async () => {
        for (const more of streams[path]) {
          const body = { ...bodies[0], ...more, stream: true };
          assertValid(schema, body);
          const answer = await server.post(path, body);
          assert.equal(answer.status, 200, answer.text);
          const events = answer.events.filter((event) => event !== '[DONE]');
          assert.ok(events.length > 3);
          for (const event of events) assertValid(schemaOf(path, 'post', 200, 'text/event-stream'), event);
        }
      });
    }

    test(`errors of ${path}`, async () => {
      const failures = [
        [400, await server.post(path, '{')], [400, await server.post(path, { ...bodies[0], colour: 1 })],
        [404, await server.post(path, { ...bodies[0], model: 'gpt-4o' })],
        [413, await server.post(path, ' '.repeat(3_000_000))],
        [415, await server.post(path, '{}', { headers: { 'content-type': 'text/plain' } })],
        [401, await keyed.post(path, bodies[0])],
      ];
      for (const [status, answer] of failures) {
        assertError(answer, status);
        assertValid(schemaOf(path, 'post', status), answer.json);
      }
    });
  }

  test('an upload', async () => {
    const { body, headers } = multipart([['file', makePng(), 'page.png'], ['mode', 'base'], ['id', 'x'], ['include_image_base64', 'true'], ['max_tiles', '0']]);
    const answer = await server.post('/v1/ocr', body, { headers });
    assert.equal(answer.status, 200, answer.text);
    assertValid('OcrResponse', answer.json);
  });

  test('errors of reading', async () => {
    const headers = { authorization: 'Bearer right' };
    const failures = [
      [413, await server.chat(chatRequest(makePng({ width: 2001, height: 2000 })))],
      [501, await server.post('/v1/ocr', { document: { type: 'document_url', document_url: dataUri(Buffer.from('%PDF-1.4\n'), 'application/pdf') } }), '/v1/ocr'],
      [504, await keyed.chat(chatRequest(makePng(), { quire: { timeout_s: 0.2 } }), { headers })],
    ];
    const crowd = await Promise.all(Array.from({ length: 12 }, () => keyed.chat(chatRequest(), { headers })));
    failures.push([429, crowd.find((answer) => answer.status !== 200)]);
    for (const [status, answer, path] of failures) {
      assertError(answer, status);
      assertValid(schemaOf(path ?? '/v1/chat/completions', 'post', status), answer.json);
    }
    assert.ok(Number(failures.at(-1)[1].headers['retry-after']) >= 1);
    for (const answer of crowd.filter((other) => other.status === 200)) assertValid('ChatCompletion', answer.json);
  });

  test('what is served, health, version', async () => {
    const model = await server.model();
    for (const path of ['/v1/models', '/v1/models/{id}', '/health', '/version']) {
      const answer = await server.get(path.replace('{id}', model));
      assert.equal(answer.status, 200);
      assertValid(schemaOf(path, 'get', 200), answer.json);
    }
    const missing = await server.get('/v1/models/gpt-4o');
    assertError(missing, 404, { code: 'model_not_found' });
  });

  test('metrics are those of docs/api.md, in Prometheus text', async () => {
    const answer = await server.get('/metrics');
    assert.match(answer.headers['content-type'], /^text\/plain/);
    const found = new Set();
    for (const line of answer.text.trimEnd().split('\n')) {
      if (line.startsWith('#')) {
        assert.match(line, /^# (HELP \w+ .+|TYPE \w+ (counter|gauge|histogram))$/);
        if (line.startsWith('# TYPE')) found.add(line.split(' ')[2]);
      } else {
        assert.match(line, /^[a-z_]+(\{[a-z_]+="(\\.|[^"\\])*"(,[a-z_]+="(\\.|[^"\\])*")*\})? (-?[0-9.e+-]+|\+Inf|NaN)$/);
      }
    }
    const rows = readFileSync(join(sourceDir, 'docs', 'api.md'), 'utf8').match(/\*\*Metrics\.\*\*[^]*?\n\n(?=##)/)[0];
    const wanted = [...rows.matchAll(/`((?:quire|process)_\w+)/g)].map((match) => match[1]);
    assert.ok(wanted.length >= 15);
    assert.deepEqual([...found].sort(), [...wanted].sort());
  });
});
