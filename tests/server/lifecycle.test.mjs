// Start, keys, CORS, TLS, limits in time, clients that leave, and the end.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import {
  RawConnection, Server, assertError, chatRequest, dataUri, makePng, makeTiff, metricOf, ocrRequest, parseAnswer, rawRequest, redOfScript, responseRequest,
  isSanitized, scratchFolder, sleep, until,
} from './harness.mjs';

const slow = ['--step-ms', 30, '--script-tokens', 200];  // 6 s a page
const streamed = (more) => chatRequest(makePng(), { stream: true, ...more });

async function withServer(flags, act, options) {
  const server = await Server.start(flags, options);
  try {
    await act(server);
  } finally {
    await server.stop();
  }
}

const isFree = async (server) => {
  const { text } = await server.get('/metrics');
  return ['quire_requests_running', 'quire_requests_waiting', 'quire_kv_pages_used'].every((name) => metricOf(text, name) === 0);
};

describe('start', () => {
  test('health says loading, then ready; requests meanwhile get 503', async () => {
    await withServer([], async (server) => {
      const seen = new Set();
      await until('ready', async () => {
        const health = await server.get('/health');
        seen.add(health.json.status);
        if (health.status === 200) return true;
        assert.equal(health.status, 503);
        const answer = await server.chat(chatRequest());
        if (answer.status !== 200) {
          assertError(answer, 503, { code: 'loading' });
          assert.ok(Number(answer.headers['retry-after']) >= 1);
        }
        return false;
      }, 60_000);
      assert.ok([...seen].every((status) => ['loading', 'ready'].includes(status)), [...seen].join());
    }, { real: true, ready: false });
  });

  test('a port that is taken is said so', async () => {
    await withServer([], async (server) => {
      await assert.rejects(Server.start(['--port', server.port]), /in use|port/i);
    });
  });

  test('answers have an X-Request-Id, a sane one of the client is kept', async () => {
    await withServer([], async (server) => {
      const id = async (own) => (await server.get('/health', { headers: own ? { 'x-request-id': own } : {} })).headers['x-request-id'];
      assert.equal(await id('job-7.page_3'), 'job-7.page_3');
      assert.notEqual(await id(), await id());
      for (const odd of ['two words', 'a:b', 'a"b', 'x'.repeat(1000)]) {
        const found = await id(odd);
        assert.ok(found);
        assert.notEqual(found, odd);
      }
      assert.ok((await server.get('/nowhere')).headers['x-request-id']);
    });
  });

  test('several requests on one connection, also sent at once', async () => {
    await withServer([], async (server) => {
      const connection = await RawConnection.open(server.port);
      connection.send(Buffer.concat([
        rawRequest('GET', '/version'), rawRequest('POST', '/v1/chat/completions', chatRequest()), rawRequest('GET', '/nowhere'), rawRequest('GET', '/health'),
      ]));
      const statuses = [];
      await until('four answers', () => {
        const answer = parseAnswer(connection.received);
        if (!answer) return false;
        statuses.push(answer.status);
        connection.received = connection.received.subarray(answer.bytes);
        return statuses.length === 4;
      });
      assert.deepEqual(statuses, [200, 200, 404, 200]);
      connection.abort();
    });
  });

  test('a body in chunks and a client that asks to continue', async () => {
    await withServer([], async (server) => {
      const body = JSON.stringify(chatRequest());
      const connection = await RawConnection.open(server.port);
      connection.send('POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n');
      for (let at = 0; at < body.length; at += 100) {
        const piece = body.slice(at, at + 100);
        connection.send(`${piece.length.toString(16)}\r\n${piece}\r\n`);
      }
      connection.send('0\r\n\r\n');
      assert.equal((await connection.answer()).status, 200);
      assert.ok(await connection.closes(3000), 'Connection: close');

      const careful = await RawConnection.open(server.port);
      careful.send(`POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\nExpect: 100-continue\r\n\r\n`);
      await until('100 Continue', () => careful.text.startsWith('HTTP/1.1 100'));
      careful.received = Buffer.alloc(0);
      careful.send(body);
      assert.equal((await careful.answer()).status, 200);
      careful.abort();
    });
  });
});

