"""Exports, verifies and measures the tiny checkpoint (run on the GPU machine; needs transformers >= 5.17).

  python3 export.py --ckpt run/last.pt --out DIR [--which w|ema] [--eval N] [--golden]

Writes DIR/deepseek-ocr2-tiny (official tensor names, bf16, two shards), reloads that folder with the plain Hugging Face
DeepseekOcr2ForConditionalGeneration, compares it with the training model, writes golden references (float32) and the
greedy transcripts of held-out pages (DIR/eval.json, scored by score.py).
"""
import argparse, hashlib, json, os, random, re, shutil, time
import concurrent.futures as cf
import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
import data as D, model as M
from tok import Tok, BOS, EOS, PAD, TOP, VOCAB

HERE = os.path.dirname(os.path.abspath(__file__))


def official_state(state):
    """Training names -> official names (experts unpacked), bf16."""
    out = {}
    for k, t in state.items():
        t = t.to(torch.bfloat16)
        if k.endswith("experts.gate_up"):
            for e in range(t.shape[0]):
                g, u = t[e].chunk(2)
                out[k.replace("gate_up", f"{e}.gate_proj.weight")] = g.contiguous(); out[k.replace("gate_up", f"{e}.up_proj.weight")] = u.contiguous()
        elif k.endswith("experts.down"):
            for e in range(t.shape[0]): out[k.replace("down", f"{e}.down_proj.weight")] = t[e].contiguous()
        else: out[k] = t.contiguous()
    return out


def config():
    s, e, l = M.CFG["sam"], M.CFG["enc"], M.CFG["lm"]
    lang = dict(architectures=["DeepseekV2ForCausalLM"], bos_token_id=0, eos_token_id=1, first_k_dense_replace=l["dense"],
                hidden_size=l["dim"], intermediate_size=l["mlp"], kv_lora_rank=None, lm_head=True, max_position_embeddings=8192,
                moe_intermediate_size=l["moe"], n_group=1, n_routed_experts=l["experts"], n_shared_experts=l["shared"],
                norm_topk_prob=False, num_attention_heads=l["heads"], num_experts_per_tok=l["topk"], num_hidden_layers=l["depth"],
                num_key_value_heads=l["heads"], q_lora_rank=None, qk_nope_head_dim=0, qk_rope_head_dim=0, rm_head=False,
                rms_norm_eps=1e-6, rope_theta=l["theta"], routed_scaling_factor=1.0, scoring_func="softmax", topk_group=1,
                topk_method="greedy", torch_dtype="bfloat16", use_mla=False, v_head_dim=0, vocab_size=l["vocab"])
    return dict(architectures=["DeepseekOCR2ForCausalLM"], model_type="deepseek_vl_v2", candidate_resolutions=[[1024, 1024]],
                global_view_pos="head", tile_tag="2D", torch_dtype="bfloat16", transformers_version="4.46.3",
                language_config=lang, **{k: v for k, v in lang.items() if k not in ("architectures", "torch_dtype")},
                projector_config=dict(model_type="mlp_projector", projector_type="linear", input_dim=e["dim"], n_embed=l["dim"]),
                vision_config=dict(model_type="vision", model_name="deepencoderv2", image_size=1024, mlp_ratio=4.0, width={
                    "sam_vit_b": dict(width=s["dim"], layers=s["depth"], heads=s["heads"], mlp_dim=s["mlp"], window_size=s["window"],
                                      global_attn_indexes=s["glob"], out_channels=s["out"], downsample_channels=s["down"],
                                      image_size=1024, patch_size=s["patch"], layer_norm_eps=1e-6, use_rel_pos=True, qkv_bias=True),
                    "qwen2-0-5b": dict(dim=e["dim"], layers=e["depth"], heads=e["heads"], kv_heads=e["kv"], intermediate_size=e["mlp"],
                                       rope_theta=e["theta"], rms_norm_eps=1e-6, qkv_bias=True, queries_768=144, queries_1024=256)}))


