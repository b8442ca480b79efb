"""The floor of the benchmarks: one training step of the decoder in NumPy, derived by hand, with no tape at all.

What it does that a plain version does not: one buffer per intermediate, allocated once and used again in each step; one
flat vector for all parameters, gradients and moments; q, k and v as one product; constants folded into the small
weights in place of the large activations (the norm's weight, 1/2 for silu by tanh, log2(e) for exp2); rotation as one
complex product over q and k together; softmax without the rows' maxima unless a sum leaves the range; causal blocks
skipped; batches tiled so that scores stay in cache; optionally the halves of the batch on threads of their own.
"""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np

LOG2E = float(np.log2(np.e))
LN2 = float(np.log(2.0))
F = np.float32


def flat_layout(c):
    """[(name, shape)] with the fused matrices."""
    d, f, V = c["d"], c["f"], c["V"]
    out = [("emb", (V, d))]
    for i in range(c["L"]):
        out += [
            (f"l{i}.n1", (d,)),
            (f"l{i}.wqkv", (d, 3 * d)),
            (f"l{i}.wo", (d, d)),
            (f"l{i}.n2", (d,)),
            (f"l{i}.wgu", (d, 2 * f)),
            (f"l{i}.wd", (f, d)),
        ]
    return out + [("nf", (d,)), ("head", (d, V))]


def views(flat, c):
    out, at = {}, 0
    for name, shape in flat_layout(c):
        n = int(np.prod(shape))
        out[name] = flat[at : at + n].reshape(shape)
        at += n
    return out


def fuse(p, c):
    """Named parameters -> one flat float32 vector."""
    n = sum(int(np.prod(s)) for _, s in flat_layout(c))
    flat = np.empty(n, F)
    v = views(flat, c)
    for k in ("emb", "nf", "head"):
        v[k][...] = p[k]
    for i in range(c["L"]):
        at = f"l{i}."
        for k in ("n1", "wo", "n2", "wd"):
            v[at + k][...] = p[at + k]
        np.concatenate([p[at + "wq"], p[at + "wk"], p[at + "wv"]], 1, out=v[at + "wqkv"])
        np.concatenate([p[at + "wg"], p[at + "wu"]], 1, out=v[at + "wgu"])
    return flat


def unfuse(v, c):
    d, f, out = c["d"], c["f"], {}
    for k in ("emb", "nf", "head"):
        out[k] = v[k].copy()
    for i in range(c["L"]):
        at = f"l{i}."
        for k in ("n1", "wo", "n2", "wd"):
            out[at + k] = v[at + k].copy()
        for j, k in enumerate(("wq", "wk", "wv")):
            out[at + k] = v[at + "wqkv"][:, j * d : (j + 1) * d].copy()
        for j, k in enumerate(("wg", "wu")):
            out[at + k] = v[at + "wgu"][:, j * f : (j + 1) * f].copy()
    return out


