"""ATen's results and gradients of every conformance case, in f64 on the CPU.

    PARITY_EXPORT=/tmp/cases cargo test --lib export_cases -- --ignored
    python tests/golden/operators/generate.py /tmp/cases tests/golden/operators/golden.safetensors

Written with PyTorch 2.11.0 (CPU). The loss is the one of the cases: the sum over all
differentiable results of result * result_weight.
"""

import json
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file


def batch_norm(a, x, w, b, m, v):
    m, v = m.clone(), v.clone()
    y = F.batch_norm(x, m, v, w, b, a["training"], a["momentum"], a["eps"])
    return [y, m, v] if a["training"] else [y]


def sdpa(a, q, k, v, mask=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=a["is_causal"], scale=a["scale"])


def norm_args(rest):
    return rest if len(rest) == 2 else (None, None)


def index_put(a, x, i, v):
    return x.index_put((i,), v, accumulate=a["accumulate"])


def slice_(a, x):
    index = [slice(None)] * x.dim()
    index[a["dim"]] = slice(a["start"], a["end"], a["step"])
    return x[tuple(index)]


def reduce_all(a, x):
    return a["dims"] or list(range(x.dim()))


OPS = {
    "mm": lambda a, x, y: x.mm(y),
    "bmm": lambda a, x, y: x.bmm(y),
    "matmul": lambda a, x, y: x.matmul(y),
    "addmm": lambda a, c, x, y: torch.addmm(c, x, y, beta=a["beta"], alpha=a["alpha"]),
    "baddbmm": lambda a, c, x, y: torch.baddbmm(c, x, y, beta=a["beta"], alpha=a["alpha"]),
    "linear": lambda a, *x: F.linear(*x),
    "conv1d": lambda a, x, w, b=None: F.conv1d(x, w, b, a["stride"], a["padding"], a["dilation"], a["groups"]),
    "conv2d": lambda a, x, w, b=None: F.conv2d(x, w, b, a["stride"], a["padding"], a["dilation"], a["groups"]),
    "conv_transpose1d": lambda a, x, w, b=None: F.conv_transpose1d(
        x, w, b, a["stride"], a["padding"], a["output_padding"], a["groups"], a["dilation"]),
    "conv_transpose2d": lambda a, x, w, b=None: F.conv_transpose2d(
        x, w, b, a["stride"], a["padding"], a["output_padding"], a["groups"], a["dilation"]),
    "max_pool2d": lambda a, x: F.max_pool2d(x, a["kernel_size"], a["stride"], a["padding"], a["dilation"], a["ceil_mode"]),
    "avg_pool2d": lambda a, x: F.avg_pool2d(
        x, a["kernel_size"], a["stride"], a["padding"], a["ceil_mode"], a["count_include_pad"]),
    "adaptive_avg_pool2d": lambda a, x: F.adaptive_avg_pool2d(x, a["output_size"]),
    "layer_norm": lambda a, x, *r: F.layer_norm(x, a["normalized_shape"], *norm_args(r), a["eps"]),
    "rms_norm": lambda a, x, w=None: F.rms_norm(x, a["normalized_shape"], w, a["eps"]),
    "group_norm": lambda a, x, *r: F.group_norm(x, a["num_groups"], *norm_args(r), a["eps"]),
    "batch_norm": batch_norm,
    "relu": lambda a, x: x.relu(),
    "gelu": lambda a, x: F.gelu(x, approximate=a["approximate"]),
    "silu": lambda a, x: F.silu(x),
    "sigmoid": lambda a, x: x.sigmoid(),
    "tanh": lambda a, x: x.tanh(),
    "softplus": lambda a, x: F.softplus(x, a["beta"], a["threshold"]),
    "leaky_relu": lambda a, x: F.leaky_relu(x, a["negative_slope"]),
    "hardswish": lambda a, x: F.hardswish(x),
    "pow": lambda a, x: x.pow(a["exponent"]),
    "clamp": lambda a, x: x.clamp(a["min"], a["max"]),
    "add_scalar": lambda a, x: x + a["value"],
    "mul_scalar": lambda a, x: x * a["value"],
    "softmax": lambda a, x: x.softmax(a["dim"]),
    "log_softmax": lambda a, x: x.log_softmax(a["dim"]),
    "scaled_dot_product_attention": sdpa,
    "sum": lambda a, x: x.sum(reduce_all(a, x), a["keepdim"]),
    "mean": lambda a, x: x.mean(reduce_all(a, x), a["keepdim"]),
    "var": lambda a, x: x.var(reduce_all(a, x), correction=a["correction"], keepdim=a["keepdim"]),
    "amax": lambda a, x: x.amax(reduce_all(a, x), a["keepdim"]),
    "amin": lambda a, x: x.amin(reduce_all(a, x), a["keepdim"]),
    "logsumexp": lambda a, x: x.logsumexp(reduce_all(a, x), a["keepdim"]),
    "cumsum": lambda a, x: x.cumsum(a["dim"]),
    "argmax": lambda a, x: x.argmax(a["dim"], a["keepdim"]),
    "topk": lambda a, x: list(x.topk(a["k"], a["dim"], a["largest"])),
    "sort": lambda a, x: list(torch.sort(x, stable=True, dim=a["dim"], descending=a["descending"])),
    "embedding": lambda a, w, i: F.embedding(i, w),
    "index_select": lambda a, x, i: x.index_select(a["dim"], i),
    "gather": lambda a, x, i: x.gather(a["dim"], i),
    "scatter_add": lambda a, x, i, s: x.scatter_add(a["dim"], i, s),
    "index_put": index_put,
    "where": lambda a, c, x, y: torch.where(c.bool(), x, y),
    "masked_fill": lambda a, x, m: x.masked_fill(m.bool(), a["value"]),
    "reshape": lambda a, x: x.reshape(a["shape"]),
    "permute": lambda a, x: x.permute(a["dims"]),
    "expand": lambda a, x: x.expand(a["shape"]),
    "slice": slice_,
    "select": lambda a, x: x.select(a["dim"], a["index"]),
    "cat": lambda a, *x: torch.cat(x, a["dim"]),
    "stack": lambda a, *x: torch.stack(x, a["dim"]),
    "split": lambda a, x: list(x.split(a["split_size"], a["dim"])),
    "constant_pad_nd": lambda a, x: F.pad(x, a["pad"], value=a["value"]),
    "roll": lambda a, x: x.roll(a["shifts"], a["dims"]),
    "flip": lambda a, x: x.flip(a["dims"]),
    "repeat_interleave": lambda a, x: x.repeat_interleave(a["repeats"], a["dim"]),
    "upsample_nearest2d": lambda a, x: F.interpolate(x, a["output_size"], mode="nearest"),
    "upsample_bilinear2d": lambda a, x: F.interpolate(
        x, a["output_size"], mode="bilinear", align_corners=a["align_corners"]),
    "cross_entropy_loss": lambda a, x, t, w=None: F.cross_entropy(
        x, t, w, ignore_index=a["ignore_index"], label_smoothing=a["label_smoothing"], reduction=a["reduction"]),
    "nll_loss": lambda a, x, t, w=None: F.nll_loss(x, t, w, ignore_index=a["ignore_index"], reduction=a["reduction"]),
    "mse_loss": lambda a, x, t: F.mse_loss(x, t, reduction=a["reduction"]),
    "l1_loss": lambda a, x, t: F.l1_loss(x, t, reduction=a["reduction"]),
    "smooth_l1_loss": lambda a, x, t: F.smooth_l1_loss(x, t, beta=a["beta"], reduction=a["reduction"]),
    "binary_cross_entropy_with_logits": lambda a, x, t: F.binary_cross_entropy_with_logits(
        x, t, reduction=a["reduction"]),
    "kl_div": lambda a, x, t: F.kl_div(x, t, log_target=a["log_target"], reduction=a["reduction"]),
    # Values are compared without the rounding of the narrower dtype.
    "_to_copy": lambda a, x: x * 1.0,
    "native_dropout": lambda a, x, m: x * m / (1 - a["p"]),
}
for name in ["exp", "log", "sqrt", "rsqrt", "reciprocal", "erf", "sin", "cos", "abs", "neg"]:
    OPS[name] = lambda a, x, name=name: getattr(x, name)()
