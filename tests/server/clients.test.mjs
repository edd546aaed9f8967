// The official `openai` client against the server.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import OpenAI, {
  APIError, APIUserAbortError, AuthenticationError, BadRequestError, InternalServerError, NotFoundError, RateLimitError,
} from 'openai';
import {
  Server, assertError, chatRequest, completionRequest, dataUri, makePng, makeTiff, multipart, ocrRequest, redOfScript, responseRequest, sourceDir, until,
} from './harness.mjs';

const clientOf = (server, options = {}) => new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0, ...options });
const pictureOf = (script, width = 64) => makePng({ width, red: redOfScript(script) });

async function all(stream) {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
}

describe('chat', () => {
  let server, client, model;
  before(async () => {
    server = await Server.start();
    client = clientOf(server);
    model = await server.model();
  });
  after(() => server.stop());

  test('whole', async () => {
    const answer = await client.chat.completions.create({ model, ...chatRequest() });
    assert.match(answer.id, /^chatcmpl-/);
    assert.equal(answer.object, 'chat.completion');
    assert.equal(answer.model, model);
    assert.ok(Math.abs(answer.created - Date.now() / 1000) < 60);
    assert.equal(answer.choices.length, 1);
    const [choice] = answer.choices;
    assert.equal(choice.message.role, 'assistant');
    assert.notEqual(choice.message.content, '');
    assert.equal(choice.message.refusal, null);
    assert.equal(choice.logprobs, null);
    assert.equal(choice.finish_reason, 'stop');
    const { usage } = answer;
    assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
    assert.equal(usage.prompt_tokens_details.image_tokens, 257);  // mode base: 16 x 16 and a separator
    assert.ok(usage.prompt_tokens > 257);
    assert.equal(answer.quire.mode, 'base');
    assert.deepEqual(answer.quire.grid, { columns: 1, rows: 1 });
    assert.equal(answer.quire.image_tokens, 257);
  });

  test('streamed gives the text of whole, in pieces', async () => {
    const whole = await client.chat.completions.create({ model, ...chatRequest() });
    const chunks = await all(await client.chat.completions.create({ model, ...chatRequest(), stream: true }));
    assert.ok(chunks.length > 4, `${chunks.length} chunks`);
    assert.equal(new Set(chunks.map((chunk) => chunk.id)).size, 1);
    for (const chunk of chunks) {
      assert.equal(chunk.object, 'chat.completion.chunk');
      assert.equal(chunk.model, model);
      assert.equal(chunk.choices.length, 1);
    }
    assert.deepEqual(chunks[0].choices[0].delta, { role: 'assistant', content: '' });
    assert.equal(chunks.map((chunk) => chunk.choices[0].delta.content ?? '').join(''), whole.choices[0].message.content);
    const last = chunks.at(-1);
    assert.deepEqual(last.choices[0].delta, {});
    assert.equal(last.choices[0].finish_reason, 'stop');
    assert.equal(last.quire.status, whole.quire.status);
    assert.ok(chunks.slice(0, -1).every((chunk) => chunk.choices[0].finish_reason === null && chunk.quire === undefined));
  });

  test('the stream ends with usage when asked, and with [DONE]', async () => {
    const whole = await client.chat.completions.create({ model, ...chatRequest() });
    const body = { ...chatRequest(), stream: true, stream_options: { include_usage: true } };
    const chunks = await all(await client.chat.completions.create({ model, ...body }));
    assert.deepEqual(chunks.at(-1).choices, []);
    assert.equal(chunks.at(-1).usage.completion_tokens, whole.usage.completion_tokens);
    assert.equal(chunks.at(-1).usage.prompt_tokens, whole.usage.prompt_tokens);
    const raw = await server.chat(body);
    assert.match(raw.headers['content-type'], /^text\/event-stream/);
    assert.equal(raw.events.at(-1), '[DONE]');
  });

  test('the helper of the client assembles the stream', async () => {
    const runner = client.chat.completions.stream({ model, ...chatRequest(pictureOf(3)) });
    const final = await runner.finalChatCompletion();
    const whole = await client.chat.completions.create({ model, ...chatRequest(pictureOf(3)) });
    assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
  });

  test('the text is that of the picture, in every form of it', async () => {
    const ask = async (picture) => {
      const body = chatRequest();
      body.messages[0].content = [picture];
      return (await client.chat.completions.create({ model, ...body })).choices[0].message.content;
    };
    const texts = [];
    for (let script = 0; script < 4; script++) {
      const picture = pictureOf(script);
      const text = await ask({ type: 'image_url', image_url: { url: dataUri(picture) } });
      texts.push(text);
      assert.equal(await ask({ type: 'image_url', image_url: { url: picture.toString('base64') } }), text, 'bare base64');
      assert.equal(await ask({ type: 'image_url', image_url: { url: dataUri(picture, 'image/webp') } }), text, 'another type');
      assert.equal(await ask({ type: 'image_url', image_url: { url: dataUri(picture), detail: 'high' } }), text, 'detail');
      assert.equal(await ask({ type: 'image_url', image_url: dataUri(picture) }), text, 'image_url as a string');
      assert.equal(await ask({ type: 'image_url', image_url: { url: dataUri(makeTiff([redOfScript(script)]), 'image/tiff') } }), text, 'TIFF');
    }
    assert.equal(new Set(texts).size, 4, 'four scripts, four texts');
  });

  test('a mark in the text keeps its place, none goes in front', async () => {
    const ask = async (text) => {
      const body = chatRequest();
      body.messages[0].content.unshift({ type: 'text', text });
      return (await client.chat.completions.create({ model, ...body })).usage.prompt_tokens;
    };
    assert.ok(await ask('<image>\nFree OCR. ') > 257);
    assert.equal(await ask('<image>\nFree OCR. '), await ask('Free OCR. '));
  });

  test('logprobs', async () => {
    const answer = await client.chat.completions.create({ model, ...chatRequest(), logprobs: true, top_logprobs: 3 });
    const [choice] = answer.choices;
    const tokens = choice.logprobs.content;
    assert.equal(tokens.length, answer.usage.completion_tokens);
    assert.equal(Buffer.concat(tokens.map((token) => Buffer.from(token.bytes))).toString('utf8'), choice.message.content);
    for (const token of tokens) {
      assert.ok(token.logprob <= 0);
      assert.equal(token.top_logprobs.length, 3);
      assert.equal(token.top_logprobs[0].token, token.token, 'greedy: the likeliest');
      assert.ok(token.top_logprobs[0].logprob >= token.top_logprobs[1].logprob);
    }
    const chunks = await all(await client.chat.completions.create({ model, ...chatRequest(), logprobs: true, top_logprobs: 3, stream: true }));
    assert.deepEqual(chunks.flatMap((chunk) => chunk.choices[0].logprobs?.content ?? []), tokens);
    const none = await client.chat.completions.create({ model, ...chatRequest(), logprobs: true });
    assert.deepEqual(none.choices[0].logprobs.content[0].top_logprobs, []);
  });

  test('max_tokens, max_completion_tokens and stop end the text', async () => {
    const whole = await client.chat.completions.create({ model, ...chatRequest() });
    const text = whole.choices[0].message.content;
    for (const field of ['max_tokens', 'max_completion_tokens']) {
      const cut = await client.chat.completions.create({ model, ...chatRequest(), [field]: 3 });
      assert.equal(cut.choices[0].finish_reason, 'length');
      assert.equal(cut.usage.completion_tokens, 3);
      assert.equal(cut.quire.status, 'length');
      assert.ok(text.startsWith(cut.choices[0].message.content));
    }
    const stop = text.slice(10, 14);
    const stopped = await client.chat.completions.create({ model, ...chatRequest(), stop });
    assert.equal(stopped.choices[0].message.content, text.slice(0, text.indexOf(stop)));
    assert.equal(stopped.choices[0].finish_reason, 'stop');
    const chunks = await all(await client.chat.completions.create({ model, ...chatRequest(), stop: ['never there', stop], stream: true }));
    assert.equal(chunks.map((chunk) => chunk.choices[0].delta.content ?? '').join(''), text.slice(0, text.indexOf(stop)));
  });

  test('a page in strips: limit, stop and usage are of the answer, alone and in company', async () => {
    const body = { model, ...chatRequest(readFileSync(join(sourceDir, 'samples', 'a4-11pt.png')), { quire: { mode: 'strips' } }), logprobs: true };
    const idsOf = (answer) => answer.choices[0].logprobs.content.map((token) => token.bytes.join());
    const whole = await client.chat.completions.create(body);
    const strips = whole.usage.prompt_tokens_details.image_tokens / 257;
    const each = whole.usage.completion_tokens / strips;
    assert.ok(strips >= 4 && Number.isInteger(each));
    const check = (cut, limit) => {
      assert.equal(cut.usage.completion_tokens, limit);
      assert.equal(cut.choices[0].finish_reason, 'length');
      assert.deepEqual(idsOf(cut), idsOf(whole).slice(0, limit));
      assert.ok(whole.choices[0].message.content.startsWith(cut.choices[0].message.content));
      assert.equal(cut.usage.prompt_tokens_details.image_tokens, 257 * Math.ceil(limit / each));
      assert.equal(cut.usage.prompt_tokens, (whole.usage.prompt_tokens / strips) * Math.ceil(limit / each));
    };
    const limits = [1, each - 1, each, each + 1, Math.floor(2.5 * each), strips * each - 1];
    for (const limit of limits) check(await client.chat.completions.create({ ...body, max_tokens: limit }), limit);
    await Promise.all([...limits, ...limits].map(async (limit) => check(await client.chat.completions.create({ ...body, max_tokens: limit }), limit)));

    const stop = whole.choices[0].message.content.slice(10, 14);
    const stopped = await client.chat.completions.create({ ...body, stop });
    assert.equal(stopped.choices[0].finish_reason, 'stop');
    assert.equal(stopped.usage.prompt_tokens_details.image_tokens, 257);
  });

  test('logprobs end where a stop string ends the text', async () => {
    const whole = await client.chat.completions.create({ model, ...chatRequest(), logprobs: true });
    const text = whole.choices[0].message.content;
    const stop = text.slice(10, 24);
    const kept = text.slice(0, text.indexOf(stop));
    for (const stream of [false, true]) {
      const answer = await client.chat.completions.create({ model, ...chatRequest(), logprobs: true, stop, stream });
      const choices = stream ? (await all(answer)).map((chunk) => chunk.choices[0]) : answer.choices;
      const tokens = choices.flatMap((choice) => choice.logprobs?.content ?? []);
      assert.deepEqual(tokens, whole.choices[0].logprobs.content.slice(0, tokens.length));
      const bytes = (list) => Buffer.concat(list.map((token) => Buffer.from(token.bytes)));
      assert.ok(bytes(tokens).toString().startsWith(kept));
      assert.ok(bytes(tokens.slice(0, -1)).length < Buffer.byteLength(kept), 'the last one has text before the stop string');
    }
    const older = await client.completions.create({ model, ...completionRequest(), logprobs: 0, stop });
    const { tokens, text_offset } = older.choices[0].logprobs;
    assert.equal(tokens.length, text_offset.length);
    assert.ok(text_offset.at(-1) < kept.length);
  });

  test('a seed gives the same text twice', async () => {
    const ask = async (seed) =>
      (await client.chat.completions.create({ model, ...chatRequest(), temperature: 2, seed })).choices[0].message.content;
    const first = await ask(1);
    assert.equal(await ask(1), first);
    assert.notEqual(await ask(2), first);
  });

  test('abort in the middle of a stream', async () => {
    const slow = await Server.start(['--step-ms', 30, '--script-tokens', 400, '--max-sequences', 2]);
    try {
      const name = await slow.model();
      const stream = await clientOf(slow).chat.completions.create({ model: name, ...chatRequest(), stream: true });
      let chunks = 0;
      for await (const chunk of stream) {
        assert.ok(chunk.choices);
        if (++chunks === 3) break;  // leaves, which aborts
      }
      const signal = new AbortController();
      const pending = clientOf(slow).chat.completions.create({ model: name, ...chatRequest() }, { signal: signal.signal });
      await until('running', async () => (await slow.metric('quire_requests_running')) > 0);
      signal.abort();
      await assert.rejects(pending, APIUserAbortError);
      await until('none running', async () => (await slow.metric('quire_requests_running')) === 0, 3000);
      assert.equal(await slow.metric('quire_kv_pages_used'), 0);
    } finally {
      await slow.stop();
    }
  });
});

