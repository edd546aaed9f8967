#!/usr/bin/env python3
"""Reference numbers of a full-size random DeepSeek-OCR-2 checkpoint from transformers, in float32 on a GPU.

  quire-make-checkpoint --arch ocr2 --size full --seed 1 FOLDER      (or make_checkpoint.py)
  full_reference.py FOLDER OUT samples/line.png samples/large.png

Needs transformers >= 5.17, torch, Pillow, safetensors. Writes OUT/NAME.safetensors and OUT/full.json: every 16th row of
each stage, the first logits (every 64th, and the best 16), and greedy ids with the gap between the two best logits.
tests/parity/full_size_test.cc compares with them.
"""
import argparse
import json
import os

import numpy as np
import torch
import transformers
from PIL import Image, ImageOps
from safetensors.torch import save_file
from transformers import DeepseekOcr2Config
from transformers import DeepseekOcr2ForConditionalGeneration as Model

# Ids of the published prompts (with the published tokenizer); the begin token and the image tokens come before them.
PROMPTS = dict(free=[201, 21431, 126041, 16], grounded=[201, 128820, 21842, 270, 4940, 304, 2121, 7919, 16])
BEGIN, IMAGE, STEP = 0, 128815, 16


def grid(width, height, tile=768):
    if width <= tile and height <= tile:
        return 1, 1
    best, least = (1, 1), float("inf")
    for w, h in sorted(((w, h) for w in range(1, 7) for h in range(1, 7) if 2 <= w * h <= 6), key=lambda g: g[0] * g[1]):
        d = abs(width / height - w / h)
        if d < least or (d == least and width * height > 0.5 * tile * tile * w * h):
            best, least = (w, h), d
    return best


def pixels(picture):
    x = torch.from_numpy(np.asarray(picture, np.uint8).copy()).float().cuda()
    return ((x / 255 - 0.5) / 0.5).permute(2, 0, 1)


def views(picture):
    columns, rows = grid(*picture.size)
    tiles = []
    if columns * rows > 1:
        large = picture.resize((768 * columns, 768 * rows))
        for i in range(columns * rows):
            x, y = i % columns * 768, i // columns * 768
            tiles.append(pixels(large.crop((x, y, x + 768, y + 768))))
    return pixels(ImageOps.pad(picture, (1024, 1024), color=(127, 127, 127))), tiles


def load(folder, dtype=torch.float32):
    c = json.load(open(f"{folder}/config.json"))
    s = c["vision_config"]["width"]["sam_vit_b"]
    lm = c["language_config"]
    config = DeepseekOcr2Config(
        image_token_id=IMAGE,
        vision_config=dict(
            sam_config=dict(hidden_size=768, output_channels=256, num_hidden_layers=12, num_attention_heads=12, mlp_dim=3072,
                            window_size=14, global_attn_indexes=s["global_attn_indexes"], downsample_channels=[512, 896],
                            image_size=1024, patch_size=16),
            encoder_config=dict(hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14,
                                num_key_value_heads=2, rms_norm_eps=1e-6,
                                rope_parameters=dict(rope_type="default", rope_theta=1e6))),
        text_config=dict(vocab_size=lm["vocab_size"], hidden_size=lm["hidden_size"], intermediate_size=lm["intermediate_size"],
                         num_hidden_layers=lm["num_hidden_layers"], num_attention_heads=lm["num_attention_heads"],
                         num_key_value_heads=lm["num_key_value_heads"], n_routed_experts=lm["n_routed_experts"],
                         n_shared_experts=lm["n_shared_experts"], num_experts_per_tok=lm["num_experts_per_tok"],
                         moe_intermediate_size=lm["moe_intermediate_size"], n_group=1, topk_group=1, topk_method="greedy",
                         bos_token_id=0, eos_token_id=1, pad_token_id=2, rms_norm_eps=1e-6,
                         rope_parameters=dict(rope_type="default", rope_theta=10000.0), max_position_embeddings=8192,
                         mlp_layer_types=["dense" if i < 1 else "sparse" for i in range(lm["num_hidden_layers"])]))
    model, info = Model.from_pretrained(folder, config=config, dtype=dtype, output_loading_info=True)
    print("loading:", {k: list(v)[:5] for k, v in info.items()})
    return model.cuda().eval()


@torch.no_grad()
def reference(model, picture, new_tokens):
    whole, tiles = views(picture)
    tower, tensors, record = model.model.vision_tower, {}, {}
    for name, batch in (("global", [whole]), ("local", tiles)):
        if not batch:
            continue
        x = torch.stack(batch)
        sam = tower.sam_encoder(x).last_hidden_state.flatten(2).transpose(1, 2)
        tensors[f"sam_{name}"] = sam.flatten(0, 1)[::STEP]
        tensors[f"encoder_{name}"] = tower(x, return_dict=True).last_hidden_state.flatten(0, 1)[::STEP]
    args = dict(pixel_values=whole[None])
    if tiles:
        args.update(pixel_values_local=torch.stack(tiles), num_local_patches=[len(tiles)])
    image = model.model.get_image_features(**args, return_dict=True).pooler_output[0]
    tensors["image_embeddings"] = image[::STEP]
    for name, after in PROMPTS.items():
        ids = torch.tensor([[BEGIN] + [IMAGE] * len(image) + after]).cuda()
        x = model.get_input_embeddings()(ids)
        x[0, 1:1 + len(image)] = image
        out = model(inputs_embeds=x, use_cache=True, logits_to_keep=1)
        logits = out.logits[0, -1].float()
        tensors[f"first_logits_{name}"] = logits[::64]
        best = logits.topk(16)
        output, gaps = [], []
        for i in range(new_tokens):
            two = logits.topk(2).values
            output.append(int(logits.argmax()))
            gaps.append(round(float(two[0] - two[1]), 6))
            out = model(input_ids=torch.tensor([[output[-1]]]).cuda(), past_key_values=out.past_key_values, use_cache=True,
                        position_ids=torch.tensor([[ids.shape[1] + i]]).cuda())
            logits = out.logits[0, -1].float()
        record[name] = dict(prompt_tokens=ids.shape[1], best_ids=best.indices.tolist(),
                            best_logits=[round(v, 5) for v in best.values.tolist()], output_ids=output, gaps=gaps)
    record["image_tokens"] = len(image)
    return {k: v.float().cpu().contiguous() for k, v in tensors.items()}, record


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("out")
    parser.add_argument("pictures", nargs="+")
    parser.add_argument("--tokens", type=int, default=32)
    a = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    model = load(a.folder)
    os.makedirs(a.out, exist_ok=True)
    records = {}
    for path in a.pictures:
        name = os.path.splitext(os.path.basename(path))[0]
        tensors, records[name] = reference(model, Image.open(path).convert("RGB"), a.tokens)
        save_file(tensors, f"{a.out}/{name}.safetensors")
        print(name, {k: list(v.shape) for k, v in tensors.items()})
    versions = dict(transformers=transformers.__version__, torch=torch.__version__, device=torch.cuda.get_device_name())
    json.dump(dict(seed=1, dtype="float32", row_step=STEP, logit_step=64, **versions, pictures=records),
              open(f"{a.out}/full.json", "w"), indent=1)


if __name__ == "__main__":
    main()
