#!/usr/bin/env python3
"""Write the golden files: what the Hugging Face models compute, in f64.

Made with: Python 3.11.7, torch 2.11.0 (CPU), transformers 4.57.6,
           numpy 2.4.6, safetensors 0.8.0.
Run:       python make.py {vit,vit-small,gpt2,resnet-basic,resnet-bottleneck,all} [--out DIR] [--compact]

Each family gets a folder with config.json and model.safetensors (f32, as
`save_pretrained` writes them) and golden.safetensors; `vit` has the golden
file alone and takes its model and data from `fixtures/digits-vit`.

In golden.safetensors: the inputs and labels under the names of the model's
arguments (float inputs as f32, widened before use), and in f64

    logits, loss                     the outputs
    grad.KEY                         gradient of the loss for the parameter KEY
    grad_input                       gradient for the float input, if there is one
    activation.hidden_states.K       the K-th entry of `hidden_states`

`resnet-*` holds two sets, prefixed `eval.` (running statistics) and `train.`
(batch statistics; train.buffer.KEY is the buffer KEY after that one pass).

The parameters are read back from the f32 file and widened, so the file is all
that another implementation needs. Two places in transformers 4.57 narrow to
f32 whatever the model's dtype is; both are avoided here and everything stays
in f64:

* The eager attention of ViT takes its softmax in f32. ViT runs with `sdpa`
  instead, pinned to the plain mathematical kernel.
* The loss of causal language models narrows the logits to f32. The same loss
  (shift, then the library's own cross-entropy) is taken without that step.

Both are compared with the untouched computation to f32 accuracy. Every
gradient is compared with a central difference of the f64 loss along a random
direction, for each parameter tensor and for the input; a file is written only
if all agree.
"""

import argparse
import copy
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)
from transformers.loss.loss_utils import fixed_cross_entropy

HERE = Path(__file__).resolve().parent
DIGITS_VIT = HERE.parent.parent / "fixtures" / "digits-vit"
PROBE_STEP = 2.0**-17
PROBE_LIMIT = 1e-7
F32_LIMIT = 1e-5
COMPACT_ELEMENTS = 1024


def randomize(model, seed):
    """Seeded parameters and buffers, none of them at 0 or 1, none large."""
    generator = torch.Generator().manual_seed(seed)

    def normal(tensor, mean, std):
        tensor.copy_(mean + std * torch.randn(tensor.shape, generator=generator))

    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1:
                is_scale = name.endswith("weight")
                normal(p, 1.0 if is_scale else 0.0, 0.2)
            elif any(part in name for part in ("wte", "wpe", "cls_token", "position_embeddings")):
                normal(p, 0.0, 0.4)
            else:
                # Conv1D of GPT-2 is the one layer that stores [in, out].
                conv1d = any(part in name for part in ("c_attn", "c_proj", "c_fc"))
                fan_in = p.shape[0] if conv1d else p[0].numel()
                normal(p, 0.0, 1.2 * fan_in**-0.5)
        for name, b in model.named_buffers():
            if name.endswith("running_mean"):
                normal(b, 0.0, 0.3)
            elif name.endswith("running_var"):
                b.copy_(0.5 + 1.5 * torch.rand(b.shape, generator=generator))
            elif name.endswith("num_batches_tracked"):
                b.fill_(7)
    return model


def save_model(model, folder):
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def load_f64(cls, folder, attention=None):
    options = {"attn_implementation": attention} if attention else {}
    model = cls.from_pretrained(folder, local_files_only=True, **options).double().eval()
    stored = load_file(folder / "model.safetensors")
    for key, value in model.state_dict().items():
        if key in stored and not torch.equal(stored[key].to(value.dtype), value):
            raise SystemExit(f"{folder}: {key} was not read back as stored")
    return model


def causal_loss_f64(logits, labels, vocab_size, ignore_index=-100, **_):
    shifted = F.pad(labels, (0, 1), value=ignore_index)[..., 1:].reshape(-1)
    return fixed_cross_entropy(logits.reshape(-1, vocab_size), shifted, ignore_index=ignore_index)


def run(model, inputs):
    """The outputs of one pass, with the plain f64 attention kernel where there is a choice."""
    with sdpa_kernel([SDPBackend.MATH]):
        return model(**inputs, output_hidden_states=True)


def float_input(inputs):
    return next((k for k, v in inputs.items() if v.is_floating_point()), None)


