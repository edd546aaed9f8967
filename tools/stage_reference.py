#!/usr/bin/env python3
"""Every stage of DeepSeek-OCR-2 from transformers on a GPU, in float32 and in bf16, both fed with the same input.

  quire-make-checkpoint FOLDER
  stage_reference.py FOLDER OUT
  quire-stage-parity --model FOLDER --reference OUT --device cuda

Needs what full_reference.py needs. Writes OUT/pageN.safetensors for 8 pages of seeded pixels, 4 of them with tiles (about
0.9 GB in all), and OUT/reference.json. A stage's input is the float32 run's result of the stage before, rounded to bf16;
NAME.f32 and NAME.bf16 are what the two runs make of it. "first_logits" alone is of two whole runs.
"""
import argparse
import copy
import json
import math
import os
import time

import numpy as np
import torch
import transformers
from full_reference import BEGIN, PROMPTS, load
from safetensors.torch import save_file

GRIDS = [(1, 2), (1, 3), (2, 2), (2, 3)] + [(1, 1)] * 4  # columns, rows of tiles; 1 x 1: none
BLOCKS = [1, 4, 16, 64]  # pixels of one colour, to a side
HEAD_STEP = 64  # every so many rows go through the head


def picture(seed, views, side):
    """[views, side, side, 3] uint8: squares of random colours."""
    block = BLOCKS[seed % len(BLOCKS)]
    colours = np.random.default_rng([seed, side]).integers(0, 256, (views, side // block, side // block, 3), np.uint8)
    return colours.repeat(block, 1).repeat(block, 2)


def rounded(x):
    return x.to(torch.bfloat16).float()


def pixels(views):
    x = torch.from_numpy(views).float().cuda()
    return ((x / 255 - 0.5) / 0.5).permute(0, 3, 1, 2)


def tokens(maps):
    """[views, width, side, side] as [views, side * side, width]"""
    return maps.flatten(2).transpose(1, 2)


def sam(model, x):
    return tokens(model.model.vision_tower.sam_encoder(x.to(model.dtype)).last_hidden_state)


def encoder(model, x, features):
    """The whole tower, with these features in place of SAM's."""
    def replace(_module, _args, output):
        views, count, width = features.shape
        side = math.isqrt(count)
        output.last_hidden_state = features.transpose(1, 2).reshape(views, width, side, side).to(model.dtype)
        return output

    tower = model.model.vision_tower
    hook = tower.sam_encoder.register_forward_hook(replace)
    try:
        return tower(x.to(model.dtype), return_dict=True).last_hidden_state
    finally:
        hook.remove()


def image_embeddings(model, whole, tiles):
    args = dict(pixel_values=whole.to(model.dtype))
    if tiles is not None:
        args.update(pixel_values_local=tiles.to(model.dtype), num_local_patches=[len(tiles)])
    result = model.model.get_image_features(**args, return_dict=True).pooler_output
    return result[0] if isinstance(result, (list, tuple)) or result.ndim == 3 else result


def prompt_embeddings(model, before, after, image):
    embed = model.get_input_embeddings()
    parts = [embed(torch.tensor(before).cuda()), image.to(model.dtype), embed(torch.tensor(after).cuda())]
    return torch.cat(parts)[None]


def first_logits(model, x):
    return model(inputs_embeds=x, use_cache=False, logits_to_keep=1).logits[0, -1]


def layer_arguments(model, x):
    """What the model gives each decoder layer beside the residual: mask, positions, their angles."""
    found = {}
    hook = model.model.language_model.layers[0].register_forward_pre_hook(
        lambda _module, _args, kwargs: found.update(kwargs), with_kwargs=True)
    try:
        first_logits(model, x)
    finally:
        hook.remove()
    found.pop("hidden_states", None)
    return found


def attention(layer, x, arguments):
    return x + layer.self_attn(hidden_states=layer.input_layernorm(x), **arguments)[0]


def mlp(layer, x, chosen):
    """Where there are experts, the ids of those chosen [rows, top_k] are added to `chosen`."""
    hook = None
    if hasattr(layer.mlp, "experts"):
        hook = layer.mlp.experts.register_forward_pre_hook(
            lambda _module, args, kwargs: chosen.append([*args, *kwargs.values()][1].int()), with_kwargs=True)
    try:
        return x + layer.mlp(layer.post_attention_layernorm(x))
    finally:
        if hook:
            hook.remove()


class Page:
    """Stages of one page by both models."""

    def __init__(self, f32, bf16):
        self.models = dict(f32=f32, bf16=bf16)
        self.tensors = {}

    def stage(self, name, body):
        """Runs body(model) with both; the float32 result, rounded, is the next stage's input."""
        results = {dtype: body(model) for dtype, model in self.models.items()}
        for dtype, result in results.items():
            self.keep(f"{name}.{dtype}", result)
        return rounded(results["f32"])

    def keep(self, name, tensor):
        self.tensors[name] = tensor.contiguous().cpu()

    def vision(self, kind, views):
        self.keep(f"pixels_{kind}", torch.from_numpy(views))
        exact = pixels(views)
        x = rounded(exact)
        features = self.stage(f"sam_{kind}", lambda m: sam(m, x))
        read = self.stage(f"encoder_{kind}", lambda m: encoder(m, x, features))
        self.stage(f"projector_{kind}", lambda m: m.model.multi_modal_projector(read.to(m.dtype)).flatten(0, 1))
        return exact

    def decoder(self, x):
        arguments = {m.dtype: layer_arguments(m, x.to(m.dtype)) for m in self.models.values()}
        for i, _ in enumerate(self.models["f32"].model.language_model.layers):
            def layer(model):
                return model.model.language_model.layers[i]

            x = self.stage(f"layer{i}.attention", lambda m: attention(layer(m), x.to(m.dtype), arguments[m.dtype]))
            chosen = {m.dtype: [] for m in self.models.values()}
            x = self.stage(f"layer{i}.mlp", lambda m: mlp(layer(m), x.to(m.dtype), chosen[m.dtype]))
            for name, m in self.models.items():
                for ids in chosen[m.dtype]:
                    self.keep(f"layer{i}.mlp.experts.{name}", ids)
        rows = torch.arange(x.shape[1] - 1, -1, -HEAD_STEP).flip(0)
        self.keep("head_rows", rows.int())
        self.stage("head", lambda m: m.lm_head(m.model.language_model.norm(x[0, rows.cuda()].to(m.dtype))))


@torch.no_grad()
def make_page(f32, bf16, number):
    columns, rows = GRIDS[number]
    page = Page(f32, bf16)
    page.keep("grid", torch.tensor([columns, rows], dtype=torch.int32))
    tiles = page.vision("tiles", picture(number, columns * rows, 768)) if columns * rows > 1 else None
    whole = page.vision("global", picture(number, 1, 1024))

    vocab = f32.get_input_embeddings().weight.shape[0]
    before, after = [BEGIN], [i % vocab for i in PROMPTS["free"]]
    page.keep("ids_before", torch.tensor(before, dtype=torch.int32))
    page.keep("ids_after", torch.tensor(after, dtype=torch.int32))
    x = {dtype: prompt_embeddings(m, before, after, image_embeddings(m, whole, tiles))
         for dtype, m in page.models.items()}
    for dtype, model in page.models.items():
        page.keep(f"first_logits.{dtype}", first_logits(model, x[dtype])[None])
    page.keep("embeddings.f32", x["f32"][0])
    page.decoder(rounded(x["f32"]))
    return {name: tensor[0] if tensor.ndim == 3 and name.startswith("layer") else tensor
            for name, tensor in page.tensors.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("out")
    parser.add_argument("--pages", type=int, default=len(GRIDS))
    a = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    start = time.time()
    bf16 = load(a.folder, torch.bfloat16)
    f32 = copy.deepcopy(bf16).float()  # exact: the checkpoint is bf16
    print(f"loaded in {time.time() - start:.1f} s", flush=True)
    os.makedirs(a.out, exist_ok=True)
    for number in range(a.pages):
        start = time.time()
        tensors = make_page(f32, bf16, number)
        save_file(tensors, f"{a.out}/page{number}.safetensors")
        print(f"page {number}: {len(tensors['embeddings.f32'])} tokens, {time.time() - start:.1f} s", flush=True)
    json.dump(dict(pages=a.pages, grids=GRIDS[:a.pages], transformers=transformers.__version__, torch=torch.__version__,
                   device=torch.cuda.get_device_name()), open(f"{a.out}/reference.json", "w"), indent=1)


if __name__ == "__main__":
    main()