describe('errors are typed', () => {
  let server;
  before(async () => {
    server = await Server.start(['--api-key', 'one', '--api-key', 'two', '--step-ms', 30, '--script-tokens', 60, '--max-sequences', 1, '--max-queue', 1]);
  });
  after(() => server.stop());
  const as = (apiKey) => clientOf(server, { apiKey });

  test('keys', async () => {
    await assert.rejects(as('three').models.list(), (error) => error instanceof AuthenticationError && error.code === 'invalid_api_key');
    for (const key of ['one', 'two']) assert.equal((await as(key).models.list()).data.length, 1);
  });

  test('bad request, with the field', async () => {
    const model = (await as('one').models.list()).data[0].id;
    await assert.rejects(as('one').chat.completions.create({ model, ...chatRequest(), temperature: 3 }), (error) => {
      assert.ok(error instanceof BadRequestError);
      assert.equal(error.param, 'temperature');
      assert.equal(error.code, 'usage');
      assert.equal(error.type, 'invalid_request_error');
      assert.ok(error.requestID, 'X-Request-Id');
      return true;
    });
    const broken = chatRequest(Buffer.from('no picture'));
    for (const stream of [false, true]) {
      await assert.rejects(as('one').chat.completions.create({ model, ...broken, stream }), (error) =>
        error instanceof BadRequestError && error.param === 'messages[0].content[0].image_url.url' && error.code === 'bad_input');
    }
  });

  test('no such model', async () => {
    await assert.rejects(as('one').chat.completions.create({ model: 'gpt-4o', ...chatRequest() }), (error) =>
      error instanceof NotFoundError && error.code === 'model_not_found');
    await assert.rejects(as('one').models.retrieve('gpt-4o'), (error) => error instanceof NotFoundError);
  });

  test('queue full', async () => {
    const client = as('one');
    const model = (await client.models.list()).data[0].id;
    const ask = () => client.chat.completions.create({ model, ...chatRequest() });
    const results = await Promise.allSettled(Array.from({ length: 6 }, ask));
    const refused = results.filter((result) => result.status === 'rejected').map((result) => result.reason);
    assert.ok(refused.length >= 2 && refused.length <= 5, `${refused.length} of 6 refused`);
    for (const error of refused) {
      assert.ok(error instanceof RateLimitError, String(error));
      assert.equal(error.code, 'busy');
      assert.ok(Number(error.headers.get('retry-after')) >= 1);
    }
    assert.equal((await ask()).choices[0].finish_reason, 'stop');
    // What a client does by itself: it comes again after Retry-After.
    const patient = clientOf(server, { apiKey: 'one', maxRetries: 20 });
    const answers = await Promise.all(Array.from({ length: 4 }, () => patient.chat.completions.create({ model, ...chatRequest() })));
    assert.equal(new Set(answers.map((answer) => answer.choices[0].message.content)).size, 1);
  });

  test('deadline', async () => {
    const client = as('one');
    const model = (await client.models.list()).data[0].id;
    await assert.rejects(client.chat.completions.create({ model, ...chatRequest(makePng(), { quire: { timeout_s: 0.3 } }) }), (error) =>
      error instanceof InternalServerError && error.status === 504 && error.code === 'deadline');
    await assert.rejects(async () => {
      await all(await client.chat.completions.create({ model, ...chatRequest(makePng(), { stream: true, quire: { timeout_s: 0.5 } }) }));
    }, (error) => error instanceof APIError && error.code === 'deadline');
  });
});