def widen(inputs):
    return {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}


def compute(model, inputs, prefix="", activations=True):
    """All f64 results of one pass under their names in the golden file."""
    model = copy.deepcopy(model)
    inputs = widen(inputs)
    key = float_input(inputs)
    if key:
        inputs[key].requires_grad_()
    output = run(model, inputs)
    output.loss.backward()
    result = {"logits": output.logits, "loss": output.loss}
    if activations:
        for k, value in enumerate(output.hidden_states):
            result[f"activation.hidden_states.{k}"] = value
    for name, p in model.named_parameters():
        result[f"grad.{name}"] = p.grad
    if key:
        result["grad_input"] = inputs[key].grad
    if model.training:
        for name, b in model.named_buffers():
            result[f"buffer.{name}"] = b
    for name, value in result.items():
        expected = torch.int64 if name.endswith("num_batches_tracked") else torch.float64
        if value is None or value.dtype != expected:
            raise SystemExit(f"{prefix}{name} is {value if value is None else value.dtype}, not {expected}")
    return {prefix + name: value.detach().clone().contiguous() for name, value in result.items()}


@torch.no_grad()
def probe(model, inputs, golden, prefix=""):
    """Largest gap between gradient and central difference, over all tensors.

    Along a random unit direction u: (8 d1 - d2) / 12 h with d_k the loss at
    +kh minus the loss at -kh, an error of O(h^4). The gap is taken relative to
    |gradient|, with a floor of 1e-3 for gradients that are zero.
    """
    generator = torch.Generator().manual_seed(1)
    model = copy.deepcopy(model)
    inputs = widen(inputs)
    key = float_input(inputs)
    targets = {f"grad.{name}": p for name, p in model.named_parameters()}
    if key:
        targets["grad_input"] = inputs[key]
    worst, where = 0.0, ""
    for name, tensor in targets.items():
        gradient = golden[prefix + name]
        direction = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
        direction /= direction.norm()
        start = tensor.clone()

        def loss(k):
            tensor.copy_(start + k * PROBE_STEP * direction)
            return run(model, inputs).loss.item()

        d1, d2 = loss(1) - loss(-1), loss(2) - loss(-2)
        tensor.copy_(start)
        measured = (8.0 * d1 - d2) / (12.0 * PROBE_STEP)
        claimed = (gradient * direction).sum().item()
        gap = abs(measured - claimed) / max(gradient.norm().item(), 1e-3)
        if gap > worst:
            worst, where = gap, name
    print(f"  {prefix or 'all '}gradients against differences: {len(targets)} tensors, largest gap {worst:.1e} ({where})")
    if worst > PROBE_LIMIT:
        raise SystemExit(f"gradient of {where} disagrees with its difference by {worst:.1e}")


def same_to_f32(model, inputs, golden):
    """The untouched computation gives the same numbers to f32 accuracy."""
    inputs = widen(inputs)
    output = model(**inputs)
    output.loss.backward()
    gaps = {
        "logits": (output.logits - golden["logits"]).abs().max() / golden["logits"].abs().max(),
        "loss": (output.loss - golden["loss"]).abs() / golden["loss"].abs(),
    }
    for name, p in model.named_parameters():
        expected = golden[f"grad.{name}"]
        gaps[f"grad.{name}"] = (p.grad - expected).norm() / expected.norm().clamp_min(1e-3)
    name = max(gaps, key=lambda k: gaps[k].item())
    print(f"  untouched computation: largest relative gap {gaps[name].item():.1e} ({name})")
    if gaps[name] > F32_LIMIT:
        raise SystemExit(f"{name} differs from the untouched computation by {gaps[name].item():.1e}")


def write(folder, tensors):
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "golden.safetensors")
    for file in folder.glob("*.safetensors"):
        file.chmod(0o644)
    total = sum(f.stat().st_size for f in folder.iterdir())
    print(f"  {folder.name}: {len(tensors)} tensors, {total} bytes in the folder, loss "
          + ", ".join(f"{v.item():.12f}" for k, v in tensors.items() if k.endswith("loss")))


