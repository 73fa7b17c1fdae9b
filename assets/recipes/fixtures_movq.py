"""Reference values of the clip tokenizer: tests/golden/movq/movq.safetensors and, of all its tensors,
names.txt with name and shape.

A small Emu3VQVAE of `transformers` in fp32; weights are hashes (hashed_weights.py), but the codebook, which is
stored with a clip of two grids, a picture, and what the model makes of them.
"""
from __future__ import annotations

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import Emu3VQVAEConfig
from transformers.models.emu3.modeling_emu3 import Emu3VQVAE

from hashed_weights import weight


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("tests/golden/movq/movq.safetensors"))
    options = parser.parse_args()
    torch.manual_seed(11)
    config = Emu3VQVAEConfig(codebook_size=64, embed_dim=4, latent_channels=4, base_channels=32,
                             channel_multiplier=[1, 2], num_res_blocks=2, attn_resolutions=[1],
                             hidden_size=64)
    model = Emu3VQVAE(config).eval()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.dtype.is_floating_point:
                # Half the hashes: rounding errors stay small.
                tensor.copy_(weight(name, tensor.shape) * (0.5 if tensor.dim() > 1 else 1))
    clip = torch.rand(1, 8, 3, 16, 24) * 2 - 1
    picture = torch.rand(1, 3, 16, 24) * 2 - 1
    sizes = torch.tensor([[16, 24]])
    with torch.no_grad():
        # Latents tell codes apart only where they spread as the codebook does.
        z = model.quant_conv(model.encoder(clip).permute(0, 2, 1, 3, 4))
        spread = z.std().item()
        book = torch.randn(config.codebook_size, config.embed_dim) * spread + z.mean().item()
        model.quantize.embedding.weight.copy_(book.bfloat16().float())
        codes = model.encode(clip, image_sizes=sizes).image_tokens[0]
        image_codes = model.encode(picture, image_sizes=sizes).image_tokens[0]
        decoded = model.decode(codes[None])[0]
        image_decoded = model.decode(image_codes[None])[0]
        distances = torch.cdist(z.permute(0, 2, 3, 4, 1).reshape(-1, 4), model.quantize.embedding.weight)
        two = distances.topk(2, largest=False).values
    shapes = {n: t.shape for n, t in model.state_dict().items() if t.dtype.is_floating_point}
    stored = {"quantize.embedding.weight": model.quantize.embedding.weight.detach().bfloat16(),
             "golden.clip": clip[0].permute(0, 2, 3, 1), "golden.codes": codes.int(),
             "golden.decoded": decoded.permute(0, 2, 3, 1), "golden.picture": picture[0].permute(1, 2, 0),
             "golden.picture_codes": image_codes.int(), "golden.picture_decoded": image_decoded.permute(1, 2, 0)}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    save_file({n: t.contiguous() for n, t in stored.items()}, str(options.out))
    (options.out.parent / "names.txt").write_text(
        "".join(f"{n} {' '.join(str(k) for k in shape)}\n" for n, shape in sorted(shapes.items())))
    print(f"{sum(shape.numel() for shape in shapes.values())} weights, {len(codes.unique())} codes in use, "
          f"nearest and next code {float((two[:, 1] - two[:, 0]).min()):.2e} apart at least, "
          f"decoded up to {float(decoded.abs().max()):.2f}")


if __name__ == "__main__":
    main()