describe('keys', () => {
  test('from a file, read again at SIGHUP', async (t) => {
    const file = join(scratchFolder(t), 'keys');
    writeFileSync(file, '# of the tests\nold\n\nboth\n');
    await withServer(['--api-key-file', file], async (server) => {
      const status = async (key) => (await server.get('/v1/models', { headers: { authorization: `Bearer ${key}` } })).status;
      assert.deepEqual([await status('old'), await status('both'), await status('new'), await status('# of the tests'), await status('')], [200, 200, 401, 401, 401]);
      writeFileSync(file, 'new\nboth\n');
      assert.equal(await status('new'), 401, 'not before SIGHUP');
      server.child.kill('SIGHUP');
      await until('the new key', async () => (await status('new')) === 200);
      assert.deepEqual([await status('old'), await status('both')], [401, 200]);
      writeFileSync(file, '');
      server.child.kill('SIGHUP');
      await sleep(300);
      assert.equal(await status('anything'), 401, 'an empty file does not open the server');
      assert.ok(!/\b(old|new|both)\b/.test(server.stderr + server.stdout), 'keys are not written');
    });
  });
});

describe('CORS', () => {
  const origin = 'https://pages.example';
  const preflight = (server, from) => server.request('OPTIONS', '/v1/chat/completions', {
    headers: { origin: from, 'access-control-request-method': 'POST', 'access-control-request-headers': 'authorization, content-type' },
  });

  test('by option, for the origins named', async () => {
    await withServer(['--cors-origin', origin, '--api-key', 'right'], async (server) => {
      const answer = await preflight(server, origin);
      assert.equal(answer.status, 204);
      assert.equal(answer.headers['access-control-allow-origin'], origin);
      assert.match(answer.headers['access-control-allow-methods'], /POST/);
      assert.match(answer.headers['access-control-allow-headers'], /authorization/i);
      assert.match(answer.headers['access-control-allow-headers'], /content-type/i);
      const body = chatRequest();
      const headers = { origin, authorization: 'Bearer right' };
      for (const more of [{}, { stream: true }, { temperature: 9 }]) {
        assert.equal((await server.chat({ ...body, ...more }, { headers })).headers['access-control-allow-origin'], origin);
      }
      assert.match((await server.chat(body, { headers })).headers['access-control-expose-headers'], /X-Request-Id.*Retry-After/);
      assert.match((await server.chat(body, { headers })).headers.vary ?? '', /origin/i);
      assert.equal((await server.chat(body, { headers: { origin } })).headers['access-control-allow-origin'], origin, 'also with 401');
      for (const other of ['https://pages.example.evil', 'http://pages.example', 'null']) {
        assert.equal((await preflight(server, other)).headers['access-control-allow-origin'], undefined);
        assert.equal((await server.get('/health', { headers: { origin: other } })).headers['access-control-allow-origin'], undefined);
      }
    });
  });

  test('by the names of --allowed-host', async () => {
    await withServer(['--allowed-host', 'ocr.internal'], async (server) => {
      const status = async (host) => (await server.get('/health', { headers: { host } })).status;
      assert.deepEqual([await status('ocr.internal'), await status('ocr.internal:80'), await status('ocr')], [200, 200, 421]);
    });
    await withServer(['--api-key', 'right'], async (server) => {
      assert.equal((await server.get('/health', { headers: { host: 'any' } })).status, 200, 'with a key');
    });
  });

  test('off by default', async () => {
    await withServer([], async (server) => {
      assertError(await preflight(server, origin), 405);
      assert.equal((await server.get('/health', { headers: { origin } })).headers['access-control-allow-origin'], undefined);
    });
  });
});