def hf_config(c):
    """Official config.json -> transformers' native DeepseekOcr2Config."""
    from transformers import DeepseekOcr2Config
    s, q, l = c["vision_config"]["width"]["sam_vit_b"], c["vision_config"]["width"]["qwen2-0-5b"], c["language_config"]
    return DeepseekOcr2Config(
        image_token_id=VOCAB - len(TOP),
        vision_config=dict(
            sam_config=dict(hidden_size=s["width"], output_channels=s["out_channels"], num_hidden_layers=s["layers"], num_attention_heads=s["heads"],
                            mlp_dim=s["mlp_dim"], window_size=s["window_size"], global_attn_indexes=s["global_attn_indexes"],
                            downsample_channels=s["downsample_channels"], image_size=1024, patch_size=16),
            encoder_config=dict(hidden_size=q["dim"], intermediate_size=q["intermediate_size"], num_hidden_layers=q["layers"], num_attention_heads=q["heads"],
                                num_key_value_heads=q["kv_heads"], rms_norm_eps=1e-6, rope_parameters=dict(rope_type="default", rope_theta=q["rope_theta"]))),
        text_config=dict(vocab_size=l["vocab_size"], hidden_size=l["hidden_size"], intermediate_size=l["intermediate_size"], num_hidden_layers=l["num_hidden_layers"],
                         num_attention_heads=l["num_attention_heads"], num_key_value_heads=l["num_key_value_heads"], n_routed_experts=l["n_routed_experts"],
                         n_shared_experts=l["n_shared_experts"], num_experts_per_tok=l["num_experts_per_tok"], moe_intermediate_size=l["moe_intermediate_size"],
                         n_group=1, topk_group=1, topk_method="greedy", bos_token_id=0, eos_token_id=1, pad_token_id=2, rms_norm_eps=1e-6,
                         rope_parameters=dict(rope_type="default", rope_theta=l["rope_theta"]), max_position_embeddings=8192,
                         mlp_layer_types=["dense" if i < l["first_k_dense_replace"] else "sparse" for i in range(l["num_hidden_layers"])]))


def write_folder(state, dst):
    os.makedirs(dst, exist_ok=True)
    st = official_state(state)
    vision = [k for k in st if any(x in k for x in ("sam_model", "qwen2_model", "projector", "seperator"))]
    shards = [vision, [k for k in st if k not in set(vision)]]
    total, wm = 0, {}
    for i, ks in enumerate(shards):
        fn = f"model-{i + 1:05d}-of-00002.safetensors"
        save_file({k: st[k] for k in ks}, f"{dst}/{fn}", metadata={"format": "pt"})
        for k in ks: wm[k] = fn; total += st[k].numel() * 2
    json.dump(dict(metadata=dict(total_size=total), weight_map=dict(sorted(wm.items()))), open(f"{dst}/model.safetensors.index.json", "w"), indent=1)
    json.dump(config(), open(f"{dst}/config.json", "w"), indent=2)
    shutil.copy(f"{HERE}/../../models/tiny/tokenizer.json", dst)
    spec = lambda t: dict(__type="AddedToken", content=t, lstrip=False, normalized=False, rstrip=False, single_word=False)
    json.dump(dict(add_bos_token=True, add_eos_token=False, bos_token=spec(BOS), eos_token=spec(EOS), pad_token=spec(PAD), unk_token=None,
                   clean_up_tokenization_spaces=False, legacy=True, model_max_length=8192, tokenizer_class="LlamaTokenizerFast",
                   use_default_system_prompt=False), open(f"{dst}/tokenizer_config.json", "w"), indent=2, ensure_ascii=False)
    json.dump(dict(bos_token=BOS, eos_token=EOS, pad_token=PAD, additional_special_tokens=TOP), open(f"{dst}/special_tokens_map.json", "w"), indent=2, ensure_ascii=False)
    json.dump(dict(processor_class="DeepseekVLV2Processor", image_token="<image>", pad_token=PAD, add_special_token=False, candidate_resolutions=[[1024, 1024]],
                   downsample_ratio=4, patch_size=16, ignore_id=-100, image_mean=[.5, .5, .5], image_std=[.5, .5, .5], mask_prompt=False, normalize=True,
                   sft_format="deepseek", base_size=1024, image_size=768, crop_mode=True, min_crops=2, max_crops=6), open(f"{dst}/processor_config.json", "w"), indent=2)
    return st


