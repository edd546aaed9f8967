#!/usr/bin/env python3
"""Model folders with random weights, byte for byte those of quire-make-checkpoint (docs/random-checkpoint.md).

Needs numpy. The full-size models are 6.7 GB and take some minutes; quire-make-checkpoint takes seconds.
"""

import argparse
import json
import math
import pathlib
import struct

import numpy

SHARD = "model-00001-of-000001.safetensors"
CHUNK = 1 << 20  # elements made at a time
U64 = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


# Dimensions: the published models (src/model/config.h) and small ones (SmallConfig in src/model/random_checkpoint.cc).


def model(arch, size):
    one = arch == "ocr1"
    if size == "full":
        lm = dict(layers=12, hidden=1280, heads=10, dense_ffn=6848, experts=64, per_token=6, moe_ffn=896, vocab=129280)
        sam = dict(layers=12, width=768, heads=12, mlp=3072, window=14, grid=64, patch=16, neck=256, net2=512,
                   out=1024 if one else 896, global_layers=[2, 5, 8, 11])
        clip = dict(layers=24, width=1024, heads=16, mlp=4096)
        encoder = dict(layers=24, hidden=896, kv=128, ffn=4864)
    else:
        lm = dict(layers=3, hidden=256, heads=2, dense_ffn=384, experts=8, per_token=3, moe_ffn=32, vocab=1024)
        sam = dict(layers=3, width=64, heads=1, mlp=128, window=14, grid=64, patch=16, neck=32, net2=48, out=64,
                   global_layers=[1])
        clip = dict(layers=2, width=64, heads=1, mlp=128)
        encoder = dict(layers=2, hidden=64, kv=64, ffn=96)
    features = clip["width"] + sam["out"] if one else encoder["hidden"]
    return dict(lm=lm, sam=sam, clip=clip if one else None, encoder=None if one else encoder, features=features)


# Names, shapes and roles, in the order of the file (src/model/tensor_list.cc).