test('TLS', async (t) => {
  const folder = scratchFolder(t);
  const [key, cert] = ['key.pem', 'cert.pem'].map((name) => join(folder, name));
  execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2', '-subj', '/CN=localhost',
    '-addext', 'subjectAltName=IP:127.0.0.1,DNS:localhost', '-keyout', key, '-out', cert], { stdio: 'pipe' });
  await withServer(['--tls-cert', cert, '--tls-key', key, '--max-body-mb', 1, '--header-timeout', 2], async (server) => {
    assert.match(server.url, /^https:/);
    const whole = await server.chat(chatRequest());
    assert.equal(whole.status, 200, whole.text);
    const stream = await server.chat(streamed());
    assert.equal(stream.events.at(-1), '[DONE]');
    assertError(await server.post('/v1/chat/completions', ' '.repeat(3_000_000)), 413, { code: 'too_large' });
    // One who speaks no TLS, and one who never begins, do no harm.
    const plain = await RawConnection.open(server.port);
    plain.send('GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n');
    const silent = await RawConnection.open(server.port);
    assert.ok(await plain.closes(8000));
    assert.ok(await silent.closes(8000));
    assert.equal((await server.get('/health')).status, 200);
  }, { ca: readFileSync(cert) });
});

describe('the end', () => {
  for (const signal of ['SIGTERM', 'SIGINT']) {
    test(`${signal} drains: what runs is finished, what comes gets 503`, async () => {
      await withServer([...slow, '--drain-timeout', 30], async (server) => {
        const kept = await RawConnection.open(server.port);
        const running = server.chat(streamed());
        const whole = server.chat(chatRequest(makePng({ red: redOfScript(2) })));
        await until('running', async () => (await server.metric('quire_requests_running')) === 2);
        server.child.kill(signal);
        await until('draining', async () => (await server.get('/health')).json.status === 'draining');
        assert.equal((await server.get('/health')).status, 503);
        const refused = await server.chat(chatRequest());
        assertError(refused, 503, { code: 'draining' });
        assert.ok(Number(refused.headers['retry-after']) >= 1);
        kept.send(rawRequest('POST', '/v1/chat/completions', chatRequest()));
        assert.equal((await kept.answer()).status, 503, 'on a connection that was open before');
        const { events } = await running;
        assert.equal(events.at(-1), '[DONE]');
        assert.equal(events.at(-2).choices[0].finish_reason, 'stop');
        assert.equal((await whole).status, 200);
      });
    });
  }

  test('an idle server ends at once', async () => {
    await withServer([], async (server) => {
      const idle = await RawConnection.open(server.port);
      const start = Date.now();
      await server.stop();
      assert.ok(Date.now() - start < 3000, `${Date.now() - start} ms`);
      assert.ok(await idle.closes(1000));
    });
  });

  // step_ms: of the device; 60 s: it hangs.
  for (const [name, step_ms] of [['', 100], [' also where the device hangs', 60_000]]) {
    test(`--drain-timeout ends what still runs, with an error,${name}`, async () => {
      const flags = ['--step-ms', step_ms, '--script-tokens', 500, '--drain-timeout', 1, '--max-sequences', 2];  // six workers
      const server = await Server.start(flags);
      const chat = server.chat(streamed());
      const response = server.post('/v1/responses', { ...responseRequest(), stream: true });
      const whole = [server.post('/v1/ocr', ocrRequest()), ...Array.from({ length: 9 }, () => server.chat(chatRequest()))];
      await until('waiting', async () => (await server.metric('quire_requests_waiting')) === 6);
      const start = Date.now();
      server.child.kill('SIGTERM');
      for (const answer of await Promise.all(whole)) {
        assertError(answer, 503, { code: 'draining' });
        assert.ok(Number(answer.headers['retry-after']) >= 1);
      }
      if (step_ms < 1000) {
        const { events } = await chat;
        assert.equal(events.at(-1), '[DONE]');
        assert.equal(events.at(-2).error.code, 'draining');
        assert.equal((await response).events.at(-1).type, 'response.failed');
      } else {  // streams that have begun
        for (const { text } of await Promise.all([chat, response])) assert.match(text, /"code":"draining"/);
      }
      assert.equal(await server.exited, step_ms < 1000 ? 0 : 1);
      assert.ok(Date.now() - start < 12_000, `${Date.now() - start} ms`);
    });
  }

  test('a body that is still on its way does not hold the drain', async () => {
    await withServer(['--drain-timeout', 30], async (server) => {
      const half = await RawConnection.open(server.port);
      half.send('POST /v1/ocr HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{');
      await sleep(200);
      const start = Date.now();
      server.child.kill('SIGTERM');
      const answer = await half.answer(3000);
      assertError(answer, 503, { code: 'draining' });
      assert.ok(Number(answer.headers['retry-after']) >= 1);
      assert.equal(await server.exited, 0);
      assert.ok(Date.now() - start < 3000, `${Date.now() - start} ms`);
    });
  });

  test('SIGTERM while the model is loading', async () => {
    const server = await Server.start(['--load-ms', 20_000], { ready: false });
    const start = Date.now();
    server.child.kill('SIGTERM');
    assert.equal(await server.exited, 0, server.stderr);
    assert.ok(Date.now() - start < 3000, `${Date.now() - start} ms`);
  });
});

