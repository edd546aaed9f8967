"""Trains the tiny DeepSeek-OCR-2 on synthetic pages (data.py) on one GPU for a given number of seconds.

  python3 train.py --seconds 1300 --out run        (writes last.pt every minute, log to stdout)

Worker processes draw pages into shared memory; the newest pages lie in pools on the GPU, from which every step takes a
random batch and puts paper, ink, skew, blur and noise on it. Loss = cross-entropy of the text
  + pointer loss   (a head of some decoder layers must look at the image token that holds the next character)
  + glyph loss     (a linear head on SAM's patches names the character at each 8 x 8 pixels; thrown away after training)
  + load balancing (experts).
Weights live in bf16, fp32 masters in the optimizer: Muon for matrices, Adam for the rest.
"""
import argparse, contextlib, json, math, mmap, multiprocessing as mp, os, random, sys, time
import numpy as np
import torch, torch.nn as nn, torch.nn.functional as F
import data as D, model as M
from tok import Tok

HERE = os.path.dirname(os.path.abspath(__file__))


# ------------------------------------------------------------------------------------------------ optimizer
def newton_schulz(g):
    """Nearest orthogonal matrices of a stack of matrices (Muon)."""
    x = g.bfloat16(); x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    tall = x.shape[-2] > x.shape[-1]
    if tall: x = x.mT
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x.mT if tall else x