# ------------------------------------------------------------------------------------------------ reading with the HF model
def pixels(v, dev):
    x = torch.from_numpy(np.asarray(v.convert("RGB"), np.uint8).copy()).to(dev).float()
    return ((x / 255 - .5) / .5).permute(2, 0, 1)


@torch.no_grad()
def read_batch(hf, tok, views, mode, max_new=520):
    """views: list of (global PIL, [tile PIL]) with the same number of tiles. Greedy ids of each (EOS dropped) and the first logits."""
    dev = next(hf.parameters()).device
    nt = len(views[0][1])
    n_img = 257 + 144 * nt
    ids = [0] + [tok.image] * n_img + tok.encode(D.PROMPTS[mode])[0]
    ids = torch.tensor([ids] * len(views), device=dev)
    kw = dict(pixel_values=torch.stack([pixels(g, dev) for g, _ in views]))
    if nt: kw.update(pixel_values_local=torch.stack([pixels(t, dev) for _, ts in views for t in ts]), num_local_patches=[nt] * len(views))
    feats = []                                            # vision in small pieces, then the decoder on embeddings
    for i in range(0, len(views), 8):
        k = dict(pixel_values=kw["pixel_values"][i:i + 8])
        if nt: k.update(pixel_values_local=kw["pixel_values_local"][i * nt:(i + 8) * nt], num_local_patches=[nt] * len(k["pixel_values"]))
        feats += list(hf.model.get_image_features(**k, return_dict=True).pooler_output)
    emb = hf.get_input_embeddings()(ids)
    emb[:, 1:1 + n_img] = torch.stack(feats).to(emb.dtype)
    o = hf(inputs_embeds=emb, use_cache=True, logits_to_keep=1)
    first = o.logits[:, -1].float()
    out = torch.full((len(views), max_new), 1, dtype=torch.long, device=dev); done = torch.zeros(len(views), dtype=torch.bool, device=dev)
    nxt, past, pos = first.argmax(-1), o.past_key_values, emb.shape[1]
    for i in range(max_new):
        out[:, i] = torch.where(done, 1, nxt); done |= nxt == 1
        if i % 16 == 15 and bool(done.all()): break
        o = hf(input_ids=nxt[:, None], past_key_values=past, use_cache=True, position_ids=torch.full((len(views), 1), pos + i, device=dev))
        past, nxt = o.past_key_values, o.logits[:, -1].argmax(-1)
    seqs = []
    for r in out.tolist(): seqs.append(r[:r.index(1)] if 1 in r else r)
    return seqs, first, ids[0].tolist(), feats


def eval_spec(n):
    """(name, bucket, kind, mode, held-out font?, side) with n pages each; every second page is clean black on white."""
    out = []
    for hf in (0, 1):
        for name, b, kind, mode in [("one line", "S", "line", 0), ("lines", "M", "lines", 0), ("paragraphs, medium", "M", "para", 0),
                                    ("paragraphs, full page", "L", "para", 0), ("headings and lists", "L", "doc", 0), ("table", "M", "table", 0),
                                    ("grounded document", "L", "doc", 1), ("grounded mixed", "L", "mixed", 1)]:
            out.append((name, b, kind, mode, hf, None))
    for side in [(1500, 760), (1000, 1000), (1000, 1414)]: out.append((f"large page, {np.prod(D.tile_grid(*side))} tiles", "T", None, 0, 0, side))
    return [s + (i,) for s in out for i in range(n)]


_E = {}
def eval_page(job):
    name, b, kind, mode, held, side, i = job
    if not _E:
        _E["tok"] = Tok(f"{HERE}/../../models/tiny/tokenizer.json"); _E["text"] = D.Text(random.Random(0), heldout=True)
    rng = random.Random(f"{job}"); _E["text"].r = rng
    f = rng.choice(D.META["fonts"]["heldout"]) if held else None
    p = D.make_page(rng, _E["tok"], _E["text"], b, kind=kind, mode=mode, side=side, clean_font=f)
    img = D.finish(rng, p["img"], i % 2).convert("RGB")
    return dict(name=name, held=held, noisy=i % 2, mode=mode, text=p["text"], img=img, views=D.views(img))