describe('open files', () => {
  const limit = (server, files) => execFileSync('prlimit', ['--pid', server.pid, `--nofile=${files}:`]);
  const firstFree = (server) => {
    const open = new Set(readdirSync(`/proc/${server.pid}/fd`).map(Number));
    return Array.from(open).sort((a, b) => a - b).find((fd) => !open.has(fd + 1)) + 1;
  };

  test('as many as the system gives', async () => {
    await withServer([], async (server) => {
      const crowd = await Promise.all(Array.from({ length: 100 }, () => RawConnection.open(server.port)));
      assert.equal((await server.chat(chatRequest())).status, 200);
      for (const connection of crowd) connection.send(rawRequest('GET', '/health'));
      for (const connection of crowd) assert.equal((await connection.answer()).status, 200);
      crowd.forEach((connection) => connection.abort());
    }, { wrap: ['sh', '-c', 'ulimit -S -n 40; exec "$@"', 'sh'] });
  });

  test('few: connections that fit', async () => {
    await withServer([], async (server) => {
      assert.match(server.stderr, /ulimit -n\) allows 64 connections/);
      const crowd = await Promise.all(Array.from({ length: 100 }, () => RawConnection.open(server.port)));
      await sleep(300);
      const open = crowd.filter(({ isClosed }) => !isClosed);
      assert.ok([63, 64].includes(open.length), `${open.length}`);  // the one that waited for the server may count
      open[0].send(rawRequest('POST', '/v1/chat/completions', chatRequest()));
      assert.equal((await open[0].answer()).status, 200);
      crowd.forEach((connection) => connection.abort());
    }, { wrap: ['sh', '-c', 'ulimit -n 250; exec "$@"', 'sh'] });
  });

  test('none left: clients wait, a page is tried later', { skip: isSanitized }, async () => {
    await withServer([], async (server) => {
      const first = await RawConnection.open(server.port);
      first.send(rawRequest('GET', '/health'));
      const { bytes } = await first.answer();
      first.received = first.received.subarray(bytes);
      limit(server, firstFree(server));
      first.send(rawRequest('POST', '/v1/chat/completions', chatRequest()));
      const refused = await first.answer();
      assertError(refused, 429, { code: 'busy' });
      assert.ok(Number(refused.headers['retry-after']) >= 1);
      first.received = first.received.subarray(refused.bytes);

      const second = await RawConnection.open(server.port);  // the system's
      second.send(rawRequest('GET', '/health'));
      const cpuTicks = () => readFileSync(`/proc/${server.pid}/stat`, 'utf8').split(' ').slice(13, 15).reduce((sum, ticks) => sum + Number(ticks), 0);
      const before = cpuTicks();
      await sleep(1000);
      assert.ok(cpuTicks() - before < 20, 'does not spin');
      assert.equal(second.text, '');
      limit(server, 500);
      assert.equal((await second.answer()).status, 200);
      first.send(rawRequest('POST', '/v1/chat/completions', chatRequest()));
      assert.equal((await first.answer()).status, 200);
      first.abort();
      second.abort();
    });
  });
});