describe('other endpoints', () => {
  let server, client, model, text;
  before(async () => {
    server = await Server.start(['--served-model-name', 'reader', '--served-model-name', 'reader-2', '--max-images', 4]);
    client = clientOf(server);
    model = await server.model();
    text = (await client.chat.completions.create({ model, ...chatRequest() })).choices[0].message.content;
  });
  after(() => server.stop());

  test('models', async () => {
    const list = await client.models.list();
    assert.deepEqual(list.data.map((item) => item.id), ['reader', 'reader-2']);
    const one = await client.models.retrieve('reader-2');
    assert.equal(one.object, 'model');
    assert.ok(one.max_model_len >= 1024);
    assert.ok(one.quire.modes.includes('base'));
    assert.ok(one.quire.modes.includes(one.quire.default_mode));
    assert.ok(one.quire.tasks.includes(one.quire.default_task));
    const answer = await client.chat.completions.create({ model: 'reader-2', ...chatRequest() });
    assert.equal(answer.choices[0].message.content, text);
    assert.ok(['reader', 'reader-2'].includes(answer.model));
    const { model: unnamed } = (await server.chat(chatRequest())).json;
    assert.equal(unnamed, 'reader');
  });

  // text_offset counts characters of the text, whatever lies between the tokens.
  async function offsets(answer) {
    const choices = [].concat(await answer).flatMap((one) => one.choices);
    const characters = [...choices.map((choice) => choice.text).join('')];
    assert.ok(characters.some((character) => character > '\x7f'), 'not all of it is ASCII');
    let whole = 0;
    for (const { tokens, text_offset } of choices.flatMap((choice) => choice.logprobs ?? [])) {
      tokens.forEach((token, index) => {
        if (token.includes('\ufffd')) return;  // a part of a character
        assert.equal(characters.slice(text_offset[index], text_offset[index] + [...token].length).join(''), token);
        ++whole;
      });
    }
    assert.ok(whole > 100);
  }

  test('completions', async () => {
    const whole = await client.completions.create({ model, ...completionRequest() });
    assert.equal(whole.object, 'text_completion');
    assert.equal(whole.choices[0].text, text);
    assert.equal(whole.choices[0].finish_reason, 'stop');
    assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
    const chunks = await all(await client.completions.create({ model, ...completionRequest(), stream: true }));
    assert.equal(chunks.map((chunk) => chunk.choices[0]?.text ?? '').join(''), text);
    assert.equal(chunks.findLast((chunk) => chunk.choices.length > 0).choices[0].finish_reason, 'stop');
    const likely = await client.completions.create({ model, ...completionRequest(), logprobs: 2 });
    assert.equal(likely.choices[0].logprobs.tokens.length, whole.usage.completion_tokens);
    assert.equal(likely.choices[0].logprobs.token_logprobs.length, whole.usage.completion_tokens);
    await offsets(client.completions.create({ model, ...completionRequest(pictureOf(15)), logprobs: 0 }));
    const page = readFileSync(join(sourceDir, 'samples', 'a4-11pt.png'));
    const strips = { model, ...completionRequest(page, { quire: { mode: 'strips' } }), logprobs: 0 };
    await offsets(client.completions.create(strips));
    await offsets(all(await client.completions.create({ ...strips, stream: true })));
  });

  test('responses, whole', async () => {
    const answer = await client.responses.create({ model, ...responseRequest() });
    assert.match(answer.id, /^resp_/);
    assert.equal(answer.object, 'response');
    assert.equal(answer.status, 'completed');
    assert.equal(answer.output_text, text);
    assert.equal(answer.output.length, 1);
    assert.match(answer.output[0].id, /^msg_/);
    assert.equal(answer.output[0].status, 'completed');
    assert.deepEqual(answer.output[0].content[0].annotations, []);
    assert.equal(answer.usage.total_tokens, answer.usage.input_tokens + answer.usage.output_tokens);
    assert.equal(answer.quire.mode, 'base');

    const cut = await client.responses.create({ model, ...responseRequest(), max_output_tokens: 3 });
    assert.equal(cut.status, 'incomplete');
    assert.deepEqual(cut.incomplete_details, { reason: 'max_output_tokens' });
    assert.equal(cut.usage.output_tokens, 3);

    const likely = await client.responses.create({
      model, ...responseRequest(), top_logprobs: 2, include: ['message.output_text.logprobs'],
    });
    const [part] = likely.output[0].content;
    assert.equal(part.logprobs.length, likely.usage.output_tokens);
    assert.equal(part.logprobs[0].top_logprobs.length, 2);
    const own = { top_k: 5, seed: 3, priority: 1, skip_special_tokens: true };
    assert.equal((await client.responses.create({ model, ...responseRequest(), ...own })).output_text, text);
  });

  test('responses, streamed', async () => {
    const events = await all(await client.responses.create({ model, ...responseRequest(), stream: true }));
    const kinds = events.map((event) => event.type);
    assert.deepEqual(kinds.filter((kind, index) => kind !== kinds[index - 1]), [
      'response.created', 'response.in_progress', 'response.output_item.added', 'response.content_part.added',
      'response.output_text.delta', 'response.output_text.done', 'response.content_part.done', 'response.output_item.done', 'response.completed',
    ]);
    assert.deepEqual(events.map((event) => event.sequence_number), events.map((_, index) => index));
    assert.ok(kinds.filter((kind) => kind === 'response.output_text.delta').length > 2);
    assert.equal(events.filter((event) => event.type === 'response.output_text.delta').map((event) => event.delta).join(''), text);
    assert.equal(events.find((event) => event.type === 'response.output_text.done').text, text);
    assert.equal(events.at(-1).response.output[0].content[0].text, text);
    const raw = await server.post('/v1/responses', { ...responseRequest(), stream: true });
    assert.ok(!raw.text.includes('[DONE]'));
    assert.match(raw.text, /^event: response\.created\r?\ndata: /);

    const cut = await all(await client.responses.create({ model, ...responseRequest(), stream: true, max_output_tokens: 3 }));
    assert.equal(cut.at(-1).type, 'response.incomplete');
  });

  test('responses by the helper of the client', async () => {
    const deltas = [];
    const runner = client.responses.stream({ model, ...responseRequest() }).on('response.output_text.delta', (event) => deltas.push(event.delta));
    const final = await runner.finalResponse();
    assert.equal(final.output_text, text);
    assert.equal(deltas.join(''), text);
  });

  test('OCR, JSON and upload', async () => {
    const tiff = makeTiff([redOfScript(1), redOfScript(2), redOfScript(3)]);
    const whole = await server.post('/v1/ocr', ocrRequest(tiff, { id: 'job-7' }));
    assert.equal(whole.status, 200, whole.text);
    assert.equal(whole.json.id, 'job-7');
    assert.equal(whole.json.model, 'reader');
    assert.deepEqual(whole.json.pages.map((page) => page.index), [0, 1, 2]);
    assert.equal(new Set(whole.json.pages.map((page) => page.markdown)).size, 3);
    assert.deepEqual(whole.json.pages[0].dimensions, { dpi: null, height: 64, width: 64 });
    assert.equal(whole.json.usage_info.pages_processed, 3);
    assert.equal(whole.json.usage_info.doc_size_bytes, tiff.length);
    assert.equal(whole.json.document_annotation, null);

    for (const pages of ['0,2', [2, 0], '2,0-0']) {
      const some = await server.post('/v1/ocr', ocrRequest(tiff, { pages }));
      assert.equal(some.status, 200, some.text);
      assert.deepEqual(some.json.pages.map((page) => page.index).sort(), [0, 2]);
      assert.equal(some.json.pages.find((page) => page.index === 2).markdown, whole.json.pages[2].markdown);
    }
    const { body, headers } = multipart([['mode', 'base'], ['file', tiff, 'scan.tif'], ['pages', '1']]);
    const upload = await server.post('/v1/ocr', body, { headers });
    assert.equal(upload.status, 200, upload.text);
    assert.deepEqual(upload.json.pages.map((page) => page.markdown), [whole.json.pages[1].markdown]);
    const asJson = multipart([['file', makePng({ red: redOfScript(1) }), 'page.png'], ['quire', '{"mode": "base"}']]);
    const second = await server.post('/v1/ocr', asJson.body, { headers: asJson.headers });
    assert.equal(second.json.pages[0].markdown, whole.json.pages[0].markdown);
    const url = await server.post('/v1/ocr', ocrRequest(tiff, { document: { type: 'document_url', document_url: dataUri(tiff, 'image/tiff') } }));
    assert.equal(url.json.pages.length, 3, url.text);
  });

  test('OCR: a page that is broken has its entry, the others are read', async () => {
    const answer = await server.post('/v1/ocr', ocrRequest(makeTiff([redOfScript(1), null, redOfScript(3)])));
    assert.equal(answer.status, 200, answer.text);
    const { pages } = answer.json;
    assert.equal(pages.length, 3);
    assert.equal(pages[1].status, 'error');
    assert.match(pages[1].reason, /TIFF cannot be decoded/);
    assert.doesNotMatch(pages[1].reason, /4294967295/, 'row -1 of libtiff');
    assert.notEqual(pages[0].status, 'error');
    assert.notEqual(pages[2].status, 'error');
  });

  test('tokenize and back', async () => {
    const plain = (await server.post('/tokenize', { prompt: 'Free OCR. ', add_special_tokens: false })).json;
    const marked = (await server.post('/tokenize', { prompt: 'Free OCR. ', return_token_strs: true })).json;
    assert.equal(plain.count, plain.tokens.length);
    assert.deepEqual(marked.tokens.slice(1), plain.tokens, 'the begin token in front');
    assert.equal(marked.token_strs.length, marked.count);
    assert.ok(marked.max_model_len >= 1024);
    assert.equal((await server.post('/detokenize', { tokens: plain.tokens })).json.prompt, 'Free OCR. ');

    const most = 1 << 20;  // bytes, token ids
    assert.equal((await server.post('/tokenize', { prompt: 'a '.repeat(most / 2) })).status, 200);
    for (const [path, body, param] of [
      ['/tokenize', { prompt: 'a'.repeat(most + 1) }, 'prompt'],
      ['/detokenize', { tokens: Array(most + 1).fill(7) }, 'tokens'],
      ['/v1/completions', { ...completionRequest(), prompt: 'a'.repeat(most + 1) }, 'prompt'],
    ]) {
      const error = assertError(await server.post(path, body), 400, { param, code: 'usage' });
      assert.match(error.message, /at most 1048576 .*found 1048577/);
    }
  });
});