class Optimizer:
    """Parameters become views of a few flat bf16 buffers: one per matrix shape (Muon), one for everything else (Adam)."""
    def __init__(self, model, extra, lr_muon, lr_adam, wd, dtype):
        self.lr_muon, self.lr_adam, self.wd, self.t = lr_muon, lr_adam, wd, 0
        self.k = {k: torch.zeros((), device=extra[0].device) for k in ("lr", "mu", "c1", "c2", "em")}
        mats, rest = {}, []
        for n, p in list(model.named_parameters()) + [("extra", p) for p in extra]:
            s = self.stack_shape(n, p)
            if s is None: rest.append(p)
            else: mats.setdefault(s[1:], []).append((p, s[0]))
        self.groups = []
        for s, L in mats.items(): self.groups.append(self.pack([p for p, _ in L], dtype, s))
        self.groups.append(self.pack(rest, dtype, None))

    @staticmethod
    def stack_shape(n, p):
        if n == "extra" or any(k in n for k in ("embed", "query_", "lm_head", "rel_pos", "seperator", "norm", "bias", "mlp.gate.weight")): return None
        if "qkv.weight" in n: return 3, p.shape[0] // 3, p.shape[1]
        if p.dim() == 3: return (2 * p.shape[0], p.shape[1] // 2, p.shape[2]) if "gate_up" in n else tuple(p.shape)
        if p.dim() == 4: return 1, p.shape[0], p[0].numel()
        return (1, *p.shape) if p.dim() == 2 else None

    def pack(self, ps, dtype, shape):
        al = 1 if shape else 128
        off, o = [], 0
        for p in ps: off.append(o); o += -(-p.numel() // al) * al
        dev = ps[0].device
        w = torch.zeros(o, device=dev); b = torch.zeros(o, device=dev, dtype=dtype); g = torch.zeros_like(b)
        for p, i in zip(ps, off):
            w[i:i + p.numel()] = p.data.float().reshape(-1)
            p.data = b[i:i + p.numel()].view(p.shape); p.grad = g[i:i + p.numel()].view(p.shape)
        b.copy_(w)
        return dict(ps=ps, off=off, w=w, b=b, g=g, m=torch.zeros_like(w), v=None if shape else torch.zeros_like(w), shape=shape,
                    ema=w.clone())

    def set(self, lr, ema=.998):
        """Sets the step's scalars on the device (lr: factor in [0, 1]), so that a CUDA graph can replay step()."""
        self.t += 1
        for k, v in dict(lr=lr, mu=min(.95, .85 + self.t / 3000), c1=1 - .9 ** self.t, c2=1 - .98 ** self.t, em=1 - min(ema, self.t / (self.t + 50))).items():
            self.k[k].fill_(v)

    @torch.no_grad()
    def step(self):
        k = self.k
        for G in self.groups:
            g, w, m = G["g"].float(), G["w"], G["m"]
            if G["shape"]:
                m.lerp_(g, 1 - k["mu"])
                r, c = G["shape"]
                u = newton_schulz(g.lerp(m, k["mu"]).view(-1, r, c)).reshape(-1)
                lr = self.lr_muon * k["lr"]
                w.mul_(1 - lr * self.wd).sub_(u * (lr * max(1, r / c) ** .5))
            else:
                v = G["v"]
                m.lerp_(g, .1); v.lerp_(g * g, .02)
                w.sub_(m / ((v / k["c2"]).sqrt_().add_(1e-8)) * (self.lr_adam * k["lr"] / k["c1"]))
            G["b"].copy_(w); G["ema"].lerp_(w, k["em"]); G["g"].zero_()

    def tensors(self, model, which):
        """state_dict-like {name: fp32 tensor} of the masters ('w') or their moving average ('ema')."""
        by = {id(p): G[which][i:i + p.numel()].view(p.shape) for G in self.groups for p, i in zip(G["ps"], G["off"])}
        return {n: by[id(p)].detach().float().cpu().clone() for n, p in model.named_parameters()}


# ------------------------------------------------------------------------------------------------ augmentation
@torch.no_grad()
def augment(img, lab, wh, loc, mode, dtype, strong=1.):
    """img [B, 768, 768] ink maps (u8) of pages of size wh, lab [B, 192, 192], loc [B, T, 2] (native pixels, -1 = none).
    Returns the normalised global view [B, 3, 1024, 1024], the label map at 128 x 128 and the 64-pixel cell of each token."""
    B, dev = img.shape[0], img.device
    R = lambda *s: torch.rand(*s, device=dev)
    w, h = wh[:, 0].float(), wh[:, 1].float()
    s = 1024 / torch.maximum(w, h)
    ox, oy = ((1024 - (w * s).round()) * .5).round(), ((1024 - (h * s).round()) * .5).round()
    ang = torch.where((R(B) < .3 * strong) & (mode == 0), (R(B) * 2 - 1) * .022, torch.zeros(B, device=dev))
    co, si, cx, cy = ang.cos(), ang.sin(), w / 2, h / 2
    e = lambda t: t.view(B, 1, 1)

    def source(n):                            # native coordinates of the centres of an n x n grid over the view
        t = (torch.arange(n, device=dev) + .5) * (1024 / n)
        u, v = (t.view(1, 1, n) - e(ox)) / e(s), (t.view(1, n, 1) - e(oy)) / e(s)
        inside = (u >= 0) & (u < e(w)) & (v >= 0) & (v < e(h))
        u, v = u - e(cx), v - e(cy)
        return u * e(co) - v * e(si) + e(cx), u * e(si) + v * e(co) + e(cy), inside
    u, v, inside = source(1024)
    a = F.grid_sample(img[:, None].float(), torch.stack([u, v], -1) / (D.SIDE / 2) - 1, mode="bicubic", padding_mode="zeros",
                      align_corners=False)[:, 0]
    a = (a / 255).clamp(0, 1).to(dtype)
    sg = torch.where(R(B) < .35 * strong, .4 + R(B) * .8, torch.full((B,), .01, device=dev))      # blur
    k = torch.exp(-torch.arange(3, device=dev)[None] ** 2 / (2 * sg[:, None] ** 2))
    k = (k / (k[:, :1] + 2 * k[:, 1:].sum(1, keepdim=True))).to(dtype)
    for d in (1, 2):
        p = F.pad(a, (2, 2, 0, 0) if d == 2 else (0, 0, 2, 2)); q = lambda i: p.narrow(d, i, 1024)
        a = q(2) * e(k[:, 0]) + (q(1) + q(3)) * e(k[:, 1]) + (q(0) + q(4)) * e(k[:, 2])
    paper = 1 - R(B, 1) * .3 * strong + (R(B, 3) - .5) * .08 * strong
    ink = R(B, 1) * .38 * strong * torch.where(R(B, 1) < .3, R(B, 3), torch.ones(B, 3, device=dev))
    swap = (R(B, 1) < .04 * strong)
    paper, ink = torch.where(swap, ink, paper).to(dtype)[:, :, None, None], torch.where(swap, paper, ink).to(dtype)[:, :, None, None]
    x = paper + (ink - paper) * a[:, None]
    t = torch.linspace(-1, 1, 1024, device=dev)
    gx, gy = ((R(B) - .5) * .3 * (R(B) < .3) * strong for _ in range(2))
    sh = 1 - (gx.abs() + gy.abs()).view(B, 1, 1) / 2 + (gx.view(B, 1, 1) * t.view(1, 1, -1) + gy.view(B, 1, 1) * t.view(1, -1, 1)) / 2
    nz = (R(B) * .04 * (R(B) < .5) * strong).to(dtype).view(B, 1, 1)
    x = x * sh.to(dtype)[:, None] + (torch.randn(B, 1024, 1024, device=dev, dtype=dtype) * nz)[:, None]
    x = torch.where(inside[:, None], x.clamp(0, 1), torch.full((), 127 / 255, device=dev, dtype=dtype)) * 2 - 1
    u, v, inside = source(128)
    i = (u / 4).long().clamp(0, D.LAB - 1) + (v / 4).long().clamp(0, D.LAB - 1) * D.LAB
    lb = lab.view(B, -1).gather(1, i.view(B, -1)).view(B, 128, 128).long() * inside
    du, dv = loc[..., 0] - cx[:, None], loc[..., 1] - cy[:, None]
    X = (du * co[:, None] + dv * si[:, None] + cx[:, None]) * s[:, None] + ox[:, None]
    Y = (dv * co[:, None] - du * si[:, None] + cy[:, None]) * s[:, None] + oy[:, None]
    return x, lb, cell_of(X, Y, loc[..., 0] >= 0)


def cell_of(X, Y, ok):
    return torch.where(ok, (Y / 64).long().clamp(0, 15) * 16 + (X / 64).long().clamp(0, 15), torch.full_like(X, -1).long())


# ------------------------------------------------------------------------------------------------ pools of pages
class Pools:
    def __init__(self, dev, cap, cap_tiles):
        u = lambda *s: torch.zeros(*s, dtype=torch.uint8, device=dev); i = lambda *s: torch.zeros(*s, dtype=torch.int16, device=dev)
        self.cap, self.capt = cap, cap_tiles
        self.p = {b: dict(img=u(cap[b], D.SIDE, D.SIDE), lab=u(cap[b], D.LAB, D.LAB), tok=i(cap[b], 512), loc=i(cap[b], 512, 2),
                          meta=i(cap[b], 8)) for b in "SML"}
        self.t = {n: dict(img=u(cap_tiles, D.SLOT_IMG), tok=i(cap_tiles, 512), loc=i(cap_tiles, 512, 2), lcell=i(cap_tiles, 512),
                          meta=i(cap_tiles, 8)) for n in (2, 3, 4, 6)} if cap_tiles else {}
        self.n = {k: 0 for k in list("SML") + [2, 3, 4, 6]}
        self.pending = []

    def put(self, A, s, b):
        """Copies shared-memory slot s to the pool of bucket b."""
        T = lambda k: torch.from_numpy(A[k][s])
        if b == "T":
            n = int(A["meta"][s, 0, 5]); j = self.n[n] % self.capt; q = self.t[n]
            for k in ("img", "tok", "loc", "lcell", "meta"):
                q[k][j].copy_(T(k) if k == "img" else T(k)[0], non_blocking=True)
            self.n[n] += 1
        else:
            j = self.n[b] % self.cap[b]; q = self.p[b]; c = D.CHUNK
            q["img"][j:j + c].copy_(T("img").view(c, D.SIDE, D.SIDE), non_blocking=True)
            for k in ("lab", "tok", "loc", "meta"): q[k][j:j + c].copy_(T(k), non_blocking=True)
            self.n[b] += c

    def size(self, k):
        return min(self.n[k], self.cap[k] if k in self.cap else self.capt)


# ------------------------------------------------------------------------------------------------ loss
class Trainer:
    def __init__(self, dev, dtype):
        self.dev, self.dtype = dev, dtype
        self.model = M.Model().to(dev)
        self.glyph = nn.Linear(M.CFG["sam"]["dim"], 4 * D.N_CLASS).to(dev)

    def loss(self, px, lab, tok, meta, cell, tiles=None, lcell=None, ptr=(1, 2, 3), w_ptr=.3, w_glyph=1., corrupt=.04):
        m = self.model
        B, T = tok.shape
        f, feat = m.see(px)
        sep = m.model.view_seperator.expand(B, 1, -1)
        nl = 0
        if tiles is not None:
            ft, _ = m.see(tiles.flatten(0, 1)); ft = ft.reshape(B, -1, f.shape[-1]); nl = ft.shape[1]
            img = torch.cat([ft, f, sep], 1)
        else: img = torch.cat([f, sep], 1)
        inp, tgt = tok[:, :-1], tok[:, 1:]
        pos = torch.arange(1, T, device=self.dev)[None]
        ntok, pl = meta[:, 2:3].long(), meta[:, 3:4].long()
        mask = (pos >= pl) & (pos < ntok)
        if corrupt:
            bad = (torch.rand(inp.shape, device=self.dev) < corrupt) & (pos > pl)
            inp = torch.where(bad, torch.randint(3, 1000, inp.shape, device=self.dev), inp)
        off = 1 + img.shape[1]
        valid = torch.cat([torch.ones(B, off, device=self.dev), (pos <= ntok).float()], 1)
        logits, bal, qk = m.read(img, inp, valid, ptr)
        lf = logits.float()
        ce = F.cross_entropy(lf.transpose(1, 2), tgt, reduction="none")
        with torch.no_grad(): acc = ((lf.argmax(-1) == tgt) & mask).sum() / mask.sum()
        ce = (ce * mask).sum() / mask.sum()
        total = ce + .01 * bal
        lp = lg = torch.zeros((), device=self.dev)
        if ptr and qk:
            heads = [(0, cell[:, 1:] + 1 + nl, cell[:, 1:] >= 0)]
            if nl: heads.append((1, lcell[:, 1:] + 1, lcell[:, 1:] >= 0))
            N = off + T - 1
            causal = torch.arange(N, device=self.dev)[None] <= torch.arange(off, N, device=self.dev)[:, None]
            for q, k in qk:
                for hd, c, ok in heads:
                    ok = ok & mask
                    s = ((q[:, hd, off:] @ k[:, hd].transpose(1, 2)).float() * q.shape[-1] ** -.5).masked_fill(~causal, -1e4)
                    l = torch.logsumexp(s, -1) - s.gather(2, c.clamp(min=0)[..., None])[..., 0]
                    lp = lp + (l * ok).sum() / ok.sum().clamp(min=1)
            lp = lp / (len(qk) * len(heads)); total = total + w_ptr * lp
        if lab is not None and not (isinstance(w_glyph, (int, float)) and w_glyph == 0):
            z = self.glyph(feat).view(B, 64, 64, 4, -1)
            y = lab.view(B, 64, 2, 64, 2).permute(0, 1, 3, 2, 4).reshape(-1)
            l = F.cross_entropy(z.reshape(-1, z.shape[-1]).float(), y, reduction="none")
            wt = torch.where(y > 0, 1., .05)
            lg = (l * wt).sum() / wt.sum(); total = total + w_glyph * lg
        return total, ce.detach(), lp.detach(), lg.detach(), bal.detach() if torch.is_tensor(bal) else bal, acc


def schedule(p):
    """p: share of the time gone. Learning rate factor, pool odds (S, M, L, T) for batches, for drawing, loss weights."""
    lr = 1. if p < .5 else max(0., (1 - p) / .5) * .97 + .03
    use = (.35, .45, .20, 0) if p < .06 else (.15, .40, .45, 0) if p < .55 else (.10, .33, .57, 0) if p < .72 else (.08, .25, .37, .30)
    draw = (.35, .45, .20, 0) if p < .04 else (.15, .40, .45, 0) if p < .5 else (.12, .33, .45, .10) if p < .68 else (.08, .2, .32, .40)
    return lr, use, draw, .3 if p < .35 else .1 if p < .75 else .05, 1. if p < .12 else .3 if p < .5 else 0.


def heldout(tok, n, bucket, held_font, seed):
    rng = random.Random(seed); text = D.Text(rng, heldout=True); out = []
    while len(out) < n:
        f = rng.choice(D.META["fonts"]["heldout"]) if held_font else None
        p = D.make_page(rng, tok, text, bucket, clean_font=f); t = D.tokenize(tok, p, D.BUCKETS[bucket])
        if not t: continue
        im = np.zeros((D.SIDE, D.SIDE), np.uint8); a = np.asarray(p["img"]); im[:a.shape[0], :a.shape[1]] = a
        tk = np.full(D.BUCKETS[bucket], 2); tk[:len(t[0])] = t[0]
        out.append((im, tk, [a.shape[1], a.shape[0], len(t[0]), t[1], p["mode"], 0, 0, 0]))
    return [torch.from_numpy(np.array(x)) for x in zip(*out)]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seconds", type=float, default=1300); ap.add_argument("--out", default="run")
    ap.add_argument("--batch", type=int, default=32); ap.add_argument("--workers", type=int, default=15)
    ap.add_argument("--compile", type=int, default=1); ap.add_argument("--graphs", type=int, default=1); ap.add_argument("--resume", default="")
    ap.add_argument("--lr", type=float, default=.015); ap.add_argument("--lr_adam", type=float, default=2e-3)
    ap.add_argument("--cap", type=int, default=12288); ap.add_argument("--min_pool", type=int, default=512)
    ap.add_argument("--start", type=float, default=0., help="share of the schedule already done (with --resume)")
    ap.add_argument("--probe", type=int, default=0, help="test: jump to 90 % of the schedule after so many steps")
    ap.add_argument("--max_steps", type=int, default=10 ** 9); ap.add_argument("--cpu", action="store_true")
    a = ap.parse_args()
    t0 = time.time()
    os.makedirs(a.out, exist_ok=True)
    tok_path = f"{HERE}/../../models/tiny/tokenizer.json"; tok = Tok(tok_path)
    slots = 96 if not a.cpu else 8
    buf = mmap.mmap(-1, D.slot_bytes(slots)); A, _ = D.slot_arrays(buf, slots)
    ctx = mp.get_context("fork"); free, ready = ctx.Queue(), ctx.Queue()
    mix = ctx.Array("d", schedule(a.start)[2], lock=False)
    for s in range(slots): free.put(s)
    procs = [ctx.Process(target=D.worker, args=(1000 * int(t0) % 10 ** 9 + i, buf, slots, free, ready, mix, tok_path), daemon=True) for i in range(a.workers)]
    for p in procs: p.start()
    evals = {f"{b}{'h' if hf else ''}": heldout(tok, 48 if not a.cpu else 2, b, hf, 99 + i) for i, (b, hf) in enumerate([("M", 0), ("M", 1), ("L", 0)])}

    dev = torch.device("cpu" if a.cpu else "cuda"); dtype = torch.float32 if a.cpu else torch.bfloat16
    torch.manual_seed(1); torch.set_float32_matmul_precision("high")
    if not a.cpu:
        print("cudaHostRegister", torch.cuda.cudart().cudaHostRegister(A["img"].ctypes.data, D.slot_bytes(slots), 0), flush=True)
    if not a.cpu and M.USE_TRITON:
        err, log = M.relattn.check_and_tune()
        print("attention kernel: errors", [f"{e:.4f}" for e in err], "ms for 16 views", log, f"{time.time() - t0:.1f}s", flush=True)
        if not max(err) < .03: M.USE_TRITON = False; print("kernel not used", flush=True)
    tr = Trainer(dev, dtype)
    if a.resume:
        st = torch.load(a.resume); print(tr.model.load_state_dict({k: v.float() for k, v in st.get("w", st).items()}, strict=False))
    opt = Optimizer(tr.model, list(tr.glyph.parameters()), a.lr, a.lr_adam, .01, dtype)
    print("parameters", sum(p.numel() for p in tr.model.parameters()), "groups", [(G["shape"], G["w"].numel()) for G in opt.groups], flush=True)
    if a.compile and not a.cpu:
        torch._dynamo.config.recompile_limit = 64; torch._dynamo.config.cache_size_limit = 64
        cl = list(tr.model.model.sam_model.blocks) + list(tr.model.model.qwen2_model.model.model.layers) + list(tr.model.model.layers)
        for l in cl: l.compile(dynamic=False)
    pools = Pools(dev, {b: a.cap for b in "SML"}, 8 if a.cpu else 640)

    def drain(limit=16):
        """Moves finished chunks to the GPU; their slots are free once the copies are done."""
        while pools.pending and (a.cpu or pools.pending[0][0].query()): [free.put(s) for s in pools.pending.pop(0)[1]]
        got = []
        while len(got) < limit and not ready.empty():
            s, b = ready.get(); pools.put(A, s, b); got.append(s)
        if got:
            ev = None
            if not a.cpu: ev = torch.cuda.Event(); ev.record()
            pools.pending.append((ev, got))

    stance = lambda: torch.compiler.set_stance("force_eager") if a.compile and not a.cpu else contextlib.nullcontext()
    sizes = {k: torch.ones((), device=dev) for k in list("SML") + [2, 3, 4, 6]}     # pages in each pool
    weights = dict(ptr=torch.zeros((), device=dev), glyph=torch.zeros((), device=dev))

    def batch(b, n=0):
        """A random batch from the pool of bucket b, or of pages with n tiles. No host work that depends on data."""
        pick = lambda k, B: (torch.rand(B, device=dev) * sizes[k]).long()
        if n:
            q = pools.t[n]; B = {2: 16, 3: 12, 4: 12, 6: 8}[n]
            j = pick(n, B)
            im = q["img"][j]; conv = lambda t: (t.to(dtype) / 127.5 - 1)
            g = conv(im[:, :1024 ** 2].view(B, 1, 1024, 1024)).expand(-1, 3, -1, -1)
            t = conv(im[:, 1024 ** 2:1024 ** 2 + n * D.SIDE ** 2].view(B, n, 1, D.SIDE, D.SIDE)).expand(-1, -1, 3, -1, -1)
            loc = q["loc"][j].float() / 8
            return dict(px=g.contiguous(), lab=None, tok=q["tok"][j].long(), meta=q["meta"][j], cell=cell_of(loc[..., 0], loc[..., 1], loc[..., 0] >= 0),
                        tiles=t.contiguous(), lcell=q["lcell"][j].long())
        q = pools.p[b]; T = D.BUCKETS[b]
        j = pick(b, a.batch)
        meta = q["meta"][j]
        px, lb, cell = augment(q["img"][j], q["lab"][j], meta[:, :2], q["loc"][j][:, :T].float() / 8, meta[:, 4], dtype)
        return dict(px=px, lab=lb, tok=q["tok"][j][:, :T].long(), meta=meta, cell=cell)

    graphs, metrics, handle = {}, {}, None if a.cpu else torch.cuda.graph_pool_handle()

    def whole_step(b, n, glyph):
        o = tr.loss(**batch(b, n), w_ptr=weights["ptr"], w_glyph=weights["glyph"] if glyph else 0)
        o[0].backward()
        opt.step()
        metrics[b].add_(torch.stack([x.detach().float() for x in o] + [torch.ones((), device=dev)]))

    def step_once(b, n, glyph):
        """One training step: eager twice, then captured as a CUDA graph, then replayed."""
        key = b, n, glyph
        if b not in metrics: metrics[b] = torch.zeros(7, device=dev)
        if a.cpu or not a.graphs: return whole_step(*key)
        if key not in graphs:
            t = time.time()
            with (stance() if n else contextlib.nullcontext()):
                st = torch.cuda.Stream(); st.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(st):
                    for _ in range(2): whole_step(*key)
                torch.cuda.current_stream().wait_stream(st); torch.cuda.synchronize()
                g = torch.cuda.CUDAGraph()
                with torch.cuda.graph(g, pool=handle): whole_step(*key)
            graphs[key] = g
            torch.cuda.synchronize()
            print(f"   captured {key} in {time.time() - t:.1f}s, {torch.cuda.memory_reserved() / 2 ** 30:.0f} GiB reserved", flush=True)
        graphs[key].replay()

    @torch.no_grad()
    def evaluate():
        out = []
        for k, (im, tk, mt) in evals.items():
            B = len(im); z = lambda *s: torch.zeros(*s, dtype=torch.long, device=dev)
            r = []
            for i in range(0, B, 16):
                mtd = mt[i:i + 16].to(dev); n = len(mtd)
                px, _, _ = augment(im[i:i + 16].to(dev), z(n, D.LAB, D.LAB), mtd[:, :2], z(n, tk.shape[1], 2).float() - 1, mtd[:, 4], dtype, 0.)
                o = tr.loss(px, None, tk[i:i + 16].to(dev), mtd, z(n, tk.shape[1]) - 1, ptr=(), w_glyph=0, corrupt=0)
                r.append((o[1].item(), o[5].item()))
            out.append(f"{k}: ce {np.mean([x[0] for x in r]):.4f} acc {np.mean([x[1] for x in r]):.4f}")
        return "  ".join(out)

    def save():
        torch.save(dict(w=opt.tensors(tr.model, "w"), ema=opt.tensors(tr.model, "ema"), step=step, seconds=time.time() - t0), a.out + "/tmp.pt")
        os.replace(a.out + "/tmp.pt", a.out + "/last.pt")

    while min(pools.n[b] for b in "SML") < a.min_pool: drain(32); time.sleep(.005)
    print(f"pools ready after {time.time() - t0:.1f}s", pools.n, flush=True)
    t1 = time.time() - a.start * a.seconds / max(1e-9, 1 - a.start)
    total = a.seconds / (1 - a.start)
    step, tlog, nlog, tsave, teval = 0, time.time(), 0, time.time(), time.time()
    rng = random.Random(3)
    while step < a.max_steps:
        p = (time.time() - t1) / total
        if a.probe and step >= a.probe: p = .9
        if p >= 1 or os.path.exists(a.out + "/stop"): break
        drain()
        k, use, draw, wp, wg = schedule(p)
        for i, v in enumerate(draw if not a.probe else (.2, .2, .2, .4)): mix[i] = v
        k *= min(1, (step + 1) / 100)
        b = rng.choices("SMLT", use)[0]; n = 0
        if b == "T":
            n = rng.choices((2, 3, 4, 6), (.25, .1, .3, .35))[0]
            if pools.size(n) < (64 if not a.probe else 8): b, n = "L", 0
        for q in ((n or b),): sizes[q].fill_(pools.size(q))
        weights["ptr"].fill_(wp); weights["glyph"].fill_(wg)
        opt.set(k)
        step_once(b, n, wg > 0 and not n)
        step += 1; nlog += 1
        if step in (5, 20, 50) or step % 100 == 0:
            if not a.cpu: torch.cuda.synchronize()
            dt = time.time() - tlog; out = []
            for bb, v in sorted(metrics.items()):
                q = v.tolist(); c = int(q[6]); v.zero_()
                if c: q = [x / c for x in q]; out.append(f"{bb}{c} ce {q[1]:.3f} ptr {q[2]:.3f} gl {q[3]:.3f} bal {q[4]:.2f} acc {q[5]:.3f}")
                if c and not math.isfinite(q[0]): print("NOT FINITE", flush=True); os._exit(3)
            print(f"{step} p {p:.3f} {time.time() - t0:.0f}s lr {k:.2f} {dt / nlog * 1e3:.1f} ms/step drawn {sum(pools.n.values())} | " + " | ".join(out), flush=True)
            tlog, nlog = time.time(), 0
        if time.time() - teval > 120 and not a.cpu:
            teval = time.time(); 
            with stance(): r = evaluate()
            print("   held-out", r, f"({time.time() - teval:.1f}s)", flush=True); teval = time.time()
        if time.time() - tsave > 90 or step == a.max_steps: save(); tsave = time.time()
    with stance(): print("held-out", evaluate(), flush=True)
    save()
    print(f"done: {step} steps, {time.time() - t0:.1f}s, drawn {pools.n}", flush=True)
    open(a.out + "/done", "w").write("1")
    for p in procs: p.kill()
    os._exit(0)


if __name__ == "__main__":
    main()