test('every error is counted once, by its code', async () => {
  const flags = [...slow, '--api-key', 'right', '--max-sequences', 1, '--max-queue', 1, '--max-body-mb', 1];
  await withServer(flags, async (server) => {
    const headers = { authorization: 'Bearer right' };
    const timed = (more) => chatRequest(makePng(), { ...more, quire: { timeout_s: 0.3 } });
    const refused = (status, code, answer) => assertError(answer, status, { code });
    const counted = async () => {
      const found = {};
      const { text } = await server.get('/metrics');
      for (const [, kind, count] of text.matchAll(/^quire_errors_total\{kind="(\w+)"\} (\d+)$/gm)) found[kind] = Number(count);
      return found;
    };
    refused(401, 'invalid_api_key', await server.chat(chatRequest()));
    refused(404, 'not_found', await server.get('/nowhere', { headers }));
    refused(404, 'model_not_found', await server.chat({ ...chatRequest(), model: 'gpt-4o' }, { headers }));
    refused(405, 'method_not_allowed', await server.get('/tokenize', { headers }));
    refused(415, 'unsupported_media_type', await server.post('/tokenize', 'x', { headers: { ...headers, 'content-type': 'text/plain' } }));
    refused(400, 'invalid_json', await server.post('/tokenize', '{', { headers }));
    refused(413, 'too_large', await server.post('/tokenize', ' '.repeat(2_000_000), { headers }));
    refused(400, 'usage', await server.chat({ ...chatRequest(), colour: 1 }, { headers }));
    refused(504, 'deadline', await server.chat(timed(), { headers }));
    assert.equal((await server.chat(timed({ stream: true }), { headers })).events.at(-2).error.code, 'deadline');
    assert.equal((await server.post('/v1/responses', { ...responseRequest(), stream: true, quire: { mode: 'base', timeout_s: 0.3 } }, { headers }))
      .events.at(-1).type, 'response.failed');
    const document = await server.post('/v1/ocr', ocrRequest(makeTiff([redOfScript(0), null])), { headers });
    assert.deepEqual(document.json.pages.map(({ status }) => status), ['ok', 'error']);
    const wanted = {
      invalid_api_key: 1, not_found: 1, model_not_found: 1, method_not_allowed: 1, unsupported_media_type: 1, invalid_json: 1, too_large: 1,
      usage: 1, deadline: 3, bad_input: 1,
    };
    await until('free', () => isFree(server));
    assert.deepEqual(await counted(), wanted);

    const crowd = await Promise.all(Array.from({ length: 12 }, () => server.chat(chatRequest(makePng(), { max_tokens: 20 }), { headers })));
    const busy = crowd.filter(({ status }) => status === 429).length;
    assert.ok(busy > 0);
    const left = await RawConnection.open(server.port);
    left.send(rawRequest('POST', '/v1/chat/completions', chatRequest(), headers));
    await until('running', async () => (await server.metric('quire_requests_running')) === 1);
    left.abort();
    await until('free', () => isFree(server));
    assert.deepEqual(await counted(), { ...wanted, busy }, 'one that leaves is no error');
  });
});