describe('the shipped model', () => {
  let server, client, model;
  const sample = (name) => readFileSync(join(sourceDir, 'samples', name));
  before(async () => {
    server = await Server.start([], { real: true });
    client = clientOf(server);
    model = await server.model();
  });
  after(() => server.stop());

  const ask = (name) => ({ model, messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: dataUri(sample(name)) } }] }] });

  test('reads a line, twice the same, whole and streamed', async () => {
    const answer = await client.chat.completions.create(ask('line.png'));
    assert.match(answer.choices[0].message.content, /fearsome beast,/);
    assert.equal(answer.quire.status, 'ok');
    const again = await client.chat.completions.create(ask('line.png'));
    assert.equal(again.choices[0].message.content, answer.choices[0].message.content);
    const chunks = await all(await client.chat.completions.create({ ...ask('line.png'), stream: true }));
    assert.equal(chunks.map((chunk) => chunk.choices[0].delta.content ?? '').join(''), answer.choices[0].message.content);
  });

  test('raw, markdown and JSON', async () => {
    const content = async (output) =>
      (await client.chat.completions.create({ ...ask('grounded.png'), quire: { output } })).choices[0].message.content;
    const [raw, markdown, json] = [await content('raw'), await content('markdown'), JSON.parse(await content('json'))];
    assert.match(raw, /<\|ref\|>title<\|\/ref\|><\|det\|>\[\[/);
    assert.match(markdown, /^# 30 Oct 2031/);
    assert.ok(!markdown.includes('<|ref|>'));
    assert.equal(json.schema_version, 1);
    assert.equal(json.text, raw);
    assert.equal(json.blocks[0].kind, 'title');
    const quiet = await client.chat.completions.create({ ...ask('grounded.png'), skip_special_tokens: true });
    assert.ok(!/<\|ref\|>|<td>/.test(quiet.choices[0].message.content));
  });

  test('OCR gives blocks, boxes and the pictures of the page', async () => {
    const body = { document: { type: 'image_url', image_url: { url: dataUri(sample('grounded.png')) } }, include_image_base64: true };
    const answer = await server.post('/v1/ocr', body);
    assert.equal(answer.status, 200, answer.text);
    const [page] = answer.json.pages;
    assert.match(page.markdown, /^# 30 Oct 2031/);
    assert.equal(page.images.length, 2);
    for (const image of page.images) {
      assert.ok(page.markdown.includes(`](${image.id})`), 'linked');
      assert.ok(image.top_left_x < image.bottom_right_x && image.bottom_right_x <= page.dimensions.width);
      assert.match(image.image_base64, /^data:image\/(png|jpeg);base64,/);
    }
    // What is dropped is not linked; the blocks have it.
    for (const [more, left] of [[{ image_limit: 0 }, 0], [{ image_limit: 1 }, 1], [{ image_min_size: 5000 }, 0], [{ image_limit: null }, 2]]) {
      const [some] = (await server.post('/v1/ocr', { ...body, include_image_base64: false, ...more })).json.pages;
      assert.equal(some.images.length, left, JSON.stringify(more));
      assert.deepEqual([...some.markdown.matchAll(/!\[\]\(([^)]*)\)/g)].map((match) => match[1]), some.images.map(({ id }) => id));
      assert.deepEqual(some.blocks, page.blocks);
      for (const image of some.images) assert.equal(image.image_base64, undefined);
    }
  });

  test('several pages at once give the texts of one at a time', async () => {
    const names = ['line.png', 'table.png', 'paragraph.png', 'large.png'];
    const alone = [];
    for (const name of names) alone.push((await client.chat.completions.create(ask(name))).choices[0].message.content);
    const together = await Promise.all([...names, ...names].map((name) => client.chat.completions.create(ask(name))));
    assert.deepEqual(together.map((answer) => answer.choices[0].message.content), [...alone, ...alone]);
  });

  test('tasks by name; one that the model lacks is refused', async () => {
    const answer = await client.chat.completions.create({ ...ask('line.png'), quire: { task: 'plain' } });
    assert.match(answer.choices[0].message.content, /fearsome beast,/);
    await assert.rejects(client.chat.completions.create({ ...ask('line.png'), quire: { task: 'locate', text: 'beast' } }),
      (error) => error instanceof BadRequestError && /document.*plain/s.test(error.message));
  });
});