def make_vit(out, compact):
    data = load_file(DIGITS_VIT / "validation.safetensors")
    inputs = {k: v[:8].contiguous() for k, v in data.items()}
    model = load_f64(ViTForImageClassification, DIGITS_VIT, "sdpa")
    golden = compute(model, inputs)
    probe(model, inputs, golden)
    same_to_f32(load_f64(ViTForImageClassification, DIGITS_VIT, "eager"), inputs, golden)
    if compact:
        golden = {k: v for k, v in golden.items() if not k.startswith("grad.") or v.numel() <= COMPACT_ELEMENTS}
    write(out / "vit", {**inputs, **golden})


def make_vit_small(out, _compact):
    """The fields that digits-vit leaves at their common values: channels, no
    query/key/value bias, another activation, another epsilon, dropout that
    evaluation has to ignore."""
    config = ViTConfig(
        image_size=12, patch_size=4, num_channels=3, encoder_stride=4, hidden_size=24, num_hidden_layers=2,
        num_attention_heads=3, intermediate_size=40, hidden_act="gelu_new", qkv_bias=False, layer_norm_eps=1e-6,
        hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1, num_labels=7,
    )
    folder = out / "vit-small"
    save_model(randomize(ViTForImageClassification(config), 11), folder)
    generator = torch.Generator().manual_seed(12)
    inputs = {
        "pixel_values": torch.randn(3, 3, 12, 12, generator=generator),
        "labels": torch.tensor([5, 0, 3]),
    }
    model = load_f64(ViTForImageClassification, folder, "sdpa")
    golden = compute(model, inputs)
    probe(model, inputs, golden)
    same_to_f32(load_f64(ViTForImageClassification, folder, "eager"), inputs, golden)
    write(folder, {**inputs, **golden})


def make_gpt2(out, _compact):
    config = GPT2Config(
        vocab_size=97, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, bos_token_id=96, eos_token_id=96, tie_word_embeddings=True, use_cache=False,
    )
    folder = out / "gpt2"
    save_model(randomize(GPT2LMHeadModel(config), 21), folder)
    generator = torch.Generator().manual_seed(22)
    ids = torch.randint(0, 97, (2, 16), generator=generator)
    ids[1, 9] = ids[1, 4]
    labels = ids.clone()
    labels[0, 13:] = -100
    labels[1, :4] = -100
    labels[1, 10] = -100
    inputs = {"input_ids": ids, "labels": labels}
    model = load_f64(GPT2LMHeadModel, folder, "eager")
    model.loss_function = causal_loss_f64
    golden = compute(model, inputs, activations=False)
    probe(model, inputs, golden)
    same_to_f32(load_f64(GPT2LMHeadModel, folder, "eager"), inputs, golden)
    write(folder, {**inputs, **golden})


def make_resnet(out, layer_type, hidden_sizes, seed):
    """The seeds used keep every relu input at least 2e-4 away from zero, in
    both modes: f32 arithmetic takes the same branches as f64."""
    config = ResNetConfig(
        num_channels=3, embedding_size=8, hidden_sizes=hidden_sizes, depths=[2, 1], layer_type=layer_type,
        hidden_act="relu", num_labels=5,
    )
    folder = out / f"resnet-{layer_type}"
    save_model(randomize(ResNetForImageClassification(config), seed), folder)
    generator = torch.Generator().manual_seed(seed + 1)
    inputs = {
        "pixel_values": torch.randn(2, 3, 32, 32, generator=generator),
        "labels": torch.tensor([1, 4]),
    }
    model = load_f64(ResNetForImageClassification, folder)
    tensors = dict(inputs)
    for prefix, mode in (("eval.", model.eval()), ("train.", copy.deepcopy(model).train())):
        golden = compute(mode, inputs, prefix)
        probe(mode, inputs, golden, prefix)
        tensors.update(golden)
    write(folder, tensors)


FAMILIES = {
    "vit": make_vit,
    "vit-small": make_vit_small,
    "gpt2": make_gpt2,
    "resnet-basic": lambda out, _compact: make_resnet(out, "basic", [8, 16], 231),
    "resnet-bottleneck": lambda out, _compact: make_resnet(out, "bottleneck", [16, 32], 2141),
}


def main():
    parser = argparse.ArgumentParser(description="Write the golden files of the Hugging Face architectures.")
    parser.add_argument("family", choices=[*FAMILIES, "all"])
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--compact", action="store_true", help="vit: leave out gradients of large matrices")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in FAMILIES if args.family == "all" else [args.family]:
        print(name)
        FAMILIES[name](args.out, args.compact)


if __name__ == "__main__":
    sys.exit(main())