class Lister:
    def __init__(self):
        self.tensors = []  # (name, shape, role)

    def add(self, name, shape, role):
        self.tensors.append((name, shape, role))

    def product(self, name, outputs, inputs):
        self.add(name + ".weight", [outputs, inputs], "product")

    def biased(self, name, outputs, inputs):
        self.product(name, outputs, inputs)
        self.add(name + ".bias", [outputs], "bias")

    def convolution(self, name, outputs, inputs, side):
        self.add(name + ".weight", [outputs, inputs, side, side], "product")

    def rms_norm(self, name, width):
        self.add(name + ".weight", [width], "norm")

    def layer_norm(self, name, width):
        self.rms_norm(name, width)
        self.add(name + ".bias", [width], "bias")

    def swiglu(self, name, width, ffn):
        self.product(name + "gate_proj", ffn, width)
        self.product(name + "up_proj", ffn, width)
        self.product(name + "down_proj", width, ffn)

    def sam(self, sam):
        prefix, width = "model.sam_model.", sam["width"]
        self.add(prefix + "pos_embed", [1, sam["grid"], sam["grid"], width], "position")
        self.convolution(prefix + "patch_embed.proj", width, 3, sam["patch"])
        self.add(prefix + "patch_embed.proj.bias", [width], "bias")
        for i in range(sam["layers"]):
            block = f"{prefix}blocks.{i}."
            rows = 2 * (sam["grid"] if i in sam["global_layers"] else sam["window"]) - 1
            self.layer_norm(block + "norm1", width)
            self.biased(block + "attn.qkv", 3 * width, width)
            self.add(block + "attn.rel_pos_h", [rows, width // sam["heads"]], "relative")
            self.add(block + "attn.rel_pos_w", [rows, width // sam["heads"]], "relative")
            self.biased(block + "attn.proj", width, width)
            self.layer_norm(block + "norm2", width)
            self.biased(block + "mlp.lin1", sam["mlp"], width)
            self.biased(block + "mlp.lin2", width, sam["mlp"])
        self.convolution(prefix + "neck.0", sam["neck"], width, 1)
        self.layer_norm(prefix + "neck.1", sam["neck"])
        self.convolution(prefix + "neck.2", sam["neck"], sam["neck"], 3)
        self.layer_norm(prefix + "neck.3", sam["neck"])
        self.convolution(prefix + "net_2", sam["net2"], sam["neck"], 3)
        self.convolution(prefix + "net_3", sam["out"], sam["net2"], 3)

    def clip(self, clip):
        prefix, width = "model.vision_model.", clip["width"]
        self.add(prefix + "embeddings.class_embedding", [width], "embedding")
        self.convolution(prefix + "embeddings.patch_embedding", width, 3, 14)
        self.add(prefix + "embeddings.position_embedding.weight", [257, width], "position")
        self.layer_norm(prefix + "pre_layrnorm", width)
        for i in range(clip["layers"]):
            layer = f"{prefix}transformer.layers.{i}."
            self.layer_norm(layer + "layer_norm1", width)
            self.biased(layer + "self_attn.qkv_proj", 3 * width, width)
            self.biased(layer + "self_attn.out_proj", width, width)
            self.layer_norm(layer + "layer_norm2", width)
            self.biased(layer + "mlp.fc1", clip["mlp"], width)
            self.biased(layer + "mlp.fc2", width, clip["mlp"])

    def encoder(self, encoder):
        prefix, hidden, kv = "model.qwen2_model.", encoder["hidden"], encoder["kv"]
        self.add(prefix + "query_768.weight", [144, hidden], "embedding")
        self.add(prefix + "query_1024.weight", [256, hidden], "embedding")
        for i in range(encoder["layers"]):
            layer = f"{prefix}model.model.layers.{i}."
            self.rms_norm(layer + "input_layernorm", hidden)
            self.biased(layer + "self_attn.q_proj", hidden, hidden)
            self.biased(layer + "self_attn.k_proj", kv, hidden)
            self.biased(layer + "self_attn.v_proj", kv, hidden)
            self.product(layer + "self_attn.o_proj", hidden, hidden)
            self.rms_norm(layer + "post_attention_layernorm", hidden)
            self.swiglu(layer + "mlp.", hidden, encoder["ffn"])
        self.rms_norm(prefix + "model.model.norm", hidden)

    def language_model(self, lm):
        hidden = lm["hidden"]
        self.add("model.embed_tokens.weight", [lm["vocab"], hidden], "embedding")
        for i in range(lm["layers"]):
            layer = f"model.layers.{i}."
            self.rms_norm(layer + "input_layernorm", hidden)
            for name in "qkvo":
                self.product(f"{layer}self_attn.{name}_proj", hidden, hidden)
            self.rms_norm(layer + "post_attention_layernorm", hidden)
            if i == 0:
                self.swiglu(layer + "mlp.", hidden, lm["dense_ffn"])
                continue
            self.add(layer + "mlp.gate.weight", [lm["experts"], hidden], "router")
            for expert in range(lm["experts"]):
                self.swiglu(f"{layer}mlp.experts.{expert}.", hidden, lm["moe_ffn"])
            self.swiglu(layer + "mlp.shared_experts.", hidden, 2 * lm["moe_ffn"])
        self.rms_norm("model.norm", hidden)
        self.product("lm_head", lm["vocab"], hidden)


def list_tensors(m):
    lister = Lister()
    lister.sam(m["sam"])
    if m["clip"]:
        lister.clip(m["clip"])
    if m["encoder"]:
        lister.encoder(m["encoder"])
    lister.biased("model.projector.layers", m["lm"]["hidden"], m["features"])
    if m["clip"]:
        lister.add("model.image_newline", [m["lm"]["hidden"]], "embedding")
    lister.add("model.view_seperator", [m["lm"]["hidden"]], "embedding")
    lister.language_model(m["lm"])
    return lister.tensors


# Values (src/model/random_tensor.cc).


def key_of(seed, name):
    h = 0xCBF29CE484222325
    for byte in struct.pack("<Q", seed) + name.encode():
        h = (h ^ byte) * 0x100000001B3 & U64
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & U64
    h = (h ^ h >> 27) * 0x94D049BB133111EB & U64
    return h ^ h >> 31


def weights_of_sums(shape, role):
    """bf16 bits for each of the sums 0 to 2040."""
    per_input = 1.0 / math.sqrt(math.prod(shape[1:]))
    deviation = {"product": per_input, "router": 1.743 * per_input, "embedding": 1.0, "position": 0.5,
                 "relative": 0.05, "norm": 0.1, "bias": 0.02}[role]
    step = numpy.float32(deviation / math.sqrt(43690.0))
    weights = (numpy.arange(2041) - 1020).astype(numpy.float32) * step
    if role == "norm":
        weights = numpy.float32(1) + weights
    bits = weights.view(numpy.uint32)
    return ((bits + numpy.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)


def values(seed, name, shape, role):
    """The tensor's bf16 bits in pieces."""
    table, key, elements = weights_of_sums(shape, role), key_of(seed, name), math.prod(shape)
    for first in range(0, elements, CHUNK):
        count = min(CHUNK, elements - first)
        z = numpy.arange(count, dtype=numpy.uint64) * numpy.uint64(GOLDEN)
        z += numpy.uint64((key + first * GOLDEN) & U64)
        z = (z ^ z >> numpy.uint64(30)) * numpy.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> numpy.uint64(27)) * numpy.uint64(0x94D049BB133111EB)
        z ^= z >> numpy.uint64(31)
        even = numpy.uint64(0x00FF00FF00FF00FF)
        sums = ((z & even) + (z >> numpy.uint64(8) & even)) * numpy.uint64(0x0001000100010001) >> numpy.uint64(48)
        yield table[sums].astype("<u2")


# Files (src/model/random_checkpoint.cc).


def dump(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def write_json(path, value):
    path.write_bytes((dump(value) + "\n").encode())


def config_json(m):
    lm, sam, clip, encoder = m["lm"], m["sam"], m["clip"], m["encoder"]
    language = {
        "bos_token_id": 0, "eos_token_id": 1, "first_k_dense_replace": 1, "hidden_size": lm["hidden"],
        "intermediate_size": lm["dense_ffn"], "kv_lora_rank": None, "lm_head": True, "max_position_embeddings": 8192,
        "moe_intermediate_size": lm["moe_ffn"], "n_group": 1, "n_routed_experts": lm["experts"], "n_shared_experts": 2,
        "num_attention_heads": lm["heads"], "num_experts_per_tok": lm["per_token"], "num_hidden_layers": lm["layers"],
        "num_key_value_heads": lm["heads"], "q_lora_rank": None, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0,
        "rm_head": False, "topk_group": 1, "topk_method": "greedy", "use_mla": False, "v_head_dim": 0,
        "vocab_size": lm["vocab"],
    }
    width = {"sam_vit_b": {"downsample_channels": [sam["net2"], sam["out"]],
                           "global_attn_indexes": sam["global_layers"], "heads": sam["heads"],
                           "layers": sam["layers"], "width": sam["width"]}}
    if clip:
        width["clip-l-14-224"] = {"heads": clip["heads"], "image_size": 224, "layers": clip["layers"],
                                  "patch_size": 14, "width": clip["width"]}
    if encoder:
        width["qwen2-0-5b"] = {"dim": encoder["hidden"]}
    return {
        "architectures": ["DeepseekOCRForCausalLM" if clip else "DeepseekOCR2ForCausalLM"],
        "candidate_resolutions": [[1024, 1024]], "global_view_pos": "head", "language_config": language,
        "model_type": "deepseek_vl_v2",
        "projector_config": {"input_dim": m["features"], "model_type": "mlp_projector", "n_embed": lm["hidden"],
                             "projector_type": "linear"},
        "tile_tag": "2D", "torch_dtype": "bfloat16",
        "vision_config": {"image_size": 1024, "model_name": "deeplip_b_l" if clip else "deepencoderv2",
                          "model_type": "vision", "width": width},
        **language,
    }


PROCESSOR = {
    "add_special_token": False, "candidate_resolutions": [[1024, 1024]], "downsample_ratio": 4,
    "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "image_token": "<image>", "mask_prompt": False,
    "normalize": True, "pad_token": "<｜▁pad▁｜>", "patch_size": 16, "processor_class": "DeepseekVLV2Processor",
    "sft_format": "deepseek",
}


def added_tokens(every):
    tokens = []
    if every:
        tokens += [f"<｜place▁holder▁no▁{i}｜>" for i in range(800)]
        tokens += [f"<｜{name}｜>" for name in ("fim▁hole", "fim▁begin", "fim▁end", "User", "Assistant")]
        tokens += ["<|EOT|>"]
        tokens += [f"<｜tool▁{name}｜>" for name in
                   ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "outputs▁begin", "outputs▁end",
                    "output▁begin", "output▁end", "sep")]
    return tokens + ["<image>", "<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "<|grounding|>", "<td>", "</td>", "<tr>",
                     "</tr>", "<|User|>", "<|Assistant|>"]


def tokenizer_json(vocab):
    every = vocab > 129000
    added = added_tokens(every)
    first_added = 128000 if every else vocab - len(added)
    plain = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]
    specials = list(enumerate(plain)) + list(enumerate(added, first_added))
    plain += [chr(code) for code in range(33, 324) if not 126 < code < 161 and code != 173]
    plain += [f"Ġt{i}" for i in range(len(plain), first_added)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i, text in specials],
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {text: i for i, text in enumerate(plain)}, "merges": []},
    }


def write_shard(path, tensors, seed):
    table, at = {}, 0
    for name, shape, _ in tensors:
        end = at + 2 * math.prod(shape)
        table[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = dump(table).encode()
    text += b" " * (-len(text) % 8)
    part = path.with_name(path.name + ".part")
    with open(part, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape, role in tensors:
            for piece in values(seed, name, shape, role):
                file.write(piece.tobytes())
    part.rename(path)
    return at


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", choices=["ocr1", "ocr2"], default="ocr2")
    parser.add_argument("--size", choices=["full", "small"], default="full")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("folder", type=pathlib.Path)
    arguments = parser.parse_args()

    m = model(arguments.arch, arguments.size)
    tensors = list_tensors(m)
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config_json(m))
    write_json(folder / "processor_config.json", PROCESSOR)
    write_json(folder / "tokenizer.json", tokenizer_json(m["lm"]["vocab"]))
    total_size = write_shard(folder / SHARD, tensors, arguments.seed)
    write_json(folder / "model.safetensors.index.json",
               {"metadata": {"total_size": total_size}, "weight_map": {name: SHARD for name, _, _ in tensors}})


if __name__ == "__main__":
    main()
