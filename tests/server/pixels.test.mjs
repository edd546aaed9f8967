// Decoded pictures of all requests together stay within --max-pixels-in-work.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Server, assertError, chatRequest, makePng, makeTiff, ocrRequest, redOfScript, until } from './harness.mjs';

const pageMs = 3000;

describe('pictures of 4096 pixels, room for one', () => {
  let server;
  before(async () => {
    server = await Server.start(['--max-pixels-in-work', 5000, '--step-ms', 15, '--script-tokens', pageMs / 15]);
  });
  after(() => server.stop());
  const running = () => server.metric('quire_requests_running');
  // Until its page is read the pixels stay in memory: figures are to be cut from them.
  const hold = () => server.post('/v1/ocr', ocrRequest(makePng(), { include_image_base64: true }));

  test('the next one waits, but not longer than its time, and not when its client leaves', async () => {
    const started = Date.now();
    const holder = hold();
    await until('the first one runs', async () => (await server.metric('quire_sequences_running')) === 1);
    const waiting = server.chat(chatRequest(makePng({ red: redOfScript(0) })));
    const leaver = new AbortController();
    const left = server.chat(chatRequest(), { signal: leaver.signal });
    await until('three requests run', async () => (await running()) === 3);
    const error = assertError(await server.chat(chatRequest(makePng(), { quire: { timeout_s: 0.2 } })), 504, { code: 'deadline' });
    assert.equal(error.param, null);
    leaver.abort();
    await assert.rejects(left);
    await until('it has left', async () => (await running()) === 2, 1000);
    assert.equal(await server.metric('quire_sequences_running'), 1);
    assert.ok(Date.now() - started < pageMs, 'all this while the first page is read');
    assert.equal((await waiting).status, 200);
    assert.ok(Date.now() - started >= pageMs, 'its turn came behind the first page');
    assert.equal((await holder).status, 200);
  });

  test('pixels go as soon as the model has its views: pages are read at once', async () => {
    const answers = Array.from({ length: 6 }, () => server.chat(chatRequest()));
    await until('all are read at once', async () => (await server.metric('quire_sequences_running')) === 6, pageMs);
    for (const answer of await Promise.all(answers)) assert.equal(answer.status, 200);
  });

  test('one that is larger than all goes alone, page after page', async () => {
    assert.equal((await server.chat(chatRequest(makePng({ width: 100, red: redOfScript(0) })))).status, 200);
    const tiff = makeTiff([redOfScript(0), redOfScript(1), redOfScript(2)], 100);
    const answer = await server.post('/v1/ocr', ocrRequest(tiff, { include_image_base64: true }));
    assert.deepEqual(answer.json.pages.map((page) => page.status), ['ok', 'ok', 'ok']);
  });
});