describe('limits in time', () => {
  test('--timeout and quire.timeout_s end a page with 504', async () => {
    await withServer([...slow, '--timeout', 0.6], async (server) => {
      assertError(await server.chat(chatRequest()), 504, { code: 'deadline' });
      assertError(await server.chat(chatRequest(makePng(), { quire: { timeout_s: 0.2 } })), 504, { code: 'deadline' });
      const patient = await server.chat(chatRequest(makePng(), { quire: { timeout_s: 600 } }));
      assert.ok([400, 504].includes(patient.status), 'not longer than --timeout');
      assertError(await server.post('/v1/responses', responseRequest()), 504, { code: 'deadline' });
      const { events } = await server.chat(streamed());
      assert.equal(events.at(-1), '[DONE]');
      assert.equal(events.at(-2).error.code, 'deadline');
      assert.equal(events.at(-2).error.type, 'server_error');
      const response = await server.post('/v1/responses', { ...responseRequest(), stream: true });
      assert.equal(response.events.at(-1).type, 'response.failed');
      await until('free', () => isFree(server), 3000);
    });
  });

  test('--timeout counts the time in the queue', async () => {
    await withServer([...slow, '--timeout', 1, '--max-sequences', 1], async (server) => {
      const start = Date.now();
      const answers = await Promise.all(Array.from({ length: 4 }, () => server.chat(chatRequest())));
      for (const answer of answers) assertError(answer, 504, { code: 'deadline' });
      assert.ok(Date.now() - start < 4000, `${Date.now() - start} ms`);
    });
  });

  test('--header-timeout, also for one byte a while', async () => {
    await withServer(['--header-timeout', 1], async (server) => {
      const half = await RawConnection.open(server.port);
      half.send('GET /health HTTP/1.1\r\nHost:');
      assertError(await half.answer(5000), 408);
      assert.ok(await half.closes(3000));
      const drip = await RawConnection.open(server.port);
      const start = Date.now();
      drip.drip(`GET /health HTTP/1.1\r\nX-Long: ${'x'.repeat(1000)}`, 100);
      assert.ok(await drip.closes(6000));
      assert.ok(Date.now() - start >= 900);
    });
  });

  test('--body-timeout', async () => {
    await withServer(['--body-timeout', 1], async (server) => {
      const connection = await RawConnection.open(server.port);
      connection.send('POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n');
      connection.drip('{'.repeat(100), 100);
      assertError(await connection.answer(6000), 408);
      assert.ok(await connection.closes(3000));
    });
  });

  test('--idle-timeout closes a connection that rests, without a word', async () => {
    await withServer(['--idle-timeout', 1], async (server) => {
      const connection = await RawConnection.open(server.port);
      connection.send(rawRequest('GET', '/health'));
      const { bytes } = await connection.answer();
      const start = Date.now();
      assert.ok(await connection.closes(6000));
      assert.ok(Date.now() - start > 700);
      assert.equal(connection.received.length, bytes);
      const silent = await RawConnection.open(server.port);
      assert.ok(await silent.closes(15_000), 'one who never sends');
    });
  });

  test('--write-timeout cuts one who does not read', async () => {
    await withServer(['--write-timeout', 1, '--script-tokens', 6000], async (server) => {
      const reader = net.connect(server.port, '127.0.0.1');
      reader.on('error', () => {});
      reader.pause();
      // 6000 events of 2 kB: more than what the system keeps for the two.
      const body = streamed({ max_tokens: 6000, logprobs: true, top_logprobs: 20, quire: { guard: 'off', detect_loops: false } });
      reader.write(rawRequest('POST', '/v1/chat/completions', body));
      await until('open', async () => (await server.metric('quire_connections')) >= 2);
      await until('cut', async () => (await server.metric('quire_connections')) <= 1, 60_000);
      await until('free', () => isFree(server), 3000);
      assert.equal((await server.chat(chatRequest(makePng(), { max_tokens: 5 }))).status, 200);
      reader.destroy();
    });
  });
});