GOLDEN = [("line", "S", "line", 0, 0, (512, 128), 2), ("paragraph", "M", "para", 0, 1, (640, 640), 4), ("headings-list", "L", "doc", 0, 0, (600, 760), 6),
          ("table", "M", "table", 0, 1, (700, 520), 8), ("large", "T", "doc", 0, 0, (1400, 720), 10), ("grounded", "L", "mixed", 1, 0, (560, 740), 12)]


def golden(hf, tok, dst, dev):
    """Images and float32 references. Pages without tiles are decoded as one batch per prompt."""
    os.makedirs(dst, exist_ok=True)
    S = []
    for g in GOLDEN:
        e = eval_page(g); name = g[0]
        e["img"].save(f"{dst}/{name}.png", optimize=True)
        img = Image.open(f"{dst}/{name}.png").convert("RGB"); gv, tv = D.views(img)
        T = {}
        with torch.no_grad():
            for key, vs in (("global", [gv]), ("local", tv)):
                if not vs: continue
                px = torch.stack([pixels(v, dev) for v in vs]); vt = hf.model.vision_tower
                T[f"sam_{key}"] = vt.sam_encoder(px).last_hidden_state
                T[f"encoder_{key}"] = vt(px, return_dict=True).last_hidden_state
        meta = dict(image=f"{name}.png", width=img.width, height=img.height, tiles=list(D.tile_grid(*img.size)), truth=e["text"], truth_mode=e["mode"],
                    held_out_font=bool(g[4]), global_view_sha256=hashlib.sha256(np.asarray(gv).tobytes()).hexdigest(),
                    tile_sha256=[hashlib.sha256(np.asarray(t).tobytes()).hexdigest() for t in tv])
        S.append((name, (gv, tv), T, meta))
    for many in (False, True):
        L = [s for s in S if bool(s[1][1]) == many]
        for mode, key in enumerate(("free", "grounded")):
            seqs, first, ids, feats = read_batch(hf, tok, [s[1] for s in L], mode)
            for k, (_, _, T, meta) in enumerate(L):
                T["image_embeddings"] = feats[k]; T[f"first_logits_{key}"] = first[k]
                meta[key] = dict(prompt="<image>" + D.PROMPTS[mode], input_ids=ids, output_ids=seqs[k], text=tok.decode(seqs[k]), max_new_tokens=520, ended_by_eos=len(seqs[k]) < 520)
    for name, _, T, meta in S:
        save_file({k: v.float().cpu().contiguous() for k, v in T.items()}, f"{dst}/{name}.safetensors")
        json.dump(meta, open(f"{dst}/{name}.json", "w"), ensure_ascii=False, indent=1)
    json.dump(dict(samples=[s[0] for s in S], dtype="float32", note="float32 arithmetic on the exported bf16 weights, transformers " + __import__("transformers").__version__),
              open(f"{dst}/index.json", "w"), indent=1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--ckpt", required=True); ap.add_argument("--out", required=True); ap.add_argument("--which", default="w")
    ap.add_argument("--eval", type=int, default=0); ap.add_argument("--golden", action="store_true"); ap.add_argument("--procs", type=int, default=14)
    ap.add_argument("--pages", default="", help="pickle of rendered evaluation pages: made if missing")
    a = ap.parse_args()
    t0 = time.time(); say = lambda *x: print(f"[{time.time() - t0:.1f}s]", *x, flush=True)
    pages = None
    if a.eval:
        with cf.ProcessPoolExecutor(a.procs) as ex: pages = list(ex.map(eval_page, eval_spec(a.eval), chunksize=4))
        say("pages", len(pages))
    import transformers
    from transformers import DeepseekOcr2ForConditionalGeneration as HF
    transformers.logging.set_verbosity_error()
    torch.backends.cudnn.allow_tf32 = False; torch.backends.cuda.matmul.allow_tf32 = False; torch.set_float32_matmul_precision("highest")
    dev = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ck = torch.load(a.ckpt, map_location="cpu"); state = ck.get(a.which, ck)
    folder = f"{a.out}/deepseek-ocr2-tiny"
    write_folder(state, folder)
    say("exported", {f: os.path.getsize(f"{folder}/{f}") for f in sorted(os.listdir(folder))}, "step", ck.get("step"))

    # tokenizer: the tokenizers library and tok.py must agree, and decode must give the text back
    from tokenizers import Tokenizer
    lib, tok = Tokenizer.from_file(f"{folder}/tokenizer.json"), Tok(f"{folder}/tokenizer.json")
    txt = open(f"{D.ASSETS}/heldout.txt").read().split("\n")[:400] + list(D.PROMPTS)
    rng = random.Random(1); t = D.Text(rng, True)
    txt += [D.make_page(rng, tok, t, "M")["text"] for _ in range(200)]
    bad = [s for s in txt if lib.encode(s, add_special_tokens=False).ids != tok.encode(s)[0] or tok.decode(tok.encode(s)[0]) != s
           or lib.decode(tok.encode(s)[0], skip_special_tokens=False) != s]
    say("tokenizer check:", len(txt), "texts,", len(bad), "differ", bad[:2])

    cfg = hf_config(json.load(open(f"{folder}/config.json")))
    hf, info = HF.from_pretrained(folder, config=cfg, dtype=torch.float32, output_loading_info=True)
    hf = hf.to(dev).eval()
    say("HF load:", {k: list(v)[:5] for k, v in info.items()}, "parameters", sum(p.numel() for p in hf.parameters()))

    # the training model with the same bf16-rounded weights, in float32
    own = M.Model(); own.load_state_dict({k: v.to(torch.bfloat16).float() for k, v in state.items()}); own = own.to(dev).eval()
    g = eval_page(GOLDEN[4])
    with torch.no_grad():
        M.USE_TRITON = False
        gv, tv = g["views"]; px, pl = pixels(gv, dev)[None], torch.stack([pixels(v, dev) for v in tv])
        f, _ = own.see(px); fl, _ = own.see(pl)
        img = torch.cat([fl.reshape(1, -1, f.shape[-1]), f, own.model.view_seperator.expand(1, 1, -1)], 1)
        prompt = torch.tensor([tok.encode(D.PROMPTS[0])[0] + tok.encode(g["text"])[0][:200]], device=dev)
        mine = own.read(img, prompt, torch.ones(1, 1 + img.shape[1] + prompt.shape[1], device=dev))[0]
        ids = torch.cat([torch.tensor([[0] + [tok.image] * img.shape[1]], device=dev), prompt], 1)
        his = hf(input_ids=ids, pixel_values=px, pixel_values_local=pl, num_local_patches=[len(tv)]).logits[:, -prompt.shape[1]:]
        say(f"training model against HF, float32: max |difference| of logits {(mine - his).abs().max().item():.2e} (logits up to {his.abs().max().item():.1f}),"
            f" same argmax {(mine.argmax(-1) == his.argmax(-1)).float().mean().item():.4f}")
    if a.golden: golden(hf, tok, f"{a.out}/golden", dev); say("golden", sum(os.path.getsize(f"{a.out}/golden/{f}") for f in os.listdir(f"{a.out}/golden")))
    if pages:
        torch.set_float32_matmul_precision("high"); torch.backends.cudnn.allow_tf32 = True
        groups = {}
        for p in pages: groups.setdefault((p["mode"], len(p["views"][1])), []).append(p)
        for (mode, nt), L in groups.items():
            for i in range(0, len(L), 256):
                seqs = read_batch(hf, tok, [p["views"] for p in L[i:i + 256]], mode)[0]
                for p, s in zip(L[i:i + 256], seqs): p["read"] = tok.decode(s)
            say("read", mode, nt, len(L))
        json.dump([{k: p[k] for k in ("name", "held", "noisy", "mode", "text", "read")} for p in pages], open(f"{a.out}/eval.json", "w"), ensure_ascii=False)


if __name__ == "__main__":
    main()
