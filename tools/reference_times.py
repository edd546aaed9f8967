#!/usr/bin/env python3
"""How fast transformers runs a DeepSeek-OCR-2 checkpoint in bf16 on a GPU: what quire-device-bench measures, as one
would run it there (eager, a static cache).

  reference_times.py FOLDER [--json FILE] [--parts vision,global,prefill,decode-1,decode-16,decode-64] [--limit-s 30]

Needs what full_reference.py needs. A part that fails is reported, and the others run.
"""
import argparse
import json
import statistics
import time

import torch
import transformers
from full_reference import load

PROMPT, CONTEXT, STEPS, TILES = 1133, 1200, 16, 6


def timed(body, limit_s, rounds=3):
    """Median seconds of a few rounds after one that is not counted, as many as the limit leaves room for."""
    start, times = time.time(), []
    for i in range(rounds + 1):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        body()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
        if time.time() - start > limit_s:
            break
    return statistics.median(times[1:] or times)


def embeddings(model, batch, tokens):
    ids = torch.randint(model.get_input_embeddings().weight.shape[0], (batch, tokens)).cuda()
    return model.get_input_embeddings()(ids)


def vision(model, pages, tiles, limit_s):
    args = dict(pixel_values=(torch.rand(pages, 3, 1024, 1024) * 2 - 1).cuda().to(model.dtype))
    if tiles:
        args.update(pixel_values_local=(torch.rand(pages * tiles, 3, 768, 768) * 2 - 1).cuda().to(model.dtype),
                    num_local_patches=[tiles] * pages)
    s = timed(lambda: model.model.get_image_features(**args, return_dict=True), limit_s)
    name = f"1 + {tiles} views" if tiles else "global"
    return dict(name=f"vision, {name}, {pages} pages", unit="pages/s", rate=pages / s, ms=1000 * s)


def prefill(model, batch, limit_s):
    x = embeddings(model, batch, PROMPT)
    s = timed(lambda: model(inputs_embeds=x, use_cache=True, logits_to_keep=1), limit_s)
    return dict(name=f"prefill, {batch} x {PROMPT} tokens", unit="tokens/s", rate=batch * PROMPT / s, ms=1000 * s)


def caches(model):
    text = model.config.get_text_config()
    yield "static", lambda: transformers.StaticCache(config=text, max_cache_len=CONTEXT)
    yield "dynamic", lambda: transformers.DynamicCache(config=text)


def decode(model, batch, limit_s):
    prompt = CONTEXT - 4 * STEPS  # a round that is not counted, then three
    x = embeddings(model, batch, prompt)
    ids = torch.randint(model.get_input_embeddings().weight.shape[0], (CONTEXT, batch, 1)).cuda()
    positions = torch.arange(CONTEXT)[:, None, None].expand(CONTEXT, batch, 1).cuda()
    failed = []
    for kind, make in caches(model):
        try:
            cache, at = make(), [prompt]
            model(inputs_embeds=x, past_key_values=cache, use_cache=True, logits_to_keep=1)

            def steps():
                for position in range(at[0], at[0] + STEPS):
                    out = model(input_ids=ids[position], past_key_values=cache, use_cache=True,
                                position_ids=positions[position])
                    out.logits[:, -1].argmax(-1)
                at[0] += STEPS

            s = timed(steps, limit_s) / STEPS
            return dict(name=f"decode, batch {batch}", unit="tokens/s", rate=batch / s, ms=1000 * s, cache=kind,
                        other_caches=failed)
        except Exception as error:  # of this kind of cache
            failed.append(f"{kind}: {error!r}"[:300])
    raise RuntimeError("; ".join(failed))


PARTS = {
    "vision": lambda model, limit_s: vision(model, 8, TILES, limit_s),
    "global": lambda model, limit_s: vision(model, 8, 0, limit_s),
    "prefill": lambda model, limit_s: prefill(model, 16, limit_s),
    "decode-1": lambda model, limit_s: decode(model, 1, limit_s),
    "decode-16": lambda model, limit_s: decode(model, 16, limit_s),
    "decode-64": lambda model, limit_s: decode(model, 64, limit_s),
}


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--json")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--limit-s", type=float, default=30, help="of a part's rounds")
    a = parser.parse_args()
    torch.manual_seed(1)
    report = dict(transformers=transformers.__version__, torch=torch.__version__, device=torch.cuda.get_device_name(),
                  measurements=[])
    model = load(a.folder, torch.bfloat16)
    for part in a.parts.split(","):
        try:
            result = PARTS[part](model, a.limit_s)
            print("{name:30} {ms:10.3f} ms {rate:12.1f} {unit}".format(**result), flush=True)
        except Exception as error:
            result = dict(name=part, error=repr(error)[:500])
            print(f"{part}: {result['error']}", flush=True)
        torch.cuda.empty_cache()
        report["measurements"].append(result)
        if a.json:
            json.dump(report, open(a.json, "w"), indent=1)


if __name__ == "__main__":
    main()