for name in ["add", "sub", "mul", "div", "maximum", "minimum"]:
    OPS[name] = lambda a, x, y, name=name: getattr(torch, name)(x, y)


def main(folder, target):
    tensors = load_file(f"{folder}/inputs.safetensors")
    golden = {}
    for case in json.load(open(f"{folder}/cases.json")):
        name, op = case["name"], case["op"]
        inputs = [tensors[f"{name}|{i['name']}"].clone() for i in case["inputs"]]
        for tensor, i in zip(inputs, case["inputs"]):
            tensor.requires_grad_(i["differentiable"])
        results = OPS[op["op"]](op, *inputs)
        results = results if isinstance(results, list) else [results]
        loss = None
        for n, result in enumerate(results):
            golden[f"{name}|result.{n}"] = result.detach().contiguous().clone()
            weight = tensors.get(f"{name}|result_weight.{n}")
            if weight is not None:
                term = (result * weight).sum()
                loss = term if loss is None else loss + term
        wanted = [(t, i["name"]) for t, i in zip(inputs, case["inputs"]) if i["differentiable"]]
        if loss is not None:
            for (_, n), g in zip(wanted, torch.autograd.grad(loss, [t for t, _ in wanted])):
                golden[f"{name}|gradient.{n}"] = g.contiguous().clone()
    save_file(golden, target, metadata={"torch": torch.__version__})


main(*sys.argv[1:])