class Shard:
    """Forward and backward over some of the batch's sequences."""

    def __init__(self, c, W, B, block, tile_bytes):
        d, f, V, T, H = c["d"], c["f"], c["V"], c["T"], c["H"]
        dh, N, L = d // H, B * T, c["L"]
        self.c, self.W, self.B, self.N = c, W, B, N
        # W: the folded weights, shared between shards
        self.flat_grad = np.zeros(sum(int(np.prod(s)) for _, s in flat_layout(c)), F)
        self.G = views(self.flat_grad, c)
        new = lambda *s: np.empty(s, F)
        self.x, self.dx, self.tmp = new(N, d), new(N, d), new(N, d)
        # attention work list: (sequences, rows, cols) per tile
        block = min(block, T)
        seqs = max(1, min(B, tile_bytes // (4 * H * block * T)))
        self.seq_tiles = [(b, min(b + seqs, B)) for b in range(0, B, seqs)]
        self.row_blocks = [(t, min(t + block, T)) for t in range(0, T, block)]
        self.tri = np.tril(np.ones((block, block), F))
        self.ones = np.ones(max(T, d, V), F)
        ang = np.outer(np.arange(T), 1e4 ** (-np.arange(0, dh, 2) / dh))
        rot = np.tile(np.exp(1j * ang), (1, H))
        s = dh**-0.5
        self.rot = np.concatenate([rot * (s * LOG2E), rot], 1).astype(np.complex64)
        self.rot_back = np.concatenate([rot.conj() * s, rot.conj() * LN2], 1).astype(np.complex64)
        self.layers = []
        for _ in range(L):
            z = {
                "xh1": new(N, d),
                "r1": new(N, 1),
                "qkv": new(N, 3 * d),
                "att": new(N, d),
                "il": new(B, H, T, 1),
                "xh2": new(N, d),
                "r2": new(N, 1),
                "h": new(N, f),
                "u": new(N, f),
                "p": new(N, f),
                "s": new(N, f),
                "hid": new(N, f),
            }
            qkv = z["qkv"].reshape(B, T, 3, H, dh).transpose(2, 0, 3, 1, 4)
            att = z["att"].reshape(B, T, H, dh).transpose(0, 2, 1, 3)
            z["tiles"] = []
            for b0, b1 in self.seq_tiles:
                for t0, t1 in self.row_blocks:
                    E = new(b1 - b0, H, t1 - t0, t1)
                    z["tiles"].append(
                        {
                            "E": E,
                            "E2": E.reshape(-1, t1),
                            "ones": self.ones[:t1],
                            "diag": E[..., t0:],
                            "tri": self.tri[: t1 - t0, : t1 - t0],
                            "q": qkv[0, b0:b1, :, t0:t1],
                            "k": qkv[1, b0:b1, :, :t1],
                            "kT": qkv[1, b0:b1, :, :t1].swapaxes(2, 3),
                            "v": qkv[2, b0:b1, :, :t1],
                            "vT": qkv[2, b0:b1, :, :t1].swapaxes(2, 3),
                            "l": np.empty((b1 - b0) * H * (t1 - t0), F),
                            "il": z["il"][b0:b1, :, t0:t1],
                            "o": att[b0:b1, :, t0:t1],
                        }
                    )
            z["z"] = z["qkv"].view(np.complex64)[:, :d].reshape(B, T, d)
            z["att4"] = z["att"].reshape(B, T, H, dh)
            z["il_o"] = z["il"].transpose(0, 2, 1, 3)
            self.layers.append(z)
        # backward scratch, one for all layers
        self.dqkv, self.datt = new(N, 3 * d), new(N, d)
        self.dz = self.dqkv.view(np.complex64)[:, :d].reshape(B, T, d)
        self.dh, self.w, self.du = new(N, f), new(N, f), new(N, f)
        self.delta = new(B, T, H)
        dqkv = self.dqkv.reshape(B, T, 3, H, dh).transpose(2, 0, 3, 1, 4)
        do = self.datt.reshape(B, T, H, dh).transpose(0, 2, 1, 3)
        dl = self.delta.transpose(0, 2, 1)[..., None]
        self.back, part = [], new(B, H, T, dh)
        tile = new((self.seq_tiles[0][1] - self.seq_tiles[0][0]) * H * block * T)
        for b0, b1 in self.seq_tiles:
            for t0, t1 in self.row_blocks:
                n = (b1 - b0) * H * (t1 - t0) * t1
                D = tile[:n].reshape(b1 - b0, H, t1 - t0, t1)
                self.back.append(
                    {
                        "D": D,
                        "DT": D.swapaxes(2, 3),
                        "do": do[b0:b1, :, t0:t1],
                        "dl": dl[b0:b1, :, t0:t1],
                        "dq": dqkv[0, b0:b1, :, t0:t1],
                        "dk": dqkv[1, b0:b1, :, :t1],
                        "dv": dqkv[2, b0:b1, :, :t1],
                        "part": part[b0:b1, :, :t1],
                        "dk_old": dqkv[1, b0:b1, :, :t0],
                        "dv_old": dqkv[2, b0:b1, :, :t0],
                        "part_old": part[b0:b1, :, :t0],
                        "part_new": part[b0:b1, :, t0:t1],
                        "dk_new": dqkv[1, b0:b1, :, t0:t1],
                        "dv_new": dqkv[2, b0:b1, :, t0:t1],
                        "first": t0 == 0,
                    }
                )
        self.fh, self.fr = new(N, d), new(N, 1)
        self.logits, self.ll, self.rowl = new(N, V), new(N, 1), np.empty(N, F)
        self.col = new(N, 1)
        self.inv_d, self.eps = F(1 / d), F(c["eps"])
        self.base = np.arange(N) * V
        self.one, self.two = np.array(1, F), np.array(2, F)

    # RMSNorm without its gain (folded into the weights that follow)
    def norm(self, x, xh, r):
        np.vecdot(x, x, out=r[:, 0])
        np.multiply(r, self.inv_d, out=r)
        np.add(r, self.eps, out=r)
        np.sqrt(r, out=r)
        np.divide(self.one, r, out=r)
        np.multiply(x, r, out=xh)

    def norm_back(self, g, xh, r):
        """dx += the gradient through xh; g is overwritten."""
        col, tmp = self.col, self.tmp
        np.vecdot(g, xh, out=col[:, 0])
        np.multiply(col, self.inv_d, out=col)
        np.multiply(xh, col, out=tmp)
        np.subtract(g, tmp, out=g)
        np.multiply(g, r, out=g)
        np.add(self.dx, g, out=self.dx)

    def attend(self, z):
        np.multiply(z["z"], self.rot, out=z["z"])
        for t in z["tiles"]:
            E, E2, sums = t["E"], t["E2"], t["l"]
            np.matmul(t["q"], t["kT"], out=E)
            np.exp2(E, out=E)
            np.multiply(t["diag"], t["tri"], out=t["diag"])
            np.matmul(E2, t["ones"], out=sums)
            if not (np.minimum.reduce(sums) > 1e-30 and np.maximum.reduce(sums) < 1e38):
                self._careful(t)
            np.matmul(E, t["v"], out=t["o"])
            np.divide(self.one, sums.reshape(t["il"].shape), out=t["il"])
        np.multiply(z["att4"], z["il_o"], out=z["att4"])

    @staticmethod
    def _careful(t):
        """The rare case: scores too large or small for exp2 unshifted."""
        E = t["E"]
        np.matmul(t["q"], t["kT"], out=E)
        n = t["diag"].shape[-1]
        t["diag"][..., np.triu(np.ones((E.shape[2], n), bool), 1)] = -np.inf
        np.subtract(E, E.max(-1, keepdims=True), out=E)
        np.exp2(E, out=E)
        np.matmul(t["E2"], t["ones"], out=t["l"])

    def attend_back(self, z):
        """datt (gradient of the attention output) -> dqkv."""
        do4 = self.datt.reshape(z["att4"].shape)
        np.multiply(do4, z["il_o"], out=do4)
        np.vecdot(do4, z["att4"], out=self.delta)
        for t, b in zip(z["tiles"], self.back):
            D, E = b["D"], t["E"]
            np.matmul(b["do"], t["vT"], out=D)
            np.subtract(D, b["dl"], out=D)
            np.multiply(D, E, out=D)
            np.matmul(D, t["k"], out=b["dq"])
            if b["first"]:
                np.matmul(E.swapaxes(2, 3), b["do"], out=b["dv"])
                np.matmul(b["DT"], t["q"], out=b["dk"])
            else:
                part = b["part"]
                np.matmul(E.swapaxes(2, 3), b["do"], out=part)
                np.add(b["dv_old"], b["part_old"], out=b["dv_old"])
                b["dv_new"][...] = b["part_new"]
                np.matmul(b["DT"], t["q"], out=part)
                np.add(b["dk_old"], b["part_old"], out=b["dk_old"])
                b["dk_new"][...] = b["part_new"]
        np.multiply(self.dz, self.rot_back, out=self.dz)

    def run(self, tokens, targets, n_total):
        """Sum of the losses; gradients (of the folded weights) in self.G."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return self._run(tokens, targets, n_total)

    def _run(self, tokens, targets, n_total):
        c, W, G = self.c, self.W, self.G
        f, x, dx, tmp, one, two = c["f"], self.x, self.dx, self.tmp, self.one, self.two
        np.take(W["emb"], tokens, axis=0, out=x, mode="clip")
        for i, z in enumerate(self.layers):
            at = f"l{i}."
            self.norm(x, z["xh1"], z["r1"])
            np.matmul(z["xh1"], W[at + "wqkv"], out=z["qkv"])
            self.attend(z)
            np.matmul(z["att"], W[at + "wo"], out=tmp)
            np.add(x, tmp, out=x)
            self.norm(x, z["xh2"], z["r2"])
            h, u, p, s = z["h"], z["u"], z["p"], z["s"]
            wg, wu = W[at + "wgu"][:, :f], W[at + "wgu"][:, f:]
            np.matmul(z["xh2"], wg, out=h)
            np.matmul(z["xh2"], wu, out=u)
            np.tanh(h, out=p)
            np.add(p, one, out=p)  # p = 1 + tanh(g/2) = 2 sigmoid(g)
            np.multiply(p, h, out=s)  # s = silu(g)
            np.multiply(s, u, out=z["hid"])
            np.matmul(z["hid"], W[at + "wd"], out=tmp)
            np.add(x, tmp, out=x)
        self.norm(x, self.fh, self.fr)
        # cross-entropy; the head's weights carry log2(e)
        e, sums, idx = self.logits, self.rowl, self.base + targets
        np.matmul(self.fh, W["head"], out=e)
        picked = np.take(e.reshape(-1), idx)
        np.exp2(e, out=e)
        np.matmul(e, self.ones[: c["V"]], out=sums)
        if not (np.minimum.reduce(sums) > 1e-30 and np.maximum.reduce(sums) < 1e38):
            np.matmul(self.fh, W["head"], out=e)
            top = e.max(1, keepdims=True)
            np.subtract(e, top, out=e)
            picked = picked - top[:, 0]
            np.exp2(e, out=e)
            np.matmul(e, self.ones[: c["V"]], out=sums)
        loss = LN2 * float(np.sum(np.log2(sums) - picked, dtype=np.float64))
        scale = F(LN2 / n_total)
        np.divide(scale, sums, out=sums)
        np.multiply(e, sums[:, None], out=e)
        e.reshape(-1)[idx] -= scale
        # backward
        np.matmul(self.fh.T, e, out=G["head"])
        g = self.datt
        np.matmul(e, W["head"].T, out=g)
        dx[...] = 0
        self.norm_back(g, self.fh, self.fr)
        for i in range(c["L"] - 1, -1, -1):
            z, at = self.layers[i], f"l{i}."
            u, p, s, dh, w, du = z["u"], z["p"], z["s"], self.dh, self.w, self.du
            wg, wu, dwgu = W[at + "wgu"][:, :f], W[at + "wgu"][:, f:], G[at + "wgu"]
            np.matmul(z["hid"].T, dx, out=G[at + "wd"])
            np.matmul(dx, W[at + "wd"].T, out=dh)
            np.multiply(dh, s, out=du)
            np.multiply(dh, u, out=dh)
            np.subtract(two, p, out=w)  # d silu / d(g/2) = p + s (2 - p)
            np.multiply(w, s, out=w)
            np.add(w, p, out=w)
            np.multiply(dh, w, out=dh)
            np.matmul(z["xh2"].T, dh, out=dwgu[:, :f])
            np.matmul(z["xh2"].T, du, out=dwgu[:, f:])
            np.matmul(dh, wg.T, out=g)
            np.matmul(du, wu.T, out=tmp)
            np.add(g, tmp, out=g)
            self.norm_back(g, z["xh2"], z["r2"])
            np.matmul(z["att"].T, dx, out=G[at + "wo"])
            np.matmul(dx, W[at + "wo"].T, out=g)
            self.attend_back(z)
            np.matmul(z["xh1"].T, self.dqkv, out=G[at + "wqkv"])
            np.matmul(self.dqkv, W[at + "wqkv"].T, out=g)
            self.norm_back(g, z["xh1"], z["r1"])
        return loss


def scatter_rows(G, tokens, dx):
    """G[tokens[i]] += dx[i], G being overwritten."""
    V, N = G.shape[0], len(tokens)
    if V <= 128:
        hot = np.zeros((N, V), F)
        hot.reshape(-1)[np.arange(N) * V + tokens] = 1
        np.matmul(hot.T, dx, out=G)
        return
    order = np.argsort(tokens.astype(np.int16 if V < 32768 else np.int64), kind="stable")
    s = tokens[order]
    first = np.flatnonzero(np.concatenate(([True], s[1:] != s[:-1])))
    G[...] = 0
    G[s[first]] = np.add.reduceat(dx[order], first, axis=0)


class Trainer:
    def __init__(self, c, params, tokens, targets, workers=1, block=64, tile_bytes=1 << 19, chunk=1 << 15):
        self.c, self.workers, self.chunk = c, workers, chunk
        self.flat = fuse(params, c)
        self.P = views(self.flat, c)
        self.folded = np.empty_like(self.flat)
        self.W = views(self.folded, c)
        self.W["emb"] = self.P["emb"]
        for i in range(c["L"]):  # not folded: used as they are
            self.W[f"l{i}.wo"], self.W[f"l{i}.wd"] = self.P[f"l{i}.wo"], self.P[f"l{i}.wd"]
        self.m, self.v = np.zeros_like(self.flat), np.zeros_like(self.flat)
        B, T = tokens.shape
        cut = [B * i // workers for i in range(workers + 1)]
        self.shards = [Shard(c, self.W, b - a, block, tile_bytes) for a, b in itertools.pairwise(cut)]
        self.tokens = [np.ascontiguousarray(tokens[a:b]).reshape(-1) for a, b in itertools.pairwise(cut)]
        self.targets = [np.ascontiguousarray(targets[a:b]).reshape(-1) for a, b in itertools.pairwise(cut)]
        self.all_tokens, self.n = tokens.reshape(-1), B * T
        self.grad, self.G = self.shards[0].flat_grad, self.shards[0].G
        self.pool = ThreadPoolExecutor(workers - 1) if workers > 1 else None
        n = len(self.flat)
        mid = [n * i // workers for i in range(workers + 1)]
        self.spans = list(itertools.pairwise(mid))
        self.bufs = [np.empty(chunk, F) for _ in range(workers)]
        self.t = 0
        # (weight, gain, scale of its left part, width of it): what is folded
        half, base2 = F(0.5), F(LOG2E)
        self.folds = [("head", "nf", base2, c["V"])]
        for i in range(c["L"]):
            self.folds += [(f"l{i}.wqkv", f"l{i}.n1", None, 0), (f"l{i}.wgu", f"l{i}.n2", half, c["f"])]

    def map(self, fn, args):
        """fn over args, one thread each."""
        if self.pool is None:
            return [fn(*a) for a in args]
        rest = [self.pool.submit(fn, *a) for a in args[1:]]
        first = fn(*args[0])
        return [first] + [r.result() for r in rest]

    def fold(self):
        for w, g, scale, width in self.folds:
            np.multiply(self.P[w], self.P[g][:, None], out=self.W[w])
            if scale is not None:
                part = self.W[w][:, :width]
                np.multiply(part, scale, out=part)

    def unfold(self):
        """Gradients of folded weights -> of weights and gains."""
        for w, g, scale, width in self.folds:
            D = self.G[w]
            if scale is not None:
                part = D[:, :width]
                np.multiply(part, scale, out=part)
            np.vecdot(D, self.P[w], out=self.G[g])
            np.multiply(D, self.P[g][:, None], out=D)

    def grads(self):
        self.fold()
        losses = self.map(lambda s, a, b: s.run(a, b, self.n), list(zip(self.shards, self.tokens, self.targets)))
        for s in self.shards[1:]:
            np.add(self.grad, s.flat_grad, out=self.grad)
        self.unfold()
        dx = self.shards[0].dx if len(self.shards) == 1 else np.concatenate([s.dx for s in self.shards])
        scatter_rows(self.G["emb"], self.all_tokens, dx)
        return sum(losses) / self.n

    def adamw_span(self, lo, hi, buf):
        # m' = m/(1-b1) and v' = v/(1-b2) are kept instead of m and v: the
        # factors (1-b1), (1-b2) and the bias corrections become two scalars.
        c, t = self.c, self.t
        b1, b2 = c["b1"], c["b2"]
        cm = (1 - b1) / (1 - b1**t)
        cv = ((1 - b2) / (1 - b2**t)) ** 0.5
        arr = lambda v: np.array(v, F)
        b1, b2, eps, step, keep = map(arr, (b1, b2, c["adam_eps"] / cv, c["lr"] * cm / cv, 1 - c["lr"] * c["wd"]))
        for a in range(lo, hi, self.chunk):
            z = min(a + self.chunk, hi)
            p, g, m, v, w = self.flat[a:z], self.grad[a:z], self.m[a:z], self.v[a:z], buf[: z - a]
            np.multiply(m, b1, out=m)
            np.add(m, g, out=m)
            np.multiply(g, g, out=w)
            np.multiply(v, b2, out=v)
            np.add(v, w, out=v)
            np.sqrt(v, out=w)
            np.add(w, eps, out=w)
            np.divide(m, w, out=w)
            np.multiply(w, step, out=w)
            np.multiply(p, keep, out=p)
            np.subtract(p, w, out=p)

    def step(self):
        loss = self.grads()
        self.t += 1
        self.map(self.adamw_span, [(lo, hi, b) for (lo, hi), b in zip(self.spans, self.bufs)])
        return loss