describe('clients that leave', () => {
  const requests = {
    'chat, whole': ['/v1/chat/completions', chatRequest()],
    'chat, streamed': ['/v1/chat/completions', streamed()],
    'responses, streamed': ['/v1/responses', { ...responseRequest(), stream: true }],
    OCR: ['/v1/ocr', ocrRequest()],
  };
  for (const [name, [path, body]] of Object.entries(requests)) {
    test(`${name}: its place is free within two steps`, async () => {
      await withServer(['--step-ms', 100, '--script-tokens', 500], async (server) => {
        const connection = await RawConnection.open(server.port);
        connection.send(rawRequest('POST', path, body));
        await until('running', async () => (await server.metric('quire_requests_running')) === 1);
        await sleep(300);
        connection.abort();
        const start = Date.now();
        await until('free', () => isFree(server), 5000);
        assert.ok(Date.now() - start < 1000, `${Date.now() - start} ms`);
      });
    });
  }

  test('those who wait in the queue leave it', async () => {
    await withServer([...slow, '--max-sequences', 1, '--max-queue', 10], async (server) => {
      const first = server.chat(chatRequest());
      await until('running', async () => (await server.metric('quire_requests_running')) === 1);
      const others = await Promise.all(Array.from({ length: 7 }, () => RawConnection.open(server.port)));  // three get workers
      for (const other of others) other.send(rawRequest('POST', '/v1/chat/completions', chatRequest()));
      await until('waiting', async () => (await server.metric('quire_requests_waiting')) >= 2);
      for (const other of others) other.abort();
      await until('gone', async () => {
        const { text } = await server.get('/metrics');
        return metricOf(text, 'quire_requests_waiting') === 0 && metricOf(text, 'quire_requests_running') === 1;
      }, 2000);
      assert.equal((await first).status, 200);
    });
  });

  test('one who leaves takes no other down', async () => {
    await withServer(['--step-ms', 10, '--script-tokens', 100], async (server) => {
      const ask = (script) => server.chat(chatRequest(makePng({ red: redOfScript(script) })));
      const alone = [];
      for (let script = 0; script < 4; script++) alone.push((await ask(script)).json.choices[0].message.content);
      const leaving = [];
      for (let n = 0; n < 8; n++) {
        const connection = await RawConnection.open(server.port);
        connection.send(rawRequest('POST', '/v1/chat/completions', n % 2 ? streamed() : chatRequest()));
        leaving.push(sleep(100 * n).then(() => connection.abort()));
      }
      const answers = await Promise.all([0, 1, 2, 3].map(ask));
      assert.deepEqual(answers.map((answer) => answer.json.choices[0].message.content), alone);
      await Promise.all(leaving);
      await until('free', () => isFree(server), 5000);
    });
  });

  test('one that has sent a lot behind its request', async () => {
    await withServer(['--step-ms', 100, '--script-tokens', 500], async (server) => {
      for (const body of [chatRequest(), streamed()]) {
        const connection = await RawConnection.open(server.port);
        connection.send(rawRequest('POST', '/v1/chat/completions', body));
        await until('running', async () => (await server.metric('quire_requests_running')) === 1);
        await sleep(300);
        connection.send('x'.repeat(1_000_000));
        await sleep(300);
        connection.socket.destroy();
        await until('free', () => isFree(server), 2000);
        if (!body.stream) assertError(parseAnswer(connection.received), 400, { code: 'bad_input' });
      }
    });
  });

  test('one in the middle of sending', async () => {
    await withServer([], async (server) => {
      const bytes = rawRequest('POST', '/v1/chat/completions', chatRequest());
      for (const share of [0.01, 0.1, 0.5, 0.99]) {
        const connection = await RawConnection.open(server.port);
        connection.send(bytes.subarray(0, Math.floor(bytes.length * share)));
        await sleep(20);
        connection.abort();
      }
      assert.equal((await server.chat(chatRequest())).status, 200);
      await until('closed', async () => (await server.metric('quire_connections')) <= 1);
    });
  });
});

test('the access log has no text, no picture, no key', async (t) => {
  const file = join(scratchFolder(t), 'access.log');
  const picture = makePng({ red: redOfScript(5) });
  await withServer(['--access-log', file, '--api-key', 'secret-key'], async (server) => {
    const headers = { authorization: 'Bearer secret-key', 'x-request-id': 'job-7' };
    const body = chatRequest(picture);
    body.messages[0].content.unshift({ type: 'text', text: 'Read the secret-page. ' });
    const answer = await server.chat(body, { headers });
    assert.equal(answer.status, 200, answer.text);
    await server.chat(body, { headers: { authorization: 'Bearer secret-guess' } });
    await server.get('/v1/models?key=secret-query', { headers });
    const log = await until('a line for each', () => {
      const text = readFileSync(file, 'utf8');
      return text.trimEnd().split('\n').length >= 3 && text;
    });
    assert.match(log, /\/v1\/chat\/completions/);
    assert.match(log, /\b200\b/);
    assert.match(log, /\b401\b/);
    assert.match(log, /job-7/);
    assert.ok(!log.includes('secret'), log);
    assert.ok(!log.includes(dataUri(picture).slice(30, 60)));
    assert.ok(!log.includes(answer.json.choices[0].message.content.slice(0, 12)));
  });
});
